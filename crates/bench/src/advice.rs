//! Checks a recommendation of the advisor: compares the predicted costs with a measurement.
//!
//! A recommendation for a billion keys is checked at a small scale: the workload and all settings
//! that are sizes are divided by the same factor, the model predicts the costs of the smaller
//! workload, and the engine runs it in memory, where requests and bytes are counted as on disk.
//! Lookups are measured on a store that was overwritten as often as the model assumes.
//!
//! Invariant: the prediction is computed from settings alone, before anything is measured.

use std::collections::BTreeMap;

use serde::Serialize;
use siltstone_engine::Result;
use siltstone_model::Popularity;
use siltstone_model::advise::{Costs, Requirements, Settings as Advised};

use crate::engines::{Storage, Target};
use crate::generate::ValueSize;
use crate::model_error;
use crate::run::{OnProgress, Phase, Session, Settings};
use crate::workload::{Choices, Workload};

/// Number of keys for a measurement of about a minute.
pub const CHECKED_KEYS: f64 = 400_000.0;
/// Maximal bytes of the keys and values.
const MAX_BYTES: f64 = 256e6;
/// Mean overwrites per key, before and again during the measurement of writes.
const ROUNDS: u64 = 2;
/// Memory structures whose size depends on the settings only.
const BUFFERS: [&str; 6] =
    ["memtable", "spare_memtable", "block_cache", "log_store", "write buffer", "collection cache"];

/// A prediction and a measurement of the same workload.
#[derive(Debug, Clone, Serialize)]
pub struct PredictionCheck {
    /// Name of the engine.
    pub engine: String,
    /// Keys of the scaled workload.
    pub keys: u64,
    /// Options of the engine.
    pub options: BTreeMap<String, String>,
    /// The prediction of the model.
    pub predicted: CheckedCosts,
    /// The measurement.
    pub measured: CheckedCosts,
}

/// The compared figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CheckedCosts {
    /// Bytes written per byte that the user wrote.
    pub write_amplification: f64,
    /// Read requests per lookup.
    pub reads_per_lookup: f64,
    /// Bytes of filters and indexes per key, without write buffers and caches.
    pub index_bytes_per_key: f64,
}

impl CheckedCosts {
    fn of(costs: &Costs, keys: f64) -> Self {
        CheckedCosts {
            write_amplification: costs.write_amplification,
            reads_per_lookup: costs.reads_per_lookup,
            index_bytes_per_key: costs.index_bytes / keys,
        }
    }
}

/// Measures the costs of `settings` under `wanted`, whose keys have a Zipf distribution with
/// exponent `skew`, scaled down to at most `max_keys` keys.
///
/// # Errors
/// Settings that the engine refuses; its errors.
pub fn check(
    engine: &str,
    settings: &dyn Advised,
    wanted: &Requirements,
    skew: f64,
    max_keys: f64,
    on_progress: OnProgress<'_>,
) -> Result<PredictionCheck> {
    let max = max_keys.min(MAX_BYTES / wanted.item_bytes());
    let share = (max / wanted.keys()).min(1.0);
    let keys = (wanted.keys() * share).round();
    let part = wanted.scaled(Popularity::zipf(keys, skew).map_err(model_error)?);
    let settings = settings.scaled(share);
    let costs = settings.costs(&part).map_err(model_error)?;
    let options: BTreeMap<String, String> =
        settings.options().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let target = Target {
        engine: engine.to_owned(),
        options: options.clone(),
        storage: Storage::Ram,
        keep: false,
        background_threads: 2,
    };
    target.check()?;
    let run = Settings {
        keys: keys as u64,
        key_bytes: wanted.key_bytes.round().max(4.0) as usize,
        value: ValueSize::Fixed(wanted.value_bytes.round() as usize),
        warmup: ROUNDS * keys as u64,
        ops: Some(ROUNDS * keys as u64),
        reads: Some(keys as u64),
        // All due background work is done: the model assumes no backlog.
        pace: Some((keys as u64 / 200).max(100)),
        ..Settings::default()
    };
    let mut session = Session::new(target.open(run.seed)?, run)?;
    let choices = Choices { skew: (skew > 0.0).then_some(skew), ..Choices::default() };
    for name in ["overwrite", "readrandom"] {
        session.run(&Workload::named(name, &choices)?, on_progress)?;
    }
    let measured = measured(session.phases(), keys);
    session.engine().close()?;
    let predicted = CheckedCosts::of(&costs, keys);
    Ok(PredictionCheck {
        engine: engine.to_owned(),
        keys: keys as u64,
        options,
        predicted,
        measured,
    })
}

fn measured(phases: &[Phase], keys: f64) -> CheckedCosts {
    let counts = |name| phases.iter().rfind(|phase| phase.workload == name).map(|p| &p.counts);
    let lookups = counts("readrandom").map_or((0, 0), |c| (c.lookup_reads, c.lookups));
    let memory = phases.last().map(|phase| &phase.state.memory);
    let index = memory.into_iter().flatten().filter(|(name, _)| !BUFFERS.contains(&name.as_str()));
    CheckedCosts {
        write_amplification: counts("overwrite")
            .and_then(|c| c.write_amplification())
            .unwrap_or(0.0),
        reads_per_lookup: lookups.0 as f64 / lookups.1.max(1) as f64,
        index_bytes_per_key: index.map(|(_, bytes)| *bytes as f64).sum::<f64>() / keys,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_model::advise::{Needs, advise};

    #[test]
    fn recommendations_run_and_predictions_are_close() {
        let mut wanted = Requirements::new(Popularity::uniform(1e8).unwrap(), 16.0, 100.0);
        wanted.needs = Needs { durability: false, ..Needs::default() };
        for mut candidate in advise(&wanted).unwrap().candidates {
            // Small, to keep the test short.
            let part = wanted.scaled(Popularity::uniform(5e4).unwrap());
            candidate.settings = candidate.settings.scaled(5e-4);
            let checked = check(
                candidate.engine,
                &*candidate.settings,
                &part,
                0.0,
                CHECKED_KEYS,
                &mut |_| {},
            )
            .unwrap();
            let (ours, measured) = (checked.predicted, checked.measured);
            if candidate.engine == "mica" {
                assert_eq!(measured.write_amplification, 0.0);
                continue;
            }
            let ratio = ours.write_amplification / measured.write_amplification;
            assert!((0.6..1.7).contains(&ratio), "{}: {checked:?}", candidate.engine);
            // At most one read, unless more are predicted.
            assert!(
                measured.reads_per_lookup < 1.5 * ours.reads_per_lookup.max(1.0),
                "{checked:?}"
            );
        }
    }
}
