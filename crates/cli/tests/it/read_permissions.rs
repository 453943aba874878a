//! A store can be read with read permission only, and no reading command changes it.

#![allow(clippy::print_stderr)]

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::contents;

const BINARY: &str = env!("CARGO_BIN_EXE_siltstone");
/// The user `nobody`.
const NOBODY: u32 = 65534;

fn siltstone(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

/// Runs the program without write permission: as `nobody` if this is root.
fn as_nobody(arguments: &[&str], is_root: bool) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments);
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().unwrap()
}

/// Sets the permissions of every file and directory below `path`.
fn set_permissions(path: &Path, file: u32, directory: u32) {
    let is_directory = path.is_dir();
    // Before descending and after it: the permissions may apply to this user.
    let set = |mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    if is_directory {
        set(0o755);
        path.read_dir()
            .unwrap()
            .for_each(|entry| set_permissions(&entry.unwrap().path(), file, directory));
    }
    set(if is_directory { directory } else { file });
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// A store with a table on each durable engine.
fn filled(dir: &str) {
    let rows = format!("{dir}.tsv");
    let lines: String = (0..2000).map(|n| format!("key{n:05}\tvalue {n}\n")).collect();
    std::fs::write(&rows, lines).unwrap();
    for table in ["default", "t=trie", "s=silt", "k=skimpy,capacity=16MiB"] {
        let output = siltstone(&["import", dir, &rows, "--table", table]);
        assert!(output.status.success(), "{}", text(&output));
    }
}

/// The reading commands, each with a part of its output.
const READING_COMMANDS: [(&[&str], &str); 11] = [
    (&["get", "DIR", "key00042"], "value 42"),
    (&["get", "DIR", "key00042", "--table", "t"], "value 42"),
    (&["get", "DIR", "key00042", "--table", "s"], "value 42"),
    (&["get", "DIR", "key00042", "--table", "k"], "value 42"),
    (&["scan", "DIR", "--prefix", "key0004", "--limit", "3"], "key00042"),
    (&["stats", "DIR"], "table t on trie: about 2000 keys"),
    (&["stats", "DIR", "--table", "k"], "on skimpy: keys are not counted"),
    (&["verify", "DIR"], "intact"),
    (&["inspect", "DIR"], "MANIFEST"),
    (&["export", "DIR", "-", "--table", "k"], "key00042\tvalue 42\n"),
    (&["export", "DIR", "-"], "exported 2000 rows"),
];

fn at(dir: &str, arguments: &[&'static str]) -> Vec<String> {
    arguments.iter().map(|argument| argument.replace("DIR", dir)).collect()
}

#[test]
fn reading_commands_leave_every_byte_unchanged() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    filled(&dir);
    let before = contents(&dir);
    for (arguments, part) in READING_COMMANDS {
        let arguments = at(&dir, arguments);
        let output = siltstone(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let text = text(&output);
        assert!(output.status.success() && text.contains(part), "{arguments:?}: {text}");
        assert!(contents(&dir) == before, "{arguments:?} changed the store");
    }
}

#[test]
fn store_with_read_permission_can_be_read_and_not_written() {
    let scratch = tempfile::tempdir().unwrap();
    let is_root = scratch.path().metadata().unwrap().uid() == 0;
    std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    let dir = scratch.path().join("store").display().to_string();
    filled(&dir);
    if !Command::new(BINARY)
        .uid(if is_root { NOBODY } else { scratch.path().metadata().unwrap().uid() })
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        eprintln!("skipped: another user may not run {BINARY}");
        return;
    }
    set_permissions(Path::new(&dir), 0o444, 0o555);
    let before = contents(&dir);
    for (arguments, part) in READING_COMMANDS {
        let arguments = at(&dir, arguments);
        let output = as_nobody(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), is_root);
        let text = text(&output);
        assert!(output.status.success() && text.contains(part), "{arguments:?}: {text}");
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
        let output = as_nobody(arguments, is_root);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {text}");
        assert!(text.contains(&dir) && text.contains("Permission denied"), "{text}");
        assert!(text.contains("the user who owns it"), "what to do: {text}");
    }
    assert!(contents(&dir) == before, "the store was changed");

    // Write permission for the directories only, or for all but one table, damages nothing either.
    set_permissions(Path::new(&dir), 0o444, 0o777);
    let output = as_nobody(&["put", &dir, "new", "value"], is_root);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(contents(&dir) == before, "the store was changed");
    std::fs::set_permissions(format!("{dir}/LOCK"), Permissions::from_mode(0o666)).unwrap();
    std::fs::set_permissions(format!("{dir}/table-default"), Permissions::from_mode(0o555))
        .unwrap();
    let output = as_nobody(&["put", &dir, "new", "value"], is_root);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(contents(&dir) == before, "the store was changed");

    // An unreadable file is reported by name.
    set_permissions(Path::new(&dir), 0o000, 0o755);
    let output = as_nobody(&["get", &dir, "key00042"], is_root);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains(&dir) && text(&output).contains("Permission denied"));
    std::fs::set_permissions(&dir, Permissions::from_mode(0o000)).unwrap();
    let output = as_nobody(&["get", &dir, "key00042"], is_root);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains(&dir) && text(&output).contains("Permission denied"));
    set_permissions(Path::new(&dir), 0o644, 0o755);
    assert!(siltstone(&["verify", &dir]).status.success());
}

#[test]
fn readers_share_a_store_and_exclude_writers() {
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
