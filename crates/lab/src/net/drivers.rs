//! The load, in each protocol.
//!
//! A driver sends `window` batches and another for each that is answered, until its round is done; then
//! it begins anew. Where a round is no longer than the window, a batch's time from the beginning of its
//! round to its last answer is what a client waits that sends so much at once.
//!
//! Our client looks for answers for a while before it sleeps. The load of the others sleeps at once: with
//! the same looks memcached and Redis did less, because they and the load then want the socket at once.
//!
//! Source: ours; the protocols' are memcached's `doc/protocol.txt` and Redis's specification.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use siltstone_client::xdp::veth::INTERFACE;
use siltstone_client::{Action, Client, ClientOptions, Outcome, Value};
use siltstone_engine::{Error, Result};

use super::servers::{PASSWORD, Server};
use super::{Key, Load, key};

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Our packets.
    Udp,
    /// memcached's `get` and `set` over TCP, pipelined.
    Memcached,
    /// memcached's `mg` and `ms` over TCP, pipelined. It gathers the answers to these.
    MemcachedMeta,
    /// Redis's commands over TCP, pipelined.
    Redis,
}

/// What a run measured.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Operations a second.
    pub rate: f64,
    /// Nanoseconds from the beginning of a round to the end of a batch.
    pub latency: Histogram<u64>,
}

/// A connection that can be loaded.
pub enum Driver {
    /// Our client.
    Udp(Box<Client>),
    /// A socket, and the protocol over it.
    Tcp(Protocol, Tcp),
}

/// A socket with what came and is not a whole answer yet.
pub struct Tcp {
    stream: TcpStream,
    input: Vec<u8>,
}

/// Bytes of a packet: what 64 stores of tiny items take, and more.
const PACKET_BYTES: usize = 8000;
/// Draws that a run goes round.
const READY: usize = 1 << 20;

impl Driver {
    /// Connects to a server.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn connect(server: &Server, protocol: Protocol, load: Load) -> Result<Self> {
        let refused = |error: &dyn std::fmt::Display| Error::Invalid(format!("connect: {error}"));
        if protocol == Protocol::Udp {
            let address = server.udp.ok_or_else(|| refused(&"it has no UDP port"))?;
            let options = ClientOptions {
                packet_bytes: PACKET_BYTES,
                answer_bytes: PACKET_BYTES,
                batch: load.batch,
                window: load.window,
                deadline: Duration::from_secs(10),
                password: Some(PASSWORD.to_owned()),
                train: server.train,
                xdp: server.past.then(|| (INTERFACE.to_owned(), 0)),
            };
            let client = Client::connect(address, options).map_err(|error| refused(&error))?;
            return Ok(Driver::Udp(Box::new(client)));
        }
        let stream = TcpStream::connect(server.tcp).map_err(|error| refused(&error))?;
        stream.set_nodelay(true).map_err(|error| refused(&error))?;
        Ok(Driver::Tcp(protocol, Tcp { stream, input: Vec::new() }))
    }

    /// Stores all items.
    ///
    /// # Errors
    /// If one is not stored.
    pub fn fill(&mut self, load: Load) -> Result<()> {
        let all: Vec<_> = (0..load.items).map(|item| (key(item), false)).collect();
        let mut ignored = histogram();
        for round in all.chunks(load.round()) {
            self.round(round, load, &mut ignored)?;
        }
        Ok(())
    }

    /// Loads the server for so many seconds.
    ///
    /// # Errors
    /// If an answer is not what it must be.
    pub fn run(&mut self, load: Load, seconds: f64) -> Result<Measured> {
        let draws = load.draws(READY);
        let mut latency = histogram();
        let (mut done, mut missed) = (0, 0);
        // What a server is asked is made ready before, so that it never waits for that.
        let asks = match self {
            Driver::Udp(_) => asks(&draws),
            Driver::Tcp(..) => Vec::new(),
        };
        let begin = Instant::now();
        let mut rounds = (0..draws.len() / load.round()).cycle();
        while begin.elapsed().as_secs_f64() < seconds {
            let Some(round) = rounds.next() else { break };
            let round = round * load.round()..(round + 1) * load.round();
            done += round.len();
            missed += match self {
                Driver::Udp(client) => ask(client, &asks[round], load, &mut latency)?,
                Driver::Tcp(..) => self.round(&draws[round], load, &mut latency)?,
            };
        }
        if missed > done / 100 {
            return Err(Error::Invalid(format!("{missed} of {done} look-ups missed")));
        }
        Ok(Measured { rate: done as f64 / begin.elapsed().as_secs_f64(), latency })
    }

    /// Sends batches and awaits their answers; how many look-ups missed.
    fn round(
        &mut self,
        round: &[(Key, bool)],
        load: Load,
        latency: &mut Histogram<u64>,
    ) -> Result<usize> {
        match self {
            Driver::Udp(client) => ask(client, &asks(round), load, latency),
            Driver::Tcp(protocol, tcp) => {
                let begin = Instant::now();
                let mut note = || latency.saturating_record(begin.elapsed().as_nanos() as u64);
                let lost = |error: std::io::Error| Error::Invalid(format!("the server: {error}"));
                let mut bytes = Vec::with_capacity(load.batch * 64);
                let mut send = |batch: &[(Key, bool)], stream: &mut TcpStream| {
                    bytes.clear();
                    for (key, is_get) in batch {
                        write(*protocol, key, *is_get, &mut bytes);
                    }
                    stream.write_all(&bytes)
                };
                let mut ahead = round.chunks(load.batch);
                for batch in ahead.by_ref().take(load.window) {
                    send(batch, &mut tcp.stream).map_err(lost)?;
                }
                let mut missed = 0;
                for batch in round.chunks(load.batch) {
                    missed += tcp.answers(*protocol, batch).map_err(lost)?;
                    note();
                    if let Some(batch) = ahead.next() {
                        send(batch, &mut tcp.stream).map_err(lost)?;
                    }
                }
                Ok(missed)
            }
        }
    }
}

