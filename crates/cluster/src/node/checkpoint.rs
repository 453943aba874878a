//! Checkpoints of a running node's table, from which a new group can begin
//! ([`Node::restore`](super::Node::restore)).

use std::sync::Arc;
use std::time::{Duration, Instant};

use siltstone_engine::{Purpose, Result};
use siltstone_vfs::{DirectorySink, Vfs};

use super::NodeHandle;

/// How long after an error a received snapshot may take to replace the table.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl NodeHandle {
    /// Copies the table as of one applied entry, durably, into a directory in `target` that has the
    /// name of the table's own. Immutable files are linked if that is possible. The log, the node's
    /// vote and its identity are not in the copy.
    ///
    /// Blocks while the table's memtables are flushed; the node goes on meanwhile. If a received
    /// snapshot replaces the table, the copy begins again.
    ///
    /// # Errors
    /// Those of the table's checkpoint; I/O errors. There may be part of a copy then.
    pub fn checkpoint(&self, target: &dyn Vfs) -> Result<()> {
        loop {
            let table = self.published.table.load_full();
            let copy = || {
                let source = self.published.vfs.subdirectory(&table.directory)?;
                let target = target.subdirectory(&table.directory)?;
                table.engine.checkpoint(&mut DirectorySink::new(source, target.clone()))?;
                target.sync_dir(Purpose::Maintenance)
            };
            let outcome = copy();
            let is_replaced = || !Arc::ptr_eq(&table, &self.published.table.load());
            let began = Instant::now();
            while outcome.is_err() && !is_replaced() && began.elapsed() < REPLACE_TIMEOUT {
                std::thread::sleep(POLL_INTERVAL);
            }
            if outcome.is_ok() || !is_replaced() {
                return outcome.and_then(|()| target.sync_dir(Purpose::Maintenance));
            }
            target.remove_subdirectory(&table.directory)?;
        }
    }
}
