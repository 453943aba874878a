//! The random numbers of the kit, reproducible from a seed.
//!
//! A counter in steps of an odd constant, passed through a mixing function. Streams for separate
//! parts ([`TestRng::of`]) are independent, so that a change to one part of a run leaves the random
//! choices of the others alone.
//!
//! Invariant: a seed gives the same numbers in every version of the kit, so that a seed in a bug
//! report stays valid. Hence no external generator.
//!
//! Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014,
//! section 4 (SplitMix64).

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random numbers from a seed.
#[derive(Debug, Clone)]
pub struct TestRng(u64);

impl TestRng {
    /// A stream from a seed.
    pub fn new(seed: u64) -> Self {
        TestRng(seed)
    }

    /// An independent stream for one part of a run.
    pub fn of(seed: u64, part: u64) -> Self {
        TestRng(mix(seed ^ mix(part.wrapping_add(STEP))))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The upper half of the product; the bias is negligible for the bounds used here.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
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

/// A bijective mixing function: every bit of the result depends on every bit of `z`.
pub(crate) fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
        assert_ne!(TestRng::of(1, 2).draw(), TestRng::of(2, 1).draw());
    }

    #[test]
    fn seed_gives_the_same_numbers_in_every_version() {
        assert_eq!(TestRng::new(0).draw(), 0xe220_a839_7b1d_cdaf);
    }
}
