//! Each command is whole or absent after a SIGKILL, and each acknowledged one is there.
//!
//! ```text
//! clients ─ units of random commands ─▶ server under --fsync always ─ SIGKILL ─▶ started again
//!    └──── their logs, after the kill ─▶ reference server, never killed ◀─ compare ─┘
//! ```
//!
//! A client has keys of its own, and sends one unit at a time: a command, or MULTI with its
//! commands. After the kill the reference runs the acknowledged units, with the same replies. Then
//! the keys of the killed server must be those of the reference, before or after the unit that was
//! not acknowledged; of MOVE, which is two writes, also between them. Commands without a random
//! result only, with explicit ids and absolute expiries.
//!
//! `SILTSTONE_KILLS=N` runs longer, `SILTSTONE_SEED=N` draws other commands.

mod units;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::server_process::Server;
use units::{Rng, Unit, fingerprint_commands, halves_of_move, unit};

const CLIENTS: u64 = 4;
const DEFAULT_KILLS: u64 = 4;

/// A connection that keeps replies as they are.
pub struct Connection {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Connection {
    fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let replies = BufReader::new(stream.try_clone().unwrap());
        Connection { stream, replies }
    }

    /// Sends commands at once; returns their replies, or `None` if the server has gone.
    fn send(&mut self, commands: &[Vec<Vec<u8>>]) -> Option<Vec<Vec<u8>>> {
        let mut request = Vec::new();
        for words in commands {
            request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                request.extend_from_slice(word);
                request.extend_from_slice(b"\r\n");
            }
        }
        self.stream.write_all(&request).ok()?;
        commands.iter().map(|_| self.reply()).collect()
    }

    fn reply(&mut self) -> Option<Vec<u8>> {
        let mut reply = Vec::new();
        let mut left = 1;
        while left > 0 {
            let start = reply.len();
            self.replies.read_until(b'\n', &mut reply).ok().filter(|_| reply.ends_with(b"\n"))?;
            let line = std::str::from_utf8(&reply[start..]).ok()?.trim_end();
            let count = line[1..].parse::<usize>().unwrap_or(0);
            left -= 1;
            match line.as_bytes()[0] {
                b'*' => left += count,
                b'$' if line != "$-1" => {
                    let start = reply.len();
                    reply.resize(start + count + 2, 0);
                    self.replies.read_exact(&mut reply[start..]).ok()?;
                }
                _ => {}
            }
        }
        Some(reply)
    }
}

fn serve(store: &Path, fsync: &str) -> (Server, String) {
    let small = "lsm,memtable=64KiB,target_file_size=64KiB,levels=256KiB:1MiB";
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    command.arg("serve").arg(store).args(["--listen", "127.0.0.1:0", "--fsync", fsync]);
    for table in ["default", "one", "two"] {
        command.args(["--table", &format!("{table}={small}")]);
    }
    let server = Server::start(&mut command);
    let address = server.address();
    (server, address)
}

/// What a client has sent since the server started, with the replies.
#[derive(Default)]
struct Log {
    acknowledged: Vec<(Unit, Vec<Vec<u8>>)>,
    in_flight: Option<Unit>,
}

/// Sends units until the server is gone.
fn run(mut connection: Connection, client: u64, rng: &mut Rng) -> Log {
    let mut log = Log::default();
    loop {
        let sent = unit(client, rng, &mut |commands| connection.send(commands));
        let Some(sent) = sent else { return log };
        match connection.send(&sent) {
            Some(replies) => log.acknowledged.push((sent, replies)),
            None => {
                log.in_flight = Some(sent);
                return log;
            }
        }
    }
}

