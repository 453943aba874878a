//! The compaction strategy: scores containers and picks the next task.
//!
//! A container above the last level is full when it has as many tables as children and most of
//! their full size, or twice as many tables in any case: spilled earlier, it would make small
//! tables. The one with the most tables is compacted first, then the one nearest to the root.
//!
//! A full container without descendants is spilled only if most of it is live. Otherwise it is
//! garbage-collected like those of the last level: that writes the same items to one table instead
//! of eight, and the depth of the trie follows from its live items, however often they are
//! overwritten.
//!
//! A container is scored when it changes, by [`rescore`](Tree::rescore), and
//! [`Candidates`](super::Candidates) keeps the scores in order, so that a pick does not scan all of
//! them.
//!
//! Invariant: running jobs allow the picked task, and executing it makes it no longer due.
//!
//! Source: LSM-trie paper, sections 2.2 and 2.4.3 ("between 0 and 16 sub-levels, 8 on average").

use std::sync::atomic::Ordering::Relaxed;

use super::candidates::CompactionScore;
use super::{RunningTasks, Task};
use crate::container_id::ContainerId;
use crate::engine::{State, Tree};
use crate::version::{Container, Version};

/// The minimum share of their full size for the tables of a full container.
const MIN_FULL_SHARE: f64 = 0.7;
/// The minimum garbage ratio for the collection of a full container without descendants: then live
/// items are rewritten at most once per new item.
const MIN_COLLECT_GARBAGE: f64 = 0.5;

impl Tree {
    fn is_full(&self, container: &Container) -> bool {
        let children = 1usize << self.config.fanout_bits;
        let bytes = MIN_FULL_SHARE * children as f64 * self.options.htable_bytes as f64;
        let tables = container.tables.len();
        // A container that delays writers must be due, or they would wait forever.
        let max = (2 * children).min(self.options.slowdown_trigger);
        tables >= max || tables >= children && container.bytes() as f64 >= bytes
    }

    /// Rescores a container. `version` is the first one with its new tables or cluster, or its
    /// garbage estimate has changed.
    pub(crate) fn rescore(&self, state: &mut State, version: &Version, container_id: ContainerId) {
        let container = version.at(container_id);
        let score = container.map(|of| self.score(version, container_id, of, &state.running));
        state.candidates.set(container_id, score.unwrap_or_default());
    }

    fn score(
        &self,
        version: &Version,
        container_id: ContainerId,
        container: &Container,
        running: &RunningTasks,
    ) -> CompactionScore {
        let is_last = container_id.level >= self.last_level;
        let full = || {
            (container.tables.len(), self.task_for_full(version, container_id, container, running))
        };
        CompactionScore {
            full: (!is_last && self.is_full(container)).then(full),
            due: if is_last {
                self.task_at_last_level(container_id, container, running)
            } else {
                None
            },
            filter_bytes: container.filter_bytes(),
            may_cluster: is_last,
        }
    }

    /// The task that empties a full container above the last level.
    fn task_for_full(
        &self,
        version: &Version,
        container_id: ContainerId,
        container: &Container,
        running: &RunningTasks,
    ) -> Task {
        let never = self.options.gc_garbage_ratio >= 1.0;
        if never || version.has_descendants(container_id, self.config.fanout_bits) {
            return Task::Spill(container_id);
        }
        match running.garbage(container_id, container.tables.len()) {
            None => Task::Sample(container_id),
            Some(ratio) if ratio >= self.options.gc_garbage_ratio.max(MIN_COLLECT_GARBAGE) => {
                Task::Collect(container_id)
            }
            Some(_) => Task::Spill(container_id),
        }
    }

    /// The next task that is due and allowed.
    pub(super) fn pick(&self, state: &State) -> Option<Task> {
        let bits = self.config.fanout_bits;
        let mut examined = 0;
        let task = state.candidates.first(self.options.filter_memory, |task| {
            examined += 1;
            state.running.allows(task, bits)
        });
        self.counters.choices.fetch_add(1, Relaxed);
        self.counters.candidates_seen.fetch_add(examined, Relaxed);
        task
    }

