//! The format of a bucket and of its items.
//!
//! ```text
// ANCHOR: layout
//!   bucket := crc32c:u32  mark:u32  destination:u32  used:u16  common:u16  key_len:u16
//!             value_len:u16  item*  zeros        "bucket bytes" in all, the last one of the table
//!                                                perhaps fewer; integers LE
//!   item   := key  value                       the first `common` ones, if `value_len` is fixed
//!           | value_len:varint  key  value     the first `common` ones, if it is 65,535: varies
//!           | the encoding of batches          all others (see crate::item)
// ANCHOR_END: layout
//! ```
//!
//! Usually most items have the same format, which is stored once per bucket: the lengths of key and
//! value, and that it is a put without expiry. For 16-byte keys and 100-byte values that saves 2.5
//! % of all writes. The format is chosen per segment.
//!
//! The checksum is seeded with the file's number and the bucket's offset and covers all bytes after
//! it. `used` is the size of the items. Destination 2^32 - 1: no item migrated from here.
//!
//! Invariant: an item survives encoding in any format.
//!
//! Source: LSM-trie paper, section 2.4.2 (the migration record in the bucket).

use siltstone_engine::varint::{read_varint, write_varint};
use siltstone_table::FileSum;

use crate::item::Item;

/// The size of a bucket's header.
pub(crate) const BUCKET_HEADER_BYTES: usize = 20;
/// The destination in a bucket without a migration.
pub(crate) const NO_DESTINATION: u32 = u32::MAX;
/// The value length of a format with values of any length.
const VARIABLE_LEN: u16 = u16::MAX;

/// The format of the common items of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ItemFormat {
    /// 0: there are no common items. An item of the empty key is never common.
    key_len: u16,
    value_len: u16,
}

impl ItemFormat {
    /// No item has this format.
    pub(crate) const NONE: ItemFormat = ItemFormat { key_len: 0, value_len: 0 };

    /// The format that encodes plain puts with these lengths of key and value in the fewest bytes.
    pub(crate) fn of(lens: impl Iterator<Item = (u16, u16)> + Clone) -> Self {
        let Some(key_len) = majority(lens.clone().map(|(key, _)| key)) else {
            return ItemFormat::NONE;
        };
        let values = lens.filter(|&(key, _)| key == key_len).map(|(_, value)| value);
        let Some(value_len) = majority(values.clone()) else { return ItemFormat::NONE };
        let (mut stated, mut varied) = (0, 0);
        for len in values {
            let varint = varint_bytes(len.into());
            // The encoding of batches also has a kind and a key length.
            stated += if len == value_len { 0 } else { 2 + varint };
            varied += varint;
        }
        let value_len = if stated <= varied { value_len } else { VARIABLE_LEN };
        ItemFormat { key_len, value_len }
    }

    /// Whether a plain put with these lengths has the format.
    pub(crate) fn matches(self, key_len: u16, value_len: u16) -> bool {
        self.key_len == key_len && (self.value_len == VARIABLE_LEN || self.value_len == value_len)
    }

    /// The size of a plain put with these lengths: in this format if it fits, else as in a batch.
    pub(crate) fn bytes(self, key_len: u16, value_len: u16) -> usize {
        let (key, value) = (usize::from(key_len), usize::from(value_len));
        let lengths = match self.matches(key_len, value_len) {
            true if self.value_len == VARIABLE_LEN => varint_bytes(value),
            true => 0,
            false => 1 + varint_bytes(key) + varint_bytes(value),
        };
        lengths + key + value
    }

    /// The size of every item of this format, if all have the same.
    pub(crate) fn item_bytes(self) -> Option<usize> {
        let both = usize::from(self.key_len) + usize::from(self.value_len);
        (self.value_len != VARIABLE_LEN && both > 0).then_some(both)
    }

    /// Appends an item of this format: its key and its value, adjacent in `both`.
    pub(crate) fn push(self, both: &[u8], out: &mut Vec<u8>) {
        if self.value_len == VARIABLE_LEN {
            write_varint(out, (both.len() - usize::from(self.key_len)) as u64);
        }
        out.extend_from_slice(both);
    }

