//! Batches over several tables of a store.
//!
//! ```text
//!   Db::write   each table   room, without a lock on another table
//!               each table   order of writes: transaction manager, or key locks
//!               each table   locked for writing
//!               number ─ each table: append ─ registered as open ─ [sync] ─ each table: commit
//! ```
//!
//! Each table gets its part in its own log; see `siltstone_table::log::part` for the record, `open`
//! for the order in which parts become durable, and `recovery` for the removal of batches of which
//! a power cut has left only some parts.
//!
//! Locks are taken in the order of the tables' names, all of one kind before the next kind.
//!
//! | module | contents |
//! | --- | --- |
//! | `lock` | locks several tables for writing |
//! | `member` | the identity of a table |
//! | `open` | the batches that may not be durable yet |
//! | `recovery` | removes incomplete batches when a store is opened |

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, PartHeader, Result, WriteBatch};
use siltstone_table::MAX_PART_TABLES;

use crate::table::OrderedWrite;
use crate::{Db, Table};
use lock::{Target, lock, wait_for_room};
use open::OpenBatches;

pub(crate) mod lock;
pub(crate) mod member;
pub(crate) mod open;
pub(crate) mod recovery;

/// Writes to several tables of one store, which are applied atomically by [`Db::write`].
///
/// ```
/// # use siltstone::{Db, DbBatch, DbOptions, Durability};
/// # let scratch = tempfile::tempdir().unwrap();
/// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
/// let users = db.table_or_create("users", "lsm", &Default::default())?;
/// let by_mail = db.table_or_create("by_mail", "trie", &Default::default())?;
/// let mut batch = DbBatch::new();
/// batch.table(&users).put(b"7", b"ann@example.org");
/// batch.table(&by_mail).put(b"ann@example.org", b"7");
/// db.write(&batch, Durability::Synced)?;
/// assert_eq!(by_mail.get(b"ann@example.org")?.as_deref(), Some(&b"7"[..]));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct DbBatch {
    parts: Vec<(Table, WriteBatch)>,
}

impl DbBatch {
    /// A batch without writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The writes to `table`, to be added to.
    pub fn table(&mut self, table: &Table) -> &mut WriteBatch {
        let known = self.parts.iter().position(|(other, _)| other.is_same(table));
        let at = known.unwrap_or_else(|| {
            self.parts.push((table.clone(), WriteBatch::new()));
            self.parts.len() - 1
        });
        &mut self.parts[at].1
    }

    /// Removes all writes.
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// The number of writes.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, batch)| batch.len()).sum()
    }

    /// Whether there is no write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The part of one table in a batch.
pub(crate) struct Part<'a> {
    pub(crate) id: u64,
    pub(crate) engine: &'a dyn Engine,
    pub(crate) batch: &'a WriteBatch,
}

impl Db {
    /// Applies the writes of a batch to all of its tables, or to none. Like a batch of one table
    /// it is whole after a crash: if a power cut takes a buffered batch from one table, it is
    /// removed from the others, too, with everything that was written to them later and was not
    /// synced.
    ///
    /// A reader that reads one table after the other may see the batch in the second one only, if
    /// it is written in between: [`Db::snapshot`] reads several tables as of one moment.
    ///
    /// The tables are on `lsm`, `trie` or `silt`. Cost: the appends of the tables, one after the
    /// other; with [`Durability::Synced`] one sync per table. A later synced write to one of the
    /// tables syncs the others first, if they have unsynced parts.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a table's engine cannot take part, [`Error::Invalid`] for a table
    /// of another store or more than 1024 tables, `TooLarge`, or an `Io` error of a full disk:
    /// nothing was written to any table. Other errors are those of [`Table::write`], for any table.
    pub fn write(&self, batch: &DbBatch, durability: Durability) -> Result<()> {
        self.check_writable()?;
        let parts = batch.parts.iter().filter(|(_, batch)| !batch.is_empty());
        let mut parts: Vec<(&Table, &WriteBatch)> = parts.map(|(table, b)| (table, b)).collect();
        for (table, _) in &parts {
            self.check_member(table)?;
        }
        match parts[..] {
            [] if durability == Durability::Synced => return self.sync(),
            [] => return Ok(()),
            [(table, batch)] => return table.write(batch, durability),
            _ => {}
        }
        if parts.len() > MAX_PART_TABLES {
            let reason = format!("a batch over {} tables: up to {MAX_PART_TABLES}", parts.len());
            return Err(Error::Invalid(reason));
        }
        // A table that cannot take part, or a batch that is too large, changes nothing.
        let targets = parts.iter().map(|(table, batch)| (table.storage().as_ref(), *batch));
        wait_for_room(&targets.collect::<Vec<_>>())?;
        let ids = self.member_ids(parts.iter().map(|(table, _)| *table))?;
        parts.sort_by_key(|(table, _)| table.name());
        let _admitted = self.open_batches().admit();
        let mut ordered: Vec<OrderedWrite<'_>> =
            parts.iter().map(|(table, batch)| table.order_write(batch)).collect();
        let parts: Vec<Part<'_>> = parts
            .iter()
            .map(|(table, batch)| Part {
                id: ids[table.name()],
                engine: table.storage().as_ref(),
                batch,
            })
            .collect();
        let written = write_parts(self.open_batches(), &parts, durability);
        ordered.iter_mut().for_each(|write| write.complete(written.is_ok()));
        written
    }
}

/// Writes a batch of several parts, which are sorted by the names of their tables.
///
/// The caller is [admitted](OpenBatches::admit).
///
/// # Errors
/// Those of [`Db::write`].
pub(crate) fn write_parts(
    open: &Arc<OpenBatches>,
    parts: &[Part<'_>],
    durability: Durability,
) -> Result<()> {
    let targets: Vec<Target<'_>> = parts.iter().map(|part| (part.engine, part.batch)).collect();
    let mut locked = lock(&targets)?;
    let mut tables: Vec<u64> = parts.iter().map(|part| part.id).collect();
    tables.sort_unstable();
    let last = locked.iter().map(|table| table.last_batch()).max().unwrap_or(0);
    let header = PartHeader { batch: open.next_number(last), tables: &tables };
    let mut positions = Vec::with_capacity(parts.len());
    for (table, part) in locked.iter_mut().zip(parts) {
        positions.push((part.id, table.append(header, &open.dependencies_of(part.id))?));
    }
    let registered = open.register(header, positions);
    if durability == Durability::Synced {
        open.sync(tables[0])?;
    }
    registered.keep();
    let mut outcome = Ok(());
    for table in locked {
        outcome = outcome.and(table.commit(durability == Durability::Synced));
    }
    outcome
}
