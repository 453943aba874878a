//! The load, in each protocol.
//!
//! A driver sends `window` batches and another one for each response, until its round is done; then
//! the next round starts. If a round is one window, a batch's time from the start of its round to
//! its last response is the latency of a client that sends that much at once.
//!
//! Our client polls for responses for a while before it blocks. The load of the others blocks
//! immediately: with polling, memcached and Redis had lower throughput, because server and load
//! then contend for the socket.
//!
//! Source: the protocols are those of memcached's `doc/protocol.txt` and Redis's specification.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use siltstone_client::xdp::veth::INTERFACE;
use siltstone_client::{Action, Client, ClientOptions, Outcome, Value};
use siltstone_engine::{Error, Result};

use super::Load;
use super::draws::{Draws, chunks};
use super::frames::{Frames, Response};
use super::servers::{PASSWORD, Server};

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Our UDP protocol.
    Udp,
    /// memcached's `get` and `set` over TCP, pipelined.
    Memcached,
    /// memcached's `mg` and `ms` over TCP, pipelined; it combines the responses to these.
    MemcachedMeta,
    /// Redis's commands over TCP, pipelined.
    Redis,
}

/// The measurement of a run.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Operations per second.
    pub rate: f64,
    /// Nanoseconds from the start of a round to the end of a batch.
    pub latency: Histogram<u64>,
}

/// A connection with a load.
pub enum Driver {
    /// Our UDP client.
    Udp(Box<Client>),
    /// A TCP socket.
    Tcp(Box<Tcp>),
}

/// A socket with its partial responses.
pub struct Tcp {
    stream: TcpStream,
    input: Vec<u8>,
    frames: Frames,
}

/// Bytes per packet, sufficient for 64 puts of tiny items.
const PACKET_BYTES: usize = 8000;
/// Upper limit of the overhead in bytes per request and response.
const REQUEST_BYTES: usize = 64;
/// Prepared requests that a run cycles through.
const PREPARED: usize = 1 << 20;
/// Prepared puts at a time while the store is filled.
const FILL_CHUNK: usize = 1 << 16;

impl Driver {
    /// Connects to a server.
    ///
    /// # Errors
    /// If it does not respond.
    pub fn connect(server: &Server, protocol: Protocol, load: Load) -> Result<Self> {
        let refused = |error: &dyn std::fmt::Display| Error::Invalid(format!("connect: {error}"));
        if protocol == Protocol::Udp {
            let address = server.udp.ok_or_else(|| refused(&"it has no UDP port"))?;
            // A batch fits one packet, also with large items.
            let bytes = PACKET_BYTES.max(load.batch * (load.sizes.item() + REQUEST_BYTES));
            let options = ClientOptions {
                packet_bytes: bytes,
                answer_bytes: bytes,
                batch: load.batch,
                window: load.window,
                deadline: Duration::from_secs(10),
                password: Some(PASSWORD.to_owned()),
                gso_segments: server.gso_segments,
                xdp: server.xdp.then(|| (INTERFACE.to_owned(), 0)),
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
        for items in chunks(0..load.items as usize, FILL_CHUNK) {
            let all = Draws::of(load.sizes, items.map(|item| (item as u64, false)));
            for round in chunks(0..all.len(), load.round()) {
                self.round(&all, round, load, &mut ignored)?;
            }
        }
        Ok(())
    }

    /// Sends the load for `seconds`.
    ///
    /// # Errors
    /// If a response is invalid.
    pub fn run(&mut self, load: Load, seconds: f64) -> Result<Measurement> {
        let draws = load.draws(PREPARED);
        let mut latency = histogram();
        let (mut done, mut missed) = (0, 0);
        // Requests are prepared in advance, so that the server never waits for them.
        let requests = match self {
            Driver::Udp(_) => client_requests(&draws, 0..draws.len()),
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
                    let first = round.start;
                    send_requests(client, &requests[round], &draws, first, load, &mut latency)?
                }
                Driver::Tcp(_) => self.round(&draws, round, load, &mut latency)?,
            };
        }
        if missed > done / 100 {
            return Err(Error::Invalid(format!("{missed} of {done} lookups missed")));
        }
        Ok(Measurement { rate: done as f64 / begin.elapsed().as_secs_f64(), latency })
    }

