//! The oracle: the possible values of a lane's keys.
//!
//! A *lane* is one connection with its own keys, so the order of its writes is known: the order of
//! sending. A write has one of three outcomes:
//!
//! | outcome | condition | what a read after a restart may return |
//! | --- | --- | --- |
//! | acknowledged | the reply was received | the write |
//! | refused | an error reply was received | never the write |
//! | unknown | no reply, or an error that says so | the write or not |
//!
//! Writes of unknown outcome that were sent in one pipeline are a *group*: the server executes them
//! in order, so the first n of them were executed, for some n. Where writes may be refused, each
//! write is its own group. A write of several keys (MSET, DEL, MULTI) is atomic.
//!
//! ```text
//!   settled ──────── log ─────────────────────────────────────────►  observations
//!   one state    acknowledged · [unknown group] · acknowledged …     one reading per key,
//!   per key      each n of each group is a possible execution        must match one execution
//! ```
//!
//! [`Oracle::check`] searches for an execution that matches all observations (`search.rs`). Then
//! the observations are the new settled state: a value that was read once cannot change back.

mod search;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::values;
use search::{Search, Verdict};

/// Tolerance for the time of an expiry. Server and harness use clocks of the same machine.
const CLOCK_SLACK: Duration = Duration::from_millis(30);

/// Bounds of a value's expiry time: the server reads its clock between the sending and the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Lower bound.
    pub earliest: Instant,
    /// Upper bound.
    pub latest: Instant,
}

/// The effect of a write on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The key gets the value of the write.
    Put(Option<Expiry>),
    /// The key is removed.
    Remove,
    /// The number of the key grows. Such keys have no other effects.
    Add(i64),
}

/// One command, or one MULTI/EXEC. It is atomic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The number of the write in its lane.
    pub id: u64,
    /// The effects, each on a different key.
    pub effects: Vec<(u32, Effect)>,
}

/// The state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No such key.
    Absent,
    /// The value of a write.
    Value(u64, Option<Expiry>),
    /// A number; 0 also means no such key.
    Number(i64),
}

/// The result of reading a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// No such key.
    Absent,
    /// The complete value of a write.
    Value(u64),
    /// A number.
    Number(i64),
    /// Bytes that are not the value of any write of this key.
    Foreign(String),
    /// The read failed with an error.
    Failed,
}

/// A read of a key: the result and the time.
#[derive(Debug, Clone)]
pub struct Observation {
    /// The result.
    pub seen: ReadOutcome,
    /// A time before the request was sent.
    pub from: Instant,
    /// A time after the reply was received.
    pub until: Instant,
}

/// A write of the log.
#[derive(Debug, Clone)]
struct Entry {
    write: Write,
    /// The group, if the outcome is unknown; `None`: acknowledged.
    group: Option<u32>,
}

/// The oracle of one lane.
#[derive(Debug, Clone)]
pub struct Oracle {
    lane: u32,
    settled: Vec<State>,
    log: Vec<Entry>,
    refused: BTreeSet<u64>,
    next_write: u64,
    next_group: u32,
    keeps_log: bool,
}

impl Oracle {
    /// The oracle of a lane with `values` keys for values, followed by `numbers` keys for numbers.
    pub fn new(lane: u32, values: u32, numbers: u32) -> Self {
        let mut settled = vec![State::Absent; values as usize];
        settled.resize((values + numbers) as usize, State::Number(0));
        Oracle {
            lane,
            settled,
            log: Vec::new(),
            refused: BTreeSet::new(),
            next_write: 1,
            next_group: 0,
            keeps_log: false,
        }
    }

    /// The lane's number.
    pub fn lane(&self) -> u32 {
        self.lane
    }

    /// The number of keys of the lane.
    pub fn keys(&self) -> u32 {
        self.settled.len() as u32
    }

    /// Allocates the number of the next write.
    pub fn next_write(&mut self) -> u64 {
        let write = self.next_write;
        self.next_write += 1;
        write
    }

    /// Whether a write of this number was ever sent.
    pub fn has_sent(&self, write: u64) -> bool {
        write < self.next_write
    }

    /// Records an acknowledged write.
    pub fn acknowledge(&mut self, write: Write) {
        if self.log.is_empty() && !self.keeps_log {
            apply(&mut self.settled, &write);
        } else {
            self.log.push(Entry { write, group: None });
        }
    }

    /// Records a refused write.
    pub fn refuse(&mut self, write: &Write) {
        self.refused.insert(write.id);
    }

