//! What a lane's keys may hold: the oracle.
//!
//! A *lane* is one connection with keys of its own, so the order of its writes is known: the order of
//! sending. Each write ends in one of three ways:
//!
//! | outcome | when | what may be read after a restart |
//! | --- | --- | --- |
//! | acknowledged | its reply came | the write |
//! | refused | an error reply came | never the write |
//! | unknown | neither came, or the reply says that nobody knows | the write or not |
//!
//! Writes of unknown outcome that were sent in one pipeline are a *group*: the server takes them in order, so
//! the first n of them happened, for some n. Where writes may be refused each is a group by itself: any of them may
//! have been. A write of several keys (MSET, DEL, MULTI) happened whole or not.
//!
//! ```text
//!   settled ──────── log ─────────────────────────────────────────►  seen
//!   one state    acknowledged · [unknown group] · acknowledged …     one answer a key
//!   per key      each n of each group is a possible world            must fit one world
//! ```
//!
//! [`Oracle::check`] searches for a world that explains everything that is seen (`search.rs`), and then
//! takes what is seen as settled: what has been observed once cannot change back.

mod search;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::values;
use search::{Search, Verdict};

/// How far the clocks of server and harness may differ about an expiry: both are of one machine.
const CLOCK_SLACK: Duration = Duration::from_millis(30);

/// When a value expires: between two moments, since the server reads its clock between sending and reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Not before.
    pub earliest: Instant,
    /// Not after.
    pub latest: Instant,
}

/// What a write does to one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The key gets the write's value.
    Put(Option<Expiry>),
    /// The key is removed.
    Remove,
    /// The number under the key grows. Such keys get no other effect.
    Add(i64),
}

/// One command, or one MULTI/EXEC: wholly there or wholly not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The number of the write in its lane.
    pub id: u64,
    /// Its effects, each on another key.
    pub effects: Vec<(u32, Effect)>,
}

/// What a key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No such key.
    Absent,
    /// The value of a write.
    Value(u64, Option<Expiry>),
    /// A number; 0 is also no such key.
    Number(i64),
}

/// What a read of a key told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// No such key.
    Absent,
    /// The value of a write, whole.
    Value(u64),
    /// A number.
    Number(i64),
    /// Bytes that no write of this key has.
    Foreign(String),
    /// The read failed, with an error that says so: it tells nothing.
    Failed,
}

/// A read of a key: what, and between which moments.
#[derive(Debug, Clone)]
pub struct Sight {
    /// What was read.
    pub seen: Seen,
    /// Before the request was sent.
    pub from: Instant,
    /// After the reply was there.
    pub until: Instant,
}

/// A write whose effects are not settled yet.
#[derive(Debug, Clone)]
struct Entry {
    write: Write,
    /// The group of an unknown outcome; acknowledged without one.
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
    /// The oracle of a lane with `values` keys for values and, behind them, `numbers` keys for numbers.
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

    /// How many keys the lane has.
    pub fn keys(&self) -> u32 {
        self.settled.len() as u32
    }

    /// How many writes of unknown outcome there are.
    pub fn unknown_writes(&self) -> usize {
        self.log.iter().filter(|entry| entry.group.is_some()).count()
    }

    /// The number of the next write.
    pub fn next_write(&mut self) -> u64 {
        let write = self.next_write;
        self.next_write += 1;
        write
    }

    /// Whether a write of this number was ever sent.
    pub fn has_sent(&self, write: u64) -> bool {
        write < self.next_write
    }

    /// Whether a write was refused.
    pub fn has_refused(&self, write: u64) -> bool {
        self.refused.contains(&write)
    }

    /// The write happened.
    pub fn acknowledge(&mut self, write: Write) {
        if self.log.is_empty() && !self.keeps_log {
            apply(&mut self.settled, &write);
        } else {
            self.log.push(Entry { write, group: None });
        }
    }

    /// The write did not happen, and never will have.
    pub fn refuse(&mut self, write: &Write) {
        self.refused.insert(write.id);
    }

    /// Of these writes, sent in one pipeline, some of the first happened: none, a few or all.
    pub fn leave_unknown(&mut self, writes: Vec<Write>) {
        let group = Some(self.next_group);
        self.next_group += 1;
        self.log.extend(writes.into_iter().map(|write| Entry { write, group }));
    }

    /// From now on acknowledged writes are kept apart, so that [`Oracle::doubt_log`] can take them back.
    pub fn keep_log(&mut self) {
        self.keeps_log = true;
    }

    /// Whatever was written since [`Oracle::keep_log`] may be lost, the newest first: a medium that was damaged
    /// behind the program's back may have lost the end of its log.
    pub fn doubt_log(&mut self) {
        let group = Some(self.next_group);
        self.next_group += 1;
        self.log.iter_mut().for_each(|entry| entry.group = group);
    }

    /// What the key holds now, if that is known.
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

    /// Whether what was read of a key is what it holds, where that is known.
    ///
    /// # Errors
    /// What should have been read, and what was.
    pub fn check_one(&self, key: u32, sight: &Sight) -> Result<(), String> {
        match self.expected(key) {
            Some(state) if !fits(state, sight) => Err(self.tell(key, &[state], sight)),
            _ => Ok(()),
        }
    }

