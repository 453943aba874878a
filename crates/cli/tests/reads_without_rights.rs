//! Can a store be looked at by whoever may read it and not write, and is it left as it is by every command that only
//! looks?

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use support::contents;

const BINARY: &str = env!("CARGO_BIN_EXE_siltstone");
/// `nobody`.
const STRANGER: u32 = 65534;

fn siltstone(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

/// The same by a user who has no rights to write: of root, somebody else.
fn as_stranger(arguments: &[&str], is_root: bool) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments);
    if is_root {
        command.uid(STRANGER).gid(STRANGER);
    }
    command.output().unwrap()
}

/// Gives every file and directory below these rights.
fn allow(path: &Path, file: u32, directory: u32) {
    let is_directory = path.is_dir();
    // Before one goes in, or after one is out: it may be one's own rights.
    let set = |mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    if is_directory {
        set(0o755);
        path.read_dir().unwrap().for_each(|entry| allow(&entry.unwrap().path(), file, directory));
    }
    set(if is_directory { directory } else { file });
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// A store with a table on each durable engine.
fn filled(dir: &str) {
    let rows = format!("{dir}.tsv");
    let lines: String = (0..2000).map(|n| format!("key{n:05}\tvalue {n}\n")).collect();
    std::fs::write(&rows, lines).unwrap();
    for table in ["default", "t=trie", "s=silt", "k=skimpy,capacity=16MiB"] {
        let output = siltstone(&["import", dir, &rows, "--table", table]);
        assert!(output.status.success(), "{}", told(&output));
    }
}

/// What only looks, each with something that it tells.
const LOOKS: [(&[&str], &str); 11] = [
    (&["get", "DIR", "key00042"], "value 42"),
    (&["get", "DIR", "key00042", "--table", "t"], "value 42"),
    (&["get", "DIR", "key00042", "--table", "s"], "value 42"),
    (&["get", "DIR", "key00042", "--table", "k"], "value 42"),
    (&["scan", "DIR", "--prefix", "key0004", "--limit", "3"], "key00042"),
    (&["stats", "DIR"], "table t on trie: about 2000 keys"),
    (&["stats", "DIR", "--table", "k"], "on skimpy: keys are not counted"),
    (&["verify", "DIR"], "sound"),
    (&["inspect", "DIR"], "MANIFEST"),
    (&["export", "DIR", "-", "--table", "k"], "key00042\tvalue 42\n"),
    (&["export", "DIR", "-"], "exported 2000 rows"),
];

fn at(dir: &str, arguments: &[&'static str]) -> Vec<String> {
    arguments.iter().map(|argument| argument.replace("DIR", dir)).collect()
}

#[test]
fn what_only_looks_leaves_every_byte_as_it_was() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    filled(&dir);
    let before = contents(&dir);
    for (arguments, part) in LOOKS {
        let arguments = at(&dir, arguments);
        let output = siltstone(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let told = told(&output);
        assert!(output.status.success() && told.contains(part), "{arguments:?}: {told}");
        assert!(contents(&dir) == before, "{arguments:?} changed the store");
    }
}

#[test]
fn a_store_that_may_be_read_and_not_written() {
    let scratch = tempfile::tempdir().unwrap();
    let is_root = scratch.path().metadata().unwrap().uid() == 0;
    std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    let dir = scratch.path().join("store").display().to_string();
    filled(&dir);
    if !Command::new(BINARY)
        .uid(if is_root { STRANGER } else { scratch.path().metadata().unwrap().uid() })
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        eprintln!("skipped: another user may not run {BINARY}");
        return;
    }
    allow(Path::new(&dir), 0o444, 0o555);
    let before = contents(&dir);
    for (arguments, part) in LOOKS {
        let arguments = at(&dir, arguments);
        let output =
            as_stranger(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), is_root);
        let told = told(&output);
        assert!(output.status.success() && told.contains(part), "{arguments:?}: {told}");
    }
    let writes: [&[&str]; 6] = [
        &["put", &dir, "new", "value"],
        &["del", &dir, "key00042"],
        &["import", &dir, &format!("{dir}.tsv")],
        &["put", &dir, "new", "value", "--table", "other=silt"],
        &["repair", &dir],
        &["serve", &dir, "--listen", "127.0.0.1:0"],
    ];
    for arguments in writes {
        let output = as_stranger(arguments, is_root);
        let told = told(&output);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {told}");
        assert!(told.contains(&dir) && told.contains("Permission denied"), "{told}");
        assert!(told.contains("the user whose it is"), "what to do: {told}");
    }
    assert!(contents(&dir) == before, "the store was changed");

    // Rights to the directories alone, or to all but one table, damage nothing either.
    allow(Path::new(&dir), 0o444, 0o777);
    let output = as_stranger(&["put", &dir, "new", "value"], is_root);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(contents(&dir) == before, "the store was changed");
    std::fs::set_permissions(format!("{dir}/LOCK"), Permissions::from_mode(0o666)).unwrap();
    std::fs::set_permissions(format!("{dir}/table-default"), Permissions::from_mode(0o555))
        .unwrap();
    let output = as_stranger(&["put", &dir, "new", "value"], is_root);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(contents(&dir) == before, "the store was changed");

    // What may not even be read is said so, by name.
    allow(Path::new(&dir), 0o000, 0o755);
    let output = as_stranger(&["get", &dir, "key00042"], is_root);
    assert_eq!(output.status.code(), Some(3));
    assert!(told(&output).contains(&dir) && told(&output).contains("Permission denied"));
    std::fs::set_permissions(&dir, Permissions::from_mode(0o000)).unwrap();
    let output = as_stranger(&["get", &dir, "key00042"], is_root);
    assert_eq!(output.status.code(), Some(3));
    assert!(told(&output).contains(&dir) && told(&output).contains("Permission denied"));
    allow(Path::new(&dir), 0o644, 0o755);
    assert!(siltstone(&["verify", &dir]).status.success());
}

#[test]
fn two_may_look_at_once_and_none_beside_a_writer() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let path = dir.display().to_string();
    assert!(siltstone(&["put", &path, "k", "v"]).status.success());
    let options = siltstone::DbOptions { read_only: true, ..Default::default() };
    let reader = siltstone::Db::open(&dir, options).unwrap();
    assert_eq!(siltstone(&["get", &path, "k"]).stdout, b"v\n");
    assert_eq!(siltstone(&["put", &path, "k", "w"]).status.code(), Some(3));
    drop(reader);
    let writer = siltstone::Db::open(&dir, Default::default()).unwrap();
    assert_eq!(siltstone(&["get", &path, "k"]).status.code(), Some(3));
    drop(writer);
    assert!(siltstone(&["put", &path, "k", "w"]).status.success());
}
