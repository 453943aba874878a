//! Folds operands of merges while a flush or a compaction passes versions on.
//!
//! ```text
//!   versions of a key, the newest first           passed on
//!   merge 9, merge 7, put 3                       put 9          the value is met
//!   merge 9, merge 7, hidden by a deletion        put 9          nothing is below
//!   merge 9, merge 7, end, nothing deeper         put 9          nothing is below
//!   merge 9, merge 7, end, perhaps more deeper    merge 9 (7…9)  if the operator can, else both
//!   merge 9 │ merge 7, put 3                      merge 9 │ put 7    a snapshot at 8
//! ```
//!
//! If the operator fails, or none is set, versions are passed on as they are.
//!
//! Invariant: only versions of one stripe are folded (see `version_gc`), so each snapshot reads
//! what it read before.

use std::sync::Arc;

use siltstone_engine::{MergeOperator, Result};
use siltstone_table::{EntryRef, Kind};

use crate::merge_chain::MergeChain;
use crate::range_deletes::DeletedVersion;
use crate::version_gc::Retention;

/// A version that the folder has made of others.
pub(crate) struct FoldedVersion<'a> {
    pub(crate) entry: EntryRef<'a>,
    pub(crate) retention: Retention,
    pub(crate) deleted: DeletedVersion,
}

/// Receives the versions that the folder makes.
pub(crate) type Emit<'e> = &'e mut dyn FnMut(FoldedVersion<'_>) -> Result<()>;

/// Collects the operands of one key in one stripe.
pub(crate) struct Folder {
    operator: Option<Arc<dyn MergeOperator>>,
    now: u64,
    key: Vec<u8>,
    chain: MergeChain,
    /// Of each version in `chain` the effect of range deletions, by sequence number.
    deleted: Vec<(u64, DeletedVersion)>,
    /// That of the newest version in `chain`.
    retention: Option<Retention>,
    /// Operands that became part of a value or of another operand.
    folded: u64,
}

impl Folder {
    /// A folder at the time `now`.
    pub(crate) fn new(operator: Option<Arc<dyn MergeOperator>>, now: u64) -> Self {
        Folder {
            operator,
            now,
            key: Vec::new(),
            chain: MergeChain::default(),
            deleted: Vec::new(),
            retention: None,
            folded: 0,
        }
    }

    /// The number of operands that became part of a value or of another operand.
    pub(crate) fn folded(&self) -> u64 {
        self.folded
    }

    /// Whether operands are waiting for what is below them.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.retention.is_some()
    }

    /// The key of the waiting operands.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether a version of `key` that is read up to `last_read_at` is in the stripe of the
    /// operands.
    pub(crate) fn is_below(&self, key: &[u8], last_read_at: u64) -> bool {
        self.key == key && self.retention.is_some_and(|of| of.last_read_at == last_read_at)
    }

    /// Adds the operand `entry`.
    pub(crate) fn push(
        &mut self,
        entry: &EntryRef<'_>,
        retention: Retention,
        deleted: DeletedVersion,
    ) {
        if self.retention.is_none() {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.retention = Some(retention);
        }
        self.chain.push(entry.sequence, entry.expires_at, entry.value);
        self.deleted.push((entry.sequence, deleted));
    }

    /// Folds the operands over the version below them; `false`: they were passed on as they are,
    /// and so must `base` be.
    pub(crate) fn fold_over(&mut self, base: &EntryRef<'_>, emit: Emit<'_>) -> Result<bool> {
        self.chain.remove_up_to(base.sequence);
        if self.chain.is_empty() {
            // A repair saved operands from a log that had become part of the value.
            self.reset();
            return Ok(false);
        }
        let value = match base.kind {
            Kind::Put => Some(base.value),
            Kind::Delete => None,
            Kind::PutExpiring if base.expires_at <= self.now => None,
            // A table with merges has none that can expire yet.
            Kind::PutExpiring | Kind::Position | Kind::Reference | Kind::Merge => {
                return self.pass_on(emit).map(|()| false);
            }
        };
        self.fold(value, emit)
    }

    /// Ends the operands of the key; `has_older`: there may be older versions elsewhere.
    pub(crate) fn end(&mut self, has_older: bool, emit: Emit<'_>) -> Result<()> {
        if has_older { self.pass_on(emit) } else { self.fold(None, emit).map(drop) }
    }

    fn fold(&mut self, value: Option<&[u8]>, emit: Emit<'_>) -> Result<bool> {
        let merged = match &self.operator {
            None => None,
            Some(operator) => self.chain.full_merge(operator.as_ref(), &self.key, value).ok(),
        };
        let newest = self.chain.iter().next().map(|operand| operand.sequence);
        let (Some(value), Some(sequence), Some(retention)) = (merged, newest, self.retention)
        else {
            return self.pass_on(emit).map(|()| false);
        };
        self.folded += self.chain.len() as u64;
        let deleted = self.effect(sequence);
        let entry =
            EntryRef { key: &self.key, sequence, kind: Kind::Put, expires_at: 0, value: &value };
        emit(FoldedVersion { entry, retention, deleted })?;
        self.reset();
        Ok(true)
    }

    /// Passes the operands on, merged into one if the operator can.
    fn pass_on(&mut self, emit: Emit<'_>) -> Result<()> {
        let Some(retention) = self.retention else { return Ok(()) };
        let before = self.chain.len() as u64;
        if let Some(operator) = &self.operator {
            self.chain.partial_merge(operator.as_ref(), &self.key);
        }
        self.folded += before - self.chain.len() as u64;
        for (at, operand) in self.chain.iter().enumerate() {
            let entry = EntryRef {
                key: &self.key,
                sequence: operand.sequence,
                kind: Kind::Merge,
                expires_at: operand.covered(),
                value: &operand.bytes,
            };
            let retention = Retention { is_newest: retention.is_newest && at == 0, ..retention };
            emit(FoldedVersion { entry, retention, deleted: self.effect(operand.sequence) })?;
        }
        self.reset();
        Ok(())
    }

    fn effect(&self, sequence: u64) -> DeletedVersion {
        let found = self.deleted.iter().find(|(of, _)| *of == sequence);
        found.map_or(DeletedVersion::No, |(_, deleted)| *deleted)
    }

    fn reset(&mut self) {
        self.chain.clear();
        self.deleted.clear();
        self.retention = None;
    }
}
