//! The dense layout: items packed in the order of their hashes under a rank index.
//!
//! ```text
//!   hash ─▶ entropy-coded trie ─▶ rank ─▶ the page whose first rank is the last not above it
//!   pages     [ 0 … 36 ][ 37 … 71 ][ 72 … ]        full to the last item that fits
//!   index  := pages:u32  { rank of the first item: u32 }{pages}  stored trie
//! ```
//!
//! About 2.5 bits an item for the trie and 32 a page: no filter, no migration, no free space. A
//! lookup takes one read, also of a key that is not there, since the trie gives some rank for any
//! hash. Items of equal hashes beyond the first, and those too large, go to the special bucket.
//!
//! Invariant: the rank of an item in a page is the trie's answer for its hash.
//!
//! Source: ours: SILT's SortedStore (Lim et al., SOSP 2011; Lim, thesis, chapter 3) as the last
//! level of an LSM-trie.

use siltstone_structures::Ect;
use siltstone_structures::ect::{EctBuilder, EctError, EctOptions};

use crate::hash::Hash;

/// The index of a run.
pub(crate) struct RunIndex {
    trie: Ect,
    /// The rank of each page's first item.
    starts: Vec<u32>,
}

impl RunIndex {
    /// The page on which the item of `hash` lies, if it is in the run at all.
    pub(crate) fn page(&self, hash: Hash) -> u32 {
        let rank = self.trie.lookup(&hash.to_key()) as u32;
        (self.starts.partition_point(|&start| start <= rank)).saturating_sub(1) as u32
    }

    /// Resident memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.trie.size() + 4 * self.starts.capacity()) as u64
    }

    /// The index of ascending, distinct hashes on pages that begin at `starts`.
    ///
    /// # Errors
    /// The hashes are too uneven for a trie, as weak ones are.
    pub(crate) fn build(hashes: &[Hash], starts: Vec<u32>) -> Result<Self, EctError> {
        let mut builder = EctBuilder::new(EctOptions::default(), hashes.len() as u64)?;
        hashes.iter().try_for_each(|hash| builder.push(&hash.to_key()))?;
        Ok(RunIndex { trie: builder.finish()?, starts })
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = (self.starts.len() as u32).to_le_bytes().to_vec();
        self.starts.iter().for_each(|start| out.extend_from_slice(&start.to_le_bytes()));
        out.extend(self.trie.to_bytes());
        out
    }

    /// `None`: these are not the bytes of an index over so many pages.
    pub(crate) fn from_bytes(bytes: &[u8], pages: u32) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*count) != pages {
            return None;
        }
        let (starts, trie) = rest.split_at_checked(pages as usize * 4)?;
        let (starts, _) = starts.as_chunks::<4>();
        let starts: Vec<u32> = starts.iter().map(|start| u32::from_le_bytes(*start)).collect();
        let trie = Ect::from_bytes(trie).ok()?;
        starts.is_sorted().then_some(RunIndex { trie, starts })
    }
}
