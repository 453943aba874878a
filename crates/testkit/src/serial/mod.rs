//! Serializability of transactions. A history of concurrent transactions becomes a graph of their
//! dependencies, and a cycle in it is an anomaly.
//!
//! ```text
//!   T1 ─ww→ T2    T2 wrote the version after one of T1's
//!   T1 ─wr→ T2    T2 read a version of T1's
//!   T1 ─rw→ T2    T2 wrote the version after one that T1 read
//!   T1 ─rt→ T2    T1 had returned before T2 began (strict serializability only)
//! ```
//!
//! The graph needs the order of each key's versions. There are two kinds of keys: *lists*, to
//! which transactions append elements that are unique in a history, so that a read shows what was
//! written before; and *registers*, whose order comes from an observer of the engine
//! ([`History::orders`]). A scan reads every key of its range, also missing ones, so phantoms are
//! cycles like any other.
//!
//! | module | contents |
//! | --- | --- |
//! | [`check`](mod@check) | from a history to an anomaly |
//! | [`graph`] | edges and the shortest cycle |
//! | [`random`] | random concurrent transactions on a store |
//! | [`witness`] | an engine that records the order of its writes, and makes races likely |
//! | [`edn`] | histories for other checkers (Elle) |
//!
//! Checked: one order of the committed transactions explains each result.
//!
//! Source: Adya, Liskov and O'Neil, "Generalized Isolation Level Definitions", ICDE 2000; lists
//! after Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
//! Observations", PVLDB 14(3), 2020.

pub mod check;
pub mod edn;
pub mod graph;
pub mod random;
pub mod witness;

use std::collections::BTreeMap;

pub use check::{Anomaly, Kind, check};
pub use random::{Session, Store};
pub use witness::{PausePoint, Witness};

/// A key of a history.
pub type Key = u64;
/// An element of a list or a version of a register; unique in a history.
pub type Version = u64;

/// An operation of a transaction, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Appended an element to a list.
    Append(Key, Version),
    /// Read a list.
    List(Key, Vec<Version>),
    /// Wrote a register without reading it.
    Write(Key, Version),
    /// Read a register; `None` if it had no version.
    Read(Key, Option<Version>),
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The commit was acknowledged.
    Committed,
    /// It was reported that nothing of it was applied.
    Aborted,
    /// Neither.
    Unknown,
}

/// One transaction of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// The thread that ran it.
    pub process: u64,
    /// The time of its beginning, by a clock that all threads share.
    pub began: u64,
    /// The time of its end.
    pub ended: u64,
    /// Its outcome.
    pub outcome: Outcome,
    /// Its operations, in order.
    pub events: Vec<Event>,
}

/// The transactions of a run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// All transactions, in any order.
    pub transactions: Vec<Transaction>,
    /// The versions of registers, in order.
    pub orders: BTreeMap<Key, Vec<Version>>,
}
