//! A version that nobody sees any more goes whole, though its payload and its record lie in different blocks: whenever
//! power goes off, what is left can be read, collected and written to.
//!
//! Power is cut after every write, and goes on in the table that it was cut from: each time another one opens what was
//! left.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Env, ManualClock, WriteBatch};
use siltstone_media::flash::{Emulator, FlashOptions, Geometry, Timing, VirtualTime};
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::Dice;

/// Longer than a page, so that a deletion has pages of payload, too.
const LONG_KEY_BYTES: usize = 6000;
/// Values of this many bytes take pages of their own.
const LARGE: usize = 9000;

fn open(device: &Arc<Emulator>, clock: &Arc<ManualClock>, mapping: &str) -> Skimpy {
    let text = format!("capacity=1MiB block=4 buckets=8 free=0.7 mapping={mapping}");
    let map = siltstone_testkit::subject::options([text.as_str()]);
    let env = Env::replayable(clock.clone(), 1);
    Skimpy::over(device.clone(), env, Options::from_map(&map).unwrap()).unwrap()
}

fn rows(table: &Skimpy) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut rows, mut cursor) = (BTreeMap::new(), table.iter().unwrap());
    let mut is_there = cursor.first().unwrap();
    while is_there {
        rows.insert(cursor.key().to_vec(), cursor.value().to_vec());
        is_there = cursor.next().unwrap();
    }
    rows
}

/// What a key has, and until when.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn draw(dice: &mut Dice, now: u64, model: &mut Model) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let number = dice.below(6) as u8;
    let long = vec![number; LONG_KEY_BYTES];
    match dice.below(16) {
        // Nothing else is put to these keys: what is gone of them hides nothing.
        0..3 => {
            let (key, value, until) = (vec![b'e', number], vec![number; LARGE], now + 20);
            batch.put_until(&key, &value, until);
            model.insert(key, (value, until));
        }
        3 => {
            batch.put(&long, &[number]);
            model.insert(long, (vec![number], u64::MAX));
        }
        4..6 => {
            batch.delete(&long);
            model.remove(&long);
        }
        _ => {
            let (key, value) = (vec![b's', number], vec![now as u8; 300]);
            batch.put(&key, &value);
            model.insert(key, (value, u64::MAX));
        }
    }
    batch
}

#[test]
fn what_is_left_of_skimpy_holds_whenever_power_goes_off() {
    cut_after_every_write("skimpy");
}

#[test]
fn what_is_left_of_semel_holds_whenever_power_goes_off() {
    cut_after_every_write("semel");
}

#[test]
fn what_is_left_of_vftl_holds_whenever_power_goes_off() {
    cut_after_every_write("vftl");
}

fn cut_after_every_write(mapping: &str) {
    let device = Arc::new(Emulator::in_memory(FlashOptions {
        geometry: Geometry::new(4096, 4, 64).unwrap(),
        timing: Timing::INSTANT,
        clock: Arc::new(VirtualTime::start()),
        endurance: u64::MAX,
    }));
    device.watch_power();
    let clock = Arc::new(ManualClock::at(10_000));
    let table = open(&device, &clock, mapping);
    let (mut dice, mut model) = (Dice::of(7, 1), Model::new());
    for turn in 0..1500 {
        let now = 10_000 + turn;
        clock.set(now);
        table.write(&draw(&mut dice, now, &mut model), Durability::Synced).unwrap();
        let is_there = |it: &(&Vec<u8>, &(Vec<u8>, u64))| it.1.1 > now;
        let wanted: BTreeMap<_, _> =
            model.iter().filter(is_there).map(|(key, it)| (key.clone(), it.0.clone())).collect();
        let left = open(&Arc::new(device.survivor(turn).unwrap()), &clock, mapping);
        assert_eq!(rows(&left), wanted, "after write {turn}");
        for key in model.keys() {
            let found = left.get(key).unwrap().map(|entry| entry.value);
            assert_eq!(found.as_ref(), wanted.get(key), "after write {turn}");
        }
        if turn % 8 == 0 {
            (0..2).for_each(|_| left.maintain().unwrap());
            assert!(left.verify(&mut |_, _| ()).unwrap().is_sound());
            assert_eq!(rows(&left), wanted, "collected after write {turn}");
        }
    }
    assert!(table.stats().counters["blocks_erased"] > 100, "nothing was collected");
}
