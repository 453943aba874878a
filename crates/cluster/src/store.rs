//! The log and the applied state of a node, as the consensus algorithm reads them.

use raft::eraftpb::{Entry, Snapshot};
use raft::{GetEntriesContext, RaftState, Result, Storage, StorageError};

use crate::applied::Applied;
use crate::log::RaftLog;

/// The storage that `raft` reads and the group writes.
pub(crate) struct Store {
    pub(crate) log: RaftLog,
    pub(crate) applied: Applied,
}

impl Storage for Store {
    fn initial_state(&self) -> Result<RaftState> {
        let mut hard_state = self.log.hard_state().clone();
        // What was applied had been committed, though that may not have been written.
        hard_state.commit = hard_state.commit.max(self.applied.index);
        Ok(RaftState::new(hard_state, self.applied.members.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low < self.log.first_index() {
            return Err(StorageError::Compacted.into());
        }
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let (mut entries, mut size) = (Vec::new(), 0);
        for index in low..high {
            let entry = self.log.entry(index).ok_or(StorageError::Unavailable)?;
            size += (entry.data.len() + entry.context.len()) as u64;
            if size > max_size && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> Result<u64> {
        self.log.term(index).ok_or_else(|| match index < self.log.first_index() {
            true => StorageError::Compacted.into(),
            false => StorageError::Unavailable.into(),
        })
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.log.first_index())
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.log.last_index())
    }

    /// The position alone: the rows follow in a stream.
    fn snapshot(&self, _request_index: u64, _to: u64) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (self.applied.index, self.applied.term);
        metadata.set_conf_state(self.applied.members.clone());
        Ok(snapshot)
    }
}
