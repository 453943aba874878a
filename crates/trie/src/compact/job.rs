//! The background jobs that run tasks.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_durable::report_compaction;
use siltstone_engine::{FileInfo, Job, Result};
use siltstone_runtime::Priority;

use super::Task;
use crate::container_id::ContainerId;
use crate::engine::{State, Tree};
use crate::files::Kind;
use crate::version::Edit;
use crate::view::View;

impl Tree {
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
                if let Some(tree) = weak.upgrade() {
                    run_job(&tree, task);
                }
            });
        }
    }

    fn run_task(&self, task: Task) -> Result<()> {
        self.with_view(|view| self.run_task_of(view, task))
    }

    fn run_task_of(&self, view: &View, task: Task) -> Result<()> {
        let began = Instant::now();
        match task {
            Task::Spill(container_id) => self.report(view, task, || self.spill(view, container_id)),
            Task::Collect(container_id) => {
                self.report(view, task, || self.collect(view, container_id))
            }
            Task::BuildCluster(container_id) => {
                self.report(view, task, || self.build_cluster(view, container_id))
            }
            Task::Sample(container_id) => {
                let (tables, ratio) = self.sample(&view.version, container_id)?;
                self.record_garbage(container_id, Some((tables, ratio)));
                Ok(())
            }
        }?;
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok(())
    }

    /// Runs a task between its events.
    fn report(
        &self,
        view: &View,
        task: Task,
        work: impl FnOnce() -> Result<Vec<FileInfo>>,
    ) -> Result<()> {
        let describe = || {
            let (id, level) = (task.container_id(), task.container_id().level);
            let (reason, output_level) = match task {
                Task::Spill(_) => ("container full", level + 1),
                Task::Collect(_) => ("garbage", level),
                Task::Sample(_) | Task::BuildCluster(_) => ("memory of filters", level),
            };
            let tables = view.version.at(id).map(|container| &container.tables);
            let tables = tables.into_iter().flatten();
            let inputs = tables.map(|table| FileInfo::new(table.name(), table.bytes())).collect();
            Job::new(reason).on_levels(level, output_level).with_inputs(inputs)
        };
        report_compaction(self, describe, work)
    }

    /// Records the garbage estimate of a container and its number of tables, or drops it.
    pub(super) fn record_garbage(&self, container_id: ContainerId, garbage: Option<(usize, f64)>) {
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
    pub(super) fn finish_job(&self, generation: u64, edit: Edit) -> Result<bool> {
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
    pub(crate) fn remove_files(&self, edit: &Edit) {
        for added in &edit.added {
            let _ = self.tier_of(added.container_id.level).remove(&Kind::HTable.name(added.number));
        }
        for &(container_id, number, _) in edit.clusters.iter().filter(|(_, number, _)| *number > 0)
        {
            let _ = self.tier_of(container_id.level).remove(&Kind::Cluster.name(number));
        }
    }
}

fn run_job(tree: &Arc<Tree>, task: Task) {
    let on_finish = |state: &mut State| {
        state.compactions -= 1;
        state.running.tasks.retain(|other| *other != task);
    };
    if tree.background.run(on_finish, || tree.run_task(task)) {
        tree.schedule_compaction();
    }
}
