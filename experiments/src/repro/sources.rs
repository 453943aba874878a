//! What each experiment judges: a figure of a paper or a bar of this project; and the size of the
//! paper's measurement.
//!
//! Invariant: every name is that of an experiment.

use super::{EXPERIMENTS, Experiment, Verdict};

/// Whether the experiment `id` judges bars of this project only.
pub(super) fn is_ours(id: &str) -> bool {
    OURS.contains(&id)
}

/// The size of the measurement in the paper, if it is known.
pub(super) fn paper_scale(id: &str) -> Option<&'static str> {
    PAPER_SCALES.iter().find(|(known, _)| *known == id).map(|(_, scale)| *scale)
}

/// The verdicts of the claims of papers: each figure of a paper once, with the worst verdict of
/// its experiments. Experiments that judge bars of this project, and `None`, are not counted.
pub fn claims(verdicts: &[(&dyn Experiment, Option<Verdict>)]) -> Vec<Verdict> {
    let mut claims: Vec<((&str, &str), Verdict)> = Vec::new();
    for &(experiment, verdict) in verdicts {
        let Some(verdict) = verdict.filter(|_| !is_ours(experiment.id())) else { continue };
        // "figure 5, section 4.1" and "figure 5" are one figure.
        let figure = experiment.figure().split(',').next().unwrap_or_default();
        let name = (experiment.paper(), figure);
        match claims.iter_mut().find(|(known, _)| *known == name) {
            Some((_, worst)) => *worst = verdict.max(*worst),
            None => claims.push((name, verdict)),
        }
    }
    claims.into_iter().map(|(_, verdict)| verdict).collect()
}

/// The number of different claims of papers.
pub fn number_of_claims() -> usize {
    let all: Vec<_> = EXPERIMENTS.iter().map(|&e| (e, Some(Verdict::Confirmed))).collect();
    claims(&all).len()
}

const OURS: &[&str] = &[
    "mica-eviction",
    "mica-reinsertion",
    "mica-latency",
    "mica-latency-past",
    "mica-policies",
    "mica-prefetch",
    "trie-frontier",
    "write-stalls",
    "lsm-rocksdb",
    "model-speed",
    "advice",
    "semantics",
    "workload-variations",
];

const PAPER_SCALES: &[(&str, &str)] = &[
    ("silt-memory", "50 M entries inserted into 50 M"),
    ("silt-write-amplification", "100 M keys, 4 instances, 7.5 M entries per merge"),
    ("ect-size", "16 M keys"),
    ("mica-throughput", "16 cores"),
    ("mica-cores", "16 cores"),
    ("mica-lossless", "192 Mi items"),
    ("zipf-merge", "10^8 keys"),
    ("level-density", "10^8 keys"),
    ("trie-throughput", "1 TB"),
    ("triangle", "80 GB"),
    ("skimpy-throughput", "20 M keys, 32 GB"),
    ("skimpy-account", "20 M keys, 32 GB"),
    ("skimpy-memory", "20 M keys, 32 GB"),
    ("txn-aborts", "20 M keys"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::find;

    #[test]
    fn all_names_are_of_experiments() {
        for id in OURS.iter().chain(PAPER_SCALES.iter().map(|(id, _)| id)) {
            assert!(find(id).is_ok(), "{id}");
        }
    }

    #[test]
    fn figure_counts_once_with_its_worst_verdict_and_our_bars_not() {
        let of = |id: &str, verdict| (find(id).unwrap(), Some(verdict));
        let found = claims(&[
            of("skimpy-throughput", Verdict::Confirmed),
            of("skimpy-account", Verdict::TrendOnly),
            of("skimpy-buckets", Verdict::Better),
            of("lsm-rocksdb", Verdict::NotConfirmed),
        ]);
        assert_eq!(found, [Verdict::TrendOnly, Verdict::Better]);
        assert!(number_of_claims() < EXPERIMENTS.len() - OURS.len());
    }
}
