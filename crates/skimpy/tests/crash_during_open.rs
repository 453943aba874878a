//! Repeated crashes during open do not use up the device.
//!
//! Each opening writes a checkpoint and programs the journaled batches. If that took blocks that
//! later openings do not fill, some dozens of crashes would fill the device.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, Result, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy};

const KEYS: u32 = 400;
const ROUNDS: u32 = 60;
/// Interrupted openings per round.
const CRASHES: u32 = 6;

fn open(vfs: &FaultyVfs, mapping: &str, channels: &str) -> Result<Skimpy> {
    let map = [("capacity", "2MiB"), ("block", "8"), ("mapping", mapping), ("channels", channels)];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
    Skimpy::open(Arc::new(vfs.clone()), env, Options::from_map(&map).unwrap())
}

fn put(engine: &Skimpy, key: u32, value: u32) -> Result<()> {
    let value = [&value.to_le_bytes()[..], &[7; 300]].concat();
    let mut batch = WriteBatch::new();
    batch.put(&key.to_le_bytes(), &value);
    let durability = if key.is_multiple_of(40) { Durability::Synced } else { Durability::Buffered };
    engine.write(&batch, durability)
}

fn get(engine: &Skimpy, key: u32) -> Option<u32> {
    let entry = engine.get(&key.to_le_bytes()).unwrap();
    entry.map(|entry| u32::from_le_bytes(entry.value[..4].try_into().unwrap()))
}

#[test]
fn device_stays_writable_after_hundreds_of_crashes_during_open() {
    // `vftl`, a mapping for experiments, begins new blocks at each opening.
    for mapping in ["skimpy", "semel"] {
        for channels in ["1", "2"] {
            let mut vfs = FaultyVfs::new(1);
            let mut newest: BTreeMap<u32, u32> = BTreeMap::new();
            // The write during which a process crashed may be present or not.
            let mut uncertain = None;
            for round in 0..ROUNDS {
                let engine = open(&vfs, mapping, channels).unwrap();
                if let Some(key) =
                    uncertain.take().filter(|key| get(&engine, *key) == Some(round - 1))
                {
                    newest.insert(key, round - 1);
                }
                for (key, value) in &newest {
                    assert_eq!(
                        get(&engine, *key),
                        Some(*value),
                        "{mapping} {channels} {round} {key}"
                    );
                }
                // Most processes crash during one of these writes, the others after them.
                vfs.cut_power_at(u64::from(round * 37 % 400));
                for i in 0..KEYS + round {
                    let key = (round * 7 + i) % KEYS;
                    match put(&engine, key, round) {
                        Ok(()) => _ = newest.insert(key, round),
                        Err(error) if vfs.power_is_off() => {
                            uncertain = Some(key);
                            drop(error);
                            break;
                        }
                        Err(error) => panic!("{mapping} {channels} {round} {key}: {error}"),
                    }
                }
                drop(engine);
                vfs = vfs.after_crash(1);
                for crash in 0..CRASHES {
                    vfs.cut_power_at(u64::from(1 + (round * 5 + crash * 3) % 37));
                    drop(open(&vfs, mapping, channels));
                    vfs = vfs.after_crash(1);
                }
            }
        }
    }
}
