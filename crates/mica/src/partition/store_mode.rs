//! Store mode: segregated fits with a lossless index. Items are removed only by deletes.
//!
//! A value that fits the old block is written in place. Otherwise it gets a new block, the entry is
//! updated, and the old block is freed. The bucket's version is odd before that, so a reader of the
//! old block notices before the block is reused.
//!
//! A batch neither writes in place nor frees blocks until all its requests have succeeded, so that
//! undoing it needs no space. It needs no spare bucket either, because the number of spare buckets
//! depends only on the entries.
//!
//! Source: Lim, thesis, section 5.3.3, "Store Mode"; batches are an addition.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::Damage;

use super::{Change, Context, ItemRef, Journal, Memory};
use crate::counters::Tally;
use crate::index::lossless::{self, LosslessIndex};
use crate::index::{entry, offset_of};
use crate::item::{Item, NewItem};
use crate::request::Outcome;
use crate::space::fits::SegregatedFits;
use crate::version::{self, Access};

/// A block stays in use for a smaller item up to twice the item's size plus this.
const MAX_SLACK_WORDS: usize = 8;

/// A partition's memory in store mode.
pub(crate) struct StorePartition {
    fits: SegregatedFits,
    index: LosslessIndex,
}

impl StorePartition {
    pub(crate) fn new(words: usize, buckets: usize, spare: usize) -> io::Result<Self> {
        Ok(StorePartition {
            fits: SegregatedFits::new(words)?,
            index: LosslessIndex::new(buckets, spare)?,
        })
    }

    fn allocate_and_write(&self, new: &NewItem<'_>) -> Option<u64> {
        let words = new.words();
        let offset = self.fits.allocate(words)?;
        new.write(&self.fits.words()[offset as usize..], words);
        Some(offset)
    }

    /// The entry of `hash` with this offset, which must exist.
    fn slot(&self, hash: u64, offset: u64) -> Option<&AtomicU64> {
        self.find(self.bucket(hash), hash, None, |slot, at| (at == offset).then_some(slot))
    }

    fn undo(&self, change: Change) {
        match change {
            Change::Insert { hash, new } => {
                if let Some(slot) = self.slot(hash, new) {
                    self.index.remove(hash, slot);
                }
                self.fits.free(new);
            }
            Change::Replace { hash, old, new } => {
                if let Some(slot) = self.slot(hash, new) {
                    slot.store(entry(hash, old), Relaxed);
                }
                self.fits.free(new);
            }
            Change::Remove { hash, old } => {
                let is_restored = self.index.insert(hash, old);
                debug_assert!(is_restored, "the spare bucket that it needs is free again");
            }
        }
    }
}

impl Memory for StorePartition {
    type Bucket = [AtomicU64; lossless::BUCKET_WORDS];

    #[inline(always)]
    fn bucket(&self, hash: u64) -> &Self::Bucket {
        self.index.buckets.of(hash)
    }

    fn main(&self, number: usize) -> &Self::Bucket {
        self.index.buckets.main(number)
    }

    #[inline(always)]
    fn find<'m, T>(
        &'m self,
        bucket: &'m Self::Bucket,
        hash: u64,
        seen: Option<u64>,
        matches: impl FnMut(&'m AtomicU64, u64) -> Option<T>,
    ) -> Option<T> {
        self.index.buckets.find(bucket, hash, seen, matches)
    }

