//! Space for a new item: evicts what the heads of the logs reach, or moves it.
//!
//! ```text
//!   put ─▶ main has free space? ───────────▶ append to main
//!        │ key was evicted from probation?      main full: its head reinserts items by the policy,
//!        │ item is too large for probation?     and evicts the first that is not to be kept
//!        ▼
//!        append to probation
//!          full: its head moves a used item to main, and evicts another
//! ```
//!
//! A write moves at most [`MAX_MOVES`] items, so that used items do not delay it; then they are
//! evicted too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::eviction::USED;
use super::item_copy::ItemCopy;
use super::logs::{Logs, Queue};
use super::{CachePartition, Context, Eviction};
use crate::counters::Tally;
use crate::index::entry;
use crate::item;
use crate::space::log::CircularLog;
use crate::version::{self, Access};

/// Maximum number of items that a write moves.
const MAX_MOVES: usize = 16;

/// What a write may still move.
struct MoveBudget {
    items: usize,
    /// There is no sweep before the write ends, so it must not append a whole lap.
    words: usize,
}

impl MoveBudget {
    /// Takes the move of an item of this size, if it is there.
    fn take(&mut self, words: usize) -> bool {
        let is_there = self.items > 0 && words <= self.words;
        if is_there {
            self.items -= 1;
            self.words -= words;
        }
        is_there
    }
}

impl CachePartition {
    /// The log for a new item of this size.
    pub(super) fn queue_for(&self, words: usize, was_evicted: bool) -> Queue {
        let has_place = |log: &&CircularLog| words <= log.max_item_words();
        match self.logs.probation().filter(has_place) {
            Some(_) if !was_evicted && !self.logs.main().has_room(words) => Queue::Probation,
            _ => Queue::Main,
        }
    }

    /// Allocates space by evicting at the head; `own` is the bucket being written.
    pub(super) fn append(
        &self,
        context: &Context<'_>,
        own: &AtomicU64,
        words: usize,
        queue: Queue,
        tally: &mut Tally,
    ) -> (u64, &[AtomicU64]) {
        let max_words = self.logs.main().max_item_words();
        let mut budget = MoveBudget { items: MAX_MOVES, words: max_words };
        match queue {
            Queue::Main => self.make_room_in_main(context, own, words, &mut budget, tally),
            Queue::Probation => {
                self.make_room_in_probation(context, own, words, &mut budget, tally);
            }
        }
        self.append_at_tail(queue, words)
    }

    fn make_room_in_main(
        &self,
        context: &Context<'_>,
        own: &AtomicU64,
        words: usize,
        budget: &mut MoveBudget,
        tally: &mut Tally,
    ) {
        let main = self.logs.main();
        let mut victim = None;
        while !main.has_room(words) {
            let (offset, header) = main.oldest();
            let size = item::size_of(header);
            victim = victim.or_else(|| self.eviction.victim(main, budget.items));
            let is_victim = victim == Some(offset) || size > budget.words;
            if !is_victim
                && !item::is_dead(header)
                && self.move_oldest(context.access, own, Queue::Main, tally)
            {
                budget.take(size);
                continue;
            }
            if is_victim {
                victim = None;
            }
            self.evict_oldest(context, Queue::Main, tally);
        }
    }

    fn make_room_in_probation(
        &self,
        context: &Context<'_>,
        own: &AtomicU64,
        words: usize,
        budget: &mut MoveBudget,
        tally: &mut Tally,
    ) {
        let probation = self.logs.log(Queue::Probation);
        while !probation.has_room(words) {
            let (_, header) = probation.oldest();
            let size = item::size_of(header);
            if !item::is_dead(header) && item::mark_of(header) == USED && budget.take(size) {
                self.make_room_in_main(context, own, size, budget, tally);
                if self.move_oldest(context.access, own, Queue::Probation, tally) {
                    continue;
                }
            }
            self.evict_oldest(context, Queue::Probation, tally);
        }
    }

    /// Moves the head of a log past its oldest item.
    fn evict_oldest(&self, context: &Context<'_>, queue: Queue, tally: &mut Tally) {
        let log = self.logs.log(queue);
        let (offset, header) = log.oldest();
        let is_expired = self.is_expired(Logs::offset(queue, offset), header, &context.now);
        log.advance_head(item::size_of(header));
        if !item::is_dead(header) {
            match is_expired {
                true => tally.expired_entries_dropped += 1,
                false => tally.evictions += 1,
            }
            self.add_live(-1);
        }
    }

    /// Moves the oldest item of a log to the tail of main. Returns `false`, without any change, if
    /// no entry leads to it or another writer is in its bucket.
    fn move_oldest(
        &self,
        access: Access,
        own: &AtomicU64,
        queue: Queue,
        tally: &mut Tally,
    ) -> bool {
        let (from, main) = (self.logs.log(queue), self.logs.main());
        let (oldest, _) = from.oldest();
        let Some(item) = from.item(oldest) else { return false };
        let (hash, size) = (item.hash(), item.size());
        let bucket = self.index.of(hash);
        let header = &bucket[0];
        let is_own = std::ptr::eq(header, own);
        if !is_own && !version::try_begin_write(header, access) {
            return false;
        }
        let place = Logs::offset(queue, oldest);
        let slot = self.index.find(bucket, hash, None, |slot, at| (at == place).then_some(slot));
        if let Some(slot) = slot {
            let mark = if self.eviction == Eviction::Lru { item.mark() } else { 0 };
            let copy = ItemCopy::of(&item, mark);
            from.advance_head(size);
            if main.has_room(size) {
                let (offset, place) = self.append_at_tail(Queue::Main, size);
                copy.write(place);
                slot.store(entry(hash, offset), Relaxed);
                match queue {
                    Queue::Probation => tally.promotions += 1,
                    Queue::Main => tally.reinsertions += 1,
                }
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

    /// Allocates space at the tail, where there is enough.
    fn append_at_tail(&self, queue: Queue, words: usize) -> (u64, &[AtomicU64]) {
        let log = self.logs.log(queue);
        let before = log.ring().tail();
        let (offset, place) = log.append(words);
        let moved = log.ring().age(before);
        let sweep_debt = self.sweep_debt.load(Relaxed) + moved * self.index.main_count() as u64;
        if sweep_debt >= self.sweep_debt_limit {
            let due = self.due.load(Relaxed) + sweep_debt / self.sweep_debt_limit;
            self.due.store(due, Relaxed);
        }
        self.sweep_debt.store(sweep_debt % self.sweep_debt_limit, Relaxed);
        (Logs::offset(queue, offset), place)
    }
}
