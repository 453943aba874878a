//! A node's table, which notes the group's own rows in what is applied to it: the time, members,
//! libraries of functions, and points that are marked for a comparison of the nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use siltstone_cluster::{OWN_ROWS, POINT_KEY, RESERVED_PREFIX};
use siltstone_engine::{Durability, Engine, Op, Result, WriteBatch, forward_engine};

use super::clock::{GroupClock, TIME_KEY};
use super::digest::Digests;
use super::function_rows::{FUNCTION_PREFIX, FunctionChanges};
use super::members::MEMBER_PREFIX;
use super::membership::RowChanges;

/// The first key after the rows of server and node.
pub(super) const AFTER_OWN_ROWS: &[u8] = b"\xff\xc1";

/// The state that is updated by applied rows.
#[derive(Clone, Default)]
pub(crate) struct Notes {
    pub(crate) clock: Arc<GroupClock>,
    /// Counts changes of the rows of members.
    pub(crate) row_changes: Arc<RowChanges>,
    pub(crate) digests: Arc<Digests>,
    pub(crate) functions: Arc<FunctionChanges>,
}

/// The table.
pub(crate) struct GroupTable {
    engine: Arc<dyn Engine>,
    notes: Notes,
}

impl GroupTable {
    pub(crate) fn new(engine: Arc<dyn Engine>, notes: Notes) -> Result<Self> {
        if let Some(entry) = engine.get(TIME_KEY)? {
            notes.clock.note(&entry.value);
        }
        Ok(GroupTable { engine, notes })
    }
}

impl Engine for GroupTable {
    forward_engine!(engine: name capabilities get get_at lookup multi_get prepare clear sync iter);
    forward_engine!(engine: range random_key snapshot at flush maintain compact_range);
    forward_engine!(engine: set_compaction_filter set_merge_operator check_write merge_operator);
    forward_engine!(engine: set_options changes checkpoint verify stats warnings trouble close);

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.engine.write(batch, durability)?;
        let Notes { clock, row_changes, digests, functions } = &self.notes;
        let mut point = None;
        // Of several times the last one counts, as in the table.
        for op in batch.iter().filter(|op| op.key().starts_with(OWN_ROWS)) {
            match op {
                Op::Put { key: TIME_KEY, value, .. } => clock.note(value),
                Op::Put { key: POINT_KEY, value, .. } => point = Some(value),
                op if op.key().starts_with(MEMBER_PREFIX) => {
                    row_changes.fetch_add(1, Ordering::Release);
                }
                op if op.key().starts_with(FUNCTION_PREFIX) => functions.note(op.key()),
                _ => {}
            }
        }
        // Not in a part of a snapshot, which has no applied index.
        if let Some(value) = point
            && batch.iter().any(|op| op.key().starts_with(&RESERVED_PREFIX))
        {
            digests.begin(&self.engine, clock, value);
        }
        Ok(())
    }
}
