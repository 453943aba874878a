//! Hot keys that chance has put on one channel are moved apart, for the sake of those who read them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use siltstone_engine::{Clock, Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::flash::{DeviceClock, Emulator, FlashOptions, Geometry, Timing, VirtualTime};
use siltstone_skimpy::{Options, Skimpy};

const LANES: u64 = 4;
/// Keys that are read, one after the other.
const HOT: u64 = 4;

struct Table {
    engine: Skimpy,
    time: Arc<VirtualTime>,
}

/// A table of a key a page, every `LANES`-th of them hot: those lie on one channel.
fn table() -> Table {
    let map = [
        ("capacity", (4096 * 32 * 64).to_string()),
        ("buckets", "4096".to_owned()),
        ("lanes", LANES.to_string()),
    ];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v)).into();
    let time = Arc::new(VirtualTime::start());
    let device = Emulator::in_memory(FlashOptions {
        geometry: Geometry::paper(64).unwrap(),
        timing: Timing { channels: LANES as u32, ..Timing::PAPER },
        clock: time.clone(),
        endurance: u64::MAX,
    });
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(10_000));
    let env = Env::replayable(clock, 1);
    let options = Options::from_map(&map).unwrap();
    let table = Table { engine: Skimpy::over(Arc::new(device), env, options).unwrap(), time };
    // A synced write is a page.
    for page in 0..LANES * HOT {
        let key = page.to_be_bytes();
        table.engine.write(WriteBatch::new().put(&key, &key), Durability::Synced).unwrap();
    }
    table
}

impl Table {
    /// Reads hot keys in turn by many clients at once: microseconds a read, and the writes of the device.
    fn read(&self, reads: u64) -> (f64, u64) {
        let clients = 64;
        let start = self.time.now();
        let mut at = vec![start; clients];
        let writes = || self.engine.stats().counters["pages_programmed"];
        let before = writes();
        for read in 0..reads {
            let next = (0..clients).min_by_key(|client| at[*client]).unwrap();
            self.time.go_to(at[next]);
            let key = (read % HOT * LANES).to_be_bytes();
            assert_eq!(self.engine.get(&key).unwrap().unwrap().value, key);
            at[next] = self.time.now().max(at[next] + Duration::from_nanos(1));
        }
        let end = at.into_iter().max().unwrap();
        self.time.go_to(end);
        ((end - start).as_secs_f64() * 1e6 / reads as f64, writes() - before)
    }
}

#[test]
fn hot_keys_of_one_channel_are_moved_apart_and_then_stay() {
    let table = table();
    let (together, _) = table.read(100);
    table.read(4000);
    let (apart, written) = table.read(4000);
    assert!(together > 45.0, "they lie on one channel: {together:.1} us a read");
    assert!(apart < 30.0, "{apart:.1} us a read");
    assert!(written < 20, "{written} pages were written for readers that wait for nobody");
}

#[test]
fn who_reads_what_waits_for_its_page_waits_for_no_channel() {
    let table = table();
    let keys = [1 << 40, 2 << 40].map(u64::to_be_bytes);
    for key in keys {
        table.engine.write(WriteBatch::new().put(&key, &key), Durability::Buffered).unwrap();
    }
    for read in 0..4000 {
        let key = keys[read % 2];
        assert_eq!(table.engine.get(&key).unwrap().unwrap().value, key);
    }
    assert_eq!(table.engine.stats().counters["lookups_on_crowded_channels"], 0);
}

#[test]
fn a_page_goes_where_nobody_waits() {
    let table = table();
    let start = table.time.now();
    let key = 0u64.to_be_bytes();
    for _ in 0..40 {
        table.time.go_to(start);
        table.engine.get(&key).unwrap().unwrap();
    }
    assert!(table.time.now() - start > Duration::from_micros(1900), "all read one page");
    // In turn every fourth would wait for the readers.
    for page in 0..8u64 {
        table.time.go_to(start);
        let key = (1000 + page).to_be_bytes();
        table.engine.write(WriteBatch::new().put(&key, &key), Durability::Synced).unwrap();
        let took = table.time.now() - start;
        assert!(took < Duration::from_micros(1000), "page {page} took {took:?}");
    }
}
