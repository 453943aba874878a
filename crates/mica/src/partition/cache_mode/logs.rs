//! The logs of a partition, and which of them an offset leads to.
//!
//! ```text
//! offset   47           46 ................ 0
//!          probation    offset in that log
//!
//!               new items                                  used items
//!   s3-fifo     ───────────▶ │ probation, a tenth │ ───────────────▶ │ main │
//!                              evicts the others                       evicts by the clock
//!   others      ─────────────────────────────────────────────────────▶ │ main │
//! ```
//!
//! An entry whose item was evicted from probation dangles, and stays in its bucket until a new item
//! needs the place: it is a *ghost*. A key that has a ghost when it is written returns to main. So
//! the keys that S3-FIFO remembers take no memory of their own, but a bucket has room for about
//! half as many as the published policy keeps. A ghost of another key with the same tag, of 16 bits,
//! and bucket is taken for one of this key.
//!
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.

use std::io;

use super::Eviction;
use crate::index::lossy;
use crate::item::Item;
use crate::mapping::{Mapping, whole_pages};
use crate::ring::OFFSET_BITS;
use crate::space::log::CircularLog;

/// Flag of an offset: the item is in probation.
const IN_PROBATION: u64 = 1 << (OFFSET_BITS - 1);
/// One word of this number is in probation.
const PROBATION_SHARE: usize = 10;

/// One of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Probation,
    Main,
}

/// The logs of a partition.
pub(crate) struct Logs {
    main: CircularLog,
    probation: Option<CircularLog>,
}

impl Logs {
    /// Empty logs with this number of words together.
    pub(super) fn new(
        words: usize,
        mapping: Mapping,
        offset_bits: u32,
        eviction: Eviction,
    ) -> io::Result<Self> {
        let bits = offset_bits.min(OFFSET_BITS - 1);
        let share = words / PROBATION_SHARE;
        let share = if mapping == Mapping::Plain { share } else { whole_pages(share) };
        let in_probation = if eviction == Eviction::S3Fifo { share } else { 0 };
        let probation = (in_probation > 0)
            .then(|| CircularLog::new(in_probation, mapping, bits))
            .transpose()?;
        let main = CircularLog::new(words - in_probation, mapping, bits)?;
        Ok(Logs { main, probation })
    }

    /// All logs.
    pub(super) fn all(&self) -> impl Iterator<Item = &CircularLog> {
        std::iter::once(&self.main).chain(&self.probation)
    }

    /// The log of used items; of all items, if there is no probation.
    #[inline(always)]
    pub(super) fn main(&self) -> &CircularLog {
        &self.main
    }

    /// The log of new items.
    pub(super) fn probation(&self) -> Option<&CircularLog> {
        self.probation.as_ref()
    }

    /// This log.
    pub(super) fn log(&self, queue: Queue) -> &CircularLog {
        match (queue, &self.probation) {
            (Queue::Probation, Some(probation)) => probation,
            _ => &self.main,
        }
    }

    /// The log of an offset, and the offset in it.
    #[inline(always)]
    pub(super) fn of(&self, offset: u64) -> (&CircularLog, u64) {
        if offset & IN_PROBATION != 0
            && let Some(probation) = &self.probation
        {
            return (probation, offset ^ IN_PROBATION);
        }
        (&self.main, offset)
    }

    /// The offset that leads to `offset` of this log.
    #[inline(always)]
    pub(super) fn offset(queue: Queue, offset: u64) -> u64 {
        if queue == Queue::Probation { offset | IN_PROBATION } else { offset }
    }

    /// The item at an offset, unless it was overwritten.
    #[inline(always)]
    pub(super) fn item(&self, offset: u64) -> Option<Item<'_>> {
        let (log, offset) = self.of(offset);
        log.item(offset)
    }

    /// Whether the words from an offset on exist now. To be checked before reading them.
    #[inline(always)]
    pub(super) fn contains(&self, offset: u64) -> bool {
        let (log, offset) = self.of(offset);
        log.ring().contains(offset)
    }

    /// Whether the words read from an offset on were not overwritten. To be checked after reading.
    #[inline(always)]
    pub(super) fn is_intact(&self, offset: u64) -> bool {
        let (log, offset) = self.of(offset);
        log.ring().is_intact(offset)
    }

    /// Whether the item at an offset is live: not overwritten, and not passed by the head.
    pub(crate) fn is_live(&self, offset: u64) -> bool {
        let (log, offset) = self.of(offset);
        log.ring().contains(offset) && log.ring().age(offset) <= log.used()
    }

    /// Whether the item at an offset was evicted from probation and overwritten.
    pub(super) fn is_ghost(&self, offset: u64) -> bool {
        offset & IN_PROBATION != 0 && self.probation.is_some() && !self.contains(offset)
    }

    /// How soon a new item takes the place of the entry with this offset; the greatest first.
    /// Entries with an item come last: their log would evict them next if it had gone farther
    /// round than the other. Ghosts come before them, the oldest first.
    #[inline]
    pub(super) fn replacement_order(&self, offset: u64) -> (bool, u64) {
        let (log, within) = self.of(offset);
        let order = log.ring().order(within);
        let exists = log.ring().contains(within);
        match offset & IN_PROBATION != 0 {
            true if exists => {
                (false, order * (self.main.ring().lap_order() / log.ring().lap_order()))
            }
            false if exists => (false, order),
            true => (true, order),
            false => lossy::EMPTY,
        }
    }

    /// Words that may be appended before an offset of any log repeats.
    pub(super) fn words_until_offsets_repeat(&self) -> u64 {
        let words = self.all().map(|log| log.ring().words() * log.ring().laps());
        words.min().unwrap_or(u64::MAX)
    }

    /// Prefetches the item at an offset.
    #[inline(always)]
    pub(super) fn prefetch(&self, offset: u64) {
        let (log, offset) = self.of(offset);
        log.prefetch(offset);
    }
}
