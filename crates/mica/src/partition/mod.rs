//! A partition: a share of the keys, and all operations on them.
//!
//! ```text
//! GET    erew        find ─ copy the value ─ set the access mark
//!        crew, crcw  version even? ─ find ─ copy ─ version and tail unchanged? ─ otherwise retry
//! PUT …  all         begin write ─ find ─ apply ─ in place, or moved with its entry ─ end
//! ```
//!
//! This module has the code common to cache and store mode. The differences are behind [`Memory`],
//! which [`CachePartition`](cache_mode::CachePartition) and
//! [`StorePartition`](store_mode::StorePartition) implement.
//!
//! Invariant: an item is returned only after its whole key was compared and, with concurrent
//! writers, after version and tail were found unchanged.
//!
//! Source: Lim, thesis, sections 5.3.1 and 5.3.3.

pub(crate) mod cache_mode;
pub(crate) mod store_mode;
mod write;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use siltstone_engine::{Clock, Damage, Timestamp};

use crate::counters::Tally;
use crate::index::offset_of;
use crate::item::{Item, NewItem};
use crate::request::{Answer, Outcome, Output, Request};
use crate::sync::Lock;
use crate::version::{self, Access};

/// An item with its index entry.
#[derive(Clone, Copy)]
pub(crate) struct ItemRef<'m> {
    pub(crate) slot: &'m AtomicU64,
    pub(crate) offset: u64,
    pub(crate) item: Item<'m>,
}

/// A reversible change: blocks are not freed before the commit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// An entry was inserted.
    Insert { hash: u64, new: u64 },
    /// An entry leads to another block.
    Replace { hash: u64, old: u64, new: u64 },
    /// An entry was removed.
    Remove { hash: u64, old: u64 },
}

/// The changes of a batch, in order.
pub(crate) type Journal = Vec<Change>;

/// Index and items of a partition. Methods that write require that the hash's bucket is being
/// written ([`version::begin_write`]).
pub(crate) trait Memory: Send + Sync {
    /// A main bucket. Its first word has the version for its chain.
    type Bucket: AsRef<[AtomicU64]>;

    /// The main bucket of a hash, computed once for all stages of a request.
    fn bucket(&self, hash: u64) -> &Self::Bucket;

    /// The main bucket with this number.
    fn main(&self, number: usize) -> &Self::Bucket;

    /// The word with the version.
    #[inline(always)]
    fn header(bucket: &Self::Bucket) -> &AtomicU64 {
        &bucket.as_ref()[0]
    }

    /// Finds an entry with the hash's tag, as `Buckets::find`.
    fn find<'m, T>(
        &'m self,
        bucket: &'m Self::Bucket,
        hash: u64,
        seen: Option<u64>,
        matches: impl FnMut(&'m AtomicU64, u64) -> Option<T>,
    ) -> Option<T>;

    /// The item at an offset, unless it was overwritten.
    fn item(&self, offset: u64) -> Option<Item<'_>>;

    /// Whether the item read at an offset was not overwritten meanwhile.
    fn is_intact(&self, offset: u64) -> bool;

    /// Stores an item, replacing `found`. The change is reversible if there is a journal.
    fn put(
        &self,
        context: &Context<'_>,
        found: Option<ItemRef<'_>>,
        new: &NewItem<'_>,
        tally: &mut Tally,
        journal: Option<&mut Journal>,
    ) -> Result<(), Outcome>;

    /// Removes an item.
    fn remove(
        &self,
        context: &Context<'_>,
        hash: u64,
        found: ItemRef<'_>,
        tally: &mut Tally,
        journal: Option<&mut Journal>,
    );

