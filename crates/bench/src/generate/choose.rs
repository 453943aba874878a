//! Key distributions.
//!
//! A [`Draw`] is a distribution of keys; a [`Chooser`] draws from it for one thread. Skewed
//! distributions draw a rank first and then the key of that rank. A [`Permutation`] scatters ranks
//! over the key space, so that popular keys are not adjacent.
//!
//! Invariant: each draw costs constant time and memory, whatever the number of keys.
//!
//! Sources: Zipf by rejection from the integral of its density (`rand_distr`), exact for every
//! skew; "latest" and the hot spot from Cooper et al., "Benchmarking Cloud Serving Systems with
//! YCSB", SoCC 2010, and TRIAD (ATC 2017), section 5.3.

use rand::RngExt;
use rand_distr::{Distribution, Zipf};

use super::{Permutation, Rng};

/// A distribution of keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Draw {
    /// Each key once, in order.
    Sequential,
    /// Each key once, in a shuffled order.
    Shuffled,
    /// All keys with the same probability.
    Uniform,
    /// The key of rank r with a probability proportional to 1/r^skew; ranks are scattered over the
    /// key space.
    Zipf {
        /// The exponent, 0 or more; 0 is uniform.
        skew: f64,
    },
    /// Zipf over age: the newest key has rank 1.
    Latest {
        /// The exponent, 0 or more.
        skew: f64,
    },
    /// A share of the keys receives a share of the operations; both parts are uniform.
    Hotspot {
        /// Share of keys that are hot, 0 to 1.
        keys: f64,
        /// Share of operations on hot keys, 0 to 1.
        operations: f64,
    },
}

/// Draws keys for one of several threads.
#[derive(Debug, Clone)]
pub struct Chooser {
    draw: Draw,
    scatter: Permutation,
    zipf: Option<Ranks>,
    next: u64,
    step: u64,
}

/// A Zipf distribution over `count` ranks.
#[derive(Debug, Clone, Copy)]
struct Ranks {
    count: u64,
    zipf: Zipf<f64>,
}

impl Chooser {
    /// A chooser among `keys` keys (at least one) for `thread` of `threads`. All threads must use
    /// the same `seed`: it determines which keys are popular, not the sequence of draws.
    pub fn new(draw: Draw, keys: u64, seed: u64, thread: u64, threads: u64) -> Self {
        let scatter = Permutation::new(keys, seed);
        Chooser { draw, scatter, zipf: None, next: thread, step: threads.max(1) }
    }

    /// Number of the next key, below `population`, the current number of keys.
    pub fn next(&mut self, rng: &mut Rng, population: u64) -> u64 {
        let population = population.max(1);
        match self.draw {
            Draw::Sequential => self.next_in_sequence() % population,
            Draw::Shuffled => {
                let i = self.next_in_sequence() % self.scatter.len();
                self.scatter.apply(i) % population
            }
            Draw::Uniform => rng.random_range(0..population),
            Draw::Zipf { skew } => {
                let rank = self.rank(rng, population, skew);
                self.scattered(rank) % population
            }
            Draw::Latest { skew } => population - 1 - self.rank(rng, population, skew),
            Draw::Hotspot { keys, operations } => {
                let hot = ((population as f64 * keys) as u64).clamp(1, population);
                let i = if hot == population || rng.random_bool(operations) {
                    rng.random_range(0..hot)
                } else {
                    rng.random_range(hot..population)
                };
                self.scattered(i) % population
            }
        }
    }

    /// The threads' sequences interleave: together they contain every number once.
    fn next_in_sequence(&mut self) -> u64 {
        let number = self.next;
        self.next += self.step;
        number
    }

    /// A rank, starting from 0.
    fn rank(&mut self, rng: &mut Rng, population: u64, skew: f64) -> u64 {
        let ranks = match self.zipf {
            Some(ranks) if ranks.count == population => ranks,
            _ => {
                // The population is at least 1 and skews are checked to be 0 or more.
                let zipf = Zipf::new(population as f64, skew).expect("a valid distribution");
                *self.zipf.insert(Ranks { count: population, zipf })
            }
        };
        // Floating-point rounding may exceed the last rank by one.
        (ranks.zipf.sample(rng) as u64).clamp(1, population) - 1
    }

