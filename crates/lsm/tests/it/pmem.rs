//! Level 0 in persistent memory, beyond the conformance kit.

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_lsm::{Lsm, Options, inspect, repair};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

const KEYS: u32 = 3000;

fn open(vfs: &Arc<dyn Vfs>, options: &str) -> Lsm {
    let all = format!("memtable=32KiB target_file_size=16KiB levels=64KiB:640KiB {options}");
    let pairs = all.split(' ').filter_map(|pair| pair.split_once('='));
    let options = Options::from_map(&pairs.map(|(k, v)| (k.into(), v.into())).collect()).unwrap();
    Lsm::open(vfs.clone(), Env::replayable(Arc::new(ManualClock::at(1)), 1), options).unwrap()
}

fn key(i: u32) -> Vec<u8> {
    format!("key{:05}", u64::from(i) * 7919 % u64::from(KEYS)).into_bytes()
}

fn fill(lsm: &Lsm, round: u32) {
    for i in 0..KEYS {
        let mut batch = WriteBatch::new();
        batch.put(&key(i), format!("{round:050}").as_bytes());
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
}

/// The number of keys with the value of a round; panics if a value is of a later round.
fn count(lsm: &Lsm, round: u32) -> u32 {
    let value = |i| lsm.get(&key(i)).unwrap().map(|entry| String::from_utf8(entry.value).unwrap());
    (0..KEYS)
        .filter(|&i| {
            let found = value(i).map(|value| value.parse::<u32>().unwrap());
            assert!(found.is_none_or(|found| found <= round), "{found:?}");
            found == Some(round)
        })
        .count() as u32
}

fn counter(lsm: &Lsm, name: &str) -> u64 {
    lsm.stats().counters[name]
}

#[test]
fn pages_are_freed_as_the_cursor_advances() {
    let vfs: Arc<dyn Vfs> = Arc::new(FaultyVfs::new(1));
    let lsm = open(&vfs, "pmem.size=512KiB");
    for round in 0..10 {
        fill(&lsm, round);
        let page_bytes = ["pmem_directory_bytes", "pmem_metadata_bytes", "pmem_data_bytes"];
        let page_bytes: u64 = page_bytes.map(|name| counter(&lsm, name)).iter().sum();
        let used_pages = counter(&lsm, "pmem_pages") - counter(&lsm, "pmem_pages_free");
        assert_eq!(used_pages * 4096, page_bytes, "no cursor holds an older version");
    }
    assert!(counter(&lsm, "pmem_runs_built") > 30);
    assert_eq!(counter(&lsm, "pmem_alloc_failures"), 0);
    assert_eq!(count(&lsm, 9), KEYS);
}

#[test]
fn runs_are_drained_and_the_pool_removed_without_the_option() {
    let vfs: Arc<dyn Vfs> = Arc::new(FaultyVfs::new(1));
    let lsm = open(&vfs, "pmem.size=512KiB");
    fill(&lsm, 1);
    lsm.close().unwrap();
    drop(lsm);
    let lsm = open(&vfs, "experimental.l0_compaction_trigger=2 l0_capacity=0");
    assert!(counter(&lsm, "pmem_runs") > 0);
    assert_eq!(count(&lsm, 1), KEYS);
    fill(&lsm, 2);
    lsm.maintain().unwrap();
    assert_eq!(counter(&lsm, "pmem_runs"), 0);
    assert!(vfs.exists("NVM").unwrap());
    lsm.close().unwrap();
    drop(lsm);
    let lsm = open(&vfs, "experimental.l0_compaction_trigger=2 l0_capacity=0");
    assert!(!vfs.exists("NVM").unwrap());
    assert_eq!(count(&lsm, 2), KEYS);
}

#[test]
fn pool_pinned_by_a_cursor_does_not_block_writers() {
    let vfs: Arc<dyn Vfs> = Arc::new(FaultyVfs::new(1));
    let lsm = open(&vfs, "pmem.size=128KiB");
    fill(&lsm, 1);
    // It pins the pages of its version.
    let mut cursor = lsm.iter().unwrap();
    assert!(cursor.first().unwrap());
    for round in 2..6 {
        fill(&lsm, round);
    }
    assert!(counter(&lsm, "pmem_alloc_failures") > 0, "rows became files");
    assert_eq!(count(&lsm, 5), KEYS);
    assert_eq!(cursor.value(), format!("{:050}", 1).as_bytes());
}

#[test]
fn damaged_run_is_repaired_from_its_readable_versions() {
    let faulty = FaultyVfs::new(1);
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let lsm = open(&vfs, "pmem.size=512KiB");
    fill(&lsm, 1);
    fill(&lsm, 2);
    assert!(counter(&lsm, "pmem_runs") > 1);
    lsm.close().unwrap();
    drop(lsm);
    let inspection = inspect(&vfs, "NVM", 100).unwrap().unwrap();
    assert!(inspection.items.len() > 1 && inspection.damage.is_none(), "{inspection:?}");
    let (path, len) = faulty
        .files()
        .into_iter()
        .find_map(|file| file.path.ends_with("NVM").then_some((file.path, file.len)))
        .unwrap();
    for at in (5000..len).step_by(30_011) {
        faulty.flip_bit(&path, at, 3).unwrap();
    }
    let report = repair(&vfs).unwrap().lines;
    assert!(report.iter().any(|line| line.contains("entries saved in a table")), "{report:#?}");
    let lsm = open(&vfs, "pmem.size=512KiB");
    assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
    assert!(count(&lsm, 2) > KEYS / 2, "{report:#?}");
}