    /// Whether what was read of all keys can be: some world of what is unknown explains it. What was seen is
    /// settled then.
    ///
    /// # Errors
    /// The first key that cannot be as it was seen, or that the keys cannot be so together.
    pub fn check(&mut self, sights: &[Sight]) -> Result<(), String> {
        assert_eq!(sights.len(), self.settled.len(), "one sight a key");
        for (key, sight) in (0u32..).zip(sights) {
            let possible = self.possible(key);
            if !possible.iter().any(|state| fits(*state, sight)) {
                return Err(self.tell(key, &possible, sight));
            }
        }
        let world = match Search::new(&self.settled, &self.log, sights).run() {
            Verdict::Possible(world) => world,
            // As good as it gets: each key by itself is as it can be.
            Verdict::Undecided => self.settled.clone(),
            Verdict::Impossible(write, key) => return Err(self.tell_torn(sights, write, key)),
        };
        for ((settled, known), sight) in self.settled.iter_mut().zip(world).zip(sights) {
            *settled = match (&sight.seen, known) {
                (Seen::Failed, known) => known,
                (Seen::Value(write), State::Value(same, expiry)) if *write == same => {
                    State::Value(same, expiry)
                }
                (Seen::Value(write), _) => State::Value(*write, expiry_of(&self.log, *write)),
                (Seen::Number(number), _) => State::Number(*number),
                (_, State::Number(_)) => State::Number(0),
                _ => State::Absent,
            };
        }
        self.log.clear();
        self.keeps_log = false;
        Ok(())
    }

    /// All that the key may hold, whatever the other keys hold.
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

    /// Why a key cannot be as it was seen.
    fn tell(&self, key: u32, possible: &[State], sight: &Sight) -> String {
        let name = String::from_utf8_lossy(&values::key(self.lane, key)).into_owned();
        let expected: Vec<_> = possible.iter().map(|state| self.tell_state(*state)).collect();
        let found = match &sight.seen {
            Seen::Absent => "nothing".to_owned(),
            Seen::Value(write) if self.refused.contains(write) => {
                format!("the value of write {write}, which was refused")
            }
            Seen::Value(write) => format!("the value of write {write}"),
            Seen::Number(number) => format!("the number {number}"),
            Seen::Failed => "an error".to_owned(),
            Seen::Foreign(bytes) => format!("bytes that no write of it has: {bytes}"),
        };
        let mut expected = expected;
        let more = expected.len().saturating_sub(6);
        expected.truncate(6);
        let more = if more > 0 { format!(" or {more} others") } else { String::new() };
        format!("key {name} has {found}, and should have {}{more}", expected.join(" or "))
    }

    fn tell_state(&self, state: State) -> String {
        match state {
            State::Absent => "nothing".to_owned(),
            State::Value(write, None) => format!("the value of write {write}"),
            State::Value(write, Some(_)) => format!("the value of write {write}, which expires"),
            State::Number(number) => format!("the number {number}"),
        }
    }

    /// Each key can be as it was seen, but not all of them at once.
    fn tell_torn(&self, sights: &[Sight], write: Option<u64>, key: u32) -> String {
        let sight = &sights[key as usize].seen;
        let name = String::from_utf8_lossy(&values::key(self.lane, key)).into_owned();
        let write = match write {
            Some(write) => format!("write {write}"),
            None => "what was settled before".to_owned(),
        };
        let mut lines = vec![format!(
            "each key of lane {} can be as it is, but not all at once: a batch is torn, or a write is lost that came \
             before one that is kept. The contradiction is at key {name}, seen as {sight:?}, and {write}. All writes \
             that are not settled and that have to do with it:",
            self.lane
        )];
        // The key's writes, and the writes of the keys that these have in common with it.
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
                let seen = &sights[*key as usize].seen;
                match effect {
                    Effect::Put(_) => format!("{key} put (seen: {seen:?})"),
                    Effect::Remove => format!("{key} removed (seen: {seen:?})"),
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

/// When the value of a write in the log expires.
fn expiry_of(log: &[Entry], id: u64) -> Option<Expiry> {
    let entry = log.iter().find(|entry| entry.write.id == id)?;
    entry.write.effects.iter().find_map(|(_, effect)| match effect {
        Effect::Put(expiry) => *expiry,
        _ => None,
    })
}

/// What a key holds after an effect.
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

/// Whether a key that holds `state` can be seen so.
fn fits(state: State, sight: &Sight) -> bool {
    match (state, &sight.seen) {
        (_, Seen::Failed) | (State::Absent, Seen::Absent) => true,
        (State::Value(write, expiry), Seen::Value(seen)) => {
            let is_there = |e: Expiry| sight.from <= e.latest + CLOCK_SLACK;
            write == *seen && expiry.is_none_or(is_there)
        }
        (State::Value(_, Some(expiry)), Seen::Absent) => {
            sight.until + CLOCK_SLACK >= expiry.earliest
        }
        (State::Number(number), Seen::Number(seen)) => number == *seen,
        (State::Number(0), Seen::Absent) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
