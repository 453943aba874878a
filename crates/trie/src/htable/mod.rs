//! HTables: immutable tables whose items lie in buckets by their hash, so that no index is needed.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`format`](mod@format) | the bytes of the file |
//! | [`balance`] | buckets as full as possible and none over: migration by HashMark |
//! | [`filter`] | a Bloom filter a bucket, or a column |
//! | [`build`] | items in the order of hashes become a file |
//! | [`run`] | the other layout: a dense run under a rank index, without buckets |
//! | [`table`] | the open file: lookups of one read, and reading it all |

pub(crate) mod balance;
pub(crate) mod build;
pub(crate) mod filter;
pub(crate) mod format;
pub(crate) mod run;
pub(crate) mod table;

pub(crate) use build::{Build, Layout, Piece};
pub(crate) use filter::Filter;
pub(crate) use table::{Found, HTable, Loaded};