    /// Records writes of one pipeline whose outcome is unknown: the first n of them were executed,
    /// for some n.
    pub fn record_unknown(&mut self, writes: Vec<Write>) {
        let group = Some(self.next_group);
        self.next_group += 1;
        self.log.extend(writes.into_iter().map(|write| Entry { write, group }));
    }

    /// From now on keeps acknowledged writes in the log, for [`Oracle::make_log_uncertain`].
    pub fn keep_log(&mut self) {
        self.keeps_log = true;
    }

    /// Makes all writes since [`Oracle::keep_log`] one group: damage may have removed the end of
    /// the store's log.
    pub fn make_log_uncertain(&mut self) {
        let group = Some(self.next_group);
        self.next_group += 1;
        self.log.iter_mut().for_each(|entry| entry.group = group);
    }

    /// The state of the key, if it is known.
    pub fn expected(&self, key: u32) -> Option<State> {
        let mut state = self.settled[key as usize];
        for Entry { write, group } in &self.log {
            for (of, effect) in &write.effects {
                match (*of == key, group) {
                    (true, Some(_)) => return None,
                    (true, None) => state = after(state, write.id, *effect),
                    (false, _) => {}
                }
            }
        }
        Some(state)
    }

    /// Compares the reading of one key with its state, if that is known.
    ///
    /// # Errors
    /// The expected state and the reading.
    pub fn check_one(&self, key: u32, observation: &Observation) -> Result<(), String> {
        match self.expected(key) {
            Some(state) if !matches_state(state, observation) => {
                Err(self.describe(key, &[state], observation))
            }
            _ => Ok(()),
        }
    }

    /// Compares the readings of all keys with all possible executions. If one matches, the readings
    /// are the new settled state.
    ///
    /// # Errors
    /// The first key with an impossible reading, or a contradiction between keys.
    pub fn check(&mut self, observations: &[Observation]) -> Result<(), String> {
        assert_eq!(observations.len(), self.settled.len(), "one observation per key");
        for (key, observation) in (0u32..).zip(observations) {
            let possible = self.possible(key);
            if !possible.iter().any(|state| matches_state(*state, observation)) {
                return Err(self.describe(key, &possible, observation));
            }
        }
        let states = match Search::new(&self.settled, &self.log, observations).run() {
            Verdict::Possible(states) => states,
            // Each key has a possible reading; nothing more is known.
            Verdict::Undecided => self.settled.clone(),
            Verdict::Impossible(write, key) => {
                return Err(self.describe_contradiction(observations, write, key));
            }
        };
        for ((settled, known), observation) in self.settled.iter_mut().zip(states).zip(observations)
        {
            *settled = match (&observation.seen, known) {
                (ReadOutcome::Failed, known) => known,
                (ReadOutcome::Value(write), State::Value(same, expiry)) if *write == same => {
                    State::Value(same, expiry)
                }
                (ReadOutcome::Value(write), _) => {
                    State::Value(*write, expiry_of(&self.log, *write))
                }
                (ReadOutcome::Number(number), _) => State::Number(*number),
                (_, State::Number(_)) => State::Number(0),
                _ => State::Absent,
            };
        }
        self.log.clear();
        self.keeps_log = false;
        Ok(())
    }

    /// All possible states of the key, regardless of the other keys.
    fn possible(&self, key: u32) -> Vec<State> {
        let mut states = vec![self.settled[key as usize]];
        for Entry { write, group } in &self.log {
            for (_, effect) in write.effects.iter().filter(|(of, _)| *of == key) {
                let then = states.iter().map(|state| after(*state, write.id, *effect));
                let then: Vec<_> = then.collect();
                match group {
                    Some(_) => states.extend(then),
                    None => states = then,
                }
                states.sort_by_key(|state| format!("{state:?}"));
                states.dedup();
            }
        }
        states
    }

    /// Describes an impossible reading.
    fn describe(&self, key: u32, possible: &[State], observation: &Observation) -> String {
        let name = String::from_utf8_lossy(&values::key(self.lane, key)).into_owned();
        let expected: Vec<_> = possible.iter().map(|state| self.describe_state(*state)).collect();
        let found = match &observation.seen {
            ReadOutcome::Absent => "nothing".to_owned(),
            ReadOutcome::Value(write) if self.refused.contains(write) => {
                format!("the value of write {write}, which was refused")
            }
            ReadOutcome::Value(write) => format!("the value of write {write}"),
            ReadOutcome::Number(number) => format!("the number {number}"),
            ReadOutcome::Failed => "an error".to_owned(),
            ReadOutcome::Foreign(bytes) => format!("bytes of no write of this key: {bytes}"),
        };
        let mut expected = expected;
        let more = expected.len().saturating_sub(6);
        expected.truncate(6);
        let more = if more > 0 { format!(" or {more} others") } else { String::new() };
        format!("key {name} has {found}, expected {}{more}", expected.join(" or "))
    }

