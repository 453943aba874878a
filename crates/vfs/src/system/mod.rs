//! What the operating system offers beyond the standard library: one module per form.
//!
//! | form | compiled | contents |
//! | --- | --- | --- |
//! | `linux` | on Linux | direct reads, reserved space, holes, mappings, writeback, limits |
//! | `portable` | elsewhere, and with `--cfg siltstone_portable` | the standard library alone |
//!
//! `unix` is the part that both have on Unix. Both have the same items, but for those that only
//! append files use, which the portable form does not have: mapped windows and their preparation. A
//! port to another system is one more module here; until then it has the portable form, which lacks
//! the following and is slower for it.
//!
//! | call | portable form |
//! | --- | --- |
//! | `open_direct`, `punch_hole` | `Unsupported` |
//! | `reserve`, `allocate`, `start_write_back`, `start_read` | nothing |
//! | `next_data` | every byte may be data |
//! | `Pages::of_file` | a copy in memory; its user writes and syncs the file |
//! | `Pages::private` | none |
//! | `file_id`, `links` | on Unix; elsewhere unknown, so idle files are not closed |
//! | `open_file_limit` | unknown |
//! | `Directory::sync` | on Unix; elsewhere as far as the system has it |

#[cfg(all(target_os = "linux", not(siltstone_portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(siltstone_portable))))]
mod portable;
mod shared;
#[cfg(unix)]
mod unix;

#[cfg(all(target_os = "linux", not(siltstone_portable)))]
use linux as form;
#[cfg(not(all(target_os = "linux", not(siltstone_portable))))]
use portable as form;

use std::io;

use siltstone_engine::error::TOO_MANY_FILES;

pub(crate) use shared::MAP_BYTES;

#[cfg(test)]
pub(crate) use form::HAS_LOCK_HOLDERS;
#[cfg(feature = "encryption")]
pub(crate) use form::foreign_access;
pub(crate) use form::{
    Directory, FileId, IO_ERROR_CODE, Pages, allocate, cannot_link, file_id, links, lock_holder,
    next_data, open_direct, open_file_limit, punch_hole, read_at, read_exact_at, reserve,
    start_read, start_write_back, sync_data, write_all_at,
};
#[cfg(all(target_os = "linux", not(siltstone_portable)))]
pub(crate) use linux::{free_space, page_bytes, supports_mapped_appends};

/// Whether the process or the system has too many open files.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code))
}
