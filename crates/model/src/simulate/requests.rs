//! The keys that a simulation requests: popularity ranks by Zipf's law, scattered over the key
//! space by a bijection, so that popular keys are no neighbours. After each phase it is another one.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::entry::Entry;
use super::variation::Variation;

/// The stream of requested keys.
pub(super) struct Requests {
    keys: u32,
    rng: SmallRng,
    zipf: Option<Zipf<f64>>,
    half_bits: u32,
    round_keys: [u32; 4],
    deletes: f64,
    /// Requests of a phase, and those left of this one.
    phase: Option<u64>,
    left: u64,
}

impl Requests {
    /// Requests for `keys` keys, with the Zipf exponent `skew`; 0 is uniform.
    pub(super) fn new(keys: u32, skew: f64, seed: u64, variation: &Variation) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let bits = u32::BITS - (keys - 1).leading_zeros();
        Requests {
            keys,
            zipf: (skew > 0.0).then(|| Zipf::new(f64::from(keys), skew).ok()).flatten(),
            half_bits: bits.div_ceil(2),
            round_keys: rng.random(),
            rng,
            deletes: variation.deletes,
            phase: variation.phase,
            left: variation.phase.unwrap_or(0),
        }
    }

    /// The next request.
    pub(super) fn next(&mut self) -> Entry {
        if let Some(phase) = self.phase {
            if self.left == 0 {
                self.round_keys = self.rng.random();
                self.left = phase;
            }
            self.left -= 1;
        }
        let rank = match &self.zipf {
            None => self.rng.random_range(0..self.keys),
            Some(zipf) => zipf.sample(&mut self.rng) as u32 - 1,
        };
        let key = self.scatter(rank);
        self.request(key)
    }

    /// A request for `key`: a put or a deletion.
    pub(super) fn request(&mut self, key: u32) -> Entry {
        let is_deletion = self.deletes > 0.0 && self.rng.random_bool(self.deletes);
        Entry::new(key, is_deletion)
    }

    /// The key of a popularity rank.
    ///
    /// A Feistel network over the next even number of bits, repeated until the value is below N
    /// (cycle walking): a bijection of 0..N without a table of N entries.
    pub(super) fn scatter(&self, rank: u32) -> u32 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut x = u64::from(rank);
        loop {
            for key in self.round_keys {
                let (left, right) = (x >> self.half_bits, x & mask);
                let mixed = (right ^ u64::from(key)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 29;
                x = right << self.half_bits | (left ^ mixed) & mask;
            }
            if x < u64::from(self.keys) {
                return x as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scatter_is_a_bijection() {
        for keys in [2, 3, 1000, 1024, 1025] {
            let requests = Requests::new(keys, 0.0, 1, &Variation::default());
            let mut seen: Vec<u32> = (0..keys).map(|rank| requests.scatter(rank)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..keys));
        }
    }
}
