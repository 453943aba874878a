//! Verification of every byte of an SSTable.
//!
//! Beyond the checksums it verifies: entries are in order within and across blocks, `shared` is
//! exact, every key is within its separator and passes the filters, and the properties match the
//! entries.
//!
//! Invariant: an SSTable that passes returns what was written for every lookup; every byte of the
//! file is read here or was read at open.

use std::ops::ControlFlow;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::{BloomProbe, common_prefix_len, hash64};

use super::filter::Filter;
use super::footer::{FOOTER_BYTES, Footer};
use super::meta::TableMeta;
use super::table::Table;
use super::writer::EXTERNAL_SEQUENCE;
use crate::block::BlockIter;
use crate::kind::{Kind, compare};

impl Table {
    /// Verifies the whole file. `progress` receives the bytes verified after each block and may
    /// stop the verification without an error. Cost: one read per block, bypassing the cache, and
    /// the memory of the Bloom filter if that was taken.
    ///
    /// # Errors
    /// `Corruption` at the first damage; I/O errors.
    pub fn verify(&self, mut progress: impl FnMut(u64) -> ControlFlow<()>) -> Result<()> {
        let purpose = Purpose::Maintenance;
        let mut actual = TableMeta { bytes: self.meta().bytes, ..TableMeta::default() };
        let mut before: Option<(Vec<u8>, u64)> = None;
        let taken = if self.filter().is_none() { self.read_filter(purpose)? } else { None };
        let filter = self.filter().or(taken.as_ref());
        for i in 0..self.index().blocks() {
            self.verify_block(i, filter, &mut before, &mut actual)?;
            if progress(self.index().range(i).end).is_break() {
                return Ok(());
            }
        }
        actual.number = self.meta().number;
        actual.largest = before.map(|(key, _)| key).unwrap_or_default();
        if actual != *self.meta() {
            let reason = "the properties do not match the entries";
            return Err(Error::corruption(self.name(), self.index().data_bytes(), reason));
        }
        for meta in self.metas() {
            self.meta_block(&meta.name, purpose)?;
            if progress(meta.offset + u64::from(meta.bytes)).is_break() {
                return Ok(());
            }
        }
        self.verify_end(purpose)?;
        let _ = progress(self.meta().bytes);
        Ok(())
    }

    fn verify_block(
        &self,
        i: usize,
        filter: Option<&Filter>,
        before: &mut Option<(Vec<u8>, u64)>,
        actual: &mut TableMeta,
    ) -> Result<()> {
        let at = self.index().range(i).start;
        let wrong = |reason: &str| Error::corruption(self.name(), at, reason);
        let malformed = |bad| self.malformed(i, bad);
        let block = Arc::new(self.read_block(i, Vec::new(), Purpose::Maintenance)?);
        let separator = self.index().separator(i);
        let below = i.checked_sub(1).map(|i| self.index().separator(i));
        let mut iter = BlockIter::new(block);
        let (mut there, mut first) = (iter.first().map_err(malformed)?, true);
        while there {
            let entry = iter.entry();
            let last = before.as_ref().map(|(key, sequence)| (&key[..], *sequence));
            if last.is_some_and(|last| !compare(last, (entry.key, entry.sequence)).is_lt()) {
                return Err(wrong("the entries are not in order"));
            }
            let shared = match last {
                Some(last) if !first && !iter.at_restart() => common_prefix_len(last.0, entry.key),
                _ => 0,
            };
            if iter.layout().0 != shared {
                return Err(wrong("the shared prefix of an entry has the wrong length"));
            }
            if first
                && below.as_ref().is_some_and(|(key, sequence)| {
                    !compare((key, *sequence), (entry.key, entry.sequence)).is_lt()
                })
            {
                return Err(wrong("an entry is not above the separator of the previous block"));
            }
            if compare((entry.key, entry.sequence), (&separator.0, separator.1)).is_gt() {
                return Err(wrong("an entry is beyond the separator of its block"));
            }
            let mut probe = BloomProbe::new(hash64(entry.key));
            if filter.is_some_and(|filter| !filter.may_contain(&mut probe)) {
                return Err(wrong("the filter excludes a key of the table"));
            }
            if !self.may_contain_range(entry.key, entry.key) {
                return Err(wrong("the filter for ranges excludes a key of the table"));
            }
            if actual.entries == 0 {
                actual.smallest = entry.key.to_vec();
                actual.min_sequence = self.shown_sequence(entry.sequence);
            }
            if self.is_ingested() && entry.sequence != EXTERNAL_SEQUENCE {
                return Err(wrong(
                    "an entry of an ingested table has a sequence number of its own",
                ));
            }
            let sequence = self.shown_sequence(entry.sequence);
            actual.entries += 1;
            actual.user_bytes += (entry.key.len() + entry.value.len()) as u64;
            actual.min_sequence = actual.min_sequence.min(sequence);
            actual.max_sequence = actual.max_sequence.max(sequence);
            actual.deletes += u64::from(entry.kind == Kind::Delete);
            if entry.kind == Kind::PutExpiring {
                actual.expiring += 1;
                let oldest = actual.oldest_expiry.unwrap_or(u64::MAX);
                actual.oldest_expiry = Some(oldest.min(entry.expires_at));
            }
            let (key, sequence) = before.get_or_insert_default();
            key.clear();
            key.extend_from_slice(entry.key);
            *sequence = entry.sequence;
            first = false;
            there = iter.next().map_err(malformed)?;
        }
        actual.blocks += 1;
        Ok(())
    }

    /// Verifies footer and directory as they are on disk.
    fn verify_end(&self, purpose: Purpose) -> Result<()> {
        let bytes = self.file().len()?;
        let mut tail = vec![0; bytes.min(FOOTER_BYTES as u64) as usize];
        self.file().read_at(bytes - tail.len() as u64, &mut tail, purpose)?;
        let footer = Footer::decode(&tail, self.name(), self.written_as(), bytes)?;
        self.check_directory(&footer, purpose)
    }
}
