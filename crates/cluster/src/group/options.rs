//! The options of a node's state machine.

use std::fmt;
use std::sync::Arc;

use siltstone_engine::CompactionFilter;

/// The longest wait for an election, one that was put off included, in election timeouts.
pub(super) const MAX_ELECTION_WAITS: usize = 3;

/// The compaction filter of a table; none by default.
#[derive(Clone, Default)]
pub struct TableFilter(pub Option<Arc<dyn CompactionFilter>>);

impl fmt::Debug for TableFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some" } else { "None" })
    }
}

/// The options of a node.
#[derive(Debug, Clone)]
pub struct GroupOptions {
    /// The group's id.
    pub group: u64,
    /// The node's id, unique in the group for all time; not 0.
    pub node: u64,
    /// The seed of election timeouts, and of the number that distinguishes this process from one
    /// that opens a copy of the directory: another one at each start.
    pub seed: u64,
    /// Ticks without a leader until an election; a node waits one to two times as long.
    pub election_ticks: usize,
    /// Ticks between a leader's heartbeats, fewer than `election_ticks`.
    pub heartbeat_ticks: usize,
    /// The log is compacted when this much has been appended since it last was, in bytes.
    pub max_log_bytes: u64,
    /// The applied entries that compaction retains for followers that lag behind, as far as they
    /// take no more than half of `max_log_bytes`.
    pub retained_entries: u64,
    /// The size of the log from which on entries are not retained any more for followers that
    /// receive a snapshot, or catch up after one, in bytes: they then need another snapshot. What
    /// is below `max_log_bytes` has no effect. The entries are in memory, too.
    pub max_retained_log_bytes: u64,
    /// The rows of one chunk of a snapshot, in bytes.
    pub max_chunk_bytes: usize,
    /// The bytes of snapshots that this node sends per tick, to all others together; 0: unlimited.
    pub snapshot_bytes_per_tick: u64,
    /// Drops obsolete rows in compactions of the table. It must judge alike at all nodes.
    pub filter: TableFilter,
}

impl GroupOptions {
    /// The defaults for a node.
    pub fn new(group: u64, node: u64, seed: u64) -> Self {
        GroupOptions {
            group,
            node,
            seed,
            election_ticks: 10,
            heartbeat_ticks: 2,
            max_log_bytes: 64 << 20,
            retained_entries: 10_000,
            max_retained_log_bytes: 1 << 30,
            max_chunk_bytes: 1 << 20,
            snapshot_bytes_per_tick: 0,
            filter: TableFilter::default(),
        }
    }
}
