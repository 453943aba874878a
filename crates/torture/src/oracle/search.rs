//! The search for a world that explains what was seen.
//!
//! From the last write of the log backwards. A write that happened explains its keys, unless a later one has
//! explained them; what it explains must be as it was seen. Of a group of unknown outcome every number of
//! first writes is tried, all of them first. Values name their writes, so a wrong try fails at once.
//!
//! A group of one write that adds to no number needs one try: if it can have happened, then taking it so leaves
//! less to explain. Numbers add up: what all writes that happened add must be what was seen, give or take
//! the single additions of unknown outcome. So the search is as long as the log, but for rare ties.

use super::{Effect, Entry, Sight, State, Write, after, fits};

/// Tries after which the search gives up.
const MAX_TRIES: u32 = 200_000;

/// What the search found.
pub(super) enum Verdict {
    /// A world that explains everything: what each key holds in it.
    Possible(Vec<State>),
    /// There is none. The write and the key where the search came farthest; no write stands for what was settled.
    Impossible(Option<u64>, u32),
    /// There were too many to try.
    Undecided,
}

/// A stretch of the log: acknowledged writes, or one group.
struct Stretch<'a> {
    writes: Vec<&'a Write>,
    is_unknown: bool,
}

impl Stretch<'_> {
    fn has_additions(&self) -> bool {
        let effects = self.writes.iter().flat_map(|write| &write.effects);
        effects.into_iter().any(|(_, effect)| matches!(effect, Effect::Add(_)))
    }

    /// Of a single addition of unknown outcome: the key and how much.
    fn single_addition(&self) -> Option<(u32, i64)> {
        match (self.is_unknown, &self.writes[..]) {
            (true, [write]) => match write.effects[..] {
                [(key, Effect::Add(by))] => Some((key, by)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The keys that later writes have explained, what those add to numbers, and what they may add.
#[derive(Clone)]
struct Explained {
    keys: Vec<bool>,
    sums: Vec<i64>,
    may_add: Vec<i64>,
}

pub(super) struct Search<'a> {
    settled: &'a [State],
    sights: &'a [Sight],
    stretches: Vec<Stretch<'a>>,
    /// How many writes of each stretch happened.
    happened: Vec<usize>,
    tries: u32,
    farthest: (usize, Option<u64>, u32),
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
        Search { settled, sights, stretches, happened, tries: 0, farthest: (usize::MAX, None, 0) }
    }

    pub(super) fn run(mut self) -> Verdict {
        let keys = self.settled.len();
        let nothing =
            Explained { keys: vec![false; keys], sums: vec![0; keys], may_add: vec![0; keys] };
        if self.explains(self.stretches.len(), nothing) {
            return Verdict::Possible(self.world());
        }
        let (_, write, key) = self.farthest;
        if self.tries >= MAX_TRIES { Verdict::Undecided } else { Verdict::Impossible(write, key) }
    }

    /// Whether the first `end` stretches explain what later ones have not.
    fn explains(&mut self, end: usize, mut explained: Explained) -> bool {
        let Some(index) = end.checked_sub(1) else { return self.is_settled(&explained) };
        let stretch = &self.stretches[index];
        if let Some((key, by)) = stretch.single_addition() {
            explained.may_add[key as usize] += by;
            return self.explains(index, explained);
        }
        let all = stretch.writes.len();
        let least = if stretch.is_unknown { 0 } else { all };
        let needs_one_try = all == 1 && !stretch.has_additions();
        for count in (least..=all).rev() {
            self.tries += 1;
            if self.tries >= MAX_TRIES {
                return false;
            }
            let mut explained = explained.clone();
            let mut writes = self.stretches[index].writes[..count].iter().rev();
            match writes.try_for_each(|write| explain(&mut explained, write, self.sights)) {
                Ok(()) => {
                    self.happened[index] = count;
                    if self.explains(index, explained) {
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

    /// Whether what was settled before the log explains the rest.
    fn is_settled(&mut self, explained: &Explained) -> bool {
        for (key, (state, sight)) in self.settled.iter().zip(self.sights).enumerate() {
            if explained.keys[key] {
                continue;
            }
            let is_so = match state {
                State::Number(number) => {
                    let least = number + explained.sums[key];
                    let most = least + explained.may_add[key];
                    (least..=most).any(|number| fits(State::Number(number), sight))
                }
                state => fits(*state, sight),
            };
            if !is_so {
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

/// Takes a write as one that happened. The error is the write and the key that was not seen so.
fn explain(explained: &mut Explained, write: &Write, sights: &[Sight]) -> Result<(), (u64, u32)> {
    for (key, effect) in &write.effects {
        let index = *key as usize;
        let state = match effect {
            Effect::Add(by) => {
                explained.sums[index] += by;
                continue;
            }
            Effect::Put(expiry) => State::Value(write.id, *expiry),
            Effect::Remove => State::Absent,
        };
        if !std::mem::replace(&mut explained.keys[index], true) && !fits(state, &sights[index]) {
            return Err((write.id, *key));
        }
    }
    Ok(())
}
