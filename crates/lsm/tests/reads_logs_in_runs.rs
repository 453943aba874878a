//! Do compactions of rows that are logs read them in runs, with the same outcome as one record at a time,
//! within their share of memory, and with the same words about damage?

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use siltstone_engine::{Durability, Engine, Error, KeyRange, ManualClock, WriteBatch};
use siltstone_faults::Faulty;
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Metered, Vfs};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Rows are compacted when `maintain` is asked for at last, not before.
fn open(vfs: &Arc<dyn Vfs>, given: &[(&str, &str)]) -> Lsm {
    let common = [("memtable", "128KiB"), ("table", "64KiB"), ("levels", "1MiB:10MiB")];
    let options = common.iter().chain(given).map(|&(k, v)| (k.to_owned(), v.to_owned()));
    let options = Options::from_map(&options.collect()).unwrap();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    Lsm::open(vfs.clone(), env, options).unwrap()
}

/// Writes of random keys, a few several times and some of many at once, beside large values.
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
    let mut seen = Model::new();
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let mut there = cursor.first().unwrap();
    while there {
        seen.insert(cursor.key().to_vec(), cursor.value().to_vec());
        there = cursor.next().unwrap();
    }
    seen
}

#[test]
fn is_the_outcome_the_same_for_fewer_reads() {
    for shape in
        [[("level0", "rows"), ("l0_compact", "3")], [("container", "512KiB"), ("jobs", "1")]]
    {
        let mut reads = Vec::new();
        for share in ["0", "3KiB", "40KiB", "1MiB"] {
            let vfs: Arc<dyn Vfs> = Arc::new(Metered::new(Arc::new(Faulty::new(1))));
            let lsm = open(&vfs, &[&shape[..], &[("log_ahead", share)]].concat());
            let mut model = Model::new();
            fill(&lsm, &mut model, 12_000);
            lsm.maintain().unwrap();
            let stats = lsm.stats();
            assert!(stats.counters["compactions"] > 0);
            assert_eq!(stats.memory["log_ahead"], 0, "something is held after the compactions");
            assert!(content(&lsm) == model, "{shape:?} {share}");
            reads.push(stats.io["compaction"].reads);
        }
        // Of a small share gaps are wide, and it costs its own look into the table.
        assert!(reads[1] < reads[0] * 11 / 10, "{shape:?} {reads:?}");
        assert!(reads[2] < reads[0] && reads[3] < reads[2], "{shape:?} {reads:?}");
        assert!(reads[3] * 4 < reads[0], "{shape:?} {reads:?}");
    }
}

/// Flips a bit of a log here and there: what the compaction says of it, if it needs the record.
#[test]
fn is_damage_told_as_of_a_record_by_itself() {
    let mut damaged = 0;
    for seed in 0..30 {
        let outcome = |share: &str| {
            let faulty = Arc::new(Faulty::new(1));
            let vfs: Arc<dyn Vfs> = faulty.clone();
            let shape =
                [("level0", "rows"), ("l0_compact", "40"), ("l0_slow", "50"), ("l0_stop", "60")];
            let lsm = open(&vfs, &[&shape[..], &[("log_ahead", share)]].concat());
            let mut model = Model::new();
            fill(&lsm, &mut model, 4_000);
            let mut rng = StdRng::seed_from_u64(seed);
            let files = faulty.files();
            let logs: Vec<_> = files.iter().filter(|file| file.path.ends_with(".log")).collect();
            let log = logs[rng.random_range(0..logs.len() - 1)];
            faulty.flip_bit(&log.path, rng.random_range(0..log.len), 3).unwrap();
            // The same rows under options that make their compaction due.
            lsm.close().unwrap();
            let lsm = open(&vfs, &[("level0", "rows"), ("l0_compact", "2"), ("log_ahead", share)]);
            match lsm.maintain() {
                Ok(()) => {
                    assert!(content(&lsm) == model, "{share} {seed}");
                    None
                }
                Err(Error::Corruption { file, offset, reason }) => Some((file, offset, reason)),
                Err(other) => panic!("{other}"),
            }
        };
        let alone = outcome("0");
        assert_eq!(outcome("1MiB"), alone, "{seed}");
        assert_eq!(outcome("5KiB"), alone, "{seed}");
        damaged += usize::from(alone.is_some());
    }
    assert!((10..30).contains(&damaged), "{damaged} of 30");
}

/// Any one read of a compaction fails: it is told or made good, and trying again succeeds.
#[test]
fn does_a_failed_read_change_nothing() {
    use siltstone_faults::FaultKind;
    let mut failed = 0;
    for request in (0..60).step_by(3) {
        let faulty = Arc::new(Faulty::new(1));
        let vfs: Arc<dyn Vfs> = faulty.clone();
        let lsm = open(
            &vfs,
            &[("level0", "rows"), ("l0_compact", "40"), ("l0_slow", "50"), ("l0_stop", "60")],
        );
        let mut model = Model::new();
        fill(&lsm, &mut model, 4_000);
        lsm.close().unwrap();
        let lsm = open(&vfs, &[("level0", "rows"), ("l0_compact", "2")]);
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
