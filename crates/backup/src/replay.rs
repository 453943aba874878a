//! Applies archived changes to a restored store.
//!
//! ```text
//!   backup     a at 50   b at 61              each table as of its own moment
//!   segments   a: 41 … 50 51 … 70             up to 50: in the backup already; then applied
//!              b: 58 … 61 62 … 64
//!   mark       a at 70   b at 64   c at 3     tables are created, renamed and dropped; checked
//! ```
//!
//! Tables are found by their ids, which they keep when they are renamed. So during the replay a
//! table has any name, and at the end that of the mark.
//!
//! Invariant: each table ends with exactly the sequence number of the mark. All tables had these
//! numbers at one moment, so batches over several tables are whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone::catalogue::Catalogue;
use siltstone::merge_operator::built_in;
use siltstone::{Db, DbOptions, Durability, MergeOperator, Table};
use siltstone_engine::{Error, Result};

use crate::segment::{ArchivedChange, ArchivedState, Segment};

/// A store to which changes are applied.
pub(crate) struct Replay<'d> {
    db: &'d Db,
    /// The merge operators of the program.
    operators: Vec<Arc<dyn MergeOperator>>,
    /// The tables by their ids in the archive.
    tables: BTreeMap<u64, Replayed>,
    /// The number of changes that were applied.
    pub(crate) changes: u64,
}

struct Replayed {
    table: Table,
    sequence: u64,
}

impl<'d> Replay<'d> {
    /// Begins with a store that was restored from a backup, and opened with these options.
    pub(crate) fn new(db: &'d Db, options: &DbOptions) -> Result<Self> {
        let mut tables = BTreeMap::new();
        let Catalogue { ids, .. } = db.catalogue()?;
        for (name, id) in ids {
            let table = db.table(&name)?;
            if table.engine().capabilities().change_feed {
                let sequence = table.snapshot()?.sequence();
                tables.insert(id, Replayed { table, sequence });
            }
        }
        let operators = options.merge_operators.values().cloned().collect();
        Ok(Replay { db, operators, tables, changes: 0 })
    }

    /// Applies the changes of a segment that the store does not have.
    ///
    /// # Errors
    /// `Corruption` if changes before them are missing; errors of the store.
    pub(crate) fn apply(&mut self, name: &str, segment: &Segment) -> Result<()> {
        let damaged = |reason: String| Error::corruption(name, 0, reason);
        for (table, feed) in segment.state.feeds() {
            if !self.tables.contains_key(&feed.id) {
                let is_taken = self.db.catalogue()?.tables.contains_key(&table.name);
                let free = if is_taken { temporary(feed.id) } else { table.name.clone() };
                let created = self.db.table_or_create(&free, &table.engine, &table.options)?;
                self.tables.insert(feed.id, Replayed { table: created, sequence: 0 });
            }
            let (Some(replayed), Some(name)) = (self.tables.get(&feed.id), &table.merge_operator)
            else {
                continue;
            };
            if replayed.table.engine().merge_operator().is_none() {
                let of_program = self.operators.iter().find(|it| it.name() == name).cloned();
                replayed.table.set_merge_operator(of_program.or_else(|| built_in(name)))?;
            }
        }
        for change in segment.changes.iter() {
            let change = change.map_err(damaged)?;
            let (id, first) = match &change {
                ArchivedChange::Write { table, first, .. } => (*table, *first),
                ArchivedChange::Cleared { table, sequence } => (*table, *sequence),
            };
            // A table that was dropped before the mark of this segment.
            let Some(replayed) = self.tables.get_mut(&id) else { continue };
            if first <= replayed.sequence {
                continue;
            }
            if first != replayed.sequence + 1 {
                let (name, after) = (replayed.table.name(), replayed.sequence);
                return Err(damaged(format!(
                    "the changes {} to {} of table '{name}' are missing",
                    after + 1,
                    first - 1
                )));
            }
            match &change {
                ArchivedChange::Write { batch, .. } => {
                    replayed.table.write(batch, Durability::Buffered)?;
                    replayed.sequence += batch.len() as u64;
                }
                ArchivedChange::Cleared { .. } => {
                    replayed.table.clear()?;
                    replayed.sequence += 1;
                }
            }
            self.changes += 1;
        }
        Ok(())
    }

    /// Whether the store has changes after the mark.
    pub(crate) fn is_beyond(&self, mark: &ArchivedState) -> bool {
        let mut feeds = mark.feeds();
        feeds.any(|(_, feed)| self.tables.get(&feed.id).is_some_and(|t| t.sequence > feed.sequence))
    }

    /// Gives the tables the names, options and places of the mark, and drops the others. Returns
    /// the names of tables without a change feed.
    ///
    /// # Errors
    /// `Corruption` if a table is not as far as the mark; errors of the store.
    pub(crate) fn finish(self, name: &str, mark: &ArchivedState) -> Result<Vec<String>> {
        let Replay { db, tables, .. } = self;
        for (table, feed) in mark.feeds() {
            let found = tables.get(&feed.id).map(|it| it.table.snapshot()).transpose()?;
            let found = found.map_or(0, |snapshot| snapshot.sequence());
            if found != feed.sequence {
                let (table, expected) = (&table.name, feed.sequence);
                let reason =
                    format!("table '{table}' ends at change {found}, and the mark at {expected}");
                return Err(Error::corruption(name, 0, reason));
            }
        }
        // The names in the restored store, by id.
        let names: BTreeMap<u64, String> =
            tables.iter().map(|(id, it)| (*id, it.table.name().to_owned())).collect();
        drop(tables);
        let local = |id: u64| names.get(&id).map(String::as_str);
        let mut kept: BTreeSet<&str> =
            mark.feeds().filter_map(|(_, feed)| local(feed.id)).collect();
        let without_feed = mark.tables.iter().filter(|table| table.feed.is_none());
        kept.extend(without_feed.clone().map(|table| &*table.name));
        for unknown in db.table_names()?.iter().filter(|name| !kept.contains(name.as_str())) {
            db.drop_table(unknown)?;
        }
        let misnamed: Vec<_> =
            mark.feeds().filter(|(table, feed)| local(feed.id) != Some(&table.name)).collect();
        // Two tables may have exchanged their names.
        for (_, feed) in &misnamed {
            let (from, to) = (local(feed.id).unwrap_or_default(), temporary(feed.id));
            if from != to {
                db.rename_table(from, &to)?;
            }
        }
        for (table, feed) in &misnamed {
            db.rename_table(&temporary(feed.id), &table.name)?;
        }
        for (table, _) in mark.feeds() {
            let changed: Vec<_> = table.options.iter().map(|(k, v)| (&**k, &**v)).collect();
            if db.spec_of(&table.name)?.options != table.options {
                db.table(&table.name)?.set_options(&changed)?;
            }
        }
        restore_places(db, mark)?;
        Ok(without_feed.map(|table| table.name.clone()).collect())
    }
}

/// The name of a table that cannot have its own yet.
fn temporary(id: u64) -> String {
    format!("restoring-{id}")
}

/// Puts the tables in the places of the mark.
fn restore_places(db: &Db, mark: &ArchivedState) -> Result<()> {
    for table in &mark.tables {
        let place = &table.name;
        let wanted = mark.places.get(place).unwrap_or(place);
        let catalogue = db.catalogue()?;
        let shown = catalogue.in_place_of(place);
        if shown != wanted {
            db.table(shown)?.swap_places(&db.table(wanted)?)?;
        }
    }
    Ok(())
}
