//! Options of tables that change: by a later open, or while the table is open.
//!
//! An option differs if it has another meaning than that of the table: `8MiB` equals `8388608`, and
//! a default equals an option that is not given. What differs is applied or refused by name, and
//! nothing is applied if one option is refused.
//!
//! ```text
//!               table is closed             table is open
//!   live        applied                     applied
//!   at open     applied                     table_or_create: refused
//!                                           set_options: in force from the next open on
//!   never       refused                     refused
//! ```
//!
//! Invariant: the catalogue has the options of the next open before one of them is in force. If the
//! table refuses them, it gets its old options back.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::{Error, InvalidOption, OptionChange, Result};

use super::{Db, Inner, OpenTables};
use crate::Table;
use crate::engines::{self, option_change, present_name};
use crate::table::{OptionStore, Options};

impl Db {
    /// Opens the existing table `name` with these options in place of its own.
    pub(super) fn table_with(&self, name: &str, given: &Options) -> Result<Table> {
        let mut open = self.state()?;
        let spec = self.spec(&open, name)?;
        let opened = open.tables.get(name).cloned();
        let before = opened.as_ref().map_or_else(|| spec.options.clone(), Table::options);
        let changes = engines::differing_options(&spec.engine, &before, given);
        if changes.is_empty() {
            return self.table_locked(&mut open, name);
        }
        self.check_writable()?;
        self.inner.shared.check(&spec.engine, &changes)?;
        refuse(&changes, |option| match option_change(&spec.engine, option) {
            OptionChange::Never => Some(never(&before, &spec.engine, option)),
            OptionChange::AtOpen if opened.is_some() => Some(
                "changes when the table is opened, and it is open: close the store first, or call \
                 Table::set_options for the next open"
                    .to_owned(),
            ),
            _ => None,
        })?;
        match opened {
            Some(table) => self.change_locked(&mut open, &table, &changes).map(|_| table),
            None => {
                let next = engines::with_options(&spec.engine, &before, &changes);
                engines::check(&spec.engine, &next)?;
                let old = self.replace_options(&mut open, name, next)?;
                self.table_locked(&mut open, name).or_else(|error| {
                    self.replace_options(&mut open, name, old)?;
                    Err(error)
                })
            }
        }
    }

    /// Puts the options that change while the table is open in force, and all of them into the
    /// catalogue. Returns the names of the others, as far as they differ from what is in force.
    fn change_locked(
        &self,
        open: &mut OpenTables,
        table: &Table,
        changes: &Options,
    ) -> Result<Vec<String>> {
        // The new table would not have them.
        open.check_not_moving(table.name())?;
        let Some(in_force) = table.in_force() else { return Err(Error::Closed) };
        let spec = self.spec(open, table.name())?;
        let engine = spec.engine.as_str();
        let next = engines::with_options(engine, &spec.options, changes);
        engines::check(engine, &next)?;
        self.inner.shared.check(engine, changes)?;
        let (live, later): (Options, Options) = changes
            .clone()
            .into_iter()
            .partition(|(option, _)| option_change(engine, option) == OptionChange::Live);
        let before = in_force.lock().clone();
        let later = engines::differing_options(engine, &before, &later);
        refuse(&later, |option| {
            let is_fixed = option_change(engine, option) == OptionChange::Never;
            is_fixed.then(|| never(&before, engine, option))
        })?;
        let after = engines::with_options(engine, &before, &live);
        engines::check(engine, &after)?;
        let old = self.replace_options(open, table.name(), next)?;
        if !live.is_empty() {
            table.engine().set_options(&live).or_else(|error| {
                self.replace_options(open, table.name(), old)?;
                Err(error)
            })?;
        }
        *in_force.lock() = after;
        Ok(later.into_keys().collect())
    }

    /// Replaces the options of a table in the catalogue, durably. Returns the old ones.
    fn replace_options(
        &self,
        open: &mut OpenTables,
        name: &str,
        options: Options,
    ) -> Result<Options> {
        let mut catalogue = open.catalogue.clone();
        let Some(spec) = catalogue.tables.get_mut(name) else { return Err(Error::Closed) };
        if spec.options == options {
            return Ok(options);
        }
        let old = std::mem::replace(&mut spec.options, options);
        open.replace_catalogue(self.inner.vfs.as_ref(), catalogue)?;
        Ok(old)
    }
}

impl OptionStore for Inner {
    fn set_options(self: Arc<Self>, table: &Table, changes: &Options) -> Result<Vec<String>> {
        let db = Db { inner: self };
        db.check_writable()?;
        let mut open = db.state()?;
        // The table may have been dropped.
        if !open.tables.get(table.name()).is_some_and(|listed| listed.is_same(table)) {
            return Err(Error::Closed);
        }
        let engine = table.engine().name();
        let mut present = BTreeSet::new();
        refuse(changes, |option| {
            let is_twice = !present.insert(present_name(engine, option).to_owned());
            is_twice.then(|| "is given twice, under its old and its present name".to_owned())
        })?;
        db.change_locked(&mut open, table, changes)
    }

    fn swap_places(self: Arc<Self>, first: &Table, second: &Table) -> Result<()> {
        Db { inner: self }.swap_places(first, second)
    }

    fn clear(&self, table: &Table, clear: &dyn Fn() -> Result<()>) -> Result<()> {
        self.reserve.lend(self.vfs.as_ref(), table.name(), clear)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// Refuses the options for which there is a reason.
fn refuse(options: &Options, mut reason: impl FnMut(&str) -> Option<String>) -> Result<()> {
    let mistake = |option: &String| {
        reason(option).map(|reason| InvalidOption { option: option.clone(), reason })
    };
    let mistakes: Vec<_> = options.keys().filter_map(mistake).collect();
    if mistakes.is_empty() { Ok(()) } else { Err(Error::InvalidOptions(mistakes)) }
}

/// Why an option that was fixed at creation is refused.
fn never(options: &Options, engine: &str, option: &str) -> String {
    let name = present_name(engine, option);
    let value = options.iter().find(|(given, _)| present_name(engine, given) == name);
    // Without a value the table has the default, or the one in its files if its catalogue was lost.
    let value = value.map(|(_, value)| format!(": the table was created with {value}"));
    format!(
        "never changes{}; leave the option out, or create another table",
        value.unwrap_or_default()
    )
}
