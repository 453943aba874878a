//! Keys, choices of keys and values, as functions of a seed.
//!
//! The same seed gives the same bytes on every machine: the generator is xoshiro256++, whose output
//! is fixed by its definition, and each thread of each phase draws from a stream of its own.
//!
//! Invariant: nothing here needs memory in proportion to the number of keys, so a run over 10^9
//! keys measures the engine's memory and not the generator's.
//!
//! Source: ours over `rand`; each part names its own.

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

/// The generator behind all draws.
pub type Rng = rand::rngs::Xoshiro256PlusPlus;

/// The generator of one stream of a run: streams of the same seed are independent.
pub fn stream(seed: u64, stream: u64) -> Rng {
    // Seeding runs the number through SplitMix64, so neighbouring streams share nothing; the odd
    // factor keeps (seed, stream) and (seed + 1, stream - 1) apart.
    rand::SeedableRng::seed_from_u64(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    #[test]
    fn a_stream_repeats_and_its_neighbours_differ() {
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
