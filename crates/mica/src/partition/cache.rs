//! Cache mode: a circular log under a lossy index. The oldest items go for the newest.
//!
//! ```text
//!               mark of an item that is read,       the head
//!               or written in place
//!   fifo          none                              takes what it meets
//!   clock         that it was used                  spares what is marked, and takes the mark off
//!   approximate   the same, if the item lies        the same
//!                 nearer to the head than to the tail
//!   lru           when: in quarters of turns        of the next four items takes the one that was
//!                                                   used least recently, and spares those before it
//! what is spared is appended again
//! ```
//!
//! The thesis appends again at once: with LRU whatever is read, with its approximation what lies nearer
//! to the head. That leaves the old place to the head, room that holds nothing until it comes, and costs
//! a tenth of an LRU's hits. Here all waits for the head: the place of what it moves is free at that
//! moment, so no read leaves anything empty or changes more than a word. In return the head has to look
//! the item up; and an item that it spares goes to the tail, though others were used since. So what is
//! exactly least recently used is known among the next few items only, and only by quarters: that hits as
//! often as a list in the order of use does, within 1 % (`repro run mica-reinsertion`).
//!
//! The sweep empties dangling entries, bucket by bucket, a whole turn in half the time in which
//! offsets repeat.
//!
//! Lock order under CRCW: a bucket's version, then the log's lock, then the version of another
//! bucket, which is not waited for.
//!
//! Source: thesis, section 5.3.3; the clock: Corbató, "A Paging Experiment with the Multics System",
//! 1968.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use siltstone_engine::Damage;

use super::{Change, Found, Journal, Memory};
use crate::counters::Tally;
use crate::index::lossy::{self, LossyIndex};
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
    /// The ones used least recently, of the next few.
    Lru,
    /// What was used in the older half stays for another turn.
    Approximate,
    /// What was used since it last came past the head stays for another turn.
    Clock,
}

/// Items that the head may spare for one append: what is read all the time must not hold up writes.
const CHANCES: usize = 16;
/// The mark of what was used, where it does not matter when.
const USED: u64 = 1;
/// Of so many items at the head `lru` takes the one that was used least recently.
const WINDOW: usize = 4;
/// Quarters since an item's last use beyond which `lru` counts no further: after a turn more its mark
/// would read as a new one.
const LONGEST: u64 = item::MARKS - 4;

