//! Identities of tables, for batches over several tables.
//!
//! A part in a log names the tables of its batch by numbers. A table gets its number for its first
//! batch, and keeps it when it is renamed; a number is never assigned again. Numbers also grow with
//! the clock, so that an older catalogue that is restored does not repeat those assigned since.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Error, Result};

use super::{Db, OpenTables};
use crate::Table;
use crate::batch::open::OpenBatches;

impl Db {
    /// The batches that may not be durable yet.
    pub(crate) fn open_batches(&self) -> &Arc<OpenBatches> {
        &self.inner.batches
    }

    /// Refuses a table of another store.
    pub(crate) fn check_member(&self, table: &Table) -> Result<()> {
        match table.member() {
            Some(member) if member.is_of(&self.inner.batches) => Ok(()),
            _ => Err(Error::Invalid(format!(
                "table '{}' is not one of the store {}; open it there",
                table.name(),
                self.inner.vfs.name()
            ))),
        }
    }

    /// The identities of tables by name. Assigns those that are missing, durably.
    pub(crate) fn member_ids<'t>(
        &self,
        tables: impl Iterator<Item = &'t Table> + Clone,
    ) -> Result<BTreeMap<&'t str, u64>> {
        let known = tables.clone().map(|table| Some((table.name(), table.member()?.id()?)));
        if let Some(ids) = known.collect() {
            return Ok(ids);
        }
        self.assign_ids(&mut *self.state()?, tables)
    }

    /// The same, while the caller has locked the catalogue.
    pub(super) fn assign_ids<'t>(
        &self,
        open: &mut OpenTables,
        tables: impl Iterator<Item = &'t Table>,
    ) -> Result<BTreeMap<&'t str, u64>> {
        let mut catalogue = open.catalogue.clone();
        let mut ids = BTreeMap::new();
        for table in tables {
            let name = table.name();
            if !catalogue.tables.contains_key(name) {
                return Err(Error::Closed);
            }
            let next = catalogue.next_id.max(self.inner.options.env.clock.now()).max(1);
            let id = *catalogue.ids.entry(name.to_owned()).or_insert(next);
            catalogue.next_id = catalogue.next_id.max(id + 1);
            ids.insert(name, (id, table));
        }
        if catalogue != open.catalogue {
            open.replace_catalogue(self.inner.vfs.as_ref(), catalogue)?;
        }
        ids.values().for_each(|(id, table)| table.member().into_iter().for_each(|m| m.set_id(*id)));
        Ok(ids.into_iter().map(|(name, (id, _))| (name, id)).collect())
    }

    /// Records that the table `name` was repaired offline: it may lack parts of batches that other
    /// tables have, and they keep theirs.
    ///
    /// # Errors
    /// I/O errors.
    pub fn note_repaired(&self, name: &str) -> Result<()> {
        let mut open = self.state()?;
        let mut catalogue = open.catalogue.clone();
        if catalogue.ids.remove(name).is_none() {
            return Ok(());
        }
        open.replace_catalogue(self.inner.vfs.as_ref(), catalogue)
    }
}
