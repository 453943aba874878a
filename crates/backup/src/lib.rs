//! Incremental backups: a repository holds any number of backups, and stores equal pieces of files
//! once.
//!
//! ```text
//!   REPOSITORY/  FORMAT                     "siltstone backups 1\n"
//!                LOCK                       held for changes; shared by restores
//!                locks/…                    in an object store, instead: see `storage::objects`
//!                backups/ID                 one manifest per backup: its files, by hashes
//!                blobs/HH/HASH              4 MiB of a file; HH: the first two digits of HASH
//!
//!   back up:  checkpoint (links) ─ for each file: known? ─ hash ─ blobs there? ─ write ─▶ manifest
//! ```
//!
//! Files of a store are immutable except for the newest logs, so every backup after the first one
//! writes only what is new. A file that has the path, length, modification time and inode of one in
//! the previous backup of the same store is not read again.
//!
//! | module | contents |
//! | --- | --- |
//! | [`storage`] | where a repository lies: a directory, or an object store |
//! | [`manifest`] | the file that names the files of one backup |
//! | `blobs` | the content of files, by hash |
//! | [`repository`] | the format, lock, list of backups |
//! | [`create`] | taking a backup |
//! | [`restore`] | restoring a backup to a new directory |
//! | [`check`] | reading everything and comparing hashes; removing old backups |
//!
//! Invariants:
//! - A manifest is written last: every blob that it names is durable.
//! - A blob is removed only after the manifests that name it, and only under the lock.
//! - A restored file has the hashes that its manifest names, or the restore fails.

mod blobs;
pub mod check;
pub mod create;
pub mod manifest;
pub mod repository;
pub mod restore;
pub mod storage;
mod utc;

pub use check::{CheckReport, DamagedBackup, Removal};
pub use create::BackupReport;
pub use manifest::{BackupFile, Manifest};
pub use repository::{Backup, Repository};
pub use storage::Storage;
