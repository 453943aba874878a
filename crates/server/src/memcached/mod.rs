//! memcached's protocols: classic text commands and meta commands.
//!
//! ```text
//! bytes ─▶ session (lines, data blocks, authentication) ─▶ classic ───┐
//!                                                       ├▶ retrieve ──┤
//!                                                       └▶ meta ──────┴▶ commands, lookup ─▶ store::item
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`session`] | parsing of commands; state of a connection |
//! | [`line`] | words of a line: keys, numbers, times |
//! | [`classic`] | `set`, `incr` and related commands |
//! | [`retrieve`] | `get` and related commands: any number of keys, streamed |
//! | [`meta`] | `mg`, `ms`, `md`, `ma`, `me`, `mn` and their flags |
//! | [`commands`] | execution of writes, under the key locks shared with Redis clients |
//! | [`lookup`] | execution of lookups; which client refreshes a stale value |
//! | [`counters`] | counters |
//! | [`prefixes`] | counters per key prefix |
//! | [`stats`] | `stats` |
//! | [`stat_names`] | names of the statistics |
//! | [`dump`] | `stats cachedump` |
//! | [`udp`] | the same commands over UDP, off by default |
//!
//! # Differences from memcached
//! - A key with control characters is rejected, as the protocol's text requires; only base64 keys
//!   of meta commands may have any bytes.
//! - `decr` stores the number without trailing spaces.
//! - `append` and `prepend` rewrite the value, as `set` does.
//! - Winning a refresh changes an item's cas; the results of flags `h` and `l` are hints from a
//!   table of fixed size.
//! - A connection that starts with HTTP is closed, so that no web page can make a browser send
//!   commands.
//! - Without `cas=on`, `cas` may rarely return EXISTS although another key was written
//!   ([`versions`](crate::store::versions)).
//!
//! Source: memcached's `doc/protocol.txt`; texts and corner cases as in memcached 1.6.18.

mod classic;
mod commands;
mod counters;
mod dump;
mod line;
mod lookup;
mod meta;
mod prefixes;
mod retrieve;
pub(crate) mod session;
mod stat_names;
mod stats;
pub(crate) mod udp;

pub(crate) use commands::flush_if_due;
pub(crate) use counters::MemcachedCounters;
pub(crate) use line::base64;
pub(crate) use session::MemcachedSession;
