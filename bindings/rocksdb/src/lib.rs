//! RocksDB's C interface (`rocksdb/c.h` of 11.8) over Siltstone: `librocksdb.so.11`.
//!
//! A program that uses this interface runs on Siltstone without being changed or compiled again. A
//! database is a store with one table on `lsm`, in which a column family is a prefix of keys.
//! RocksDB's own files are not read.
//!
//! README.md has the differences, and what becomes of each option.
//!
//! | module | contents |
//! | --- | --- |
//! | [`opening`], [`database`], [`secondary`] | opening and closing databases |
//! | [`layout`], [`families`] | keys of the store; column families |
//! | [`data`] | reads and writes |
//! | [`read_options`] | options of reads, snapshots |
//! | [`iterator`] | iterators, also with changes over them |
//! | [`batch`], [`indexed`], [`overlay`] | write batches; those with an index |
//! | [`transaction`], [`locks`] | transactions, with locks and optimistic |
//! | [`callbacks`], [`merge`] | functions of the program: merge operators, filters, prefixes |
//! | [`maintenance`], [`properties`] | flushes, compactions, checkpoints; properties and sizes |
//! | [`sst_files`] | writers of SST files, and their ingestion |
//! | [`family_export`], [`live_files`] | exports and imports of column families; lists of files |
//! | [`updates`] | the log as a stream of updates |
//! | [`statistics`] | counters and latencies |
//! | [`backups`] | the backup engine |
//! | [`options`], [`caches`], [`environment`] | options of databases |
//! | [`scalars`], `db_option_table`, [`option_table`] | options that are numbers |
//! | `exports`, [`failure`], [`shell`] | the form of exported functions; errors; lent objects |
//! | [`unavailable`], [`inert`] | functions that are not implemented; objects without effect |

// RocksDB's header has the contract of every pointer.
#![allow(clippy::missing_safety_doc)]

pub mod backups;
pub mod batch;
pub mod caches;
pub mod callbacks;
pub mod data;
pub mod database;
mod db_option_table;
pub mod environment;
mod exports;
pub mod failure;
pub mod families;
pub mod family_export;
pub mod indexed;
pub mod inert;
pub mod iterator;
pub mod layout;
pub mod live_files;
pub mod locks;
pub mod maintenance;
pub mod merge;
pub mod opening;
pub mod option_table;
pub mod options;
pub mod overlay;
pub mod properties;
pub mod read_options;
pub mod scalars;
pub mod secondary;
pub mod shell;
pub mod sst_files;
pub mod statistics;
#[cfg(test)]
mod tests;
pub mod transaction;
pub mod unavailable;
pub mod updates;
