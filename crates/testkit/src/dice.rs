//! Chance that repeats: every random choice of the kit comes from here.
//!
//! A counter in steps of an odd constant, scrambled by a mixing function. Dice for one of many
//! things ([`Dice::of`]) are independent, so that a change to one part of a run leaves the choices
//! of the others as they were.
//!
//! Invariant: the same seed throws the same numbers in every version of the kit, so that a seed in
//! a bug report stays good; which is why this is written out and not a dependency's.
//!
//! Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014,
//! section 4 (SplitMix64).

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of numbers from a seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Dice from a seed.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// Dice for one of many things.
    pub fn of(seed: u64, thing: u64) -> Self {
        Dice(scramble(seed ^ scramble(thing.wrapping_add(STEP))))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        scramble(self.0)
    }

    /// A number below `bound`; 0 if there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The upper half of the product; the bias is beyond measure for the bounds used here.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into `len` things, of which there is at least one.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// `true` once in `n` throws.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of the things, of which there is at least one.
    pub fn pick<'t, T>(&mut self, things: &'t [T]) -> &'t T {
        &things[self.index(things.len())]
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.draw().to_le_bytes());
        words.take(len.div_ceil(8)).flatten().take(len).collect()
    }
}

/// Every bit of the result hangs on every bit of `z`.
pub(crate) fn scramble(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_even_and_in_bounds() {
        let mut dice = Dice::new(1);
        let mut seen = [0; 5];
        (0..5000).for_each(|_| seen[dice.index(5)] += 1);
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
        assert_eq!(dice.bytes(13).len(), 13);
        assert_ne!(Dice::of(1, 2).draw(), Dice::of(2, 1).draw());
    }

    #[test]
    fn a_seed_keeps_its_numbers() {
        assert_eq!(Dice::new(0).draw(), 0xe220_a839_7b1d_cdaf);
    }
}
