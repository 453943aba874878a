//! `compact` from the command line.

use std::process::{Command, Output};

fn siltstone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = siltstone(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The entries in files, all versions and tombstones included.
fn entries(store: &str) -> u64 {
    let stats: serde_json::Value =
        serde_json::from_str(&printed(&["stats", store, "--json"])).unwrap();
    let levels = stats["tables"]["default"]["levels"].as_array().unwrap();
    levels.iter().map(|level| level["entries"].as_u64().unwrap()).sum()
}

#[test]
fn deleted_keys_of_the_range_are_gone_from_the_files() {
    let scratch = tempfile::tempdir().unwrap();
    let store = scratch.path().join("store").display().to_string();
    for key in ["a", "b", "c", "d"] {
        printed(&["put", &store, key, "1"]);
    }
    printed(&["compact", &store]);
    assert_eq!(entries(&store), 4);
    printed(&["del", &store, "b", "c"]);
    printed(&["compact", &store, "--from", "x"]);
    assert!(entries(&store) > 2, "nothing of it is in the range");
    let line = printed(&["compact", &store, "--from", "b", "--to", "d"]);
    assert!(line.contains("on disk") && line.contains("before"), "{line}");
    assert_eq!(entries(&store), 2);
    assert_eq!(printed(&["scan", &store]).lines().count(), 2);
}

#[test]
fn unordered_table_and_inverted_range_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let store = scratch.path().join("store").display().to_string();
    printed(&["put", &store, "--table", "t=trie", "a", "1"]);
    let refused = siltstone(&["compact", &store, "--table", "t"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("trie"));
    printed(&["put", &store, "a", "1"]);
    let refused = siltstone(&["compact", &store, "--from", "z", "--to", "a"]);
    assert_eq!(refused.status.code(), Some(2));
}