    /// The item at the beginning of `bytes`, and its length. For `NONE` the encoding is that of
    /// batches.
    #[inline]
    pub(crate) fn parse(self, bytes: &[u8]) -> Option<(Item<'_>, usize)> {
        if self == ItemFormat::NONE {
            return Item::parse(bytes);
        }
        let (value_len, at) = match self.value_len {
            VARIABLE_LEN => {
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

/// The majority value if there is one; else any value.
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
    pub(crate) item_format: ItemFormat,
}

impl BucketHeader {
    /// Writes the header of a bucket whose items are in place.
    pub(crate) fn seal(&self, sum: FileSum, offset: u64, bucket: &mut [u8]) {
        bucket[4..8].copy_from_slice(&self.mark.to_le_bytes());
        bucket[8..12].copy_from_slice(&self.destination.to_le_bytes());
        let halves = [self.used, self.common, self.item_format.key_len, self.item_format.value_len];
        for (half, slot) in halves.iter().zip(bucket[12..BUCKET_HEADER_BYTES].chunks_exact_mut(2)) {
            slot.copy_from_slice(&half.to_le_bytes());
        }
        let crc = sum.of(offset, &bucket[4..]);
        bucket[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// The size of a bucket, header included, that ends with its items.
    pub(crate) fn min_bytes(bucket: &[u8]) -> Option<usize> {
        let used = bucket.get(12..14)?;
        Some(BUCKET_HEADER_BYTES + usize::from(u16::from_le_bytes([used[0], used[1]])))
    }

    /// Verifies a bucket and returns its header and the bytes of its items; `None`: damaged.
    pub(crate) fn open(sum: FileSum, offset: u64, bucket: &[u8]) -> Option<(Self, &[u8])> {
        let head = bucket.get(..BUCKET_HEADER_BYTES)?;
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
            item_format: ItemFormat { key_len: half(16), value_len: half(18) },
        };
        let items = bucket.get(BUCKET_HEADER_BYTES..)?.get(..usize::from(header.used))?;
        Some((header, items))
    }

    /// The items of a bucket: offset in `bytes`, format, and the item; the last one is `None` if
    /// they are malformed.
    pub(crate) fn items(
        self,
        bytes: &[u8],
    ) -> impl Iterator<Item = Option<(usize, ItemFormat, Item<'_>)>> {
        let (mut at, mut common, mut is_bad) = (0, self.common, false);
        std::iter::from_fn(move || {
            if is_bad || at >= bytes.len() && common == 0 {
                return None;
            }
            let item_format = if common > 0 { self.item_format } else { ItemFormat::NONE };
            common = common.saturating_sub(1);
            let parsed = item_format.parse(&bytes[at..]).filter(|&(_, used)| used > 0);
            let Some((item, used)) = parsed else {
                is_bad = true;
                return Some(None);
            };
            let start = at;
            at += used;
            Some(Some((start, item_format, item)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn item_survives_encoding_in_every_format(
            lens in prop::collection::vec((1u16..5, 0u16..400), 1..40),
        ) {
            let item_format = ItemFormat::of(lens.iter().copied());
            let (mut common, mut others, mut count) = (Vec::new(), Vec::new(), 0);
            let mut bytes = 0;
            for &(key_len, value_len) in &lens {
                let both = vec![7; usize::from(key_len + value_len)];
                let (key, value) = both.split_at(usize::from(key_len));
                bytes += item_format.bytes(key_len, value_len);
                if item_format.matches(key_len, value_len) {
                    item_format.push(&both, &mut common);
                    count += 1;
                } else {
                    Item { key, value: Some(value), expires_at: None }.push(&mut others);
                }
            }
            common.extend(others);
            prop_assert_eq!(common.len(), bytes);
            let header =
                BucketHeader { mark: 0, destination: NO_DESTINATION, used: 0, common: count, item_format };
            let mut decoded: Vec<(u16, u16)> = header
                .items(&common)
                .map(|item| item.expect("well formed").2)
                .map(|item| (item.key.len() as u16, item.value.map_or(0, <[u8]>::len) as u16))
                .collect();
            let mut lens = lens;
            decoded.sort_unstable();
            lens.sort_unstable();
            prop_assert_eq!(decoded, lens);
        }

        #[test]
        fn malformed_items_are_rejected_or_harmless(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            key_len in 0u16..9, value_len in prop_oneof![Just(VARIABLE_LEN), 0u16..90], common: u16,
        ) {
            let item_format = ItemFormat { key_len, value_len };
            let header = BucketHeader { mark: 0, destination: 0, used: 0, common, item_format };
            prop_assert!(header.items(&bytes).count() <= bytes.len() + 1);
        }
    }

    #[test]
    fn smallest_format_is_chosen() {
        let same = ItemFormat::of([(16, 100); 9].into_iter());
        assert_eq!(same.bytes(16, 100), 116);
        let varied = ItemFormat::of((1..200).map(|value| (16, value)));
        assert_eq!((varied.bytes(16, 100), varied.bytes(16, 130)), (117, 148));
        assert_eq!(varied.bytes(17, 100), 120);
        assert_eq!(ItemFormat::of(std::iter::empty()), ItemFormat::NONE);
    }
}
