//! The write buffer: writes accumulate for several pages and are sorted. No write programs all of
//! them, none waits longer than the buffer delay, and the records of a page are collected together.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, Stats, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::TestRng;
use siltstone_vfs::Ram;

const KEYS: u64 = 8_000;
/// With its header a record takes an eighth of a page.
const VALUE_BYTES: usize = 440;
const PAGE: u64 = 4096;
/// The maximum number of accumulated pages, as in `src/write_buffer.rs`.
const MAX_ACCUMULATED_PAGES: u64 = 16;

struct Table {
    engine: Skimpy,
    clock: Arc<ManualClock>,
    rng: TestRng,
}

impl Table {
    /// A table whose device was filled more than once.
    fn open() -> Self {
        let map = [
            ("capacity", (KEYS * 512 * 335 / 100).to_string()),
            ("buckets", (KEYS / 5).to_string()),
            ("channels", "2".to_owned()),
        ];
        let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v)).into();
        let clock = Arc::new(ManualClock::at(10_000));
        let env = Env::replayable(clock.clone(), 1);
        let options = Options::from_map(&map).unwrap();
        let engine = Skimpy::open(Arc::new(Ram::new()), env, options).unwrap();
        let mut table = Table { engine, clock, rng: TestRng::of(1, 9) };
        (0..KEYS).for_each(|key| table.put(key));
        (0..4 * KEYS).for_each(|_| table.put_any());
        table
    }

    fn put(&mut self, key: u64) {
        let value = [7; VALUE_BYTES];
        let batch = WriteBatch::new().put(&key.to_be_bytes(), &value).clone();
        self.engine.write(&batch, Durability::Buffered).unwrap();
    }

    fn put_any(&mut self) {
        let key = self.rng.below(KEYS);
        self.put(key);
    }

    fn waiting(&self) -> u64 {
        self.engine.stats().memory["write buffer"]
    }
}

fn more(before: &Stats, after: &Stats, name: &str) -> u64 {
    after.counters[name] - before.counters[name]
}

#[test]
fn single_write_programs_few_of_the_accumulated_pages() {
    let mut table = Table::open();
    let (mut long, mut waiting) = (0, 0);
    for _ in 0..2000 {
        let before = table.engine.stats();
        table.put_any();
        let after = table.engine.stats();
        let buckets = more(&before, &after, "buckets_collected");
        assert!(buckets <= 2, "a put collected {buckets} buckets");
        long += u64::from(more(&before, &after, "pages_programmed") > 4);
        waiting = waiting.max(after.memory["write buffer"]);
    }
    // An occasional write also makes copies durable, to free blocks.
    assert!(long < 20, "{long} of 2000 puts programmed more than four pages");
    let max_pages = MAX_ACCUMULATED_PAGES - 1..=MAX_ACCUMULATED_PAGES + 2;
    assert!(max_pages.contains(&(waiting / PAGE)), "{waiting} bytes waited");
}

#[test]
fn overdue_records_are_programmed_by_the_next_write() {
    let mut table = Table::open();
    let record_bytes = VALUE_BYTES as u64 + 64;
    table.engine.flush().unwrap();
    assert_eq!(table.waiting(), 0);
    for puts in [3, 50, 100] {
        (0..puts).for_each(|_| table.put_any());
        assert!(table.waiting() >= puts * VALUE_BYTES as u64, "{puts} puts wait");
        table.clock.advance(1);
        table.put_any();
        assert!(table.waiting() < record_bytes, "{} overdue bytes", table.waiting());
    }
}

#[test]
fn sorted_page_is_read_once_for_several_buckets() {
    let mut table = Table::open();
    let before = table.engine.stats();
    (0..2 * KEYS).for_each(|_| table.put_any());
    let after = table.engine.stats();
    let reads = after.io["compaction"].reads - before.io["compaction"].reads;
    let collected = more(&before, &after, "buckets_collected");
    let reads = reads as f64 / collected as f64;
    assert!(reads < 3.0, "{reads:.2} pages read per bucket");
}

/// Room is reserved for pending records: a full device refuses new writes, not accepted ones.
#[test]
fn full_device_has_room_for_pending_records() {
    let map =
        [("capacity", "4MiB"), ("block", "2"), ("buckets", "400"), ("reserved_space", "0.05")];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let options = Options::from_map(&map).unwrap();
    let vfs = Arc::new(Ram::new());
    let open = || {
        let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
        Skimpy::open(vfs.clone(), env, options.clone()).unwrap()
    };
    let put = |engine: &Skimpy, key: u64| {
        let batch = WriteBatch::new().put(&key.to_be_bytes(), &[7; VALUE_BYTES]).clone();
        engine.write(&batch, Durability::Buffered)
    };
    let engine = open();
    let first_refused = (0..).find(|key| put(&engine, *key).is_err()).unwrap();
    assert!(first_refused > 4000, "{first_refused} keys are in 1024 pages");
    engine.flush().unwrap();
    engine.close().unwrap();
    let engine = open();
    let is_there = |key: u64| engine.get(&key.to_be_bytes()).unwrap().is_some();
    assert!((0..first_refused).all(is_there) && !is_there(first_refused));
}
