//! The start offsets of a SortedStore's blocks.
//!
//! ```text
//!  even     block i starts at i * stride: nothing is stored              entries of one length
//!  listed   Elias-Fano, in units of 64 bytes, relative to the first:
//!             low   l bits of each start                 l ≈ log2(bytes per block / 64)
//!             high  the other bits, in unary: a 1 for each start, after its increase in zeros
//!             sample  the position in `high` of every 64th 1
//! ```
//!
//! Listed starts take about l + 2 bits per block, plus half a bit for the samples.
//!
//! Stored form: `even:u8  stride:u64  blocks:u64  end:u64  low_bits:u8  starts:varint*`, the starts
//! as differences, so that decoding builds and checks the list. The checksum of the file covers it.
//!
//! Invariant: starts ascend; `range(i)` ends where `range(i + 1)` begins.
//!
//! Source: Elias, "Efficient storage and retrieval by content and address of static files", JACM
//! 1974; Fano, 1971.

use siltstone_engine::varint::{read_varint, write_varint};

/// Listed starts are multiples of this many bytes.
pub(crate) const UNIT: u64 = 64;
const SAMPLE: u64 = 64;

/// The starts of all blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boundaries {
    blocks: u64,
    /// The end of the last block.
    end: u64,
    form: Form,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Even { stride: u64 },
    Listed { low_bits: u32, low: Vec<u64>, high: Vec<u64>, samples: Vec<u32> },
}

/// Builds a list from starts in ascending order.
pub(crate) struct BoundariesBuilder {
    low_bits: u32,
    low: Vec<u64>,
    high: Vec<u64>,
    /// Bits in `high` so far.
    high_len: u64,
    samples: Vec<u32>,
    blocks: u64,
    last: u64,
}

impl BoundariesBuilder {
    /// A builder for blocks of about `block_bytes` bytes.
    pub(crate) fn new(block_bytes: u64) -> Self {
        let low_bits = (block_bytes / UNIT).max(1).ilog2();
        BoundariesBuilder {
            low_bits,
            low: Vec::new(),
            high: Vec::new(),
            high_len: 0,
            samples: Vec::new(),
            blocks: 0,
            last: 0,
        }
    }

    /// Adds the next start: a multiple of [`UNIT`], greater than the previous.
    pub(crate) fn push(&mut self, start: u64) {
        debug_assert!(start.is_multiple_of(UNIT) && (self.blocks == 0 || start > self.last));
        let (unit, last) = (start / UNIT, self.last / UNIT);
        let l = self.low_bits;
        put_bits(&mut self.low, self.blocks * u64::from(l), unit & ((1 << l) - 1), l);
        self.high_len += (unit >> l) - (last >> l);
        if self.blocks.is_multiple_of(SAMPLE) {
            self.samples.push(self.high_len as u32);
        }
        put_bits(&mut self.high, self.high_len, 1, 1);
        self.high_len += 1;
        self.blocks += 1;
        self.last = start;
    }

    /// Ends the list; the last block ends at `end`.
    pub(crate) fn finish(mut self, end: u64) -> Boundaries {
        self.low.shrink_to_fit();
        self.high.shrink_to_fit();
        self.samples.shrink_to_fit();
        let BoundariesBuilder { low_bits, low, high, samples, blocks, .. } = self;
        Boundaries { blocks, end, form: Form::Listed { low_bits, low, high, samples } }
    }
}

