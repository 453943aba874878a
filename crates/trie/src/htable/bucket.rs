//! The bytes of a bucket, and how items stand in it.
//!
//! ```text
// ANCHOR: layout
//!   bucket := crc32c:u32  mark:u32  destination:u32  used:u16  common:u16  key_len:u16
//!             value_len:u16  item*  zeros                    "bucket bytes" in all, the table's last
//!                                                            perhaps fewer; integers LE
//!   item   := key  value                       the first `common` ones, if `value_len` is stated
//!           | value_len:varint  key  value     the first `common` ones, if it is 65,535: it varies
//!           | the form of a batch              all others (see crate::item)
// ANCHOR_END: layout
//! ```
//!
//! Small items of one shape are the rule, and what would be said of each of them is said once a
//! bucket: the lengths of key and value, and that it is a put without expiry. With 16 + 100 bytes
//! that saves 2.5 % of all that is ever written. The shape is chosen for a segment at a time.
//!
//! The checksum starts from the file's number and the bucket's place and covers all bytes behind it.
//! `used` counts the items' bytes. Destination 2^32 - 1: nothing migrated from here.
//!
//! Invariant: what is read back of an item is what was pushed, whatever its form.
//!
//! Source: LSM-trie paper, section 2.4.2 (the migration record in the bucket); shapes are ours.

use siltstone_engine::batch::{read_varint, write_varint};

use crate::files::FileSum;
use crate::item::Item;

/// Bytes of a bucket's header.
pub(crate) const BUCKET_HEADER: usize = 20;
/// The destination of a bucket that nothing migrated from.
pub(crate) const NOWHERE: u32 = u32::MAX;
/// Values of a shape may have any length.
const VARIES: u16 = u16::MAX;

/// What the common items of a bucket have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Shape {
    /// 0: nothing is common.
    key_len: u16,
    value_len: u16,
}

impl Shape {
    /// No item has it.
    pub(crate) const NONE: Shape = Shape { key_len: 0, value_len: 0 };

    /// The shape by which plain puts of these lengths of key and value take least.
    pub(crate) fn of(lens: impl Iterator<Item = (u16, u16)> + Clone) -> Self {
        let Some(key_len) = majority(lens.clone().map(|(key, _)| key)) else { return Shape::NONE };
        let values = lens.filter(|&(key, _)| key == key_len).map(|(_, value)| value);
        let Some(value_len) = majority(values.clone()) else { return Shape::NONE };
        let (mut stated, mut varied) = (0, 0);
        for len in values {
            let varint = varint_bytes(len.into());
            // The batch's form has a kind and a key length besides.
            stated += if len == value_len { 0 } else { 2 + varint };
            varied += varint;
        }
        let value_len = if stated <= varied { value_len } else { VARIES };
        Shape { key_len, value_len }
    }

    /// Whether a plain put of these lengths has the shape.
    pub(crate) fn holds(self, key_len: u16, value_len: u16) -> bool {
        self.key_len == key_len && (self.value_len == VARIES || self.value_len == value_len)
    }

    /// Bytes of a plain put of these lengths: in this shape if it has it, else as a batch has it.
    pub(crate) fn bytes(self, key_len: u16, value_len: u16) -> usize {
        let (key, value) = (usize::from(key_len), usize::from(value_len));
        let lengths = match self.holds(key_len, value_len) {
            true if self.value_len == VARIES => varint_bytes(value),
            true => 0,
            false => 1 + varint_bytes(key) + varint_bytes(value),
        };
        lengths + key + value
    }

    /// Bytes of every item of this shape, if all have the same.
    pub(crate) fn item_bytes(self) -> Option<usize> {
        let both = usize::from(self.key_len) + usize::from(self.value_len);
        (self.value_len != VARIES && both > 0).then_some(both)
    }

    /// Appends an item of this shape: its key and its value, which stand together in `both`.
    pub(crate) fn push(self, both: &[u8], out: &mut Vec<u8>) {
        if self.value_len == VARIES {
            write_varint(out, (both.len() - usize::from(self.key_len)) as u64);
        }
        out.extend_from_slice(both);
    }

    /// The item at the head of `bytes`, and how many of them it takes. [`Shape::NONE`]: it stands
    /// as in a batch.
    #[inline]
    pub(crate) fn parse(self, bytes: &[u8]) -> Option<(Item<'_>, usize)> {
        if self == Shape::NONE {
            return Item::parse(bytes);
        }
        let (value_len, at) = match self.value_len {
            VARIES => {
                let (len, at) = read_varint(bytes)?;
                (usize::try_from(len).ok()?, at)
            }
            len => (usize::from(len), 0),
        };
        let key_end = at + usize::from(self.key_len);
        let end = key_end.checked_add(value_len)?;
        let (key, value) = (bytes.get(at..key_end)?, bytes.get(key_end..end)?);
        Some((Item { key, value: Some(value), expires_at: None }, end))
    }
}

/// The most frequent value if it is more than half; else some value.
fn majority(values: impl Iterator<Item = u16>) -> Option<u16> {
    let (mut candidate, mut votes) = (None, 0u32);
    for value in values {
        match (candidate == Some(value), votes) {
            (true, _) => votes += 1,
            (false, 0) => (candidate, votes) = (Some(value), 1),
            (false, _) => votes -= 1,
        }
    }
    candidate
}

