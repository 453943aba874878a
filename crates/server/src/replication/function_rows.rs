//! The libraries of functions of a replicated table, in rows of the first group
//! ([`super::named_rows`]).
//!
//! ```text
// ANCHOR: layout
//! key   := 0xff 0xc0 0xfe "function" name     of the library, in lower case
//! value := version:u8  code
// ANCHOR_END: layout
//! ```
//!
//! The leader of the group proposes rows ([`super::cluster_changes`]). The worker of each node puts
//! the libraries in force.

/// Keys of the rows, before the name.
pub(crate) const FUNCTION_PREFIX: &[u8] = b"\xff\xc0\xfefunction";
