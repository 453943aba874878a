//! HTables: immutable hash tables on storage, with items in buckets by their hash and without an
//! index.
//!
//! | module | content |
//! | --- | --- |
//! | [`format`](mod@format) | the format of the file |
//! | [`bucket`] | the format of a bucket |
//! | [`directory`] | segments and their buckets |
//! | [`balance`] | balancing full buckets by migration with HashMarks |
//! | [`filter`] | one Bloom filter per column |
//! | [`build`] | building a table from items in hash order, one segment at a time |
//! | [`page_index`] | the other layouts: pages in hash order with an index |
//! | [`table`] | the open file: lookups with one read |
//! | [`stream`] | all items of a table in hash order, one segment at a time |

pub(crate) mod balance;
pub(crate) mod bucket;
pub(crate) mod build;
pub(crate) mod directory;
pub(crate) mod filter;
pub(crate) mod format;
pub(crate) mod page_index;
pub(crate) mod stream;
pub(crate) mod table;

pub(crate) use bucket::BucketHeader;
pub(crate) use build::{Build, ExpectedSize, TableWriter};
pub(crate) use directory::Directory;
pub(crate) use filter::{Filter, FilterBuilder};
pub(crate) use format::{FOOTER_BYTES, Layout, Origin, decode_specials, le32, le64};
pub(crate) use stream::Stream;
pub(crate) use table::{HTable, LookupResult};
