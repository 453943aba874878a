//! A filter for ranges: whether a sorted run may hold any key from one to another.
//!
//! ```text
//!  keys    ──code──▶ numbers that ascend as the keys do ──>> shift──▶ at most 256 for each key
//!
//!  number  [ bucket │ 8 bits ]                     two keys in bucket 0, none in 1, one in 2
//!              │        └──▶ lows   in order        0x1c  0xd2               0x07
//!              └───────────▶ highs  ones, and a zero behind each bucket     1 1 0  0  1 0
//! ```
//!
//! A query turns both ends into numbers and looks whether the run has one from the lower to the upper. It
//! is exact where there are at most 256 codes for each key, as of dense integers. Of keys that are evenly spread over
//! what they are made of, one range in 128 passes that begins and ends between the same two neighbours; the more they
//! are in clusters, the more. At most 11 bits a key; a query touches some three cache lines.
//!
//! Bytes, little endian:
//!
//! ```text
//! range filter := code  shift:u8  keys:u32  lows:u8[keys]  highs:u8[⌈(keys + buckets) / 8⌉]
//! code         := prefix_len:u32  prefix  digits:u8  { least:u16  radix:u16 }[digits]
//! buckets      := the bucket of the greatest number that there may be, and one
//! ```
//!
//! There is no version here: the file around it names the form.
//!
//! Invariant: a range that holds a key of the run passes.
//!
//! Source: Elias (JACM 1974) and Fano (1971) for the numbers; Vaidya et al., "SNARF" (VLDB 2022), for a range
//! filter of numbers that ascend with the keys. The code of keys is ours.

mod build;
mod code;

pub use build::RangeFilterBuilder;

use code::KeyCode;

/// The bits of a number that are stored as they are.
const LOW_BITS: u32 = 8;
/// For so many buckets it is known where the first begins.
const STRIDE: u64 = 32;

/// Why bytes are no range filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are no range filter")]
pub struct NoRangeFilter;

/// A range filter in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeFilter {
    code: KeyCode,
    shift: u32,
    lows: Box<[u8]>,
    highs: Box<[u64]>,
    /// Where in `highs` every [`STRIDE`]th bucket begins.
    starts: Box<[u32]>,
}

impl RangeFilter {
    /// Reads the stored form, and checks it so that no query can fail. Cost: linear in its length.
    ///
    /// # Errors
    /// If it is none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NoRangeFilter> {
        Self::parse(bytes).ok_or(NoRangeFilter)
    }

    fn parse(mut bytes: &[u8]) -> Option<Self> {
        let code = KeyCode::decode(&mut bytes)?;
        let shift = u32::from(*bytes.split_off_first()?);
        let keys = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let lows = bytes.split_off(..keys as usize)?;
        let greatest = (code.codes() - 1).checked_shr(shift)?;
        let buckets = (greatest >> LOW_BITS) + 1;
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
        let is_behind = |bit: u64| highs[(bit / 64) as usize] >> (bit % 64) & 1 == 1;
        // The last bucket ends with the last bit.
        if ones != u64::from(keys) || is_behind(bits - 1) {
            return None;
        }
        let starts = starts(&highs, buckets);
        Some(RangeFilter { code, shift, lows: lows.into(), highs, starts })
    }

    /// Whether a key from `from` to `to`, both counted, may be there. Cost: three cache lines.
    #[inline]
    pub fn may_hold(&self, from: &[u8], to: &[u8]) -> bool {
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

    /// Whether there is a number from `least` to `most`.
    fn has(&self, least: u64, most: u64) -> bool {
        let low = |number: u64| number as u8;
        let (first, last) = (least >> LOW_BITS, most >> LOW_BITS);
        let mut at = self.bucket_start(first);
        // The ones before a bucket are as many as bits are before it, less the zeros that ended buckets.
        let mut key = (at - first) as usize;
        let mut bucket = first;
        loop {
            let ones = self.ones_from(at);
            let lows = &self.lows[key..key + ones];
            let is_in =
                |&l: &u8| (bucket > first || l >= low(least)) && (bucket < last || l <= low(most));
            if lows.iter().any(is_in) {
                return true;
            }
            if bucket == last {
                return false;
            }
            at += ones as u64 + 1;
            key += ones;
            bucket += 1;
            // Nothing in a bucket between the two ends: on to the next that has any.
            let empty = self.zeros_from(at, last - bucket);
            at += empty;
            bucket += empty;
        }
    }

    /// Where a bucket begins in the highs.
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

    /// How many ones there are from bit `at` on without a gap.
    #[inline]
    fn ones_from(&self, at: u64) -> usize {
        self.run_from(at, |word| word, u64::MAX) as usize
    }

    /// How many zeros there are from bit `at` on without a gap, up to `most`.
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

/// Where every [`STRIDE`]th of the buckets begins.
fn starts(highs: &[u64], buckets: u64) -> Box<[u32]> {
    let mut starts = vec![0];
    let mut ended = 0u64;
    for (at, &word) in (0..).zip(highs) {
        let mut zeros = !word;
        while zeros != 0 {
            ended += 1;
            if ended.is_multiple_of(STRIDE) && ended < buckets {
                // `parse` saw that all bits have numbers of 32 bits.
                starts.push(at * 64 + zeros.trailing_zeros() + 1);
            }
            zeros &= zeros - 1;
        }
    }
    starts.into()
}

/// How many bytes two keys share at their beginning.
#[inline]
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
