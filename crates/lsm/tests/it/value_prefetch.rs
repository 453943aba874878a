//! Prefetching for compactions of CL-SSTables: the same result and the same errors as with single
//! reads, with fewer reads and limited memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use siltstone_engine::{Durability, Engine, Error, KeyRange, ManualClock, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Vfs};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs are compacted by `maintain` only.
fn open(vfs: &Arc<dyn Vfs>, given: &[(&str, &str)]) -> Lsm {
    let common = [("memtable", "128KiB"), ("target_file_size", "64KiB"), ("levels", "1MiB:10MiB")];
    let options = common.iter().chain(given).map(|&(k, v)| (k.to_owned(), v.to_owned()));
    let options = Options::from_map(&options.collect()).unwrap();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    Lsm::open(vfs.clone(), env, options).unwrap()
}

/// Writes random keys, some of them repeatedly, in batches of one or many, with a few large values.
fn fill(lsm: &Lsm, model: &mut Model, writes: u32) {
    let mut rng = StdRng::seed_from_u64(7);
    let mut written = 0;
    while written < writes {
        let mut batch = WriteBatch::new();
        for _ in 0..[1, 1, 1, 30][rng.random_range(0..4)] {
            let key = format!("{:08}", rng.random_range(0..4 * writes)).into_bytes();
            let len = if rng.random_range(0..500) == 0 { 40_000 } else { rng.random_range(0..200) };
            let value = vec![written as u8; len];
            batch.put(&key, &value);
            model.insert(key, value);
            written += 1;
        }
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    lsm.flush().unwrap();
}

fn content(lsm: &Lsm) -> Model {
    let mut content = Model::new();
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let mut is_valid = cursor.first().unwrap();
    while is_valid {
        content.insert(cursor.key().to_vec(), cursor.value().to_vec());
        is_valid = cursor.next().unwrap();
    }
    content
}

#[test]
fn prefetching_reduces_reads_and_keeps_the_result() {
    for policy in [
        [("l0_policy", "whole"), ("experimental.l0_compaction_trigger", "3")],
        [("l0_capacity", "512KiB"), ("max_compactions", "1")],
    ] {
        let mut reads = Vec::new();
        for budget in ["0", "3KiB", "40KiB", "1MiB"] {
            let vfs: Arc<dyn Vfs> = Arc::new(MeteredVfs::new(Arc::new(FaultyVfs::new(1))));
            let lsm = open(&vfs, &[&policy[..], &[("triad.prefetch", budget)]].concat());
            let mut model = Model::new();
            fill(&lsm, &mut model, 12_000);
            lsm.maintain().unwrap();
            let stats = lsm.stats();
            assert!(stats.counters["compactions"] > 0);
            assert_eq!(stats.memory["log_ahead"], 0, "memory is in use after the compactions");
            assert!(content(&lsm) == model, "{policy:?} {budget}");
            reads.push(stats.io["compaction"].reads);
        }
        // Little memory means wide gaps, and the lookahead reads the table, too.
        assert!(reads[1] < reads[0] * 11 / 10, "{policy:?} {reads:?}");
        assert!(reads[2] < reads[0] && reads[3] < reads[2], "{policy:?} {reads:?}");
        assert!(reads[3] * 4 < reads[0], "{policy:?} {reads:?}");
    }
}

/// Flips a bit of a log: the compaction reports the damage if it needs the record.
#[test]
fn damage_is_reported_as_without_prefetching() {
    let mut damaged = 0;
    for seed in 0..30 {
        let compact_damaged = |budget: &str| {
            let faulty = Arc::new(FaultyVfs::new(1));
            let vfs: Arc<dyn Vfs> = faulty.clone();
            let policy = [
                ("l0_policy", "whole"),
                ("experimental.l0_compaction_trigger", "40"),
                ("experimental.l0_slowdown_trigger", "50"),
                ("experimental.l0_stop_trigger", "60"),
            ];
            let lsm = open(&vfs, &[&policy[..], &[("triad.prefetch", budget)]].concat());
            let mut model = Model::new();
            fill(&lsm, &mut model, 4_000);
            let mut rng = StdRng::seed_from_u64(seed);
            let files = faulty.files();
            let logs: Vec<_> = files.iter().filter(|file| file.path.ends_with(".log")).collect();
            let log = logs[rng.random_range(0..logs.len() - 1)];
            faulty.flip_bit(&log.path, rng.random_range(0..log.len), 3).unwrap();
            // The same runs, with options that trigger their compaction.
            lsm.close().unwrap();
            let lsm = open(
                &vfs,
                &[
                    ("l0_policy", "whole"),
                    ("experimental.l0_compaction_trigger", "2"),
                    ("triad.prefetch", budget),
                ],
            );
            match lsm.maintain() {
                Ok(()) => {
                    assert!(content(&lsm) == model, "{budget} {seed}");
                    None
                }
                Err(Error::Corruption { file, offset, reason }) => Some((file, offset, reason)),
                Err(other) => panic!("{other}"),
            }
        };
        let single_reads = compact_damaged("0");
        assert_eq!(compact_damaged("1MiB"), single_reads, "{seed}");
        assert_eq!(compact_damaged("5KiB"), single_reads, "{seed}");
        damaged += usize::from(single_reads.is_some());
    }
    assert!((10..30).contains(&damaged), "{damaged} of 30");
}

/// A single read of a compaction fails: it is reported or retried, and a second attempt succeeds.
#[test]
fn failed_read_changes_nothing() {
    use siltstone_faults::FaultKind;
    let mut failed = 0;
    for request in (0..60).step_by(3) {
        let faulty = Arc::new(FaultyVfs::new(1));
        let vfs: Arc<dyn Vfs> = faulty.clone();
        let lsm = open(
            &vfs,
            &[
                ("l0_policy", "whole"),
                ("experimental.l0_compaction_trigger", "40"),
                ("experimental.l0_slowdown_trigger", "50"),
                ("experimental.l0_stop_trigger", "60"),
            ],
        );
        let mut model = Model::new();
        fill(&lsm, &mut model, 4_000);
        lsm.close().unwrap();
        let lsm =
            open(&vfs, &[("l0_policy", "whole"), ("experimental.l0_compaction_trigger", "2")]);
        faulty.fail_at(faulty.requests() + request, FaultKind::Read);
        if let Err(error) = lsm.maintain() {
            assert!(matches!(error, Error::Io { operation: "read", .. }), "{error}");
            failed += 1;
            lsm.maintain().unwrap();
        }
        assert!(content(&lsm) == model);
    }
    assert!(failed > 0, "no read failed");
}
