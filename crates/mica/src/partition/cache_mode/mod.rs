//! Cache mode: a circular log with a lossy index. The oldest items are evicted for new ones.
//!
//! ```text
//!   head: evicts an item, or reinserts it at the tail          tail: appends new items
//!    ▼                                                          ▼
//!   │ oldest item │ … │ … │ … │ … │ … │ … │ … │ … │ newest item │ free words │
//! ```
//!
//! The [policy](Eviction) decides by access marks in the items which of them are reinserted.
//!
//! The thesis reinserts on each read: with LRU every item read, with its approximation those nearer
//! to the head. The old place then stays unused until the head reaches it, which costs a tenth of
//! an LRU's hits. Here reinsertion is deferred to the head: the old place is free at that moment,
//! and a read changes at most one word. In return, the head must look the item up, and a reinserted
//! item goes to the tail although others were used since. So the exact LRU order is known only
//! among the next few items, and by quarter laps; the hit ratio is within 1 % of an exact LRU list
//! (`repro run mica-reinsertion`).
//!
//! The sweep removes dangling entries, bucket by bucket; a full pass takes half the time in which
//! offsets repeat.
//!
//! Lock order under CRCW: a bucket's version, then the log's lock, then the version of another
//! bucket, which is only tried.
//!
//! Source: Lim, thesis, section 5.3.3.

mod eviction;
mod item_copy;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use siltstone_engine::Damage;

pub use self::eviction::Eviction;
use self::eviction::mark_time;
use self::item_copy::ItemCopy;
use super::{Change, Context, ItemRef, Journal, LazyClock, Memory};
use crate::counters::Tally;
use crate::index::lossy::{self, LossyIndex};
use crate::index::{entry, offset_of};
use crate::item::{self, Item, NewItem};
use crate::mapping::Mapping;
use crate::request::Outcome;
use crate::space::log::CircularLog;
use crate::version::{self, Access};

/// Maximum reinsertions per append, so that hot items do not delay writes.
const MAX_REINSERTIONS: usize = 16;

/// A partition's memory in cache mode.
pub(crate) struct CachePartition {
    log: CircularLog,
    index: LossyIndex,
    eviction: Eviction,
    /// Held for any change of the log's words, under CRCW.
    writer: Mutex<()>,
    /// Number of items between head and tail that can be found.
    live: AtomicU64,
    /// Words appended since the last bucket became due, times the number of buckets.
    sweep_debt: AtomicU64,
    /// A bucket is due when `sweep_debt` reaches this.
    sweep_debt_limit: u64,
    /// Number of buckets due.
    due: AtomicU64,
    /// Number of buckets swept so far.
    swept_buckets: AtomicU64,
}

impl CachePartition {
    pub(crate) fn new(
        words: usize,
        buckets: usize,
        mapping: Mapping,
        offset_bits: u32,
        eviction: Eviction,
    ) -> io::Result<Self> {
        let log = CircularLog::new(words, mapping, offset_bits)?;
        // Each bucket is swept once in a quarter of the laps after which offsets repeat. Minus one
        // lap, in which its offsets are valid, this leaves at least two laps for a write's appends.
        let sweep_debt_limit = log.ring().words() * log.ring().laps() / 4;
        Ok(CachePartition {
            log,
            index: LossyIndex::new(buckets, 0)?,
            eviction,
            writer: Mutex::new(()),
            live: AtomicU64::new(0),
            sweep_debt: AtomicU64::new(0),
            sweep_debt_limit,
            due: AtomicU64::new(0),
            swept_buckets: AtomicU64::new(0),
        })
    }

