//! Repair of the files with values that tables refer to (key-value separation).
//!
//! A damaged or missing kept log or blob file is given up: tables that refer to it are written
//! again, with every value in it that is still readable in the table. References to intact files
//! stay.
//!
//! Invariant: each reference of a saved entry is to an intact file, and each value that is lost is
//! in a reported loss.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use siltstone_engine::{Loss, Op, Purpose, Result};
use siltstone_table::{EntryRef, FileKind, FileNumber, LogAccess, TableWriter};

use super::Repair;
use super::lost_references::{FoundContent, FoundVersion, FoundVersions};
use crate::blob_ref::BlobRef;
use crate::record;
use crate::version::{BlobFileId, BlobUse, Edit, FileEntry, LogFile};

/// How the references of a table are treated when its entries are copied.
pub(super) enum References<'a> {
    /// They are left out: the files that they refer to are read as a whole.
    Skipped,
    /// They are kept, or the values are copied from files that are given up.
    Copied {
        /// The files that the table refers to.
        uses: &'a [BlobUse],
        /// The versions that take the place of lost ones.
        found: FoundVersions,
    },
}

/// The references of a table that is copied.
#[derive(Default)]
pub(super) struct CopiedReferences {
    /// The bytes that the copy refers to, by file.
    referred: BTreeMap<u64, u64>,
    lost: BTreeMap<u64, LostValues>,
    encoded: Vec<u8>,
}

/// The values of one file that are lost.
struct LostValues {
    smallest: Vec<u8>,
    largest: Vec<u8>,
    bytes: Range<u64>,
}

