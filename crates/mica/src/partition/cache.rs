//! Cache mode: a circular log under a lossy index. The oldest items go for the newest.
//!
//! ```text
//! what a read, or a write in place, does by scheme
//!   fifo          nothing
//!   lru           appends the item again, unless it is the newest
//!   approximate   marks it if it is nearer to the head than to the tail
//!   clock         marks it
//! what is marked is appended again when the head comes, unmarked
//! ```
//!
//! An item that is appended again when it is read leaves its old place to the head, which is the price of
//! `lru`: room that holds nothing. To wait for the head costs none, since the place of what it moves is free
//! at that moment; but the head has to look the item up. So the thesis's approximation, which appends at
//! once what is nearer to the head, is put off here: the same items are appended again, half a turn later at
//! most.
//!
//! The sweep empties dangling entries, bucket by bucket, a whole turn in half the time in which
//! offsets repeat.
//!
//! Lock order under CRCW: a bucket's version, then the log's lock, then the version of another
//! bucket, which is not waited for.
//!
//! Source: thesis, section 5.3.3; the clock: Corbató, "A Paging Experiment with the Multics System",
//! 1968.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use siltstone_engine::Damage;

use super::{Change, Found, Journal, Memory};
use crate::counters::Tally;
use crate::index::lossy::LossyIndex;
use crate::index::{entry, offset_of};
use crate::item::{self, Item, NewItem};
use crate::mapping::Mapping;
use crate::request::Outcome;
use crate::space::log::CircularLog;
use crate::version::{self, Access};

/// Which items go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// The ones written first.
    Fifo,
    /// Any use renews.
    Lru,
    /// What was used in the older half stays for another turn.
    Approximate,
    /// What was used since it last came past the head stays for another turn.
    Clock,
}

/// Items that the head may spare for one append: what is read all the time must not hold up writes.
const CHANCES: usize = 16;

/// A partition's memory in cache mode.
pub(crate) struct Cache {
    log: CircularLog,
    index: LossyIndex,
    eviction: Eviction,
    /// Held for whatever changes words of the log, where writers are several.
    writer: Mutex<()>,
    /// Items from head to tail that can be found.
    live: AtomicU64,
    /// Words appended since the last bucket was due, times the number of buckets.
    debt: AtomicU64,
    /// Debt at which a bucket is due.
    debt_limit: u64,
    /// Buckets that are due.
    due: AtomicU64,
    /// Buckets swept so far.
    swept: AtomicU64,
}

impl Cache {
    pub(crate) fn new(
        words: usize,
        buckets: usize,
        mapping: Mapping,
        offset_bits: u32,
        eviction: Eviction,
    ) -> io::Result<Self> {
        let log = CircularLog::new(words, mapping, offset_bits)?;
        let debt_limit = log.ring().words() * log.ring().laps() / 2;
        Ok(Cache {
            log,
            index: LossyIndex::new(buckets, 0)?,
            eviction,
            writer: Mutex::new(()),
            live: AtomicU64::new(0),
            debt: AtomicU64::new(0),
            debt_limit,
            due: AtomicU64::new(0),
            swept: AtomicU64::new(0),
        })
    }

    /// Room for an item, of what the head meets; `own` is the bucket that is begun to be written.
    fn append(
        &self,
        access: Access,
        own: &AtomicU64,
        words: usize,
        tally: &mut Tally,
    ) -> (u64, &[AtomicU64]) {
        let mut chances = if self.has_marks() { CHANCES } else { 0 };
        while !self.log.has_room(words) {
            let (offset, header) = self.log.oldest();
            let size = item::size_of(header);
            let is_spared = chances > 0
                && item::is_used(header)
                && !item::is_dead(header)
                && self.spare(access, own, offset, size, tally);
            if is_spared {
                chances -= 1;
                continue;
            }
            self.log.pass(size);
            if !item::is_dead(header) {
                tally.evictions += 1;
                self.count(-1);
            }
        }
        self.claim(words)
    }

    /// Room at the tail, where there is enough.
    fn claim(&self, words: usize) -> (u64, &[AtomicU64]) {
        let (offset, place) = self.log.append(words);
        let debt = self.debt.load(Relaxed) + words as u64 * self.index.main_count() as u64;
        if debt >= self.debt_limit {
            let due = self.due.load(Relaxed) + debt / self.debt_limit;
            self.due.store(due, Relaxed);
        }
        self.debt.store(debt % self.debt_limit, Relaxed);
        (offset, place)
    }

