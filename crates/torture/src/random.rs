//! Pseudo-random numbers (SplitMix64).
//!
//! The generator is part of this crate, so that the seed of an old finding gives the same random
//! choices after an update of the dependencies.

use std::time::Duration;

/// A generator of pseudo-random numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A seed that depends on all `parts` and their order.
    pub fn seed_of(parts: &[u64]) -> u64 {
        let mut random = Random(0x5EED);
        for part in parts {
            random.0 ^= *part;
            random.0 = random.next();
        }
        random.next()
    }

    /// A seed that depends on all bytes of a name.
    pub fn seed_of_name(name: &str) -> u64 {
        let parts: Vec<_> = name.bytes().map(u64::from).collect();
        Random::seed_of(&parts)
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `limit` - 1; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A random element of a non-empty slice.
    pub fn pick<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// A duration below `limit`, to the microsecond.
    pub fn duration(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(self.below(limit.as_micros() as u64 + 1))
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let next = self.next().to_le_bytes();
            chunk.copy_from_slice(&next[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_any_limit_is_less_than_the_limit() {
        let mut random = Random::new(7);
        for limit in [1, 2, 3, 1000, u64::MAX] {
            assert!((0..1000).all(|_| random.below(limit) < limit));
        }
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn seed_of_swapped_parts_differs() {
        assert_ne!(Random::seed_of(&[1, 2]), Random::seed_of(&[2, 1]));
        assert_eq!(Random::seed_of(&[1, 2]), Random::seed_of(&[1, 2]));
    }
}
