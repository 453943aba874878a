//! Leaves operations out of the replay of logs whose effect is in SSTables already, for merges.
//!
//! Most logs contain nothing that is in an SSTable. But those of a NoveLSM overlay stay until the
//! overlay is flushed, and contain what memtables beside it have put into SSTables. A value that is
//! replayed from them replaces itself. An operand would be merged twice, and after a flush nobody
//! could see that, because the SSTables may have it as a part of another operand or of a value. If
//! operands were left out alone, an older value that is replayed would hide them.
//!
//! The versions of a key are flushed in their order. So all that is not newer than the newest
//! version of its key in SSTables is left out.
//!
//! Cost: a lookup per operation in such logs; none for other logs.

use std::sync::Arc;

use siltstone_engine::Result;

use super::merge::Merge;
use crate::memtable::Memtable;
use crate::version::Version;
use crate::view::View;

/// The SSTables of a version, as recovery sees them.
pub(crate) struct ReplayFilter {
    view: Arc<View>,
    /// No table has a newer sequence number.
    last_sequence: u64,
}

impl ReplayFilter {
    /// `None`: everything is replayed, because the table has no merges.
    pub(crate) fn new(version: &Arc<Version>, last_sequence: u64) -> Option<Self> {
        version.merge_operator.as_ref()?;
        let view = View {
            overlay: None,
            active: Arc::new(Memtable::new(0)),
            flushing: Vec::new(),
            version: version.clone(),
            generation: 0,
        };
        Some(ReplayFilter { view: Arc::new(view), last_sequence })
    }

    /// Whether the tables have the effect of the operation `sequence` on `key`.
    pub(crate) fn is_in_tables(&self, key: &[u8], sequence: u64) -> Result<bool> {
        if sequence > self.last_sequence {
            return Ok(false);
        }
        let mut merge = Merge::of_files(self.view.clone(), false);
        merge.seek(key, u64::MAX)?;
        Ok(merge.valid() && merge.key() == key && merge.sequence() >= sequence)
    }
}
