//! The state shared by all handles of a file system with injected faults.

use parking_lot::MutexGuard;
use siltstone_engine::Result;

use crate::directory::SharedDirectory;
use crate::plan::{FaultPlan, Verdict};

/// The state shared by all handles. A request holds its lock from its numbering to its effect, so
/// effects are ordered by number.
pub(super) struct FileSystem {
    pub(super) plan: FaultPlan,
    pub(super) root: SharedDirectory,
    /// The number of the next pending change.
    pub(super) sequence: u64,
    /// The id of the next file or directory; survivors keep ids.
    pub(super) next_id: u64,
}

impl FileSystem {
    /// Ends a sync with its verdict; a failed one is paused, without locks, before it returns.
    pub(super) fn end_sync(
        fs: MutexGuard<'_, FileSystem>,
        verdict: Verdict,
        operation: &'static str,
        name: &str,
    ) -> Result<()> {
        let pause = fs.plan.before_sync_error.clone();
        drop(fs);
        if let (Verdict::Fail(_), Some(pause)) = (verdict, pause) {
            pause();
        }
        verdict.or_fail(operation, name)
    }

    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
