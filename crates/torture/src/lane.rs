//! A lane: one connection, its own keys, and an oracle for them.
//!
//! A lane sends a pipeline of random commands, reads the replies, and records the outcome of each
//! write in its oracle. A GET in the pipeline must return what the oracle expects. When the
//! connection is lost, the outcome of all writes without a reply is unknown.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::{Connection, Reply};
use crate::finding::{Result, Stop};
use crate::oracle::{Effect, Expiry, Observation, Oracle, ReadOutcome, State, Write};
use crate::random::Random;
use crate::values;

/// Maximum number of keys of a batch.
const MAX_BATCH: u64 = 6;
/// A part of the error for writes whose sync failed.
const UNKNOWN: &str = "may not be durable";

/// The parameters of a lane's commands.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// Number of keys for values.
    pub values: u32,
    /// Number of counters for INCR.
    pub numbers: u32,
    /// Maximum length of a value, roughly.
    pub max_bytes: u32,
    /// Maximum number of commands in a pipeline.
    pub pipeline: u64,
    /// Percentage of commands that are DEL.
    pub removals: u64,
    /// Percentage of writes that are PSETEX.
    pub expiring: u64,
}

impl Default for Workload {
    fn default() -> Self {
        Workload {
            values: 120,
            numbers: 6,
            max_bytes: 3000,
            pipeline: 24,
            removals: 12,
            expiring: 6,
        }
    }
}

/// The irregular replies that are not findings.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tolerance {
    /// Error replies to writes and reads.
    pub refusals: bool,
    /// Lost connections; the lane reconnects.
    pub closes: bool,
}

/// The end of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundEnd {
    /// All replies were received.
    Answered,
    /// The connection is lost.
    Closed,
}

/// Counts of a lane.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Writes that were refused.
    pub refused: u64,
    /// Writes of unknown outcome.
    pub unknown: u64,
    /// Reads that were compared with the oracle.
    pub read: u64,
}

/// A lane.
#[derive(Debug)]
pub struct Lane {
    /// What the lane's keys may hold.
    pub oracle: Oracle,
    /// Counts.
    pub counts: Counts,
    /// The last error reply.
    pub last_refusal: String,
    /// The parameters of its commands.
    pub workload: Workload,
    random: Random,
}

/// A command of a pipeline, with what is needed to evaluate its reply.
enum Request {
    Write(Write),
    /// MULTI, this number of commands, EXEC.
    Batch(Write, usize),
    Read(u32),
}

impl Lane {
    /// A lane whose keys are absent.
    pub fn new(lane: u32, workload: Workload, seed: u64) -> Self {
        Lane {
            oracle: Oracle::new(lane, workload.values, workload.numbers),
            counts: Counts::default(),
            last_refusal: String::new(),
            workload,
            random: Random::new(seed),
        }
    }

    /// Sends a pipeline and evaluates the replies.
    ///
    /// # Errors
    /// A wrong reply, a missing reply, or a reply that `tolerance` does not allow.
    pub fn round(&mut self, connection: &mut Connection, tolerance: Tolerance) -> Result<RoundEnd> {
        let count = 1 + self.random.below(self.workload.pipeline);
        let sent = Instant::now();
        let requests: Vec<_> = (0..count).map(|_| self.push_command(connection, sent)).collect();
        let mut requests = requests.into_iter();
        let lost = match connection.send() {
            Ok(()) => loop {
                let Some(next) = requests.next() else { return Ok(RoundEnd::Answered) };
                if let Err((error, next)) = self.evaluate(connection, next, sent, tolerance)? {
                    break Some((error, next));
                }
            },
            Err(error) => Some((error.kind(), None)),
        };
        let Some((kind, first)) = lost else { return Ok(RoundEnd::Closed) };
        let now = Instant::now();
        let rest = first.into_iter().chain(requests).filter_map(|request| match request {
            Request::Write(write) | Request::Batch(write, _) => {
                Some(with_expiry_until(write, sent, now))
            }
            Request::Read(_) => None,
        });
        let rest: Vec<_> = rest.collect();
        self.counts.unknown += rest.len() as u64;
        if tolerance.refusals {
            rest.into_iter().for_each(|write| self.oracle.record_unknown(vec![write]));
        } else {
            self.oracle.record_unknown(rest);
        }
        match kind {
            ErrorKind::TimedOut => Err(Stop::Finding(format!(
                "lane {}: no reply in time to a pipeline of {count} commands",
                self.oracle.lane()
            ))),
            ErrorKind::InvalidData => Err(Stop::Finding(format!(
                "lane {}: the server sent a malformed reply",
                self.oracle.lane()
            ))),
            _ => Ok(RoundEnd::Closed),
        }
    }

