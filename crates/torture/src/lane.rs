//! A lane: one connection that writes to keys of its own and knows what they must hold.
//!
//! A lane sends a *round* of up to so many commands at once, reads the replies, and tells its oracle the
//! outcome of each write. Reads among them must answer what the oracle expects. When the connection is lost the
//! writes without a reply are left unknown.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::{Connection, Reply};
use crate::finding::{Result, Stop};
use crate::oracle::{Effect, Expiry, Oracle, Seen, Sight, State, Write};
use crate::random::Random;
use crate::values;

/// Keys of a batch at most.
const MAX_BATCH: u64 = 6;
/// The server's words for a write whose sync failed.
const UNKNOWN: &str = "may not be durable";

/// What a lane writes.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// Keys for values.
    pub values: u32,
    /// Keys for numbers.
    pub numbers: u32,
    /// The longest value.
    pub max_bytes: u32,
    /// Commands that are sent at once, at most.
    pub pipeline: u64,
    /// How many of 100 commands remove.
    pub removals: u64,
    /// How many of 100 commands that set something set what expires, roughly.
    pub expiring: u64,
}

impl Default for Mix {
    fn default() -> Self {
        Mix { values: 120, numbers: 6, max_bytes: 3000, pipeline: 24, removals: 12, expiring: 6 }
    }
}

/// What a lane puts up with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manners {
    /// Writes may be refused, and reads may fail with an error; else either is a finding.
    pub refusals: bool,
    /// The server may close the connection, and the lane connects again; else that is a finding.
    pub closes: bool,
}

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All replies came.
    Answered,
    /// The connection is lost.
    Closed,
}

/// What a lane has done so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Writes that were refused.
    pub refused: u64,
    /// Writes of unknown outcome.
    pub unknown: u64,
    /// Reads that were compared.
    pub read: u64,
}

/// A lane.
#[derive(Debug)]
pub struct Lane {
    /// What its keys must hold.
    pub oracle: Oracle,
    /// What it has done.
    pub counts: Counts,
    /// The words of the last refusal.
    pub last_refusal: String,
    /// What it writes.
    pub mix: Mix,
    random: Random,
}

/// One command of a round, with what its reply tells.
enum Asked {
    Write(Write),
    /// A MULTI, so many commands, an EXEC.
    Batch(Write, usize),
    Read(u32),
}

impl Lane {
    /// A lane with empty keys.
    pub fn new(lane: u32, mix: Mix, seed: u64) -> Self {
        Lane {
            oracle: Oracle::new(lane, mix.values, mix.numbers),
            counts: Counts::default(),
            last_refusal: String::new(),
            mix,
            random: Random::new(seed),
        }
    }

    /// Sends a round and takes the replies.
    ///
    /// # Errors
    /// A wrong answer, an answer that does not come, or one that `manners` do not allow.
    pub fn round(&mut self, connection: &mut Connection, manners: Manners) -> Result<Ended> {
        let count = 1 + self.random.below(self.mix.pipeline);
        let sent = Instant::now();
        let asked: Vec<_> = (0..count).map(|_| self.ask(connection, sent)).collect();
        let mut asked = asked.into_iter();
        let lost = match connection.send() {
            Ok(()) => loop {
                let Some(next) = asked.next() else { return Ok(Ended::Answered) };
                if let Err((error, next)) = self.take(connection, next, sent, manners)? {
                    break Some((error, next));
                }
            },
            Err(error) => Some((error.kind(), None)),
        };
        let Some((kind, first)) = lost else { return Ok(Ended::Closed) };
        let late = Instant::now();
        let rest = first.into_iter().chain(asked).filter_map(|asked| match asked {
            Asked::Write(write) | Asked::Batch(write, _) => Some(timed(write, sent, late)),
            Asked::Read(_) => None,
        });
        let rest: Vec<_> = rest.collect();
        self.counts.unknown += rest.len() as u64;
        if manners.refusals {
            rest.into_iter().for_each(|write| self.oracle.leave_unknown(vec![write]));
        } else {
            self.oracle.leave_unknown(rest);
        }
        match kind {
            ErrorKind::TimedOut => Err(Stop::Wrong(format!(
                "lane {}: no reply in time to {count} commands in one pipeline",
                self.oracle.lane()
            ))),
            ErrorKind::InvalidData => Err(Stop::Wrong(format!(
                "lane {}: the server sent what is no reply",
                self.oracle.lane()
            ))),
            _ => Ok(Ended::Closed),
        }
    }