    /// Sends batches and awaits their responses; returns the number of missed lookups.
    fn round(
        &mut self,
        draws: &Draws,
        round: Range<usize>,
        load: Load,
        latency: &mut Histogram<u64>,
    ) -> Result<usize> {
        match self {
            Driver::Udp(client) => {
                let first = round.start;
                let requests = client_requests(draws, round);
                send_requests(client, &requests, draws, first, load, latency)
            }
            Driver::Tcp(tcp) => {
                let begin = Instant::now();
                let mut record = || latency.saturating_record(begin.elapsed().as_nanos() as u64);
                let lost = |error: std::io::Error| Error::Invalid(format!("the server: {error}"));
                let mut bytes = Vec::with_capacity(load.batch * (load.sizes.item() + 48));
                let mut send = |batch: Range<usize>, tcp: &mut Tcp| {
                    bytes.clear();
                    batch.for_each(|at| tcp.frames.write(draws.at(at), &mut bytes));
                    tcp.stream.write_all(&bytes)
                };
                let mut unsent = chunks(round.clone(), load.batch);
                for batch in unsent.by_ref().take(load.window) {
                    send(batch, tcp).map_err(lost)?;
                }
                let mut missed = 0;
                for batch in chunks(round, load.batch) {
                    missed += tcp.await_responses(draws, batch).map_err(lost)?;
                    record();
                    if let Some(batch) = unsent.next() {
                        send(batch, tcp).map_err(lost)?;
                    }
                }
                Ok(missed)
            }
        }
    }
}

/// A request of our client.
type ClientRequest<'d> = (&'d [u8], Action<'d>);

/// The requests of our client for these draws.
fn client_requests(draws: &Draws, round: Range<usize>) -> Vec<ClientRequest<'_>> {
    let request = |at| {
        let (key, bytes, is_get) = draws.at(at);
        (key, if is_get { Action::Get } else { Action::Put(Value { bytes, ..Value::default() }) })
    };
    round.map(request).collect()
}

/// Sends requests for the draws from `first` on by our client; returns the number of missed
/// lookups.
fn send_requests(
    client: &mut Client,
    requests: &[ClientRequest<'_>],
    draws: &Draws,
    first: usize,
    load: Load,
    latency: &mut Histogram<u64>,
) -> Result<usize> {
    let begin = Instant::now();
    let mut record = || latency.saturating_record(begin.elapsed().as_nanos() as u64);
    let (mut missed, mut wrong) = (0, 0);
    let outcome = client.execute(requests, |place, reply| {
        match reply.answer.outcome {
            Outcome::Stored => {}
            Outcome::Found => wrong += usize::from(reply.value != draws.at(first + place).1),
            Outcome::Missing => missed += 1,
            _ => wrong += 1,
        }
        if place % load.batch == load.batch - 1 {
            record();
        }
    });
    outcome.map_err(|error| Error::Invalid(error.to_string()))?;
    match wrong {
        0 => Ok(missed),
        _ => Err(Error::Invalid(format!("{wrong} wrong responses"))),
    }
}

fn histogram() -> Histogram<u64> {
    // Nanoseconds up to a minute; the constants satisfy the bounds of the crate.
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

impl Tcp {
    /// Awaits the responses of a batch; returns the number of missed lookups.
    fn await_responses(&mut self, draws: &Draws, batch: Range<usize>) -> std::io::Result<usize> {
        let (mut missed, mut at) = (0, 0);
        for draw in batch.map(|at| draws.at(at)) {
            loop {
                let rest = &self.input[at..];
                match self.frames.parse(draw, rest) {
                    Some(Response::Valid { bytes, missed: has_missed }) => {
                        missed += usize::from(has_missed);
                        at += bytes;
                        break;
                    }
                    Some(Response::Invalid) => {
                        let text = rest[..rest.len().min(60)].escape_ascii().to_string();
                        return Err(std::io::Error::other(format!("response {text}")));
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
    fn draws_are_of_stored_keys_in_the_given_share() {
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
