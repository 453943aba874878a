//! The file of rows in persistent memory: one pool of pages, named `NVM`.
//!
//! ```text
//!   manifest names rows there   claim their live pages; the pool is at least as large as the file
//!   it names none               the file is garbage: removed, and made anew if there is to be one
//! ```
//!
//! The file is never written but through its mapping, and holds nothing that says which pages are
//! in use: the manifest does. So a file that no row lies in can go, and it does, whatever its size: its
//! name may be one that a failed sync has left in doubt, which no later sync repairs. While rows lie in it the file is kept whatever the options say: with `nvm=0` they drain by
//! compaction, and a later open removes it.
//!
//! Invariant: no page is given to a new row before all that the manifest names were claimed.
//!
//! Source: ours, for section 3.1 of the TriangleKV paper ("Space Management").

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, PageClaims, PmemPool, Vfs};

/// The pool's name in the table's directory.
pub(crate) const POOL_FILE: &str = "NVM";

/// The size of its pages: the paper's. Part of the format, since rows say where they are by page.
pub(crate) const PAGE_BYTES: usize = PmemPool::DEFAULT_PAGE_BYTES;

/// Maps the pool that the manifest names rows in, for them to claim their pages.
///
/// # Errors
/// `Corruption`: it is missing. `Locked`: it is mapped, by a cursor of an earlier open, say.
pub(crate) fn claims(vfs: &Arc<dyn Vfs>, wanted_bytes: u64) -> Result<PageClaims> {
    if !vfs.exists(POOL_FILE)? {
        let reason = "the manifest names rows in this pool, and it is missing";
        return Err(Error::corruption(POOL_FILE, 0, reason));
    }
    let bytes = vfs.open(POOL_FILE, Mode::Read)?.len()?;
    // An empty file cannot be mapped; a page of zeros is found to be damage.
    let bytes = bytes.max(wanted_bytes).max(PAGE_BYTES as u64);
    PmemPool::open(vfs.map(POOL_FILE, bytes)?, PAGE_BYTES)
}

/// Makes the pool anew; its name is durable before any row lies in it.
///
/// # Errors
/// Of the medium: `StorageFull` if it has no room, `Unsupported` if it has no such memory.
pub(crate) fn create(vfs: &Arc<dyn Vfs>, bytes: u64) -> Result<PmemPool> {
    let pool = PmemPool::open(vfs.map(POOL_FILE, bytes)?, PAGE_BYTES)?.ready();
    vfs.sync_dir(Purpose::Recovery)?;
    Ok(pool)
}

/// Removes a pool that no row lies in.
///
/// # Errors
/// Of the medium.
pub(crate) fn remove_garbage(vfs: &dyn Vfs) -> Result<()> {
    if vfs.exists(POOL_FILE)? {
        vfs.remove(POOL_FILE)?;
        vfs.sync_dir(Purpose::Recovery)?;
    }
    Ok(())
}
