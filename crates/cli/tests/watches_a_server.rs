//! Does `top` show what a running server does, and say clearly when there is none?

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

struct Server {
    process: Child,
    clients: String,
    metrics: String,
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
    let mut last_word = || lines.next().unwrap().unwrap().rsplit(' ').next().unwrap().to_owned();
    let (clients, page) = (last_word(), last_word());
    let metrics = page.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    Server { process, clients, metrics }
}

fn top(address: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    command.args(["top", address]).args(more).output().unwrap()
}

#[test]
fn once_prints_every_table_of_a_running_server() {
    let scratch = tempfile::tempdir().unwrap();
    let server = serve(&scratch.path().join("store").display().to_string());
    let mut client = TcpStream::connect(&server.clients).unwrap();
    client.write_all(b"SET apples 3\r\nGET apples\r\nGET pears\r\n").unwrap();
    let mut replies = [0; b"+OK\r\n$1\r\n3\r\n$-1\r\n".len()];
    client.read_exact(&mut replies).unwrap();

    let output = top(&server.metrics, &["--once", "--interval", "200ms"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    for part in [
        "1 clients",
        "fruit · lsm · about 1 keys",
        "cache · mica · about 0 keys",
        "lookups that found –  (50.0 %)",
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
fn an_address_where_no_server_answers_is_an_error() {
    // Taken and given back: nothing listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = top(&free.to_string(), &["--once"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    for word in [free.to_string().as_str(), "--metrics", "refused"] {
        assert!(error.contains(word), "'{word}' is not in: {error}");
    }
}