/// What our client is to be asked for these draws.
fn asks(draws: &[(Key, bool)]) -> Vec<(&[u8], Action<'_>)> {
    let mut asks: Vec<(&[u8], Action<'_>)> = Vec::with_capacity(draws.len());
    for (key, is_get) in draws {
        let value = Value { bytes: key, ..Value::default() };
        asks.push((key, if *is_get { Action::Get } else { Action::Put(value) }));
    }
    asks
}

/// Has our client ask all of it; how many look-ups missed.
fn ask(
    client: &mut Client,
    asks: &[(&[u8], Action<'_>)],
    load: Load,
    latency: &mut Histogram<u64>,
) -> Result<usize> {
    let begin = Instant::now();
    let mut note = || latency.saturating_record(begin.elapsed().as_nanos() as u64);
    let (mut missed, mut wrong) = (0, 0);
    let asked = client.ask(asks, |place, reply| {
        match reply.answer.outcome {
            Outcome::Stored => {}
            Outcome::Found => wrong += usize::from(reply.value != asks[place].0),
            Outcome::Missing => missed += 1,
            _ => wrong += 1,
        }
        if place % load.batch == load.batch - 1 {
            note();
        }
    });
    asked.map_err(|error| Error::Invalid(error.to_string()))?;
    match wrong {
        0 => Ok(missed),
        _ => Err(Error::Invalid(format!("{wrong} wrong answers"))),
    }
}

fn histogram() -> Histogram<u64> {
    // Nanoseconds to a minute; the bounds are constants that the crate takes.
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

fn write(protocol: Protocol, key: &Key, is_get: bool, out: &mut Vec<u8>) {
    let parts: [&[u8]; 5] = match (protocol, is_get) {
        (Protocol::Redis, true) => [b"*2\r\n$3\r\nGET\r\n$8\r\n", key, b"\r\n", b"", b""],
        (Protocol::Redis, false) => {
            [b"*3\r\n$3\r\nSET\r\n$8\r\n", key, b"\r\n$8\r\n", key, b"\r\n"]
        }
        (Protocol::MemcachedMeta, true) => [b"mg ", key, b" v k\r\n", b"", b""],
        (Protocol::MemcachedMeta, false) => [b"ms ", key, b" 8\r\n", key, b"\r\n"],
        (_, true) => [b"get ", key, b"\r\n", b"", b""],
        (_, false) => [b"set ", key, b" 0 0 8\r\n", key, b"\r\n"],
    };
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

impl Tcp {
    /// Awaits the answers of a batch; how many look-ups missed.
    fn answers(&mut self, protocol: Protocol, batch: &[(Key, bool)]) -> std::io::Result<usize> {
        let (mut missed, mut at) = (0, 0);
        for (key, is_get) in batch {
            let (hit, miss): (usize, &[u8]) = match (protocol, is_get) {
                (Protocol::Redis, true) => (4 + 8 + 2, b"$-1\r\n"),
                (Protocol::Redis, false) => (5, b""),
                (Protocol::MemcachedMeta, true) => (6 + 8 + 2 + 8 + 2, b"EN k"),
                (Protocol::MemcachedMeta, false) => (4, b""),
                (_, true) => (6 + 8 + 6 + 8 + 2 + 5, b"END\r\n"),
                (_, false) => (8, b""),
            };
            loop {
                let rest = &self.input[at..];
                // What a meta command missed comes back with its key.
                let miss_len = miss.len() + if miss == b"EN k" { 8 + 2 } else { 0 };
                if !miss.is_empty() && rest.len() >= miss_len && rest.starts_with(miss) {
                    missed += 1;
                    at += miss_len;
                    break;
                }
                if rest.len() >= hit {
                    let is_right = match (protocol, is_get) {
                        (Protocol::Redis, true) => rest[4..12] == *key,
                        (Protocol::Redis, false) => rest.starts_with(b"+OK\r\n"),
                        (Protocol::MemcachedMeta, true) => {
                            rest[6..14] == *key && rest[16..24] == *key
                        }
                        (Protocol::MemcachedMeta, false) => rest.starts_with(b"HD\r\n"),
                        (_, true) => rest[6..14] == *key && rest[20..28] == *key,
                        (_, false) => rest.starts_with(b"STORED\r\n"),
                    };
                    if !is_right {
                        let text = rest[..rest.len().min(60)].escape_ascii().to_string();
                        return Err(std::io::Error::other(format!("answered {text}")));
                    }
                    at += hit;
                    break;
                }
                let mut buffer = [0; 64 << 10];
                self.input.drain(..at);
                at = 0;
                let count = self.stream.read(&mut buffer)?;
                if count == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                self.input.extend_from_slice(&buffer[..count]);
            }
        }
        self.input.drain(..at);
        Ok(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_draws_of_stored_keys_and_of_the_share_that_was_asked_for() {
        for skew in [0.0, 0.99] {
            let load = Load { items: 1000, skew, gets: 0.95, batch: 4, window: 2, windows: 1 };
            let draws = load.draws(20_000);
            let gets = draws.iter().filter(|(_, is_get)| *is_get).count();
            assert!((18_700..19_300).contains(&gets), "{gets}");
            assert!(draws.iter().all(|(drawn, _)| *drawn < key(1000)));
            let first = draws.iter().filter(|(drawn, _)| *drawn == draws[0].0).count();
            assert!(first < 4000);
        }
        assert_eq!(key(12_345_678), *b"12345678");
    }
}
