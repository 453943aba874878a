//! Do redis-cli and redis-benchmark work against the server? Skipped where they are not installed.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod support;

use std::process::Command;

use support::Running;

/// What a program prints; `None` if it is not installed.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(args).output() {
        Ok(output) => output,
        Err(_) => {
            println!("skipped: {program} is not on the PATH");
            return None;
        }
    };
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn redis_cli() {
    let server = Running::start();
    let port = server.address.port().to_string();
    let cli = |args: &[&str]| run("redis-cli", &[&["-p", &port], args].concat());
    let Some(reply) = cli(&["SET", "k", "v"]) else { return };
    assert_eq!(reply, "OK\n");
    assert_eq!(cli(&["-3", "GET", "none"]).unwrap(), "\n");
    assert_eq!(cli(&["--scan"]).unwrap(), "k\n");
    assert!(cli(&["INFO"]).unwrap().contains("redis_version"));
}

#[test]
fn redis_benchmark() {
    let server = Running::start();
    let port = server.address.port().to_string();
    let args = ["-p", &port, "-n", "20000", "-r", "1000", "-P", "16", "-q"];
    let tests = ["-t", "ping,set,get,incr,mset"];
    let Some(figures) = run("redis-benchmark", &[&args[..], &tests].concat()) else { return };
    assert!(figures.contains("requests per second") && !figures.contains("error"), "{figures}");
}
