//! A small seeded pseudo-random generator (SplitMix64) whose sequence never changes.
//!
//! For simulations that a seed must reproduce: power cuts, injected faults, damaged pages. Not for
//! keys or secrets. Generators for different streams of one seed ([`SplitMix64::stream`]) are
//! independent, so that a change to one part of a simulation leaves the draws of the others as they
//! were.
//!
//! Invariant: a seed gives the same numbers in every version, so that a seed in a bug report stays
//! valid. That is why this is not the `rand` crate, which keeps no sequence across its versions.
//!
//! Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014,
//! section 4.

use crate::hash::mix64;

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of pseudo-random numbers.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// The sequence number `stream` of a seed.
    pub fn stream(seed: u64, stream: u64) -> Self {
        SplitMix64(mix64(seed ^ mix64(stream.wrapping_add(GOLDEN_GAMMA))))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix64(self.0)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The upper half of the product; the bias is negligible for bounds far below 2^64.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// `true` with probability 1/2.
    pub fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    /// `true` with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_and_in_bounds() {
        let mut random = SplitMix64::new(5);
        let mut counts = [0; 6];
        (0..6000).for_each(|_| counts[random.below(6) as usize] += 1);
        assert!(counts.iter().all(|&n| (800..1200).contains(&n)), "{counts:?}");
        let hits = (0..10_000).filter(|_| random.chance(0.1)).count();
        assert!((800..1200).contains(&hits), "{hits}");
        assert!(!random.chance(0.0) && random.chance(1.0));
        assert_eq!(random.below(0), 0);
        assert_ne!(SplitMix64::stream(1, 2).next_u64(), SplitMix64::stream(2, 1).next_u64());
    }

    #[test]
    fn seed_gives_the_same_numbers_in_every_version() {
        assert_eq!(SplitMix64::new(0).next_u64(), 0xe220_a839_7b1d_cdaf);
    }
}
