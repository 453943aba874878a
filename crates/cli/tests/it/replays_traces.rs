//! `serve --trace-out` records the requests of clients, and `bench --trace` and `advise --trace`
//! read the file.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn siltstone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap()
}

/// Serves two tables, sends requests to both, and stops the server.
fn record(scratch: &Path, trace: &str) {
    let store = scratch.join("store");
    let mut server = Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(["serve", store.to_str().unwrap(), "--listen", "127.0.0.1:0"])
        .args(["--table", "other=lsm", "--table", "fruit=lsm"])
        .args(["--record", trace, "--record-table", "fruit"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("recording requests for fruit in "));
    let address = lines.next().unwrap().unwrap().rsplit(' ').next().unwrap().to_owned();
    let mut client = TcpStream::connect(address).unwrap();
    let requests = "SET elsewhere 1\r\nSELECT 1\r\nGET pears\r\nSET apples 123\r\nGET apples\r\nDEL apples\r\n";
    client.write_all(requests.as_bytes()).unwrap();
    let mut replies = [0; b"+OK\r\n+OK\r\n$-1\r\n+OK\r\n$3\r\n123\r\n:1\r\n".len()];
    client.read_exact(&mut replies).unwrap();
    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(server.wait().unwrap().success());
}

#[test]
fn what_a_server_was_asked_is_replayed_against_any_engine() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("requests.txt");
    let trace = path.to_str().unwrap();
    record(scratch.path(), trace);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('@')).collect();
    assert!(lines.starts_with(&["get pears", "put apples 3", "get apples"]), "{text}");
    assert_eq!(lines.last(), Some(&"del apples"), "{text}");

    for engine in ["lsm", "silt", "mica"] {
        let mut bench = vec!["bench", "--engine", engine, "--media", "ram", "--trace", trace];
        if engine == "mica" {
            bench.extend(["--option", "memory=64MiB"]);
        }
        bench.push("--json");
        let output = siltstone(&bench);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["workload"], "replay");
        assert_eq!(report["ops"], lines.len());
        assert_eq!(report["phases"][0]["ops"], 1, "pears were there before: {report}");
    }
    let output = siltstone(&["advise", "--trace", trace, "--json"]);
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(advice["keys"], 2.0);
}

#[test]
fn a_trace_that_is_none_is_refused_before_anything_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("trace");
    std::fs::write(&path, "get a\nfetch b\n").unwrap();
    let trace = path.to_str().unwrap();
    let output = siltstone(&["bench", "--trace", trace]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("line 2: 'fetch'"), "{said}");
    // A server doesn't write over a file, and says which table it doesn't have.
    let store = scratch.path().join("store");
    let store = store.to_str().unwrap();
    for (arguments, status, message) in [
        (&["--record", trace][..], 3, "trace"),
        (&["--record", "x", "--record-table", "none"], 2, "'none' is not served"),
    ] {
        let output = siltstone(&[&["serve", store, "--listen", "127.0.0.1:0"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(status) && said.contains(message), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "get a\nfetch b\n");
}
