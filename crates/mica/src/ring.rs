//! Log offsets, wide enough to distinguish existing from overwritten data.
//!
//! ```text
//! offset   47 .............. b b−1 ............. 0     b: bits for a position in the log
//!          lap                 position
//!
//! the tail in lap 7 at position 300 of 1000:
//!   lap 7, below 300 ........ exists
//!   lap 6, from 300 on ...... exists: the tail has not reached it again
//!   all others .............. dangling: farther behind the tail than the log's length
//! ```
//!
//! Laps count modulo 2^(48−b), so after that many laps a dangling offset would look valid again.
//! The sweep removes dangling entries before (see `cache_mode`). A log of any length has such
//! offsets; if the length is a power of two, they are those of the thesis.
//!
//! Readers are not notified of overwritten bytes. They rely on the order: the tail moves first
//! ([`Ring::advance`]), then the bytes change; a reader copies the bytes, then checks the tail
//! again ([`Ring::is_intact`]).
//!
//! Source: Lim, thesis, section 5.3.3, "Handling dangling pointers" and figure 5.7.

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, fence};

/// Bits of an offset in an index entry.
pub const OFFSET_BITS: u32 = 48;

/// The offsets of a log, and its tail.
#[derive(Debug)]
pub struct Ring {
    words: u64,
    position_bits: u32,
    lap_mask: u64,
    tail: AtomicU64,
}

impl Ring {
    /// A log of `words` (at least one) with offsets of `offset_bits` bits: 48, or fewer in tests.
    ///
    /// # Panics
    /// If there are fewer than four laps.
    pub fn new(words: u64, offset_bits: u32) -> Self {
        let position_bits = words.next_power_of_two().trailing_zeros();
        assert!(words > 0 && position_bits + 2 <= offset_bits && offset_bits <= OFFSET_BITS);
        let lap_mask = (1 << (offset_bits - position_bits)) - 1;
        Ring { words, position_bits, lap_mask, tail: AtomicU64::new(0) }
    }

    /// Length of the log in words.
    pub fn words(&self) -> u64 {
        self.words
    }

    /// Number of laps until offsets repeat.
    pub fn laps(&self) -> u64 {
        self.lap_mask + 1
    }

    /// The offset of the next word to be appended.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail.load(Relaxed)
    }

    /// The position of an offset in the log.
    #[inline]
    pub fn position(&self, offset: u64) -> u64 {
        offset & self.position_mask()
    }

    /// How far an offset is behind the tail, in whole laps and positions: the greater, the older.
    #[inline]
    pub fn order(&self, offset: u64) -> u64 {
        self.order_before(self.tail(), offset)
    }

    #[inline]
    fn order_before(&self, tail: u64, offset: u64) -> u64 {
        tail.wrapping_sub(offset) & (self.lap_mask << self.position_bits | self.position_mask())
    }

    /// The order of the oldest offset whose words may exist.
    #[inline]
    pub fn lap_order(&self) -> u64 {
        1 << self.position_bits
    }

    #[inline]
    fn position_mask(&self) -> u64 {
        self.lap_order() - 1
    }

    #[inline]
    fn lap(&self, offset: u64) -> u64 {
        offset >> self.position_bits
    }

    #[inline]
    fn laps_between(&self, from: u64, to: u64) -> u64 {
        self.lap(to).wrapping_sub(self.lap(from)) & self.lap_mask
    }

    /// Whether the words from `offset` on exist, with this tail.
    #[inline]
    fn is_behind(&self, tail: u64, offset: u64) -> bool {
        // In this lap and before the tail's position, or in the last one and not before it.
        self.order_before(tail, offset).wrapping_sub(1) < self.lap_order()
    }

    /// Whether the words from `offset` on exist now. To be checked before reading them.
    #[inline]
    pub fn contains(&self, offset: u64) -> bool {
        self.is_behind(self.tail(), offset)
    }

    /// Whether the words read from `offset` on were not overwritten. To be checked after reading.
    #[inline]
    pub fn is_intact(&self, offset: u64) -> bool {
        fence(Acquire);
        self.is_behind(self.tail(), offset)
    }

    /// Distance of `offset` from the tail, in words.
    #[inline]
    pub fn age(&self, offset: u64) -> u64 {
        self.distance(offset, self.tail())
    }

    /// Distance from one offset to a later one, in words.
    #[inline]
    pub fn distance(&self, from: u64, to: u64) -> u64 {
        let whole = self.laps_between(from, to).wrapping_mul(self.words);
        whole.wrapping_add(self.position(to)).wrapping_sub(self.position(from))
    }

    /// Quarter laps that the tail has completed, modulo four times [`laps`](Self::laps), which 16
    /// divides.
    #[inline]
    pub fn quarters(&self) -> u64 {
        let tail = self.tail();
        let at = self.position(tail) * 4;
        let passed = [1, 2, 3].iter().filter(|&&quarter| at >= self.words * quarter).count();
        self.lap(tail) * 4 + passed as u64
    }

    /// The offset `words` later, up to one log length.
    #[inline]
    pub fn after(&self, offset: u64, words: u64) -> u64 {
        let (mut lap, mut at) = (self.lap(offset), self.position(offset) + words);
        if at >= self.words {
            at -= self.words;
            lap = (lap + 1) & self.lap_mask;
        }
        lap << self.position_bits | at
    }

    /// Moves the tail. Only afterwards may the words before it be overwritten.
    #[inline]
    pub fn advance(&self, words: u64) {
        self.tail.store(self.after(self.tail(), words), Relaxed);
        fence(Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with a model of 64-bit offsets, over many wraps of narrow offsets.
        #[test]
        fn offset_is_valid_exactly_while_its_words_exist(
            words in 1u64..100,
            extra_bits in 2u32..5,
            steps in proptest::collection::vec(0.0f64..=1.0, 1..600),
        ) {
            let bits = words.next_power_of_two().trailing_zeros() + extra_bits;
            let ring = Ring::new(words, bits);
            let mut total = 0u64;
            let mut known: Vec<(u64, u64)> = Vec::new();
            for step in steps {
                let len = 1 + (step * (words - 1) as f64) as u64;
                known.push((ring.tail(), total));
                ring.advance(len);
                total += len;
                prop_assert_eq!(ring.quarters(), total * 4 / words % (ring.laps() * 4));
                // The sweep removes anything older than all laps but one.
                known.retain(|&(_, at)| total - at <= words * (ring.laps() - 1));
                for &(offset, at) in &known {
                    prop_assert!(offset < 1 << bits);
                    prop_assert_eq!(ring.position(offset), at % words);
                    prop_assert_eq!(ring.age(offset), total - at);
                    prop_assert_eq!(ring.contains(offset), total - at <= words);
                }
            }
        }
    }
}
