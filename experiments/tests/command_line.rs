//! The program's command line: exit statuses, closed output, and the commands that documents show.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn experiments(arguments: &[&str], out: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone-experiments"));
    command.args(arguments).stdout(out).stderr(Stdio::piped()).output().unwrap()
}

/// A pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn assert_refused(arguments: &[&str], texts: &[&str]) {
    let output = experiments(arguments, Stdio::piped());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    for text in texts {
        assert!(error.contains(text), "{arguments:?}: {text} in {error}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    assert_refused(&["repro", "lsit"], &["lsit", "list"]);
    assert_refused(&["repro", "run", "tria"], &["did you mean triad?", "repro list"]);
    let scale = ["repro", "run", "--all", "--report", "none", "--scale", "0.001"];
    assert_refused(&scale, &["0.001 is not from 0.01 to 100"]);
    assert!(!Path::new("none").exists());
    let bench = ["bench", "--workload", "load", "--keys", "10"];
    assert_refused(&[&bench[..], &["--peer", "rocksbd"]].concat(), &["rocksdb"]);
    let in_memory = [&bench[..], &["--peer", "redb", "--storage", "ram"]].concat();
    assert_refused(&in_memory, &["both stores must be on disk"]);
}

#[test]
fn closed_output_is_no_failure_and_full_disk_is_one() {
    for arguments in [&["repro", "list"][..], &["repro", "list", "--json"]] {
        let open = experiments(arguments, Stdio::piped());
        assert!(open.status.success() && !open.stdout.is_empty(), "{open:?}");
        let output = experiments(arguments, closed());
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    if cfg!(target_os = "linux") {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = experiments(&["repro", "list"], full);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }
}

#[test]
fn bench_reports_a_peer_next_to_the_engine() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().to_str().unwrap();
    let arguments = ["bench", "--workload", "fillrandom,readrandom", "--keys", "2000", "--json"];
    let more = ["--peer", "redb", "--dir", directory];
    let output = experiments(&[&arguments[..], &more].concat(), Stdio::piped());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["engine"], &report["peer"]["engine"]), (&"lsm".into(), &"redb".into()));
    assert_eq!(report["peer"]["ops"], report["ops"]);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// Every `siltstone-experiments` command in the documents is one that the program accepts.
#[test]
fn documented_commands_are_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    collect(&root.join("docs/src"), &mut files);
    let mut checked = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap().replace("\\\n", " ");
        for rest in text.split("siltstone-experiments ").skip(1) {
            let end = rest.find(['`', '\n', '#', '…', ',', ')', ';', '|']).unwrap_or(rest.len());
            let mut words: Vec<_> = rest[..end].split_whitespace().collect();
            if !matches!(words.first(), Some(&"repro" | &"bench")) {
                continue;
            }
            if let ["repro", "run", id, ..] = words[..]
                && !id.starts_with('-')
            {
                siltstone_experiments::repro::find(id).unwrap();
            }
            // Arguments before it are parsed first, so a mistake in them is reported.
            words.push("--help");
            let output = experiments(&words, Stdio::piped());
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {words:?}\n{error}", file.display());
            checked += 1;
        }
    }
    assert!(checked > 5, "only {checked} commands were found");
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}
