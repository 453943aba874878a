//! The search for a world that explains what was seen.
//!
//! From the last write of the log backwards. A write that happened explains its keys, unless a later one has
//! explained them; what it explains must be as it was seen. Of a group of unknown outcome every number of
//! first writes is tried, all of them first. Values name their writes, so a wrong try fails at once, and the
//! search is as long as the log but for rare ties (removals of removed keys).
//!
//! Numbers add up instead: what all writes that happened add must be what was seen.

use super::{Effect, Entry, Sight, State, Write, after, fits};

/// Tries after which the search gives up.
const MAX_TRIES: u32 = 200_000;

/// What the search found.
pub(super) enum Verdict {
    /// A world that explains everything: what each key holds in it.
    Possible(Vec<State>),
    /// There is none.
    Impossible,
    /// There were too many to try.
    Undecided,
}

/// A stretch of the log: acknowledged writes, or one group.
struct Stretch<'a> {
    writes: Vec<&'a Write>,
    is_unknown: bool,
}

/// The keys that later writes have explained, and what those add to numbers.
#[derive(Clone)]
struct Explained {
    keys: Vec<bool>,
    sums: Vec<i64>,
}

pub(super) struct Search<'a> {
    settled: &'a [State],
    sights: &'a [Sight],
    stretches: Vec<Stretch<'a>>,
    /// How many writes of each stretch happened.
    happened: Vec<usize>,
    tries: u32,
}

impl<'a> Search<'a> {
    pub(super) fn new(settled: &'a [State], log: &'a [Entry], sights: &'a [Sight]) -> Self {
        let mut stretches: Vec<Stretch<'a>> = Vec::new();
        let mut last = None;
        for entry in log {
            match stretches.last_mut() {
                Some(stretch) if last == Some(entry.group) => stretch.writes.push(&entry.write),
                _ => stretches.push(Stretch {
                    writes: vec![&entry.write],
                    is_unknown: entry.group.is_some(),
                }),
            }
            last = Some(entry.group);
        }
        let happened = stretches.iter().map(|stretch| stretch.writes.len()).collect();
        Search { settled, sights, stretches, happened, tries: 0 }
    }

    pub(super) fn run(mut self) -> Verdict {
        let keys = self.settled.len();
        let nothing = Explained { keys: vec![false; keys], sums: vec![0; keys] };
        if self.explains(self.stretches.len(), &nothing) {
            return Verdict::Possible(self.world());
        }
        if self.tries >= MAX_TRIES { Verdict::Undecided } else { Verdict::Impossible }
    }

    /// Whether the first `end` stretches explain what later ones have not.
    fn explains(&mut self, end: usize, explained: &Explained) -> bool {
        let Some(index) = end.checked_sub(1) else { return self.is_settled(explained) };
        let all = self.stretches[index].writes.len();
        let least = if self.stretches[index].is_unknown { 0 } else { all };
        for count in (least..=all).rev() {
            self.tries += 1;
            if self.tries >= MAX_TRIES {
                return false;
            }
            let mut explained = explained.clone();
            let writes = &self.stretches[index].writes[..count];
            if writes.iter().rev().all(|write| explain(&mut explained, write, self.sights)) {
                self.happened[index] = count;
                if self.explains(index, &explained) {
                    return true;
                }
            }
        }
        false
    }

    /// Whether what was settled before the log explains the rest.
    fn is_settled(&self, explained: &Explained) -> bool {
        let keys = self.settled.iter().zip(self.sights).enumerate();
        keys.filter(|(key, _)| !explained.keys[*key]).all(|(key, (state, sight))| match state {
            State::Number(number) => fits(State::Number(number + explained.sums[key]), sight),
            state => fits(*state, sight),
        })
    }

    /// What each key holds, after those writes that happened.
    fn world(&self) -> Vec<State> {
        let mut states = self.settled.to_vec();
        for (stretch, happened) in self.stretches.iter().zip(&self.happened) {
            for write in &stretch.writes[..*happened] {
                for (key, effect) in &write.effects {
                    let state = &mut states[*key as usize];
                    *state = after(*state, write.id, *effect);
                }
            }
        }
        states
    }
}

/// Takes a write as one that happened; false if what was seen says that it did not.
fn explain(explained: &mut Explained, write: &Write, sights: &[Sight]) -> bool {
    write.effects.iter().all(|(key, effect)| {
        let key = *key as usize;
        let state = match effect {
            Effect::Add(by) => {
                explained.sums[key] += by;
                return true;
            }
            Effect::Put(expiry) => State::Value(write.id, *expiry),
            Effect::Remove => State::Absent,
        };
        std::mem::replace(&mut explained.keys[key], true) || fits(state, &sights[key])
    })
}
