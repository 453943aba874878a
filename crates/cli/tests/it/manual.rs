//! Completions and manual pages name every command.

use std::process::{Command, Output};

fn siltstone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap()
}

/// The names of the commands, from the help.
fn commands() -> Vec<String> {
    let help = String::from_utf8(siltstone(&["--help"]).stdout).unwrap();
    let commands = help.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<_> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 15 && names.contains(&"serve"), "{names:?}");
    names.into_iter().filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = siltstone(&["completions", shell]);
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
    }
    assert_eq!(siltstone(&["completions", "csh"]).status.code(), Some(2));
}

#[test]
fn completions_are_valid_in_bash() {
    let script = String::from_utf8(siltstone(&["completions", "bash"]).stdout).unwrap();
    let line = "COMP_WORDS=(siltstone ver); COMP_CWORD=1; _siltstone siltstone ver siltstone; \
                echo ${COMPREPLY[*]}";
    let output = Command::new("bash").args(["-c", &format!("{script}\n{line}")]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "verify\n");
}

#[test]
fn every_command_has_a_manual_page() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("share/man1");
    assert!(siltstone(&["man", dir.to_str().unwrap()]).status.success());
    let page = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert!(page("siltstone.1").contains("siltstone\\-serve(1)"), "{}", page("siltstone.1"));
    for command in commands() {
        assert!(page(&format!("siltstone-{command}.1")).contains(".SH NAME"));
    }
    let refused = siltstone(&["man", "/proc/none"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("/proc/none"));
}
