//! A partition: its share of the keys, and every operation on them.
//!
//! ```text
//! GET    erew        find ─ copy the value ─ note that it was read
//!        crew, crcw  version even? ─ find ─ copy ─ tail and version as they were? ─ else again
//! PUT …  all         begin to write ─ find ─ decide ─ in place, or anew and change the entry ─ end
//! ```
//!
//! What is common to cache and store mode is here; where they differ is behind [`Memory`], which
//! [`Cache`](cache::Cache) and [`Keep`](keep::Keep) have in their own ways.
//!
//! Invariant: an item is only ever answered for after its whole key was compared, and, where others
//! may write, after the version and the log's tail have been found as they were before.
//!
//! Source: thesis, sections 5.3.1 and 5.3.3.

pub(crate) mod cache;
pub(crate) mod keep;
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

/// Where an item was found.
#[derive(Clone, Copy)]
pub(crate) struct Found<'m> {
    pub(crate) slot: &'m AtomicU64,
    pub(crate) offset: u64,
    pub(crate) item: Item<'m>,
}

/// A change that can be taken back: blocks stay as they were until it is settled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// An entry came to be.
    Entered { hash: u64, new: u64 },
    /// An entry names another block.
    Swapped { hash: u64, old: u64, new: u64 },
    /// An entry went.
    Removed { hash: u64, old: u64 },
}

/// The changes of a batch, in order.
pub(crate) type Journal = Vec<Change>;

/// Index and items of a partition. Methods that write ask that the bucket of the hash is begun to be
/// written.
pub(crate) trait Memory: Send + Sync {
    /// A main bucket. Its first word has the version that stands for its chain.
    type Bucket: AsRef<[AtomicU64]>;

    /// The main bucket of a hash: computed once for all stages of a request.
    fn bucket(&self, hash: u64) -> &Self::Bucket;

    /// The main bucket of this number.
    fn main(&self, number: usize) -> &Self::Bucket;

    /// The word with the version.
    #[inline(always)]
    fn header(bucket: &Self::Bucket) -> &AtomicU64 {
        &bucket.as_ref()[0]
    }

    /// Asks about entries with the hash's tag, as `Buckets::find`.
    fn find<'m, T>(
        &'m self,
        bucket: &'m Self::Bucket,
        hash: u64,
        seen: Option<u64>,
        is_it: impl FnMut(&'m AtomicU64, u64) -> Option<T>,
    ) -> Option<T>;

    /// The item at an offset, unless it is gone.
    fn item(&self, offset: u64) -> Option<Item<'_>>;

    /// Whether what was read at an offset was there all the time.
    fn holds(&self, offset: u64) -> bool;

    /// Stores an item, in the place of the one found. With a journal the change can be taken back.
    fn put(
        &self,
        access: Access,
        found: Option<Found<'_>>,
        new: &NewItem<'_>,
        tally: &mut Tally,
        journal: Option<&mut Journal>,
    ) -> Result<(), Outcome>;

