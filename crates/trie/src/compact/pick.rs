//! What is due next, and how much of it there is.
//!
//! A container above the last level is full when it has as many tables as children and the bytes of
//! most of them, or twice as many tables in any case: emptied earlier it would make small tables. Of
//! several the one with the most tables goes first, then the one nearest to the root.
//!
//! Invariant: what is picked is allowed by the jobs that run, and doing it makes it undue.
//!
//! Source: LSM-trie paper, sections 2.2 and 2.4.3 ("between 0 and 16 sub-levels, 8 on average"); the
//! order is ours.

use super::{Busy, Task};
use crate::engine::Inner;
use crate::version::{Container, Place, Version};

/// A container's tables are worth emptying at this share of their full size.
const FULL_ENOUGH: f64 = 0.7;

impl Inner {
    /// The deepest level: it only grows.
    pub(crate) fn last_level(&self, version: &Version) -> usize {
        version.deepest().max(self.options.levels - 1)
    }

    fn is_full(&self, container: &Container) -> bool {
        let children = 1usize << self.versions.shape.fanout_bits;
        let bytes = FULL_ENOUGH * children as f64 * self.options.table_bytes as f64;
        let tables = container.tables.len();
        // Whatever slows writers down is due, or they would wait for nothing.
        let most = (2 * children).min(self.options.slow_at);
        tables >= most || tables >= children && container.bytes() as f64 >= bytes
    }

    /// The next thing to do, if anything is due and allowed.
    pub(super) fn pick(&self, version: &Version, busy: &Busy) -> Option<Task> {
        let bits = self.versions.shape.fanout_bits;
        let last = self.last_level(version);
        let mut fullest: Option<(usize, Task)> = None;
        let mut filters = 0;
        let mut largest: Option<(u64, Task)> = None;
        for (place, container) in version.containers() {
            let bytes = container.filter_bytes();
            filters += bytes;
            if place.level < last {
                let task = Task::Spill(place);
                let tables = container.tables.len();
                let is_more = fullest.is_none_or(|(most, _)| tables > most);
                if is_more && self.is_full(container) && busy.allows(task, bits) {
                    fullest = Some((tables, task));
                }
            } else if bytes > 0 && largest.is_none_or(|(most, _)| bytes > most) {
                let task = Task::Gather(place);
                if busy.allows(task, bits) {
                    largest = Some((bytes, task));
                }
            }
        }
        let last_ones = || version.containers().filter(|(place, _)| place.level == last);
        let due = || {
            let mut tasks = last_ones()
                .filter_map(|(place, container)| self.due_at_last(place, container, busy));
            tasks.find(|&task| busy.allows(task, bits))
        };
        let gather = || largest.filter(|_| filters > self.options.filter_memory);
        fullest.map(|(_, task)| task).or_else(due).or_else(|| gather().map(|(_, task)| task))
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

    /// The debt of the container with the most sub-levels, as a share of what makes writers stop.
    pub(crate) fn pressure_of(&self, version: &Version) -> f64 {
        let last = self.last_level(version);
        let upper = version.containers().filter(|(place, _)| place.level < last);
        let most = upper.map(|(_, container)| container.tables.len()).max().unwrap_or(0);
        let over = most.saturating_sub(self.options.slow_at) as f64;
        let span = (self.options.stop_at - self.options.slow_at) as f64;
        over / span
    }
}
