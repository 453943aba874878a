//! Mixes of operations with weights.
//!
//! Invariant: weights are positive, so exactly the listed operations occur, each with its share.
//!
//! Source: YCSB's operation proportions.

use rand::RngExt;

use super::Rng;

/// One kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Writes a drawn key.
    Put,
    /// Writes a new key after all existing ones.
    Insert,
    /// Looks up a drawn key.
    Get,
    /// Looks up a drawn key, with others in one call.
    MultiGet,
    /// Looks up a missing key.
    GetMissing,
    /// Looks up a drawn key and writes it.
    ReadModifyWrite,
    /// Reads 1 to `longest` entries (uniformly) from a drawn key on.
    Scan {
        /// Maximal number of entries.
        longest: u64,
    },
    /// Seeks a cursor to a drawn key and moves it `nexts` times.
    Seek {
        /// Moves after the seek.
        nexts: u64,
    },
}

impl Operation {
    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Operation::Put | Operation::Insert | Operation::ReadModifyWrite)
    }

    /// Whether it needs ordered keys.
    pub fn needs_order(self) -> bool {
        matches!(self, Operation::Scan { .. } | Operation::Seek { .. })
    }
}

/// Operations with their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    parts: Vec<(Operation, u32)>,
    total: u32,
}

impl Mix {
    /// A mix without the parts of weight 0. Panics if none is left: mixes are constants of the
    /// source, not user input.
    pub fn new(parts: &[(Operation, u32)]) -> Self {
        let parts: Vec<_> = parts.iter().copied().filter(|(_, weight)| *weight > 0).collect();
        let total = parts.iter().map(|(_, weight)| weight).sum();
        assert!(total > 0, "a mix has at least one operation");
        Mix { parts, total }
    }

    /// A mix of one operation.
    pub fn only(operation: Operation) -> Self {
        Mix::new(&[(operation, 1)])
    }

    /// The operations.
    pub fn operations(&self) -> impl Iterator<Item = Operation> {
        self.parts.iter().map(|(operation, _)| *operation)
    }

    /// The next operation.
    pub fn next(&self, rng: &mut Rng) -> Operation {
        if let [(only, _)] = self.parts[..] {
            return only;
        }
        let mut left = rng.random_range(0..self.total);
        for (operation, weight) in &self.parts {
            match left.checked_sub(*weight) {
                None => return *operation,
                Some(rest) => left = rest,
            }
        }
        unreachable!("the draw is below the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::stream;

    #[test]
    fn operations_occur_in_their_shares() {
        let mix = Mix::new(&[(Operation::Get, 50), (Operation::Put, 45), (Operation::Insert, 5)]);
        let mut rng = stream(4, 0);
        let draws = 100_000;
        let mut counts = [0.0; 3];
        for _ in 0..draws {
            match mix.next(&mut rng) {
                Operation::Get => counts[0] += 1.0,
                Operation::Put => counts[1] += 1.0,
                Operation::Insert => counts[2] += 1.0,
                other => panic!("{other:?} is not in the mix"),
            }
        }
        for (count, share) in counts.iter().zip([0.5, 0.45, 0.05]) {
            let expected = f64::from(draws) * share;
            assert!((count - expected).abs() < 5.0 * expected.sqrt(), "{count} {expected}");
        }
    }
}
