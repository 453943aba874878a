//! Space for the way out of a full disk: a file that is removed when a drop or a clear of a table
//! needs its space, or the opening before a clear, and written again when they have freed more.
//!
//! ```text
//!   RESERVE      ├──── 256 KiB ────┤
//!   drop, clear  no space: removed ─ the catalogue, a log or a manifest takes a part ─ the table's
//!                files are removed ─ written again
//! ```
//!
//! The content means nothing, and a store without the file is whole: what fails here is tried again
//! at the next open. The bytes are pseudo-random, so that file systems that compress keep them.
//!
//! Invariant: an error of the work is returned, never one of the reserve.

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

use crate::names::RESERVE;

/// A catalogue of some thousand tables, or a new log and a manifest.
const BYTES: usize = 256 << 10;

/// The reserve of a store that is open for writing.
#[derive(Default)]
pub(super) struct Reserve {
    /// Held while its space is in use.
    in_use: Mutex<()>,
}

impl Reserve {
    /// Writes the file if it is missing or was not written completely.
    pub(super) fn fill(&self, vfs: &dyn Vfs) {
        let write = || {
            if vfs.exists(RESERVE)? {
                if vfs.open(RESERVE, Mode::Read)?.len()? == BYTES as u64 {
                    return Ok(());
                }
                vfs.remove(RESERVE)?;
            }
            vfs.create(RESERVE)?.write_at(0, &bytes(), Purpose::Manifest)
        };
        // Without space for it, a part of it would be of no use.
        if write().is_err_and(|error: Error| error.is_disk_full()) {
            let _ = vfs.remove(RESERVE);
        }
    }

    /// Does `work`, which frees space or leads to that. If the disk is too full for it, it is done
    /// again with the space of the reserve.
    ///
    /// # Errors
    /// Those of `work`. If there is no space even so, the error says what to do for `table`.
    pub(super) fn lend<R>(
        &self,
        vfs: &dyn Vfs,
        table: &str,
        mut work: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        let mut done = work();
        if done.as_ref().is_err_and(Error::is_disk_full) {
            let _in_use = self.in_use.lock();
            let is_free =
                vfs.exists(RESERVE).and_then(|it| if it { vfs.remove(RESERVE) } else { Ok(()) });
            if is_free.is_ok() {
                done = work();
            }
            self.fill(vfs);
        }
        done.map_err(|error| name_remedy(error, table))
    }
}

fn name_remedy(mut error: Error, table: &str) -> Error {
    let is_full = error.is_disk_full();
    if let Error::Io { message, .. } = &mut error
        && is_full
    {
        *message = format!(
            "{message}; table '{table}' is as before: free some hundred KiB of this disk, and try \
             again"
        );
    }
    error
}

fn bytes() -> Vec<u8> {
    let mut random = 1u64;
    let word = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random.to_be_bytes()
    };
    std::iter::repeat_with(word).take(BYTES / 8).flatten().collect()
}