    /// Makes up a command and pushes it.
    fn ask(&mut self, connection: &mut Connection, sent: Instant) -> Asked {
        let lane = self.oracle.lane();
        let name = |key: u32| values::key(lane, key);
        let key = self.random.below(self.mix.values.into()) as u32;
        let choice = self.random.below(100);
        let removals = self.mix.removals;
        if choice < 15 {
            connection.push(&[b"GET".to_vec(), name(key)]);
            return Asked::Read(key);
        }
        let id = self.oracle.next_write();
        if choice < 15 + removals {
            let keys = if self.random.percent(20) { self.some_keys() } else { vec![key] };
            let words: Vec<_> =
                std::iter::once(b"DEL".to_vec()).chain(keys.iter().map(|key| name(*key))).collect();
            connection.push(&words);
            let effects = keys.into_iter().map(|key| (key, Effect::Remove)).collect();
            return Asked::Write(Write { id, effects });
        }
        match self.random.below(100) {
            0..8 => {
                let number = self.mix.values + self.random.below(self.mix.numbers.into()) as u32;
                connection.push(&[b"INCR".to_vec(), name(number)]);
                Asked::Write(Write { id, effects: vec![(number, Effect::Add(1))] })
            }
            expiring if (8..8 + self.mix.expiring).contains(&expiring) => {
                // Most outlive the history; some expire while it goes on.
                let ms =
                    if self.random.percent(70) { 3_600_000 } else { self.random.between(20, 400) };
                let bytes = self.bytes(lane, id, key);
                connection.push(&[b"PSETEX".to_vec(), name(key), ms.to_string().into(), bytes]);
                let at = sent + Duration::from_millis(ms);
                let expiry = Expiry { earliest: at, latest: at };
                Asked::Write(Write { id, effects: vec![(key, Effect::Put(Some(expiry)))] })
            }
            8..26 => {
                let keys = self.some_keys();
                let mut words = vec![b"MSET".to_vec()];
                for key in &keys {
                    words.extend([name(*key), self.bytes(lane, id, *key)]);
                }
                connection.push(&words);
                let effects = keys.into_iter().map(|key| (key, Effect::Put(None))).collect();
                Asked::Write(Write { id, effects })
            }
            26..36 => self.ask_batch(connection, id),
            _ => {
                let bytes = self.bytes(lane, id, key);
                connection.push(&[b"SET".to_vec(), name(key), bytes]);
                Asked::Write(Write { id, effects: vec![(key, Effect::Put(None))] })
            }
        }
    }

    /// A MULTI/EXEC of sets, removals and at times a count.
    fn ask_batch(&mut self, connection: &mut Connection, id: u64) -> Asked {
        let lane = self.oracle.lane();
        connection.push(&["MULTI"]);
        let keys = self.some_keys();
        let mut effects = Vec::new();
        for (place, key) in keys.into_iter().enumerate() {
            let name = values::key(lane, key);
            // The first is always a set: its value tells whether the batch happened.
            if place > 0 && self.random.percent(30) {
                connection.push(&[b"DEL".to_vec(), name]);
                effects.push((key, Effect::Remove));
            } else {
                let bytes = self.bytes(lane, id, key);
                connection.push(&[b"SET".to_vec(), name, bytes]);
                effects.push((key, Effect::Put(None)));
            }
        }
        if self.random.percent(40) {
            let number = self.mix.values + self.random.below(self.mix.numbers.into()) as u32;
            connection.push(&[b"INCR".to_vec(), values::key(lane, number)]);
            effects.push((number, Effect::Add(1)));
        }
        connection.push(&["EXEC"]);
        let commands = effects.len();
        Asked::Batch(Write { id, effects }, commands)
    }

