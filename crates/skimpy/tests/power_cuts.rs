//! Power cuts of the flash device: torn pages, half-erased blocks, channels with different
//! progress.
//!
//! The conformance kit cuts the power of the device's file. Here the device has channels and
//! latencies, and requests in flight are torn as on raw flash. There is no journal: writes that
//! were not synced may be lost, and the rest is a prefix.
//!
//! `SILTSTONE_POWER_CUTS` sets the number of cuts (400 by default).

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::flash::{Emulator, FlashOptions, Geometry, Timing, VirtualTime};
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::TestRng;

const MAPPINGS: [&str; 3] = ["skimpy", "semel", "vftl"];
type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(mapping: &str, channels: u32) -> Options {
    let map = [
        ("capacity", "1MiB".to_owned()),
        ("block", "2".to_owned()),
        ("buckets", "4".to_owned()),
        ("reserved_space", "0.7".to_owned()),
        ("mapping", mapping.to_owned()),
        ("channels", channels.to_string()),
    ];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v)).into();
    Options::from_map(&map).unwrap()
}

fn open(device: &Arc<Emulator>, options: &Options) -> Result<Skimpy, Error> {
    let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
    Skimpy::over(device.clone(), env, options.clone())
}

fn contents(engine: &Skimpy) -> Result<State, Error> {
    let mut cursor = engine.iter()?;
    let mut state = State::new();
    let mut there = cursor.first()?;
    while there {
        let found = engine.get(cursor.key())?;
        assert_eq!(found.unwrap().value, cursor.value());
        state.insert(cursor.key().to_vec(), cursor.value().to_vec());
        there = cursor.next()?;
    }
    Ok(state)
}

/// Writes batches until power is cut; records the state after each. Returns the number of synced
/// ones. Batches that are seldom synced accumulate and are sorted.
fn write_until_power_cut(engine: &Skimpy, rng: &mut TestRng, states: &mut Vec<State>) -> usize {
    let (batches, max_operations, sync_interval) = match rng.one_in(2) {
        true => (60, 5, 4),
        false => (160, 2, 50),
    };
    let mut synced = 0;
    for _ in 0..batches {
        let mut batch = WriteBatch::new();
        let mut state = states.last().unwrap().clone();
        for _ in 0..1 + rng.index(max_operations) {
            let key = vec![b'k', rng.below(9) as u8];
            if rng.one_in(5) {
                batch.delete(&key);
                state.remove(&key);
            } else {
                let len = if rng.one_in(12) { 9000 } else { rng.index(900) };
                let value = rng.bytes(len);
                batch.put(&key, &value);
                state.insert(key, value);
            }
        }
        let is_synced = rng.one_in(sync_interval);
        let durability = if is_synced { Durability::Synced } else { Durability::Buffered };
        states.push(state);
        if engine.write(&batch, durability).is_err() {
            break;
        }
        if durability == Durability::Synced {
            synced = states.len() - 1;
        }
    }
    synced
}

#[test]
fn synced_batches_survive_power_cuts_and_batches_are_atomic() {
    let cuts = std::env::var("SILTSTONE_POWER_CUTS").map_or(400, |text| text.parse().unwrap());
    let only = std::env::var("SILTSTONE_SEED").ok().map(|text| text.parse::<u64>().unwrap());
    for seed in only.map_or(0..cuts, |seed| seed..seed + 1) {
        let mapping = MAPPINGS[(seed % 3) as usize];
        let channels = 1 + (seed / 3 % 3) as u32;
        let options = options(mapping, channels);
        // Power may also be cut during a read, because a read may trigger a collection.
        let read = |engine: &Skimpy, device: &Emulator| match contents(engine) {
            Ok(found) => Some(found),
            Err(_) if device.power_is_off() => None,
            Err(error) => panic!("seed {seed} {mapping}: {error}"),
        };
        let mut rng = TestRng::of(seed, 78);
        let mut device = Arc::new(Emulator::in_memory(FlashOptions {
            geometry: Geometry::new(4096, 2, 128).unwrap(),
            timing: Timing { channels, ..Timing::PAPER },
            clock: Arc::new(VirtualTime::start()),
            endurance: u64::MAX,
        }));
        let mut states = vec![State::new()];
        let mut floor = 0;
        for life in 0..4 {
            device.cut_power_at(device.operations() + rng.below(if life == 0 { 160 } else { 40 }));
            let opened = open(&device, &options).ok();
            let found = opened.as_ref().and_then(|engine| read(engine, &device));
            if let (Some(engine), Some(found)) = (opened, found) {
                let at = states.iter().rposition(|state| *state == found);
                let at = at.unwrap_or_else(|| panic!("seed {seed} {mapping}: unknown state"));
                assert!(at >= floor, "seed {seed} {mapping}: {at} of {floor} batches");
                states.truncate(at + 1);
                floor = at;
                floor = floor.max(write_until_power_cut(&engine, &mut rng, &mut states));
                drop(engine);
            }
            device.cut_power();
            device = Arc::new(device.survivor(rng.draw()).unwrap());
        }
        let engine = open(&device, &options)
            .unwrap_or_else(|error| panic!("seed {seed} {mapping}: opening: {error}"));
        let found = contents(&engine).unwrap();
        let at = states.iter().rposition(|state| *state == found);
        assert!(at.is_some_and(|at| at >= floor), "seed {seed} {mapping}: {at:?} of {floor}");
        let report = engine.verify(&mut |_, _| ()).unwrap();
        assert!(report.is_intact(), "seed {seed} {mapping}: {:?}", report.damage);
        engine.write(WriteBatch::new().put(b"last", b"1"), Durability::Synced).unwrap();
        engine.maintain().unwrap_or_else(|error| panic!("seed {seed} {mapping}: {error}"));
        engine.close().unwrap();
        let again = contents(&open(&device, &options).unwrap()).unwrap();
        assert_eq!(again.len(), found.len() + 1, "seed {seed} {mapping}");
    }
}
