//! The first start of a new group from the checkpoint of another group's table.
//!
//! ```text
//!   checkpoint     table-000007/ with the row: entry 812 of term 5 applied, members 1, 2, 3
//!   restored       NODE-IDENTITIES, a new directory
//!                  table-000007/ with the row: entry 812 of term 5 applied, member 1
//!                  raft-000001.log: begins behind entry 812 of term 5
//! ```
//!
//! The new group has one node, so nothing has to be agreed upon. All others join, and receive a
//! snapshot. The node has another directory and another group in its packets than any node of the
//! old group, whose members neither know it nor count it.
//!
//! Whatever is interrupted is repeated: the stage of [`Identities`] is `Creating` until table and
//! log are durable, and each step has the same effect again.

use std::sync::Arc;

use raft::eraftpb::ConfState;
use siltstone_engine::{Durability, Error, KeyRange, Purpose, Result, WriteBatch};
use siltstone_vfs::Vfs;

use super::{Group, GroupOptions};
use crate::applied::{Applied, OWN_ROWS};
use crate::identities::{Identities, Stage};
use crate::log::{LogIdentity, Marker, RaftLog, remove_logs};
use crate::store::Store;
use crate::stream::{OpenTable, is_table_name, no_applied_row, open_table, table_number};

impl Group {
    /// Creates the only node of a new group in a directory that has nothing but a table of another
    /// group. Of the group's own rows it keeps those whose keys begin with one of `kept`. It is
    /// durable once this returns. If it was interrupted, it may be repeated.
    ///
    /// # Errors
    /// `Refused` if a node lives in the directory, or if it has not one table; `Corruption` if the
    /// table has no applied row; those of the table; I/O errors.
    pub fn restore(
        vfs: Arc<dyn Vfs>,
        open: OpenTable,
        options: GroupOptions,
        kept: &[&[u8]],
    ) -> Result<Self> {
        let refused = |reason: &str| Error::Refused { path: vfs.name(), reason: reason.into() };
        let mut identities = Identities::create(vfs.clone())?;
        if identities.stage() != Stage::Creating {
            return Err(refused("a node lives here already; restore into an empty directory"));
        }
        if remove_logs(vfs.as_ref())? {
            vfs.sync_dir(Purpose::Log)?;
        }
        let tables: Vec<_> =
            vfs.subdirectories()?.into_iter().filter(|n| is_table_name(n)).collect();
        let number = match tables.as_slice() {
            [table] => table_number(table),
            _ => None,
        };
        let number = number.ok_or_else(|| {
            refused("it must have the table of one group; restore the backup again, elsewhere")
        })?;
        let table = open_table(vfs.as_ref(), &open, number)?;
        let mut applied = Applied::read(table.as_ref(), None)?.ok_or_else(no_applied_row)?;
        applied.set_members(ConfState { voters: vec![options.node], ..ConfState::default() });
        let mut batch = WriteBatch::new();
        let mut own_rows = table.range(KeyRange::prefix(OWN_ROWS), None)?;
        let mut is_there = own_rows.first()?;
        while is_there {
            if !kept.iter().any(|start| own_rows.key().starts_with(start)) {
                batch.delete(own_rows.key());
            }
            is_there = own_rows.next()?;
        }
        drop(own_rows);
        applied.put_into(&mut batch);
        table.write(&batch, Durability::Synced)?;
        let identity = LogIdentity { group: options.group, node: options.node };
        let marker = Marker { index: applied.index, term: applied.term };
        let log = RaftLog::create(vfs.clone(), identity, marker, number)?;
        identities.set_stage(Stage::Registered)?;
        Self::start(vfs, open, options, identities, Store { log, applied }, table)
    }
}
