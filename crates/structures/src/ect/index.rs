//! Index of virtual buckets: the start of each, in bits of the tries and in keys.
//!
//! ```text
//!  groups      [bits u64, rank u64]                          one for 64 buckets: 2 bits per bucket
//!  relatives   [0, 0] [bits u16, rank u16] [bits, rank] …    32 bits per bucket, 0.133 per key
//! ```
//!
//! There is one start more than buckets: the end of the last. A group has fewer buckets if these
//! have more than 256 keys, so that its offsets fit: it has 16,384 keys, whose tries take about
//! 40,000 bits, of the 65,535 that an offset can represent.
//!
//! Invariant: the starts never decrease, neither in bits nor in rank.
//!
//! Source: Lim, thesis, section 3.1.3.

/// Keys per group of buckets on average, if the buckets have 256 keys or more.
const GROUP_KEYS: u32 = 64 * 256;
/// Maximum number of buckets in a group (log₂).
pub(super) const MAX_LOG2_GROUP: u32 = 6;

/// The start of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// The first bit of its trie.
    pub(super) bits: u64,
    /// Number of keys before it.
    pub(super) rank: u64,
}

/// The starts of all buckets, and the end of the last.
#[derive(Clone, Debug)]
pub(super) struct BucketIndex {
    log2_group: u32,
    groups: Vec<Start>,
    relatives: Vec<[u16; 2]>,
}

impl BucketIndex {
    /// An empty index for buckets of this average size.
    pub(super) fn new(keys_per_bucket: u32) -> Self {
        let group = (GROUP_KEYS / keys_per_bucket.max(1)).max(1);
        Self::with_group(group.ilog2().min(MAX_LOG2_GROUP), 0)
    }

    /// An empty index with a capacity, in groups of a power of two.
    pub(super) fn with_group(log2_group: u32, starts: usize) -> Self {
        let groups = Vec::with_capacity(starts.div_ceil(1 << log2_group));
        Self { log2_group, groups, relatives: Vec::with_capacity(starts) }
    }

    /// Adds the start of the next bucket; returns whether its offsets fit.
    #[must_use]
    pub(super) fn push(&mut self, start: Start) -> bool {
        let group = if self.relatives.len().is_multiple_of(1 << self.log2_group) {
            self.groups.push(start);
            start
        } else {
            self.groups.last().copied().unwrap_or_default()
        };
        let relative = |of: u64, base: u64| of.checked_sub(base).and_then(|of| of.try_into().ok());
        match (relative(start.bits, group.bits), relative(start.rank, group.rank)) {
            (Some(bits), Some(rank)) => {
                self.relatives.push([bits, rank]);
                true
            }
            _ => false,
        }
    }

    /// The start of a bucket; costs two cache lines, which mostly also have the next start.
    ///
    /// # Panics
    ///
    /// If there is no such bucket.
    #[inline]
    pub(super) fn start(&self, bucket: u32) -> Start {
        let [bits, rank] = self.relatives[bucket as usize];
        let group = self.groups[bucket as usize >> self.log2_group];
        Start { bits: group.bits + u64::from(bits), rank: group.rank + u64::from(rank) }
    }

    pub(super) fn log2_group(&self) -> u32 {
        self.log2_group
    }

    pub(super) fn groups(&self) -> &[Start] {
        &self.groups
    }

    pub(super) fn relatives(&self) -> &[[u16; 2]] {
        &self.relatives
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_round_trip_across_groups() {
        for keys_per_bucket in [1, 256, 300, 16_384, 65_536] {
            let mut index = BucketIndex::new(keys_per_bucket);
            let start = |i: u64| Start {
                bits: i * u64::from(keys_per_bucket) * 5 / 2 + i % 3,
                rank: i * u64::from(keys_per_bucket),
            };
            assert!((0..1_000).all(|i| index.push(start(i))), "{keys_per_bucket}");
            assert!((0..1_000).all(|i| index.start(i as u32) == start(i)), "{keys_per_bucket}");
        }
    }

    #[test]
    fn decreasing_or_distant_starts_are_rejected() {
        for (bits, rank, fits) in
            [(65_545, 10, true), (65_546, 10, false), (10, 65_546, false), (9, 10, false)]
        {
            let mut index = BucketIndex::new(256);
            assert!(index.push(Start { bits: 10, rank: 10 }));
            assert_eq!(index.push(Start { bits, rank }), fits);
        }
    }
}
