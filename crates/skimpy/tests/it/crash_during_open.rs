//! Repeated crashes during open do not use up the device.
//!
//! Each opening writes a checkpoint and programs the journaled batches. If that took blocks that
//! later openings do not fill, some dozens of crashes would fill the device.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, Purpose, Result, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy};
use siltstone_vfs::{Mode, Ram, Vfs};

const KEYS: u32 = 400;
const ROUNDS: u32 = 60;
/// Interrupted openings per round.
const CRASHES: u32 = 6;

fn open(vfs: &FaultyVfs, mapping: &str, channels: &str) -> Result<Skimpy> {
    open_at(Arc::new(vfs.clone()), mapping, channels)
}

fn open_at(vfs: Arc<dyn Vfs>, mapping: &str, channels: &str) -> Result<Skimpy> {
    let map = [("capacity", "2MiB"), ("block", "8"), ("mapping", mapping), ("channels", channels)];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
    Skimpy::open(vfs, env, Options::from_map(&map).unwrap())
}

fn batch(key: u32, value: u32) -> WriteBatch {
    let value = [&value.to_le_bytes()[..], &[7; 300]].concat();
    let mut batch = WriteBatch::new();
    batch.put(&key.to_le_bytes(), &value);
    batch
}

fn put(engine: &Skimpy, key: u32, value: u32) -> Result<()> {
    let durability = if key.is_multiple_of(40) { Durability::Synced } else { Durability::Buffered };
    engine.write(&batch(key, value), durability)
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

/// The file of a device.
struct DeviceFile {
    vfs: Arc<dyn Vfs>,
    blocks: u64,
    pages_per_block: u64,
}

impl DeviceFile {
    /// The offset of a page in the file: a label, then blocks with a header, then pages with one.
    fn offset(&self, page: u64) -> u64 {
        let slot = 4096 + 16;
        let block = (512 + self.pages_per_block * slot).next_multiple_of(512);
        512 + page / self.pages_per_block * block + 512 + page % self.pages_per_block * slot + 16
    }

    /// Damages the newest page of the log, as a crash in the middle of its programming would.
    fn tear_newest_page(&self) {
        let file = self.vfs.open("flash", Mode::ReadWrite).unwrap();
        let header = |page: u64| {
            let mut header = [0; 16];
            file.read_at(self.offset(page), &mut header, Purpose::Maintenance).unwrap();
            let is_log = matches!(header[4], 1 | 2);
            is_log.then(|| u64::from_le_bytes(header[8..].try_into().unwrap()))
        };
        let newest = (0..self.blocks * self.pages_per_block).max_by_key(|page| header(*page));
        let at = self.offset(newest.unwrap()) + 100;
        file.write_at(at, &[0xee; 64], Purpose::Maintenance).unwrap();
    }
}

/// A block with a torn last page is freed as soon as others of its age. If it seemed as new as the
/// log, no process would live long enough to relocate all that is older.
#[test]
fn device_with_torn_pages_stays_writable_in_short_processes() {
    for channels in ["1", "2"] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let file = DeviceFile { vfs: vfs.clone(), blocks: 64, pages_per_block: 8 };
        for round in 0..300 {
            let engine = open_at(vfs.clone(), "skimpy", channels).unwrap();
            for i in 0..20 {
                let key = (round * 20 + i) % KEYS;
                let batch = batch(key, round);
                engine.write(&batch, Durability::Synced).unwrap_or_else(|error| {
                    panic!("{channels} channels, round {round}, write {i}: {error}")
                });
            }
            drop(engine);
            if round % 8 == 3 {
                file.tear_newest_page();
            }
        }
    }
}

/// Openings that crash after any operation collect for the pages that they program, so the free
/// blocks that collection needs are left.
#[test]
fn nearly_full_device_stays_writable_after_crashes_at_each_stage_of_open() {
    const LIVE_KEYS: u32 = 2500;
    for channels in ["1", "2"] {
        let mut vfs = FaultyVfs::new(1);
        let mut engine = open(&vfs, "skimpy", channels).unwrap();
        // Wraps around the device, so that only the reserved blocks are free.
        for i in 0..3 * LIVE_KEYS {
            put(&engine, i % LIVE_KEYS, 0).unwrap();
        }
        for round in 1..12 {
            let key = |i: u32| (round * 977 + i * 13) % LIVE_KEYS;
            for i in 0..150 {
                engine.write(&batch(key(i), round), Durability::Buffered).unwrap_or_else(|error| {
                    panic!("{channels} channels, round {round}, write {i}: {error}")
                });
            }
            drop(engine);
            let mut operation = 1u64;
            engine = loop {
                vfs = vfs.after_crash(operation);
                vfs.cut_power_at(operation);
                match open(&vfs, "skimpy", channels) {
                    Ok(engine) => break engine,
                    Err(error) => assert!(vfs.power_is_off(), "round {round}: {error}"),
                }
                operation += 3;
            };
            vfs.cut_power_at(u64::MAX);
            for i in 0..150 {
                assert_eq!(get(&engine, key(i)), Some(round), "{channels} {round} {i}");
            }
        }
    }
}
