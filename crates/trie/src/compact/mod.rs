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
mod merge;
mod output;
mod pick;
mod spill;

pub(crate) use candidates::Candidates;
pub(crate) use merge::Merge;
pub(crate) use output::Output;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_engine::Result;
use siltstone_runtime::Priority;

use crate::engine::{Inner, State};
use crate::files::Kind;
use crate::read::View;
use crate::version::{ContainerId, Edit};

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
    /// Whether no running task blocks `task`.
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

impl Inner {
    /// Queues tasks while some are due and allowed.
    pub(crate) fn schedule_compaction(&self) {
        let mut state = self.background.lock();
        while state.compactions < self.options.max_compactions && !self.background.is_stopping() {
            let Some(task) = self.pick(&state) else { return };
            state.running.tasks.push(task);
            state.compactions += 1;
            let priority = match task.container_id().level {
                0 => Priority::L0Compaction,
                level if level < self.last_level => Priority::Compaction,
                _ => Priority::Idle,
            };
            let weak = self.me.clone();
            self.env.scheduler.spawn(priority, move || {
                if let Some(inner) = weak.upgrade() {
                    run_job(&inner, task);
                }
            });
        }
    }

    fn run_task(&self, task: Task) -> Result<()> {
        let view = self.view.load_full();
        let done = self.run_task_of(&view, task);
        // After a clear the inputs are obsolete, and so is any error.
        if self.is_cleared_since(view.generation) { Ok(()) } else { done }
    }

    fn run_task_of(&self, view: &View, task: Task) -> Result<()> {
        let began = Instant::now();
        match task {
            Task::Spill(container_id) => self.spill(view, container_id),
            Task::Collect(container_id) => self.collect(view, container_id),
            Task::BuildCluster(container_id) => self.build_cluster(view, container_id),
            Task::Sample(container_id) => {
                let (tables, ratio) = self.sample(&view.version, container_id)?;
                self.record_garbage(container_id, Some((tables, ratio)));
                Ok(())
            }
        }?;
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok(())
    }

    /// Records the garbage estimate of a container and its number of tables, or drops it.
    fn record_garbage(&self, container_id: ContainerId, garbage: Option<(usize, f64)>) {
        let mut state = self.background.lock();
        match garbage {
            Some(garbage) => _ = state.running.garbage.insert(container_id, garbage),
            None => _ = state.running.garbage.remove(&container_id),
        }
        let view = self.view.load();
        self.rescore(&mut state, &view.version, container_id);
    }

    /// Ends a job that has written the files of `edit`: makes their names durable and installs it.
    /// `false`: all keys were cleared since the view of `generation`, and the files are removed.
    fn finish_job(&self, generation: u64, edit: Edit) -> Result<bool> {
        let files =
            Edit { added: edit.added.clone(), clusters: edit.clusters.clone(), ..Edit::default() };
        let installed = self
            .sync_dirs(siltstone_engine::Purpose::Compaction)
            .and_then(|()| self.install(generation, edit, |_| ()));
        let is_obsolete = match &installed {
            Ok(is_installed) => !is_installed,
            // The manifest does not name the files then.
            Err(error) => error.is_transient(),
        };
        if is_obsolete {
            self.remove_files(&files);
        }
        installed
    }

    /// Removes the files of an edit that was not installed. If that fails, the next open removes
    /// them.
    pub(super) fn remove_files(&self, edit: &Edit) {
        for added in &edit.added {
            let _ = self.tier_of(added.container_id.level).remove(&Kind::HTable.name(added.number));
        }
        for &(container_id, number, _) in edit.clusters.iter().filter(|(_, number, _)| *number > 0)
        {
            let _ = self.tier_of(container_id.level).remove(&Kind::Cluster.name(number));
        }
    }
}

fn run_job(inner: &Arc<Inner>, task: Task) {
    let on_finish = |state: &mut State| {
        state.compactions -= 1;
        state.running.tasks.retain(|other| *other != task);
    };
    if inner.background.run(on_finish, || inner.run_task(task)) {
        inner.schedule_compaction();
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
