//! Flush: writes a full memtable to a table of the root container.
//!
//! Memtables are flushed one at a time, oldest first, so that tables enter the root in write order.
//! The manifest edit that adds the table also advances the first log that recovery needs; the old
//! log is removed only after it.
//!
//! Invariant: at any time a write is in a log that recovery reads or in a table that it opens.
//!
//! Source: LSM-trie paper, section 2.1.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_engine::{Purpose, Result};
use siltstone_runtime::{BackgroundWork, Priority};
use siltstone_table::log::remove_logs;

use crate::compact::Output;
use crate::engine::{Inner, State};
use crate::hash::Hash;
use crate::htable::ExpectedSize;
use crate::memtable::{ItemPosition, Memtable};
use crate::read::View;
use crate::version::{ContainerId, Edit};

/// The container of flushed memtables.
pub(crate) const ROOT: ContainerId = ContainerId { level: 0, id: 0 };

impl Inner {
    /// Queues a flush if a memtable is waiting and no flush is queued.
    pub(crate) fn schedule_flush(&self) {
        let mut state = self.background.lock();
        if state.flushing == 0 || state.is_flush_queued || self.background.is_stopping() {
            return;
        }
        state.is_flush_queued = true;
        drop(state);
        let weak = self.me.clone();
        self.env.scheduler.spawn(Priority::Flush, move || {
            let Some(inner) = weak.upgrade() else { return };
            let on_finish = |state: &mut State| state.is_flush_queued = false;
            if inner.background.run(on_finish, || inner.flush_oldest()) {
                inner.schedule();
            }
        });
    }

    /// Flushes the recovered memtable, so that no new log depends on an old one.
    pub(crate) fn flush_recovered(&self) -> Result<()> {
        self.flush()?;
        let first_log = self.view.load().active.first_log;
        let generation = self.view.load().generation;
        self.install(generation, Edit { first_log: Some(first_log), ..Edit::default() }, |_| ())?;
        self.remove_logs_before(first_log);
        Ok(())
    }

    fn flush_oldest(&self) -> Result<()> {
        let view = self.view.load_full();
        let flushed = self.flush_oldest_of(&view);
        // After a clear the memtables are obsolete, and so is any error of their flush.
        if self.is_cleared_since(view.generation) { Ok(()) } else { flushed }
    }

    fn flush_oldest_of(&self, view: &View) -> Result<()> {
        let Some(memtable) = view.flushing.first() else { return Ok(()) };
        let next = view.flushing.get(1).unwrap_or(&view.active);
        let began = Instant::now();
        let mut edit = Edit {
            first_log: Some(next.first_log),
            last_sequence: Some(memtable.last_sequence()),
            ..Edit::default()
        };
        self.write_memtable(memtable, &mut edit)?;
        let files = Edit { added: edit.added.clone(), ..Edit::default() };
        let installed = self.install(view.generation, edit, |view| {
            view.flushing.remove(0);
        });
        match installed {
            Ok(true) => {}
            // All keys were cleared meanwhile.
            Ok(false) => {
                self.remove_files(&files);
                return Ok(());
            }
            Err(error) => {
                // The manifest does not name the table then, and a retry writes another one.
                if error.is_transient() {
                    self.remove_files(&files);
                }
                return Err(error);
            }
        }
        self.counters.flushes.fetch_add(1, Relaxed);
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        self.remove_logs_before(next.first_log);
        Ok(())
    }

    fn write_memtable(&self, memtable: &Memtable, edit: &mut Edit) -> Result<()> {
        if memtable.is_empty() {
            return Ok(());
        }
        let hash = self.versions.config.hash;
        let frozen = memtable.freeze();
        let mut items: Vec<(Hash, ItemPosition)> = Vec::with_capacity(memtable.keys() as usize);
        let mut bytes = 0;
        items.extend(frozen.items().map(|(position, item)| {
            bytes += (item.key.len() + item.value.map_or(0, <[u8]>::len)) as u64;
            (hash.hash(item.key), position)
        }));
        items.sort_unstable();
        let expected = ExpectedSize { items: items.len() as u64, bytes };
        let build = self.options.build(self.options.layout());
        let content = (memtable.last_sequence(), expected);
        let mut output = Output::new(self, ROOT, (build, Purpose::Flush), content, true);
        for &(hash, position) in &items {
            output.push(hash, &frozen.item(position))?;
        }
        output.finish(false, edit)?;
        self.sync_dirs(Purpose::Flush)
    }

    /// Releases the logs whose writes are all in tables, and removes them.
    pub(crate) fn remove_logs_before(&self, first_log: u64) {
        let unused = self.writer.lock().as_mut().map(|writer| writer.log.release_before(first_log));
        drop(unused);
        let mut state = self.background.lock();
        let obsolete: Vec<u64> = state.logs.extract_if(.., |number| *number < first_log).collect();
        drop(state);
        remove_logs(self.vfs.as_ref(), obsolete);
    }
}