    /// Chooses a command and adds it to the pipeline.
    fn push_command(&mut self, connection: &mut Connection, sent: Instant) -> Request {
        let lane = self.oracle.lane();
        let name = |key: u32| values::key(lane, key);
        let key = self.random.below(self.workload.values.into()) as u32;
        let choice = self.random.below(100);
        let removals = self.workload.removals;
        if choice < 15 {
            connection.push(&[b"GET".to_vec(), name(key)]);
            return Request::Read(key);
        }
        let id = self.oracle.next_write();
        if choice < 15 + removals {
            let keys = if self.random.percent(20) { self.random_keys() } else { vec![key] };
            let words: Vec<_> =
                std::iter::once(b"DEL".to_vec()).chain(keys.iter().map(|key| name(*key))).collect();
            connection.push(&words);
            let effects = keys.into_iter().map(|key| (key, Effect::Remove)).collect();
            return Request::Write(Write { id, effects });
        }
        match self.random.below(100) {
            0..8 => {
                let number =
                    self.workload.values + self.random.below(self.workload.numbers.into()) as u32;
                connection.push(&[b"INCR".to_vec(), name(number)]);
                Request::Write(Write { id, effects: vec![(number, Effect::Add(1))] })
            }
            expiring if (8..8 + self.workload.expiring).contains(&expiring) => {
                // Most of them outlive the history, some expire within it.
                let ms =
                    if self.random.percent(70) { 3_600_000 } else { self.random.between(20, 400) };
                let bytes = self.bytes(lane, id, key);
                connection.push(&[b"PSETEX".to_vec(), name(key), ms.to_string().into(), bytes]);
                let at = sent + Duration::from_millis(ms);
                let expiry = Expiry { earliest: at, latest: at };
                Request::Write(Write { id, effects: vec![(key, Effect::Put(Some(expiry)))] })
            }
            8..26 => {
                let keys = self.random_keys();
                let mut words = vec![b"MSET".to_vec()];
                for key in &keys {
                    words.extend([name(*key), self.bytes(lane, id, *key)]);
                }
                connection.push(&words);
                let effects = keys.into_iter().map(|key| (key, Effect::Put(None))).collect();
                Request::Write(Write { id, effects })
            }
            26..36 => self.push_batch(connection, id),
            _ => {
                let bytes = self.bytes(lane, id, key);
                connection.push(&[b"SET".to_vec(), name(key), bytes]);
                Request::Write(Write { id, effects: vec![(key, Effect::Put(None))] })
            }
        }
    }

    /// Adds a MULTI/EXEC of SET, DEL and in some cases INCR.
    fn push_batch(&mut self, connection: &mut Connection, id: u64) -> Request {
        let lane = self.oracle.lane();
        connection.push(&["MULTI"]);
        let keys = self.random_keys();
        let mut effects = Vec::new();
        for (index, key) in keys.into_iter().enumerate() {
            let name = values::key(lane, key);
            // The first is always SET: its value identifies the batch.
            if index > 0 && self.random.percent(30) {
                connection.push(&[b"DEL".to_vec(), name]);
                effects.push((key, Effect::Remove));
            } else {
                let bytes = self.bytes(lane, id, key);
                connection.push(&[b"SET".to_vec(), name, bytes]);
                effects.push((key, Effect::Put(None)));
            }
        }
        if self.random.percent(40) {
            let number =
                self.workload.values + self.random.below(self.workload.numbers.into()) as u32;
            connection.push(&[b"INCR".to_vec(), values::key(lane, number)]);
            effects.push((number, Effect::Add(1)));
        }
        connection.push(&["EXEC"]);
        let commands = effects.len();
        Request::Batch(Write { id, effects }, commands)
    }

