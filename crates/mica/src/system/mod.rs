//! What the operating system offers for memory: one module per form.
//!
//! | form | compiled | contents |
//! | --- | --- | --- |
//! | `linux` | on Linux | huge pages, and memory that is mapped twice |
//! | `portable` | elsewhere, in Miri, with `--cfg siltstone_portable` | memory of the allocator |

#[cfg(all(target_os = "linux", not(any(miri, siltstone_portable))))]
mod linux;
mod pages;
#[cfg(not(all(target_os = "linux", not(any(miri, siltstone_portable)))))]
mod portable;

#[cfg(all(target_os = "linux", not(any(miri, siltstone_portable))))]
pub(crate) use linux::{files_have_huge_pages, map, map_mirrored, unmap};
#[cfg(not(all(target_os = "linux", not(any(miri, siltstone_portable)))))]
pub(crate) use portable::{files_have_huge_pages, map, map_mirrored, unmap};

pub(crate) use pages::{HUGE_PAGE_BYTES, SMALL_PAGE_BYTES};

/// Whether memory can be mapped twice. If not, every log is plain.
#[cfg(test)]
pub(crate) const HAS_MIRRORS: bool =
    cfg!(all(target_os = "linux", not(any(miri, siltstone_portable))));
