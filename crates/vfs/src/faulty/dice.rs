//! Chance that repeats.
//!
//! A generator of 64 bits of state. Each file and directory throws dice of its own, made from the
//! seed and its identity, so the outcome for one doesn't hang on how many others there are.
//!
//! Invariant: the same seed throws the same numbers in every version, so a seed in a bug report
//! stays good.
//!
//! Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014,
//! section 4 (SplitMix64). Written out here because the `rand` crate keeps no sequence across its
//! versions.

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of numbers from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// Dice for one of many things.
    pub(crate) fn of(seed: u64, id: u64) -> Self {
        Dice(mix(seed ^ mix(id.wrapping_add(GOLDEN_GAMMA))))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// A number below `bound`; 0 if there is none.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The product's upper half is even enough: bounds here are far below 2^64.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// `true` with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_bounds_and_chance_is_about_fair() {
        let mut dice = Dice::new(5);
        let mut seen = [0; 6];
        (0..6000).for_each(|_| seen[dice.below(6) as usize] += 1);
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        let hits = (0..10_000).filter(|_| dice.chance(0.1)).count();
        assert!((800..1200).contains(&hits), "{hits}");
        assert!(!dice.chance(0.0) && dice.chance(1.0));
        assert_eq!(dice.below(0), 0);
        assert_ne!(Dice::of(1, 2).next(), Dice::of(2, 1).next());
    }
}
