//! A data block: sorted, prefix-compressed entries with restart points.
//!
//! | module | contents |
//! | --- | --- |
//! | [`builder`] | encodes entries |
//! | this file | the layout, and decoding of one entry |
//! | `search` | lower-bound search that builds no key |
//! | `waypoints` | where a search in a cached block begins |
//! | [`iter`](mod@iter) | bidirectional iterator |
//! | [`frame`] | compression and checksum of a block on disk |
//! | `codec`, `lz4`, `zstandard` | the compressions, which features switch off |
//! | [`dictionary`] | the Zstandard dictionary of a file |
//!
//! ```text
//! block    := entry+  restart:u32[count]  count:u32                              little endian
//! entry    := shared:varint  unshared:varint  tag:varint  [expires_at:varint]  [value_len:varint]
//!             key_suffix[unshared]  value[value_len]
//!   tag    = sequence << 3 | kind
//!   expires_at only if kind is PutExpiring or Merge; no value_len if kind is Delete
//! restart  := offset of an entry with shared = 0; the first is 0, then ascending
//! ```
//!
//! Entries are sorted by key (bytewise, ascending), then by sequence number (descending). `shared`
//! is exactly the length of the longest common prefix with the previous key, except at restart
//! points, where it is 0; the search relies on it and `verify` checks it. Version and checksum are
//! those of the enclosing SSTable.
//!
//! Invariant: any bytes that `Block::parse` accepts can be iterated and searched without a panic;
//! a malformed entry is reported when it is reached.
//!
//! Source: LevelDB's block format; the kind in the tag and the search by `shared` are additions.

pub mod builder;
pub(crate) mod codec;
pub mod dictionary;
pub mod frame;
pub mod iter;
mod lz4;
mod search;
mod waypoints;
mod zstandard;

pub use builder::BlockBuilder;
pub use codec::Codec;
pub use frame::Compression;
pub use iter::BlockIter;

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use siltstone_engine::varint::varint_of_word;

use waypoints::Waypoints;

use crate::cache::CacheableBlock;
use crate::kind::{Kind, MAX_SEQUENCE};
use crate::varint::varint;

/// A malformed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedBlock {
    /// Offset in the uncompressed block, in bytes.
    pub offset: usize,
    /// What is malformed.
    pub reason: &'static str,
}

/// The contents of a data block, uncompressed, with validated restart points.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    /// Where the entries end and the restart points begin.
    entries_end: usize,
    restarts: usize,
    /// Once the block was searched often enough.
    waypoints: OnceLock<Waypoints>,
    /// Searches without waypoints.
    searches: AtomicU32,
}

/// One decoded entry; ranges are of the block's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawEntry {
    pub(crate) shared: usize,
    pub(crate) key_at: usize,
    pub(crate) value_at: usize,
    /// Where the entry ends and the next begins.
    pub(crate) end: usize,
    pub(crate) sequence: u64,
    pub(crate) expires_at: u64,
    pub(crate) kind: Kind,
}

impl Block {
    /// Parses the first `len` of `bytes` as a block's contents. Cost: one check per restart point.
    ///
    /// # Errors
    /// A malformed restart point.
    pub fn parse(mut bytes: Vec<u8>, len: usize) -> Result<Block, MalformedBlock> {
        let bad = |offset, reason| Err(MalformedBlock { offset, reason });
        // The bytes after the contents stay allocated; truncating copies nothing.
        bytes.truncate(len);
        let Some((rest, count)) = bytes.split_last_chunk::<4>() else {
            return bad(0, "a block is too short");
        };
        let restarts = u32::from_le_bytes(*count) as usize;
        let Some(entries_end) = restarts.checked_mul(4).and_then(|n| rest.len().checked_sub(n))
        else {
            return bad(rest.len(), "a block has more restart points than bytes");
        };
        let (waypoints, searches) = Default::default();
        let block = Block { bytes, entries_end, restarts, waypoints, searches };
        if restarts == 0 || block.restart(0) != 0 {
            return bad(entries_end, "a block does not start at a restart point");
        }
        let ascending = (1..restarts).all(|i| block.restart(i - 1) < block.restart(i));
        if !ascending || block.restart(restarts - 1) >= entries_end {
            return bad(entries_end, "the restart points of a block are not in order");
        }
        Ok(block)
    }

