//! The output and the exit status of the command.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use siltstone_torture::engines::ENGINES;
use siltstone_torture::faults::FAULTS;

fn torture(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone-torture")).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn list_shows_every_engine_and_class() {
    let output = torture(&["list"]);
    let text = text(&output.stdout);
    assert!(output.status.success());
    let names = ENGINES.iter().map(|engine| engine.name);
    for name in names.chain(FAULTS.iter().map(|fault| fault.name())) {
        assert!(text.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}");
    }
}

#[test]
fn unknown_name_is_refused_with_the_known_names() {
    for (words, known) in
        [(["--engine", "bdb"], "lsm, trie, silt, skimpy"), (["--fault", "flood"], "kill-at-open")]
    {
        let output = torture(&words);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(known), "{}", text(&output.stderr));
    }
}

#[test]
fn missing_program_exits_with_status_3() {
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path().display().to_string();
    let words = ["--siltstone", "/nowhere/siltstone", "--scratch", &scratch, "--rounds", "1"];
    let output = torture(&words);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("/nowhere/siltstone"), "{}", text(&output.stderr));
}

#[test]
fn finding_exits_with_status_1_and_a_command_to_repeat_it() {
    // A server that exits at once.
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("siltstone");
    fs::write(&program, "#!/bin/sh\necho 'no store today' >&2\nexit 3\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let words = [
        "--engine",
        "silt",
        "--fault",
        "kill",
        "--rounds",
        "2",
        "--json",
        "--siltstone",
        program.to_str().unwrap(),
        "--scratch",
        scratch.path().to_str().unwrap(),
    ];
    let output = torture(&words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = &report["findings"][0];
    let directory = finding["directory"].as_str().unwrap();
    let finding_text = fs::read_to_string(format!("{directory}/finding.txt")).unwrap();
    assert!(finding_text.contains("no store today"), "{finding_text}");
    // The command line is valid.
    let command = finding["command"].as_str().unwrap();
    let mut words: Vec<_> = command.split(' ').skip(1).collect();
    words.extend(["--siltstone", "/nowhere/siltstone"]);
    let again = torture(&words);
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
}
