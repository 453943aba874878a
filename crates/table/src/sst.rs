//! The sorted table: an immutable file of entries in order, searched with one read at most.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`footer`] | the end of the file: footer and directory |
//! | [`meta`] | what a table says of itself, and its properties block |
//! | [`index`] | which block a key is in |
//! | [`filter`] | which keys are surely not there |
//! | [`writer`] | writing a table from sorted entries |
//! | [`table`] | opening, point lookups |
//! | [`iter`](mod@iter) | walking both ways, with readahead |
//! | [`salvage`] | every entry that can be read of a damaged table |
//! | [`verify`] | reading and checking every byte |
//!
//! ```text
//! file := data block frame+  meta block frame*  directory frame  footer
//! ```
//!
//! Every byte belongs to a frame or the footer, each with a checksum, without gaps: the directory
//! gives the length of each meta block, the index (itself a meta block) that of each data block, and
//! both must add up exactly. Frames are drawn in `block::frame`.

pub mod filter;
pub mod footer;
pub mod index;
pub mod iter;
pub mod meta;
pub mod salvage;
pub mod table;
pub mod verify;
pub mod writer;

pub use iter::{IterOptions, TableIter};
pub use meta::TableMeta;
pub use salvage::salvage_table;
pub use table::{Found, Table};
pub use writer::{SKETCH, TableOptions, TableWriter, Unsynced};