    /// Several keys, each once.
    fn some_keys(&mut self) -> Vec<u32> {
        let count = self.random.between(2, MAX_BATCH);
        let first = self.random.below(self.mix.values.into()) as u32;
        let step = 1 + self.random.below(17) as u32;
        let mut keys: Vec<_> =
            (0..count as u32).map(|i| (first + i * step) % self.mix.values).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// A value: most are short.
    fn bytes(&mut self, lane: u32, id: u64, key: u32) -> Vec<u8> {
        let limit =
            if self.random.percent(70) { self.mix.max_bytes / 8 } else { self.mix.max_bytes };
        let bytes = values::MIN_BYTES + self.random.below(limit.into()) as u32;
        values::value(lane, id, key, bytes)
    }

    /// Takes the reply to a command. What comes back within `Ok` is a lost connection, with the command if it is
    /// unanswered.
    #[allow(clippy::type_complexity)]
    fn take(
        &mut self,
        connection: &mut Connection,
        asked: Asked,
        sent: Instant,
        manners: Manners,
    ) -> Result<std::result::Result<(), (ErrorKind, Option<Asked>)>> {
        let replies = match &asked {
            Asked::Batch(_, commands) => commands + 2,
            _ => 1,
        };
        let mut last = Reply::Bulk(None);
        let mut error = None;
        for _ in 0..replies {
            match connection.receive() {
                Ok(Reply::Error(text)) if text.contains(UNKNOWN) => {
                    // It stands for all replies that the connection was to get, and closes it.
                    self.last_refusal = text;
                    return Ok(Err((ErrorKind::ConnectionAborted, Some(asked))));
                }
                Ok(reply) => {
                    if let Reply::Error(text) = &reply {
                        error.get_or_insert_with(|| text.clone());
                    }
                    last = reply;
                }
                Err(lost) => return Ok(Err((lost.kind(), Some(asked)))),
            }
        }
        let replied = Instant::now();
        if let Some(text) = error {
            self.last_refusal = text.clone();
            if !manners.refusals {
                let lane = self.oracle.lane();
                let what = if let Asked::Read(_) = asked { "read" } else { "write" };
                return Err(Stop::Wrong(format!("lane {lane}: a {what} is refused: {text}")));
            }
            if let Asked::Write(write) | Asked::Batch(write, _) = &asked {
                self.counts.refused += 1;
                self.oracle.refuse(write);
            }
            return Ok(Ok(()));
        }
        match asked {
            Asked::Read(key) => {
                self.counts.read += 1;
                let seen = seen_in(&self.oracle, key, last)?;
                let sight = Sight { seen, from: sent, until: replied };
                self.oracle.check_one(key, &sight).map_err(|what| {
                    Stop::Wrong(format!("while the server runs, before any restart: {what}"))
                })?;
            }
            Asked::Write(write) => {
                let removed = self.removed_by(&write);
                let added = match write.effects[..] {
                    [(key, Effect::Add(_))] => Some(key),
                    _ => None,
                };
                self.acknowledge(timed(write, sent, replied));
                match (last, added, removed) {
                    (Reply::Integer(number), Some(key), _) => {
                        let seen = Seen::Number(number);
                        let sight = Sight { seen, from: sent, until: replied };
                        self.oracle.check_one(key, &sight).map_err(|what| {
                            Stop::Wrong(format!("an INCR answers wrongly: {what}"))
                        })?;
                    }
                    (Reply::Integer(number), None, Some(removed)) if number != removed => {
                        return Err(Stop::Wrong(format!(
                            "a DEL answers that it removed {number} keys, and {removed} were there"
                        )));
                    }
                    (Reply::Integer(_), None, _) => {}
                    (Reply::Simple(ok), None, _) if ok == "OK" => {}
                    (other, _, _) => {
                        return Err(Stop::Wrong(format!("a write is answered by {other:?}")));
                    }
                }
            }
            Asked::Batch(write, commands) => match last {
                Reply::Array(Some(replies))
                    if replies.len() == commands
                        && !replies.iter().any(|reply| matches!(reply, Reply::Error(_))) =>
                {
                    self.acknowledge(timed(write, sent, replied));
                }
                other => {
                    return Err(Stop::Wrong(format!(
                        "an EXEC of {commands} commands is answered by {other:?}"
                    )));
                }
            },
        }
        Ok(Ok(()))
    }

    /// How many keys a write that only removes must find, if that is known.
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

    /// Reads all keys and has them compared; what is seen is settled then.
    ///
    /// # Errors
    /// Something is lost, wrong or there again, or a read fails.
    pub fn check(&mut self, address: SocketAddr, patience: Duration) -> Result<()> {
        let sights = self.look(address, patience)?;
        self.counts.read += sights.len() as u64;
        self.oracle.check(&sights).map_err(Stop::Wrong)
    }

    /// Reads all keys.
    ///
    /// # Errors
    /// A read fails.
    pub fn look(&mut self, address: SocketAddr, patience: Duration) -> Result<Vec<Sight>> {
        self.look_with(address, patience, &|name, text| {
            Err(Stop::Wrong(format!("GET {name} fails: {text}")))
        })
    }

    /// Reads all keys. What a read that fails tells is for `failed` to say, by the key's name and the error.
    ///
    /// # Errors
    /// The connection is lost, or what `failed` says.
    pub fn look_with(
        &mut self,
        address: SocketAddr,
        patience: Duration,
        failed: &dyn Fn(&str, &str) -> Result<Seen>,
    ) -> Result<Vec<Sight>> {
        let lost = |error: std::io::Error| {
            Stop::Wrong(format!("the server does not answer a reader: {error}"))
        };
        let mut connection = Connection::open(address, patience).map_err(lost)?;
        let keys: Vec<u32> = (0..self.oracle.keys()).collect();
        let mut sights = Vec::new();
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
                    reply => seen_in(&self.oracle, *key, reply)?,
                };
                sights.push(Sight { seen, from, until: Instant::now() });
            }
        }
        Ok(sights)
    }
}

/// The write, sent at `sent`, with its values expiring no later than if it had happened at `moment`.
fn timed(mut write: Write, sent: Instant, moment: Instant) -> Write {
    for (_, effect) in &mut write.effects {
        if let Effect::Put(Some(expiry)) = effect {
            expiry.latest = expiry.earliest + (moment - sent);
        }
    }
    write
}

/// What a reply to GET tells of a key.
pub fn seen_in(oracle: &Oracle, key: u32, reply: Reply) -> Result<Seen> {
    match reply {
        Reply::Bulk(found) => Ok(seen_as(oracle, key, found.as_deref())),
        other => Err(Stop::Wrong(format!("a GET is answered by {other:?}"))),
    }
}

/// What bytes tell of a key.
pub fn seen_as(oracle: &Oracle, key: u32, found: Option<&[u8]>) -> Seen {
    let Some(bytes) = found else { return Seen::Absent };
    if let Some(write) = values::write_of(oracle.lane(), key, bytes) {
        return Seen::Value(write);
    }
    let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    number.map_or_else(|| Seen::Foreign(shown(bytes)), Seen::Number)
}

fn shown(bytes: &[u8]) -> String {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
    format!("{start:?} and so on, {} bytes", bytes.len())
}
