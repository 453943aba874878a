//! The random numbers of the kit, reproducible from a seed: [`SplitMix64`] and draws for tests.
//!
//! Invariant: a seed gives the same numbers in every version of the kit, so that a seed in a bug
//! report stays valid.

use siltstone_structures::SplitMix64;

/// A stream of random numbers from a seed.
#[derive(Debug, Clone)]
pub struct TestRng(SplitMix64);

impl TestRng {
    /// A stream from a seed.
    pub fn new(seed: u64) -> Self {
        TestRng(SplitMix64::new(seed))
    }

    /// An independent stream for one part of a run.
    pub fn of(seed: u64, part: u64) -> Self {
        TestRng(SplitMix64::stream(seed, part))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// An index into a non-empty slice of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// `true` with probability 1/`n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A random element of a non-empty slice.
    pub fn pick<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.index(items.len())]
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.draw().to_le_bytes());
        words.take(len.div_ceil(8)).flatten().take(len).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_and_within_bounds() {
        let mut rng = TestRng::new(1);
        let mut seen = [0; 5];
        (0..5000).for_each(|_| seen[rng.index(5)] += 1);
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
        assert_eq!(rng.bytes(13).len(), 13);
    }
}
