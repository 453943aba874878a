//! A block is erased only when the copies of its live versions are durable, not while they are
//! pending.
//!
//! Power is cut after every write: another table opens the state of that moment, and the first one
//! continues.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::flash::{Emulator, FlashOptions, Geometry, Timing, VirtualTime};
use siltstone_skimpy::{Options, Skimpy};

/// Keys that are written and synced once.
const COLD: u64 = 12;
const HOT: u64 = 99;

fn open(device: &Arc<Emulator>, mapping: &str) -> Skimpy {
    let map = [
        ("capacity", (4096 * 4 * 32).to_string()),
        ("block", "4".to_owned()),
        ("buckets", "6".to_owned()),
        ("mapping", mapping.to_owned()),
        ("reserved_space", "0.7".to_owned()),
    ];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v)).into();
    let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
    Skimpy::over(device.clone(), env, Options::from_map(&map).unwrap()).unwrap()
}

fn put(engine: &Skimpy, key: u64, value: u64, durability: Durability) {
    let mut bytes = vec![7; 300];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    engine.write(WriteBatch::new().put(&key.to_be_bytes(), &bytes), durability).unwrap();
}

fn get(engine: &Skimpy, key: u64) -> Option<u64> {
    let found = engine.get(&key.to_be_bytes()).unwrap();
    found.map(|entry| u64::from_le_bytes(entry.value[..8].try_into().unwrap()))
}

#[test]
fn synced_writes_survive_a_power_cut_at_any_write() {
    for mapping in ["skimpy", "semel", "vftl"] {
        let device = Arc::new(Emulator::in_memory(FlashOptions {
            geometry: Geometry::new(4096, 4, 32).unwrap(),
            timing: Timing { channels: 1, ..Timing::PAPER },
            clock: Arc::new(VirtualTime::start()),
            endurance: u64::MAX,
        }));
        device.watch_power();
        let engine = open(&device, mapping);
        (0..COLD).for_each(|key| put(&engine, key, key, Durability::Synced));
        for turn in 0..600 {
            // The first of three makes all durable, the others trigger collection.
            let synced = turn / 3;
            match turn % 3 {
                0 => put(&engine, HOT, synced, Durability::Synced),
                _ => put(&engine, HOT + 1 + turn % 2, turn, Durability::Buffered),
            }
            let left = open(&Arc::new(device.survivor(turn).unwrap()), mapping);
            for key in 0..COLD {
                assert_eq!(get(&left, key), Some(key), "{mapping}: key {key} after write {turn}");
            }
            assert_eq!(get(&left, HOT), Some(synced), "{mapping}: after write {turn}");
        }
        assert!(engine.stats().counters["blocks_erased"] > 20, "{mapping}: nothing was collected");
    }
}
