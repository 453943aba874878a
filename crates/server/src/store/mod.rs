//! The tables behind the commands, with what Redis's commands need and an engine does not have.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`access_times`] | when a key was last read or written, for OBJECT IDLETIME |
//! | [`annex`] | flags behind a value, where the engine keeps none beside it |
//! | [`item`] | a value with its flags and its cas, as memcached's clients know it |
//! | [`reads`] | whether and when a key was last asked for |
//! | [`versions`] | whether a key has been written since |
//! | [`database`] | one SELECT index: an engine, and its locks and watches |
//! | [`locks`] | striped locks by key, so that read-modify-write is atomic |
//! | [`watch`] | which watched keys have been written |
//! | [`walk`] | keys in order, a transaction's own writes included |
//! | [`cursors`] | where SCANs stand |
//! | [`turn`] | what a worker gathers before it syncs and answers |

pub(crate) mod access_times;
pub(crate) mod annex;
pub(crate) mod cursors;
pub(crate) mod database;
pub(crate) mod item;
pub(crate) mod locks;
pub(crate) mod reads;
pub(crate) mod turn;
pub(crate) mod versions;
pub(crate) mod walk;
pub(crate) mod watch;

pub(crate) use cursors::Cursors;
pub(crate) use database::Database;
pub(crate) use siltstone::transaction::Overlay;
