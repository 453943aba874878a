//! `ingest` and `import --sorted` from the command line.

use std::process::{Command, Output};

use siltstone::SortedFileWriter;

fn siltstone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = siltstone(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refusal(arguments: &[&str]) -> String {
    let output = siltstone(arguments);
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn sorted_files_are_ingested_all_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let store = path("store");
    let files = [path("one"), path("two")];
    for (file, keys) in files.iter().zip([["a", "b"], ["m", "z"]]) {
        let mut writer = SortedFileWriter::create(file, &Default::default()).unwrap();
        keys.iter().for_each(|key| writer.put(key.as_bytes(), b"file").unwrap());
        writer.finish().unwrap();
    }
    printed(&["put", &store, "b", "old"]);
    let printed_json =
        printed(&["ingest", &store, &files[0], &files[1], "--mode", "move", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&printed_json).unwrap();
    assert_eq!((&report["entries"], &report["copied_bytes"]), (&4.into(), &0.into()));
    assert_eq!(printed(&["scan", &store]), "a\tfile\nb\tfile\nm\tfile\nz\tfile\n");
    assert!(!scratch.path().join("one").exists());
    assert!(printed(&["verify", &store]).ends_with("intact\n"));
    let table = scratch.path().join("store/table-default");
    let files = std::fs::read_dir(&table).unwrap().map(|entry| entry.unwrap().path());
    let sorted = files.map(|path| path.display().to_string()).filter(|path| path.ends_with(".sst"));
    // One of them is of the row that was there before.
    let shown: String = sorted.map(|path| printed(&["inspect", &path])).collect();
    assert_eq!(shown.matches("written outside as").count(), 2, "{shown}");
    std::fs::write(path("text"), "a\t1\n").unwrap();
    let refused = refusal(&["ingest", &store, &path("text")]);
    assert!(refused.contains("text is no complete sorted file"), "{refused}");
}

#[test]
fn import_of_sorted_rows_is_all_or_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let store = path("store");
    std::fs::write(path("rows.tsv"), "a\t1\nb\t2\nc\t3\n").unwrap();
    printed(&["import", &store, &path("rows.tsv"), "--sorted"]);
    assert_eq!(printed(&["scan", &store]), "a\t1\nb\t2\nc\t3\n");
    std::fs::write(path("bad.tsv"), "d\t1\nf\t2\ne\t3\n").unwrap();
    let refused = refusal(&["import", &store, &path("bad.tsv"), "--sorted"]);
    assert!(refused.contains("key 'e' comes after key 'f'"), "{refused}");
    assert_eq!(printed(&["scan", &store]).lines().count(), 3);
    let refused =
        refusal(&["import", &path("t"), "--table", "t=trie", &path("rows.tsv"), "--sorted"]);
    assert!(refused.contains("trie"), "{refused}");
    let left = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.map(|name| name.into_string().unwrap()).all(|name| !name.starts_with('.')));
}
