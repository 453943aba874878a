//! Eviction policies: which item the log's head evicts next, and what a read notes for that.
//!
//! ```text
//!               access mark of an item that is      the log's head
//!               read, or written in place
//!   fifo          none                              evicts the item it meets
//!   clock         "used"                            reinserts a marked item and clears the mark
//!   approximate   "used", if the item is            as clock
//!                 nearer to the head than to the tail
//!   s3-fifo       "used"                            new items: moves a marked one to the log of
//!                                                   used ones, evicts others; used: as clock
//!   lru           time in quarter laps              of the next four items, evicts the one least
//!                                                   recently used and reinserts those before it
//! reinsert: append the item again at the tail
//! ```
//!
//! Source: Lim, thesis, section 5.3.3; the clock: Corbató, "A Paging Experiment with the Multics
//! System", 1968; S3-FIFO: Yang et al., "FIFO queues are all you need for cache eviction", SOSP
//! 2023, here with one bit per item.

use std::cmp::Reverse;

use crate::item;
use crate::partition::ItemRef;
use crate::space::log::CircularLog;

/// Eviction policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// Evicts the items written first.
    Fifo,
    /// Evicts the least recently used of the next few items.
    Lru,
    /// Keeps items used in the older half of the log for another lap.
    Approximate,
    /// Keeps items used since the head last passed them for another lap.
    Clock,
    /// As `Clock`, for items that were used while they were new, in a log of a tenth of the memory.
    S3Fifo,
}

/// The access mark of a used item, for policies that ignore the time.
pub(super) const USED: u64 = 1;
/// `lru` evicts the least recently used of this many items at the head.
const LRU_SAMPLE: usize = 4;
/// `lru` treats longer idle times, in quarter laps, as equal: after one more lap the mark would
/// look recent.
const MAX_IDLE_QUARTERS: u64 = item::MARKS - 4;

impl Eviction {
    /// The access mark of an item that is used now.
    #[inline(always)]
    pub(super) fn access_mark(self, log: &CircularLog, found: &ItemRef<'_>) -> u64 {
        match self {
            Eviction::Fifo => 0,
            Eviction::Lru => mark_time(log),
            Eviction::Approximate if !is_in_older_half(log, found.offset) => found.item.mark(),
            Eviction::Approximate | Eviction::Clock | Eviction::S3Fifo => USED,
        }
    }

    /// The item to evict next; up to `max_skipped` items before it are to be reinserted.
    pub(super) fn victim(self, log: &CircularLog, max_skipped: usize) -> Option<u64> {
        let mut items = log.items().filter(|item| !item::is_dead(item.1)).take(max_skipped + 1);
        let victim = match self {
            Eviction::Fifo => items.next(),
            Eviction::Approximate | Eviction::Clock | Eviction::S3Fifo => {
                let mut last = None;
                let unused = items.find(|item| {
                    last = Some(*item);
                    item::mark_of(item.1) != USED
                });
                unused.or(last)
            }
            Eviction::Lru => {
                let time = mark_time(log);
                let unused = |header| time.wrapping_sub(item::mark_of(header)) % item::MARKS;
                // The first one on a tie.
                items
                    .take(LRU_SAMPLE)
                    .min_by_key(|item| Reverse(unused(item.1).min(MAX_IDLE_QUARTERS)))
            }
        };
        victim.map(|item| item.0)
    }
}

/// The current time for access marks, in quarter laps.
#[inline(always)]
pub(super) fn mark_time(log: &CircularLog) -> u64 {
    log.ring().quarters() % item::MARKS
}

/// Whether an item is nearer to the head than to the tail.
#[inline(always)]
fn is_in_older_half(log: &CircularLog, offset: u64) -> bool {
    log.ring().age(offset) > log.ring().words() / 2
}
