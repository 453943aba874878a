//! Exported rows equal imported ones, whatever their bytes and the format.

use std::process::{Command, Output};

pub(crate) fn siltstone(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn export_can_be_imported_again() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let rows = "plain\tvalue\ntab\\tin\\\\key\tline\\nbreak\nbytes\\xff\\x00\t\\xfe\ngr\u{fc}n\tgreen\nempty\t\n\tempty key\n";
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
    assert!(siltstone(&["verify", &path("tsv")]).stdout.ends_with(b"intact\n"));
}

/// A pipe such as a shell's `<(zcat rows.gz)` cannot be read twice: the import must not succeed
/// without rows.
#[test]
fn named_pipe_is_imported_in_full() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let import = format!(
        "cat {} | {} import {} /dev/stdin --format tsv",
        path("in.tsv"),
        env!("CARGO_BIN_EXE_siltstone"),
        path("s")
    );
    let run = |rows: &str| {
        std::fs::write(path("in.tsv"), rows).unwrap();
        Command::new("sh").args(["-c", &import]).output().unwrap()
    };
    let done = run("a\t1\nb\t2\n");
    let output = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && output.contains("imported 2 rows"), "{output}");
    assert_eq!(siltstone(&["scan", &path("s")]).stdout, b"a\t1\nb\t2\n");
    // As with standard input, the rows before a bad one are imported.
    let done = run("c\t3\nbad\n");
    let output = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.code() == Some(2) && output.contains("(1 rows before it are imported)"),
        "{output}"
    );
}

#[test]
fn digits_of_a_json_number_are_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    std::fs::write(path("n.jsonl"), "{\"key\":\"n\",\"value\":12345678901234567890123}\n").unwrap();
    siltstone(&["import", &path("s"), &path("n.jsonl")]);
    assert_eq!(siltstone(&["get", &path("s"), "n"]).stdout, b"12345678901234567890123\n");
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
fn json_output_is_one_object() {
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

#[test]
fn negative_numbers_are_valid_keys_and_values() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s").display().to_string();
    siltstone(&["put", &dir, "-1", "-2.5"]);
    assert_eq!(siltstone(&["get", &dir, "-1"]).stdout, b"-2.5\n");
    assert_eq!(siltstone(&["scan", &dir, "--from", "-1"]).stdout, b"-1\t-2.5\n");
    siltstone(&["del", &dir, "-1"]);
    assert_eq!(siltstone(&["scan", &dir]).stdout, b"");
}

#[test]
fn export_reports_what_its_format_loses() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s").display().to_string();
    siltstone(&["put", &dir, "session", "1", "--ttl", "1h"]);
    siltstone(&["put", &dir, "user", "1"]);
    let errors = |format: &str| {
        let output = siltstone(&["export", &dir, "-", "--format", format]);
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(errors("tsv").contains("1 of them expire"));
    assert!(!errors("jsonl").contains("expire"));
}

#[test]
fn checkpoint_is_an_independent_store() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (dir, copy) = (path("s"), path("copy"));
    for table in ["a=lsm", "b=silt", "c=trie", "d=mica,memory=8MiB,partitions=2"] {
        siltstone(&["put", &dir, "k", table, "--table", table]);
    }
    siltstone(&["checkpoint", &dir, &copy]);
    for name in ["a", "b", "c"] {
        siltstone(&["put", &dir, "k", "later", "--table", name]);
    }
    for (name, value) in [("a", "a=lsm\n"), ("b", "b=silt\n"), ("c", "c=trie\n")] {
        let output = siltstone(&["get", &copy, "k", "--table", name]);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
    }
    siltstone(&["verify", &copy]);
}

#[test]
fn table_in_memory_does_not_prevent_the_repair_of_others() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s").display().to_string();
    siltstone(&["put", &dir, "k", "v", "--table", "a=mica,memory=8MiB,partitions=2"]);
    siltstone(&["put", &dir, "k", "v", "--table", "b"]);
    let output = String::from_utf8(siltstone(&["repair", &dir]).stdout).unwrap();
    assert!(output.contains("mica has no files") && output.contains("table b:"), "{output}");
    assert_eq!(siltstone(&["get", &dir, "k", "--table", "b"]).stdout, b"v\n");
}