    /// Allocates space by evicting at the head; `own` is the bucket being written.
    fn append(
        &self,
        context: &Context<'_>,
        own: &AtomicU64,
        words: usize,
        tally: &mut Tally,
    ) -> (u64, &[AtomicU64]) {
        let (mut reinsertions_left, mut victim) = (MAX_REINSERTIONS, None);
        // There is no sweep before the write ends, so it must not append a whole lap.
        let mut max_words = self.log.max_item_words();
        while !self.log.has_room(words) {
            let (offset, header) = self.log.oldest();
            let size = item::size_of(header);
            victim = victim.or_else(|| self.eviction.victim(&self.log, reinsertions_left));
            let is_victim = victim == Some(offset) || size > max_words;
            if !is_victim
                && !item::is_dead(header)
                && self.reinsert(context.access, own, offset, size, tally)
            {
                reinsertions_left -= 1;
                max_words -= size;
                continue;
            }
            if is_victim {
                victim = None;
            }
            let is_expired = self.is_expired(offset, header, &context.now);
            self.log.advance_head(size);
            if !item::is_dead(header) {
                match is_expired {
                    true => tally.expired_entries_dropped += 1,
                    false => tally.evictions += 1,
                }
                self.add_live(-1);
            }
        }
        self.append_at_tail(words)
    }

    /// Allocates space at the tail, where there is enough.
    fn append_at_tail(&self, words: usize) -> (u64, &[AtomicU64]) {
        let before = self.log.ring().tail();
        let (offset, place) = self.log.append(words);
        let moved = self.log.ring().age(before);
        let sweep_debt = self.sweep_debt.load(Relaxed) + moved * self.index.main_count() as u64;
        if sweep_debt >= self.sweep_debt_limit {
            let due = self.due.load(Relaxed) + sweep_debt / self.sweep_debt_limit;
            self.due.store(due, Relaxed);
        }
        self.sweep_debt.store(sweep_debt % self.sweep_debt_limit, Relaxed);
        (offset, place)
    }

    /// Moves the oldest item to the tail. Returns `false`, without any change, if no entry leads to
    /// it or another writer is in its bucket.
    fn reinsert(
        &self,
        access: Access,
        own: &AtomicU64,
        offset: u64,
        size: usize,
        tally: &mut Tally,
    ) -> bool {
        let Some(item) = self.log.item(offset) else { return false };
        let hash = item.hash();
        let bucket = self.index.of(hash);
        let header = &bucket[0];
        let is_own = std::ptr::eq(header, own);
        if !is_own && !version::try_begin_write(header, access) {
            return false;
        }
        let slot = self.index.find(bucket, hash, None, |slot, at| (at == offset).then_some(slot));
        if let Some(slot) = slot {
            let mark = if self.eviction == Eviction::Lru { item.mark() } else { 0 };
            let copy = ItemCopy::of(&item, mark);
            self.log.advance_head(size);
            if self.log.has_room(size) {
                let (offset, place) = self.append_at_tail(size);
                copy.write(place);
                slot.store(entry(hash, offset), Relaxed);
                tally.reinsertions += 1;
            } else {
                // Before the end of a plain log there may be less room than the item had.
                tally.evictions += 1;
                self.add_live(-1);
            }
        }
        if !is_own {
            version::end_write(header, access);
        }
        slot.is_some()
    }

    /// Adds `delta` to the number of live items.
    fn add_live(&self, delta: i64) {
        self.live.store(self.live.load(Relaxed).wrapping_add_signed(delta), Relaxed);
    }

    /// Whether the item at `offset` is live: not overwritten, and not passed by the head.
    pub(super) fn is_live(&self, offset: u64) -> bool {
        self.log.ring().contains(offset) && self.log.ring().age(offset) <= self.log.used()
    }

    /// Whether the item at `offset`, with this header, has expired.
    fn is_expired(&self, offset: u64, header: u64, now: &LazyClock<'_>) -> bool {
        let expires_at = || self.log.item(offset).and_then(|item| item.meta().expires_at);
        item::may_expire(header) && now.is_past(expires_at())
    }

