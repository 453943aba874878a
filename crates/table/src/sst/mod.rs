//! SSTable: an immutable file of sorted entries; a lookup takes at most one read.
//!
//! | module | contents |
//! | --- | --- |
//! | [`footer`] | footer and directory, at the end of the file |
//! | `frames` | reads meta blocks and the dictionary |
//! | [`meta`] | the properties block: counts and bounds |
//! | [`index`] | maps a key to its data block |
//! | [`filter`] | Bloom filter and range filter |
//! | [`options`] | the layout that a writer is given |
//! | `sampled_blocks` | the blocks that a dictionary is trained from |
//! | [`writer`] | writes an SSTable from sorted entries |
//! | [`table`] | open, point lookups |
//! | [`iter`](mod@iter) | bidirectional iterator with readahead |
//! | [`salvage`] | every readable entry of a damaged SSTable |
//! | [`verify`] | verification of every byte |
//!
//! ```text
//! file := data block frame+  meta block frame*  directory frame  footer
//! ```
//!
//! Every byte belongs to a frame or to the footer, each with a checksum. There are no gaps: the
//! directory states the length of each meta block, the index (itself a meta block) that of each
//! data block, and both must add up exactly. Frames are drawn in `block::frame`.

pub mod filter;
pub mod footer;
mod frames;
pub mod index;
pub mod iter;
pub mod meta;
pub mod options;
pub mod salvage;
mod sampled_blocks;
pub mod table;
pub mod verify;
pub mod writer;

pub use filter::Filter;
pub use iter::{IterOptions, TableIter};
pub use meta::TableMeta;
pub use options::TableOptions;
pub use salvage::salvage_table;
pub use table::{PinnedEntry, Table};
pub use writer::{EXTERNAL_SEQUENCE, SKETCH, TableWriter, UnsyncedTable};
