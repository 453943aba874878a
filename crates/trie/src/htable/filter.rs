//! The Bloom filters of a table, one per column.
//!
//! ```text
//!   stored := probes:u8  columns:u32  { bytes of the filter: u16 }{columns}  filter bytes
//! ```
//!
//! A column is an equal part of the hash space: that of a bucket in a table of full size. All
//! tables of full size have the same columns, whatever number of buckets they have, so their
//! filters can be moved to a BloomCluster unchanged. The size of a column's filter follows from its
//! number of items, so a column with more items has no higher false-positive rate. Migration of
//! items has no effect on columns. Memory: the filter and 4 bytes per column.
//!
//! Invariant: present are no false negatives.
//!
//! Source: LSM-trie paper, sections 2.4.1 and 2.4.2 (16 bits per item).

use siltstone_structures::{ClassicBloom, ClassicBloomView};

use crate::hash::Hash;

/// The filters of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    probes: u8,
    /// The end of the filter of each column; the first one begins at 0.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Filter {
    /// The filters of `hashes`, which ascend.
    #[cfg(test)]
    pub(crate) fn build(hashes: impl Iterator<Item = Hash>, columns: u32, bits: f64) -> Self {
        let mut builder = FilterBuilder::new(columns, bits);
        hashes.for_each(|hash| builder.push(hash));
        builder.finish()
    }

    pub(crate) fn columns(&self) -> u32 {
        self.ends.len() as u32
    }

    pub(crate) fn probes(&self) -> u8 {
        self.probes
    }

    /// The filter of one column.
    pub(crate) fn column(&self, column: u32) -> &[u8] {
        let end = |at: u32| self.ends.get(at as usize).map_or(0, |&end| end as usize);
        let start = column.checked_sub(1).map_or(0, end);
        &self.bytes[start..end(column)]
    }

    /// Whether the table may contain the hash.
    #[inline]
    pub(crate) fn contains(&self, hash: Hash) -> bool {
        contains(self.column(hash.bucket(self.columns())), self.probes, hash)
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.bytes.capacity() + 4 * self.ends.capacity()) as u64
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![self.probes];
        out.extend_from_slice(&self.columns().to_le_bytes());
        let mut start = 0;
        for &end in &self.ends {
            out.extend_from_slice(&((end - start) as u16).to_le_bytes());
            start = end;
        }
        out.extend_from_slice(&self.bytes);
        out
    }

    /// `None`: malformed.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&probes, rest) = bytes.split_first()?;
        let (columns, rest) = rest.split_first_chunk::<4>()?;
        let columns = u32::from_le_bytes(*columns) as usize;
        let (lens, bytes) = rest.split_at_checked(columns.checked_mul(2)?)?;
        let mut end = 0u32;
        let ends: Vec<u32> = lens
            .chunks_exact(2)
            .map(|len| {
                end = end.saturating_add(u32::from(u16::from_le_bytes([len[0], len[1]])));
                end
            })
            .collect();
        let is_whole = end as usize == bytes.len() && columns > 0 && probes <= 30;
        is_whole.then(|| Filter { probes, ends, bytes: bytes.to_vec() })
    }
}

/// Builds filters from ascending hashes, with one column in memory.
pub(crate) struct FilterBuilder {
    filter: Filter,
    columns: u32,
    bits: f64,
    /// The hashes of the current column.
    current: Vec<u64>,
}

impl FilterBuilder {
    pub(crate) fn new(columns: u32, bits: f64) -> Self {
        let filter = Filter {
            probes: ClassicBloom::new(1, bits).probes(),
            ends: Vec::with_capacity(columns as usize),
            bytes: Vec::new(),
        };
        FilterBuilder { filter, columns, bits, current: Vec::new() }
    }

    /// Adds the next hash.
    pub(crate) fn push(&mut self, hash: Hash) {
        let column = hash.bucket(self.columns);
        while self.filter.columns() < column {
            self.close_column();
        }
        self.current.push(hash.check());
    }

    fn close_column(&mut self) {
        let FilterBuilder { filter, current, .. } = self;
        if !current.is_empty() {
            // The length has 16 bits; a truncated filter has more false positives.
            let bits = self.bits.min(f64::from(u16::MAX) * 8.0 / current.len() as f64 - 1.0);
            let mut bloom = match ClassicBloom::new(current.len(), bits.max(0.0)) {
                bloom if bloom.probes() == filter.probes => bloom,
                bloom => with_length(bloom.as_bytes().len(), filter.probes),
            };
            current.iter().for_each(|&hash| bloom.insert(hash));
            filter.bytes.extend_from_slice(bloom.as_bytes());
            current.clear();
        }
        filter.ends.push(filter.bytes.len() as u32);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.filter.memory_bytes() as usize + 8 * self.current.capacity()
    }

    pub(crate) fn finish(mut self) -> Filter {
        while self.filter.columns() < self.columns {
            self.close_column();
        }
        self.filter.bytes.shrink_to_fit();
        self.filter
    }
}

/// An empty filter of a given length, with the probes of the other columns.
fn with_length(bytes: usize, probes: u8) -> ClassicBloom {
    // 8 bits per "key" yield exactly this length; the probes are those of the table.
    let mut bits = 8.0;
    while ClassicBloom::new(1, bits).probes() < probes {
        bits += 1.0;
    }
    let keys = (bytes as f64 * 8.0 / bits).ceil().max(1.0) as usize;
    ClassicBloom::new(keys, bits)
}

/// Whether one column's filter contains the hash. A column without a filter has no items, unless
/// the table has no filters at all.
#[inline]
pub(crate) fn contains(filter: &[u8], probes: u8, hash: Hash) -> bool {
    match ClassicBloomView::open(filter, probes) {
        Ok(view) => view.contains(hash.check()),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKind;

    fn hashes(seed: u64, count: u32) -> Vec<Hash> {
        let kind = HashKind { seed, weak_bits: 0 };
        let mut hashes: Vec<Hash> = (0..count).map(|n| kind.hash(&n.to_le_bytes())).collect();
        hashes.sort_unstable();
        hashes
    }

    #[test]
    fn filter_contains_all_hashes_and_survives_encoding() {
        for (count, columns, bits) in [(0, 3, 16.0), (1000, 30, 16.0), (900, 1, 10.0), (50, 9, 0.0)]
        {
            let present = hashes(1, count);
            let filter = Filter::build(present.iter().copied(), columns, bits);
            assert!(present.iter().all(|&hash| filter.contains(hash)));
            assert_eq!(Filter::from_bytes(&filter.to_bytes()), Some(filter.clone()));
            if bits > 0.0 {
                let absent = hashes(2, 1000);
                let wrong = absent.iter().filter(|&&hash| filter.contains(hash)).count();
                assert!(wrong < 30, "{wrong} of 1000");
            }
        }
    }

    #[test]
    fn filter_of_a_crowded_column_is_truncated() {
        let present = hashes(1, 50_000);
        let filter = Filter::build(present.iter().copied(), 1, 16.0);
        assert!(filter.column(0).len() <= usize::from(u16::MAX));
        assert!(present.iter().all(|&hash| filter.contains(hash)));
        assert!(Filter::from_bytes(&filter.to_bytes()).is_some());
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        let filter = Filter::build(hashes(1, 100).into_iter(), 5, 16.0).to_bytes();
        for cut in 0..filter.len() {
            assert!(Filter::from_bytes(&filter[..cut]).is_none());
        }
        assert!(Filter::from_bytes(&[30, 0xff, 0xff, 0xff, 0xff, 0]).is_none());
    }
}