fn fingerprint(connection: &mut Connection, client: u64) -> Vec<(String, String)> {
    let commands = fingerprint_commands(client);
    let replies = connection.send(&commands).unwrap();
    let show = |words: &Vec<Vec<u8>>| String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    let shown = commands.iter().zip(replies).map(|(command, reply)| {
        let mut lines: Vec<_> = reply.split(|byte| *byte == b'\n').collect();
        // In the order of their hashes, which differs among servers.
        if [&b"SMEMBERS"[..], b"HGETALL"].contains(&&command[0][..]) {
            lines.sort_unstable();
        }
        // Times differ. XPENDING has the numbers.
        if command[1] == b"CONSUMERS" {
            lines.retain(|line| !line.starts_with(b":"));
        }
        (show(command), lines.join(&b'\n').escape_ascii().to_string())
    });
    shown.collect()
}

/// Asserts that the state of a client's keys is that of the reference, before or after the unit in
/// flight; the reference has the same then.
fn compare(server: &mut Connection, reference: &mut Connection, client: u64, log: Log) {
    for (sent, replies) in log.acknowledged {
        let expected = reference.send(&sent).unwrap();
        assert_eq!(shown(&replies), shown(&expected), "{}", shown_unit(&sent));
    }
    let found = fingerprint(server, client);
    let before = fingerprint(reference, client);
    if found == before {
        return;
    }
    let difference = |expected: &[(String, String)]| {
        let lines = found.iter().zip(expected).filter(|(found, expected)| found != expected);
        let lines = lines.map(|(found, expected)| format!("{found:?}\n  expected {expected:?}\n"));
        lines.collect::<String>()
    };
    let Some(sent) = log.in_flight else {
        panic!("client {client}, nothing in flight:\n{}", difference(&before));
    };
    match halves_of_move(&sent) {
        None => drop(reference.send(&sent).unwrap()),
        Some([copy, removal]) => {
            let replies = reference.send(&copy).unwrap();
            if found == fingerprint(reference, client) {
                return;
            }
            if replies.iter().any(|reply| reply == b":1\r\n") {
                reference.send(&removal).unwrap();
            }
        }
    }
    let after = fingerprint(reference, client);
    assert!(
        found == after,
        "client {client}: {}\nneither absent:\n{}\nnor whole:\n{}",
        shown_unit(&sent),
        difference(&before),
        difference(&after)
    );
}

fn shown(replies: &[Vec<u8>]) -> Vec<String> {
    replies.iter().map(|reply| reply.escape_ascii().to_string()).collect()
}

fn shown_unit(unit: &Unit) -> String {
    let command = |words: &Vec<Vec<u8>>| words.join(&b' ').escape_ascii().to_string();
    unit.iter().map(command).collect::<Vec<_>>().join("; ")
}

#[test]
fn sigkill_leaves_each_command_whole_or_absent() {
    let number = |name, default| {
        std::env::var(name).map_or(default, |text: String| text.parse::<u64>().unwrap())
    };
    let (kills, seed) = (number("SILTSTONE_KILLS", DEFAULT_KILLS), number("SILTSTONE_SEED", 1));
    let scratch = tempfile::tempdir().unwrap();
    let (_reference, address) = serve(&scratch.path().join("reference"), "no");
    let mut reference_connection = Connection::open(&address);
    let mut rngs: Vec<Rng> = (0..CLIENTS).map(|client| Rng::new(seed * CLIENTS + client)).collect();
    let mut logs: Vec<Log> = Vec::new();
    let mut total = 0;
    for kill in 0..=kills {
        let (server, address) = serve(&scratch.path().join("store"), "always");
        let mut connection = Connection::open(&address);
        for (client, log) in logs.drain(..).enumerate() {
            total += log.acknowledged.len();
            compare(&mut connection, &mut reference_connection, client as u64, log);
        }
        std::thread::scope(|scope| {
            let clients = rngs.iter_mut().enumerate().map(|(client, rng)| {
                let connection = Connection::open(&address);
                scope.spawn(move || run(connection, client as u64, rng))
            });
            let clients: Vec<_> = clients.collect();
            std::thread::sleep(Duration::from_millis(60 + 13 * (kill % 16)));
            server.kill();
            logs.extend(clients.into_iter().map(|client| client.join().unwrap()));
        });
    }
    println!("{total} acknowledged units, {kills} kills");
    assert!(total > 0);
}
