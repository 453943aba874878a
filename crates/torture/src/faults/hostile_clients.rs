//! `hostile-clients`: hostile connections beside the lanes.
//!
//! | hostile client | what it does |
//! | --- | --- |
//! | garbage | random bytes |
//! | half requests | sends a part of a command and stops |
//! | huge lengths | declares strings and arrays of up to 2^63, of negative length, nested |
//! | stalled reader | sends thousands of GETs and reads no reply |
//! | flood | opens and closes dozens of connections |
//!
//! The lanes get correct replies in time, the memory of the process stays within a bound, and
//! SIGTERM ends the server with status 0 during the attack. No hostile client writes a key.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use super::fault::Fault;
use super::steps::{restart, run_rounds};
use crate::client;
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::Tolerance;
use crate::load::Control;
use crate::process::Server;
use crate::random::Random;
use crate::values;

pub(super) struct HostileClients;

/// Limits of the server: bytes per client, number of clients.
const LIMITS: &[&str] = &["--max-request", "1MiB", "--max-output", "1MiB", "--max-clients", "128"];
/// Maximum growth of the resident memory: for each of 128 clients a request and the output, twice.
const MAX_GROWTH_BYTES: u64 = 128 * (2 << 20) * 2;
/// The number of concurrent hostile clients.
const HOSTILE_CLIENTS: u64 = 6;

impl Fault for HostileClients {
    fn name(&self) -> &'static str {
        "hostile-clients"
    }

    fn about(&self) -> &'static str {
        "garbage, huge lengths, stalled readers, floods: others are served, memory is bounded"
    }

    fn rounds_per_history(&self) -> u64 {
        5
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        history.serve_arguments = LIMITS.iter().map(|&word| word.to_owned()).collect();
        run_rounds(history, |history, mut server| {
            let duration = Duration::from_millis(history.random.between(50, 400));
            let seed = history.random.next();
            let before = server.resident_bytes();
            history.note(format!("{HOSTILE_CLIENTS} hostile clients for {duration:?}"));
            let is_over = AtomicBool::new(false);
            history.load(&mut server, Tolerance::default(), |control, server| {
                let address = server.address();
                thread::scope(|scope| {
                    for number in 0..HOSTILE_CLIENTS {
                        let mut random = Random::new(Random::seed_of(&[seed, number]));
                        let is_over = &is_over;
                        scope.spawn(move || {
                            while !is_over.load(SeqCst) {
                                // Errors are expected: the server closes such connections.
                                let _ = attack(address, &mut random, is_over);
                            }
                        });
                    }
                    let watched = watch_memory(control, server, before, duration);
                    let ended = watched.and_then(|()| {
                        control.expect_disconnects();
                        server.stop().map_err(Stop::Finding)
                    });
                    is_over.store(true, SeqCst);
                    ended
                })
            })?;
            restart(history)
        })
    }
}

/// Watches the memory of the process during the attack.
fn watch_memory(control: &Control, server: &Server, before: u64, duration: Duration) -> Result<()> {
    let mut max = 0;
    control.wait_until(duration, |_| {
        max = max.max(server.resident_bytes());
        max > before + MAX_GROWTH_BYTES
    });
    if max > before + MAX_GROWTH_BYTES {
        return Err(Stop::Finding(format!(
            "the server uses {} MiB before and {} MiB under hostile clients; the limit is {} MiB more",
            before >> 20,
            max >> 20,
            MAX_GROWTH_BYTES >> 20
        )));
    }
    Ok(())
}

/// One random attack.
fn attack(address: SocketAddr, random: &mut Random, is_over: &AtomicBool) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_write_timeout(Some(Duration::from_millis(50)))?;
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    match random.below(5) {
        0 => {
            let mut bytes = vec![0; random.between(1, 20_000) as usize];
            random.fill(&mut bytes);
            // Never a valid command.
            bytes[0] = 0xFF;
            stream.write_all(&bytes)?;
            read_once(&mut stream)
        }
        1 => {
            let mut request = Vec::new();
            client::push(&mut request, &[&b"SET"[..], b"hostile", &[b'x'; 4000]]);
            request.truncate(random.between(1, request.len() as u64 - 1) as usize);
            stream.write_all(&request)?;
            read_once(&mut stream)
        }
        2 => {
            let request = random.pick(&[
                "*2147483647\r\n",
                "*9223372036854775807\r\n",
                "*-2147483648\r\n",
                "*1\r\n$2147483647\r\n",
                "*2\r\n$3\r\nGET\r\n$9223372036854775807\r\n",
                "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4294967296\r\nxx",
                "*1\r\n$-5\r\n",
                "*1\r\n*1\r\n*1\r\n*1\r\n$4\r\nPING\r\n",
                "$99999999999999999999\r\n",
                "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            ]);
            stream.write_all(request.as_bytes())?;
            read_once(&mut stream)
        }
        3 => {
            let mut request = Vec::new();
            for _ in 0..2000 {
                let key = values::key(random.below(3) as u32, random.below(120) as u32);
                client::push(&mut request, &[b"GET".to_vec(), key]);
            }
            while !is_over.load(SeqCst) {
                stream.write_all(&request)?;
            }
            Ok(())
        }
        _ => {
            let count = random.between(5, 40);
            let opened: Vec<_> = (0..count).map(|_| TcpStream::connect(address)).collect();
            thread::sleep(Duration::from_millis(random.below(10)));
            drop(opened);
            Ok(())
        }
    }
}

/// Reads once, until the timeout.
fn read_once(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        other => other.map(drop),
    }
}
