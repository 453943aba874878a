//! What is due next, and how much of it there is.
//!
//! A container above the last level is full when it has as many tables as children and the bytes of
//! most of them, or twice as many tables in any case: emptied earlier it would make small tables. Of
//! several the one with the most tables goes first, then the one nearest to the root.
//!
//! A full container with nothing beneath it is emptied only if most of it is no garbage. Else it is
//! collected as those of the last level are: that writes the same items, to one table instead of to eight, and
//! the trie gets as deep as its live items need, however often they are overwritten.
//!
//! A container is judged when it changes, by [`reconsider`](Inner::reconsider); what all of them want is kept in
//! order by [`Candidates`](super::Candidates), so that choosing does not look at them all.
//!
//! Invariant: what is picked is allowed by the jobs that run, and doing it makes it undue.
//!
//! Source: LSM-trie paper, sections 2.2 and 2.4.3 ("between 0 and 16 sub-levels, 8 on average"); the
//! order is ours, and so is collection above the last level.

use std::sync::atomic::Ordering::Relaxed;

use super::candidates::Wish;
use super::{Busy, Task};
use crate::engine::{Inner, State};
use crate::version::{Container, Place, Version};

/// A container's tables are worth emptying at this share of their full size.
const FULL_ENOUGH: f64 = 0.7;
/// A full container with nothing beneath is collected from this share of garbage on, when what stays is
/// rewritten at most once for each item that comes.
const WORTH_COLLECTING: f64 = 0.5;

impl Inner {
    fn is_full(&self, container: &Container) -> bool {
        let children = 1usize << self.versions.shape.fanout_bits;
        let bytes = FULL_ENOUGH * children as f64 * self.options.table_bytes as f64;
        let tables = container.tables.len();
        // Whatever slows writers down is due, or they would wait for nothing.
        let most = (2 * children).min(self.options.slow_at);
        tables >= most || tables >= children && container.bytes() as f64 >= bytes
    }

    /// Judges a container anew: `version` is the first in which its tables or its cluster are others, or
    /// something was learnt of its garbage.
    pub(crate) fn reconsider(&self, state: &mut State, version: &Version, place: Place) {
        let container = version.at(place);
        let wish = container.map(|of| self.wish(version, place, of, &state.busy));
        state.candidates.set(place, wish.unwrap_or_default());
    }

    fn wish(&self, version: &Version, place: Place, container: &Container, busy: &Busy) -> Wish {
        let is_last = place.level >= self.last_level;
        let full = || (container.tables.len(), self.due_in_full(version, place, container, busy));
        Wish {
            full: (!is_last && self.is_full(container)).then(full),
            due: if is_last { self.due_at_last(place, container, busy) } else { None },
            filter_bytes: container.filter_bytes(),
            may_gather: is_last,
        }
    }

    /// What makes room in a full container above the last level.
    fn due_in_full(
        &self,
        version: &Version,
        place: Place,
        container: &Container,
        busy: &Busy,
    ) -> Task {
        let never = self.options.garbage >= 1.0;
        if never || version.has_beneath(place, self.versions.shape.fanout_bits) {
            return Task::Spill(place);
        }
        match busy.garbage(place, container.tables.len()) {
            None => Task::Sample(place),
            Some(ratio) if ratio >= self.options.garbage.max(WORTH_COLLECTING) => {
                Task::Collect(place)
            }
            Some(_) => Task::Spill(place),
        }
    }

    /// The next thing to do, if anything is due and allowed.
    pub(super) fn pick(&self, state: &State) -> Option<Task> {
        let bits = self.versions.shape.fanout_bits;
        let mut looked_at = 0;
        let task = state.candidates.first(self.options.filter_memory, |task| {
            looked_at += 1;
            state.busy.allows(task, bits)
        });
        self.counters.choices.fetch_add(1, Relaxed);
        self.counters.candidates_seen.fetch_add(looked_at, Relaxed);
        task
    }

