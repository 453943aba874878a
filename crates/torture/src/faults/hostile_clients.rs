//! `hostile-clients`: connections that mean harm, beside lanes that are served as ever.
//!
//! | hostile client | what it does |
//! | --- | --- |
//! | garbage | random bytes |
//! | half requests | begins a command, and keeps the connection |
//! | huge lengths | declares strings and arrays up to 2^63, negative ones, nested ones |
//! | stalled reader | asks for long values, thousands of times, and reads none of the replies |
//! | flood | opens connections by the dozen, and drops them |
//!
//! The lanes' answers are right and come; the process's memory stays within a bound; SIGTERM ends the server with
//! status 0 while they are at it; and nothing of theirs is in the store.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use super::Fault;
use crate::client;
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::Manners;
use crate::load::Control;
use crate::process::Server;
use crate::random::Random;
use crate::values;

pub(super) struct HostileClients;

/// What the server is started with: the limits of a client, and of their number.
const LIMITS: &[&str] = &["--max-request", "1MiB", "--max-output", "1MiB", "--max-clients", "128"];
/// What the resident memory of the process may grow by: for each of 128 clients a request, the output and as much
/// again while they are made.
const MAX_GROWTH: u64 = 128 * (2 << 20) * 2;
/// Hostile clients at once.
const HOSTILE: u64 = 6;

impl Fault for HostileClients {
    fn name(&self) -> &'static str {
        "hostile-clients"
    }

    fn about(&self) -> &'static str {
        "garbage, half and huge requests, stalled readers, floods: others are served, memory is bounded"
    }

    fn rounds_per_history(&self) -> u64 {
        5
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        history.serve = LIMITS.iter().map(|&word| word.to_owned()).collect();
        let fsync = history.any_fsync();
        let mut server = history.start(fsync)?;
        while history.next_round()? {
            let lasting = Duration::from_millis(history.random.between(50, 400));
            let seed = history.random.next();
            let before = server.resident_bytes();
            history.tell(format!("{HOSTILE} hostile clients for {lasting:?}"));
            let is_over = AtomicBool::new(false);
            history.load(&mut server, Manners::default(), |control, server| {
                let address = server.address();
                thread::scope(|scope| {
                    for number in 0..HOSTILE {
                        let mut random = Random::new(Random::seed_of(&[seed, number]));
                        let is_over = &is_over;
                        scope.spawn(move || {
                            while !is_over.load(SeqCst) {
                                // It is cut off, refused, or done: all the same to it.
                                let _ = harm(address, &mut random, is_over);
                            }
                        });
                    }
                    let watched = watch(control, server, before, lasting);
                    let ended = watched.and_then(|()| {
                        control.strike();
                        server.stop().map_err(Stop::Wrong)
                    });
                    is_over.store(true, SeqCst);
                    ended
                })
            })?;
            let fsync = history.any_fsync();
            server = history.start(fsync)?;
            history.check(&server)?;
        }
        history.stop_and_verify(&mut server)
    }
}

/// Watches the process's memory while the hostile clients are at work.
fn watch(control: &Control, server: &Server, before: u64, lasting: Duration) -> Result<()> {
    let mut most = 0;
    control.wait_until(lasting, |_| {
        most = most.max(server.resident_bytes());
        most > before + MAX_GROWTH
    });
    if most > before + MAX_GROWTH {
        return Err(Stop::Wrong(format!(
            "the server took {} MiB before and {} MiB under hostile clients; {} MiB more would be within its limits",
            before >> 20,
            most >> 20,
            MAX_GROWTH >> 20
        )));
    }
    Ok(())
}

/// One harm, by chance.
fn harm(address: SocketAddr, random: &mut Random, is_over: &AtomicBool) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_write_timeout(Some(Duration::from_millis(50)))?;
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    match random.below(5) {
        0 => {
            let mut bytes = vec![0; random.between(1, 20_000) as usize];
            random.fill(&mut bytes);
            // A command that is none, not one by chance.
            bytes[0] = 0xFF;
            stream.write_all(&bytes)?;
            listen(&mut stream)
        }
        1 => {
            let mut request = Vec::new();
            client::push(&mut request, &[&b"SET"[..], b"hostile", &[b'x'; 4000]]);
            request.truncate(random.between(1, request.len() as u64 - 1) as usize);
            stream.write_all(&request)?;
            listen(&mut stream)
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
            listen(&mut stream)
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

/// Takes what the server answers for a while, as far as it comes.
fn listen(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        other => other.map(drop),
    }
}