    /// Keys inserted after the start are not permuted.
    fn scattered(&self, i: u64) -> u64 {
        if i < self.scatter.len() { self.scatter.apply(i) } else { i }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::stream;

    fn counts(draw: Draw, keys: u64, draws: usize) -> Vec<f64> {
        let mut chooser = Chooser::new(draw, keys, 5, 0, 1);
        let mut rng = stream(11, 0);
        let mut counts = vec![0.0; keys as usize];
        for _ in 0..draws {
            counts[chooser.next(&mut rng, keys) as usize] += 1.0;
        }
        counts
    }

    /// Chi-square of counts against probabilities, in standard deviations from its mean.
    fn deviation(counts: &[f64], probabilities: &[f64]) -> f64 {
        let draws: f64 = counts.iter().sum();
        let chi: f64 = counts
            .iter()
            .zip(probabilities)
            .map(|(count, p)| (count - draws * p).powi(2) / (draws * p))
            .sum();
        let freedom = (counts.len() - 1) as f64;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    fn zipf(keys: u64, skew: f64) -> Vec<f64> {
        let weights: Vec<_> = (1..=keys).map(|rank| (rank as f64).powf(-skew)).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }

    #[test]
    fn zipf_has_exact_probabilities_at_every_skew() {
        for skew in [0.0, 0.5, 0.99, 1.0, 1.2, 2.0] {
            let keys = 100;
            let drawn = counts(Draw::Zipf { skew }, keys, 400_000);
            // Undo the permutation.
            let scatter = Permutation::new(keys, 5);
            let by_rank: Vec<_> = (0..keys).map(|r| drawn[scatter.apply(r) as usize]).collect();
            let off = deviation(&by_rank, &zipf(keys, skew));
            assert!(off.abs() < 4.0, "skew {skew}: {off} standard deviations");
        }
    }

    #[test]
    fn zipf_over_a_billion_keys_needs_no_table() {
        let keys = 1_000_000_000u64;
        let mut chooser = Chooser::new(Draw::Zipf { skew: 0.99 }, keys, 5, 0, 1);
        let hottest = Permutation::new(keys, 5).apply(0);
        let mut rng = stream(1, 0);
        let draws = 300_000;
        let hits = (0..draws).filter(|_| chooser.next(&mut rng, keys) == hottest).count();
        // The sum of r^-0.99 over 10^9 ranks, by Euler and Maclaurin: (n^0.01 - 1)/0.01 plus
        // 0.5772 + 0.0007, Euler's constant with its first correction in 1 - s.
        let sum = ((keys as f64).powf(0.01) - 1.0) / 0.01 + 0.5779;
        let expected = f64::from(draws) / sum;
        assert!((hits as f64 - expected).abs() < 5.0 * expected.sqrt(), "{hits} {expected}");
    }

    #[test]
    fn uniform_and_latest_have_exact_probabilities() {
        let off = deviation(&counts(Draw::Uniform, 200, 200_000), &[1.0 / 200.0; 200]);
        assert!(off.abs() < 4.0, "{off}");
        let mut newest_first = counts(Draw::Latest { skew: 0.99 }, 100, 200_000);
        newest_first.reverse();
        let off = deviation(&newest_first, &zipf(100, 0.99));
        assert!(off.abs() < 4.0, "{off}");
    }

    #[test]
    fn hot_spot_receives_its_share_uniformly() {
        let drawn = counts(Draw::Hotspot { keys: 0.2, operations: 0.8 }, 100, 200_000);
        let scatter = Permutation::new(100, 5);
        let by_rank: Vec<_> = (0..100).map(|r| drawn[scatter.apply(r) as usize]).collect();
        let expected: Vec<_> =
            (0..100).map(|r| if r < 20 { 0.8 / 20.0 } else { 0.2 / 80.0 }).collect();
        let off = deviation(&by_rank, &expected);
        assert!(off.abs() < 4.0, "{off}");
        // A hot spot of all keys is uniform, whatever its share of operations.
        let all = counts(Draw::Hotspot { keys: 1.0, operations: 0.5 }, 50, 100_000);
        assert!(deviation(&all, &[0.02; 50]).abs() < 4.0);
    }

    #[test]
    fn threads_together_draw_every_key_once() {
        for draw in [Draw::Sequential, Draw::Shuffled] {
            let mut rng = stream(0, 0);
            let mut seen: Vec<_> = (0..3)
                .flat_map(|thread| {
                    let mut chooser = Chooser::new(draw, 100, 9, thread, 3);
                    let draws = (100 - thread).div_ceil(3);
                    (0..draws).map(|_| chooser.next(&mut rng, 100)).collect::<Vec<_>>()
                })
                .collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..100), "{draw:?}");
        }
    }

    #[test]
    fn growing_population_is_covered_completely() {
        for draw in [Draw::Uniform, Draw::Zipf { skew: 0.0 }, Draw::Latest { skew: 0.0 }] {
            let mut chooser = Chooser::new(draw, 10, 1, 0, 1);
            let mut rng = stream(3, 0);
            let mut seen = [false; 20];
            for _ in 0..2000 {
                seen[chooser.next(&mut rng, 20) as usize] = true;
            }
            assert!(seen.iter().all(|&seen| seen), "{draw:?}");
        }
    }
}
