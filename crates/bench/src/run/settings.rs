//! Settings of a run: keys, values, threads, arrival rate.
//!
//! Invariant: invalid settings are refused before anything is opened, with all errors reported.

use std::collections::BTreeMap;

use siltstone_engine::{Durability, Error, InvalidOption, Result};

use crate::generate::{KeySpace, ValueSize};
use crate::workload::{Requests, Workload};

/// Maximal number of threads per workload.
const MAX_THREADS: usize = 1024;

/// Settings of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Keys of the key space.
    pub keys: u64,
    /// Bytes per key.
    pub key_bytes: usize,
    /// Bytes per value.
    pub value: ValueSize,
    /// Share of a value's bytes that compresses away.
    pub compressible: f64,
    /// Operations per workload; default: the number of keys, or the length of the trace.
    pub ops: Option<u64>,
    /// Operations per read-only workload; default: `ops`.
    pub reads: Option<u64>,
    /// Threads per workload.
    pub threads: usize,
    /// Operations per second of all threads together (open loop); `None`: each thread starts an
    /// operation when the previous one has ended (closed loop).
    pub rate: Option<f64>,
    /// Operations before the measured ones.
    pub warmup: u64,
    /// Seed of all random draws.
    pub seed: u64,
    /// Durability of writes.
    pub durability: Durability,
    /// Number of operations after which a thread runs all due background work before it continues.
    /// With `Env::replayable` this makes a run reproducible.
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
    /// Checks the settings that do not depend on the engine.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] with all errors.
    pub fn check(&self) -> Result<()> {
        let mut mistakes = Vec::new();
        let mut require = |is_valid: bool, option: &str, reason: &str| {
            if !is_valid {
                let (option, reason) = (option.to_owned(), reason.to_owned());
                mistakes.push(InvalidOption { option, reason });
            }
        };
        require(self.keys >= 1, "keys", "at least 1");
        require((1..=MAX_THREADS).contains(&self.threads), "threads", "from 1 to 1024");
        require(self.ops != Some(0), "ops", "at least 1");
        require(self.reads != Some(0), "reads", "at least 1");
        require(self.rate.is_none_or(|r| r.is_finite() && r > 0.0), "rate", "more than 0");
        require((0.0..=1.0).contains(&self.compressible), "compressible", "from 0 to 1");
        if let Err(Error::InvalidOptions(more)) = KeySpace::new(self.key_bytes, self.keys.max(1)) {
            mistakes.extend(more);
        }
        if mistakes.is_empty() { Ok(()) } else { Err(Error::InvalidOptions(mistakes)) }
    }

    /// Number of operations of a workload.
    pub fn ops_of(&self, workload: &Workload) -> u64 {
        if let Requests::Replayed { trace, .. } = &workload.requests {
            return self.ops.unwrap_or(trace.len());
        }
        let reads = if workload.only_reads() { self.reads } else { None };
        reads.or(self.ops).unwrap_or(self.keys)
    }

    /// The settings as listed in a report.
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
    fn all_invalid_settings_are_named_at_once() {
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
    fn reads_applies_to_read_only_workloads() {
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
