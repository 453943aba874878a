//! Block index: maps a key to its data block.
//!
//! ```text
//! meta block "index" := count:u32  common_len:varint  common
//!                       { suffix_len:varint  suffix  sequence:varint  frame_bytes:varint }[count]
//! ```
//!
//! Block i holds the entries up to its separator: the key `common ++ suffix` at `sequence`. A
//! separator is a short key between the last key of its block and the first of the next, and covers
//! all versions (sequence 0). Only where one key's versions span two blocks is it that key with the
//! last sequence number. The blocks are contiguous from offset 0.
//!
//! In memory, the first 8 bytes of all suffixes form an array of big-endian integers, the heads. A
//! search is a binary search over every 16th head, which the CPU caches keep, then a scan of two
//! cache lines. It compares whole suffixes only where heads are equal.
//!
//! Invariant: separators strictly ascend; memory is linear in the bytes decoded.
//!
//! Source: separators as in LevelDB and, before it, prefix B-trees (Bayer and Unterauer, 1977); the
//! array of heads is the "poor man's normalized key" of Graefe and Larson (2001).

use std::ops::Range;

use siltstone_structures::{common_prefix_len, key_head};

use crate::block::frame::TRAILER;
use crate::kind::compare;
use crate::varint::{push_varint, varint};

/// The meta block's name.
pub const NAME: &str = "index";

/// The number of heads in a group: two cache lines.
const GROUP: usize = 16;

/// A block index in memory.
#[derive(Debug)]
pub struct Index {
    common: Box<[u8]>,
    /// The first 8 bytes of each suffix, padded with zeros.
    heads: Box<[u64]>,
    /// The last head of each whole group of `GROUP`.
    group_ends: Box<[u64]>,
    suffixes: Box<[u8]>,
    /// End of each suffix.
    ends: Box<[u32]>,
    /// Empty if all are 0.
    sequences: Box<[u64]>,
    /// Start of each block, and the end of the last one.
    offsets: Box<[u64]>,
}

impl Index {
    /// Decodes an index.
    ///
    /// # Errors
    /// A message if it is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Index, &'static str> {
        const TRUNCATED: &str = "the index is truncated";
        let (count, _) = bytes.split_first_chunk::<4>().ok_or(TRUNCATED)?;
        let count = u32::from_le_bytes(*count) as usize;
        let mut at = 4;
        let common: Box<[u8]> = take(bytes, &mut at).ok_or(TRUNCATED)?.into();
        // A block takes at least three bytes, so the input bounds the memory.
        if count > (bytes.len() - at) / 3 {
            return Err("the index has more blocks than bytes");
        }
        let mut heads = Vec::with_capacity(count);
        let mut suffixes = Vec::with_capacity(bytes.len() - at);
        let mut ends = Vec::with_capacity(count);
        let mut sequences = Vec::new();
        let mut offsets = Vec::with_capacity(count + 1);
        let mut offset = 0u64;
        let mut before: Option<(&[u8], u64)> = None;
        for i in 0..count {
            let suffix = take(bytes, &mut at).ok_or(TRUNCATED)?;
            let sequence = varint(bytes, &mut at).ok_or(TRUNCATED)?;
            let frame_bytes = varint(bytes, &mut at).ok_or(TRUNCATED)?;
            if before.is_some_and(|before| !compare(before, (suffix, sequence)).is_lt()) {
                return Err("the index is not in order");
            }
            before = Some((suffix, sequence));
            if sequence != 0 && sequences.is_empty() {
                sequences.resize(i, 0);
                sequences.reserve_exact(count - i);
            }
            if sequence != 0 || !sequences.is_empty() {
                sequences.push(sequence);
            }
            if frame_bytes < TRAILER as u64 || frame_bytes > u64::from(u32::MAX) {
                return Err("the index gives a block an impossible length");
            }
            heads.push(key_head(suffix));
            suffixes.extend_from_slice(suffix);
            ends.push(suffixes.len() as u32);
            offsets.push(offset);
            offset = offset.checked_add(frame_bytes).ok_or("the index overflows")?;
        }
        offsets.push(offset);
        if at != bytes.len() {
            return Err("the index has bytes after its end");
        }
        Ok(Index {
            common,
            group_ends: heads.iter().skip(GROUP - 1).step_by(GROUP).copied().collect(),
            heads: heads.into(),
            suffixes: suffixes.into(),
            ends: ends.into(),
            sequences: sequences.into(),
            offsets: offsets.into(),
        })
    }

    /// The block that contains the first entry not less than (key, sequence), unless that entry is
    /// the first of the next block; [`blocks`](Index::blocks) if all entries are less. Cost: about
    /// log₂(blocks) integer comparisons.
    #[inline]
    pub fn find(&self, key: &[u8], sequence: u64) -> usize {
        let Some(suffix) = key.strip_prefix(&*self.common) else {
            return if key < &*self.common { 0 } else { self.blocks() };
        };
        let wanted = key_head(suffix);
        let group = GROUP * self.group_ends.partition_point(|&end| end < wanted);
        let heads = &self.heads[group..self.heads.len().min(group + GROUP)];
        let from = group + heads.iter().filter(|&&head| head < wanted).count();
        if self.heads.get(from) != Some(&wanted) {
            return from;
        }
        let equal = self.heads[from..].partition_point(|&h| h == wanted);
        let (mut low, mut high) = (from, from + equal);
        while low < high {
            let middle = low.midpoint(high);
            let separator = (self.suffix(middle), self.sequence(middle));
            if compare(separator, (suffix, sequence)).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Number of data blocks.
    pub fn blocks(&self) -> usize {
        self.ends.len()
    }

    /// The byte range of block `i` in the file. Panics if there is none.
    #[inline]
    pub fn range(&self, i: usize) -> Range<u64> {
        self.offsets[i]..self.offsets[i + 1]
    }

    /// The block that contains the byte at `offset` of the file.
    pub fn block_at(&self, offset: u64) -> usize {
        self.offsets[1..].partition_point(|&end| end <= offset)
    }

    /// Total size of the data blocks.
    pub fn data_bytes(&self) -> u64 {
        self.offsets[self.blocks()]
    }

    /// The separator of block `i`: no entry of the block is greater. Panics if there is none.
    pub fn separator(&self, i: usize) -> (Vec<u8>, u64) {
        ([&self.common, self.suffix(i)].concat(), self.sequence(i))
    }

    /// Resident bytes.
    pub fn memory_bytes(&self) -> usize {
        self.common.len()
            + 8 * (self.heads.len() + self.group_ends.len())
            + 8 * (self.sequences.len() + self.offsets.len())
            + self.suffixes.len()
            + 4 * self.ends.len()
    }

    fn suffix(&self, i: usize) -> &[u8] {
        let from = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.suffixes[from..self.ends[i] as usize]
    }

    fn sequence(&self, i: usize) -> u64 {
        self.sequences.get(i).copied().unwrap_or(0)
    }
}

/// Collects the index of an SSTable that is being written.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    keys: Vec<u8>,
    /// End of each separator in `keys`, its sequence number, and its block's size.
    blocks: Vec<(usize, u64, u64)>,
}

