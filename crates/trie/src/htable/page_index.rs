//! The page index of the other layouts, with items packed in hash order.
//!
//! ```text
//!   run     hash ─▶ entropy-coded trie ─▶ rank ─▶ the last page with a first rank up to it
//!   sorted  hash ─▶ the last page with a first suffix up to that of the hash
//!   pages     [ 0 … 36 ][ 37 … 71 ][ 72 … ]        as many items as fit
//!   index  := 0:u8  pages:u32  { rank of the first item: u32 }{pages}  stored trie
//!           | 1:u8  pages:u32  { suffix of the first item: u64 }{pages}
//! ```
//!
//! A run needs about 2.5 bits per item for the trie and 32 per page, and no filter, migration or
//! free space. Every lookup takes one read, also of absent keys, since the trie returns a rank for
//! any hash. A sorted table is the SSTable of the paper's intermediate design: 64 bits per page,
//! and filters. If the hashes are too uneven for a trie, as weak ones are, a run uses suffixes,
//! too.
//!
//! Items with the suffix of the previous one, and large ones, go to the special bucket.
//!
//! Invariant: the trie returns the rank of an item for its hash.
//!
//! Source: runs are SILT's SortedStore (Lim et al., SOSP 2011; Lim, thesis, chapter 3); sorted
//! tables are from the LSM-trie paper, section 2.3.

use siltstone_structures::Ect;
use siltstone_structures::ect::{EctBuilder, EctOptions};

use super::format::{le32, le64};
use crate::hash::Hash;

/// An index of pages.
pub(crate) enum PageIndex {
    Rank {
        trie: Box<Ect>,
        /// The rank of each page's first item.
        starts: Vec<u32>,
    },
    /// The suffix of each page's first item.
    First(Vec<u64>),
}

const RANK: u8 = 0;
const FIRST: u8 = 1;

impl PageIndex {
    /// The page of the item with `hash`, if the table contains it.
    pub(crate) fn page(&self, hash: Hash) -> u32 {
        let behind = match self {
            PageIndex::Rank { trie, starts } => {
                let rank = trie.lookup(&hash.to_key()) as u32;
                starts.partition_point(|&start| start <= rank)
            }
            PageIndex::First(firsts) => firsts.partition_point(|&first| first <= hash.suffix),
        };
        behind.saturating_sub(1) as u32
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            PageIndex::Rank { trie, starts } => (trie.size() + 4 * starts.capacity()) as u64,
            PageIndex::First(firsts) => 8 * firsts.capacity() as u64,
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut head = |kind, pages: usize| {
            out.push(kind);
            out.extend_from_slice(&(pages as u32).to_le_bytes());
        };
        match self {
            PageIndex::Rank { trie, starts } => {
                head(RANK, starts.len());
                out.extend(starts.iter().flat_map(|start| start.to_le_bytes()));
                out.extend(trie.to_bytes());
            }
            PageIndex::First(firsts) => {
                head(FIRST, firsts.len());
                out.extend(firsts.iter().flat_map(|first| first.to_le_bytes()));
            }
        }
        out
    }

    /// `None`: malformed, or of another number of pages.
    pub(crate) fn from_bytes(bytes: &[u8], pages: u32) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*count) != pages {
            return None;
        }
        match kind {
            RANK => {
                let (starts, trie) = rest.split_at_checked((pages as usize).checked_mul(4)?)?;
                let starts: Vec<u32> = starts.chunks_exact(4).map(le32).collect();
                let trie = Box::new(Ect::from_bytes(trie).ok()?);
                starts.is_sorted().then_some(PageIndex::Rank { trie, starts })
            }
            FIRST if rest.len() == pages as usize * 8 => {
                let firsts: Vec<u64> = rest.chunks_exact(8).map(le64).collect();
                firsts.is_sorted().then_some(PageIndex::First(firsts))
            }
            _ => None,
        }
    }
}

/// Builds the index while pages are packed.
pub(crate) struct PageIndexBuilder {
    /// `None`: not wanted, or the hashes are too uneven.
    trie: Option<EctBuilder>,
    rank: u32,
    starts: Vec<u32>,
    firsts: Vec<u64>,
}

impl PageIndexBuilder {
    /// For about `items` items; with a rank index for a run.
    pub(crate) fn new(is_run: bool, items: u64) -> Self {
        let trie = is_run.then(|| EctBuilder::new(EctOptions::default(), items.max(1)));
        let trie = trie.and_then(Result::ok);
        PageIndexBuilder { trie, rank: 0, starts: Vec::new(), firsts: Vec::new() }
    }

    /// Adds the next item in hash order; `begins_page`: it is the first of a page.
    pub(crate) fn push(&mut self, hash: Hash, begins_page: bool) {
        if begins_page {
            self.starts.push(self.rank);
            self.firsts.push(hash.suffix);
        }
        self.rank += 1;
        if self.trie.as_mut().is_some_and(|trie| trie.push(&hash.to_key()).is_err()) {
            self.trie = None;
        }
    }

    /// Memory in bytes, without the trie.
    pub(crate) fn memory_bytes(&self) -> usize {
        4 * self.starts.capacity() + 8 * self.firsts.capacity()
    }

    /// Encodes the index.
    pub(crate) fn finish(self) -> Vec<u8> {
        match self.trie.and_then(|trie| trie.finish().ok()) {
            Some(trie) => PageIndex::Rank { trie: Box::new(trie), starts: self.starts }.to_bytes(),
            None => PageIndex::First(self.firsts).to_bytes(),
        }
    }
}
