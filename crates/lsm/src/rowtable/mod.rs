//! RowTable (MatrixKV's term): an L0 run in byte-addressable persistent memory. In this module
//! "row" means such a run.
//!
//! ```text
//!   manifest ── handle (page, length, checksum)
//!                 │
//!               header ── directory ─┬─ metadata pages   sorted array of elements, 16 bytes each
//!                                    │    key fragment | forward pointer | location of the item
//!                                    │                          │                  │
//!                                    │               index in the previous row     │
//!                                    └─ data pages       items in key order  ◀─────┘
//! ```
//!
//! A flush builds a row from a memtable ([`RowBuilder`]); opening a row claims its pages; a
//! compaction that moves the L0 cursor [trims](RowTable::trim) it, which frees the pages of dead
//! keys. A lookup searches all rows, newest to oldest, and each search narrows the next
//! ([`hints`]).
//!
//! | module | content |
//! | --- | --- |
//! | `item`, `element`, `directory`, `header` | the format, part by part |
//! | `builder` | building a row, with one persist barrier |
//! | `table` | an open row: pages, live elements, trimming |
//! | `read` | reading the parts of a row in place |
//! | `search` | finding a key in one row |
//! | `interpolation` | estimating the position of a key |
//! | `hints` | finding a key in all rows |
//! | `iter` | iterating over a row |
//! | `search_stats` | counting comparisons and reads |
//!
//! Every byte read is protected by a checksum. The header's is in the manifest, the directory's in
//! the header, the metadata's in the directory (all three are checked at open). Each item has its
//! own, checked at each access to its key or value.
//!
//! Source: TriangleKV paper, sections 3.1 and 3.4.

mod builder;
mod directory;
mod element;
mod header;
pub(crate) mod hints;
mod interpolation;
mod item;
mod iter;
mod read;
mod search;
mod search_stats;
mod table;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use builder::MIN_PAGE_BYTES;
pub(crate) use builder::RowBuilder;
pub(crate) use header::RowHandle;
pub(crate) use iter::RowTableIter;
pub(crate) use search_stats::SearchStats;
pub(crate) use table::{RowTable, RowVersion};
