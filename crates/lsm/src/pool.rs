//! The pool of L0 runs in persistent memory: one file of pages, named `NVM`.
//!
//! ```text
//!   the manifest names runs in it   they claim their live pages; the pool never shrinks below the
//!                                   size of the file
//!   it names none                   the file is garbage: removed, and recreated if pmem is enabled
//! ```
//!
//! The file is written through its mapping only, and the manifest says which pages are in use. So a
//! file without runs can be removed, and is, whatever its size: a failed sync may have left its
//! name in doubt, which no later sync repairs. A file with runs is kept whatever the options are:
//! with `pmem.size=0` compaction drains it, and a later open removes it.
//!
//! Invariant: all pages that the manifest names are claimed before a page is allocated.
//!
//! Source: TriangleKV paper, section 3.1 ("Space Management").

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, PageClaims, PmemPool, Vfs};

/// The pool's name in the table's directory.
pub(crate) const POOL_FILE: &str = "NVM";

/// The page size in bytes, as in the paper. Part of the format: runs are addressed by page.
pub(crate) const PAGE_BYTES: usize = PmemPool::DEFAULT_PAGE_BYTES;

/// Maps the pool for the runs that the manifest names, so that they can claim their pages.
///
/// # Errors
/// `Corruption`: it is missing. `Locked`: it is mapped, for example by a cursor of an earlier open.
pub(crate) fn claims(vfs: &Arc<dyn Vfs>, wanted_bytes: u64) -> Result<PageClaims> {
    if !vfs.exists(POOL_FILE)? {
        let reason = "the manifest names runs in this pool, and it is missing";
        return Err(Error::corruption(POOL_FILE, 0, reason));
    }
    let bytes = vfs.open(POOL_FILE, Mode::Read)?.len()?;
    // An empty file cannot be mapped; a page of zeros is reported as corruption.
    let bytes = bytes.max(wanted_bytes).max(PAGE_BYTES as u64);
    PmemPool::open(vfs.map(POOL_FILE, bytes)?, PAGE_BYTES)
}

/// Creates the pool; its name is durable before it contains a run.
///
/// # Errors
/// Of the file system: `StorageFull`, or `Unsupported` if it cannot map such memory.
pub(crate) fn create(vfs: &Arc<dyn Vfs>, bytes: u64) -> Result<PmemPool> {
    let pool = PmemPool::open(vfs.map(POOL_FILE, bytes)?, PAGE_BYTES)?.ready();
    vfs.sync_dir(Purpose::Recovery)?;
    Ok(pool)
}

/// Removes a pool without runs.
///
/// # Errors
/// Of the file system.
pub(crate) fn remove_garbage(vfs: &dyn Vfs) -> Result<()> {
    if vfs.exists(POOL_FILE)? {
        vfs.remove(POOL_FILE)?;
        vfs.sync_dir(Purpose::Recovery)?;
    }
    Ok(())
}