    /// What a container of the last level wants.
    fn due_at_last(&self, place: Place, container: &Container, busy: &Busy) -> Option<Task> {
        let tables = container.tables.len();
        let runs = container.tables.iter().filter(|table| table.is_run()).count();
        if self.options.run_at > 0 && tables - runs >= self.options.run_at {
            return Some(Task::Collect(place));
        }
        if tables < self.options.collect_at || self.options.garbage >= 1.0 {
            return None;
        }
        match busy.garbage(place, tables) {
            None => Some(Task::Sample(place)),
            Some(ratio) => (ratio >= self.options.garbage).then_some(Task::Collect(place)),
        }
    }

    /// The debt of the container with the most sub-levels, as a share of what makes writers stop. One that
    /// slows writers down is full, so the candidates have it.
    pub(crate) fn pressure_of(&self, state: &State) -> f64 {
        let over = state.candidates.most_tables().saturating_sub(self.options.slow_at) as f64;
        let span = (self.options.stop_at - self.options.slow_at) as f64;
        over / span
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;
    use crate::compact::Candidates;
    use crate::{Options, Trie};
    use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
    use siltstone_runtime::Env;
    use siltstone_testkit::{Dice, subject};
    use siltstone_vfs::Ram;

    fn open(options: &str) -> Trie {
        let options = Options::from_map(&subject::options([options])).unwrap();
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 5);
        Trie::open(Arc::new(Ram::new()), env, options).unwrap()
    }

    fn put(trie: &Trie, keys: impl Iterator<Item = u64>) {
        for key in keys {
            let mut batch = WriteBatch::new();
            batch.put(&key.to_le_bytes(), &[key as u8; 40]);
            trie.write(&batch, Durability::Buffered).unwrap();
        }
    }

    /// The choice as it was made before there were candidates: by looking at all containers.
    fn pick_by_scan(inner: &Inner, version: &Version, busy: &Busy) -> Option<Task> {
        let (bits, last) = (inner.versions.shape.fanout_bits, inner.last_level);
        let mut fullest: Option<(usize, Task)> = None;
        let mut largest: Option<(u64, Task)> = None;
        let (mut filters, mut due) = (0, None);
        for (place, container) in version.containers() {
            let (tables, bytes) = (container.tables.len(), container.filter_bytes());
            filters += bytes;
            let gather = Task::Gather(place);
            if place.level < last {
                let is_more = fullest.is_none_or(|(most, _)| tables > most);
                let task = inner.due_in_full(version, place, container, busy);
                if is_more && inner.is_full(container) && busy.allows(task, bits) {
                    fullest = Some((tables, task));
                }
                continue;
            }
            let wish = inner.due_at_last(place, container, busy);
            due = due.or(wish.filter(|&task| busy.allows(task, bits)));
            let is_more = bytes > 0 && largest.is_none_or(|(most, _)| bytes > most);
            if is_more && busy.allows(gather, bits) {
                largest = Some((bytes, gather));
            }
        }
        let gather = largest.filter(|_| filters > inner.options.filter_memory);
        fullest.map(|(_, task)| task).or(due).or(gather.map(|(_, task)| task))
    }

