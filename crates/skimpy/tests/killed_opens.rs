//! A process that ends while it opens a table, again and again, does not use up the device.
//!
//! Each opening writes a checkpoint and programs what was staged. If that took blocks that later openings
//! do not fill, a device would be full after some dozens of such ends, with little on it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Env, ManualClock, Result, WriteBatch};
use siltstone_media::Faulty;
use siltstone_skimpy::{Options, Skimpy};

const KEYS: u32 = 400;
const ROUNDS: u32 = 40;
/// Openings of a round that end early.
const ENDS: u32 = 12;

fn open(media: &Faulty, mapping: &str, lanes: &str) -> Result<Skimpy> {
    let map = [("capacity", "2MiB"), ("block", "8"), ("mapping", mapping), ("lanes", lanes)];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
    Skimpy::open(Arc::new(media.clone()), env, Options::from_map(&map).unwrap())
}

fn put(engine: &Skimpy, key: u32, value: u32) {
    let value = [&value.to_le_bytes()[..], &[7; 300]].concat();
    let mut batch = WriteBatch::new();
    batch.put(&key.to_le_bytes(), &value);
    engine.write(&batch, Durability::Buffered).unwrap();
}

#[test]
fn device_stays_writable_after_hundreds_of_openings_that_end_early() {
    // `vftl`, a mapping for experiments, begins new blocks at each opening.
    for mapping in ["skimpy", "semel"] {
        for lanes in ["1", "2"] {
            let mut media = Faulty::new(1);
            let mut newest: BTreeMap<u32, u32> = BTreeMap::new();
            for round in 0..ROUNDS {
                let engine = open(&media, mapping, lanes).unwrap();
                for (key, value) in &newest {
                    let found = engine.get(&key.to_le_bytes()).unwrap().unwrap();
                    assert_eq!(found.value[..4], value.to_le_bytes(), "{mapping} {round} {key}");
                }
                for i in 0..KEYS + round {
                    let key = (round * 7 + i) % KEYS;
                    put(&engine, key, round);
                    newest.insert(key, round);
                }
                // Without a close: the last of it is staged.
                drop(engine);
                media = media.after_death(1);
                for end in 0..ENDS {
                    media.cut_power_at(u64::from(1 + (round * 5 + end * 3) % 37));
                    drop(open(&media, mapping, lanes));
                    media = media.after_death(1);
                }
            }
        }
    }
}
