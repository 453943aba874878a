//! What a running server does: `top` and the web console show it, and `advise` takes it as the
//! workload of a table. They report when there is none.
//!
//! The console is tested if Chromium is installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

struct Server {
    process: Child,
    clients: String,
    metrics: String,
    /// The lines printed at the start.
    lines: Vec<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(dir: &str) -> Server {
    let mut process = Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(["serve", dir, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
        .args(["--table", "fruit=lsm", "--table", "cache=mica,memory=16MiB"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut printed: Vec<String> = Vec::new();
    while !printed.last().is_some_and(|line| line.starts_with("metrics")) {
        printed.push(lines.next().unwrap().unwrap());
    }
    // Warnings may come first.
    let first = printed.iter().position(|line| line.starts_with("serving ")).unwrap();
    let lines = printed.split_off(first);
    let last_word = |line: Option<&String>| line.unwrap().rsplit(' ').next().unwrap().to_owned();
    let (clients, page) = (last_word(lines.first()), last_word(lines.last()));
    let metrics = page.trim_start_matches("http://").trim_end_matches('/').to_owned();
    Server { process, clients, metrics, lines }
}

/// Sets a key, gets it, and gets a missing one; the client stays connected.
fn use_it(server: &Server) -> TcpStream {
    let mut client = TcpStream::connect(&server.clients).unwrap();
    client.write_all(b"SET apples 3\r\nGET apples\r\nGET pears\r\n").unwrap();
    let mut replies = [0; b"+OK\r\n$1\r\n3\r\n$-1\r\n".len()];
    client.read_exact(&mut replies).unwrap();
    client
}

/// A page after some seconds in a browser; `None` without a browser.
fn browsed(url: &str) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    let chromium = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--virtual-time-budget=7000", "--dump-dom", url])
        .output();
    let Ok(output) = chromium else {
        println!("skipped: chromium is not on the PATH");
        return None;
    };
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn server_prints_the_table_of_each_database() {
    let scratch = tempfile::tempdir().unwrap();
    let store = scratch.path().join("store").display().to_string();
    let mut put = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    assert!(put.args(["put", &store, "k", "v"]).status().unwrap().success());
    let server = serve(&store);
    assert_eq!(
        server.lines[1..3],
        [
            "SELECT 0 fruit (lsm), 1 cache (mica)",
            "not served, because --table names others: default"
        ]
    );
}

#[test]
fn console_shows_every_table_in_a_browser() {
    let scratch = tempfile::tempdir().unwrap();
    let server = serve(&scratch.path().join("store").display().to_string());
    let _client = use_it(&server);
    let Some(page) = browsed(&format!("http://{}/", server.metrics)) else { return };
    for part in [
        "<section data-table=\"fruit\">",
        "<h2>fruit</h2><span>lsm</span><span>1 keys</span>",
        "<h2>cache</h2><span>mica</span><span>0 keys</span>",
        "<b>0</b><small>writes per second</small>",
        "<td>memtable</td>",
        "<td>L0</td>",
        "1 client,",
    ] {
        assert!(page.contains(part), "'{part}' is not in:\n{page}");
    }
    // At least two pages were fetched, so the lines have points.
    assert!(page.contains("d=\"M"), "{page}");
}

fn top(address: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    command.args(["top", address]).args(more).output().unwrap()
}

#[test]
fn once_prints_every_table_of_a_running_server() {
    let scratch = tempfile::tempdir().unwrap();
    let server = serve(&scratch.path().join("store").display().to_string());
    let _client = use_it(&server);
    let output = top(&server.metrics, &["--once", "--interval", "200ms"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    for part in [
        "1 clients",
        "fruit · lsm · about 1 keys",
        "cache · mica · about 0 keys",
        "lookup hits        –  (50.0 %)",
        " writes             0/s  0 B/s",
        " memtable ",
        " block cache ",
        " L0 ",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    // The live view needs a terminal.
    let output = top(&server.metrics, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--once"));
}

#[test]
fn unreachable_server_is_an_error() {
    // A free port: nothing listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = top(&free.to_string(), &["--once"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    for word in [free.to_string().as_str(), "--metrics", "refused"] {
        assert!(error.contains(word), "'{word}' is not in: {error}");
    }
}

#[test]
fn advice_is_about_the_workload_that_the_server_has_counted() {
    let scratch = tempfile::tempdir().unwrap();
    let server = serve(&scratch.path().join("store").display().to_string());
    const KEYS: usize = 5000;
    let mut client = use_it(&server);
    let value = "v".repeat(100);
    for (command, reply) in [("SET", "+OK\r\n"), ("GET", &format!("$100\r\n{value}\r\n"))] {
        let value = if command == "SET" { value.as_str() } else { "" };
        let line = |key: usize| format!("{command} k{key:05} {value}\r\n");
        client.write_all((0..KEYS).map(line).collect::<String>().as_bytes()).unwrap();
        let mut replies = vec![0; KEYS * reply.len()];
        client.read_exact(&mut replies).unwrap();
        assert!(replies == reply.repeat(KEYS).as_bytes());
    }
    let advise = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
        command.args(["advise", "--metrics", &server.metrics, "--key-size", "6"]);
        command.args(more).output().unwrap()
    };
    let output = advise(&["--table", "fruit", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let advice: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let observed = &advice["observed"];
    assert_eq!(observed["engine"], "lsm", "{advice}");
    let is_about = |value: &serde_json::Value, expected: f64| {
        (0.95..1.05).contains(&(value.as_f64().unwrap() / expected))
    };
    assert!(is_about(&advice["keys"], KEYS as f64), "{advice}");
    assert!(is_about(&observed["item_bytes"], 106.0), "{advice}");
    assert!(is_about(&observed["reads"], 0.5), "{advice}");
    assert_eq!(observed["scans"], 0.0, "{advice}");

    let text = advise(&["--table", "fruit"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("Table fruit on lsm") && text.contains("Take "), "{text}");

    // The printed command moves the table there while it is served.
    let command = text.lines().find_map(|line| line.trim().strip_prefix("redis-cli ")).unwrap();
    assert!(command.starts_with("CONFIG MOVE fruit "), "{command}");
    assert_eq!(advice["candidates"][0]["move"], format!("redis-cli {command}"));

    // Applied once, nothing is left to change, and the store keeps it.
    let apply = || {
        let output = advise(&["--table", "fruit", "--json", "--apply", &server.clients]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let advice: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        advice["applied"].clone()
    };
    let applied = apply();
    let changed = applied["changed"].as_array().unwrap();
    assert!(changed.iter().any(|change| change["option"] == "memtable"), "{applied}");
    assert!(applied["at_open"]["levels"].is_string(), "{applied}");
    client.write_all(b"CONFIG GET table.fruit.memtable\r\n").unwrap();
    let mut reply = [0; 128];
    let read = client.read(&mut reply).unwrap();
    let value = changed.iter().find(|it| it["option"] == "memtable").unwrap()["value"].as_str();
    let reply = String::from_utf8_lossy(&reply[..read]);
    assert!(reply.contains(value.unwrap()), "{reply}");
    assert_eq!(apply()["changed"].as_array().unwrap().len(), 0);

    for (more, reason) in [
        (&[][..], "fruit, cache"),
        (&["--table", "cache"], "give --keys"),
        (&["--keys", "1M"], "cannot be used with"),
    ] {
        let output = advise(more);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains(reason), "{errors}");
    }
}
