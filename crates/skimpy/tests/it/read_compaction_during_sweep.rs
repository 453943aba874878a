//! Read compaction of a bucket during its readahead by the sweep: the locations read ahead are
//! obsolete then, and their blocks may be erased.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::flash::{DeviceClock, Emulator, FlashOptions, Geometry, Timing, VirtualTime};
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::TestRng;

const KEYS: u64 = 240;

#[test]
fn bucket_relocated_by_read_compaction_is_dropped_from_the_sweep() {
    let map = [
        ("capacity", (4096 * 4 * 80).to_string()),
        ("block", "4".to_owned()),
        ("buckets", (KEYS / 8).to_string()),
        ("cache", "16".to_owned()),
        ("read_compaction_after", "24".to_owned()),
    ];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v)).into();
    for seed in 0..8 {
        let time = Arc::new(VirtualTime::start());
        let device = Emulator::in_memory(FlashOptions {
            geometry: Geometry::new(4096, 4, 80).unwrap(),
            timing: Timing { channels: 1, ..Timing::PAPER },
            clock: time.clone(),
            endurance: u64::MAX,
        });
        let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
        let engine = Skimpy::over(Arc::new(device), env, Options::from_map(&map).unwrap()).unwrap();
        let mut rng = TestRng::of(seed, 1);
        let mut newest = [None; KEYS as usize];
        // Independent clients: the reads of one are not complete when the next submits its request.
        let mut clients = [Duration::ZERO; 16];
        for number in 0..12_000u64 {
            let next = (0..clients.len()).min_by_key(|client| clients[*client]).unwrap();
            time.set(clients[next]);
            let key = rng.below(KEYS);
            if rng.below(4) > 0 {
                let mut value = vec![7; 440];
                value[..8].copy_from_slice(&number.to_le_bytes());
                let batch = &mut WriteBatch::new();
                let written =
                    engine.write(batch.put(&key.to_be_bytes(), &value), Durability::Buffered);
                written.unwrap_or_else(|error| panic!("put {number} of seed {seed}: {error}"));
                newest[key as usize] = Some(number);
            } else {
                let found = engine.get(&key.to_be_bytes()).unwrap();
                let found =
                    found.map(|entry| u64::from_le_bytes(entry.value[..8].try_into().unwrap()));
                assert_eq!(found, newest[key as usize], "get {number} of seed {seed}");
            }
            clients[next] = time.now().max(clients[next] + Duration::from_nanos(1));
        }
        assert!(engine.stats().counters["read_triggered_collections"] > 50);
    }
}
