//! Cache mode: a circular log with a lossy index. The oldest items are evicted for new ones.
//!
//! ```text
//!   head: evicts an item, or reinserts it at the tail          tail: appends new items
//!    ▼                                                          ▼
//!   │ oldest item │ … │ … │ … │ … │ … │ … │ … │ … │ newest item │ free words │
//! ```
//!
//! The [policy](Eviction) decides by access marks in the items which of them are reinserted. One
//! policy has a second, smaller log for new items ([`logs`]).
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
mod logs;
mod room;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use siltstone_engine::Damage;

pub use self::eviction::Eviction;
use self::eviction::mark_time;
use self::logs::Logs;
use super::{Change, Context, ItemRef, Journal, LazyClock, Memory};
use crate::counters::Tally;
use crate::index::lossy::{self, LossyIndex};
use crate::index::{entry, offset_of};
use crate::item::{self, Item, NewItem};
use crate::mapping::Mapping;
use crate::request::Outcome;
use crate::space::log::CircularLog;
use crate::version::{self, Access};

/// A partition's memory in cache mode.
pub(crate) struct CachePartition {
    pub(super) logs: Logs,
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
        let logs = Logs::new(words, mapping, offset_bits, eviction)?;
        // Each bucket is swept once in a quarter of the laps after which offsets repeat. Minus one
        // lap, in which its offsets are valid, this leaves at least two laps for a write's appends.
        let sweep_debt_limit = logs.words_until_offsets_repeat() / 4;
        Ok(CachePartition {
            logs,
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

    /// Adds `delta` to the number of live items.
    fn add_live(&self, delta: i64) {
        self.live.store(self.live.load(Relaxed).wrapping_add_signed(delta), Relaxed);
    }

    /// Whether the item at `offset`, with this header, has expired.
    fn is_expired(&self, offset: u64, header: u64, now: &LazyClock<'_>) -> bool {
        let expires_at = || self.logs.item(offset).and_then(|item| item.meta().expires_at);
        item::may_expire(header) && now.is_past(expires_at())
    }

    /// Marks a replaced, removed or unreachable item as dead; returns whether it was live but for
    /// its expiry time.
    fn mark_dead(&self, offset: u64, now: &LazyClock<'_>) -> bool {
        let Some(item) = self.logs.item(offset).filter(|_| self.logs.is_live(offset)) else {
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
            entry != 0 && !self.logs.contains(offset_of(entry))
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
        self.logs.item(offset)
    }

    #[inline(always)]
    fn is_intact(&self, offset: u64) -> bool {
        self.logs.is_intact(offset)
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
        if words > self.logs.main().max_item_words() {
            return Err(Outcome::TooLarge);
        }
        let _writer = self.lock(context.access);
        if let Some(found) = found.filter(|found| self.logs.contains(found.offset)) {
            let size = found.item.size();
            if words <= size {
                let is_expired = self.logs.is_live(found.offset)
                    && context.now.is_past(found.item.meta().expires_at);
                tally.expired_entries_dropped += u64::from(is_expired);
                new.write(found.item.words(), size);
                // A write counts as a use.
                let mark = self.eviction.access_mark(self.logs.main(), &found);
                self.logs.item(found.offset).iter().for_each(|item| item.set_mark(mark));
                return Ok(());
            }
            let is_expired = self.mark_dead(found.offset, &context.now);
            tally.expired_entries_dropped += u64::from(is_expired);
        }
        let bucket = self.index.of(new.hash);
        // The entry to reuse: the old one, or a ghost.
        let ghost = || {
            self.logs.probation()?;
            let is_ghost = |slot, at| self.logs.is_ghost(at).then_some(slot);
            self.index.find(bucket, new.hash, None, is_ghost)
        };
        let slot = found.map(|found| found.slot).or_else(ghost);
        let (offset, place) =
            self.append(context, &bucket[0], words, self.queue_for(words, slot.is_some()), tally);
        new.write(place, words);
        if self.eviction == Eviction::Lru {
            // For the others a new item counts as unused.
            let time = mark_time(self.logs.main());
            place[0].store(item::with_mark(place[0].load(Relaxed), time), Relaxed);
        }
        self.add_live(1);
        let Some(slot) = slot else {
            let order = |offset| self.logs.replacement_order(offset);
            if let Some(oldest) = self.index.insert(new.hash, offset, order) {
                match self.mark_dead(oldest, &context.now) {
                    true => tally.expired_entries_dropped += 1,
                    false => tally.index_evictions += 1,
                }
            }
            return Ok(());
        };
        slot.store(entry(new.hash, offset), Relaxed);
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
        self.eviction.access_mark(self.logs.main(), found) != found.item.mark()
    }

    fn mark_access(&self, access: Access, found: ItemRef<'_>, _tally: &mut Tally) {
        let _writer = self.lock(access);
        if self.logs.contains(found.offset) {
            found.item.set_mark(self.eviction.access_mark(self.logs.main(), &found));
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
            self.logs.prefetch(offset);
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
                && let Some(item) = self.logs.item(offset_of(entry))
            {
                visit(entry, item);
            }
        }
    }

    fn add_memory_stats(&self, memory: &mut BTreeMap<&'static str, u64>) {
        *memory.entry("log").or_default() += self.logs.all().map(CircularLog::bytes).sum::<u64>();
        *memory.entry("index").or_default() += self.index.bytes();
    }

    fn add_counters(&self, counters: &mut BTreeMap<&'static str, u64>) {
        for log in self.logs.all() {
            *counters.entry("log_bytes_used").or_default() += log.used() * 8;
            *counters.entry("mirrored_logs").or_default() += u64::from(log.is_mirrored());
        }
    }

    fn damage(&self, name: &str) -> Vec<Damage> {
        self.logs.all().filter_map(|log| log.damage(name)).collect()
    }
}