    /// Removes what was found.
    fn remove(&self, access: Access, hash: u64, found: Found<'_>, journal: Option<&mut Journal>);

    /// Whether an item that is read now has to be noted: a write is only begun if it does.
    fn wants_note(&self, found: &Found<'_>) -> bool;

    /// Notes that an item was read.
    fn note(&self, access: Access, found: Found<'_>, tally: &mut Tally);

    /// What is to be done behind a write, with no bucket begun.
    fn after_write(&self, access: Access, tally: &mut Tally);

    /// Frees what a batch has replaced.
    fn settle(&self, journal: &mut Journal);

    /// Takes a batch's changes back.
    fn take_back(&self, access: Access, journal: &mut Journal);

    /// Fetches a bucket.
    fn prefetch_bucket(&self, bucket: &Self::Bucket);

    /// Fetches the items that a bucket leads to by a hash.
    fn prefetch_items(&self, bucket: &Self::Bucket, hash: u64);

    /// Items that are stored, those that have expired among them.
    fn items(&self) -> u64;

    /// Entries in main buckets and in spare ones. Walks over the index in store mode.
    fn entries(&self) -> (u64, u64);

    /// Main buckets.
    fn bucket_count(&self) -> usize;

    /// The items of a bucket that can be found. Nobody writes meanwhile.
    fn items_of<'m>(&'m self, bucket: usize, see: &mut dyn FnMut(u64, Item<'m>));

    /// Bytes of memory by structure.
    fn add_memory(&self, memory: &mut BTreeMap<&'static str, u64>);

    /// Counters and sizes that this kind of memory has.
    fn add_counters(&self, counters: &mut BTreeMap<&'static str, u64>);

    /// What does not hold of the structures. Nobody writes meanwhile.
    fn damage(&self, name: &str) -> Vec<Damage>;
}

/// How operations are to be done.
pub(crate) struct Context<'c> {
    pub(crate) access: Access,
    pub(crate) now: Now<'c>,
    pub(crate) keeps_stamps: bool,
    pub(crate) max_value: usize,
    /// Whether reads are noted for eviction although they needed no lock.
    pub(crate) notes_reads: bool,
}

/// What time it is, asked once and only if something expires.
pub(crate) struct Now<'c> {
    clock: &'c dyn Clock,
    now: std::cell::OnceCell<Timestamp>,
}

impl<'c> Now<'c> {
    pub(crate) fn new(clock: &'c dyn Clock) -> Self {
        Now { clock, now: std::cell::OnceCell::new() }
    }

    /// Whether something that expires then has expired.
    #[inline]
    pub(crate) fn is_past(&self, expires_at: Option<Timestamp>) -> bool {
        expires_at.is_some_and(|at| at <= *self.now.get_or_init(|| self.clock.now()))
    }
}

/// A partition.
pub(crate) struct Partition<M> {
    pub(crate) memory: M,
    /// Excludes others: all of them under EREW, writers under CREW.
    pub(crate) lock: Lock,
    stamp: AtomicU64,
}

impl<M: Memory> Partition<M> {
    pub(crate) fn new(memory: M) -> Self {
        Partition { memory, lock: Lock::default(), stamp: AtomicU64::new(1) }
    }

    /// The item of a key.
    #[inline(always)]
    fn find<'m>(
        &'m self,
        bucket: &'m M::Bucket,
        hash: u64,
        key: &[u8],
        seen: Option<u64>,
    ) -> Option<Found<'m>> {
        self.memory.find(bucket, hash, seen, |slot, offset| {
            let item = self.memory.item(offset)?;
            item.is_of(hash, key).then_some(Found { slot, offset, item })
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
            Access::Erew => self.get_alone(number, request, bucket, context, output, tally),
            _ => self.get_among_writers(number, request, bucket, context, output, tally),
        };
        tally.gets_found += u64::from(answer.outcome == Outcome::Found);
        answer
    }

    #[inline(always)]
    fn get_alone(
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
        if answer.outcome == Outcome::Found && self.memory.wants_note(&found) {
            self.memory.note(context.access, found, tally);
            self.memory.after_write(context.access, tally);
        }
        answer
    }

    #[inline(always)]
    fn get_among_writers(
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
            let held = found.is_none_or(|found| self.memory.holds(found.offset));
            if held && version::is_still(header, seen) {
                let notes = context.notes_reads && answer.outcome == Outcome::Found;
                if notes && found.is_some_and(|found| self.memory.wants_note(&found)) {
                    self.note_read(request, bucket, context, tally);
                }
                return answer;
            }
            tally.retries += 1;
        }
    }

    /// Shows the keys of a bucket's items that have not expired, as of one moment, beside all else that goes on.
    pub(crate) fn keys_of(
        &self,
        bucket: usize,
        context: &Context<'_>,
        mut see: impl FnMut(Vec<u8>),
    ) {
        let header = M::header(self.memory.main(bucket));
        // Who holds the lock is the only writer, and has no version to change.
        let lock = (context.access != Access::Crcw).then(|| self.lock.lock());
        let access = if lock.is_some() { Access::Erew } else { Access::Crcw };
        version::begin_write(header, access);
        self.memory.items_of(bucket, &mut |entry, item| {
            let (key, is_past) = (item.key(), context.now.is_past(item.meta().expires_at));
            // Writers of other buckets may move the log's head meanwhile.
            if !is_past && self.memory.holds(offset_of(entry)) {
                see(key);
            }
        });
        version::end_write(header, access);
        drop(lock);
    }

    /// Notes a read that was done without a lock, as a write of its own; not if it had to wait.
    fn note_read(
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
            if let Some(found) = found.filter(|found| self.memory.wants_note(found)) {
                self.memory.note(context.access, found, tally);
            }
            version::end_write(header, context.access);
            self.memory.after_write(context.access, tally);
        }
    }
}

/// Copies an item out, unless it has expired.
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
