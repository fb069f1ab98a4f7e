//! The body of the fuzz target `config`, over its corpus.

#[cfg(test)]
#[path = "../../../fuzz/bodies/config.rs"]
mod body;

#[test]
fn the_laws_hold_over_the_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/config");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 10, "the corpus in `{folder}` is not there");
    for file in files {
        eprintln!("{}", file.display());
        body::check(&std::fs::read(&file).unwrap());
    }
}
