//! HTables: immutable tables whose items lie in buckets by their hash, so that no index is needed.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`format`](mod@format) | the bytes of the file |
//! | [`bucket`] | the bytes of a bucket |
//! | [`directory`] | segments: where buckets are |
//! | [`balance`] | buckets as full as possible and none over: migration by HashMark |
//! | [`filter`] | a Bloom filter a column |
//! | [`build`] | items in the order of hashes become a file, a segment at a time |
//! | [`run`] | the other layouts: pages in the order of hashes under an index |
//! | [`table`] | the open file: lookups of one read |
//! | [`stream`] | all items of a table in the order of hashes, a segment at a time |

pub(crate) mod balance;
pub(crate) mod bucket;
pub(crate) mod build;
pub(crate) mod directory;
pub(crate) mod filter;
pub(crate) mod format;
pub(crate) mod run;
pub(crate) mod stream;
pub(crate) mod table;

pub(crate) use bucket::BucketHeader;
pub(crate) use build::{Build, Expected, TableWriter};
pub(crate) use filter::{Filter, FilterBuilder};
pub(crate) use format::{FOOTER_BYTES, Layout, Origin, le32, le64};
pub(crate) use stream::Stream;
pub(crate) use table::{Found, HTable};
