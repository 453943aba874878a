//! Opening a table: the manifest, then the chain of logs, then the obsolete files.
//!
//! ```text
//!   manifest → version, first log that is needed          version_set
//!   logs     → replayed in order while each names the end of the one before
//!   manifest → durable: what was read may not be durable yet, and without it no file is obsolete
//!   new log  → linked to the last one that was replayed
//!   obsolete → files that neither names, removed last: nothing is touched before all is verified
//! ```
//!
//! Recovered writes stay in a memtable and in their logs, so that frequent opening and closing does
//! not produce many small files. After a crash, however, all replayed writes are flushed before the
//! table is open. A sync may have failed before the crash: then the bytes can still be read from
//! the page cache, but the device lacks them, and no later sync writes them.
//!
//! Invariant: what is recovered is a prefix of the writes, in whole batches, and contains all that
//! was synced.

use siltstone_engine::{Purpose, Result};
use siltstone_table::log::replay;
use siltstone_table::{ReplayHandler, ReplaySummary};
use siltstone_vfs::Vfs;

use crate::{EditHeader, VersionSet, VersionState};

/// With this many logs the replayed writes are flushed. Each open and close without a flush adds a
/// log.
const MAX_RECOVERED_LOGS: usize = 8;

/// Replays the logs that the manifest needs.
///
/// # Errors
/// Corruption, if synced writes are missing; I/O errors; those of `into`.
pub fn replay_logs(
    vfs: &dyn Vfs,
    header: EditHeader,
    into: &mut dyn ReplayHandler,
) -> Result<ReplaySummary> {
    let first = header.first_log.unwrap_or(0);
    let sealed = header.sealed_log.map(|(number, _)| number);
    replay(vfs, first, sealed, header.synced_log, into)
}

/// Reserves the numbers of the logs that exist and makes the manifest durable: from then on files
/// that neither it nor the logs name are obsolete.
///
/// # Errors
/// Those of the manifest.
pub fn confirm_recovery<V: VersionState>(
    versions: &VersionSet<V>,
    replayed: &ReplaySummary,
) -> Result<()> {
    replayed.found.iter().for_each(|&number| versions.skip_number(number));
    versions.persist_recovered()
}

/// Whether what was replayed must be flushed before the table is open: its durability is in doubt,
/// or there are many logs.
pub fn must_flush(replayed: &ReplaySummary) -> bool {
    replayed.is_unconfirmed || replayed.logs.len() >= MAX_RECOVERED_LOGS
}

/// Removes the files in `vfs` that `is_obsolete`; returns whether there were any.
///
/// # Errors
/// I/O errors.
pub fn remove_obsolete_files(vfs: &dyn Vfs, is_obsolete: impl Fn(&str) -> bool) -> Result<bool> {
    let names = vfs.list()?;
    let obsolete: Vec<_> = names.iter().filter(|name| is_obsolete(name)).collect();
    obsolete.iter().try_for_each(|name| vfs.remove(name))?;
    if !obsolete.is_empty() {
        vfs.sync_dir(Purpose::Recovery)?;
    }
    Ok(!obsolete.is_empty())
}
