//! Range filter: whether a sorted run may contain any key in a range.
//!
//! ```text
//!  keys    ──code──▶ order-preserving numbers ──>> shift──▶ at most 256 per key
//!
//!  number  [ bucket │ 8 bits ]                     two keys in bucket 0, none in 1, one in 2
//!              │        └──▶ lows   in order        0x1c  0xd2               0x07
//!              └───────────▶ highs  ones, and a zero after each bucket      1 1 0  0  1 0
//! ```
//!
//! A query maps both bounds to numbers and checks whether the run has one in between. It is exact
//! if there are at most 256 codes per key, as for dense integers. For keys that are evenly
//! distributed over the code, an empty range between two neighbouring keys is a false positive with
//! probability 1/128; clustered keys have more. At most 11 bits per key; a query touches about
//! three cache lines.
//!
//! Bytes, little endian:
//!
//! ```text
//! range filter := code  shift:u8  keys:u32  lows:u8[keys]  highs:u8[⌈(keys + buckets) / 8⌉]
//! code         := prefix_len:u32  prefix  digits:u8  { least:u16  radix:u16 }[digits]
//! buckets      := the bucket of the greatest possible number, plus one
//! ```
//!
//! The form has no version: the enclosing file names it.
//!
//! Invariant: no false negatives.
//!
//! Source: Elias (JACM 1974) and Fano (1971) for the numbers; Vaidya et al., "SNARF" (VLDB 2022),
//! for range filters of order-preserving numbers.

mod build;
mod code;

pub use build::RangeFilterBuilder;

use std::fmt;

use code::KeyCode;

/// Bits of a number that are stored directly.
const LOW_BITS: u32 = 8;
/// Every this many buckets, the start is indexed.
const STRIDE: u64 = 32;

/// Invalid bytes for a range filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeFilterError;

impl fmt::Display for RangeFilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid range filter")
    }
}

impl std::error::Error for RangeFilterError {}

/// A range filter in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeFilter {
    code: KeyCode,
    shift: u32,
    lows: Box<[u8]>,
    highs: Box<[u64]>,
    /// The start of every [`STRIDE`]th bucket in `highs`.
    starts: Box<[u32]>,
}

impl RangeFilter {
    /// Decodes and validates the stored form. Cost: linear in its length.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RangeFilterError> {
        Self::parse(bytes).ok_or(RangeFilterError)
    }

    fn parse(mut bytes: &[u8]) -> Option<Self> {
        let code = KeyCode::decode(&mut bytes)?;
        let shift = u32::from(*bytes.split_off_first()?);
        let keys = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let lows = bytes.split_off(..keys as usize)?;
        let max = (code.codes() - 1).checked_shr(shift)?;
        let buckets = (max >> LOW_BITS) + 1;
        let bits = buckets.checked_add(keys.into()).filter(|&bits| bits <= u32::MAX.into())?;
        if bytes.len() as u64 != bits.div_ceil(8) {
            return None;
        }
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        let highs: Box<[u64]> = words.collect();
        let ones: u64 = highs.iter().map(|word| u64::from(word.count_ones())).sum();
        let is_one = |bit: u64| highs[(bit / 64) as usize] >> (bit % 64) & 1 == 1;
        // The last bucket ends with the last bit.
        if ones != u64::from(keys) || is_one(bits - 1) {
            return None;
        }
        let starts = starts(&highs, buckets);
        Some(RangeFilter { code, shift, lows: lows.into(), highs, starts })
    }

    /// Whether a key in `from..=to` may exist. Cost: three cache lines.
    #[inline]
    pub fn may_contain_range(&self, from: &[u8], to: &[u8]) -> bool {
        if from > to {
            return false;
        }
        let number = |key| self.code.of(key) >> self.shift;
        self.has(number(from), number(to))
    }

    /// Resident bytes.
    pub fn memory_bytes(&self) -> usize {
        self.code.memory_bytes() + self.lows.len() + 8 * self.highs.len() + 4 * self.starts.len()
    }

    /// Whether there is a number in `least..=most`.
    fn has(&self, min: u64, most: u64) -> bool {
        let low = |number: u64| number as u8;
        let (first, last) = (min >> LOW_BITS, most >> LOW_BITS);
        let mut at = self.bucket_start(first);
        // The number of ones before a bucket is its start minus the zeros that end buckets.
        let mut key = (at - first) as usize;
        let mut bucket = first;
        loop {
            let ones = self.ones_from(at);
            // In order, so the first one that is not below the range decides.
            let lows = &self.lows[key..key + ones];
            let from = if bucket == first { low(min) } else { 0 };
            let next = lows.get(lows.partition_point(|&l| l < from));
            if next.is_some_and(|&l| bucket < last || l <= low(most)) {
                return true;
            }
            if bucket == last {
                return false;
            }
            at += ones as u64 + 1;
            key += ones;
            bucket += 1;
            // Skip empty buckets between the two ends.
            let empty = self.zeros_from(at, last - bucket);
            at += empty;
            bucket += empty;
        }
    }

    /// The start of a bucket in `highs`.
    #[inline]
    fn bucket_start(&self, bucket: u64) -> u64 {
        let mut at = u64::from(self.starts[(bucket / STRIDE) as usize]);
        let mut ends = (bucket % STRIDE) as u32;
        while ends > 0 {
            let mut word = !self.highs[(at / 64) as usize] >> (at % 64);
            if word.count_ones() < ends {
                ends -= word.count_ones();
                at += 64 - at % 64;
                continue;
            }
            for _ in 1..ends {
                word &= word - 1;
            }
            return at + u64::from(word.trailing_zeros()) + 1;
        }
        at
    }

    /// Length of the run of ones from bit `at` on.
    #[inline]
    fn ones_from(&self, at: u64) -> usize {
        self.run_from(at, |word| word, u64::MAX) as usize
    }

    /// Length of the run of zeros from bit `at` on, up to `most`.
    #[inline]
    fn zeros_from(&self, at: u64, most: u64) -> u64 {
        self.run_from(at, |word| !word, most)
    }

    #[inline]
    fn run_from(&self, at: u64, as_ones: impl Fn(u64) -> u64, most: u64) -> u64 {
        let mut run = 0;
        while run < most {
            let bit = at + run;
            let Some(&word) = self.highs.get((bit / 64) as usize) else { break };
            let rest = as_ones(word) >> (bit % 64);
            let ones = u64::from(rest.trailing_ones());
            let left = 64 - bit % 64;
            run += ones.min(left);
            if ones < left {
                break;
            }
        }
        run.min(most)
    }
}

/// The start of every [`STRIDE`]th bucket.
fn starts(highs: &[u64], buckets: u64) -> Box<[u32]> {
    let mut starts = vec![0];
    let mut ended = 0u64;
    for (at, &word) in (0..).zip(highs) {
        let mut zeros = !word;
        while zeros != 0 {
            ended += 1;
            if ended.is_multiple_of(STRIDE) && ended < buckets {
                // `parse` has checked that 32 bits number all bits.
                starts.push(at * 64 + zeros.trailing_zeros() + 1);
            }
            zeros &= zeros - 1;
        }
    }
    starts.into()
}
