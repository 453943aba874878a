//! How a workload is run: over which keys, by how many threads, how fast.
//!
//! Invariant: settings that cannot be are refused whole, with every option named, before anything is
//! opened.
//!
//! Source: ours; the words are those of `bench`'s options.

use std::collections::BTreeMap;

use siltstone_engine::{Durability, Error, InvalidOption, Result};

use crate::generate::{KeySpace, ValueSize};
use crate::workload::{Requests, Workload};

/// The most threads of a workload.
const MOST_THREADS: usize = 1024;

/// How a workload is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Keys of the key space.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value: ValueSize,
    /// The share of a value's bytes that compresses away.
    pub compressible: f64,
    /// Operations of each workload; as many as keys if not given, or as a trace has.
    pub ops: Option<u64>,
    /// Operations of each workload that only reads, if not `ops`.
    pub reads: Option<u64>,
    /// Threads of each workload.
    pub threads: usize,
    /// Operations a second of all threads together (an open loop); if not given, as fast as the
    /// engine answers (a closed loop).
    pub rate: Option<f64>,
    /// Operations before those that count.
    pub warmup: u64,
    /// Where all draws come from.
    pub seed: u64,
    /// When a write may return.
    pub durability: Durability,
    /// After so many operations a thread has all due background work done before it goes on: with
    /// `Env::replayable` the run then is the same each time, as if background work kept pace.
    pub pace: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            keys: 1_000_000,
            key_bytes: 16,
            value: ValueSize::Fixed(100),
            compressible: 0.5,
            ops: None,
            reads: None,
            threads: 1,
            rate: None,
            warmup: 0,
            seed: 1,
            durability: Durability::Buffered,
            pace: None,
        }
    }
}

impl Settings {
    /// Checks what cannot be whatever the engine.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] with every mistake.
    pub fn check(&self) -> Result<()> {
        let mut mistakes = Vec::new();
        let mut require = |holds: bool, option: &str, reason: &str| {
            if !holds {
                let (option, reason) = (option.to_owned(), reason.to_owned());
                mistakes.push(InvalidOption { option, reason });
            }
        };
        require(self.keys >= 1, "keys", "at least 1");
        require((1..=MOST_THREADS).contains(&self.threads), "threads", "from 1 to 1024");
        require(self.ops != Some(0), "ops", "at least 1");
        require(self.reads != Some(0), "reads", "at least 1");
        require(self.rate.is_none_or(|r| r.is_finite() && r > 0.0), "rate", "more than 0");
        require((0.0..=1.0).contains(&self.compressible), "compressible", "from 0 to 1");
        if let Err(Error::InvalidOptions(more)) = KeySpace::new(self.key_bytes, self.keys.max(1)) {
            mistakes.extend(more);
        }
        if mistakes.is_empty() { Ok(()) } else { Err(Error::InvalidOptions(mistakes)) }
    }

    /// How many operations a workload has.
    pub fn ops_of(&self, workload: &Workload) -> u64 {
        if let Requests::Replayed { trace, .. } = &workload.requests {
            return self.ops.unwrap_or(trace.len());
        }
        let reads = if workload.only_reads() { self.reads } else { None };
        reads.or(self.ops).unwrap_or(self.keys)
    }

    /// The settings as a report lists them.
    pub fn listed(&self) -> BTreeMap<String, String> {
        let or_keys = |n: Option<u64>| n.unwrap_or(self.keys).to_string();
        let durability = match self.durability {
            Durability::Buffered => "buffered",
            Durability::Synced => "synced",
        };
        let loop_kind = match self.rate {
            None => "closed loop".to_owned(),
            Some(rate) => format!("{rate}/s, open loop"),
        };
        [
            ("key_size", self.key_bytes.to_string()),
            ("value_size", self.value.to_string()),
            ("compressible", self.compressible.to_string()),
            ("ops", or_keys(self.ops)),
            ("reads", or_keys(self.reads.or(self.ops))),
            ("rate", loop_kind),
            ("warmup", self.warmup.to_string()),
            ("seed", self.seed.to_string()),
            ("durability", durability.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Choices;

    #[test]
    fn every_mistake_is_named_at_once() {
        let settings = Settings {
            keys: 0,
            key_bytes: 2,
            threads: 0,
            ops: Some(0),
            rate: Some(f64::NAN),
            compressible: 1.5,
            ..Settings::default()
        };
        let Err(Error::InvalidOptions(mistakes)) = settings.check() else { panic!("accepted") };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(names, ["keys", "threads", "ops", "rate", "compressible", "key-size"]);
        Settings::default().check().unwrap();
    }

    #[test]
    fn reads_apply_to_what_only_reads() {
        let settings = Settings { ops: Some(10), reads: Some(20), ..Settings::default() };
        let ops = |name| settings.ops_of(&Workload::named(name, &Choices::default()).unwrap());
        assert_eq!(
            ["fillrandom", "ycsb-a", "ycsb-c", "readwhilewriting"].map(ops),
            [10, 10, 20, 20]
        );
        let plain = Settings { keys: 7, ..Settings::default() };
        assert_eq!(plain.ops_of(&Workload::named("readrandom", &Choices::default()).unwrap()), 7);
    }
}
