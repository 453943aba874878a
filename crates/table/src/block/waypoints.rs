//! Waypoints of a cached block: places between the restart points where a search can begin.
//!
//! ```text
//!   entries     ┌ e0 ┬ e1 ┬ e2 ┬ e3 ┬ e4 ┬ e5 ┬ e6 ┬ …         restart points: e0, e16, …
//!   waypoints             ▲         ▲         ▲
//!              head of e1 ┘      e3 ┘      e5 ┘                 one per 128 bytes of entries
//! ```
//!
//! A waypoint is the offset of an entry, with the head of the key before it: the first 4 bytes
//! after those that all keys of the block have in common. Heads are adjacent and compared as
//! integers. A scan from the last waypoint whose head is less than the target's needs no key from
//! before it: the two heads show how many bytes of the target the key before has in common with it.
//!
//! They are made after some searches of the block, since many blocks are searched only once or
//! never ([`SEARCHES_PER_RESTART`]). At most 1/16 of the block's memory, in which they are counted
//! from the start.
//!
//! Invariant: the heads are in order, and each is of a key that is at least as long as its head
//! reaches, so that no byte of a head is padding.

use std::cmp::Ordering;

use siltstone_structures::{common_prefix_len, key_head};

use super::Block;

/// Bytes of entries per waypoint: two cache lines.
const INTERVAL_BYTES: usize = 128;
const HEAD_BYTES: usize = size_of::<u32>();
/// Searches per restart point before waypoints are made. By estimate these searches cost what
/// making waypoints costs, so that a block that is rarely searched costs at most twice the best.
pub(super) const SEARCHES_PER_RESTART: usize = 2;

/// The waypoints of a block; none if its keys are too short or malformed.
#[derive(Debug, Default)]
pub(super) struct Waypoints {
    heads: Box<[u32]>,
    /// By head, where the entry after the key with this head begins.
    offsets: Box<[u32]>,
    /// Where the first key is, and how many of its bytes all keys have in common.
    common_at: usize,
    common: usize,
}

/// Where a scan for a target begins: all entries before are less.
pub(super) struct Start {
    pub(super) at: usize,
    /// How many bytes of the target the entry before has in common with it.
    pub(super) matched: usize,
    /// The next waypoint, or the end: most scans end before or soon after it.
    pub(super) next: usize,
}

impl Waypoints {
    /// The waypoints of `block`; `None` if it is malformed. Cost: decodes all entries.
    pub(super) fn of(block: &Block) -> Option<Self> {
        let (common_at, common) = common_bytes(block)?;
        let (mut heads, mut offsets) = (Vec::new(), Vec::new());
        let (mut head, mut key_len, mut at, mut last) = ([0; HEAD_BYTES], 0, 0, 0);
        while at < block.entries_end {
            let entry = block.decode(at).ok()?;
            if entry.shared > key_len {
                return None;
            }
            let suffix = block.suffix(&entry);
            key_len = entry.shared + suffix.len();
            at = entry.end;
            if entry.shared < common + HEAD_BYTES {
                let kept = entry.shared.saturating_sub(common);
                let new = suffix.get(common.saturating_sub(entry.shared)..).unwrap_or_default();
                head[kept..].iter_mut().zip(new).for_each(|(to, from)| *to = *from);
            }
            let is_whole = key_len >= common + HEAD_BYTES;
            if is_whole && at - last >= INTERVAL_BYTES && at < block.entries_end {
                heads.push(u32::from_be_bytes(head));
                offsets.push(u32::try_from(at).ok()?);
                last = at;
            }
        }
        let (is_sorted, heads, offsets) = (heads.is_sorted(), heads.into(), offsets.into());
        is_sorted.then_some(Waypoints { heads, offsets, common_at, common })
    }

    /// The maximum size of the waypoints of a block, by the bytes of its entries.
    pub(super) fn max_bytes(entries_end: usize) -> usize {
        entries_end / INTERVAL_BYTES * 2 * size_of::<u32>()
    }

    /// Where to begin the scan for `key`; `None` if there are no waypoints, or too many with the
    /// same head. Cost: a binary search over integers.
    #[inline]
    pub(super) fn start(&self, block: &Block, key: &[u8]) -> Option<Start> {
        let &first = self.offsets.first()?;
        let common = &block.bytes[self.common_at..self.common_at + self.common];
        match key[..key.len().min(self.common)].cmp(common) {
            Ordering::Less => return Some(Start { at: 0, matched: 0, next: 0 }),
            Ordering::Greater => {
                let at = block.entries_end;
                return Some(Start { at, matched: 0, next: at });
            }
            Ordering::Equal => {}
        }
        let wanted = (key_head(&key[self.common..]) >> 32) as u32;
        let following = self.heads.partition_point(|&head| head < wanted);
        if self.heads.get(following + 1) == Some(&wanted) {
            return None;
        }
        let Some(before) = following.checked_sub(1) else {
            return Some(Start { at: 0, matched: 0, next: first as usize });
        };
        // The first byte that differs is greater in the target, so it is no padding there either.
        let equal_bytes = (self.heads[before] ^ wanted).leading_zeros() / u8::BITS;
        let next = self.offsets.get(following).map_or(block.entries_end, |&at| at as usize);
        let matched = self.common + equal_bytes as usize;
        Some(Start { at: self.offsets[before] as usize, matched, next })
    }
}

/// Where the first key of `block` is, and how many bytes it has in common with the last key, and so
/// with all keys between; `None` if the block is malformed. Cost: a scan of one restart interval.
fn common_bytes(block: &Block) -> Option<(usize, usize)> {
    let first = block.decode(0).ok()?;
    let (mut key, mut at) = (Vec::new(), block.restart(block.restarts - 1));
    while at < block.entries_end {
        let entry = block.decode(at).ok()?;
        if entry.shared > key.len() {
            return None;
        }
        key.truncate(entry.shared);
        key.extend_from_slice(block.suffix(&entry));
        at = entry.end;
    }
    Some((first.key_at, common_prefix_len(block.suffix(&first), &key)))
}
