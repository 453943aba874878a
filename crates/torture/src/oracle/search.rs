//! The search for an execution that matches the observations.
//!
//! It goes backwards from the last write of the log. A write that was executed determines its keys,
//! unless a later write has determined them; the readings must match. For a group of unknown
//! outcome it tries every prefix, the longest first. A value identifies its write, so a wrong
//! prefix fails at its last write.
//!
//! A group of one write without INCR needs one try: if its readings match, then assuming its
//! execution only removes constraints. INCR adds up: the sum of all executed writes must be what
//! was read, except that a single INCR of unknown outcome may count or not. So the search is linear
//! in the log except for rare ties.

use super::{Effect, Entry, Observation, State, Write, after, matches_state};

/// Maximum number of tries.
const MAX_TRIES: u32 = 200_000;

/// The result of the search.
pub(super) enum Verdict {
    /// An execution matches: the states of the keys after it.
    Possible(Vec<State>),
    /// No execution matches. The write and the key of the contradiction; `None` for the settled
    /// state.
    Impossible(Option<u64>, u32),
    /// The search gave up.
    Undecided,
}

/// A part of the log: consecutive acknowledged writes, or one group.
struct Segment<'a> {
    writes: Vec<&'a Write>,
    is_unknown: bool,
}

impl Segment<'_> {
    fn has_additions(&self) -> bool {
        let effects = self.writes.iter().flat_map(|write| &write.effects);
        effects.into_iter().any(|(_, effect)| matches!(effect, Effect::Add(_)))
    }

    /// The key and the amount, if this is a single INCR of unknown outcome.
    fn lone_addition(&self) -> Option<(u32, i64)> {
        match (self.is_unknown, &self.writes[..]) {
            (true, [write]) => match write.effects[..] {
                [(key, Effect::Add(by))] => Some((key, by)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// What the later writes have determined: keys, sums of executed INCRs, sums of INCRs that may
/// count or not.
#[derive(Clone)]
struct Coverage {
    keys: Vec<bool>,
    sums: Vec<i64>,
    optional_sums: Vec<i64>,
}

pub(super) struct Search<'a> {
    settled: &'a [State],
    observations: &'a [Observation],
    segments: Vec<Segment<'a>>,
    /// The length of the executed prefix of each segment.
    executed: Vec<usize>,
    tries: u32,
    farthest: (usize, Option<u64>, u32),
}

impl<'a> Search<'a> {
    pub(super) fn new(
        settled: &'a [State],
        log: &'a [Entry],
        observations: &'a [Observation],
    ) -> Self {
        let mut segments: Vec<Segment<'a>> = Vec::new();
        let mut last = None;
        for entry in log {
            match segments.last_mut() {
                Some(segment) if last == Some(entry.group) => segment.writes.push(&entry.write),
                _ => segments.push(Segment {
                    writes: vec![&entry.write],
                    is_unknown: entry.group.is_some(),
                }),
            }
            last = Some(entry.group);
        }
        let executed = segments.iter().map(|segment| segment.writes.len()).collect();
        Search {
            settled,
            observations,
            segments,
            executed,
            tries: 0,
            farthest: (usize::MAX, None, 0),
        }
    }

    pub(super) fn run(mut self) -> Verdict {
        let keys = self.settled.len();
        let nothing =
            Coverage { keys: vec![false; keys], sums: vec![0; keys], optional_sums: vec![0; keys] };
        if self.matches_with(self.segments.len(), nothing) {
            return Verdict::Possible(self.states());
        }
        let (_, write, key) = self.farthest;
        if self.tries >= MAX_TRIES { Verdict::Undecided } else { Verdict::Impossible(write, key) }
    }

    /// Whether the first `end` segments match all keys that the later ones have not determined.
    fn matches_with(&mut self, end: usize, mut coverage: Coverage) -> bool {
        let Some(index) = end.checked_sub(1) else { return self.matches_settled(&coverage) };
        let segment = &self.segments[index];
        if let Some((key, by)) = segment.lone_addition() {
            coverage.optional_sums[key as usize] += by;
            return self.matches_with(index, coverage);
        }
        let all = segment.writes.len();
        let min = if segment.is_unknown { 0 } else { all };
        let needs_one_try = all == 1 && !segment.has_additions();
        for count in (min..=all).rev() {
            self.tries += 1;
            if self.tries >= MAX_TRIES {
                return false;
            }
            let mut coverage = coverage.clone();
            let mut writes = self.segments[index].writes[..count].iter().rev();
            match writes.try_for_each(|write| cover(&mut coverage, write, self.observations)) {
                Ok(()) => {
                    self.executed[index] = count;
                    if self.matches_with(index, coverage) {
                        return true;
                    }
                    if needs_one_try {
                        return false;
                    }
                }
                Err((write, key)) => self.note(index + 1, Some(write), key),
            }
        }
        false
    }

    /// Whether the settled state matches the remaining keys.
    fn matches_settled(&mut self, coverage: &Coverage) -> bool {
        for (key, (state, observation)) in self.settled.iter().zip(self.observations).enumerate() {
            if coverage.keys[key] {
                continue;
            }
            let is_match = match state {
                State::Number(number) => {
                    let min = number + coverage.sums[key];
                    let max = min + coverage.optional_sums[key];
                    (min..=max).any(|number| matches_state(State::Number(number), observation))
                }
                state => matches_state(*state, observation),
            };
            if !is_match {
                self.note(0, None, key as u32);
                return false;
            }
        }
        true
    }

    fn note(&mut self, index: usize, write: Option<u64>, key: u32) {
        if index < self.farthest.0 {
            self.farthest = (index, write, key);
        }
    }

    /// The states of the keys after the executed writes.
    fn states(&self) -> Vec<State> {
        let mut states = self.settled.to_vec();
        for (segment, executed) in self.segments.iter().zip(&self.executed) {
            for write in &segment.writes[..*executed] {
                for (key, effect) in &write.effects {
                    let state = &mut states[*key as usize];
                    *state = after(*state, write.id, *effect);
                }
            }
        }
        states
    }
}

/// Assumes that a write was executed. The error is the write and a key with another reading.
fn cover(
    coverage: &mut Coverage,
    write: &Write,
    observations: &[Observation],
) -> Result<(), (u64, u32)> {
    for (key, effect) in &write.effects {
        let index = *key as usize;
        let state = match effect {
            Effect::Add(by) => {
                coverage.sums[index] += by;
                continue;
            }
            Effect::Put(expiry) => State::Value(write.id, *expiry),
            Effect::Remove => State::Absent,
        };
        if !std::mem::replace(&mut coverage.keys[index], true)
            && !matches_state(state, &observations[index])
        {
            return Err((write.id, *key));
        }
    }
    Ok(())
}
