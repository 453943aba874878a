//! Experiments: claims of papers, measured and judged.
//!
//! An [`Experiment`] states its paper, the figure, and the claim in the paper's own number. Running
//! it gives numbers, and [`Finding::verdict`] judges them by the bars of `bars.toml`. One file per
//! experiment; [`EXPERIMENTS`] lists them all.
//!
//! Invariant: a verdict is computed from measured numbers, never written down. An experiment that
//! counts gives the same verdict in each run of the same scale.

use serde::Serialize;
use siltstone_bench::model_error;
use siltstone_bench::plot::Plot;
use siltstone_engine::names::suggest;
use siltstone_engine::{Error, Result};

mod advice;
mod bars;
mod book_page;
mod cross_row_hints;
mod cuckoo_load;
mod day;
mod durations;
mod ect_figures;
mod ect_knobs;
mod ect_size;
mod ect_table_2_5;
mod eviction_policies;
mod hashes;
mod level_density;
mod level_sizes;
mod leveldb_keys;
mod leveldb_levels;
mod leveldb_optimized;
mod leveldb_skew;
mod leveldb_stages;
mod live_level_sizes;
mod lsm_rocksdb;
mod lsm_write_amplification;
mod mica_access;
mod mica_bench;
mod mica_cores;
mod mica_direction;
mod mica_eviction;
mod mica_latency;
mod mica_lines;
mod mica_lossless;
mod mica_network;
mod mica_policies;
mod mica_prefetch;
mod mica_throughput;
mod mica_trees;
mod model_speed;
pub mod page;
mod runs;
mod semantics;
mod silt_combinations;
mod silt_example;
mod silt_inlining;
mod silt_memory;
mod silt_reads;
mod silt_stores;
mod silt_table;
mod silt_write_amplification;
mod skimpy_account;
mod skimpy_buckets;
mod skimpy_flash;
mod skimpy_memory;
mod skimpy_throughput;
mod sources;
mod table_selection;
mod text;
mod thesis;
mod triad;
mod triangle;
mod trie_balance;
mod trie_bench;
mod trie_frontier;
mod trie_latency;
mod trie_reads;
mod trie_store_size;
mod trie_throughput;
mod trie_write_amplification;
mod txn_aborts;
mod txn_social;
mod txn_ycsb;
mod unique_keys;
mod verdict;
mod workload_variations;
mod write_stalls;
mod zipf_merge;

pub use bars::{Bar, bars_changed, bars_of};
pub use book_page::book_page;
pub use durations::seconds;
pub use runs::{RUNS, Spread};
pub use sources::{claims, number_of_claims};
pub use text::{id_width, list, text};
pub use verdict::{Check, Kind, Origin, RULES, Side, Verdict};

/// All experiments, in the order of their papers.
pub const EXPERIMENTS: &[&dyn Experiment] = &[
    &silt_example::SiltExample,
    &silt_reads::SiltReads,
    &silt_memory::SiltMemory,
    &silt_write_amplification::SiltWriteAmplification,
    &silt_combinations::SiltCombinations,
    &silt_inlining::SiltInlining,
    &silt_stores::SiltStores,
    &cuckoo_load::CuckooLoad,
    &ect_table_2_5::EctTable25,
    &ect_figures::EctFigures,
    &ect_size::EctSize,
    &ect_knobs::EctKnobs,
    &mica_throughput::MicaThroughput,
    &mica_cores::MicaCores,
    &mica_access::MicaAccess,
    &mica_lossless::MicaLossless,
    &mica_eviction::MicaEviction,
    &mica_eviction::MicaReinsertion,
    &mica_policies::MicaPolicies,
    &mica_lines::MicaLines,
    &mica_network::MicaNetwork::Tiny,
    &mica_network::MicaNetwork::Small,
    &mica_network::MicaNetwork::Large,
    &mica_network::MicaNetwork::KernelBypass,
    &mica_prefetch::MicaPrefetch,
    &mica_trees::MicaTrees,
    &mica_direction::MicaDirection,
    &mica_latency::MicaLatency { xdp: false },
    &mica_latency::MicaLatency { xdp: true },
    &unique_keys::UniqueKeys,
    &zipf_merge::ZipfMerge,
    &level_density::LevelDensity,
    &leveldb_skew::LevelDbSkew,
    &leveldb_keys::LevelDbKeys,
    &lsm_write_amplification::LsmWriteAmplification,
    &leveldb_optimized::LevelDbOptimized,
    &level_sizes::LevelSizes,
    &live_level_sizes::LiveLevelSizes,
    &leveldb_stages::LevelDbStages,
    &leveldb_levels::LevelDbLevels,
    &triad::Triad,
    &trie_balance::TrieBalance,
    &trie_throughput::TrieThroughput,
    &trie_write_amplification::TrieWriteAmplification,
    &trie_reads::TrieReads,
    &trie_reads::TrieSorted,
    &trie_store_size::TrieStoreSize,
    &trie_latency::TrieLatency,
    &trie_frontier::TrieFrontier,
    &skimpy_memory::SkimpyMemory,
    &skimpy_throughput::SkimpyThroughput,
    &skimpy_account::SkimpyAccount,
    &skimpy_buckets::SkimpyBuckets,
    &triangle::Triangle,
    &write_stalls::WriteStalls,
    &cross_row_hints::CrossRowHints,
    &lsm_rocksdb::LsmRocksDb,
    &model_speed::ModelSpeed,
    &table_selection::TableSelection,
    &advice::Advice,
    &semantics::Semantics,
    &workload_variations::WorkloadVariations,
    &txn_aborts::TxnAborts,
    &txn_ycsb::TxnYcsb,
];

