//! Classic Bloom filter, for small sets: probes anywhere in the bits, with the fewest bits.
//!
//! ```text
//!  hash ─▶ mix(hash + 1·φ) ─┬─ high 32 bits, scaled ──▶ bit      bit i is bit i % 8 of byte i / 8
//!                           └─ low 32 bits, scaled ───▶ bit
//!          mix(hash + 2·φ) ─┬─ …
//! ```
//!
//! Made for the buckets of an LSM-trie: dozens of items at 16 bits per item, thousands of filters
//! of a few cache lines each. At such sizes, double hashing (two hashes for all probes) increases
//! the false-positive rate; here every probe has 32 bits of its own.
//!
//! Invariant: no false negatives; the bits depend only on the length in bytes and the number of
//! probes, which are all that is stored.
//!
//! Source: Bloom, CACM 1970; Wu, Xu, Shao, Jiang, "LSM-trie", USENIX ATC 2015, section 3.3 for one
//! filter per bucket at 16 bits per item. Here probes come from a counter mixed into the hash.

use super::BloomError;
use crate::hash::mix64;

/// Maximum number of probes: optimal for 43 bits per key, a false-positive rate of 10⁻⁹.
const MAX_PROBES: u8 = 30;
/// Maximum size of a filter, so that 32 bits address a bit.
const MAX_BYTES: usize = 1 << 29;
/// The golden ratio as a fraction of 2⁶⁴: an odd increment of the counter.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A classic Bloom filter to fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicBloom {
    bytes: Vec<u8>,
    probes: u8,
}

impl ClassicBloom {
    /// An empty filter for a number of keys at some bits per key, rounded up to whole bytes.
    ///
    /// Zero bits per key give the filter that contains everything.
    ///
    /// # Panics
    ///
    /// If `bits_per_key` is negative or not finite, or the filter would exceed 512 MiB.
    pub fn new(keys: usize, bits_per_key: f64) -> Self {
        assert!(bits_per_key.is_finite() && bits_per_key >= 0.0, "{bits_per_key} bits per key");
        if bits_per_key == 0.0 {
            return Self { bytes: Vec::new(), probes: 0 };
        }
        let bytes = (keys as f64 * bits_per_key / 8.0).ceil().max(1.0);
        assert!(bytes <= MAX_BYTES as f64, "{bytes} bytes");
        let best = (bits_per_key * std::f64::consts::LN_2).round();
        let probes = best.clamp(1.0, f64::from(MAX_PROBES)) as u8;
        Self { bytes: vec![0; bytes as usize], probes }
    }

    /// A filter of the hashes given, at this many bits per key.
    ///
    /// # Panics
    ///
    /// As [`ClassicBloom::new`].
    pub fn build(hashes: &[u64], bits_per_key: f64) -> Self {
        let mut bloom = Self::new(hashes.len(), bits_per_key);
        hashes.iter().for_each(|&hash| bloom.insert(hash));
        bloom
    }

    /// Adds the hash of a key; costs up to a cache miss per probe.
    pub fn insert(&mut self, hash: u64) {
        let Self { bytes, probes } = self;
        let bits = bytes.len() * 8;
        each_bit(hash, *probes, bits, |bit| {
            bytes[bit / 8] |= 1 << (bit % 8);
            true
        });
    }

    /// Whether the hash may have been inserted.
    pub fn contains(&self, hash: u64) -> bool {
        self.view().contains(hash)
    }

    /// A read-only view.
    pub fn view(&self) -> ClassicBloomView<'_> {
        ClassicBloomView { bytes: &self.bytes, probes: self.probes }
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

/// A classic Bloom filter in stored bytes.
#[derive(Clone, Copy, Debug)]
pub struct ClassicBloomView<'a> {
    bytes: &'a [u8],
    probes: u8,
}

impl<'a> ClassicBloomView<'a> {
    /// Opens the bytes and the number of probes of a [`ClassicBloom`], without copying.
    ///
    /// # Errors
    ///
    /// If no filter has this length or this number of probes.
    pub fn open(bytes: &'a [u8], probes: u8) -> Result<Self, BloomError> {
        if bytes.len() > MAX_BYTES {
            return Err(BloomError::Length { bytes: bytes.len() });
        }
        if probes > MAX_PROBES || (probes == 0) != bytes.is_empty() {
            return Err(BloomError::Probes { bytes: bytes.len(), probes });
        }
        Ok(Self { bytes, probes })
    }

    /// Whether the hash may have been inserted; mostly two probes exclude an absent key.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        each_bit(hash, self.probes, self.bytes.len() * 8, |bit| {
            self.bytes[bit / 8] >> (bit % 8) & 1 == 1
        })
    }
}

/// Calls `each` with the bits of a hash until it returns false; returns whether it never did.
#[inline]
fn each_bit(hash: u64, probes: u8, bits: usize, mut each: impl FnMut(usize) -> bool) -> bool {
    let scale = |random: u64| ((random * bits as u64) >> 32) as usize;
    let mut state = hash;
    for pair in 0..probes.div_ceil(2) {
        state = state.wrapping_add(STEP);
        let random = mix64(state);
        if !each(scale(random >> 32)) {
            return false;
        }
        if 2 * pair + 1 < probes && !each(scale(random & u64::from(u32::MAX))) {
            return false;
        }
    }
    true
}