    /// Whether reading this item must set its access mark, which takes a write.
    fn needs_access_mark(&self, found: &ItemRef<'_>) -> bool;

    /// Sets the access mark of an item that was read.
    fn mark_access(&self, access: Access, found: ItemRef<'_>, tally: &mut Tally);

    /// Work after a write, when no bucket is being written.
    fn after_write(&self, access: Access, tally: &mut Tally);

    /// Frees the blocks that a batch has replaced.
    fn commit(&self, journal: &mut Journal);

    /// Undoes the changes of a batch.
    fn roll_back(&self, access: Access, journal: &mut Journal);

    /// Prefetches a bucket.
    fn prefetch_bucket(&self, bucket: &Self::Bucket);

    /// Prefetches the items of a bucket that a hash may lead to.
    fn prefetch_items(&self, bucket: &Self::Bucket, hash: u64);

    /// Number of stored items, including expired ones.
    fn items(&self) -> u64;

    /// Number of entries in main and in spare buckets. Scans the index in store mode.
    fn entries(&self) -> (u64, u64);

    /// Number of main buckets.
    fn bucket_count(&self) -> usize;

    /// Visits the live items of a bucket. Requires that there are no concurrent writers.
    fn items_of<'m>(&'m self, bucket: usize, visit: &mut dyn FnMut(u64, Item<'m>));

    /// Adds memory by structure, in bytes.
    fn add_memory_stats(&self, memory: &mut BTreeMap<&'static str, u64>);

    /// Adds the counters of this mode.
    fn add_counters(&self, counters: &mut BTreeMap<&'static str, u64>);

    /// Reports inconsistencies. Requires that there are no concurrent writers.
    fn damage(&self, name: &str) -> Vec<Damage>;
}

/// Settings for the operations of a burst.
pub(crate) struct Context<'c> {
    pub(crate) access: Access,
    pub(crate) now: LazyClock<'c>,
    pub(crate) has_cas: bool,
    pub(crate) max_value: usize,
    /// Whether reads without a lock set access marks.
    pub(crate) marks_reads: bool,
}

/// The current time, read once and only if an item has an expiry time.
pub(crate) struct LazyClock<'c> {
    clock: &'c dyn Clock,
    now: std::cell::OnceCell<Timestamp>,
}

impl<'c> LazyClock<'c> {
    pub(crate) fn new(clock: &'c dyn Clock) -> Self {
        LazyClock { clock, now: std::cell::OnceCell::new() }
    }

    /// Whether the expiry time has passed.
    #[inline]
    pub(crate) fn is_past(&self, expires_at: Option<Timestamp>) -> bool {
        expires_at.is_some_and(|at| at <= *self.now.get_or_init(|| self.clock.now()))
    }
}

/// A partition.
pub(crate) struct Partition<M> {
    pub(crate) memory: M,
    /// Excludes all other operations under EREW, other writers under CREW.
    pub(crate) lock: Lock,
    /// The next CAS version.
    next_cas: AtomicU64,
}

impl<M: Memory> Partition<M> {
    pub(crate) fn new(memory: M) -> Self {
        Partition { memory, lock: Lock::default(), next_cas: AtomicU64::new(1) }
    }

    /// Finds the item of a key.
    #[inline(always)]
    fn find<'m>(
        &'m self,
        bucket: &'m M::Bucket,
        hash: u64,
        key: &[u8],
        seen: Option<u64>,
    ) -> Option<ItemRef<'m>> {
        self.memory.find(bucket, hash, seen, |slot, offset| {
            let item = self.memory.item(offset)?;
            item.is_of(hash, key).then_some(ItemRef { slot, offset, item })
        })
    }

    /// Looks a key up. Under EREW the caller holds the lock.
    #[inline]
    pub(crate) fn get(
        &self,
        number: usize,
        request: &Request<'_>,
        bucket: &M::Bucket,
        context: &Context<'_>,
        output: &mut impl Output,
        tally: &mut Tally,
    ) -> Answer {
        tally.gets += 1;
        let answer = match context.access {
            Access::Erew => self.get_exclusive(number, request, bucket, context, output, tally),
            _ => self.get_optimistic(number, request, bucket, context, output, tally),
        };
        tally.gets_found += u64::from(answer.outcome == Outcome::Found);
        answer
    }

    #[inline(always)]
    fn get_exclusive(
        &self,
        number: usize,
        request: &Request<'_>,
        bucket: &M::Bucket,
        context: &Context<'_>,
        output: &mut impl Output,
        tally: &mut Tally,
    ) -> Answer {
        let Some(found) = self.find(bucket, request.hash, request.key, None) else {
            return Answer::default();
        };
        let answer = read(number, &found.item, context, output);
        if answer.outcome == Outcome::Found && self.memory.needs_access_mark(&found) {
            self.memory.mark_access(context.access, found, tally);
            self.memory.after_write(context.access, tally);
        }
        answer
    }

    #[inline(always)]
    fn get_optimistic(
        &self,
        number: usize,
        request: &Request<'_>,
        bucket: &M::Bucket,
        context: &Context<'_>,
        output: &mut impl Output,
        tally: &mut Tally,
    ) -> Answer {
        let header = M::header(bucket);
        loop {
            let seen = version::begin_read(header);
            let found = self.find(bucket, request.hash, request.key, Some(seen));
            let answer = match &found {
                None => Answer::default(),
                Some(found) => read(number, &found.item, context, output),
            };
            let is_intact = found.is_none_or(|found| self.memory.is_intact(found.offset));
            if is_intact && version::is_unchanged(header, seen) {
                let notes = context.marks_reads && answer.outcome == Outcome::Found;
                if notes && found.is_some_and(|found| self.memory.needs_access_mark(&found)) {
                    self.try_mark_access(request, bucket, context, tally);
                }
                return answer;
            }
            tally.read_retries += 1;
        }
    }

    /// Atomically visits the unexpired keys of a bucket, concurrently with other operations.
    pub(crate) fn keys_of(
        &self,
        bucket: usize,
        context: &Context<'_>,
        mut visit: impl FnMut(Vec<u8>),
    ) {
        let header = M::header(self.memory.main(bucket));
        // With the lock there is no other writer, so the version need not change.
        let lock = (context.access != Access::Crcw).then(|| self.lock.lock());
        let access = if lock.is_some() { Access::Erew } else { Access::Crcw };
        version::begin_write(header, access);
        self.memory.items_of(bucket, &mut |entry, item| {
            let (key, is_past) = (item.key(), context.now.is_past(item.meta().expires_at));
            // Writers of other buckets may overwrite the item meanwhile.
            if !is_past && self.memory.is_intact(offset_of(entry)) {
                visit(key);
            }
        });
        version::end_write(header, access);
        drop(lock);
    }

    /// Sets the access mark after a read without a lock; skipped if it would have to wait.
    fn try_mark_access(
        &self,
        request: &Request<'_>,
        bucket: &M::Bucket,
        context: &Context<'_>,
        tally: &mut Tally,
    ) {
        let lock = (context.access == Access::Crew).then(|| self.lock.try_lock());
        if lock.as_ref().is_some_and(Option::is_none) {
            return;
        }
        let header = M::header(bucket);
        if version::try_begin_write(header, context.access) {
            let found = self.find(bucket, request.hash, request.key, None);
            if let Some(found) = found.filter(|found| self.memory.needs_access_mark(found)) {
                self.memory.mark_access(context.access, found, tally);
            }
            version::end_write(header, context.access);
            self.memory.after_write(context.access, tally);
        }
    }
}

/// Copies the value of an item, unless it has expired.
#[inline(always)]
fn read(number: usize, item: &Item<'_>, context: &Context<'_>, output: &mut impl Output) -> Answer {
    let meta = item.meta();
    if context.now.is_past(meta.expires_at) {
        return Answer::default();
    }
    let value_len = item.value_len();
    let Some(room) = output.room(number, value_len) else {
        return Answer { outcome: Outcome::NoRoom, value_len, meta, number: 0 };
    };
    item.copy_value(room);
    Answer { outcome: Outcome::Found, value_len, meta, number: 0 }
}

#[cfg(test)]
mod tests;
