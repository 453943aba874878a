//! LevelDB's C interface (`leveldb/c.h` of 1.23) over Siltstone: `libleveldb.so.1`.
//!
//! A program that uses this interface runs on Siltstone without being changed or compiled again. A
//! database is a store with one table, `default`, on `lsm`. LevelDB's own files are not read.
//!
//! README.md has the differences: comparators, filter policies, environments, and which option
//! becomes which.
//!
//! What other shims need, too, is in the crate `siltstone-shim`.
//!
//! | module | contents |
//! | --- | --- |
//! | [`db`] | databases: open, read, write, snapshots, compaction, repair |
//! | [`iterator`] | iterators |
//! | [`batch`] | write batches |
//! | [`options`] | options, caches, filter policies, comparators, environments |
//! | [`property`] | properties and approximate sizes |
//! | [`version`] | the version, and `leveldb_free` |

// The names are LevelDB's. Its header has the contract of every pointer.
#![allow(non_camel_case_types, clippy::missing_safety_doc)]

pub mod batch;
pub mod db;
pub mod iterator;
pub mod options;
pub mod property;
pub mod version;