impl IndexBuilder {
    /// Adds the next block: its last entry, the first key after it, and its size.
    pub(crate) fn add(&mut self, last: (&[u8], u64), next: Option<&[u8]>, frame_bytes: u64) {
        let sequence = match next {
            Some(next) if next == last.0 => {
                self.keys.extend_from_slice(last.0);
                last.1
            }
            Some(next) => {
                push_separator(&mut self.keys, last.0, next);
                0
            }
            None => {
                self.keys.extend_from_slice(last.0);
                0
            }
        };
        self.blocks.push((self.keys.len(), sequence, frame_bytes));
    }

    /// Encodes the meta block.
    pub(crate) fn finish(&self) -> Vec<u8> {
        let key = |i: usize| {
            let from = if i == 0 { 0 } else { self.blocks[i - 1].0 };
            &self.keys[from..self.blocks[i].0]
        };
        // The keys are sorted, so the common prefix of first and last is common to all.
        let common = match self.blocks.len() {
            0 => 0,
            n => common_prefix_len(key(0), key(n - 1)),
        };
        let mut out = (self.blocks.len() as u32).to_le_bytes().to_vec();
        push_varint(&mut out, common as u64);
        out.extend_from_slice(if self.blocks.is_empty() { &[] } else { &key(0)[..common] });
        for (i, &(_, sequence, frame_bytes)) in self.blocks.iter().enumerate() {
            let suffix = &key(i)[common..];
            push_varint(&mut out, suffix.len() as u64);
            out.extend_from_slice(suffix);
            push_varint(&mut out, sequence);
            push_varint(&mut out, frame_bytes);
        }
        out
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.capacity() + self.blocks.capacity() * size_of::<(usize, u64, u64)>()
    }
}

/// Appends a short key `k` with `last <= k < next`.
fn push_separator(out: &mut Vec<u8>, last: &[u8], next: &[u8]) {
    let common = common_prefix_len(last, next);
    match (last.get(common), next.get(common)) {
        // One byte of `next` beyond the common prefix: above `last`, and below the longer `next`.
        (Some(_), Some(_)) if next.len() > common + 1 => {
            out.extend_from_slice(&next[..=common]);
        }
        (Some(&a), Some(&b)) if a + 1 < b => {
            out.extend_from_slice(&last[..common]);
            out.push(a + 1);
        }
        _ => out.extend_from_slice(last),
    }
}

fn take<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let len = usize::try_from(varint(bytes, at)?).ok()?;
    let taken = bytes.get(*at..)?.get(..len)?;
    *at += len;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(254), Just(255), any::<u8>()],
            0..12,
        )
    }

    proptest! {
        #[test]
        fn separator_is_between_keys_and_not_longer_than_first(a in key(), b in key()) {
            prop_assume!(a != b);
            let (last, next) = if a < b { (a, b) } else { (b, a) };
            let mut separator = Vec::new();
            push_separator(&mut separator, &last, &next);
            prop_assert!(last <= separator && separator < next);
            prop_assert!(separator.len() <= last.len());
        }

        #[test]
        fn search_agrees_with_linear_scan(
            mut keys in prop::collection::btree_set((key(), 0u64..3), 1..40),
            prefix in prop::collection::vec(any::<u8>(), 0..10),
            wanted in key(), sequence in 0u64..4, with_prefix: bool,
        ) {
            let mut sorted: Vec<_> = std::mem::take(&mut keys).into_iter()
                .map(|(k, s)| ([prefix.clone(), k].concat(), s)).collect();
            sorted.sort_by(|a, b| compare((&a.0, a.1), (&b.0, b.1)));
            let mut builder = IndexBuilder::default();
            for (k, s) in &sorted {
                builder.keys.extend_from_slice(k);
                builder.blocks.push((builder.keys.len(), *s, 10));
            }
            let index = Index::decode(&builder.finish()).unwrap();
            let wanted = if with_prefix { [prefix, wanted].concat() } else { wanted };
            let walked = sorted.iter()
                .position(|(k, s)| compare((k, *s), (&wanted, sequence)).is_ge())
                .unwrap_or(sorted.len());
            prop_assert_eq!(index.find(&wanted, sequence), walked);
            for (i, (k, s)) in sorted.iter().enumerate() {
                prop_assert_eq!(&index.separator(i), &(k.clone(), *s));
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Index::decode(&bytes);
        }
    }
}
