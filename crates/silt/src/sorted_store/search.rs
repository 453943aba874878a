//! Locates the block of a hash in a SortedStore whose trie is not loaded.
//!
//! Hashes are uniform, so a block's index is about proportional to the hash (interpolation search).
//! Each block read narrows the range. After a few interpolations they alternate with bisections,
//! which bounds the search to twice the logarithm of the blocks for any distribution.
//!
//! Source: Lim, thesis, section 2.3 (2); Peterson, "Addressing for random-access storage", 1957
//! (interpolation search).

use siltstone_engine::{Purpose, Result};
use siltstone_structures::HashKey;

use super::SortedStore;
use super::format::CRC;
use crate::item::{self, Item};

/// Interpolations before they alternate with bisections.
const INTERPOLATIONS: u32 = 5;

impl SortedStore {
    /// The entry of `key`. Cost: about six reads of blocks.
    pub(super) fn search(
        &self,
        hash: &HashKey,
        key: &[u8],
        purpose: Purpose,
    ) -> Result<Option<Item>> {
        match self.locate(hash, purpose)? {
            (_, Some(bytes)) => self.find(bytes, key),
            (_, None) => Ok(None),
        }
    }

    /// The first block whose last hash is not less than `hash`, and its bytes if its first hash is
    /// not greater. Cost: about six reads of blocks.
    pub(super) fn locate(
        &self,
        hash: &HashKey,
        purpose: Purpose,
    ) -> Result<(u64, Option<Vec<u8>>)> {
        // The range `low..high` is left; its hashes lie about between `below` and `above`.
        let (mut low, mut high) = (0, self.boundaries.blocks());
        let (mut below, mut above) = (0u64, u64::MAX);
        let wanted = leading(hash);
        let mut round = 0;
        while low < high {
            let middle = if round < INTERPOLATIONS || round % 2 == 0 {
                let share = u128::from(wanted.saturating_sub(below)) * u128::from(high - low)
                    / (u128::from(above - below) + 1);
                low + (share as u64).min(high - low - 1)
            } else {
                low.midpoint(high)
            };
            round += 1;
            let bytes = self.read_block(middle, purpose)?;
            let mut hashes =
                item::list(&bytes[CRC..]).flatten().map(|(op, _)| self.meta.keys.hash(op.key()));
            let Some(first) = hashes.next() else {
                return Err(self.corruption(0, "a block without entries"));
            };
            let last = hashes.last().unwrap_or(first);
            if *hash < first {
                (high, above) = (middle, leading(&first));
            } else if *hash > last {
                (low, below) = (middle + 1, leading(&last));
            } else {
                return Ok((middle, Some(bytes)));
            }
            above = above.max(below);
        }
        Ok((low, None))
    }
}

fn leading(hash: &HashKey) -> u64 {
    hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
