//! Incremental backups: a repository holds any number of backups, and stores equal pieces of files
//! once. Beside them it has an archive of changes, by which a store is restored to a point in time.
//!
//! ```text
//!   REPOSITORY/  FORMAT                     "siltstone backups 1\n"
//!                LOCK                       held for changes; shared by restores
//!                LOCK-ARCHIVE               held while segments are written or removed
//!                locks/…                    in an object store, instead: see `storage::objects`
//!                backups/ID                 one manifest per backup: its files, by hashes
//!                blobs/HH/HASH              4 MiB of a file; HH: the first two digits of HASH
//!                archive/SERIES/…           changes of a store, one segment per interval
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
//! | [`archiver`] | adding the changes of a store, one segment per interval |
//! | `collect` | the changes between two positions, from change feeds |
//! | `position_file` | the file in a store that says where its changes go |
//! | `segment` | a segment: its format, byte by byte |
//! | `series` | segments without a gap: their names, and the last moment |
//! | [`moments`] | which moments can be restored, from which backup |
//! | [`restore_at`] | restoring to a moment |
//! | `replay` | applying changes to a restored backup |
//! | `archive_upkeep` | checking segments, and removing old ones |
//! | `sealed` | small files that state their own hash |
//! | [`time`] | times as text |
//!
//! Invariants:
//! - A manifest is written last: every blob that it names is durable.
//! - A blob is removed only after the manifests that name it, and only under the lock.
//! - A restored file has the hashes that its manifest names, or the restore fails.
//! - A segment is part of a backup's chain until the oldest backup is later than it.

mod archive_upkeep;
pub mod archiver;
mod blobs;
pub mod check;
mod collect;
pub mod create;
pub mod manifest;
pub mod moments;
mod position_file;
#[cfg(test)]
mod power_cuts;
mod replay;
pub mod repository;
pub mod restore;
pub mod restore_at;
mod sealed;
mod segment;
mod series;
pub mod storage;
pub mod time;
mod utc;

pub use archiver::{ArchiveReport, Archiver, DEFAULT_LOG_RETENTION};
pub use check::{CheckReport, DamagedBackup, DamagedSegment, Removal};
pub use create::BackupReport;
pub use manifest::{ArchiveLink, BackupFile, Manifest};
pub use moments::Moments;
pub use repository::{Backup, Repository};
pub use restore_at::{RestoreProgress, RestoredMoment};
pub use storage::Storage;
pub use time::{format_time, parse_time};
