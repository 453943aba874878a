//! Are transactions serializable? A history of concurrent transactions is turned into a graph of who
//! must come before whom, and a cycle in it is an anomaly.
//!
//! ```text
//!   T1 ─ww→ T2    T2 wrote the version that follows one of T1's
//!   T1 ─wr→ T2    T2 read a version of T1's
//!   T1 ─rw→ T2    T2 wrote the version that follows one that T1 read
//!   T1 ─rt→ T2    T1 had returned before T2 began (strict serializability only)
//! ```
//!
//! For that the order of each key's versions must be known. There are two kinds of keys: *lists*, to
//! which transactions append elements that occur once in a history, so that what is read tells what was
//! written before; and *registers*, whose order someone who watched the engine must tell
//! ([`History::orders`]). A scan reads every key of its range, those that are not there as well, so
//! phantoms are cycles like any other.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`check`](mod@check) | from a history to an anomaly |
//! | [`graph`] | edges and the shortest cycle |
//! | [`random`] | random transactions among threads over a store |
//! | [`witness`] | an engine that tells the order of its writes, and makes races likely |
//! | [`edn`] | histories for other checkers (Elle) |
//!
//! Promise checked: there is one order of the committed transactions in which each answer is right.
//!
//! Source: Adya, Liskov and O'Neil, "Generalized Isolation Level Definitions", ICDE 2000; lists after
//! Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations",
//! PVLDB 14(3), 2020.

pub mod check;
pub mod edn;
pub mod graph;
pub mod random;
pub mod witness;

use std::collections::BTreeMap;

pub use check::{Anomaly, Kind, check};
pub use random::{Session, Store};
pub use witness::{Moment, Witness};

/// A key of a history.
pub type Key = u64;
/// An element of a list or a version of a register; written once in a history.
pub type Version = u64;

/// What a transaction did, with what it was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Appended an element to a list.
    Append(Key, Version),
    /// Read a list.
    List(Key, Vec<Version>),
    /// Wrote a register, without having read it.
    Write(Key, Version),
    /// Read a register; `None`: nobody has written it.
    Read(Key, Option<Version>),
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was told that it is committed.
    Committed,
    /// It was told that nothing of it was applied.
    Aborted,
    /// It was told neither.
    Unknown,
}

/// One transaction of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Which thread ran it.
    pub process: u64,
    /// When it began, by a clock that all share.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in order.
    pub events: Vec<Event>,
}

/// What some threads did.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// All transactions, in any order.
    pub transactions: Vec<Transaction>,
    /// The versions of registers in the order in which they followed one another.
    pub orders: BTreeMap<Key, Vec<Version>>,
}
