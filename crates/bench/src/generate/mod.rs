//! Keys, key distributions and values, as functions of a seed.
//!
//! The same seed gives the same bytes on every machine: the generator is xoshiro256++, whose output
//! is fixed by its definition, and each thread of each phase has its own stream.
//!
//! Invariant: memory does not grow with the number of keys, so a run over 10^9 keys measures the
//! engine's memory and not the generator's.

pub mod choose;
pub mod keys;
pub mod mix;
pub mod permutation;
pub mod values;

pub use choose::{Chooser, Draw};
pub use keys::KeySpace;
pub use mix::{Mix, Operation};
pub use permutation::Permutation;
pub use values::{ValueSize, Values};

/// The random number generator of all draws.
pub type Rng = rand::rngs::Xoshiro256PlusPlus;

/// The generator of one stream; streams of the same seed are independent.
pub fn stream(seed: u64, stream: u64) -> Rng {
    // Seeding passes the number through SplitMix64, so neighbouring streams are unrelated; the odd
    // factor distinguishes (seed, stream) from (seed + 1, stream - 1).
    rand::SeedableRng::seed_from_u64(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    #[test]
    fn stream_is_reproducible_and_differs_from_others() {
        let draw = |seed, stream| -> [u64; 4] {
            let mut rng = super::stream(seed, stream);
            std::array::from_fn(|_| rng.random())
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
        assert_ne!(draw(1, 2), draw(2, 1));
    }
}
