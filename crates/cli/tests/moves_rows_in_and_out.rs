//! Do rows come out of a store as they went in, whatever their bytes and whatever the format?

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn siltstone(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn an_export_imports_again() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let rows = "plain\tvalue\ntab\\tin\\\\key\tline\\nbreak\nbytes\\xff\\x00\t\\xfe\ngr\u{fc}n\tgreen\nalone\n";
    std::fs::write(path("in.tsv"), rows).unwrap();
    siltstone(&["import", &path("first"), &path("in.tsv")]);
    for format in ["tsv", "jsonl"] {
        let (file, copy) = (path(&format!("out.{format}")), path(format));
        siltstone(&["export", &path("first"), &file]);
        siltstone(&["import", &copy, &file]);
        let scan = |dir: &str| siltstone(&["scan", dir]).stdout;
        assert_eq!(scan(&copy), scan(&path("first")), "{format}");
    }
    assert_eq!(siltstone(&["get", &path("first"), "tab\tin\\key"]).stdout, b"line\nbreak\n");
    assert!(siltstone(&["verify", &path("tsv")]).stdout.ends_with(b"sound\n"));
}

#[test]
fn columns_of_a_csv_become_values() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    std::fs::write(path("c.csv"), "id,name,town\n1,\"Ada, L.\",London\n2,Alan,\n").unwrap();
    siltstone(&["import", &path("s"), &path("c.csv"), "--header"]);
    let value = siltstone(&["get", &path("s"), "1"]).stdout;
    assert_eq!(value, b"{\"name\":\"Ada, L.\",\"town\":\"London\"}\n");
}

#[test]
fn answers_in_json_are_one_object() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s").display().to_string();
    for key in ["a", "b", "c"] {
        siltstone(&["put", &dir, key, "v"]);
    }
    for arguments in [
        &["get", &dir, "a", "--json"][..],
        &["scan", &dir, "--json", "--reverse", "--limit", "2"],
        &["stats", &dir, "--json"],
        &["verify", &dir, "--json"],
        &["inspect", &dir, "--json"],
        &["repair", &dir, "--json"],
    ] {
        let output = siltstone(arguments);
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(answer.is_object(), "{arguments:?}");
    }
    let scan = siltstone(&["scan", &dir, "--json", "--reverse", "--limit", "2"]).stdout;
    let scan: serde_json::Value = serde_json::from_slice(&scan).unwrap();
    assert_eq!(scan["entries"][0]["key"], "c");
    let missing = Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(["get", &dir, "missing"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(1));
}
