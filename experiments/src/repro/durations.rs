//! Approximate duration of each experiment at scale 1.
//!
//! Seconds on two cores and an NVMe disk, one run each, some with other load, as recorded by
//! `--report`: an order of magnitude.

/// Approximate seconds of the experiment `id`, at least 1.
pub fn seconds(id: &str) -> Option<u32> {
    SECONDS.iter().find(|(known, _)| *known == id).map(|(_, seconds)| *seconds)
}

const SECONDS: &[(&str, u32)] = &[
    ("silt-example", 1),
    ("silt-reads", 8),
    ("silt-memory", 5),
    ("silt-write-amplification", 2),
    ("silt-store-combinations", 2),
    ("silt-inlining", 1),
    ("silt-stores", 9),
    ("cuckoo-load", 1),
    ("ect-table-2-5", 5),
    ("ect-figures", 1),
    ("ect-size", 8),
    ("ect-knobs", 6),
    ("mica-throughput", 32),
    ("mica-cores", 25),
    ("mica-access", 41),
    ("mica-lossless", 11),
    ("mica-eviction", 20),
    ("mica-reinsertion", 20),
    ("mica-policies", 10),
    ("mica-lines", 1),
    ("mica-network", 65),
    ("mica-small", 68),
    ("mica-large", 62),
    ("mica-past", 64),
    ("mica-prefetch", 25),
    ("mica-trees", 20),
    ("mica-direction", 19),
    ("mica-latency", 16),
    ("mica-latency-past", 16),
    ("unique-keys", 1),
    ("zipf-merge", 1),
    ("level-density", 1),
    ("leveldb-skew", 1),
    ("leveldb-keys", 2),
    ("lsm-write-amplification", 5),
    ("leveldb-optimized", 3),
    ("leveldb-sizes", 1),
    ("live-level-sizes", 53),
    ("leveldb-stages", 8),
    ("leveldb-levels", 1),
    ("triad", 46),
    ("trie-balance", 58),
    ("trie-throughput", 116),
    ("trie-write-amplification", 86),
    ("trie-reads", 37),
    ("trie-sorted", 40),
    ("trie-store-size", 166),
    ("trie-latency", 14),
    ("trie-frontier", 162),
    ("skimpy-memory", 22),
    ("skimpy-throughput", 107),
    ("skimpy-account", 85),
    ("skimpy-buckets", 11),
    ("triangle", 156),
    ("write-stalls", 185),
    ("cross-row-hints", 33),
    ("lsm-rocksdb", 107),
    ("model-speed", 1),
    ("table-selection", 24),
    ("advice", 381),
    ("semantics", 20),
    ("workload-variations", 30),
    ("txn-aborts", 4),
    ("txn-ycsb", 58),
];

#[cfg(test)]
mod tests {
    use super::super::EXPERIMENTS;
    use super::*;

    #[test]
    fn every_experiment_has_a_duration() {
        let known: Vec<_> = SECONDS.iter().map(|(id, _)| *id).collect();
        let all: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.id()).collect();
        assert_eq!(known, all);
        assert!(all.iter().all(|id| seconds(id).is_some_and(|seconds| seconds > 0)));
    }
}
