//! A server under `--fsync always` that is killed during writes keeps each acknowledged one.

#![allow(clippy::unwrap_used, clippy::print_stdout, unreachable_pub)]

mod killed_commands;
mod netns;
mod server_process;
mod three_nodes;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use server_process::Server;

const CLIENTS: u64 = 4;
const KILLS: u64 = 5;

fn serve(dir: &str) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    command.args(["serve", dir, "--listen", "127.0.0.1:0", "--fsync", "always"]);
    let table = "default=lsm,memtable=64KiB,target_file_size=64KiB,levels=256KiB:1MiB";
    Server::start(command.args(["--table", table]))
}

struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let replies = BufReader::new(stream.try_clone().unwrap());
        Client { stream, replies }
    }

    /// Sends a request and returns the reply; `None` when the server is gone.
    fn send(&mut self, words: &[&str]) -> Option<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(request.as_bytes()).ok()?;
        let reply = self.line()?;
        if reply.starts_with('$') && reply != "$-1" { self.line() } else { Some(reply) }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.replies.read_line(&mut line).ok().filter(|&read| read > 0)?;
        Some(line.trim_end().to_owned())
    }
}

#[test]
fn sigkill_loses_no_acknowledged_write() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    // The writes c:0 … c:(n−1) of client c are acknowledged.
    let acknowledged: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    for kill in 0..=KILLS {
        let server = serve(&dir);
        let address = server.address();
        let mut client = Client::connect(&address);
        for (c, count) in acknowledged.iter().enumerate() {
            for i in 0..count.load(SeqCst) {
                let value = client.send(&["GET", &format!("{c}:{i}")]);
                assert_eq!(value, Some(format!("value {i} of {c}")), "kill {kill}");
            }
        }
        if kill == KILLS {
            break;
        }
        std::thread::scope(|scope| {
            for (c, count) in acknowledged.iter().enumerate() {
                let address = &address;
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    loop {
                        let i = count.load(SeqCst);
                        let (key, value) = (format!("{c}:{i}"), format!("value {i} of {c}"));
                        match client.send(&["SET", &key, &value]).as_deref() {
                            Some("+OK") => count.store(i + 1, SeqCst),
                            None => return,
                            Some(other) => panic!("{other}"),
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(150 + 70 * kill));
            server.kill();
        });
    }
    let total: u64 = acknowledged.iter().map(|count| count.load(SeqCst)).sum();
    assert!(total > 100, "only {total} writes were acknowledged");
}
