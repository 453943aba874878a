//! Where the buckets of a table are: its segments.
//!
//! ```text
//!   hash's suffix  [ segment: bits │ the rest, scaled to the segment's buckets ]
//!   table          [ segment 0: 128 buckets ][ segment 1: 127 ][ segment 2: 129 ] …
//!   stored      := { offset of the first bucket:u64  buckets:u32 }*        2^bits of them
//! ```
//!
//! A segment takes an equal part of the hash space, has as many buckets as its items fill to the
//! share that was asked for, and is balanced by itself. So a table is written, and read back in the
//! order of hashes, with one segment in memory; and no part of it is fuller than another.
//!
//! In memory a segment costs 16 bytes: one for every 128 buckets.
//!
//! Invariant: segments lie one behind the other in the order of hashes; their offsets ascend.
//!
//! Source: ours. The paper balances a table of 8,192 buckets as a whole.

use super::format::{le32, le64};

/// A part of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Of its first bucket in the file.
    pub(crate) offset: u64,
    /// Buckets before it.
    pub(crate) first: u32,
    pub(crate) buckets: u32,
}

/// The segments of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    bits: u32,
    segments: Vec<Segment>,
}

const ENTRY_BYTES: usize = 12;

impl Segment {
    /// The bucket, counted in the whole table, of a suffix that lies in this segment.
    #[inline]
    pub(crate) fn bucket(&self, suffix: u64, bits: u32) -> u32 {
        let rest = u128::from(suffix << bits);
        self.first + ((rest * u128::from(self.buckets)) >> 64) as u32
    }
}

/// The segment of a suffix if there are 2^`bits`.
#[inline]
pub(crate) fn segment_of(suffix: u64, bits: u32) -> usize {
    (u128::from(suffix) >> (64 - bits)) as usize
}

impl Directory {
    /// Segments in their order, 2^n of them.
    pub(crate) fn new(segments: Vec<Segment>) -> Self {
        Directory { bits: segments.len().max(1).ilog2(), segments }
    }

    /// There are 2^`bits` segments.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The segment of a hash with this suffix.
    #[inline]
    pub(crate) fn segment(&self, suffix: u64) -> Segment {
        self.segments[segment_of(suffix, self.bits)]
    }

    /// Where a bucket, counted in the whole table, stands in the file.
    #[inline]
    pub(crate) fn offset(&self, bucket: u32, bucket_bytes: u32) -> u64 {
        // Of those that begin at the same bucket all but the last are empty.
        let at = self.segments.partition_point(|segment| segment.first <= bucket);
        let segment = self.segments[at.saturating_sub(1)];
        segment.offset + u64::from(bucket - segment.first) * u64::from(bucket_bytes)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.segments.capacity() * size_of::<Segment>()) as u64
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.segments.len() * ENTRY_BYTES);
        for segment in &self.segments {
            out.extend_from_slice(&segment.offset.to_le_bytes());
            out.extend_from_slice(&segment.buckets.to_le_bytes());
        }
        out
    }

    /// `None`: this is no directory of `buckets` buckets that end before `end`.
    pub(crate) fn from_bytes(
        bytes: &[u8],
        buckets: u32,
        bucket_bytes: u32,
        end: u64,
    ) -> Option<Self> {
        let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() || !entries.len().is_power_of_two() {
            return None;
        }
        let (mut segments, mut first, mut at) = (Vec::with_capacity(entries.len()), 0u32, 0u64);
        for entry in entries {
            let segment = Segment { offset: le64(&entry[..8]), first, buckets: le32(&entry[8..]) };
            let bytes = u64::from(segment.buckets) * u64::from(bucket_bytes);
            if segment.offset < at {
                return None;
            }
            at = segment.offset.checked_add(bytes).filter(|&at| at <= end)?;
            first = first.checked_add(segment.buckets).filter(|&first| first <= buckets)?;
            segments.push(segment);
        }
        (first == buckets).then(|| Directory::new(segments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_every_bucket_where_its_segment_says_and_the_order_that_of_suffixes() {
        let counts = [3, 0, 0, 5, 1, 2, 0, 4];
        let (mut segments, mut first, mut offset) = (Vec::new(), 0, 7);
        for buckets in counts {
            segments.push(Segment { offset, first, buckets });
            first += buckets;
            offset += u64::from(buckets) * 100 + 50;
        }
        let directory = Directory::new(segments);
        let back = Directory::from_bytes(&directory.to_bytes(), first, 100, offset);
        assert_eq!(back.as_ref(), Some(&directory));
        let mut last = 0;
        for n in 0..1000u64 {
            let suffix = u64::MAX / 1000 * n;
            let segment = directory.segment(suffix);
            if segment.buckets > 0 {
                let bucket = segment.bucket(suffix, directory.bits());
                assert!(bucket >= last && bucket < segment.first + segment.buckets);
                let offset = segment.offset + u64::from(bucket - segment.first) * 100;
                assert_eq!(directory.offset(bucket, 100), offset);
                last = bucket;
            }
        }
        assert!(Directory::from_bytes(&directory.to_bytes(), first + 1, 100, offset).is_none());
        assert!(Directory::from_bytes(&directory.to_bytes(), first, 100, offset - 51).is_none());
        assert!(Directory::from_bytes(&directory.to_bytes()[12..], first, 100, offset).is_none());
    }
}
