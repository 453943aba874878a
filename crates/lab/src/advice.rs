//! The advisor's predictions beside measurements.
//!
//! A recommendation for a billion keys is checked at a small scale: the workload and every setting that is
//! measured in items shrink by one factor, the model predicts anew for those, and the engine runs them in
//! memory, where requests and bytes are counted as on a disk. Lookups go to a store that has been
//! overwritten for as long as the model takes for granted.
//!
//! Invariant: the prediction is made from settings alone, before anything is measured.
//!
//! Source: ours.

use std::collections::BTreeMap;

use serde::Serialize;
use siltstone_engine::Result;
use siltstone_model::Popularity;
use siltstone_model::advise::{Costs, Settings as Advised, Wanted};

use crate::engines::{Medium, Target};
use crate::generate::ValueSize;
use crate::refused;
use crate::run::{OnProgress, Phase, Session, Settings};
use crate::workload::{Choices, Workload};

/// As many keys as a minute or so will measure.
pub const CHECKED_KEYS: f64 = 400_000.0;
/// The most bytes of them.
const MOST_BYTES: f64 = 256e6;
/// How often each key is overwritten on average before and while writes are measured.
const ROUNDS: u64 = 2;
/// Structures whose size the settings alone decide.
const BUFFERS: [&str; 6] = [
    "memtable",
    "spare_memtable",
    "block_cache",
    "log_store",
    "packing buffer",
    "pages of collection",
];

/// A prediction and a measurement of the same.
#[derive(Debug, Clone, Serialize)]
pub struct Checked {
    /// The engine.
    pub engine: String,
    /// Keys of the scaled workload.
    pub keys: u64,
    /// Its settings.
    pub options: BTreeMap<String, String>,
    /// What the model says of it.
    pub predicted: Figures,
    /// What was counted.
    pub measured: Figures,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Bytes written for each of the user's.
    pub write_amplification: f64,
    /// Read requests for each lookup.
    pub reads_per_lookup: f64,
    /// Bytes of filters and indexes for each key, write buffers and caches left out.
    pub index_bytes_per_key: f64,
}

impl Figures {
    fn of(costs: &Costs, keys: f64) -> Self {
        Figures {
            write_amplification: costs.write_amplification,
            reads_per_lookup: costs.reads_per_lookup,
            index_bytes_per_key: costs.index_bytes / keys,
        }
    }
}

/// Measures what `settings` cost under `wanted`, whose keys are drawn by Zipf's law with the exponent
/// `skew`, scaled down to `most_keys` keys or fewer.
///
/// # Errors
/// What the engine refuses; its faults.
pub fn check(
    engine: &str,
    settings: &dyn Advised,
    wanted: &Wanted,
    skew: f64,
    most_keys: f64,
    on_progress: OnProgress<'_>,
) -> Result<Checked> {
    let most = most_keys.min(MOST_BYTES / wanted.item_bytes());
    let share = (most / wanted.keys()).min(1.0);
    let keys = (wanted.keys() * share).round();
    let part = wanted.scaled(Popularity::zipf(keys, skew).map_err(refused)?);
    let settings = settings.scaled(share);
    let costs = settings.costs(&part).map_err(refused)?;
    let options: BTreeMap<String, String> =
        settings.options().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let target = Target {
        engine: engine.to_owned(),
        options: options.clone(),
        medium: Medium::Ram,
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
        // Background work that is due is done: the model knows of no backlog.
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
    let predicted = Figures::of(&costs, keys);
    Ok(Checked { engine: engine.to_owned(), keys: keys as u64, options, predicted, measured })
}

fn measured(phases: &[Phase], keys: f64) -> Figures {
    let counts = |name| phases.iter().rfind(|phase| phase.workload == name).map(|p| &p.counts);
    let lookups = counts("readrandom").map_or((0, 0), |c| (c.lookup_reads, c.lookups));
    let memory = phases.last().map(|phase| &phase.state.memory);
    let index = memory.into_iter().flatten().filter(|(name, _)| !BUFFERS.contains(&name.as_str()));
    Figures {
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

    /// Every recommendation opens, runs, and is not far off.
    #[test]
    fn are_recommended_settings_taken_and_predictions_near() {
        let mut wanted = Wanted::new(Popularity::uniform(1e8).unwrap(), 16.0, 100.0);
        wanted.needs = Needs { durability: false, ..Needs::default() };
        for mut candidate in advise(&wanted).unwrap().candidates {
            // Small, so that the test is.
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
            // One read or less, but where more are foretold.
            assert!(
                measured.reads_per_lookup < 1.5 * ours.reads_per_lookup.max(1.0),
                "{checked:?}"
            );
        }
    }
}