fn varint_bytes(value: usize) -> usize {
    (usize::BITS - value.max(1).leading_zeros()).div_ceil(7) as usize
}

/// The header of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketHeader {
    pub(crate) mark: u32,
    pub(crate) destination: u32,
    pub(crate) used: u16,
    pub(crate) common: u16,
    pub(crate) shape: Shape,
}

impl BucketHeader {
    /// Writes the header over the head of a bucket whose items stand in place.
    pub(crate) fn seal(&self, sum: FileSum, offset: u64, bucket: &mut [u8]) {
        bucket[4..8].copy_from_slice(&self.mark.to_le_bytes());
        bucket[8..12].copy_from_slice(&self.destination.to_le_bytes());
        let halves = [self.used, self.common, self.shape.key_len, self.shape.value_len];
        for (half, place) in halves.iter().zip(bucket[12..BUCKET_HEADER].chunks_exact_mut(2)) {
            place.copy_from_slice(&half.to_le_bytes());
        }
        let crc = sum.of(offset, &bucket[4..]);
        bucket[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// The bytes of a bucket, header counted, that is as short as its items.
    pub(crate) fn least_bytes(bucket: &[u8]) -> Option<usize> {
        let used = bucket.get(12..14)?;
        Some(BUCKET_HEADER + usize::from(u16::from_le_bytes([used[0], used[1]])))
    }

    /// Checks a bucket and gives its header and the bytes of its items; `None`: damaged.
    pub(crate) fn open(sum: FileSum, offset: u64, bucket: &[u8]) -> Option<(Self, &[u8])> {
        let head = bucket.get(..BUCKET_HEADER)?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        if word(0) != sum.of(offset, &bucket[4..]) {
            return None;
        }
        let header = BucketHeader {
            mark: word(4),
            destination: word(8),
            used: half(12),
            common: half(14),
            shape: Shape { key_len: half(16), value_len: half(18) },
        };
        let items = bucket.get(BUCKET_HEADER..)?.get(..usize::from(header.used))?;
        Some((header, items))
    }

    /// The items of a bucket: where each stands in its bytes, in which shape, and the item itself;
    /// the last one is `None` if they are malformed.
    pub(crate) fn items(
        self,
        bytes: &[u8],
    ) -> impl Iterator<Item = Option<(usize, Shape, Item<'_>)>> {
        let (mut at, mut common, mut is_bad) = (0, self.common, false);
        std::iter::from_fn(move || {
            if is_bad || at >= bytes.len() && common == 0 {
                return None;
            }
            let shape = if common > 0 { self.shape } else { Shape::NONE };
            common = common.saturating_sub(1);
            let parsed = shape.parse(&bytes[at..]).filter(|&(_, used)| used > 0);
            let Some((item, used)) = parsed else {
                is_bad = true;
                return Some(None);
            };
            let start = at;
            at += used;
            Some(Some((start, shape, item)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn does_an_item_come_back_from_every_shape(
            lens in prop::collection::vec((1u16..5, 0u16..400), 1..40),
        ) {
            let shape = Shape::of(lens.iter().copied());
            let (mut common, mut others, mut count) = (Vec::new(), Vec::new(), 0);
            let mut bytes = 0;
            for &(key_len, value_len) in &lens {
                let both = vec![7; usize::from(key_len + value_len)];
                let (key, value) = both.split_at(usize::from(key_len));
                bytes += shape.bytes(key_len, value_len);
                if shape.holds(key_len, value_len) {
                    shape.push(&both, &mut common);
                    count += 1;
                } else {
                    Item { key, value: Some(value), expires_at: None }.push(&mut others);
                }
            }
            common.extend(others);
            prop_assert_eq!(common.len(), bytes);
            let header =
                BucketHeader { mark: 0, destination: NOWHERE, used: 0, common: count, shape };
            let mut back: Vec<(u16, u16)> = header
                .items(&common)
                .map(|item| item.expect("well formed").2)
                .map(|item| (item.key.len() as u16, item.value.map_or(0, <[u8]>::len) as u16))
                .collect();
            let mut lens = lens;
            back.sort_unstable();
            lens.sort_unstable();
            prop_assert_eq!(back, lens);
        }

        #[test]
        fn are_hostile_items_refused_or_harmless(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            key_len in 0u16..9, value_len in prop_oneof![Just(VARIES), 0u16..90], common: u16,
        ) {
            let shape = Shape { key_len, value_len };
            let header = BucketHeader { mark: 0, destination: 0, used: 0, common, shape };
            prop_assert!(header.items(&bytes).count() <= bytes.len() + 1);
        }
    }

    #[test]
    fn is_the_shape_that_takes_least_chosen() {
        let same = Shape::of([(16, 100); 9].into_iter());
        assert_eq!(same.bytes(16, 100), 116);
        let varied = Shape::of((1..200).map(|value| (16, value)));
        assert_eq!((varied.bytes(16, 100), varied.bytes(16, 130)), (117, 148));
        assert_eq!(varied.bytes(17, 100), 120);
        assert_eq!(Shape::of(std::iter::empty()), Shape::NONE);
    }
}
