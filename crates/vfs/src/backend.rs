//! Shared parts of storage backends, for crates that implement [`Vfs`](crate::Vfs).
//!
//! Users of a `Vfs` need nothing of this module.

pub use crate::bytes::{SECTOR_BYTES, SparseBytes, end_of};
pub use crate::names::{Names, Node, check, fault, join};
pub use crate::pmem::{Backing, LINE_BYTES, MappedMemory, too_long};
