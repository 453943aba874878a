//! Background work on containers: what is due ([`pick`], [`candidates`]), how tables are merged ([`merge`]) and written
//! ([`output`]), and the jobs: [`spill`] a full container into its children, [`collect`] one that has none, gather the
//! filters of one of the last level into a cluster ([`gather`]).
//!
//! ```text
//!   container 5 of level 1     [t9] [t8] [t7] [t5] ……            all of them, merged
//!                                 │ by the next bits of the hash
//!   its children, level 2      40 [t12|t3]   41 [t13|t4|t1]  …  each gets one table, as its newest
//! ```
//!
//! Invariant: no two jobs work on the same container, and none gathers or collects a container that
//! another spills into.
//!
//! Source: LSM-trie paper, sections 2.3 and 2.4.3.

mod candidates;
mod collect;
mod gather;
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
use crate::version::{Edit, Place};

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Empty the container into its children.
    Spill(Place),
    /// Merge all tables of a container with nothing beneath it into one.
    Collect(Place),
    /// Estimate how much of such a container is garbage.
    Sample(Place),
    /// Move the filters of a container of the last level to a cluster.
    Gather(Place),
}

impl Task {
    fn place(self) -> Place {
        let (Task::Spill(place) | Task::Collect(place) | Task::Sample(place) | Task::Gather(place)) =
            self;
        place
    }
}

/// What jobs work on, and what they have learnt.
#[derive(Default)]
pub(crate) struct Busy {
    tasks: Vec<Task>,
    /// Share of garbage in a container when it had so many tables.
    garbage: HashMap<Place, (usize, f64)>,
}

impl Busy {
    /// Whether no other job is in the way of `task`.
    pub(crate) fn allows(&self, task: Task, fanout_bits: u32) -> bool {
        let place = task.place();
        let is_child = |child: Place, parent: Place| {
            child.level == parent.level + 1 && child.id >> fanout_bits == parent.id
        };
        self.tasks.iter().all(|other| match (other, task) {
            (other, _) if other.place() == place => false,
            (Task::Spill(parent), Task::Collect(_) | Task::Gather(_)) => !is_child(place, *parent),
            (Task::Collect(child) | Task::Gather(child), Task::Spill(_)) => {
                !is_child(*child, place)
            }
            _ => true,
        })
    }

    /// Forgets all estimates.
    pub(crate) fn forget_garbage(&mut self) {
        self.garbage.clear();
    }

    /// The estimate for a container, if it is not outdated: a quarter more tables makes it so.
    pub(crate) fn garbage(&self, place: Place, tables: usize) -> Option<f64> {
        let &(then, ratio) = self.garbage.get(&place)?;
        (tables >= then && tables < then + then.div_ceil(4)).then_some(ratio)
    }
}

impl Inner {
    /// Queues jobs while some are due and allowed.
    pub(crate) fn schedule_compaction(&self) {
        let mut state = self.background.lock();
        while state.compactions < self.options.jobs && !self.background.is_stopping() {
            let Some(task) = self.pick(&state) else { return };
            state.busy.tasks.push(task);
            state.compactions += 1;
            let priority = match task.place().level {
                0 => Priority::Urgent,
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
        // What was removed meanwhile is nobody's concern, nor is what a job met in it.
        if self.is_cleared_since(view.generation) { Ok(()) } else { done }
    }

    fn run_task_of(&self, view: &View, task: Task) -> Result<()> {
        let began = Instant::now();
        match task {
            Task::Spill(place) => self.spill(view, place),
            Task::Collect(place) => self.collect(view, place),
            Task::Gather(place) => self.gather(view, place),
            Task::Sample(place) => {
                let (tables, ratio) = self.sample(&view.version, place)?;
                self.learn(place, Some((tables, ratio)));
                Ok(())
            }
        }?;
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok(())
    }

    /// Notes the share of garbage in a container of so many tables, or that it is not known any more.
    fn learn(&self, place: Place, garbage: Option<(usize, f64)>) {
        let mut state = self.background.lock();
        match garbage {
            Some(garbage) => _ = state.busy.garbage.insert(place, garbage),
            None => _ = state.busy.garbage.remove(&place),
        }
        let view = self.view.load();
        self.reconsider(&mut state, &view.version, place);
    }

    /// Ends a job that has written the files of `edit`: makes their names durable and installs it.
    /// `false`: all keys were removed since the view of `generation`, and its files are removed.
    fn finish_job(&self, generation: u64, edit: Edit) -> Result<bool> {
        let files =
            Edit { added: edit.added.clone(), clusters: edit.clusters.clone(), ..Edit::default() };
        let installed = self
            .sync_dirs(siltstone_engine::Purpose::Compaction)
            .and_then(|()| self.install(generation, edit, |_| ()));
        let is_needless = match &installed {
            Ok(is_installed) => !is_installed,
            // Then the manifest took its edit back: nobody names them.
            Err(error) => error.is_transient(),
        };
        if is_needless {
            self.remove_files(&files);
        }
        installed
    }

    /// Removes the files that an edit would have brought, had it been installed; one that stays behind
    /// goes at the next open.
    pub(super) fn remove_files(&self, edit: &Edit) {
        for added in &edit.added {
            let _ = self.media_of(added.place.level).remove(&Kind::HTable.name(added.number));
        }
        for &(place, number, _) in edit.clusters.iter().filter(|(_, number, _)| *number > 0) {
            let _ = self.media_of(place.level).remove(&Kind::Cluster.name(number));
        }
    }
}

fn run_job(inner: &Arc<Inner>, task: Task) {
    let settle = |state: &mut State| {
        state.compactions -= 1;
        state.busy.tasks.retain(|other| *other != task);
    };
    if inner.background.run(settle, || inner.run_task(task)) {
        inner.schedule_compaction();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_parent_and_gathered_child_kept_apart() {
        let parent = Place { level: 1, id: 5 };
        let child = Place { level: 2, id: 5 << 3 | 2 };
        let busy = |task| Busy { tasks: vec![task], ..Busy::default() };
        assert!(!busy(Task::Spill(parent)).allows(Task::Collect(child), 3));
        assert!(!busy(Task::Gather(child)).allows(Task::Spill(parent), 3));
        assert!(busy(Task::Spill(parent)).allows(Task::Spill(child), 3));
        assert!(busy(Task::Spill(parent)).allows(Task::Collect(Place { id: 1, ..child }), 3));
        assert!(!busy(Task::Spill(parent)).allows(Task::Spill(parent), 3));
    }
}
