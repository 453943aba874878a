//! Background work on containers: selection ([`pick`], [`candidates`]), merging ([`merge`]),
//! writing ([`output`]), and the jobs: [`spill`] a full container into its children,
//! [`garbage_collection`] of one without descendants, and moving filters of the last level to a
//! BloomCluster ([`cluster_job`]).
//!
//! ```text
//!   container 5 of level 1     [t9] [t8] [t7] [t5] ……            all of them, merged
//!                                 │ by the next bits of the hash
//!   its children, level 2      40 [t12|t3]   41 [t13|t4|t1]  …  each gets one table, its newest
//! ```
//!
//! Invariant: no two jobs work on the same container, and no cluster or collection job works on a
//! container that another job spills into.
//!
//! Source: LSM-trie paper, sections 2.3 and 2.4.3.

mod candidates;
mod cluster_job;
mod garbage_collection;
mod job;
mod merge;
mod output;
mod pick;
mod spill;

pub(crate) use candidates::Candidates;
pub(crate) use merge::Merge;
pub(crate) use output::Output;

use std::collections::HashMap;

use crate::container_id::ContainerId;

/// A background task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Spill the container into its children.
    Spill(ContainerId),
    /// Merge all tables of a container without descendants into one.
    Collect(ContainerId),
    /// Estimate the garbage ratio of such a container.
    Sample(ContainerId),
    /// Move the filters of a container of the last level to a BloomCluster.
    BuildCluster(ContainerId),
}

impl Task {
    fn container_id(self) -> ContainerId {
        let (Task::Spill(container_id)
        | Task::Collect(container_id)
        | Task::Sample(container_id)
        | Task::BuildCluster(container_id)) = self;
        container_id
    }
}

/// The running tasks, and the garbage estimates.
#[derive(Default)]
pub(crate) struct RunningTasks {
    tasks: Vec<Task>,
    /// The garbage ratio of a container, and the number of its tables then.
    garbage: HashMap<ContainerId, (usize, f64)>,
}

impl RunningTasks {
    /// Whether `task` may run now: no running task works on the same containers.
    pub(crate) fn allows(&self, task: Task, fanout_bits: u32) -> bool {
        let container_id = task.container_id();
        let is_child = |child: ContainerId, parent: ContainerId| {
            child.level == parent.level + 1 && child.id >> fanout_bits == parent.id
        };
        self.tasks.iter().all(|other| match (other, task) {
            (other, _) if other.container_id() == container_id => false,
            (Task::Spill(parent), Task::Collect(_) | Task::BuildCluster(_)) => {
                !is_child(container_id, *parent)
            }
            (Task::Collect(child) | Task::BuildCluster(child), Task::Spill(_)) => {
                !is_child(*child, container_id)
            }
            _ => true,
        })
    }

    /// Drops all estimates.
    pub(crate) fn forget_garbage(&mut self) {
        self.garbage.clear();
    }

    /// The estimate for a container, unless it is outdated: after 25 % more tables.
    pub(crate) fn garbage(&self, container_id: ContainerId, tables: usize) -> Option<f64> {
        let &(then, ratio) = self.garbage.get(&container_id)?;
        (tables >= then && tables < then + then.div_ceil(4)).then_some(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_and_child_are_not_processed_at_the_same_time() {
        let parent = ContainerId { level: 1, id: 5 };
        let child = ContainerId { level: 2, id: 5 << 3 | 2 };
        let running = |task| RunningTasks { tasks: vec![task], ..RunningTasks::default() };
        assert!(!running(Task::Spill(parent)).allows(Task::Collect(child), 3));
        assert!(!running(Task::BuildCluster(child)).allows(Task::Spill(parent), 3));
        assert!(running(Task::Spill(parent)).allows(Task::Spill(child), 3));
        assert!(
            running(Task::Spill(parent)).allows(Task::Collect(ContainerId { id: 1, ..child }), 3)
        );
        assert!(!running(Task::Spill(parent)).allows(Task::Spill(parent), 3));
    }
}
