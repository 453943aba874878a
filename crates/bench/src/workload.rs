//! The named workloads.
//!
//! | name | operations |
//! | --- | --- |
//! | `fillseq` | writes each key once, in order |
//! | `fillrandom`, `overwrite` | draw keys with replacement and write them |
//! | `readrandom`, `readmissing` | look up drawn keys; keys that do not exist |
//! | `multireadrandom` | looks up drawn keys, 32 with each call; its latencies are those of calls |
//! | `readwhilewriting` | `readrandom` next to one thread that writes at full speed |
//! | `seekrandom` | seeks a cursor to drawn keys |
//! | `ycsb-a` … `ycsb-f` | YCSB's core workloads, Zipf 0.99 |
//! | `ws1` `ws2` `ws3` | TRIAD's skew profiles (99 % of operations on 1 % of keys, 80 % on 20 %, uniform) with 10 % reads; `ws1-50` … with 50 % |
//! | `load` | writes each key once, in shuffled order: the initial state of other workloads |
//!
//! In addition, `replay` is the requests of a [trace](crate::trace); it is not in the list of
//! names.
//!
//! Invariant: a workload is data, independent of the store, the number of keys and the threads.
//!
//! Sources: `db_bench` of LevelDB and RocksDB; Cooper et al., SoCC 2010, table 2; TRIAD (ATC 2017),
//! section 5.3, whose table starts with half of the keys. Two deviations from YCSB, both so that
//! workloads joined by commas use the same keys: records are inserted in the order of their numbers
//! (`insertorder=ordered`), and popular keys are scattered by a permutation instead of a hash.

use std::sync::Arc;

use siltstone_engine::names::unknown;
use siltstone_engine::{Error, Result};

use crate::generate::{Draw, Mix, Operation};
use crate::trace::{Trace, Verb};

/// YCSB's Zipf constant.
const YCSB_SKEW: f64 = 0.99;

/// Name of the workload that replays a trace.
pub const REPLAY: &str = "replay";

/// Maximal length of YCSB's scans, in entries.
const YCSB_LONGEST_SCAN: u64 = 100;

/// All names, in the order of the table above.
pub const NAMES: &[&str] = &[
    "fillseq",
    "fillrandom",
    "overwrite",
    "readrandom",
    "readmissing",
    "multireadrandom",
    "readwhilewriting",
    "seekrandom",
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-e",
    "ycsb-f",
    "ws1",
    "ws2",
    "ws3",
    "ws1-50",
    "ws2-50",
    "ws3-50",
    "load",
];

/// Required contents of the store at the start of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Any.
    AsIs,
    /// Every key, written if the store is empty.
    Loaded,
    /// A random half of the keys, written if the store is empty.
    HalfLoaded,
    /// The keys that a trace reads before it writes them, written if the store is empty.
    Prelude,
}

/// Source of a workload's requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Requests {
    /// Operations and keys are drawn at random.
    Drawn {
        /// The operations.
        mix: Mix,
        /// The keys.
        draw: Draw,
    },
    /// The requests of a trace, distributed over the threads in turn; after its end from its start.
    Replayed {
        /// The trace.
        trace: Arc<Trace>,
        /// Whether requests are sent at their recorded times, from which latencies count.
        paced: bool,
    },
}

/// Operations and the keys that they are applied to.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Its name on the command line.
    pub name: String,
    /// The requests.
    pub requests: Requests,
    /// Required contents of the store at the start.
    pub start: Start,
    /// Whether one more thread puts uniformly drawn keys until the other threads are done.
    pub has_writer: bool,
}

/// Parameters of workloads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Choices {
    /// Zipf exponent of drawn keys.
    pub skew: Option<f64>,
    /// Cursor moves after each seek of `seekrandom`.
    pub seek_nexts: u64,
}

impl Workload {
    /// The workload `name`.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] for an unknown name or an invalid skew.
    pub fn named(name: &str, choices: &Choices) -> Result<Self> {
        use Operation::{Get, GetMissing, Insert, MultiGet, Put, ReadModifyWrite, Scan, Seek};
        let draw = choices.skew.map_or(Draw::Uniform, |skew| Draw::Zipf { skew });
        let skew = choices.skew.unwrap_or(YCSB_SKEW);
        let popular = Draw::Zipf { skew };
        let scan = Scan { longest: YCSB_LONGEST_SCAN };
        let seek = Seek { nexts: choices.seek_nexts };
        let make = |mix, draw, start| (Mix::new(mix), draw, start);
        let (mix, draw, start) = match name {
            "load" => make(&[(Put, 1)], Draw::Shuffled, Start::AsIs),
            "fillseq" => make(&[(Put, 1)], Draw::Sequential, Start::AsIs),
            "fillrandom" => make(&[(Put, 1)], draw, Start::AsIs),
            "overwrite" => make(&[(Put, 1)], draw, Start::Loaded),
            "readrandom" | "readwhilewriting" => make(&[(Get, 1)], draw, Start::Loaded),
            "readmissing" => make(&[(GetMissing, 1)], draw, Start::Loaded),
            "multireadrandom" => make(&[(MultiGet, 1)], draw, Start::Loaded),
            "seekrandom" => make(&[(seek, 1)], draw, Start::Loaded),
            "ycsb-a" => make(&[(Get, 50), (Put, 50)], popular, Start::Loaded),
            "ycsb-b" => make(&[(Get, 95), (Put, 5)], popular, Start::Loaded),
            "ycsb-c" => make(&[(Get, 1)], popular, Start::Loaded),
            "ycsb-d" => make(&[(Get, 95), (Insert, 5)], Draw::Latest { skew }, Start::Loaded),
            "ycsb-e" => make(&[(scan, 95), (Insert, 5)], popular, Start::Loaded),
            "ycsb-f" => make(&[(Get, 50), (ReadModifyWrite, 50)], popular, Start::Loaded),
            _ => Self::of_triad(name, choices)?,
        };
        Self::check_skew(name, choices, draw)?;
        let has_writer = name == "readwhilewriting";
        let requests = Requests::Drawn { mix, draw };
        Ok(Workload { name: name.to_owned(), requests, start, has_writer })
    }