impl Repair<'_> {
    /// Finds the damaged files with values that the manifest names.
    pub(super) fn check_blobs(&mut self, known: &Edit) -> Result<()> {
        let uses = known.added.iter().flat_map(|entry| &entry.blobs);
        let files: BTreeMap<u64, BlobFileId> =
            uses.map(|used| (used.file.number, used.file)).collect();
        for id in files.into_values() {
            let name = id.kind().name(FileNumber(id.number));
            match LogFile::open(&self.logs, id, None).and_then(|file| file.verify()) {
                Ok(()) => continue,
                Err(damage) if damage.is_corruption() || damage.is_not_found() => {
                    self.report.note(format!("{name} has values of tables, and: {damage}"));
                }
                Err(other) => return Err(other),
            }
            self.damaged_blobs.insert(id.number);
            // The log of a run is kept with the run.
            let is_of_run = |entry: &FileEntry| {
                let run = entry.run.as_ref().and_then(|run| run.log);
                run.is_some_and(|(log, _)| log == id.number)
            };
            if !known.added.iter().any(is_of_run) && self.vfs.exists(&name)? {
                self.files.keep(name, &mut self.report);
            }
        }
        Ok(())
    }

    /// Whether a table refers to a damaged file.
    pub(super) fn has_damaged_blobs(&self, entry: &FileEntry) -> bool {
        entry.blobs.iter().any(|used| self.damaged_blobs.contains(&used.file.number))
    }

    /// Copies an entry of the kind `Reference` of the table `table`.
    pub(super) fn copy_reference(
        &self,
        entry: EntryRef<'_>,
        table: &str,
        uses: &[BlobUse],
        copied: &mut CopiedReferences,
        writer: &mut TableWriter,
    ) -> Result<()> {
        let reference = BlobRef::decode(entry.value, table)?;
        let used = uses.iter().find(|used| used.file.number == reference.file);
        let is_damaged = self.damaged_blobs.contains(&reference.file);
        if used.is_some() && !is_damaged {
            *copied.referred.entry(reference.file).or_default() +=
                reference.stored_bytes(entry.key);
            return writer.add(reference.entry(entry, &mut copied.encoded));
        }
        let value = match used {
            Some(used) => self.read_damaged(used.file, &reference, &entry)?,
            None => None,
        };
        match value {
            Some(value) => {
                let (kind, expires_at) = (reference.kind(), reference.expires_at.unwrap_or(0));
                writer.add(EntryRef { kind, expires_at, value: &value, ..entry })
            }
            None => {
                copied.lose(&reference, entry.key);
                Ok(())
            }
        }
    }

    /// Adds the found versions before `entry` (`None`: all that are left), and those of its key
    /// that are newer.
    pub(super) fn add_found(
        found: &mut FoundVersions,
        entry: Option<&EntryRef<'_>>,
        copied: &mut CopiedReferences,
        writer: &mut TableWriter,
    ) -> Result<()> {
        let is_next = |key: &Vec<u8>, version: &FoundVersion| {
            entry.is_none_or(|entry| {
                (key.as_slice(), Reverse(version.sequence)) < (entry.key, Reverse(entry.sequence))
            })
        };
        while let Some(first) = found.first_entry() {
            if !is_next(first.key(), first.get()) {
                if entry.is_some_and(|entry| entry.key == first.key().as_slice()) {
                    first.remove();
                }
                return Ok(());
            }
            let (key, version) = first.remove_entry();
            let made = version.entry(&key);
            match &version.content {
                FoundContent::Reference(reference) => {
                    *copied.referred.entry(reference.file).or_default() +=
                        reference.stored_bytes(&key);
                    writer.add(reference.entry(made, &mut copied.encoded))?;
                }
                _ => writer.add(made)?,
            }
        }
        Ok(())
    }

    /// Reads a value of a damaged file; `None` if its record is damaged, too.
    fn read_damaged(
        &self,
        id: BlobFileId,
        reference: &BlobRef,
        entry: &EntryRef<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let name = id.kind().name(FileNumber(id.number));
        let (offset, expected) = (reference.position.offset(), reference.position.expected_bytes());
        let mut bytes = Vec::new();
        let read = LogAccess::open(self.vfs.as_ref(), &name, id.number)
            .and_then(|log| log.read(offset, expected, &mut bytes, Purpose::Maintenance));
        match read {
            Ok(()) => {}
            Err(damage) if damage.is_corruption() || damage.is_not_found() => return Ok(None),
            Err(other) => return Err(other),
        }
        Ok(match record::find(&bytes, entry.sequence) {
            Ok(Op::Put { key, value, .. }) if key == entry.key => Some(value.to_vec()),
            _ => None,
        })
    }

    /// Reports the values that a copy of a table lacks, and adds its references to `made`.
    pub(super) fn note_references(
        &mut self,
        copied: CopiedReferences,
        uses: &[BlobUse],
        made: Option<&mut FileEntry>,
    ) {
        for (number, lost) in copied.lost {
            let used = uses.iter().find(|used| used.file.number == number);
            let kind = used.map_or(FileKind::Blob, |used| used.file.kind());
            let loss = Loss::entries(kind.name(FileNumber(number)), lost.bytes);
            self.report.record_loss(loss.with_keys(Some(&lost.smallest), Some(&lost.largest)));
        }
        let Some(made) = made else { return };
        let known = uses.iter().filter_map(|used| {
            let used_bytes = *copied.referred.get(&used.file.number)?;
            Some(BlobUse { used_bytes, ..*used })
        });
        made.blobs = known.collect();
    }
}

impl CopiedReferences {
    fn lose(&mut self, reference: &BlobRef, key: &[u8]) {
        let offset = reference.position.offset();
        let bytes = offset..offset + reference.position.expected_bytes();
        match self.lost.get_mut(&reference.file) {
            // Entries come in the order of their keys.
            Some(lost) => {
                lost.largest = key.to_vec();
                lost.bytes = lost.bytes.start.min(bytes.start)..lost.bytes.end.max(bytes.end);
            }
            None => {
                let (smallest, largest) = (key.to_vec(), key.to_vec());
                self.lost.insert(reference.file, LostValues { smallest, largest, bytes });
            }
        }
    }
}
