//! Tables as seen by commands: an engine with the locks, watches and metadata that the protocols
//! need.
//!
//! | module | contents |
//! | --- | --- |
//! | [`access_times`] | time of the last access per key, for OBJECT IDLETIME |
//! | [`flags_trailer`] | memcached flags appended to a value, for engines without item metadata |
//! | [`item`] | a memcached item: value, flags and cas |
//! | [`fetch_times`] | whether and when a key was last fetched, for memcached's `mg` |
//! | [`versions`] | version counters for memcached's `cas` |
//! | [`contents`] | the contents of all databases, to which moved tables are added |
//! | [`database`] | one SELECT index: an engine, its locks and watches |
//! | [`locks`] | striped key locks for atomic read-modify-write |
//! | [`watch`] | watched keys |
//! | [`observers`] | receivers of changed keys, besides WATCH |
//! | [`blocked_keys`] | keys that parked commands wait for |
//! | [`expiries`] | expiries to be published when they pass |
//! | [`key_iter`] | iteration over keys, including a transaction's own writes |
//! | [`command_groups`] | commands of an event-loop iteration that will run together |
//! | [`group_writes`] | the writes of a group of commands |
//! | [`cursors`] | saved positions of SCAN |
//! | [`write_batcher`] | batched SETs of an event-loop iteration |

pub(crate) mod access_times;
pub(crate) mod blocked_keys;
pub(crate) mod command_groups;
mod contents;
pub(crate) mod cursors;
pub(crate) mod database;
pub(crate) mod expiries;
pub(crate) mod fetch_times;
pub(crate) mod flags_trailer;
pub(crate) mod group_writes;
pub(crate) mod item;
pub(crate) mod key_iter;
pub(crate) mod locks;
pub(crate) mod observers;
pub(crate) mod versions;
pub(crate) mod watch;
pub(crate) mod write_batcher;

pub(crate) use cursors::Cursors;
pub(crate) use database::{Content, Database};
pub(crate) use siltstone::transaction::Overlay;
