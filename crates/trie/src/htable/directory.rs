//! Where the buckets of a table are: its segments.
//!
//! ```text
//!   hash's suffix  [ segment: bits │ the rest, scaled to the bytes of the segment's buckets ]
//!   table          [ segment 0: 128 buckets ][ segment 1: 127 ][ segment 2: 129, the last one short ]
//!   stored      := { offset of the first bucket:u64  bytes of the buckets:u32 }*    2^bits of them
//! ```
//!
//! A segment takes an equal part of the hash space, has as many buckets as its items fill to the
//! share that was asked for, and is balanced by itself. So a table is written, and read back in the
//! order of hashes, with one segment in memory; and no part of it is fuller than another.
//!
//! Buckets have one size, but for the last of the last segment, which has no more than it is to hold: so a
//! small table is no larger than its items. A bucket gets its share of the hash space by its bytes, so the
//! short one gets as much less. In the file it ends behind its last item, which may be a little earlier.
//!
//! In memory a segment costs 24 bytes: one for every 128 buckets.
//!
//! Invariant: segments lie one behind the other in the order of hashes; their offsets ascend. All buckets
//! but the last are whole.
//!
//! Source: ours. The paper balances a table of 8,192 buckets as a whole.

use std::ops::Range;

use super::bucket::BUCKET_HEADER;
use super::format::{le32, le64};

/// A part of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Of its first bucket in the file.
    pub(crate) offset: u64,
    /// Of its buckets all together; the file may have a little less of the last one.
    pub(crate) bytes: u64,
    /// Buckets before it.
    pub(crate) first: u32,
    pub(crate) buckets: u32,
}

/// The segments of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    bits: u32,
    segments: Vec<Segment>,
    /// Where in the file the last bucket ends, if not earlier.
    end: u64,
}

const ENTRY_BYTES: usize = 12;

impl Segment {
    /// The bucket, counted in the whole table, of a suffix that lies in this segment.
    #[inline]
    pub(crate) fn bucket(&self, suffix: u64, bits: u32, bucket_bytes: u32) -> u32 {
        let rest = u128::from(suffix << bits);
        let byte = ((rest * u128::from(self.bytes)) >> 64) as u64;
        self.first + (byte / u64::from(bucket_bytes)) as u32
    }
}

/// The segment of a suffix if there are 2^`bits`.
#[inline]
pub(crate) fn segment_of(suffix: u64, bits: u32) -> usize {
    (u128::from(suffix) >> (64 - bits)) as usize
}

impl Directory {
    /// Segments in their order, 2^n of them.
    pub(crate) fn new(segments: Vec<Segment>, end: u64) -> Self {
        Directory { bits: segments.len().max(1).ilog2(), segments, end }
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

    /// Where a bucket, counted in the whole table, stands in the file: from where to where.
    #[inline]
    pub(crate) fn place(&self, bucket: u32, bucket_bytes: u32) -> Range<u64> {
        // Of those that begin at the same bucket all but the last are empty.
        let at = self.segments.partition_point(|segment| segment.first <= bucket);
        let segment = self.segments[at.saturating_sub(1)];
        let start = segment.offset + u64::from(bucket - segment.first) * u64::from(bucket_bytes);
        start..self.end.min(start + u64::from(bucket_bytes))
    }

    /// Where the buckets of a segment stand in the file: from where to where.
    pub(crate) fn buckets_of(&self, segment: &Segment, bucket_bytes: u32) -> Range<u64> {
        let bytes = u64::from(segment.buckets) * u64::from(bucket_bytes);
        segment.offset..self.end.min(segment.offset + bytes).max(segment.offset)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.segments.capacity() * size_of::<Segment>()) as u64
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.segments.len() * ENTRY_BYTES);
        for segment in &self.segments {
            out.extend_from_slice(&segment.offset.to_le_bytes());
            out.extend_from_slice(&(segment.bytes as u32).to_le_bytes());
        }
        out
    }

    /// `None`: this is no directory of `buckets` buckets that end before `end`, or the last of them at it.
    /// Of tables of version 2, `are_whole`, it states numbers of buckets for their bytes.
    pub(crate) fn from_bytes(
        bytes: &[u8],
        are_whole: bool,
        (buckets, bucket_bytes): (u32, u32),
        end: u64,
    ) -> Option<Self> {
        let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() || !entries.len().is_power_of_two() {
            return None;
        }
        let bucket_bytes = u64::from(bucket_bytes);
        let (mut segments, mut first, mut at) = (Vec::with_capacity(entries.len()), 0u32, 0u64);
        for entry in entries {
            let (offset, stated) = (le64(&entry[..8]), u64::from(le32(&entry[8..])));
            let bytes = if are_whole { stated * bucket_bytes } else { stated };
            let here = u32::try_from(bytes.div_ceil(bucket_bytes)).ok()?;
            segments.push(Segment { offset, bytes, first, buckets: here });
            first = first.checked_add(here).filter(|&first| first <= buckets)?;
            // The last bucket has its header at least, the others are whole.
            let is_last = segments.len() == entries.len() && here > 0;
            let least = match is_last {
                true => u64::from(here - 1) * bucket_bytes + BUCKET_HEADER as u64,
                false if bytes % bucket_bytes == 0 => bytes,
                false => return None,
            };
            at = offset.checked_add(least).filter(|&least| offset >= at && least <= end)?;
        }
        (first == buckets).then(|| Directory::new(segments, end))
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
            let bytes = u64::from(buckets) * 100;
            segments.push(Segment { offset, bytes, first, buckets });
            first += buckets;
            offset += bytes + 50;
        }
        // The last bucket has 30 bytes.
        let end = offset - 50 - 70;
        segments[7].bytes -= 70;
        let directory = Directory::new(segments, end);
        let from =
            |bytes: &[u8], first, end| Directory::from_bytes(bytes, false, (first, 100), end);
        let back = from(&directory.to_bytes(), first, end);
        assert_eq!(back.as_ref(), Some(&directory));
        let (mut last, mut in_short) = (0, 0);
        for n in 0..1000u64 {
            let suffix = u64::MAX / 1000 * n;
            let segment = directory.segment(suffix);
            if segment.buckets > 0 {
                let bucket = segment.bucket(suffix, directory.bits(), 100);
                assert!(bucket >= last && bucket < segment.first + segment.buckets);
                let offset = segment.offset + u64::from(bucket - segment.first) * 100;
                let bytes = if bucket + 1 == first { 30 } else { 100 };
                assert_eq!(directory.place(bucket, 100), offset..offset + bytes);
                in_short += u32::from(bytes == 30);
                last = bucket;
            }
        }
        // It has 30 of 330 bytes of an eighth of the hashes.
        assert!((10..13).contains(&in_short), "{in_short}");
        let bytes = directory.to_bytes();
        assert!(from(&bytes, first + 1, end).is_none());
        assert!(from(&bytes[12..], first, end).is_none());
        // A bucket shorter than its header is none, and no other one is short.
        assert!(from(&bytes, first, end - 10).is_some());
        assert!(from(&bytes, first, end - 11).is_none());
        let mut short = bytes.clone();
        short[8] -= 1;
        assert!(from(&short, first, end).is_none());
    }
}