impl Boundaries {
    /// Boundaries of `blocks` blocks of `stride` bytes each, up to `end`; the last may be shorter.
    pub(crate) fn even(blocks: u64, stride: u64, end: u64) -> Self {
        Boundaries { blocks, end, form: Form::Even { stride } }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The end of the last block.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The byte range of a block; `None` if there are fewer blocks. Cost: some nanoseconds.
    pub(crate) fn range(&self, block: u64) -> Option<(u64, u64)> {
        if block >= self.blocks {
            return None;
        }
        let end = if block + 1 == self.blocks { self.end } else { self.start(block + 1) };
        Some((self.start(block), end))
    }

    fn start(&self, block: u64) -> u64 {
        match &self.form {
            Form::Even { stride } => block * stride,
            Form::Listed { low_bits, low, high, samples } => {
                let mut at = u64::from(samples[(block / SAMPLE) as usize]);
                let mut left = block % SAMPLE;
                // Skip whole words of ones, then ones within a word.
                let mut word = high[(at / 64) as usize] >> (at % 64) << (at % 64);
                while left >= u64::from(word.count_ones()) {
                    left -= u64::from(word.count_ones());
                    at = (at / 64 + 1) * 64;
                    word = high[(at / 64) as usize];
                }
                (0..left).for_each(|_| word &= word - 1);
                let position = at / 64 * 64 + u64::from(word.trailing_zeros());
                let unit = (position - block) << low_bits;
                UNIT * (unit | get_bits(low, block * u64::from(*low_bits), *low_bits))
            }
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        match &self.form {
            Form::Even { .. } => 0,
            Form::Listed { low, high, samples, .. } => {
                8 * (low.len() + high.len()) as u64 + 4 * samples.len() as u64
            }
        }
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (is_even, stride, low_bits) = match &self.form {
            Form::Even { stride } => (1, *stride, 0),
            Form::Listed { low_bits, .. } => (0, 0, *low_bits as u8),
        };
        out.push(is_even);
        [stride, self.blocks, self.end]
            .iter()
            .for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
        out.push(low_bits);
        if is_even == 0 {
            let mut last = 0;
            for block in 0..self.blocks {
                let start = self.start(block) / UNIT;
                write_varint(out, start - last);
                last = start;
            }
        }
    }

    /// Decodes the stored form; `None` if it is malformed. The length of `bytes` bounds its memory.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&is_even, bytes) = bytes.split_first()?;
        let mut fields = crate::file::Fields(bytes.get(..24)?);
        let (stride, blocks, end) = (fields.u64(), fields.u64(), fields.u64());
        let (&low_bits, mut rest) = bytes[24..].split_first()?;
        if is_even == 1 {
            let max = stride.checked_mul(blocks)?;
            let is_valid = rest.is_empty() && end <= max && (blocks == 0 || max - stride < end);
            return is_valid.then(|| Boundaries::even(blocks, stride, end));
        }
        if is_even != 0 || low_bits > 40 || blocks > rest.len() as u64 {
            return None;
        }
        let mut builder = BoundariesBuilder::new(UNIT << low_bits);
        let mut start = 0u64;
        for block in 0..blocks {
            let (step, used) = read_varint(rest)?;
            rest = &rest[used..];
            start = start.checked_add(step)?;
            let is_valid = (step > 0) == (block > 0) && start.checked_mul(UNIT)? < end;
            // A longer gap would take more memory than its encoding.
            if !is_valid || step >> low_bits > 1 << 24 {
                return None;
            }
            builder.push(start * UNIT);
        }
        rest.is_empty().then(|| builder.finish(end))
    }
}

fn put_bits(words: &mut Vec<u64>, at: u64, bits: u64, count: u32) {
    let (word, shift) = ((at / 64) as usize, at % 64);
    words.resize(words.len().max(((at + u64::from(count)) / 64) as usize + 1), 0);
    words[word] |= bits << shift;
    if shift + u64::from(count) > 64 {
        words[word + 1] |= bits >> (64 - shift);
    }
}

fn get_bits(words: &[u64], at: u64, count: u32) -> u64 {
    let (word, shift) = ((at / 64) as usize, at % 64);
    let mut bits = words[word] >> shift;
    if shift + u64::from(count) > 64 {
        bits |= words[word + 1] << (64 - shift);
    }
    bits & ((1 << count) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_round_trip_for_all_gap_sizes() {
        for (bytes, spread) in [(64, 3), (4096, 100), (1 << 20, 5), (100, 100_000)] {
            let mut builder = BoundariesBuilder::new(bytes);
            let (mut start, mut starts) = (0, Vec::new());
            for i in 0..1000u64 {
                starts.push(start);
                builder.push(start);
                start += UNIT * (1 + i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % spread);
            }
            let list = builder.finish(start);
            for (i, &at) in starts.iter().enumerate() {
                let end = starts.get(i + 1).copied().unwrap_or(start);
                assert_eq!(list.range(i as u64), Some((at, end)));
            }
            assert_eq!(list.range(1000), None);
            let mut stored = Vec::new();
            list.encode(&mut stored);
            assert_eq!(Boundaries::decode(&stored), Some(list));
            for cut in 0..stored.len() {
                assert_eq!(Boundaries::decode(&stored[..cut]), None);
            }
        }
        let even = Boundaries::even(3, 100, 250);
        assert_eq!(even.range(2), Some((200, 250)));
        let mut stored = Vec::new();
        even.encode(&mut stored);
        assert_eq!(Boundaries::decode(&stored), Some(even));
    }

    #[test]
    fn listed_blocks_of_4_kib_take_nine_bits_each() {
        let mut builder = BoundariesBuilder::new(4096);
        (0..10_000u64).for_each(|i| builder.push(i * 4096 + i % 7 * 64));
        let bits = builder.finish(1 << 40).memory() * 8;
        assert!((80_000..90_000).contains(&bits), "{bits}");
    }
}
