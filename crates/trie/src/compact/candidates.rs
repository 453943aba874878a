//! Compaction candidates, updated incrementally as containers change.
//!
//! ```text
//!   full      containers above the last level to be spilled, or garbage-collected if they have no
//!             descendants                    most tables first, then nearest to the root
//!   due       containers of the last level to be sampled or collected            in their order
//!   filters   containers of the last level with filters in memory                most bytes first
//! ```
//!
//! A store of 10 TB has about 4,700 containers, and each job changes a few of them. A container is
//! rescored when it changes, and a task is picked from the heads of three ordered sets, skipping
//! only those that running jobs block. Cost: a pick is O(running jobs), a change O(log containers).
//!
//! Invariant: the sets contain exactly the last [`set`](Candidates::set) score of every container.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Task;
use crate::container_id::ContainerId;

/// The compaction score of one container.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CompactionScore {
    /// It is full and above the last level: the number of its tables, and the task that empties it.
    pub(crate) full: Option<(usize, Task)>,
    /// The task that is due in it on the last level.
    pub(crate) due: Option<Task>,
    /// The bytes of its filters in memory.
    pub(crate) filter_bytes: u64,
    /// Whether these may be moved to a cluster.
    pub(crate) may_cluster: bool,
}

/// The scores of all containers, in order of urgency.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Candidates {
    scores: HashMap<ContainerId, CompactionScore>,
    full: BTreeMap<(Reverse<usize>, ContainerId), Task>,
    due: BTreeMap<ContainerId, Task>,
    filters: BTreeSet<(Reverse<u64>, ContainerId)>,
    filter_bytes: u64,
}

impl Candidates {
    /// Replaces the score of a container.
    pub(crate) fn set(&mut self, container_id: ContainerId, score: CompactionScore) {
        if let Some(CompactionScore { full, due, filter_bytes, .. }) =
            self.scores.remove(&container_id)
        {
            full.map(|(tables, _)| self.full.remove(&(Reverse(tables), container_id)));
            due.map(|_| self.due.remove(&container_id));
            self.filters.remove(&(Reverse(filter_bytes), container_id));
            self.filter_bytes -= filter_bytes;
        }
        if score == CompactionScore::default() {
            return;
        }
        score.full.map(|(tables, task)| self.full.insert((Reverse(tables), container_id), task));
        score.due.map(|task| self.due.insert(container_id, task));
        if score.may_cluster && score.filter_bytes > 0 {
            self.filters.insert((Reverse(score.filter_bytes), container_id));
        }
        self.filter_bytes += score.filter_bytes;
        self.scores.insert(container_id, score);
    }

    /// The maximum number of tables in a full container.
    pub(crate) fn max_tables(&self) -> usize {
        self.full.first_key_value().map_or(0, |((tables, _), _)| tables.0)
    }

    /// The most urgent task that is allowed. Clusters are written while all filters together take
    /// more than `filter_memory` bytes.
    pub(crate) fn first(
        &self,
        filter_memory: u64,
        mut is_allowed: impl FnMut(Task) -> bool,
    ) -> Option<Task> {
        let is_over = self.filter_bytes > filter_memory;
        let cluster_tasks =
            self.filters.iter().map(|&(_, container_id)| Task::BuildCluster(container_id));
        let tasks = self.full.values().chain(self.due.values()).copied();
        tasks.chain(cluster_tasks.filter(|_| is_over)).find(|&task| is_allowed(task))
    }
}
