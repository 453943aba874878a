//! RowTable: a row of level 0 in byte-addressable persistent memory.
//!
//! ```text
//!   manifest ── handle (page, length, checksum)
//!                 │
//!               header ── directory ─┬─ metadata pages   sorted array of elements, 16 bytes each
//!                                    │    fragment of the key | forward pointer | place of the item
//!                                    │                              │                  │
//!                                    │                   index in the row before       │
//!                                    └─ data pages       items in key order  ◀─────────┘
//! ```
//!
//! A flush builds a row from a memtable's versions ([`RowBuilder`]); opening it claims its pages; a
//! compaction that moves the cursor [trims](RowTable::trim) it, which lets go of what died. A lookup
//! goes through all rows, newest to oldest, each narrowing the next ([`hints`]).
//!
//! | module | one idea |
//! | --- | --- |
//! | `item`, `element`, `directory`, `header` | the format, part by part |
//! | `builder` | writing a row, with one persist barrier |
//! | `table` | a row that is open: pages, live elements, trimming |
//! | `read` | reading the parts of a row in place |
//! | `search` | finding a key in one row |
//! | `scale` | guessing where it is |
//! | `hints` | finding a key in all rows |
//! | `iter` | walking a row |
//! | `probe` | counting comparisons and reads |
//!
//! Every byte read is under a checksum: the header's is in the manifest, the directory's in the
//! header, the metadata's in the directory (all three checked at open), and an item has its own,
//! checked whenever its key or value is looked at.
//!
//! Source: TriangleKV paper, sections 3.1 and 3.4.

mod builder;
mod directory;
mod element;
mod header;
pub(crate) mod hints;
mod item;
mod iter;
mod probe;
mod read;
mod scale;
mod search;
mod table;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use builder::MIN_PAGE_BYTES;
pub(crate) use builder::RowBuilder;
pub(crate) use header::RowHandle;
pub(crate) use iter::RowIter;
pub(crate) use probe::Tally;
pub(crate) use table::{RowTable, RowVersion};
