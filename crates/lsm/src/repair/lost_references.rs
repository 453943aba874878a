//! Values whose references are lost with a damaged or missing table (key-value separation).
//!
//! The values are in other files than the table. Those files are searched for the keys of the lost
//! blocks, and the newest version of each key in them takes the place of the lost one. It may be
//! older than the lost version, and a deleted key may reappear, since the files also contain what
//! is obsolete; the report says so. Versions that a deeper level hides are left out.
//!
//! Invariant: nothing is added outside of the lost blocks.

use std::collections::BTreeMap;

use siltstone_engine::{BatchOp, KeyBounds, Loss, Op, Purpose, Result, WriteBatch};
use siltstone_table::{EntryRef, FileNumber, Kind, MAX_SEQUENCE, SalvageItem, Table, salvage_log};

use super::Repair;
use crate::blob_ref::BlobRef;
use crate::record::{Position, Record};
use crate::version::{BlobUse, Edit, FileEntry};

/// Shorter values are put into the table.
const MIN_REFERENCE_BYTES: usize = 64;

/// The versions that take the place of lost ones, by key.
pub(super) type FoundVersions = BTreeMap<Vec<u8>, FoundVersion>;

/// The newest version of a key in the files that a table refers to.
pub(super) struct FoundVersion {
    pub(super) sequence: u64,
    pub(super) content: FoundContent,
}

pub(super) enum FoundContent {
    Reference(BlobRef),
    Value(Vec<u8>, Option<u64>),
    /// A deletion, or an operand of a merge.
    Nothing,
}

impl FoundVersion {
    /// The entry, unless it is a reference.
    pub(super) fn entry<'a>(&'a self, key: &'a [u8]) -> EntryRef<'a> {
        let (kind, value, expires_at) = match &self.content {
            FoundContent::Value(value, None) => (Kind::Put, &value[..], 0),
            FoundContent::Value(value, Some(at)) => (Kind::PutExpiring, &value[..], *at),
            FoundContent::Reference(of) => (of.kind(), &[][..], of.expires_at.unwrap_or(0)),
            FoundContent::Nothing => (Kind::Delete, &[][..], 0),
        };
        EntryRef { key, sequence: self.sequence, kind, expires_at, value }
    }
}

/// The keys of lost blocks.
struct LostKeys<'a> {
    table: &'a FileEntry,
    losses: &'a [Loss],
}

impl LostKeys<'_> {
    fn contains(&self, key: &[u8]) -> bool {
        let is_in = |bounds: &KeyBounds| {
            bounds.after.as_ref().is_none_or(|after| after.as_slice() <= key)
                && bounds.before.as_ref().is_none_or(|before| key <= before.as_slice())
        };
        self.table.smallest.as_slice() <= key
            && key <= self.table.largest.as_slice()
            && self.losses.iter().any(|loss| loss.keys.as_ref().is_none_or(is_in))
    }
}

impl Repair<'_> {
    /// Searches the files that `named` refers to for the keys that it lost with the blocks of
    /// `losses`.
    pub(super) fn find_lost(
        &mut self,
        named: &FileEntry,
        losses: &[Loss],
        known: &Edit,
    ) -> Result<FoundVersions> {
        let mut found = FoundVersions::new();
        if losses.is_empty() {
            return Ok(found);
        }
        let keys = LostKeys { table: named, losses };
        for used in &named.blobs {
            self.search(used, &keys, &mut found)?;
        }
        found.retain(|_, version| !matches!(version.content, FoundContent::Nothing));
        let deeper = known.added.iter().filter(|entry| entry.level > named.level);
        for entry in deeper
            .filter(|entry| entry.smallest <= named.largest && named.smallest <= entry.largest)
        {
            let Ok(table) = self.open(entry.kind(), entry.number) else { continue };
            found.retain(|key, version| !is_hidden_by(&table, key, version));
        }
        if !found.is_empty() {
            let name = named.file_name();
            self.report.note(format!(
                "{} keys of {name} have the newest value that was found in the files that it \
                 referred to: deleted keys may reappear",
                found.len()
            ));
            self.report.record_loss(Loss::order(name));
        }
        Ok(found)
    }

    fn search(
        &mut self,
        used: &BlobUse,
        keys: &LostKeys<'_>,
        found: &mut FoundVersions,
    ) -> Result<()> {
        let (kind, number) = (used.file.kind(), used.file.number);
        let name = kind.name(FileNumber(number));
        let is_damaged = self.damaged_blobs.contains(&number);
        let log = salvage_log(self.vfs.as_ref(), (kind, number), Some(used.file.bytes))?;
        let mut gaps = Vec::new();
        log.visit(self.vfs.as_ref(), |item| {
            let (position, bytes) = match item {
                SalvageItem::Record { position, bytes } => (position, bytes),
                SalvageItem::Gap(bytes) => {
                    gaps.push(bytes);
                    return Ok(());
                }
            };
            let at = Position::new(position, bytes.len());
            let mut note = |sequence: u64, batch_op: BatchOp<'_>| {
                let (key, content) = match batch_op {
                    BatchOp::Point(Op::Put { key, value, expires_at }) => {
                        let content = if is_damaged || value.len() < MIN_REFERENCE_BYTES {
                            FoundContent::Value(value.to_vec(), expires_at)
                        } else {
                            FoundContent::Reference(BlobRef {
                                file: number,
                                value_bytes: value.len() as u64,
                                position: at,
                                expires_at,
                            })
                        };
                        (key, content)
                    }
                    BatchOp::Point(Op::Delete { key }) | BatchOp::Merge { key, .. } => {
                        (key, FoundContent::Nothing)
                    }
                    BatchOp::DeleteRange { .. } => return,
                };
                let is_newer = found.get(key).is_none_or(|known| known.sequence < sequence);
                if is_newer && keys.contains(key) {
                    found.insert(key.to_vec(), FoundVersion { sequence, content });
                }
            };
            let mut note_all = |sequences: &mut dyn Iterator<Item = u64>, batch: &WriteBatch| {
                sequences.zip(batch.iter_all()).for_each(|(sequence, op)| note(sequence, op));
            };
            match Record::decode(bytes) {
                Ok(Record::Batch { first_sequence, batch, .. }) => {
                    note_all(&mut (first_sequence..), &batch);
                }
                Ok(Record::Retained { sequences, batch }) => {
                    note_all(&mut sequences.into_iter(), &batch);
                }
                _ => {}
            }
            Ok(())
        })?;
        gaps.into_iter().for_each(|gap| self.report.record_loss(Loss::entries(&name, gap)));
        Ok(())
    }
}

/// Whether a table of a deeper level has a newer version, or the same.
fn is_hidden_by(table: &Table, key: &[u8], version: &FoundVersion) -> bool {
    let deeper = table.find(key, MAX_SEQUENCE, Purpose::Maintenance);
    deeper.is_ok_and(|deeper| deeper.is_some_and(|deeper| deeper.sequence >= version.sequence))
}

/// The loss of all keys of a table.
pub(super) fn whole(named: &FileEntry) -> Loss {
    let loss = Loss::entries(named.file_name(), 0..named.bytes);
    loss.with_keys(Some(&named.smallest), Some(&named.largest))
}