    /// The task that is due in a container of the last level.
    fn task_at_last_level(
        &self,
        container_id: ContainerId,
        container: &Container,
        running: &RunningTasks,
    ) -> Option<Task> {
        let tables = container.tables.len();
        let runs = container.tables.iter().filter(|table| table.is_run()).count();
        if self.options.dense_run_at > 0 && tables - runs >= self.options.dense_run_at {
            return Some(Task::Collect(container_id));
        }
        if tables < self.options.gc_trigger || self.options.gc_garbage_ratio >= 1.0 {
            return None;
        }
        match running.garbage(container_id, tables) {
            None => Some(Task::Sample(container_id)),
            Some(ratio) => {
                (ratio >= self.options.gc_garbage_ratio).then_some(Task::Collect(container_id))
            }
        }
    }

    /// The back-pressure on writers: the maximum number of tables in a container, relative to the
    /// stop trigger. A container that delays writers is full, so it is a candidate.
    pub(crate) fn pressure_of(&self, state: &State) -> f64 {
        let over =
            state.candidates.max_tables().saturating_sub(self.options.slowdown_trigger) as f64;
        let span = (self.options.stop_trigger - self.options.slowdown_trigger) as f64;
        over / span
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;
    use crate::compact::Candidates;
    use crate::engine::Jobs;
    use crate::{Options, Trie};
    use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
    use siltstone_runtime::Env;
    use siltstone_testkit::{TestRng, engine_under_test};
    use siltstone_vfs::Ram;

    fn open(options: &str) -> Trie {
        let options = Options::from_map(&engine_under_test::options([options])).unwrap();
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

    /// Reference implementation: picks by a scan over all containers.
    fn pick_by_scan(tree: &Tree, version: &Version, running: &RunningTasks) -> Option<Task> {
        let (bits, last) = (tree.config.fanout_bits, tree.last_level);
        let mut fullest: Option<(usize, Task)> = None;
        let mut largest: Option<(u64, Task)> = None;
        let (mut filters, mut due) = (0, None);
        for (container_id, container) in version.containers() {
            let (tables, bytes) = (container.tables.len(), container.filter_bytes());
            filters += bytes;
            let cluster_task = Task::BuildCluster(container_id);
            if container_id.level < last {
                let is_more = fullest.is_none_or(|(max, _)| tables > max);
                let task = tree.task_for_full(version, container_id, container, running);
                if is_more && tree.is_full(container) && running.allows(task, bits) {
                    fullest = Some((tables, task));
                }
                continue;
            }
            let score = tree.task_at_last_level(container_id, container, running);
            due = due.or(score.filter(|&task| running.allows(task, bits)));
            let is_more = bytes > 0 && largest.is_none_or(|(max, _)| bytes > max);
            if is_more && running.allows(cluster_task, bits) {
                largest = Some((bytes, cluster_task));
            }
        }
        let cluster_task = largest.filter(|_| filters > tree.options.filter_memory);
        fullest.map(|(_, task)| task).or(due).or(cluster_task.map(|(_, task)| task))
    }

    #[test]
    fn pick_equals_a_scan_over_all_containers() {
        let small = "htable_size=1KiB bucket_size=256 fanout_bits=2 levels=3 slowdown_trigger=10 stop_trigger=20 max_compactions=1";
        let mut picked = HashMap::new();
        for (seed, more) in (0..).zip([
            "filter_memory=2KiB gc_garbage_ratio=0.1 gc_trigger=2",
            "filter_memory=100KiB gc_garbage_ratio=0.6 gc_trigger=3",
            "dense_run_at=2 filter_memory=0",
            "levels=1 gc_garbage_ratio=0 gc_trigger=2",
        ]) {
            let trie = open(&format!("{small} {more}"));
            let mut rng = TestRng::new(seed);
            for _ in 0..400 {
                put(
                    &trie,
                    (0..rng.below(40)).map(|_| rng.below(4000)).collect::<Vec<_>>().into_iter(),
                );
                if rng.one_in(20) {
                    trie.maintain().unwrap();
                }
                let tree = trie.table();
                let container_ids: Vec<_> =
                    tree.view.load().version.containers().map(|c| c.0).collect();
                if rng.one_in(4) && !container_ids.is_empty() {
                    // Otherwise samples are consumed at once.
                    let container_id = *rng.pick(&container_ids);
                    let tables =
                        tree.view.load().version.at(container_id).map_or(0, |it| it.tables.len());
                    tree.record_garbage(
                        container_id,
                        Some((tables, rng.below(100) as f64 / 100.0)),
                    );
                }
                let mut state = tree.background.lock();
                let version = tree.view.load().version.clone();
                let jobs = Jobs { running: std::mem::take(&mut state.running), ..Jobs::default() };
                let mut rescored = State { jobs, ..State::default() };
                for (container_id, _) in version.containers() {
                    tree.rescore(&mut rescored, &version, container_id);
                }
                assert_eq!(state.candidates, rescored.candidates);
                // With any set of running jobs.
                let running = std::mem::take(&mut rescored.running.tasks);
                loop {
                    let task = tree.pick(&rescored);
                    assert_eq!(task, pick_by_scan(tree, &version, &rescored.running));
                    let Some(task) = task else { break };
                    *picked.entry(std::mem::discriminant(&task)).or_insert(0) += 1;
                    rescored.running.tasks.push(task);
                }
                rescored.running.tasks = running;
                state.running = rescored.jobs.running;
            }
        }
        assert_eq!(picked.len(), 4, "tasks of some kind were never due: {picked:?}");
    }

    #[test]
    fn cost_of_a_pick_is_independent_of_the_number_of_containers() {
        let candidates_per_pick = |keys: u64| {
            let trie = open(
                "htable_size=4KiB bucket_size=512 fanout_bits=3 levels=5 max_compactions=2 filter_memory=8KiB",
            );
            put(&trie, 0..keys);
            trie.maintain().unwrap();
            let containers = trie.table().view.load().version.containers().count();
            let counters = trie.stats().counters;
            (containers, counters["candidates_seen"] as f64 / counters["choices"] as f64)
        };
        let ((few, small), (many, large)) =
            (candidates_per_pick(4_000), candidates_per_pick(250_000));
        println!("{few} containers, {small:.2} candidates a choice; {many}, {large:.2}");
        assert!(many >= 10 * few, "{few} and {many} containers");
        // A job blocks itself and up to nine containers around it.
        assert!(large < small + 2.0, "{small:.2} candidates a choice, then {large:.2}");
    }

    /// A few keys are overwritten forever: without garbage collection above the last level the trie
    /// would get deeper, with few items in each of many tables.
    #[test]
    fn overwritten_small_store_stays_small() {
        let trie =
            open("htable_size=4KiB bucket_size=512 fanout_bits=3 levels=5 max_compactions=2");
        let mut rng = TestRng::new(1);
        let mut max = 0;
        for _ in 0..60 {
            put(&trie, (0..2_000).map(|_| rng.below(500)).collect::<Vec<_>>().into_iter());
            max = max.max(trie.table().view.load().version.tables().count());
        }
        trie.maintain().unwrap();
        let version = trie.table().view.load().version.clone();
        let bytes: u64 = version.tables().map(|table| table.bytes()).sum();
        println!("{max} tables at max, {} in the end, of {bytes} bytes", version.tables().count());
        // 500 items of about 50 bytes: a container of the first level holds more than twice as
        // much.
        assert!(max <= 40, "{max} tables");
        assert!(bytes <= 3 * 500 * 60, "{bytes} bytes");
        assert!((0..500).all(|key: u64| trie.get(&key.to_le_bytes()).unwrap().is_some()));
    }

    #[test]
    fn default_score_removes_a_container_from_the_candidates() {
        let (mut candidates, container_id) =
            (Candidates::default(), ContainerId { level: 2, id: 7 });
        candidates.set(
            container_id,
            CompactionScore {
                full: Some((9, Task::Spill(container_id))),
                due: Some(Task::Sample(container_id)),
                filter_bytes: 5,
                may_cluster: true,
            },
        );
        assert_eq!((candidates.max_tables(), candidates.first(4, |_| false)), (9, None));
        candidates.set(container_id, CompactionScore::default());
        assert_eq!(candidates, Candidates::default());
    }
}
