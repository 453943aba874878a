//! A command whose output is closed ends silently, with its own exit status.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use siltstone::{Db, DbOptions};

use crate::support::contents;

fn siltstone(arguments: &[&str], out: impl Into<Stdio>, err: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    command.args(arguments).stdout(out).stderr(err).output().unwrap()
}

/// A pipe whose reader is closed.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

struct Stores {
    scratch: tempfile::TempDir,
    intact: String,
    ordered: String,
    damaged: String,
}

fn stores() -> Stores {
    let scratch = tempfile::tempdir().unwrap();
    let [intact, damaged] = ["intact", "damaged"].map(|name| {
        let dir = scratch.path().join(name).display().to_string();
        let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
        let table = db.table_or_create("t", "silt", &Default::default()).unwrap();
        for i in 0..1000 {
            table.put(i.to_string().as_bytes(), b"value").unwrap();
        }
        table.flush().unwrap();
        db.close().unwrap();
        dir
    });
    let ordered = scratch.path().join("ordered").display().to_string();
    for key in ["a", "b"] {
        siltstone(&["put", &ordered, key, "v"], Stdio::null(), Stdio::null());
    }
    let others = [".log", "RESERVE"];
    let is_table =
        |path: &str| !others.iter().any(|end| path.ends_with(end)) && !path.contains("MANIFEST");
    let files = contents(&damaged).into_iter().filter(|(path, _)| is_table(path));
    let (path, mut bytes) = files.max_by_key(|(_, bytes)| bytes.len()).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(path, bytes).unwrap();
    Stores { scratch, intact, ordered, damaged }
}

#[test]
fn commands_with_closed_output_succeed_silently() {
    let stores = stores();
    let (dir, ordered) = (&stores.intact[..], &stores.ordered[..]);
    let bench_dir = stores.scratch.path().display().to_string();
    let bench = ["bench", "--workload", "load", "--keys", "100", "--dir", &bench_dir];
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["stats", dir],
        vec!["stats", dir, "--json"],
        vec!["inspect", dir],
        vec!["inspect", dir, "--json"],
        vec!["verify", dir],
        vec!["verify", dir, "--json"],
        vec!["repair", dir],
        vec!["get", dir, "1", "--table", "t"],
        vec!["get", dir, "1", "--table", "t", "--raw"],
        vec!["scan", ordered],
        vec!["scan", ordered, "--json"],
        vec!["export", dir, "-", "--table", "t"],
        vec!["model", "wa", "--design", "lsm", "--keys", "1e6"],
        vec!["advise", "--keys", "20M"],
        vec!["advise", "--keys", "20M", "--json"],
        vec!["--help"],
        vec!["bench", "--help"],
    ];
    commands.push(bench.to_vec());
    commands.push([&bench[..], &["--json"]].concat());
    for arguments in commands {
        let open = siltstone(&arguments, Stdio::piped(), Stdio::piped());
        assert_eq!(open.status.code(), Some(0), "{arguments:?}: {open:?}");
        assert!(!open.stdout.is_empty(), "{arguments:?} prints nothing");
        let output = siltstone(&arguments, closed(), Stdio::piped());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
        assert!(!error.contains("panicked") && !error.contains("pipe"), "{arguments:?}: {error}");
        let output = siltstone(&arguments, closed(), closed());
        assert_eq!(output.status.code(), Some(0), "{arguments:?} with its errors closed, too");
    }
}

#[test]
fn closed_output_does_not_change_a_failing_status() {
    let stores = stores();
    let (damaged, intact) = (&stores.damaged[..], &stores.intact[..]);
    for (arguments, status) in [
        (&["verify", damaged][..], 1),
        (&["get", intact, "none", "--table", "t"], 1),
        (&["get", intact, "none", "--table", "u"], 2),
        (&["frobnicate"], 2),
        (&["stats", "/no/such/store"], 3),
    ] {
        for err in [Stdio::piped(), closed()] {
            let output = siltstone(arguments, closed(), err);
            assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn full_disk_is_reported() {
    let stores = stores();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for arguments in [
        &["stats", &stores.intact][..],
        &["get", &stores.intact, "1", "--table", "t", "--raw"],
        &["scan", &stores.ordered],
    ] {
        let output = siltstone(arguments, full(), Stdio::piped());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {error}");
        assert!(error.contains("cannot write the output"), "{arguments:?}: {error}");
    }
}
