//! The directory of a table: its segments and their buckets.
//!
//! ```text
//!   hash's suffix  [ segment: bits │ the rest, scaled to the bytes of the segment's buckets ]
//!   table          [ segment 0: 128 buckets ][ segment 1: 127 ][ segment 2: 129, last one short ]
//!   stored      := { offset of the first bucket:u64  bytes of the buckets:u32 }*    2^bits of them
//! ```
//!
//! A segment has an equal part of the hash space and as many buckets as its items fill at the
//! requested fill, and is balanced separately. So a table is written, and read in hash order, with
//! one segment in memory, and all segments have the same fill.
//!
//! All buckets have the same size, except the last one of the table, which ends with its items, so
//! a small table is no larger than its items. A bucket's part of the hash space is proportional to
//! its size. In the file the last bucket ends behind its last item, which may be a little earlier.
//!
//! Memory: 24 bytes per segment of about 128 buckets.
//!
//! Invariant: segments are in hash order; their offsets ascend. All buckets but the last have full
//! size.

use std::ops::Range;

use super::bucket::BUCKET_HEADER_BYTES;
use super::format::{le32, le64};

/// A part of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The offset of its first bucket in the file.
    pub(crate) offset: u64,
    /// The size of its buckets; the last one of the table may end earlier in the file.
    pub(crate) bytes: u64,
    /// The number of buckets before it.
    pub(crate) first: u32,
    pub(crate) buckets: u32,
}

/// The segments of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    bits: u32,
    segments: Vec<Segment>,
    /// The maximum end of the last bucket in the file.
    end: u64,
}

const ENTRY_BYTES: usize = 12;

impl Segment {
    /// The bucket, numbered in the whole table, of a suffix in this segment.
    #[inline]
    pub(crate) fn bucket(&self, suffix: u64, bits: u32, bucket_bytes: u32) -> u32 {
        let rest = u128::from(suffix << bits);
        let byte = ((rest * u128::from(self.bytes)) >> 64) as u64;
        self.first + (byte / u64::from(bucket_bytes)) as u32
    }
}

/// The segment of a suffix out of 2^`bits`.
#[inline]
pub(crate) fn segment_of(suffix: u64, bits: u32) -> usize {
    (u128::from(suffix) >> (64 - bits)) as usize
}

impl Directory {
    /// A directory of 2^n segments, in order.
    pub(crate) fn new(segments: Vec<Segment>, end: u64) -> Self {
        Directory { bits: segments.len().max(1).ilog2(), segments, end }
    }

    /// The number of segments is 2^`bits`.
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

    /// The range in the file of a bucket, numbered in the whole table.
    #[inline]
    pub(crate) fn bucket_range(&self, bucket: u32, bucket_bytes: u32) -> Range<u64> {
        // Of the segments that begin at the same bucket all but the last are empty.
        let at = self.segments.partition_point(|segment| segment.first <= bucket);
        let segment = self.segments[at.saturating_sub(1)];
        let start = segment.offset + u64::from(bucket - segment.first) * u64::from(bucket_bytes);
        start..self.end.min(start + u64::from(bucket_bytes))
    }

    /// The range in the file of a segment's buckets.
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

    /// Decodes a directory of `buckets` buckets that end at or before `end`; `None` if it is
    /// malformed. In tables of version 2 (`has_full_size_buckets`) it has numbers of buckets
    /// instead of bytes.
    pub(crate) fn from_bytes(
        bytes: &[u8],
        has_full_size_buckets: bool,
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
            let bytes = if has_full_size_buckets { stated * bucket_bytes } else { stated };
            let buckets_here = u32::try_from(bytes.div_ceil(bucket_bytes)).ok()?;
            segments.push(Segment { offset, bytes, first, buckets: buckets_here });
            first = first.checked_add(buckets_here).filter(|&first| first <= buckets)?;
            // The last bucket has at least its header, the others have full size.
            let is_last = segments.len() == entries.len() && buckets_here > 0;
            let min_end = match is_last {
                true => u64::from(buckets_here - 1) * bucket_bytes + BUCKET_HEADER_BYTES as u64,
                false if bytes % bucket_bytes == 0 => bytes,
                false => return None,
            };
            at = offset.checked_add(min_end).filter(|&min_end| offset >= at && min_end <= end)?;
        }
        (first == buckets).then(|| Directory::new(segments, end))
    }

    /// Whether the bytes are a directory, of any version and number of buckets, whose last bucket
    /// ends at or before `end`.
    pub(crate) fn is_valid(bytes: &[u8], bucket_bytes: u32, end: u64) -> bool {
        let stated = || bytes.chunks_exact(ENTRY_BYTES).map(|entry| u64::from(le32(&entry[8..])));
        let of_bytes: u64 = stated().map(|bytes| bytes.div_ceil(bucket_bytes.into())).sum();
        [(false, of_bytes), (true, stated().sum())].into_iter().any(|(is_full_size, buckets)| {
            u32::try_from(buckets).is_ok_and(|buckets| {
                Self::from_bytes(bytes, is_full_size, (buckets, bucket_bytes), end).is_some()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_their_segments_and_in_suffix_order() {
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
        let decoded = from(&directory.to_bytes(), first, end);
        assert_eq!(decoded.as_ref(), Some(&directory));
        let (mut last, mut in_short) = (0, 0);
        for n in 0..1000u64 {
            let suffix = u64::MAX / 1000 * n;
            let segment = directory.segment(suffix);
            if segment.buckets > 0 {
                let bucket = segment.bucket(suffix, directory.bits(), 100);
                assert!(bucket >= last && bucket < segment.first + segment.buckets);
                let offset = segment.offset + u64::from(bucket - segment.first) * 100;
                let bytes = if bucket + 1 == first { 30 } else { 100 };
                assert_eq!(directory.bucket_range(bucket, 100), offset..offset + bytes);
                in_short += u32::from(bytes == 30);
                last = bucket;
            }
        }
        // It has 30 of 330 bytes of an eighth of the hashes.
        assert!((10..13).contains(&in_short), "{in_short}");
        let bytes = directory.to_bytes();
        assert!(from(&bytes, first + 1, end).is_none());
        assert!(from(&bytes[12..], first, end).is_none());
        // A bucket is not shorter than its header, and only the last one is short.
        assert!(from(&bytes, first, end - 10).is_some());
        assert!(from(&bytes, first, end - 11).is_none());
        let mut short = bytes.clone();
        short[8] -= 1;
        assert!(from(&short, first, end).is_none());
    }
}
