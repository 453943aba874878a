//! L0 occupancy: each key counts once, and the storage of level 0 is limited.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

const VALUE: usize = 1000;

fn open(vfs: &Arc<dyn Vfs>, memtable: u64, capacity: u64) -> Lsm {
    let options = [
        ("memtable", memtable.to_string()),
        ("target_file_size", memtable.to_string()),
        ("levels", "1MiB:10MiB".to_owned()),
        ("l0_capacity", capacity.to_string()),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value));
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    Lsm::open(vfs.clone(), env, Options::from_map(&options.into()).unwrap()).unwrap()
}

fn overwrite(lsm: &Lsm, rng: &mut StdRng, keys: u32, writes: u32) {
    for _ in 0..writes {
        let mut batch = WriteBatch::new();
        batch.put(&rng.random_range(0..keys).to_be_bytes(), &[7; VALUE]);
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
}

#[test]
fn storage_of_a_few_hot_keys_is_limited() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let capacity = 1 << 20;
    let memtable = 64 << 10;
    let lsm = open(&vfs, memtable, capacity);
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..20 {
        overwrite(&lsm, &mut rng, 10, 1000);
        lsm.maintain().unwrap();
        let stats = lsm.stats();
        // Compacted from 60 % on.
        let max = 6 * capacity * 6 / 10 + 4 * memtable;
        assert!(stats.space_bytes < max, "{} bytes for ten keys", stats.space_bytes);
    }
    assert!(lsm.stats().counters["compactions"] > 2);
}

/// The L0 occupancy per byte of `keys` keys.
fn occupancy(lsm: &Lsm, keys: f64) -> f64 {
    lsm.stats().counters["l0_bytes"] as f64 / (keys * (VALUE + 4) as f64)
}

#[test]
fn key_in_many_runs_counts_once() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let open = || open(&vfs, 512 << 10, 32 << 20);
    let lsm = open();
    overwrite(&lsm, &mut StdRng::seed_from_u64(1), 2000, 8000);
    lsm.flush().unwrap();
    // 1963 of the 2000 keys are drawn.
    let before = occupancy(&lsm, 1963.0);
    assert!((before - 1.0).abs() < 0.1, "{before}");
    drop(lsm);
    let lsm = open();
    let after = occupancy(&lsm, 1963.0);
    assert!((after - before).abs() < 0.02, "{before}, when opened again {after}");
    assert!(lsm.stats().memory["sketch"] >= 4096);
    assert_eq!(lsm.stats().counters["compactions"], 0);
    // Distinct keys fill level 0.
    overwrite(&lsm, &mut StdRng::seed_from_u64(2), 1_000_000_000, 20_000);
    lsm.maintain().unwrap();
    assert!(lsm.stats().counters["compactions"] > 0);
}

#[test]
fn small_runs_count_completely_and_have_no_sketch() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let lsm = open(&vfs, 32 << 10, 16 << 20);
    overwrite(&lsm, &mut StdRng::seed_from_u64(1), 1_000_000_000, 4000);
    lsm.flush().unwrap();
    assert!((occupancy(&lsm, 4000.0) - 1.0).abs() < 0.02, "{}", occupancy(&lsm, 4000.0));
    assert_eq!(lsm.stats().memory["sketch"], 0);
}
