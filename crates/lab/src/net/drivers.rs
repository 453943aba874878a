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
use std::ops::Range;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use siltstone_client::xdp::veth::INTERFACE;
use siltstone_client::{Action, Client, ClientOptions, Outcome, Value};
use siltstone_engine::{Error, Result};

use super::Load;
use super::draws::{Draws, pieces};
use super::frames::{Frames, Heard};
use super::servers::{PASSWORD, Server};

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
    /// A socket.
    Tcp(Box<Tcp>),
}

/// A socket with what came and is not a whole answer yet.
pub struct Tcp {
    stream: TcpStream,
    input: Vec<u8>,
    frames: Frames,
}

/// Bytes of a packet: what 64 stores of tiny items take, and more.
const PACKET_BYTES: usize = 8000;
/// Bytes that a request or an answer has besides its key and value, and more.
const REQUEST_BYTES: usize = 64;
/// Draws that a run goes round.
const READY: usize = 1 << 20;
/// Items that are made ready at a time to be stored.
const FILLED: usize = 1 << 16;

impl Driver {
    /// Connects to a server.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn connect(server: &Server, protocol: Protocol, load: Load) -> Result<Self> {
        let refused = |error: &dyn std::fmt::Display| Error::Invalid(format!("connect: {error}"));
        if protocol == Protocol::Udp {
            let address = server.udp.ok_or_else(|| refused(&"it has no UDP port"))?;
            // A batch is a packet, of large items too.
            let bytes = PACKET_BYTES.max(load.batch * (load.sizes.item() + REQUEST_BYTES));
            let options = ClientOptions {
                packet_bytes: bytes,
                answer_bytes: bytes,
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
        let frames = Frames::of(protocol, load.sizes);
        Ok(Driver::Tcp(Box::new(Tcp { stream, input: Vec::new(), frames })))
    }

    /// Stores all items.
    ///
    /// # Errors
    /// If one is not stored.
    pub fn fill(&mut self, load: Load) -> Result<()> {
        let mut ignored = histogram();
        for some in pieces(0..load.items as usize, FILLED) {
            let all = Draws::of(load.sizes, some.map(|item| (item as u64, false)));
            for round in pieces(0..all.len(), load.round()) {
                self.round(&all, round, load, &mut ignored)?;
            }
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
            Driver::Udp(_) => asks(&draws, 0..draws.len()),
            Driver::Tcp(_) => Vec::new(),
        };
        let begin = Instant::now();
        let mut rounds = (0..draws.len() / load.round()).cycle();
        while begin.elapsed().as_secs_f64() < seconds {
            let Some(round) = rounds.next() else { break };
            let round = round * load.round()..(round + 1) * load.round();
            done += round.len();
            missed += match self {
                Driver::Udp(client) => {
                    ask(client, &asks[round.clone()], &draws, round.start, load, &mut latency)?
                }
                Driver::Tcp(_) => self.round(&draws, round, load, &mut latency)?,
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
        draws: &Draws,
        round: Range<usize>,
        load: Load,
        latency: &mut Histogram<u64>,
    ) -> Result<usize> {
        match self {
            Driver::Udp(client) => {
                ask(client, &asks(draws, round.clone()), draws, round.start, load, latency)
            }
            Driver::Tcp(tcp) => {
                let begin = Instant::now();
                let mut note = || latency.saturating_record(begin.elapsed().as_nanos() as u64);
                let lost = |error: std::io::Error| Error::Invalid(format!("the server: {error}"));
                let mut bytes = Vec::with_capacity(load.batch * (load.sizes.item() + 48));
                let mut send = |batch: Range<usize>, tcp: &mut Tcp| {
                    bytes.clear();
                    batch.for_each(|at| tcp.frames.write(draws.at(at), &mut bytes));
                    tcp.stream.write_all(&bytes)
                };
                let mut ahead = pieces(round.clone(), load.batch);
                for batch in ahead.by_ref().take(load.window) {
                    send(batch, tcp).map_err(lost)?;
                }
                let mut missed = 0;
                for batch in pieces(round, load.batch) {
                    missed += tcp.answers(draws, batch).map_err(lost)?;
                    note();
                    if let Some(batch) = ahead.next() {
                        send(batch, tcp).map_err(lost)?;
                    }
                }
                Ok(missed)
            }
        }
    }
}

/// A request of ours.
type Ask<'d> = (&'d [u8], Action<'d>);

/// What our client is to be asked for these draws.
fn asks(draws: &Draws, round: Range<usize>) -> Vec<Ask<'_>> {
    let ask = |at| {
        let (key, bytes, is_get) = draws.at(at);
        (key, if is_get { Action::Get } else { Action::Put(Value { bytes, ..Value::default() }) })
    };
    round.map(ask).collect()
}

/// Has our client ask all of it, which are the draws from the first on; how many look-ups missed.
fn ask(
    client: &mut Client,
    asks: &[Ask<'_>],
    draws: &Draws,
    first: usize,
    load: Load,
    latency: &mut Histogram<u64>,
) -> Result<usize> {
    let begin = Instant::now();
    let mut note = || latency.saturating_record(begin.elapsed().as_nanos() as u64);
    let (mut missed, mut wrong) = (0, 0);
    let asked = client.ask(asks, |place, reply| {
        match reply.answer.outcome {
            Outcome::Stored => {}
            Outcome::Found => wrong += usize::from(reply.value != draws.at(first + place).1),
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

impl Tcp {
    /// Awaits the answers of a batch; how many look-ups missed.
    fn answers(&mut self, draws: &Draws, batch: Range<usize>) -> std::io::Result<usize> {
        let (mut missed, mut at) = (0, 0);
        for draw in batch.map(|at| draws.at(at)) {
            loop {
                let rest = &self.input[at..];
                match self.frames.answer(draw, rest) {
                    Some(Heard::Well { bytes, missed: has_missed }) => {
                        missed += usize::from(has_missed);
                        at += bytes;
                        break;
                    }
                    Some(Heard::Wrong) => {
                        let text = rest[..rest.len().min(60)].escape_ascii().to_string();
                        return Err(std::io::Error::other(format!("answered {text}")));
                    }
                    None => {}
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
    use crate::net::draws::Sizes;

    #[test]
    fn are_draws_of_stored_keys_and_of_the_share_that_was_asked_for() {
        for skew in [0.0, 0.99] {
            let sizes = Sizes::TINY;
            let load =
                Load { items: 1000, sizes, skew, gets: 0.95, batch: 4, window: 2, windows: 1 };
            let draws = load.draws(20_000);
            let all = || (0..draws.len()).map(|at| draws.at(at));
            let gets = all().filter(|(.., is_get)| *is_get).count();
            assert!((18_700..19_300).contains(&gets), "{gets}");
            assert!(all().all(|(drawn, ..)| *drawn < b"00001000"[..]));
            let first = all().filter(|(drawn, ..)| *drawn == draws.at(0).0).count();
            assert!(first < 4000);
        }
    }
}
