//! Blocked Bloom filter: all probes of a key are in one block of a cache line.
//!
//! ```text
//!  hash ─┬─ high 32 bits, scaled ──▶ block          [512 bits][512 bits][512 bits] …
//!        └─ mixed ─▶ 7 × 9 bits ──▶ bits in block         ▲ ▲ ▲  ▲
//! ```
//!
//! A query costs one cache miss, however large the filter, and no branch depends on the bits. In
//! return, keys are distributed unevenly over the blocks, and full blocks have more false
//! positives: at 10 bits per key 0.96 % instead of 0.82 %, at 16 bits 0.084 % instead of 0.046 %.
//! The number of probes that minimises this rate is computed, not taken from a table.
//!
//! Invariant: byte and bit order are fixed (bit `i` of a block is bit `i % 8` of byte `i / 8`), so
//! that stored filters mean the same on every machine.
//!
//! Source: Putze, Sanders, Singler, JEA 2009, section 3 and equation 3 for the rate. Here the
//! probes are slices of one mixed hash.

use super::BloomError;
use crate::hash::mix64;

/// Bytes of a block: a cache line.
pub(super) const BLOCK: usize = 64;
/// Bits of a block.
pub(super) const BITS: usize = 8 * BLOCK;
/// Words of 64 bits in a block.
const WORDS: usize = BLOCK / 8;
/// Bits that address a bit in a block.
const SLICE: u32 = 9;
/// Probes from one mixed hash.
const SLICES: u8 = 7;
/// With more keys per bit on average, all blocks are assumed equally full.
const MAX_KEYS_PER_BIT: f64 = 4.0;

/// A filter may be longer or shorter by this part of its size, to be as long as another one. At 10
/// bits per key the rate of false positives is then between 0.75 % and 1.25 %.
const SIZE_TOLERANCE_DIVISOR: usize = 16;

/// Maximum number of probes: those from two mixed hashes.
const MAX_PROBES: u8 = 2 * SLICES;

/// A blocked Bloom filter to fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedBloom {
    bytes: Vec<u8>,
    probes: u8,
}

impl BlockedBloom {
    /// An empty filter for a number of keys at some bits per key, rounded up to whole blocks.
    ///
    /// Zero bits per key, or a fraction too small to be of use, give the filter that contains
    /// everything. Costs some microseconds to find the best number of probes.
    ///
    /// # Panics
    ///
    /// If `bits_per_key` is negative or not finite, or the filter would exceed 2³² blocks.
    pub fn new(keys: usize, bits_per_key: f64) -> Self {
        assert!(bits_per_key.is_finite() && bits_per_key >= 0.0, "{bits_per_key} bits per key");
        if bits_per_key == 0.0 {
            return Self { bytes: Vec::new(), probes: 0 };
        }
        let bits = keys as f64 * bits_per_key;
        let blocks = (bits / (8 * BLOCK) as f64).ceil().max(1.0);
        assert!(blocks <= f64::from(u32::MAX), "{blocks} blocks");
        let rate = |probes: &u8| blocked_false_positive_rate(bits_per_key, *probes);
        let probes = (1..=MAX_PROBES).min_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(1);
        Self { bytes: vec![0; blocks as usize * BLOCK], probes }
    }

    /// A filter of the hashes given, at this many bits per key.
    ///
    /// # Panics
    ///
    /// As [`BlockedBloom::new`].
    pub fn build(hashes: &[u64], bits_per_key: f64) -> Self {
        Self::build_like(hashes, bits_per_key, &[])
    }

    /// As [`build`](BlockedBloom::build), but as long as the first of `sizes` (in bytes) that
    /// differs by up to 1/16: only filters of one size can be sliced (see
    /// [`SlicedBloom`](super::SlicedBloom)).
    ///
    /// # Panics
    ///
    /// As [`BlockedBloom::new`].
    pub fn build_like(hashes: &[u64], bits_per_key: f64, sizes: &[usize]) -> Self {
        let mut bloom = Self::new(hashes.len(), bits_per_key);
        let own = bloom.bytes.len();
        let is_close = |size: &&usize| {
            size.is_multiple_of(BLOCK) && size.abs_diff(own) <= own / SIZE_TOLERANCE_DIVISOR
        };
        if let Some(&size) = sizes.iter().find(is_close) {
            bloom.bytes.resize(size, 0);
        }
        hashes.iter().for_each(|&hash| bloom.insert(hash));
        bloom
    }

    /// Adds the hash of a key; costs one cache miss.
    pub fn insert(&mut self, hash: u64) {
        let (blocks, _) = self.bytes.as_chunks_mut::<BLOCK>();
        if blocks.is_empty() {
            return;
        }
        let index = block_of(hash, blocks.len());
        let block = &mut blocks[index];
        each_bit(hash, self.probes, |bit| block[bit / 8] |= 1 << (bit % 8));
    }

    /// Whether the hash may have been inserted.
    pub fn contains(&self, hash: u64) -> bool {
        self.view().contains(hash)
    }

    /// A read-only view.
    pub fn view(&self) -> BlockedBloomView<'_> {
        BlockedBloomView { blocks: self.bytes.as_chunks().0, probes: self.probes }
    }

    /// The bytes to be stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of probes, to be stored with the bytes.
    pub fn probes(&self) -> u8 {
        self.probes
    }
}

