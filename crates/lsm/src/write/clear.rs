//! Removing every key: the files leave the manifest, the memtables the view.
//!
//! ```text
//!   writer locked ─ next log, next memtable ─ edit: no tables, no rows, logs from the next one on
//!                                                │ durable
//!                                                └─ view: the empty memtable alone ─ old files go
//! ```
//!
//! The edit is the one moment at which all keys are gone: before it a power cut leaves all that was
//! there, after it nothing, since no log with an earlier write is read again. Writes that come
//! later are in the next log, and have larger sequence numbers than the removal, which takes one
//! for itself.
//!
//! Flushes and compactions that are under way are not waited for. Each knows the generation of the
//! view that it began with; what it has made of an earlier one is not installed, and it ends soon.
//! Snapshots and cursors keep what they read ([`crate::snapshots`]).
//!
//! Invariant: what was written before is in no view, manifest or log that is read, once the edit is
//! durable.

use std::sync::atomic::Ordering::Release;

use siltstone_engine::{Error, Result};

use super::Writer;
use crate::engine::Inner;

impl Inner {
    /// Removes every key, durably.
    pub(crate) fn clear(&self) -> Result<()> {
        let mut guard = self.writer.lock();
        self.background.check_writable()?;
        let writer = guard.as_mut().ok_or(Error::Closed)?;
        if self.is_bare(writer) {
            return Ok(());
        }
        self.rotate(writer, true)?;
        let (first_log, sequence) = (writer.log.number(), writer.last_sequence + 1);
        self.snapshots.keep_before_clear(sequence, self.view.load_full());
        // A flush may have installed a row and not yet taken its log from the list of those to be removed. Such a
        // log goes with the last version that names it: a checkpoint may be copying it.
        let mut logs_of_rows = Vec::new();
        let cleared = self.versions.clear(first_log, sequence, |version| {
            logs_of_rows.extend(self.view.load().version.logs().map(|log| log.number()));
            let mut state = self.background.lock();
            state.first_log = first_log;
            self.publish(&mut state, |view| {
                view.flushing.clear();
                view.version = version.clone();
                view.generation += 1;
            });
        });
        if let Err(error) = cleared {
            self.snapshots.forget_clear(sequence);
            return Err(self.background.poison_unless_transient("clearing", error));
        }
        writer.last_sequence = sequence;
        self.visible.store(sequence, Release);
        drop(guard);
        // Files go with the last view that names them: no writer waits for that.
        self.snapshots.forget_unneeded(sequence);
        self.remove_logs_before(first_log, &logs_of_rows);
        Ok(())
    }

    /// Whether there is neither a key nor a trace of one.
    fn is_bare(&self, writer: &Writer) -> bool {
        let view = self.view.load();
        let has_files = view.version.files().next().is_some() || !view.version.level0.is_empty();
        writer.memtable.is_empty()
            && writer.large.is_none()
            && view.flushing.is_empty()
            && !has_files
    }

    /// Whether all keys were removed since the view of this generation.
    pub(crate) fn is_cleared_since(&self, generation: u64) -> bool {
        self.view.load().generation != generation
    }
}