    /// Moves the oldest item to the tail, unless it is in no index or its bucket is being written.
    /// `false` if nothing has changed.
    fn spare(
        &self,
        access: Access,
        own: &AtomicU64,
        offset: u64,
        size: usize,
        tally: &mut Tally,
    ) -> bool {
        let Some(item) = self.log.item(offset) else { return false };
        let hash = item.hash();
        let header = self.header(hash);
        let is_own = std::ptr::eq(header, own);
        if !is_own && !version::try_begin_write(header, access) {
            return false;
        }
        let slot = self.index.find(hash, None, |slot, at| (at == offset).then_some(slot));
        if let Some(slot) = slot {
            let copy = Held::of(&item);
            self.log.pass(size);
            if self.log.has_room(size) {
                let (offset, place) = self.claim(size);
                copy.write(place);
                slot.store(entry(hash, offset), Relaxed);
                tally.renewals += 1;
            } else {
                // Before the end of a plain log there may be less room than the item had.
                tally.evictions += 1;
                self.count(-1);
            }
        }
        if !is_own {
            version::end_write(header, access);
        }
        slot.is_some()
    }

    /// Notes that there are more items or fewer.
    fn count(&self, more: i64) {
        self.live.store(self.live.load(Relaxed).wrapping_add_signed(more), Relaxed);
    }

    /// Whether an item counts among the live ones: it is there, and the head has not passed it.
    fn is_live(&self, offset: u64) -> bool {
        self.log.ring().contains(offset) && self.log.ring().age(offset) <= self.log.used()
    }

    /// An item is replaced, removed or cannot be found any more.
    fn die(&self, offset: u64) {
        if self.is_live(offset)
            && let Some(item) = self.log.item(offset)
        {
            item.die();
            self.count(-1);
        }
    }

    fn lock(&self, access: Access) -> Option<parking_lot::MutexGuard<'_, ()>> {
        (access == Access::Crcw).then(|| self.writer.lock())
    }

    /// Whether the head spares what is marked.
    #[inline(always)]
    fn has_marks(&self) -> bool {
        matches!(self.eviction, Eviction::Approximate | Eviction::Clock)
    }

    /// Whether an item is to be appended again when it is used.
    #[inline(always)]
    fn renews(&self, found: &Found<'_>) -> bool {
        self.eviction == Eviction::Lru
            && self.log.ring().age(found.offset) > found.item.size() as u64
    }

    /// Whether an item is to be marked when it is used.
    #[inline(always)]
    fn marks(&self, found: &Found<'_>) -> bool {
        let is_due = match self.eviction {
            Eviction::Fifo | Eviction::Lru => false,
            Eviction::Approximate => {
                self.log.ring().age(found.offset) > self.log.ring().words() / 2
            }
            Eviction::Clock => true,
        };
        is_due && !found.item.is_used()
    }

    /// Empties what dangles in a bucket.
    fn sweep(&self, access: Access, tally: &mut Tally) {
        let number = self.swept.fetch_add(1, Relaxed) % self.index.main_count() as u64;
        let bucket = self.index.main(number as usize);
        let dangles = |slot: &&AtomicU64| {
            let entry = slot.load(Relaxed);
            entry != 0 && !self.log.ring().contains(offset_of(entry))
        };
        if bucket[1..].iter().any(|slot| dangles(&slot)) {
            version::begin_write(&bucket[0], access);
            for slot in bucket[1..].iter().filter(dangles) {
                slot.store(0, Relaxed);
                tally.swept += 1;
            }
            self.index.narrow(bucket);
            version::end_write(&bucket[0], access);
        }
    }
}

impl Memory for Cache {
    #[inline(always)]
    fn header(&self, hash: u64) -> &AtomicU64 {
        &self.index.of(hash)[0]
    }

    fn header_of(&self, bucket: usize) -> &AtomicU64 {
        &self.index.main(bucket)[0]
    }

    #[inline(always)]
    fn find<'m, T>(
        &'m self,
        hash: u64,
        seen: Option<u64>,
        is_it: impl FnMut(&'m AtomicU64, u64) -> Option<T>,
    ) -> Option<T> {
        self.index.find(hash, seen, is_it)
    }

