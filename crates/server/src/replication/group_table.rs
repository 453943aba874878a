//! A node's table, which notes the group's own rows in what is applied to it: the time, members,
//! libraries of functions, users, and points that are marked for a comparison of the nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use siltstone_cluster::{OWN_ROWS, POINT_KEY, RESERVED_PREFIX};
use siltstone_engine::{Durability, Engine, Op, Result, WriteBatch, forward_engine};

use super::clock::{GroupClock, TIME_KEY};
use super::digest::Digests;
use super::function_rows::FUNCTION_PREFIX;
use super::members::MEMBER_PREFIX;
use super::membership::RowChanges;
use super::named_rows::NamedRows;
use super::user_rows::USER_PREFIX;

/// The first key after the rows of server and node.
pub(super) const AFTER_OWN_ROWS: &[u8] = b"\xff\xc1";

/// The state that is updated by applied rows.
#[derive(Clone)]
pub(crate) struct Notes {
    pub(crate) clock: Arc<GroupClock>,
    /// Counts changes of the rows of members.
    pub(crate) row_changes: Arc<RowChanges>,
    pub(crate) digests: Arc<Digests>,
    pub(crate) functions: Arc<NamedRows>,
    pub(crate) users: Arc<NamedRows>,
}

impl Default for Notes {
    fn default() -> Self {
        Notes {
            clock: Arc::default(),
            row_changes: Arc::default(),
            digests: Arc::default(),
            functions: Arc::new(NamedRows::new(FUNCTION_PREFIX)),
            users: Arc::new(NamedRows::new(USER_PREFIX)),
        }
    }
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
    forward_engine!(engine: name capabilities get get_at lookup expiry multi_lookup begin_reads prepare clear);
    forward_engine!(engine: sync iter range random_key snapshot at flush maintain compact_range);
    forward_engine!(engine: set_compaction_filter set_merge_operator check_write merge_operator);
    forward_engine!(engine: set_options changes checkpoint verify stats warnings trouble close);

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        // Users that are in force here must be the same after a power cut.
        let own: Vec<_> = batch.iter().filter(|op| op.key().starts_with(OWN_ROWS)).collect();
        let has_users = own.iter().any(|op| op.key().starts_with(USER_PREFIX));
        self.engine.write(batch, if has_users { Durability::Synced } else { durability })?;
        let Notes { clock, row_changes, digests, functions, users } = &self.notes;
        let mut point = None;
        // Of several times the last one counts, as in the table.
        for op in own {
            match op {
                Op::Put { key: TIME_KEY, value, .. } => clock.note(value),
                Op::Put { key: POINT_KEY, value, .. } => point = Some(value),
                op if op.key().starts_with(MEMBER_PREFIX) => {
                    row_changes.fetch_add(1, Ordering::Release);
                }
                op => _ = functions.note(op.key()) || users.note(op.key()),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use siltstone_faults::{FaultyVfs, Survival};
    use siltstone_runtime::Env;
    use siltstone_vfs::Vfs;

    use super::super::named_rows::{self, Unseen};
    use super::*;

    fn open(vfs: Arc<dyn Vfs>, notes: &Notes) -> GroupTable {
        let engine = siltstone::engines::open("lsm", vfs, &Env::system(1), &BTreeMap::new());
        GroupTable::new(engine.unwrap(), notes.clone()).unwrap()
    }

    #[test]
    fn users_are_noted_once_they_survive_a_power_cut() {
        let (vfs, notes) = (FaultyVfs::new(1), Notes::default());
        let table = open(Arc::new(vfs.clone()), &notes);
        let mut batch = WriteBatch::new();
        named_rows::put(&mut batch, USER_PREFIX, b"alice", b"user alice on");
        table.write(&batch, Durability::Buffered).unwrap();
        let names = |unseen| match unseen {
            Unseen::All => named_rows::read_all(&table, USER_PREFIX).map(|rows| rows.len()),
            Unseen::Some(names) => Ok(names.len()),
        };
        let shared: Arc<dyn Engine> = table.engine.clone();
        notes
            .users
            .follow(&shared, |unseen| names(unseen).map(|count| assert_eq!(count, 1)))
            .unwrap();
        vfs.cut_power();
        let survivors = vfs.survivors_as(Survival::LoseAll, 1);
        let after = open(Arc::new(survivors), &Notes::default());
        let line = named_rows::read(&after, USER_PREFIX, b"alice").unwrap();
        assert_eq!(line.as_deref(), Some(&b"user alice on"[..]));
    }
}
