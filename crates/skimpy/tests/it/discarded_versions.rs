//! Discarded versions vanish completely, even if payload and record are in different blocks: after
//! a power cut at any write the rest can be read, collected and written to.
//!
//! Power is cut after every write: another table opens the state of that moment, and the first one
//! continues.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Entry, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::flash::{Emulator, FlashOptions, Geometry, Timing, VirtualTime};
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::TestRng;
use siltstone_testkit::session::contents;

/// Longer than a page, so that deletions have payload pages, too.
const LONG_KEY_BYTES: usize = 6000;
/// Values of this size have payload pages.
const LARGE: usize = 9000;

fn open(device: &Arc<Emulator>, clock: &Arc<ManualClock>, mapping: &str) -> Skimpy {
    let text = format!("capacity=1MiB block=4 buckets=8 reserved_space=0.7 mapping={mapping}");
    let map = siltstone_testkit::engine_under_test::options([text.as_str()]);
    let env = Env::replayable(clock.clone(), 1);
    Skimpy::over(device.clone(), env, Options::from_map(&map).unwrap()).unwrap()
}

/// The live entries.
type Model = BTreeMap<Vec<u8>, Entry>;

fn draw(rng: &mut TestRng, now: u64, model: &mut Model) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let number = rng.below(6) as u8;
    let long = vec![number; LONG_KEY_BYTES];
    match rng.below(16) {
        // These keys get no other writes: an expired version hides nothing.
        0..3 => {
            let (key, value, until) = (vec![b'e', number], vec![number; LARGE], now + 20);
            batch.put_until(&key, &value, until);
            model.insert(key, Entry { value, expires_at: Some(until) });
        }
        3 => {
            let value = vec![number];
            batch.put(&long, &value);
            model.insert(long, Entry { value, expires_at: None });
        }
        4..6 => {
            batch.delete(&long);
            model.remove(&long);
        }
        _ => {
            let (key, value) = (vec![b's', number], vec![now as u8; 300]);
            batch.put(&key, &value);
            model.insert(key, Entry { value, expires_at: None });
        }
    }
    batch
}

#[test]
fn skimpy_survives_a_power_cut_at_any_write() {
    cut_after_every_write("skimpy");
}

#[test]
fn semel_survives_a_power_cut_at_any_write() {
    cut_after_every_write("semel");
}

#[test]
fn vftl_survives_a_power_cut_at_any_write() {
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
    let (mut rng, mut model) = (TestRng::of(7, 1), Model::new());
    for turn in 0..1500 {
        let now = 10_000 + turn;
        clock.set(now);
        table.write(&draw(&mut rng, now, &mut model), Durability::Synced).unwrap();
        let mut wanted = model.clone();
        wanted.retain(|_, entry| !entry.is_expired(now));
        let left = open(&Arc::new(device.survivor(turn).unwrap()), &clock, mapping);
        assert_eq!(contents(&left).unwrap(), wanted, "after write {turn}");
        for key in model.keys() {
            assert_eq!(left.get(key).unwrap().as_ref(), wanted.get(key), "after write {turn}");
        }
        if turn % 8 == 0 {
            (0..2).for_each(|_| left.maintain().unwrap());
            assert!(left.verify(&mut |_, _| ()).unwrap().is_intact());
            assert_eq!(contents(&left).unwrap(), wanted, "collected after write {turn}");
        }
    }
    assert!(table.stats().counters["blocks_erased"] > 100, "nothing was collected");
}
