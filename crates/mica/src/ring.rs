//! Offsets in a circular log: wide enough to tell what is there from what was overwritten.
//!
//! ```text
//! offset   47 .............. b b−1 ............. 0     b: bits that count the log's words
//!          lap                 position
//!
//! the tail in lap 7 at position 300 of 1000:
//!   lap 7, below 300 ........ there
//!   lap 6, from 300 on ...... there: the tail has not come so far again
//!   all else ................ dangling: farther behind the tail than the log is long
//! ```
//!
//! Laps count modulo 2^(48−b), so after as many laps a dangling offset would seem to be there again.
//! Before that the index has been swept (see `cache`). A log of any length has such offsets; where
//! it is a power of two they are those of the thesis.
//!
//! A log's bytes are overwritten without a word to those who read them. What they rely on is the
//! order: the tail moves first ([`Ring::advance`]), then the bytes change; a reader has its bytes,
//! then looks at the tail again ([`Ring::holds`]).
//!
//! Source: thesis, section 5.3.3, "Handling dangling pointers" and figure 5.7.

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
    /// A log of so many words, at least one, with offsets of so many bits: 48, or fewer in tests.
    ///
    /// # Panics
    /// If there are not four laps at least.
    pub fn new(words: u64, offset_bits: u32) -> Self {
        let position_bits = words.next_power_of_two().trailing_zeros();
        assert!(words > 0 && position_bits + 2 <= offset_bits && offset_bits <= OFFSET_BITS);
        let lap_mask = (1 << (offset_bits - position_bits)) - 1;
        Ring { words, position_bits, lap_mask, tail: AtomicU64::new(0) }
    }

    /// Words of the log.
    pub fn words(&self) -> u64 {
        self.words
    }

    /// Laps until offsets repeat.
    pub fn laps(&self) -> u64 {
        self.lap_mask + 1
    }

    /// Where the next word goes.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail.load(Relaxed)
    }

    /// The place of an offset in the log.
    #[inline]
    pub fn position(&self, offset: u64) -> u64 {
        offset & ((1 << self.position_bits) - 1)
    }

    #[inline]
    fn lap(&self, offset: u64) -> u64 {
        offset >> self.position_bits
    }

    #[inline]
    fn laps_between(&self, from: u64, to: u64) -> u64 {
        self.lap(to).wrapping_sub(self.lap(from)) & self.lap_mask
    }

    /// Whether the words from `offset` on are there, as of `tail`.
    #[inline]
    fn is_behind(&self, tail: u64, offset: u64) -> bool {
        let (at, end) = (self.position(offset), self.position(tail));
        match self.laps_between(offset, tail) {
            0 => at < end,
            1 => at >= end && at < self.words,
            _ => false,
        }
    }

    /// Whether the words from `offset` on are there now: to be asked before they are read.
    #[inline]
    pub fn contains(&self, offset: u64) -> bool {
        self.is_behind(self.tail(), offset)
    }

    /// Whether what was read from `offset` on was there all the time: to be asked afterwards.
    #[inline]
    pub fn holds(&self, offset: u64) -> bool {
        fence(Acquire);
        self.is_behind(self.tail(), offset)
    }

    /// How many words `offset` lies behind the tail.
    #[inline]
    pub fn age(&self, offset: u64) -> u64 {
        self.distance(offset, self.tail())
    }

    /// Words from one offset on to another.
    #[inline]
    pub fn distance(&self, from: u64, to: u64) -> u64 {
        let whole = self.laps_between(from, to).wrapping_mul(self.words);
        whole.wrapping_add(self.position(to)).wrapping_sub(self.position(from))
    }

    /// Quarters of the log that the tail has been through. Counts modulo four times [`laps`](Self::laps),
    /// which 16 divides.
    #[inline]
    pub fn quarters(&self) -> u64 {
        let tail = self.tail();
        let at = self.position(tail) * 4;
        let passed = [1, 2, 3].iter().filter(|&&quarter| at >= self.words * quarter).count();
        self.lap(tail) * 4 + passed as u64
    }

    /// The offset so many words on, at most a log's length.
    #[inline]
    pub fn after(&self, offset: u64, words: u64) -> u64 {
        let (mut lap, mut at) = (self.lap(offset), self.position(offset) + words);
        if at >= self.words {
            at -= self.words;
            lap = (lap + 1) & self.lap_mask;
        }
        lap << self.position_bits | at
    }

    /// Moves the tail; after this the words in front of it may be overwritten.
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
        /// Against a model that counts in whole numbers, over many wraps of narrow offsets.
        #[test]
        fn are_offsets_there_just_as_long_as_their_words(
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
                // What is older than all offsets but one log's length is for the sweep.
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
