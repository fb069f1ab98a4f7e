//! The body of the fuzz targets `config_json`, `config_yaml` and `config_toml`, over their corpora.

#[cfg(test)]
#[path = "../../../fuzz/bodies/config.rs"]
mod body;

#[test]
fn the_laws_hold_over_the_corpora() {
    for notation in ["json", "yaml", "toml"] {
        let folder = format!(
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/config_{}"),
            notation
        );
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert!(files.len() >= 10, "the corpus in `{folder}` is not there");
        for file in files {
            eprintln!("{}", file.display());
            // Each text is tried as every notation: what is bad in one may be good in another.
            for name in ["a.json", "a.yaml", "a.toml", "a"] {
                body::check_named(name, &std::fs::read(&file).unwrap());
            }
        }
    }
}