    /// A block without entries, as a placeholder. No file has one.
    pub(crate) fn empty() -> Block {
        let (bytes, waypoints, searches) = Default::default();
        Block { bytes, entries_end: 0, restarts: 0, waypoints, searches }
    }

    /// The block's buffer, for reuse.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// All bytes of the block.
    #[inline]
    pub(crate) fn contents(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of a value.
    #[inline]
    pub(crate) fn slice(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[from..to]
    }

    #[inline]
    fn restart(&self, i: usize) -> usize {
        let at = self.entries_end + 4 * i;
        let bytes = &self.bytes[at..at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
    }

    /// The last restart point at or before `offset`.
    fn restart_before(&self, offset: usize) -> usize {
        let (mut low, mut high) = (0, self.restarts);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if self.restart(middle) <= offset { low = middle } else { high = middle }
        }
        low
    }

    #[inline(always)]
    fn decode(&self, at: usize) -> Result<RawEntry, MalformedBlock> {
        decode(&self.bytes[..self.entries_end], at)
            .ok_or(MalformedBlock { offset: at, reason: "an entry is malformed" })
    }
}

impl CacheableBlock for Block {
    fn memory_bytes(&self) -> usize {
        let waypoints = Waypoints::max_bytes(self.entries_end);
        self.bytes.capacity() + waypoints + size_of::<Block>()
    }
}

/// Decodes the entry at `at`; `None` if it is malformed.
#[inline(always)]
fn decode(entries: &[u8], at: usize) -> Option<RawEntry> {
    match decode_short(entries, at) {
        Some(entry) => Some(entry),
        None => decode_any(entries, at),
    }
}

/// As [`decode`], for the most frequent form: lengths of one byte, a tag of up to eight, and no
/// expiry.
#[inline(always)]
fn decode_short(entries: &[u8], at: usize) -> Option<RawEntry> {
    let head = entries.get(at..)?.first_chunk::<11>()?;
    let (shared, unshared) = (head[0], head[1]);
    let word = head.get(2..).and_then(|rest| rest.first_chunk())?;
    let (tag, tag_bytes) = varint_of_word(u64::from_le_bytes(*word))?;
    let value_len = *head.get(2 + tag_bytes)?;
    let kind = Kind::from_bits((tag & 7) as u8)?;
    if (shared | unshared | value_len) >= 0x80 || kind.stores_expiry() || kind == Kind::Delete {
        return None;
    }
    let key_at = at + 3 + tag_bytes;
    let value_at = key_at + usize::from(unshared);
    let end = value_at + usize::from(value_len);
    (end <= entries.len()).then_some(RawEntry {
        shared: usize::from(shared),
        key_at,
        value_at,
        end,
        sequence: tag >> 3,
        expires_at: 0,
        kind,
    })
}

#[inline(never)]
fn decode_any(entries: &[u8], at: usize) -> Option<RawEntry> {
    let mut at = at;
    let shared = varint(entries, &mut at)?;
    let unshared = varint(entries, &mut at)?;
    let tag = varint(entries, &mut at)?;
    let kind = Kind::from_bits((tag & 7) as u8)?;
    let expires_at = if kind.stores_expiry() { varint(entries, &mut at)? } else { 0 };
    let value_len = if kind == Kind::Delete { 0 } else { varint(entries, &mut at)? };
    // Each length is compared with the remaining bytes, so that no sum can overflow.
    let left = (entries.len() - at) as u64;
    if unshared > left || value_len > left - unshared {
        return None;
    }
    let value_at = at + unshared as usize;
    Some(RawEntry {
        shared: usize::try_from(shared).ok()?,
        key_at: at,
        value_at,
        end: value_at + value_len as usize,
        sequence: tag >> 3,
        expires_at,
        kind,
    })
}

const _: () = assert!(MAX_SEQUENCE == u64::MAX >> 3, "a tag holds a sequence and three bits");
