//! Item memory.
//!
//! | module | contents |
//! | --- | --- |
//! | [`log`] | circular log: the oldest items are evicted for new ones |
//! | [`fits`] | segregated fits: items stay until they are deleted |

pub(crate) mod fits;
pub(crate) mod log;
