//! Hot keys that happen to be on one channel are relocated to others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use siltstone_engine::{Clock, Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::flash::{DeviceClock, Emulator, FlashOptions, Geometry, Timing, VirtualTime};
use siltstone_skimpy::{Options, Skimpy};

const CHANNELS: u64 = 4;
/// Keys that are read, round robin.
const HOT: u64 = 4;

struct Table {
    engine: Skimpy,
    time: Arc<VirtualTime>,
}

/// A table with one key per page. Every `CHANNELS`-th key is hot: these are on one channel.
fn table() -> Table {
    let map = [
        ("capacity", (4096 * 32 * 64).to_string()),
        ("buckets", "4096".to_owned()),
        ("channels", CHANNELS.to_string()),
    ];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v)).into();
    let time = Arc::new(VirtualTime::start());
    let device = Emulator::in_memory(FlashOptions {
        geometry: Geometry::paper(64).unwrap(),
        timing: Timing { channels: CHANNELS as u32, ..Timing::PAPER },
        clock: time.clone(),
        endurance: u64::MAX,
    });
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(10_000));
    let env = Env::replayable(clock, 1);
    let options = Options::from_map(&map).unwrap();
    let table = Table { engine: Skimpy::over(Arc::new(device), env, options).unwrap(), time };
    // A synced write programs a page.
    for page in 0..CHANNELS * HOT {
        let key = page.to_be_bytes();
        table.engine.write(WriteBatch::new().put(&key, &key), Durability::Synced).unwrap();
    }
    table
}

impl Table {
    /// Reads hot keys by many clients at once. Returns microseconds per read, and pages programmed.
    fn read(&self, reads: u64) -> (f64, u64) {
        let clients = 64;
        let start = self.time.now();
        let mut at = vec![start; clients];
        let writes = || self.engine.stats().counters["pages_programmed"];
        let before = writes();
        for read in 0..reads {
            let next = (0..clients).min_by_key(|client| at[*client]).unwrap();
            self.time.set(at[next]);
            let key = (read % HOT * CHANNELS).to_be_bytes();
            assert_eq!(self.engine.get(&key).unwrap().unwrap().value, key);
            at[next] = self.time.now().max(at[next] + Duration::from_nanos(1));
        }
        let end = at.into_iter().max().unwrap();
        self.time.set(end);
        ((end - start).as_secs_f64() * 1e6 / reads as f64, writes() - before)
    }
}

#[test]
fn hot_keys_on_one_channel_are_spread_and_then_stay() {
    let table = table();
    let (together, _) = table.read(100);
    table.read(4000);
    let (apart, written) = table.read(4000);
    assert!(together > 45.0, "keys on one channel: {together:.1} us per read");
    assert!(apart < 30.0, "{apart:.1} us per read");
    assert!(written < 20, "{written} pages were written with an even load");
}

#[test]
fn lookups_of_pending_records_charge_no_channel() {
    let table = table();
    let keys = [1 << 40, 2 << 40].map(u64::to_be_bytes);
    for key in keys {
        table.engine.write(WriteBatch::new().put(&key, &key), Durability::Buffered).unwrap();
    }
    for read in 0..4000 {
        let key = keys[read % 2];
        assert_eq!(table.engine.get(&key).unwrap().unwrap().value, key);
    }
    assert_eq!(table.engine.stats().counters["hot_channel_lookups"], 0);
}

#[test]
fn page_is_programmed_on_the_least_loaded_channel() {
    let table = table();
    let start = table.time.now();
    let key = 0u64.to_be_bytes();
    for _ in 0..40 {
        table.time.set(start);
        table.engine.get(&key).unwrap().unwrap();
    }
    assert!(table.time.now() - start > Duration::from_micros(1900), "all read one page");
    // Round robin would make every fourth wait for the reads.
    for page in 0..8u64 {
        table.time.set(start);
        let key = (1000 + page).to_be_bytes();
        table.engine.write(WriteBatch::new().put(&key, &key), Durability::Synced).unwrap();
        let took = table.time.now() - start;
        assert!(took < Duration::from_micros(1000), "page {page} took {took:?}");
    }
}