/// A blocked Bloom filter in stored bytes.
#[derive(Clone, Copy, Debug)]
pub struct BlockedBloomView<'a> {
    blocks: &'a [[u8; BLOCK]],
    probes: u8,
}

impl<'a> BlockedBloomView<'a> {
    /// Opens the bytes and the number of probes of a [`BlockedBloom`], without copying.
    ///
    /// # Errors
    ///
    /// If no filter has this length or this number of probes.
    pub fn open(bytes: &'a [u8], probes: u8) -> Result<Self, BloomError> {
        let (blocks, rest) = bytes.as_chunks();
        if !rest.is_empty() || u32::try_from(blocks.len()).is_err() {
            return Err(BloomError::Length { bytes: bytes.len() });
        }
        if probes > MAX_PROBES || (probes == 0) != blocks.is_empty() {
            return Err(BloomError::Probes { bytes: bytes.len(), probes });
        }
        Ok(Self { blocks, probes })
    }

    /// The filter in these blocks, unchecked: with the wrong number of probes, any answer is
    /// possible.
    #[inline]
    pub fn of_blocks(blocks: &'a [[u8; BLOCK]], probes: u8) -> Self {
        Self { blocks, probes }
    }

    /// The number of blocks and of probes.
    pub fn shape(&self) -> (usize, u8) {
        (self.blocks.len(), self.probes)
    }

    /// The bytes to be stored.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.blocks.as_flattened()
    }

    /// Whether the hash may have been inserted; costs one cache miss, and no branch on the bits.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        let Some(block) = self.blocks.get(block_of(hash, self.blocks.len())) else { return true };
        let mut all = 1;
        each_bit(hash, self.probes, |bit| all &= block[bit / 8] >> (bit % 8));
        all & 1 == 1
    }
}

/// A hash to look up in several blocked filters.
///
/// Filters of one table mostly have the same number of probes, so the bits of the hash in its block
/// are computed once.
#[derive(Clone, Debug)]
pub struct BloomProbe {
    hash: u64,
    probes: u8,
    /// The bits of the hash for this number of probes.
    bits: [u64; WORDS],
}

impl BloomProbe {
    /// Prepares nothing yet.
    #[inline]
    pub fn new(hash: u64) -> Self {
        BloomProbe { hash, probes: 0, bits: [0; WORDS] }
    }

    /// The hash.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether the hash may have been inserted into `filter`; as [`BlockedBloomView::contains`].
    #[inline]
    pub fn is_in(&mut self, filter: &BlockedBloomView<'_>) -> bool {
        let block = block_of(self.hash, filter.blocks.len());
        let Some(block) = filter.blocks.get(block) else { return true };
        if self.probes != filter.probes {
            self.probes = filter.probes;
            self.bits = [0; WORDS];
            each_bit(self.hash, self.probes, |bit| self.bits[bit / 64] |= 1 << (bit % 64));
        }
        let words = self.bits.iter().zip(block.as_chunks().0);
        words.fold(0, |missing, (bits, word)| missing | (bits & !u64::from_le_bytes(*word))) == 0
    }
}

/// The expected rate of false positives of a blocked filter.
///
/// The number of keys in a block is Poisson distributed with mean `512 / bits_per_key`; a block of
/// `i` keys answers falsely as a classic filter of 512 bits and `i` keys does. Measured rates are
/// slightly higher, as the bits set in a block vary as well: by 0.3 % of the rate at 10 bits per
/// key, 10 % at 20 bits (Bose et al., "On the false-positive rate of Bloom filters", IPL 2008, for
/// the reason).
pub fn blocked_false_positive_rate(bits_per_key: f64, probes: u8) -> f64 {
    let bits = (8 * BLOCK) as f64;
    let mean = bits / bits_per_key;
    let of_keys = |keys: f64| {
        let set = 1.0 - (1.0 - 1.0 / bits).powf(keys * f64::from(probes));
        set.powi(i32::from(probes))
    };
    // Blocks this full hardly differ, and the sum would be endless.
    if mean > MAX_KEYS_PER_BIT * bits {
        return of_keys(mean);
    }
    // Terms beyond ten standard deviations are below the precision of the sum.
    let last = (mean + 10.0 * mean.sqrt() + 10.0) as u32;
    let mut log_poisson = -mean;
    let mut rate = 0.0;
    for keys in 0..=last {
        rate += log_poisson.exp() * of_keys(f64::from(keys));
        log_poisson += mean.ln() - f64::from(keys + 1).ln();
    }
    rate
}

/// The block of a hash: its high half, scaled to the number of blocks; zero if there are none.
#[inline]
pub(super) fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

/// Calls `each` with the bits of a hash in its block.
#[inline]
pub(super) fn each_bit(hash: u64, probes: u8, mut each: impl FnMut(usize)) {
    let mut slices = mix64(hash);
    for _ in 0..probes.min(SLICES) {
        each((slices % (1 << SLICE)) as usize);
        slices >>= SLICE;
    }
    if probes > SLICES {
        // Inverted, as the mix alone would map the hash 0 to the slices already used.
        let mut slices = mix64(!hash);
        for _ in SLICES..probes {
            each((slices % (1 << SLICE)) as usize);
            slices >>= SLICE;
        }
    }
}
