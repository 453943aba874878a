//! The merge operator of a table: which one is set, and what the table takes with it.
//!
//! The name of the first operator is recorded in the manifest (field 16 of an edit, see
//! `version::edit_format`), which earlier versions refuse. From then on a table takes no puts that
//! expire: the expiry of a value below operands would have to be compared with the time of each
//! operand, so operands could not be merged, and compactions could not drop an expired value
//! (decision record 47).
//!
//! Invariants: a merge is written only after the name is durable. Nothing that expires is in a
//! table with a name, except what had expired when the name was recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use siltstone_engine::error::display_key;
use siltstone_engine::merge_operator::{self, built_in};
use siltstone_engine::{BatchOp, Error, KeyRange, MergeOperator, Result, WriteBatch};

use crate::engine::Tree;
use crate::version::Edit;

/// The merge operator of an open table.
#[derive(Default)]
pub(crate) struct MergeState {
    operator: Mutex<Option<Arc<dyn MergeOperator>>>,
    /// Whether puts that expire are refused. Set while the writer is locked.
    refuses_expiry: AtomicBool,
    /// Held while an operator is set.
    setting: Mutex<()>,
}

impl MergeState {
    /// The state of a table whose manifest has this name.
    pub(crate) fn recovered(name: Option<&str>) -> Self {
        MergeState {
            operator: Mutex::new(name.and_then(built_in)),
            refuses_expiry: AtomicBool::new(name.is_some()),
            setting: Mutex::new(()),
        }
    }

    pub(crate) fn operator(&self) -> Option<Arc<dyn MergeOperator>> {
        self.operator.lock().clone()
    }

    /// Refuses operands that the operator refuses, merges without one, and puts that expire beside
    /// one.
    pub(crate) fn check(&self, batch: &WriteBatch) -> Result<()> {
        if batch.merges() > 0 {
            let operator = self.operator().ok_or_else(merge_operator::no_operator)?;
            for op in batch.iter_all() {
                let BatchOp::Merge { key, operand } = op else { continue };
                merge_operator::check_operand(operator.as_ref(), key, operand)?;
            }
        }
        self.check_expiry(batch)
    }

    /// Refuses puts that expire beside a merge operator.
    pub(crate) fn check_expiry(&self, batch: &WriteBatch) -> Result<()> {
        if batch.expiring_puts() > 0 { self.check_no_operator() } else { Ok(()) }
    }

    /// Refuses what expires if there is a merge operator.
    pub(crate) fn check_no_operator(&self) -> Result<()> {
        if self.refuses_expiry.load(Ordering::Acquire) {
            let reason = "a table with a merge operator takes no entries that expire; put them into \
                          another table";
            return Err(Error::Invalid(reason.to_owned()));
        }
        Ok(())
    }
}

impl Tree {
    /// See [`Engine::set_merge_operator`](siltstone_engine::Engine::set_merge_operator).
    pub(crate) fn set_operator(&self, operator: Option<Arc<dyn MergeOperator>>) -> Result<()> {
        let _one_at_a_time = self.merges.setting.lock();
        if let Some(operator) = &operator {
            self.record_operator(operator.name())?;
        }
        *self.merges.operator.lock() = operator;
        Ok(())
    }

    /// Records the name, if none is recorded.
    fn record_operator(&self, name: &str) -> Result<()> {
        if let Some(recorded) = self.recorded_operator() {
            return check_name(&recorded, name);
        }
        if name.is_empty() {
            return Err(Error::Invalid("a merge operator has an empty name".to_owned()));
        }
        self.refuse_expiry(true);
        let recorded = self.check_no_expiry().and_then(|()| self.install_operator(name));
        if recorded.is_err() && self.recorded_operator().is_none() {
            self.refuse_expiry(false);
        }
        recorded
    }

    fn recorded_operator(&self) -> Option<Arc<str>> {
        self.view.load().version.merge_operator.clone()
    }

    /// With the writer locked, so that each write is either refused or readable afterwards.
    fn refuse_expiry(&self, refuses: bool) {
        let _writer = self.writer.lock();
        self.merges.refuses_expiry.store(refuses, Ordering::Release);
    }

    /// Refuses a table with entries that expire later.
    fn check_no_expiry(&self) -> Result<()> {
        let mut cursor = self.cursor(KeyRange::all(), None)?;
        cursor.skip_values();
        let mut is_valid = cursor.first()?;
        while is_valid {
            if cursor.expires_at().is_some() {
                return Err(Error::Invalid(format!(
                    "a table with entries that expire takes no merge operator: {} expires",
                    display_key(cursor.key())
                )));
            }
            is_valid = cursor.next()?;
        }
        Ok(())
    }

    fn install_operator(&self, name: &str) -> Result<()> {
        loop {
            let generation = self.view.load().generation;
            let edit = Edit { merge_operator: Some(name.into()), ..Edit::default() };
            // With the name in doubt, the next open may find it beside what is written until then.
            let installed = self.install(generation, edit, None, &[], |_| ()).map_err(|error| {
                self.background.poison_unless_transient("recording a merge operator", error)
            })?;
            // Otherwise all keys were removed meanwhile.
            if installed {
                return Ok(());
            }
        }
    }
}

fn check_name(recorded: &str, name: &str) -> Result<()> {
    if recorded == name {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the table's operands are for the merge operator '{recorded}', not for '{name}'"
    )))
}
