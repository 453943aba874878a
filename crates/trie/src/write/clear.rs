//! Removing every key: the tables leave the manifest, the memtables the view.
//!
//! ```text
//!   writer locked ─ next log, next memtable ─ edit: no tables, no clusters, logs from the next one on
//!                                                │ durable
//!                                                └─ view: the empty memtable alone ─ old files go
//! ```
//!
//! The edit is the one moment at which all keys are gone: before it a power cut leaves all that was
//! there, after it nothing, since no log with an earlier write is read again. Flushes and
//! compactions that are under way are not waited for. Each knows the generation of the view that it
//! began with; what it has made of an earlier one is not installed. Cursors keep what they read.
//!
//! Invariant: what was written before is in no view, manifest or log that is read, once the edit is
//! durable.

use siltstone_engine::{Error, Result};

use crate::engine::Inner;

impl Inner {
    /// Removes every key, durably.
    pub(crate) fn clear(&self) -> Result<()> {
        let mut guard = self.writer.lock();
        self.background.check_writable()?;
        let writer = guard.as_mut().ok_or(Error::Closed)?;
        let is_bare = {
            let view = self.view.load();
            let has_no_files = view.version.entries().0.is_empty();
            writer.memtable.is_empty() && view.flushing.is_empty() && has_no_files
        };
        if is_bare {
            return Ok(());
        }
        self.rotate(writer)?;
        let first_log = writer.log.number();
        let cleared = self.versions.clear(first_log, writer.last_sequence, |edit, version| {
            let mut state = self.background.lock();
            state.first_log = first_log;
            state.running.forget_garbage();
            for container_id in edit.container_ids() {
                self.rescore(&mut state, version, container_id);
            }
            self.publish(&mut state, |view| {
                view.flushing.clear();
                view.version = version.clone();
                view.generation += 1;
            });
        });
        cleared.map_err(|error| self.background.poison_unless_transient("clearing", error))?;
        drop(guard);
        self.remove_logs_before(first_log);
        Ok(())
    }

    /// Whether all keys were removed since the view of this generation.
    pub(crate) fn is_cleared_since(&self, generation: u64) -> bool {
        self.view.load().generation != generation
    }
}
