//! Store mode: segregated fits under a lossless index. Nothing goes unless it is told to.
//!
//! A value that fits the block of the one before is written in place; otherwise it gets a block of
//! its own, the entry changes, and the old block is freed: after the bucket's version has become
//! odd, so that a reader of the old block notices before another item lies there.
//!
//! In a batch nothing is written in place and nothing is freed until all has been done, so that each
//! change can be taken back without room being needed for it. Spare buckets are as many again as
//! before, because how many are used follows from the entries alone.
//!
//! Source: thesis, section 5.3.3, "Store Mode"; batches are ours.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::Damage;

use super::{Change, Found, Journal, Memory};
use crate::counters::Tally;
use crate::index::lossless::{self, LosslessIndex};
use crate::index::{entry, offset_of};
use crate::item::{Item, NewItem};
use crate::request::Outcome;
use crate::space::fits::SegregatedFits;
use crate::version::{self, Access};

/// A block may be so much larger than twice its item and stay, in words.
const SLACK: usize = 8;

/// A partition's memory in store mode.
pub(crate) struct Keep {
    fits: SegregatedFits,
    index: LosslessIndex,
}

impl Keep {
    pub(crate) fn new(words: usize, buckets: usize, spare: usize) -> io::Result<Self> {
        Ok(Keep { fits: SegregatedFits::new(words)?, index: LosslessIndex::new(buckets, spare)? })
    }

    fn place(&self, new: &NewItem<'_>) -> Option<u64> {
        let words = new.words();
        let offset = self.fits.allocate(words)?;
        new.write(&self.fits.words()[offset as usize..], words);
        Some(offset)
    }

    /// The entry of a hash that leads to an offset; it is there.
    fn slot(&self, hash: u64, offset: u64) -> Option<&AtomicU64> {
        self.find(self.bucket(hash), hash, None, |slot, at| (at == offset).then_some(slot))
    }

    fn undo(&self, change: Change) {
        match change {
            Change::Entered { hash, new } => {
                if let Some(slot) = self.slot(hash, new) {
                    self.index.remove(hash, slot);
                }
                self.fits.free(new);
            }
            Change::Swapped { hash, old, new } => {
                if let Some(slot) = self.slot(hash, new) {
                    slot.store(entry(hash, old), Relaxed);
                }
                self.fits.free(new);
            }
            Change::Removed { hash, old } => {
                let is_back = self.index.insert(hash, old);
                debug_assert!(is_back, "the spare bucket that it needs was given back");
            }
        }
    }
}

impl Memory for Keep {
    type Bucket = [AtomicU64; lossless::WORDS];

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
        is_it: impl FnMut(&'m AtomicU64, u64) -> Option<T>,
    ) -> Option<T> {
        self.index.buckets.find(bucket, hash, seen, is_it)
    }

    #[inline(always)]
    fn item(&self, offset: u64) -> Option<Item<'_>> {
        Item::parse(self.fits.words().get(offset as usize..)?)
    }

    #[inline(always)]
    fn holds(&self, _offset: u64) -> bool {
        // Blocks change under their bucket's version alone.
        true
    }

    fn put(
        &self,
        _access: Access,
        found: Option<Found<'_>>,
        new: &NewItem<'_>,
        _tally: &mut Tally,
        journal: Option<&mut Journal>,
    ) -> Result<(), Outcome> {
        let hash = new.hash;
        let Some(found) = found else {
            let offset = self.place(new).ok_or(Outcome::Full)?;
            if !self.index.insert(hash, offset) {
                self.fits.free(offset);
                return Err(Outcome::Full);
            }
            if let Some(journal) = journal {
                journal.push(Change::Entered { hash, new: offset });
            }
            return Ok(());
        };
        let (words, capacity) = (new.words(), self.fits.capacity(found.offset));
        let here = &self.fits.words()[found.offset as usize..];
        let is_in_place = journal.is_none() && words <= capacity;
        if is_in_place && capacity <= 2 * words + SLACK {
            new.write(here, words);
            return Ok(());
        }
        let Some(offset) = self.place(new) else {
            if is_in_place {
                new.write(here, words);
                return Ok(());
            }
            return Err(Outcome::Full);
        };
        found.slot.store(entry(hash, offset), Relaxed);
        match journal {
            Some(journal) => journal.push(Change::Swapped { hash, old: found.offset, new: offset }),
            None => self.fits.free(found.offset),
        }
        Ok(())
    }

    fn remove(&self, _access: Access, hash: u64, found: Found<'_>, journal: Option<&mut Journal>) {
        self.index.remove(hash, found.slot);
        match journal {
            Some(journal) => journal.push(Change::Removed { hash, old: found.offset }),
            None => self.fits.free(found.offset),
        }
    }

    #[inline(always)]
    fn wants_note(&self, _found: &Found<'_>) -> bool {
        false
    }

    fn note(&self, _access: Access, _found: Found<'_>, _tally: &mut Tally) {}

    #[inline(always)]
    fn after_write(&self, _access: Access, _tally: &mut Tally) {}

    fn settle(&self, journal: &mut Journal) {
        for change in journal.drain(..) {
            if let Change::Swapped { old, .. } | Change::Removed { old, .. } = change {
                self.fits.free(old);
            }
        }
    }

    fn take_back(&self, access: Access, journal: &mut Journal) {
        for change in journal.drain(..).rev() {
            let (Change::Entered { hash, .. }
            | Change::Swapped { hash, .. }
            | Change::Removed { hash, .. }) = change;
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
        // Each has a block, and each block an item, but while a batch is under way.
        self.fits.blocks()
    }

    fn entries(&self) -> (u64, u64) {
        self.index.entries()
    }

    fn bucket_count(&self) -> usize {
        self.index.buckets.main_count()
    }

    fn items_of<'m>(&'m self, bucket: usize, see: &mut dyn FnMut(u64, Item<'m>)) {
        for slot in self.index.buckets.chain(bucket) {
            let entry = slot.load(Relaxed);
            if entry != 0
                && let Some(item) = self.item(offset_of(entry))
            {
                see(entry, item);
            }
        }
    }

    fn add_memory(&self, memory: &mut BTreeMap<&'static str, u64>) {
        *memory.entry("items").or_default() += self.fits.bytes();
        *memory.entry("index").or_default() += self.index.buckets.bytes();
    }

    fn add_counters(&self, counters: &mut BTreeMap<&'static str, u64>) {
        *counters.entry("free_bytes").or_default() += self.fits.free_bytes();
        *counters.entry("spare_buckets_left").or_default() += self.index.spare_left() as u64;
    }

    fn damage(&self, name: &str) -> Vec<Damage> {
        let of = |offset, reason| Damage { file: name.to_owned(), offset, reason };
        let mut damage: Vec<_> =
            self.index.damage().map(|reason| of(0, reason)).into_iter().collect();
        let (main, spare) = self.index.entries();
        match self.fits.check() {
            Err((word, reason)) => damage.push(of(word as u64 * 8, reason)),
            Ok(blocks) if blocks != main + spare => {
                damage.push(of(0, format!("{blocks} blocks for {} entries", main + spare)));
            }
            Ok(_) => {}
        }
        damage
    }
}
