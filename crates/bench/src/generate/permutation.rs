//! A pseudorandom permutation of 0 … n−1 without a table.
//!
//! Each round multiplies by an odd number and folds the upper half onto the lower, which permutes
//! the numbers below the next power of two. A result of n or more is permuted again until it is
//! below n, fewer than twice on average.
//!
//! Invariant: it is a bijection of 0 … n−1, so scattering popular keys over the key space does not
//! change the probability of any key. (With hashing, as in YCSB's scrambled Zipf, ranks collide:
//! some keys get the sum of two ranks and a third of them are never drawn.)
//!
//! Source: "cycle walking", Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA
//! 2002. This is not a cipher: it only has to look random.

use rand::RngExt;

/// Number of rounds; with fewer than three, neighbours form visible patterns.
const ROUNDS: usize = 4;

/// A bijection of 0 … n−1.
#[derive(Debug, Clone)]
pub struct Permutation {
    n: u64,
    mask: u64,
    fold: u32,
    rounds: [(u64, u64); ROUNDS],
}

impl Permutation {
    /// The permutation of `n` numbers for a seed; `n` = 0 is treated as 1.
    pub fn new(n: u64, seed: u64) -> Self {
        let n = n.max(1);
        let bits = (u64::BITS - (n - 1).leading_zeros()).max(1);
        let mut rng = super::stream(seed, u64::from(bits));
        Permutation {
            n,
            mask: u64::MAX >> (u64::BITS - bits),
            // At least one, so that upper bits affect lower ones.
            fold: (bits / 2).max(1),
            rounds: std::array::from_fn(|_| (rng.random::<u64>() | 1, rng.random())),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Always `false`: there is at least the number 0.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The image of `i`, which must be below the length.
    pub fn apply(&self, i: u64) -> u64 {
        debug_assert!(i < self.n);
        let mut x = i;
        loop {
            for (factor, offset) in self.rounds {
                x = x.wrapping_mul(factor).wrapping_add(offset) & self.mask;
                x ^= x >> self.fold;
            }
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutation_is_a_bijection() {
        for n in [1u64, 2, 3, 7, 8, 9, 1000, 4096, 4097] {
            let permutation = Permutation::new(n, n ^ 7);
            let mut image: Vec<_> = (0..n).map(|i| permutation.apply(i)).collect();
            image.sort_unstable();
            assert!(image.into_iter().eq(0..n), "{n}");
        }
    }

    #[test]
    fn first_numbers_are_scattered_evenly() {
        // A tenth of the numbers, counted in 16 equal parts of the range: chi-square with 15
        // degrees of freedom is over 45 once in 10,000 permutations.
        let n = 100_000u64;
        for seed in 0..4 {
            let permutation = Permutation::new(n, seed);
            let mut parts = [0f64; 16];
            for i in 0..n / 10 {
                parts[(permutation.apply(i) * 16 / n) as usize] += 1.0;
            }
            let expected = n as f64 / 160.0;
            let chi: f64 = parts.iter().map(|c| (c - expected).powi(2) / expected).sum();
            assert!(chi < 45.0, "seed {seed}: {chi}");
        }
    }

    #[test]
    fn largest_range_is_permuted() {
        let permutation = Permutation::new(u64::MAX, 1);
        assert_ne!(permutation.apply(0), permutation.apply(1));
    }
}