    fn describe_state(&self, state: State) -> String {
        match state {
            State::Absent => "nothing".to_owned(),
            State::Value(write, None) => format!("the value of write {write}"),
            State::Value(write, Some(_)) => format!("the value of write {write}, which expires"),
            State::Number(number) => format!("the number {number}"),
        }
    }

    /// Describes readings that are possible for each key, but not together.
    fn describe_contradiction(
        &self,
        observations: &[Observation],
        write: Option<u64>,
        key: u32,
    ) -> String {
        let observation = &observations[key as usize].seen;
        let name = String::from_utf8_lossy(&values::key(self.lane, key)).into_owned();
        let write = match write {
            Some(write) => format!("write {write}"),
            None => "the settled state".to_owned(),
        };
        let mut lines = vec![format!(
            "the readings of lane {} are possible for each key, but not together: a batch is torn, or a write is lost \
             that came before one that is not. The contradiction is between key {name}, read as {observation:?}, and \
             {write}. All related writes of the log:",
            self.lane
        )];
        // The writes of the key, and those of the other keys in these writes.
        let of = |entry: &&Entry| entry.write.effects.iter().any(|(of, _)| *of == key);
        let beside: BTreeSet<u32> = self
            .log
            .iter()
            .filter(of)
            .flat_map(|entry| &entry.write.effects)
            .map(|e| e.0)
            .collect();
        for Entry { write, group } in &self.log {
            let effects = write.effects.iter().filter(|(key, _)| beside.contains(key));
            let effects = effects.map(|(key, effect)| {
                let seen = &observations[*key as usize].seen;
                match effect {
                    Effect::Put(_) => format!("{key} put (read: {seen:?})"),
                    Effect::Remove => format!("{key} removed (read: {seen:?})"),
                    Effect::Add(by) => format!("{key} + {by}"),
                }
            });
            let effects: Vec<_> = effects.collect();
            if !effects.is_empty() && lines.len() < 60 {
                let outcome = match group {
                    Some(group) => format!("unknown (group {group})"),
                    None => "acknowledged".to_owned(),
                };
                lines.push(format!("  write {}, {outcome}: {}", write.id, effects.join(", ")));
            }
        }
        lines.join("\n")
    }
}

/// The expiry of the value of a write in the log.
fn expiry_of(log: &[Entry], id: u64) -> Option<Expiry> {
    let entry = log.iter().find(|entry| entry.write.id == id)?;
    entry.write.effects.iter().find_map(|(_, effect)| match effect {
        Effect::Put(expiry) => *expiry,
        _ => None,
    })
}

/// The state of a key after an effect.
fn after(state: State, write: u64, effect: Effect) -> State {
    match (effect, state) {
        (Effect::Put(expiry), _) => State::Value(write, expiry),
        (Effect::Remove, _) => State::Absent,
        (Effect::Add(by), State::Number(number)) => State::Number(number + by),
        (Effect::Add(by), _) => State::Number(by),
    }
}

fn apply(states: &mut [State], write: &Write) {
    for (key, effect) in &write.effects {
        let state = &mut states[*key as usize];
        *state = after(*state, write.id, *effect);
    }
}

/// Whether a key in this state can have this reading.
fn matches_state(state: State, observation: &Observation) -> bool {
    match (state, &observation.seen) {
        (_, ReadOutcome::Failed) | (State::Absent, ReadOutcome::Absent) => true,
        (State::Value(write, expiry), ReadOutcome::Value(seen)) => {
            let is_there = |e: Expiry| observation.from <= e.latest + CLOCK_SLACK;
            write == *seen && expiry.is_none_or(is_there)
        }
        (State::Value(_, Some(expiry)), ReadOutcome::Absent) => {
            observation.until + CLOCK_SLACK >= expiry.earliest
        }
        (State::Number(number), ReadOutcome::Number(seen)) => number == *seen,
        (State::Number(0), ReadOutcome::Absent) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