    #[test]
    fn is_the_choice_that_of_a_look_at_all_containers() {
        let small = "table=1KiB bucket=256 fanout_bits=2 levels=3 slow=10 stop=20 jobs=1";
        let mut chosen = HashMap::new();
        for (seed, more) in (0..).zip([
            "filter_memory=2KiB garbage=0.1 collect=2",
            "filter_memory=100KiB garbage=0.6 collect=3",
            "run=2 filter_memory=0",
            "levels=1 garbage=0 collect=2",
        ]) {
            let trie = open(&format!("{small} {more}"));
            let mut dice = Dice::new(seed);
            for _ in 0..400 {
                put(
                    &trie,
                    (0..dice.below(40)).map(|_| dice.below(4000)).collect::<Vec<_>>().into_iter(),
                );
                if dice.one_in(20) {
                    trie.maintain().unwrap();
                }
                let inner = &trie.inner;
                let places: Vec<_> = inner.view.load().version.containers().map(|c| c.0).collect();
                if dice.one_in(4) && !places.is_empty() {
                    // Samples are taken and used up at once else.
                    let place = *dice.pick(&places);
                    let tables =
                        inner.view.load().version.at(place).map_or(0, |it| it.tables.len());
                    inner.learn(place, Some((tables, dice.below(100) as f64 / 100.0)));
                }
                let mut state = inner.background.lock();
                let version = inner.view.load().version.clone();
                let mut anew = State { busy: std::mem::take(&mut state.busy), ..State::default() };
                for (place, _) in version.containers() {
                    inner.reconsider(&mut anew, &version, place);
                }
                assert_eq!(state.candidates, anew.candidates);
                // Whatever jobs are in the way.
                let running = std::mem::take(&mut anew.busy.tasks);
                loop {
                    let task = inner.pick(&anew);
                    assert_eq!(task, pick_by_scan(inner, &version, &anew.busy));
                    let Some(task) = task else { break };
                    *chosen.entry(std::mem::discriminant(&task)).or_insert(0) += 1;
                    anew.busy.tasks.push(task);
                }
                anew.busy.tasks = running;
                state.busy = anew.busy;
            }
        }
        assert_eq!(chosen.len(), 4, "tasks of some kind were never due: {chosen:?}");
    }

    #[test]
    fn is_a_choice_no_dearer_in_a_store_with_ten_times_as_many_containers() {
        let seen = |keys: u64| {
            let trie =
                open("table=4KiB bucket=512 fanout_bits=3 levels=5 jobs=2 filter_memory=8KiB");
            put(&trie, 0..keys);
            trie.maintain().unwrap();
            let containers = trie.inner.view.load().version.containers().count();
            let counters = trie.stats().counters;
            (containers, counters["candidates_seen"] as f64 / counters["choices"] as f64)
        };
        let ((few, small), (many, large)) = (seen(4_000), seen(250_000));
        println!("{few} containers, {small:.2} candidates a choice; {many}, {large:.2}");
        assert!(many >= 10 * few, "{few} and {many} containers");
        // A job is in the way of itself and of nine containers around it, at most.
        assert!(large < small + 2.0, "{small:.2} candidates a choice, then {large:.2}");
    }

    /// A few keys written for ever: as their garbage sinks, so would the trie deepen, with hardly an item in
    /// each of its many tables.
    #[test]
    fn does_a_small_store_that_is_overwritten_stay_small() {
        let trie = open("table=4KiB bucket=512 fanout_bits=3 levels=5 jobs=2");
        let mut dice = Dice::new(1);
        let mut most = 0;
        for _ in 0..60 {
            put(&trie, (0..2_000).map(|_| dice.below(500)).collect::<Vec<_>>().into_iter());
            most = most.max(trie.inner.view.load().version.tables().count());
        }
        trie.maintain().unwrap();
        let version = trie.inner.view.load().version.clone();
        let bytes: u64 = version.tables().map(|table| table.bytes()).sum();
        println!(
            "{most} tables at most, {} in the end, of {bytes} bytes",
            version.tables().count()
        );
        // 500 items of some 50 bytes: a container of the first level holds them twice and more.
        assert!(most <= 40, "{most} tables");
        assert!(bytes <= 3 * 500 * 60, "{bytes} bytes");
        assert!((0..500).all(|key: u64| trie.get(&key.to_le_bytes()).unwrap().is_some()));
    }

    #[test]
    fn do_the_candidates_of_a_container_go_with_its_wish() {
        let (mut candidates, place) = (Candidates::default(), Place { level: 2, id: 7 });
        candidates.set(
            place,
            Wish {
                full: Some((9, Task::Spill(place))),
                due: Some(Task::Sample(place)),
                filter_bytes: 5,
                may_gather: true,
            },
        );
        assert_eq!((candidates.most_tables(), candidates.first(4, |_| false)), (9, None));
        candidates.set(place, Wish::default());
        assert_eq!(candidates, Candidates::default());
    }
}