/// A partition's memory in cache mode.
pub(crate) struct Cache {
    log: CircularLog,
    index: LossyIndex,
    eviction: Eviction,
    /// Held for whatever changes words of the log, where writers are several.
    writer: Mutex<()>,
    /// Items from head to tail that can be found.
    live: AtomicU64,
    /// Words that the tail has moved since the last bucket was due, times the number of buckets.
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
        // A bucket is swept once in a quarter of the laps after which offsets repeat. Less one, in which its
        // offsets are right, that leaves two of the fewest for what one write appends.
        let debt_limit = log.ring().words() * log.ring().laps() / 4;
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
        let (mut chances, mut victim) = (CHANCES, None);
        // Nothing is swept before the write ends, so it must not take the tail around.
        let mut most = self.log.largest();
        while !self.log.has_room(words) {
            let (offset, header) = self.log.oldest();
            let size = item::size_of(header);
            victim = victim.or_else(|| self.victim(chances));
            let goes = victim == Some(offset) || size > most;
            if !goes && !item::is_dead(header) && self.spare(access, own, offset, size, tally) {
                chances -= 1;
                most -= size;
                continue;
            }
            if goes {
                victim = None;
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
        let before = self.log.ring().tail();
        let (offset, place) = self.log.append(words);
        let moved = self.log.ring().age(before);
        let debt = self.debt.load(Relaxed) + moved * self.index.main_count() as u64;
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
        let bucket = self.index.of(hash);
        let header = &bucket[0];
        let is_own = std::ptr::eq(header, own);
        if !is_own && !version::try_begin_write(header, access) {
            return false;
        }
        let slot = self.index.find(bucket, hash, None, |slot, at| (at == offset).then_some(slot));
        if let Some(slot) = slot {
            let mark = if self.eviction == Eviction::Lru { item.mark() } else { 0 };
            let copy = Held::of(&item, mark);
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
    pub(super) fn is_live(&self, offset: u64) -> bool {
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

    /// The mark of an item that is used now.
    #[inline(always)]
    fn mark(&self, found: &Found<'_>) -> u64 {
        match self.eviction {
            Eviction::Fifo => 0,
            Eviction::Lru => self.time(),
            Eviction::Approximate if !self.is_older(found.offset) => found.item.mark(),
            Eviction::Approximate | Eviction::Clock => USED,
        }
    }

    /// Which item goes next; those before it, so many at most, are to be spared.
    fn victim(&self, most: usize) -> Option<u64> {
        let mut items = self.log.items().filter(|item| !item::is_dead(item.1)).take(most + 1);
        let victim = match self.eviction {
            Eviction::Fifo => items.next(),
            Eviction::Approximate | Eviction::Clock => {
                let mut last = None;
                let unused = items.find(|item| {
                    last = Some(*item);
                    item::mark_of(item.1) != USED
                });
                unused.or(last)
            }
            Eviction::Lru => {
                let time = self.time();
                let unused = |header| time.wrapping_sub(item::mark_of(header)) % item::MARKS;
                // Of several the first.
                items.take(WINDOW).min_by_key(|item| Reverse(unused(item.1).min(LONGEST)))
            }
        };
        victim.map(|item| item.0)
    }

    /// What time it is for marks: quarters of turns.
    #[inline(always)]
    fn time(&self) -> u64 {
        self.log.ring().quarters() % item::MARKS
    }

    /// Whether an item lies nearer to the head than to the tail.
    #[inline(always)]
    fn is_older(&self, offset: u64) -> bool {
        self.log.ring().age(offset) > self.log.ring().words() / 2
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
    type Bucket = [AtomicU64; lossy::WORDS];

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
        is_it: impl FnMut(&'m AtomicU64, u64) -> Option<T>,
    ) -> Option<T> {
        self.index.find(bucket, hash, seen, is_it)
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
            if words <= size {
                new.write(found.item.words(), size);
                // To be written is to be used.
                self.log
                    .item(found.offset)
                    .iter()
                    .for_each(|item| item.set_mark(self.mark(&found)));
                return Ok(());
            }
            self.die(found.offset);
        }
        let (offset, place) = self.append(access, &self.index.of(new.hash)[0], words, tally);
        new.write(place, words);
        if self.eviction == Eviction::Lru {
            // By the clock a new item has yet to be used.
            place[0].store(item::marked(place[0].load(Relaxed), self.time()), Relaxed);
        }
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
        self.mark(found) != found.item.mark()
    }

    fn note(&self, access: Access, found: Found<'_>, _tally: &mut Tally) {
        let _writer = self.lock(access);
        if self.log.ring().contains(found.offset) {
            found.item.set_mark(self.mark(&found));
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

    fn settle(&self, _journal: &mut Journal) {}

    fn take_back(&self, _access: Access, journal: &mut Journal) {
        debug_assert!(journal.is_empty(), "nothing is refused in the middle of a batch");
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

    /// The item as it is when it goes round once more, with this mark.
    fn of(item: &Item<'_>, mark: u64) -> Self {
        let mut copy = Held { few: [0; Held::FEW], many: Vec::new() };
        let words = item.words();
        if words.len() > Held::FEW {
            copy.many.resize(words.len(), 0);
        }
        let to = if words.len() > Held::FEW { &mut copy.many[..] } else { &mut copy.few };
        for (to, word) in to.iter_mut().zip(words) {
            *to = word.load(Relaxed);
        }
        to[0] = item::marked(to[0], mark);
        copy
    }

    fn write(&self, place: &[AtomicU64]) {
        let from = if self.many.is_empty() { &self.few[..] } else { &self.many };
        for (word, &value) in place.iter().zip(from) {
            word.store(value, Relaxed);
        }
    }
}
