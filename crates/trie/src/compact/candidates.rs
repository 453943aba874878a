//! What may be due next, kept up as containers change.
//!
//! ```text
//!   full      containers above the last level to be emptied    most tables first, then nearest to the root
//!             or, while nothing lies beneath, collected
//!   due       containers of the last level to be looked into or collected          in their order
//!   filters   containers of the last level that have filters in memory             most bytes first
//! ```
//!
//! A store of 10 TB has some 4,700 containers and changes a few of them with each job. So a container is
//! judged when it changes, and who looks for a job looks at the heads of three ordered sets: past as many
//! entries as running jobs are in the way of, whatever the number of containers. A change costs
//! logarithms of it.
//!
//! Invariant: for every container the sets hold what its last [`set`](Candidates::set) said, and no more.
//!
//! Source: ours.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Task;
use crate::version::Place;

/// What one container wants.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Wish {
    /// It is above the last level and full, has so many tables, and this makes room in it.
    pub(crate) full: Option<(usize, Task)>,
    /// What is due in it at the last level.
    pub(crate) due: Option<Task>,
    /// Bytes of its filters in memory.
    pub(crate) filter_bytes: u64,
    /// They may go to a cluster.
    pub(crate) may_gather: bool,
}

/// All wishes, in the order in which they are granted.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Candidates {
    wishes: HashMap<Place, Wish>,
    full: BTreeMap<(Reverse<usize>, Place), Task>,
    due: BTreeMap<Place, Task>,
    filters: BTreeSet<(Reverse<u64>, Place)>,
    filter_bytes: u64,
}

impl Candidates {
    /// The container wants this from now on.
    pub(crate) fn set(&mut self, place: Place, wish: Wish) {
        if let Some(Wish { full, due, filter_bytes, .. }) = self.wishes.remove(&place) {
            full.map(|(tables, _)| self.full.remove(&(Reverse(tables), place)));
            due.map(|_| self.due.remove(&place));
            self.filters.remove(&(Reverse(filter_bytes), place));
            self.filter_bytes -= filter_bytes;
        }
        if wish == Wish::default() {
            return;
        }
        wish.full.map(|(tables, task)| self.full.insert((Reverse(tables), place), task));
        wish.due.map(|task| self.due.insert(place, task));
        if wish.may_gather && wish.filter_bytes > 0 {
            self.filters.insert((Reverse(wish.filter_bytes), place));
        }
        self.filter_bytes += wish.filter_bytes;
        self.wishes.insert(place, wish);
    }

    /// The most tables that a full container has.
    pub(crate) fn most_tables(&self) -> usize {
        self.full.first_key_value().map_or(0, |((tables, _), _)| tables.0)
    }

    /// The first thing to do that is allowed; filters are gathered when all together take more bytes than
    /// `filter_memory`.
    pub(crate) fn first(
        &self,
        filter_memory: u64,
        mut is_allowed: impl FnMut(Task) -> bool,
    ) -> Option<Task> {
        let is_over = self.filter_bytes > filter_memory;
        let gathers = self.filters.iter().map(|&(_, place)| Task::Gather(place));
        let tasks = self.full.values().chain(self.due.values()).copied();
        tasks.chain(gathers.filter(|_| is_over)).find(|&task| is_allowed(task))
    }
}