    #[inline(always)]
    fn item(&self, offset: u64) -> Option<Item<'_>> {
        Item::parse(self.fits.words().get(offset as usize..)?)
    }

    #[inline(always)]
    fn is_intact(&self, _offset: u64) -> bool {
        // Blocks change only under their bucket's version.
        true
    }

    fn put(
        &self,
        context: &Context<'_>,
        found: Option<ItemRef<'_>>,
        new: &NewItem<'_>,
        tally: &mut Tally,
        journal: Option<&mut Journal>,
    ) -> Result<(), Outcome> {
        let hash = new.hash;
        let Some(found) = found else {
            let offset = self.allocate_and_write(new).ok_or(Outcome::Full)?;
            if !self.index.insert(hash, offset) {
                self.fits.free(offset);
                return Err(Outcome::Full);
            }
            if let Some(journal) = journal {
                journal.push(Change::Insert { hash, new: offset });
            }
            return Ok(());
        };
        let (words, capacity) = (new.words(), self.fits.capacity(found.offset));
        let here = &self.fits.words()[found.offset as usize..];
        let expired = u64::from(context.now.is_past(found.item.meta().expires_at));
        let is_in_place = journal.is_none() && words <= capacity;
        if is_in_place && capacity <= 2 * words + MAX_SLACK_WORDS {
            new.write(here, words);
            tally.expired_entries_dropped += expired;
            return Ok(());
        }
        let Some(offset) = self.allocate_and_write(new) else {
            if is_in_place {
                new.write(here, words);
                tally.expired_entries_dropped += expired;
                return Ok(());
            }
            return Err(Outcome::Full);
        };
        tally.expired_entries_dropped += expired;
        found.slot.store(entry(hash, offset), Relaxed);
        match journal {
            Some(journal) => journal.push(Change::Replace { hash, old: found.offset, new: offset }),
            None => self.fits.free(found.offset),
        }
        Ok(())
    }

    fn remove(
        &self,
        context: &Context<'_>,
        hash: u64,
        found: ItemRef<'_>,
        tally: &mut Tally,
        journal: Option<&mut Journal>,
    ) {
        let is_expired = context.now.is_past(found.item.meta().expires_at);
        tally.expired_entries_dropped += u64::from(is_expired);
        self.index.remove(hash, found.slot);
        match journal {
            Some(journal) => journal.push(Change::Remove { hash, old: found.offset }),
            None => self.fits.free(found.offset),
        }
    }

    #[inline(always)]
    fn needs_access_mark(&self, _found: &ItemRef<'_>) -> bool {
        false
    }

    fn mark_access(&self, _access: Access, _found: ItemRef<'_>, _tally: &mut Tally) {}

    #[inline(always)]
    fn after_write(&self, _access: Access, _tally: &mut Tally) {}

    fn commit(&self, journal: &mut Journal) {
        for change in journal.drain(..) {
            if let Change::Replace { old, .. } | Change::Remove { old, .. } = change {
                self.fits.free(old);
            }
        }
    }

    fn roll_back(&self, access: Access, journal: &mut Journal) {
        for change in journal.drain(..).rev() {
            let (Change::Insert { hash, .. }
            | Change::Replace { hash, .. }
            | Change::Remove { hash, .. }) = change;
            let header = Self::header(self.bucket(hash));
            version::begin_write(header, access);
            self.undo(change);
            version::end_write(header, access);
        }
    }

    #[inline(always)]
    fn prefetch_bucket(&self, bucket: &Self::Bucket) {
        self.index.buckets.prefetch(bucket);
    }

    #[inline(always)]
    fn prefetch_items(&self, bucket: &Self::Bucket, hash: u64) {
        self.index.prefetch_items(bucket, hash, self.fits.words());
    }

    fn items(&self) -> u64 {
        // Outside of a batch, items and blocks in use correspond.
        self.fits.blocks()
    }

    fn entries(&self) -> (u64, u64) {
        self.index.entries()
    }

    fn bucket_count(&self) -> usize {
        self.index.buckets.main_count()
    }

    fn items_of<'m>(&'m self, bucket: usize, visit: &mut dyn FnMut(u64, Item<'m>)) {
        for slot in self.index.buckets.chain(bucket) {
            let entry = slot.load(Relaxed);
            if entry != 0
                && let Some(item) = self.item(offset_of(entry))
            {
                visit(entry, item);
            }
        }
    }

    fn add_memory_stats(&self, memory: &mut BTreeMap<&'static str, u64>) {
        *memory.entry("items").or_default() += self.fits.bytes();
        *memory.entry("index").or_default() += self.index.buckets.bytes();
    }

    fn add_counters(&self, counters: &mut BTreeMap<&'static str, u64>) {
        *counters.entry("free_bytes").or_default() += self.fits.free_bytes();
        *counters.entry("spare_buckets_left").or_default() += self.index.spare_left() as u64;
    }

    fn damage(&self, name: &str) -> Vec<Damage> {
        let damage_at = |offset, reason| Damage { file: name.to_owned(), offset, reason };
        let mut damage: Vec<_> =
            self.index.check().map(|reason| damage_at(0, reason)).into_iter().collect();
        let (main, spare) = self.index.entries();
        match self.fits.check() {
            Err((word, reason)) => damage.push(damage_at(word as u64 * 8, reason)),
            Ok(blocks) if blocks != main + spare => {
                damage.push(damage_at(0, format!("{blocks} blocks for {} entries", main + spare)));
            }
            Ok(_) => {}
        }
        damage
    }
}
