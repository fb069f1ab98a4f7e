//! The bodies of the fuzz targets `config_json`, `config_yaml`, `config_toml` and `config_values`, over their corpora.

#[cfg(test)]
#[path = "../../../fuzz/bodies/config.rs"]
mod body;
#[cfg(test)]
#[path = "../../../fuzz/bodies/config_values.rs"]
mod values;

#[test]
fn the_laws_hold_over_the_corpora() {
    for notation in ["json", "yaml", "toml"] {
        for file in corpus(&format!("config_{notation}")) {
            eprintln!("{}", file.display());
            // Each text is tried as every notation: what is bad in one may be good in another.
            for name in ["a.json", "a.yaml", "a.toml", "a"] {
                body::check_named(name, &std::fs::read(&file).unwrap());
            }
        }
    }
}

#[test]
fn the_laws_of_values_hold_over_their_corpus() {
    for file in corpus("config_values") {
        eprintln!("{}", file.display());
        values::check(&std::fs::read(&file).unwrap());
    }
}

/// The files of a target's corpus.
fn corpus(target: &str) -> Vec<std::path::PathBuf> {
    let folder = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(&folder).into_iter().flatten();
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    assert!(files.len() >= 10, "the corpus in `{folder}` is not there");
    files
}
