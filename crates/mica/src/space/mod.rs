//! Where items lie.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`log`] | a circular log: the oldest items go for the newest |
//! | [`fits`] | segregated fits: items stay until they are deleted |

pub(crate) mod fits;
pub(crate) mod log;