/// Accepted scales of experiments, as a share of the full size.
pub const SCALES: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// A claim with its measurement.
pub trait Experiment: Sync {
    /// Its name on the command line.
    fn id(&self) -> &'static str;

    /// The paper.
    fn paper(&self) -> &'static str;

    /// The figure, table or section.
    fn figure(&self) -> &'static str;

    /// The claim, in the paper's own number.
    fn claim(&self) -> &'static str;

    /// The known reason for a claim that is not or only partly confirmed, if any.
    fn cause(&self) -> Option<&'static str> {
        None
    }

    /// The size of the paper's measurement, if it is known.
    fn paper_scale(&self) -> Option<&'static str> {
        sources::paper_scale(self.id())
    }

    /// Whether all bars are of this project instead of a paper.
    fn is_ours(&self) -> bool {
        sources::is_ours(self.id())
    }

    /// Runs the measurement. `scale` is within [`SCALES`]; the tolerances are for scale 1.
    ///
    /// # Errors
    /// Errors of the engine, and I/O errors.
    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement>;
}

/// The measurement of an experiment.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Description of the size of the run.
    pub scale: String,
    /// Measured and claimed numbers, with tolerances.
    pub checks: Vec<Check>,
    /// A chart.
    pub plot: Option<Plot>,
}

/// An experiment with its result, as printed by `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// Name of the experiment.
    pub id: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// The figure, table or section.
    pub figure: &'static str,
    /// The claim.
    pub claim: &'static str,
    /// Description of the size of the run.
    pub scale: String,
    /// The size of the paper's measurement, if it is known.
    pub paper_scale: Option<&'static str>,
    /// The number of runs. One run is no verdict.
    pub runs: usize,
    /// Date of the rules of the verdict.
    pub rules: &'static str,
    /// Measured and claimed numbers: medians of the runs.
    pub checks: Vec<Check>,
    /// Spread of the runs, for each check.
    pub spread: Vec<Spread>,
    /// The verdict on our own bars, if there are any and the experiment judges a paper too.
    pub our_bars: Option<Verdict>,
    /// The verdict on the claim, by the medians.
    pub verdict: Verdict,
    /// The known reason if the claim is not or only partly confirmed.
    pub cause: Option<&'static str>,
    /// The command of the run.
    pub command: String,
    /// A chart.
    #[serde(skip)]
    pub plot: Option<Plot>,
}

/// The experiment `id`.
///
/// # Errors
/// [`Error::InvalidOptions`] for an unknown name.
pub fn find(id: &str) -> Result<&'static dyn Experiment> {
    let found = EXPERIMENTS.iter().find(|experiment| experiment.id() == id).copied();
    found.ok_or_else(|| {
        let meant = suggest(id, EXPERIMENTS.iter().map(|experiment| experiment.id()));
        Error::invalid_option(
            "id",
            format!("'{id}' is unknown{meant} (`siltstone-experiments repro list` names all)"),
        )
    })
}

/// Checks that a scale is accepted.
///
/// # Errors
/// [`Error::InvalidOptions`] for a scale outside [`SCALES`].
pub fn check_scale(scale: f64) -> Result<()> {
    let (low, high) = (SCALES.start(), SCALES.end());
    match SCALES.contains(&scale) {
        true => Ok(()),
        false => {
            Err(Error::invalid_option("scale", format!("{scale} is not from {low} to {high}")))
        }
    }
}

/// Runs an experiment `runs` times and judges the medians of its numbers.
///
/// # Errors
/// [`Error::InvalidOptions`] for a scale outside [`SCALES`] and for no run; errors of the
/// experiment.
pub fn run(
    experiment: &dyn Experiment,
    scale: f64,
    runs: usize,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Finding> {
    check_scale(scale)?;
    let mut all = Vec::new();
    let mut last = None;
    for _ in 0..runs {
        let mut measured = experiment.run(scale, progress)?;
        all.push(std::mem::take(&mut measured.checks));
        last = Some(measured);
    }
    let Some(measured) = last else {
        return Err(Error::invalid_option("runs", "0 is not from 1"));
    };
    let (checks, spread) = runs::medians(&all)
        .ok_or_else(|| Error::Invalid("two runs have different checks".to_owned()))?;
    let is_bar = |check: &&Check| check.is_our_bar() && !experiment.is_ours();
    let verdict = Verdict::of(checks.iter().filter(|check| !is_bar(check)));
    let our_bars = checks.iter().any(|check| is_bar(&check));
    let our_bars = our_bars.then(|| Verdict::of(checks.iter().filter(is_bar)));
    Ok(Finding {
        id: experiment.id(),
        paper: experiment.paper(),
        figure: experiment.figure(),
        claim: experiment.claim(),
        scale: measured.scale,
        paper_scale: experiment.paper_scale(),
        runs,
        rules: RULES,
        spread,
        our_bars,
        verdict,
        cause: experiment.cause().filter(|_| verdict != Verdict::Confirmed),
        checks,
        command: format!(
            "siltstone-experiments repro run {} --scale {scale} --runs {runs}",
            experiment.id()
        ),
        plot: measured.plot,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let mut names: Vec<_> = EXPERIMENTS.iter().map(|e| e.id()).collect();
        for name in &names {
            assert_eq!(find(name).unwrap().id(), *name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EXPERIMENTS.len());
        assert!(matches!(find("nothing"), Err(Error::InvalidOptions(_))));
    }

    #[test]
    fn invalid_scale_is_refused() {
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(run(EXPERIMENTS[0], scale, 1, &mut |_, _| ()).is_err(), "{scale}");
        }
    }
}