    /// Marks a replaced, removed or unreachable item as dead; returns whether it was live but for
    /// its expiry time.
    fn mark_dead(&self, offset: u64, now: &LazyClock<'_>) -> bool {
        let Some(item) = self.log.item(offset).filter(|_| self.is_live(offset)) else {
            return false;
        };
        item.mark_dead();
        self.add_live(-1);
        now.is_past(item.meta().expires_at)
    }

    fn lock(&self, access: Access) -> Option<parking_lot::MutexGuard<'_, ()>> {
        (access == Access::Crcw).then(|| self.writer.lock())
    }

    /// Removes the dangling entries of the next bucket.
    fn sweep(&self, access: Access, tally: &mut Tally) {
        let number = self.swept_buckets.fetch_add(1, Relaxed) % self.index.main_count() as u64;
        let bucket = self.index.main(number as usize);
        let is_dangling = |slot: &&AtomicU64| {
            let entry = slot.load(Relaxed);
            entry != 0 && !self.log.ring().contains(offset_of(entry))
        };
        if bucket[1..].iter().any(|slot| is_dangling(&slot)) {
            version::begin_write(&bucket[0], access);
            for slot in bucket[1..].iter().filter(is_dangling) {
                slot.store(0, Relaxed);
                tally.swept_entries += 1;
            }
            self.index.update_wide(bucket);
            version::end_write(&bucket[0], access);
        }
    }
}

impl Memory for CachePartition {
    type Bucket = [AtomicU64; lossy::BUCKET_WORDS];

    #[inline(always)]
    fn bucket(&self, hash: u64) -> &Self::Bucket {
        self.index.of(hash)
    }

    fn main(&self, number: usize) -> &Self::Bucket {
        self.index.main(number)
    }

    #[inline(always)]
    fn find<'m, T>(
        &'m self,
        bucket: &'m Self::Bucket,
        hash: u64,
        seen: Option<u64>,
        matches: impl FnMut(&'m AtomicU64, u64) -> Option<T>,
    ) -> Option<T> {
        self.index.find(bucket, hash, seen, matches)
    }

