//! The sizes of pages.

/// The smallest page size.
pub(crate) const SMALL_PAGE_BYTES: usize = 4 << 10;
/// The huge page size on supported machines.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;