    /// Several different keys.
    fn random_keys(&mut self) -> Vec<u32> {
        let count = self.random.between(2, MAX_BATCH);
        let first = self.random.below(self.workload.values.into()) as u32;
        let step = 1 + self.random.below(17) as u32;
        let mut keys: Vec<_> =
            (0..count as u32).map(|i| (first + i * step) % self.workload.values).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// A value; 70 percent of them are short.
    fn bytes(&mut self, lane: u32, id: u64, key: u32) -> Vec<u8> {
        let limit = if self.random.percent(70) {
            self.workload.max_bytes / 8
        } else {
            self.workload.max_bytes
        };
        let bytes = values::MIN_BYTES + self.random.below(limit.into()) as u32;
        values::value(lane, id, key, bytes)
    }

    /// Reads and evaluates the reply to a command. The inner error is a lost connection, with the
    /// command if it has no reply.
    #[allow(clippy::type_complexity)]
    fn evaluate(
        &mut self,
        connection: &mut Connection,
        request: Request,
        sent: Instant,
        tolerance: Tolerance,
    ) -> Result<std::result::Result<(), (ErrorKind, Option<Request>)>> {
        let replies = match &request {
            Request::Batch(_, commands) => commands + 2,
            _ => 1,
        };
        let mut last = Reply::Bulk(None);
        let mut error = None;
        for _ in 0..replies {
            match connection.receive() {
                Ok(Reply::Error(text)) if text.contains(UNKNOWN) => {
                    // This error replaces all pending replies, and the server closes the
                    // connection.
                    self.last_refusal = text;
                    return Ok(Err((ErrorKind::ConnectionAborted, Some(request))));
                }
                Ok(reply) => {
                    if let Reply::Error(text) = &reply {
                        error.get_or_insert_with(|| text.clone());
                    }
                    last = reply;
                }
                Err(lost) => return Ok(Err((lost.kind(), Some(request)))),
            }
        }
        let replied = Instant::now();
        if let Some(text) = error {
            self.last_refusal = text.clone();
            if !tolerance.refusals {
                let lane = self.oracle.lane();
                let what = if let Request::Read(_) = request { "read" } else { "write" };
                return Err(Stop::Finding(format!("lane {lane}: a {what} is refused: {text}")));
            }
            if let Request::Write(write) | Request::Batch(write, _) = &request {
                self.counts.refused += 1;
                self.oracle.refuse(write);
            }
            return Ok(Ok(()));
        }
        match request {
            Request::Read(key) => {
                self.counts.read += 1;
                let seen = reading_of_reply(&self.oracle, key, last)?;
                let observation = Observation { seen, from: sent, until: replied };
                self.oracle.check_one(key, &observation).map_err(|what| {
                    Stop::Finding(format!("in the running server, before any restart: {what}"))
                })?;
            }
            Request::Write(write) => {
                let removed = self.removed_by(&write);
                let added = match write.effects[..] {
                    [(key, Effect::Add(_))] => Some(key),
                    _ => None,
                };
                self.acknowledge(with_expiry_until(write, sent, replied));
                match (last, added, removed) {
                    (Reply::Integer(number), Some(key), _) => {
                        let seen = ReadOutcome::Number(number);
                        let observation = Observation { seen, from: sent, until: replied };
                        self.oracle.check_one(key, &observation).map_err(|what| {
                            Stop::Finding(format!("wrong reply to INCR: {what}"))
                        })?;
                    }
                    (Reply::Integer(number), None, Some(removed)) if number != removed => {
                        return Err(Stop::Finding(format!(
                            "a DEL returns {number}, and {removed} of its keys existed"
                        )));
                    }
                    (Reply::Integer(_), None, _) => {}
                    (Reply::Simple(ok), None, _) if ok == "OK" => {}
                    (other, _, _) => {
                        return Err(Stop::Finding(format!(
                            "unexpected reply to a write: {other:?}"
                        )));
                    }
                }
            }
            Request::Batch(write, commands) => match last {
                Reply::Array(Some(replies))
                    if replies.len() == commands
                        && !replies.iter().any(|reply| matches!(reply, Reply::Error(_))) =>
                {
                    self.acknowledge(with_expiry_until(write, sent, replied));
                }
                other => {
                    return Err(Stop::Finding(format!(
                        "unexpected reply to an EXEC of {commands} commands: {other:?}"
                    )));
                }
            },
        }
        Ok(Ok(()))
    }

    /// The number of keys that a DEL must remove, if that is known.
    fn removed_by(&self, write: &Write) -> Option<i64> {
        let keys = write.effects.iter().map(|(key, effect)| match effect {
            Effect::Remove => match self.oracle.expected(*key)? {
                State::Absent => Some(0),
                State::Value(_, None) => Some(1),
                State::Value(_, Some(_)) | State::Number(_) => None,
            },
            Effect::Put(_) | Effect::Add(_) => None,
        });
        keys.sum()
    }

    fn acknowledge(&mut self, write: Write) {
        self.counts.acknowledged += 1;
        self.oracle.acknowledge(write);
    }

    /// Reads all keys and compares them with the oracle, whose new settled state they are.
    ///
    /// # Errors
    /// A write is lost, a value is wrong, a refused write is visible, or a read fails.
    pub fn check(&mut self, address: SocketAddr, timeout: Duration) -> Result<()> {
        let observations = self.read_all(address, timeout)?;
        self.counts.read += observations.len() as u64;
        self.oracle.check(&observations).map_err(Stop::Finding)
    }

    /// Reads all keys.
    ///
    /// # Errors
    /// A read fails.
    pub fn read_all(&mut self, address: SocketAddr, timeout: Duration) -> Result<Vec<Observation>> {
        self.read_all_with(address, timeout, &|name, text| {
            Err(Stop::Finding(format!("GET {name} fails: {text}")))
        })
    }

    /// Reads all keys. `failed` gets the key and the error of a read that fails, and decides what
    /// that means.
    ///
    /// # Errors
    /// The connection is lost, or the error of `failed`.
    pub fn read_all_with(
        &mut self,
        address: SocketAddr,
        timeout: Duration,
        failed: &dyn Fn(&str, &str) -> Result<ReadOutcome>,
    ) -> Result<Vec<Observation>> {
        let lost = |error: std::io::Error| {
            Stop::Finding(format!("a read of all keys gets no reply: {error}"))
        };
        let mut connection = Connection::open(address, timeout).map_err(lost)?;
        let keys: Vec<u32> = (0..self.oracle.keys()).collect();
        let mut observations = Vec::new();
        for keys in keys.chunks(64) {
            for key in keys {
                connection.push(&[b"GET".to_vec(), values::key(self.oracle.lane(), *key)]);
            }
            let from = Instant::now();
            connection.send().map_err(lost)?;
            for key in keys {
                let seen = match connection.receive().map_err(lost)? {
                    Reply::Error(text) => {
                        let name = values::key(self.oracle.lane(), *key);
                        let name = String::from_utf8_lossy(&name).into_owned();
                        failed(&name, &text)?
                    }
                    reply => reading_of_reply(&self.oracle, *key, reply)?,
                };
                observations.push(Observation { seen, from, until: Instant::now() });
            }
        }
        Ok(observations)
    }
}

/// The write with its latest expiry: that of an execution at `latest`.
fn with_expiry_until(mut write: Write, sent: Instant, latest: Instant) -> Write {
    for (_, effect) in &mut write.effects {
        if let Effect::Put(Some(expiry)) = effect {
            expiry.latest = expiry.earliest + (latest - sent);
        }
    }
    write
}

/// The reading for a reply to GET.
pub fn reading_of_reply(oracle: &Oracle, key: u32, reply: Reply) -> Result<ReadOutcome> {
    match reply {
        Reply::Bulk(found) => Ok(reading_of_bytes(oracle, key, found.as_deref())),
        other => Err(Stop::Finding(format!("unexpected reply to GET: {other:?}"))),
    }
}

/// The reading for the bytes of a value.
pub fn reading_of_bytes(oracle: &Oracle, key: u32, found: Option<&[u8]>) -> ReadOutcome {
    let Some(bytes) = found else { return ReadOutcome::Absent };
    if let Some(write) = values::write_of(oracle.lane(), key, bytes) {
        return ReadOutcome::Value(write);
    }
    let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    number.map_or_else(|| ReadOutcome::Foreign(shown(bytes)), ReadOutcome::Number)
}

fn shown(bytes: &[u8]) -> String {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
    format!("{start:?} …, {} bytes", bytes.len())
}