    #[inline(always)]
    fn item(&self, offset: u64) -> Option<Item<'_>> {
        self.log.item(offset)
    }

    #[inline(always)]
    fn is_intact(&self, offset: u64) -> bool {
        self.log.ring().is_intact(offset)
    }

    fn put(
        &self,
        context: &Context<'_>,
        found: Option<ItemRef<'_>>,
        new: &NewItem<'_>,
        tally: &mut Tally,
        _journal: Option<&mut Journal>,
    ) -> Result<(), Outcome> {
        let words = new.words();
        if words > self.log.max_item_words() {
            return Err(Outcome::TooLarge);
        }
        let _writer = self.lock(context.access);
        if let Some(found) = found.filter(|found| self.log.ring().contains(found.offset)) {
            let size = found.item.size();
            if words <= size {
                let is_expired =
                    self.is_live(found.offset) && context.now.is_past(found.item.meta().expires_at);
                tally.expired_entries_dropped += u64::from(is_expired);
                new.write(found.item.words(), size);
                // A write counts as a use.
                let mark = self.eviction.access_mark(&self.log, &found);
                self.log.item(found.offset).iter().for_each(|item| item.set_mark(mark));
                return Ok(());
            }
            let is_expired = self.mark_dead(found.offset, &context.now);
            tally.expired_entries_dropped += u64::from(is_expired);
        }
        let (offset, place) = self.append(context, &self.index.of(new.hash)[0], words, tally);
        new.write(place, words);
        if self.eviction == Eviction::Lru {
            // For `clock` and `approximate` a new item counts as unused.
            place[0].store(item::with_mark(place[0].load(Relaxed), mark_time(&self.log)), Relaxed);
        }
        self.add_live(1);
        match found {
            Some(found) => found.slot.store(entry(new.hash, offset), Relaxed),
            None => {
                if let Some(oldest) = self.index.insert(new.hash, offset, self.log.ring()) {
                    match self.mark_dead(oldest, &context.now) {
                        true => tally.expired_entries_dropped += 1,
                        false => tally.index_evictions += 1,
                    }
                }
            }
        }
        Ok(())
    }

    fn remove(
        &self,
        context: &Context<'_>,
        _hash: u64,
        found: ItemRef<'_>,
        tally: &mut Tally,
        _journal: Option<&mut Journal>,
    ) {
        let _writer = self.lock(context.access);
        let is_expired = self.mark_dead(found.offset, &context.now);
        tally.expired_entries_dropped += u64::from(is_expired);
        self.index.remove(found.slot);
    }

    #[inline(always)]
    fn needs_access_mark(&self, found: &ItemRef<'_>) -> bool {
        self.eviction.access_mark(&self.log, found) != found.item.mark()
    }

    fn mark_access(&self, access: Access, found: ItemRef<'_>, _tally: &mut Tally) {
        let _writer = self.lock(access);
        if self.log.ring().contains(found.offset) {
            found.item.set_mark(self.eviction.access_mark(&self.log, &found));
        }
    }

    #[inline(always)]
    fn after_write(&self, access: Access, tally: &mut Tally) {
        if self.due.load(Relaxed) > 0 {
            let due = {
                let _writer = self.lock(access);
                let due = self.due.load(Relaxed);
                self.due.store(0, Relaxed);
                due.min(self.index.main_count() as u64)
            };
            (0..due).for_each(|_| self.sweep(access, tally));
        }
    }

    fn commit(&self, _journal: &mut Journal) {}

    fn roll_back(&self, _access: Access, journal: &mut Journal) {
        debug_assert!(journal.is_empty(), "no request fails in the middle of a batch");
        let _: Option<Change> = journal.pop();
    }

    #[inline(always)]
    fn prefetch_bucket(&self, bucket: &Self::Bucket) {
        self.index.prefetch(bucket);
    }

    #[inline(always)]
    fn prefetch_items(&self, bucket: &Self::Bucket, hash: u64) {
        self.index.find(bucket, hash, None, |_, offset| {
            self.log.prefetch(offset);
            None::<()>
        });
    }

    fn items(&self) -> u64 {
        self.live.load(Relaxed)
    }

    fn entries(&self) -> (u64, u64) {
        (self.items(), 0)
    }

    fn bucket_count(&self) -> usize {
        self.index.main_count()
    }

    fn items_of<'m>(&'m self, bucket: usize, visit: &mut dyn FnMut(u64, Item<'m>)) {
        for slot in self.index.chain(bucket) {
            let entry = slot.load(Relaxed);
            if entry != 0
                && let Some(item) = self.log.item(offset_of(entry))
            {
                visit(entry, item);
            }
        }
    }

    fn add_memory_stats(&self, memory: &mut BTreeMap<&'static str, u64>) {
        *memory.entry("log").or_default() += self.log.bytes();
        *memory.entry("index").or_default() += self.index.bytes();
    }

    fn add_counters(&self, counters: &mut BTreeMap<&'static str, u64>) {
        *counters.entry("log_bytes_used").or_default() += self.log.used() * 8;
        *counters.entry("mirrored_logs").or_default() += u64::from(self.log.is_mirrored());
    }

    fn damage(&self, name: &str) -> Vec<Damage> {
        // Following the items from the head must lead to the tail.
        let ring = self.log.ring();
        let (mut at, mut left) = (self.log.oldest().0, self.log.used());
        while left > 0 {
            let size = self.log.size_at(at) as u64;
            if size == 0 || size > left {
                let reason = format!("an item of {size} words, {left} words before the tail");
                return vec![Damage {
                    file: name.to_owned(),
                    offset: ring.position(at) * 8,
                    reason,
                }];
            }
            at = ring.after(at, size);
            left -= size;
        }
        Vec::new()
    }
}