    /// The requests of a trace: at their recorded times (`paced`), or back to back.
    pub fn replay(trace: Arc<Trace>, paced: bool) -> Self {
        Workload {
            name: REPLAY.to_owned(),
            requests: Requests::Replayed { trace, paced },
            start: Start::Prelude,
            has_writer: false,
        }
    }

    /// The workloads of a list joined by commas.
    ///
    /// # Errors
    /// As [`named`](Workload::named).
    pub fn list(names: &str, choices: &Choices) -> Result<Vec<Self>> {
        names.split(',').map(|name| Self::named(name.trim(), choices)).collect()
    }

    /// Whether no thread writes.
    pub fn is_read_only(&self) -> bool {
        !self.has_writer && self.only_reads()
    }

    /// Whether its counted threads only read (an additional writer may exist).
    pub fn only_reads(&self) -> bool {
        match &self.requests {
            Requests::Drawn { mix, .. } => !mix.operations().any(Operation::writes),
            Requests::Replayed { trace, .. } => {
                trace.verbs().all(|verb| matches!(verb, Verb::Get | Verb::Scan { .. }))
            }
        }
    }

    /// Whether it needs ordered keys.
    pub fn needs_order(&self) -> bool {
        match &self.requests {
            Requests::Drawn { mix, .. } => mix.operations().any(Operation::needs_order),
            Requests::Replayed { trace, .. } => {
                trace.verbs().any(|verb| matches!(verb, Verb::Scan { .. }))
            }
        }
    }

    /// Whether it adds keys after those of the key space.
    pub fn inserts(&self) -> bool {
        let Requests::Drawn { mix, .. } = &self.requests else { return false };
        mix.operations().any(|operation| operation == Operation::Insert)
    }

    /// Whether keys have a Zipf distribution.
    pub fn is_zipf(&self) -> bool {
        matches!(self.requests, Requests::Drawn { draw: Draw::Zipf { .. }, .. })
    }

    fn of_triad(name: &str, choices: &Choices) -> Result<(Mix, Draw, Start)> {
        let (profile, reads) = match name.strip_suffix("-50") {
            Some(profile) => (profile, 50),
            None => (name, 10),
        };
        let draw = match profile {
            "ws1" => Draw::Hotspot { keys: 0.01, operations: 0.99 },
            "ws2" => Draw::Hotspot { keys: 0.20, operations: 0.80 },
            "ws3" => Draw::Uniform,
            _ => return Err(Error::invalid_option("workload", unknown(name, NAMES))),
        };
        if choices.skew.is_some() {
            return Err(Error::invalid_option("skew", format!("{name} has a fixed skew")));
        }
        let mix = Mix::new(&[(Operation::Get, reads), (Operation::Put, 100 - reads)]);
        Ok((mix, draw, Start::HalfLoaded))
    }

    fn check_skew(name: &str, choices: &Choices, draw: Draw) -> Result<()> {
        match choices.skew {
            Some(skew) if !(skew.is_finite() && (0.0..=10.0).contains(&skew)) => {
                Err(Error::invalid_option("skew", format!("{skew} is not from 0 to 10")))
            }
            Some(_) if name == "fillseq" => {
                debug_assert_eq!(draw, Draw::Sequential);
                Err(Error::invalid_option("skew", "fillseq draws no keys at random"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_names_are_workloads_and_others_are_refused() {
        for name in NAMES {
            assert_eq!(Workload::named(name, &Choices::default()).unwrap().name, *name);
        }
        for name in ["", "fill", "ycsb-g", "ws4", "ws", "-50", "load-50"] {
            assert!(Workload::named(name, &Choices::default()).is_err(), "{name}");
        }
    }

    #[test]
    fn list_keeps_its_order() {
        let list = Workload::list("fillrandom, readrandom", &Choices::default()).unwrap();
        let names: Vec<_> = list.iter().map(|w| w.name.as_str()).collect();
        assert_eq!(names, ["fillrandom", "readrandom"]);
        assert!(!list[0].only_reads() && list[1].is_read_only());
        let with_writer = Workload::named("readwhilewriting", &Choices::default()).unwrap();
        assert!(with_writer.only_reads() && !with_writer.is_read_only());
    }

    #[test]
    fn skew_changes_draws_or_is_refused() {
        let skewed = Choices { skew: Some(0.8), ..Choices::default() };
        let requests = |name| Workload::named(name, &skewed).unwrap().requests;
        let drawn =
            |expected| move |r| matches!(r, Requests::Drawn { draw, .. } if draw == expected);
        assert!(drawn(Draw::Zipf { skew: 0.8 })(requests("fillrandom")));
        assert!(drawn(Draw::Latest { skew: 0.8 })(requests("ycsb-d")));
        for name in ["ws1", "ws3-50", "fillseq"] {
            assert!(Workload::named(name, &skewed).is_err(), "{name}");
        }
        for skew in [-0.1, f64::NAN, f64::INFINITY] {
            let choices = Choices { skew: Some(skew), ..Choices::default() };
            assert!(Workload::named("readrandom", &choices).is_err(), "{skew}");
        }
    }
}