    #[inline(always)]
    fn item(&self, offset: u64) -> Option<Item<'_>> {
        self.log.item(offset)
    }

    #[inline(always)]
    fn holds(&self, offset: u64) -> bool {
        self.log.ring().holds(offset)
    }

    fn put(
        &self,
        access: Access,
        found: Option<Found<'_>>,
        new: &NewItem<'_>,
        tally: &mut Tally,
        _journal: Option<&mut Journal>,
    ) -> Result<(), Outcome> {
        let words = new.words();
        if words > self.log.largest() {
            return Err(Outcome::TooLarge);
        }
        let _writer = self.lock(access);
        if let Some(found) = found.filter(|found| self.log.ring().contains(found.offset)) {
            let size = found.item.size();
            if words <= size && !self.renews(&found) {
                new.write(found.item.words(), size);
                // To be written is to be used; a new item has yet to be.
                if found.item.is_used() || self.marks(&found) {
                    self.log.item(found.offset).iter().for_each(Item::be_used);
                }
                return Ok(());
            }
            self.die(found.offset);
        }
        let (offset, place) = self.append(access, self.header(new.hash), words, tally);
        new.write(place, words);
        self.count(1);
        match found {
            Some(found) => found.slot.store(entry(new.hash, offset), Relaxed),
            None => {
                if let Some(oldest) = self.index.place(new.hash, offset, self.log.ring()) {
                    self.die(oldest);
                    tally.index_evictions += 1;
                }
            }
        }
        Ok(())
    }

    fn remove(&self, access: Access, _hash: u64, found: Found<'_>, _journal: Option<&mut Journal>) {
        let _writer = self.lock(access);
        self.die(found.offset);
        self.index.remove(found.slot);
    }

    #[inline(always)]
    fn wants_note(&self, found: &Found<'_>) -> bool {
        self.marks(found) || self.renews(found)
    }

    fn note(&self, access: Access, found: Found<'_>, tally: &mut Tally) {
        let _writer = self.lock(access);
        if !self.log.ring().contains(found.offset) {
            return;
        }
        if self.has_marks() {
            found.item.be_used();
            return;
        }
        let copy = Held::of(&found.item);
        let hash = found.item.hash();
        self.die(found.offset);
        let (offset, place) = self.append(access, self.header(hash), found.item.size(), tally);
        copy.write(place);
        self.count(1);
        found.slot.store(entry(hash, offset), Relaxed);
        tally.renewals += 1;
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

    fn settle(&self, _journal: &mut Journal) {}

    fn take_back(&self, _access: Access, journal: &mut Journal) {
        debug_assert!(journal.is_empty(), "nothing is refused in the middle of a batch");
        let _: Option<Change> = journal.pop();
    }

    #[inline(always)]
    fn prefetch_bucket(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    #[inline(always)]
    fn prefetch_items(&self, hash: u64) {
        self.index.find(hash, None, |_, offset| {
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

    fn items_of<'m>(&'m self, bucket: usize, see: &mut dyn FnMut(u64, Item<'m>)) {
        for slot in self.index.chain(bucket) {
            let entry = slot.load(Relaxed);
            if entry != 0
                && let Some(item) = self.log.item(offset_of(entry))
            {
                see(entry, item);
            }
        }
    }

    fn add_memory(&self, memory: &mut BTreeMap<&'static str, u64>) {
        *memory.entry("log").or_default() += self.log.bytes();
        *memory.entry("index").or_default() += self.index.bytes();
    }

    fn add_counters(&self, counters: &mut BTreeMap<&'static str, u64>) {
        *counters.entry("log_bytes_used").or_default() += self.log.used() * 8;
        *counters.entry("mirrored_logs").or_default() += u64::from(self.log.is_mirrored());
    }

    fn damage(&self, name: &str) -> Vec<Damage> {
        // From the head on, item by item, the tail must be met.
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

/// An item's words, held while they are moved: where they go to may be where they came from.
struct Held {
    few: [u64; Held::FEW],
    many: Vec<u64>,
}

impl Held {
    const FEW: usize = 32;

    /// The item as it is when it goes round once more.
    fn of(item: &Item<'_>) -> Self {
        let mut copy = Held { few: [0; Held::FEW], many: Vec::new() };
        let words = item.words();
        if words.len() > Held::FEW {
            copy.many.resize(words.len(), 0);
        }
        let to = if words.len() > Held::FEW { &mut copy.many[..] } else { &mut copy.few };
        for (to, word) in to.iter_mut().zip(words) {
            *to = word.load(Relaxed);
        }
        to[0] = item::renewed(to[0]);
        copy
    }

    fn write(&self, place: &[AtomicU64]) {
        let from = if self.many.is_empty() { &self.few[..] } else { &self.many };
        for (word, &value) in place.iter().zip(from) {
            word.store(value, Relaxed);
        }
    }
}
