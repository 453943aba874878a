//! The users of a replicated table, in rows of the first group ([`super::named_rows`]).
//!
//! ```text
// ANCHOR: layout
//! key   := 0xff 0xc0 0xfe "user" name
//! value := version:u8  line       as in the file of users: user NAME on #HASH ~* &* +@all
// ANCHOR_END: layout
//! ```
//!
//! Passwords are there as SHA-256 hashes only. Once there are users, `default` is one of them: a
//! group without that row has no users yet, and the nodes' own options count.
//!
//! A node syncs its table when it applies such a row. So after a power cut it has the users that
//! were last in force there, or newer ones.

/// Keys of the rows, before the name.
pub(crate) const USER_PREFIX: &[u8] = b"\xff\xc0\xfeuser";
