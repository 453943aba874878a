//! memcached's protocols: the classic text commands and the meta commands, over TCP.
//!
//! ```text
//! bytes ─▶ talk (lines, data blocks, who may speak) ─▶ classic ───┐
//!                                                   ├▶ retrieve ──┤
//!                                                   └▶ meta ──────┴▶ deed ─▶ store::item ─▶ engine
//! ```
//!
//! | module | one idea |
//! | --- | --- |
//! | [`talk`] | from bytes to a command; what is remembered of a client |
//! | [`line`] | words of a line: keys, numbers, times |
//! | [`classic`] | `set`, `incr` and their kin |
//! | [`retrieve`] | `get` and its kin: any number of keys, answered as they come |
//! | [`meta`] | `mg`, `ms`, `md`, `ma`, `me`, `mn` and their flags |
//! | [`deed`] | what commands do, under the locks that RESP's commands use |
//! | [`tallies`] | what is counted |
//! | [`prefixes`] | what is counted for each prefix of keys |
//! | [`stats`] | what `stats` answers |
//! | [`names`] | the names of that |
//! | [`dump`] | the keys that `stats cachedump` lists |
//! | [`udp`] | the same commands in datagrams, off by default |
//!
//! # Where it differs from memcached
//! * A key with control characters is refused, as the protocol's text asks; only base64 keys of meta
//!   commands may have any bytes.
//! * `decr` stores the number without trailing spaces.
//! * `append` and `prepend` do what `set` does to memory: they write the value anew.
//! * To win changes an item's cas; what `h` and `l` answer is a hint, from a table of fixed size.
//! * A connection that begins to speak HTTP is closed, so that no web page can have a browser send commands.
//! * In a store without stamps `cas` may, seldom, answer EXISTS though it was another key that was
//!   written ([`versions`](crate::store::versions)).
//!
//! Source: memcached's `doc/protocol.txt`; words and corner cases as memcached 1.6.18 has them.

mod classic;
mod deed;
mod dump;
mod line;
mod meta;
mod names;
mod prefixes;
mod retrieve;
mod stats;
pub(crate) mod talk;
mod tallies;
pub(crate) mod udp;

pub(crate) use deed::flush_if_due;
pub(crate) use talk::Talk;
pub(crate) use tallies::Tallies;
