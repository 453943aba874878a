//! Sizes and contents of values.
//!
//! Contents are slices of a pool of a few MiB that is filled once: drawing a value costs one random
//! number, so the generator does not dominate the measurement. The pool consists of pieces, each
//! with random bytes followed by a run of zeros; the share of the run is what compresses away.
//!
//! Invariant: a value is a function of the seed and of the number of values drawn before it.
//!
//! Source: the pool and the compressible share are those of `db_bench`.

use std::str::FromStr;

use rand::{Rng as _, RngExt};
use siltstone_engine::MAX_VALUE_BYTES;
use siltstone_engine::options::parse_size;

use super::Rng;

/// Bytes per piece of the pool: the distance at which compressors find redundancy.
const PIECE_BYTES: usize = 128;
const POOL_BYTES: usize = 1 << 20;

/// Distribution of value sizes.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueSize {
    /// All values have this size.
    Fixed(usize),
    /// Uniform from the first to the last size, inclusive.
    Uniform(usize, usize),
    /// Sizes with their weights.
    Histogram(Vec<(usize, f64)>),
}

impl ValueSize {
    /// The largest size.
    pub fn max(&self) -> usize {
        match self {
            ValueSize::Fixed(size) | ValueSize::Uniform(_, size) => *size,
            ValueSize::Histogram(sizes) => sizes.iter().map(|(size, _)| *size).max().unwrap_or(0),
        }
    }

    /// The mean size.
    pub fn mean(&self) -> f64 {
        match self {
            ValueSize::Fixed(size) => *size as f64,
            ValueSize::Uniform(low, high) => (*low + *high) as f64 / 2.0,
            ValueSize::Histogram(sizes) => {
                let weight: f64 = sizes.iter().map(|(_, weight)| weight).sum();
                sizes.iter().map(|(size, w)| *size as f64 * w / weight).sum()
            }
        }
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        match self {
            ValueSize::Fixed(size) => *size,
            ValueSize::Uniform(low, high) => rng.random_range(*low..=*high),
            ValueSize::Histogram(sizes) => {
                let weight: f64 = sizes.iter().map(|(_, weight)| weight).sum();
                let mut left = rng.random::<f64>() * weight;
                let drawn = sizes.iter().find(|(_, weight)| {
                    left -= weight;
                    left < 0.0
                });
                // Rounding may leave a small remainder after the last.
                drawn.or(sizes.last()).map_or(0, |(size, _)| *size)
            }
        }
    }
}

impl FromStr for ValueSize {
    type Err = String;

    /// Parses `100`, `1KiB`, `100..1000` (both ends counted), or sizes with weights:
    /// `100:9,4KiB:1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let size = |text: &str| match parse_size(text)? {
            bytes if bytes <= MAX_VALUE_BYTES as u64 => Ok(bytes as usize),
            _ => Err(format!("'{text}' is over the limit of {MAX_VALUE_BYTES} bytes")),
        };
        if let Some((low, high)) = text.split_once("..") {
            let (low, high) = (size(low)?, size(high)?);
            return match low <= high {
                true => Ok(ValueSize::Uniform(low, high)),
                false => Err(format!("'{text}' runs backwards")),
            };
        }
        if !text.contains(':') {
            return size(text).map(ValueSize::Fixed);
        }
        let weighted = |part: &str| {
            let wrong = || format!("'{part}' is not SIZE:WEIGHT, as in 100:9,4KiB:1");
            let (bytes, weight) = part.split_once(':').ok_or_else(wrong)?;
            let weight: f64 = weight.parse().map_err(|_| wrong())?;
            if !(weight.is_finite() && weight > 0.0) {
                return Err(wrong());
            }
            Ok((size(bytes)?, weight))
        };
        text.split(',').map(weighted).collect::<Result<_, _>>().map(ValueSize::Histogram)
    }
}

impl std::fmt::Display for ValueSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ValueSize::Fixed(size) => write!(f, "{size}"),
            ValueSize::Uniform(low, high) => write!(f, "{low}..{high}"),
            ValueSize::Histogram(sizes) => {
                let parts: Vec<_> = sizes.iter().map(|(s, w)| format!("{s}:{w}")).collect();
                f.write_str(&parts.join(","))
            }
        }
    }
}

/// A generator of values.
#[derive(Debug, Clone)]
pub struct Values {
    size: ValueSize,
    pool: Vec<u8>,
}

impl Values {
    /// A generator of values of these sizes; the share `compressible` (0 to 1) of their bytes is
    /// zero.
    pub fn new(size: ValueSize, compressible: f64, rng: &mut Rng) -> Self {
        let mut pool = vec![0; POOL_BYTES + size.max()];
        let random = ((1.0 - compressible.clamp(0.0, 1.0)) * PIECE_BYTES as f64).round() as usize;
        for piece in pool.chunks_mut(PIECE_BYTES) {
            let random = random.min(piece.len());
            rng.fill_bytes(&mut piece[..random]);
        }
        Values { size, pool }
    }

    /// The next value.
    pub fn next(&mut self, rng: &mut Rng) -> &[u8] {
        let size = self.size.draw(rng);
        self.of(size, rng)
    }

    /// A value of `size` bytes, at most the largest size.
    pub fn of(&mut self, size: usize, rng: &mut Rng) -> &[u8] {
        let start = rng.random_range(0..=self.pool.len() - size);
        &self.pool[start..start + size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::stream;

    #[test]
    fn sizes_follow_their_distribution() {
        for text in ["100", "50..150", "10:3,1000:1"] {
            let size: ValueSize = text.parse().unwrap();
            assert_eq!(size.to_string(), text);
            let mut rng = stream(1, 0);
            let mut values = Values::new(size.clone(), 0.0, &mut rng);
            let n = 20_000;
            let drawn: Vec<_> = (0..n).map(|_| values.next(&mut rng).len() as f64).collect();
            let mean = drawn.iter().sum::<f64>() / f64::from(n);
            assert!((mean - size.mean()).abs() < 0.03 * size.mean(), "{text}: {mean}");
            assert_eq!(drawn.iter().copied().fold(0.0, f64::max), size.max() as f64, "{text}");
        }
    }

    #[test]
    fn compressible_share_is_a_run_of_zeros() {
        for (share, zeros) in [(0.0, 1.0 / 256.0), (0.5, 0.5 + 0.5 / 256.0), (1.0, 1.0)] {
            let mut rng = stream(2, 0);
            let mut values = Values::new(ValueSize::Fixed(100_000), share, &mut rng);
            let value = values.next(&mut rng);
            let seen = value.iter().filter(|b| **b == 0).count() as f64 / value.len() as f64;
            assert!((seen - zeros).abs() < 0.01, "{share}: {seen}");
        }
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for bad in ["", "x", "9..3", "10:x", "10:0", "10:-1", "10:1,", "1TiB", "10:inf"] {
            assert!(bad.parse::<ValueSize>().is_err(), "{bad}");
        }
        assert_eq!("1KiB..2KiB".parse(), Ok(ValueSize::Uniform(1024, 2048)));
    }
}
