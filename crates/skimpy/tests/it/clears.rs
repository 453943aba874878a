//! A clear is one timestamp: history before it stays readable, damage does not undo it, and its
//! space is used again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use siltstone_engine::{Durability, Engine, Error, ManualClock, Purpose, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy, repair};
use siltstone_testkit::session::contents;
use siltstone_vfs::{Mode, Ram, Vfs};

const MAPPINGS: [&str; 3] = ["skimpy", "semel", "vftl"];
const PAGES: u64 = 256;
/// Bytes of a page with its header, and of a block with its header, in the device's file.
const SLOT: u64 = 4096 + 16;
const BLOCK: u64 = (512 + 4 * SLOT).next_multiple_of(512);

struct Table {
    vfs: Arc<Ram>,
    clock: Arc<ManualClock>,
    options: Options,
    open: Option<Skimpy>,
}

impl Table {
    fn new(mapping: &str, retention: Duration) -> Self {
        let text = format!("capacity=1MiB block=4 buckets=8 mapping={mapping}");
        let map = siltstone_testkit::engine_under_test::options([text.as_str()]);
        let options = Options { retention, ..Options::from_map(&map).unwrap() };
        let (vfs, clock) = (Arc::new(Ram::new()), Arc::new(ManualClock::at(10_000)));
        let mut table = Table { vfs, clock, options, open: None };
        table.reopen().unwrap();
        table
    }

    fn env(&self) -> Env {
        Env::replayable(self.clock.clone(), 1)
    }

    /// Drops the table without a close, and opens it.
    fn reopen(&mut self) -> siltstone_engine::Result<()> {
        self.open = None;
        self.open = Some(Skimpy::open(self.vfs.clone(), self.env(), self.options.clone())?);
        Ok(())
    }

    fn engine(&self) -> &Skimpy {
        self.open.as_ref().unwrap()
    }

    fn put(&self, key: &str, value_bytes: usize) -> siltstone_engine::Result<()> {
        let mut batch = WriteBatch::new();
        self.engine().write(batch.put(key.as_bytes(), &vec![7; value_bytes]), Durability::Synced)
    }

    fn keys(&self) -> Vec<String> {
        let found: BTreeMap<_, _> = contents(self.engine()).unwrap();
        found.into_keys().map(|key| String::from_utf8(key).unwrap()).collect()
    }

    /// The table without a process, as it is now.
    fn copy(&self) -> Table {
        let (vfs, clock) = (Arc::new(self.vfs.fork()), self.clock.clone());
        Table { vfs, clock, options: self.options.clone(), open: None }
    }

    /// The pages of checkpoints: the number of the checkpoint, and the offset in the device's file.
    fn checkpoint_pages(&self) -> Vec<(u64, u64)> {
        let file = self.vfs.open("flash", Mode::Read).unwrap();
        let offset = |page: u64| 512 + page / 4 * BLOCK + 512 + page % 4 * SLOT + 16;
        let checkpoint = |at: u64| {
            let mut header = [0; 16];
            file.read_at(at, &mut header, Purpose::Maintenance).unwrap();
            let number = u64::from_le_bytes(*header.last_chunk().unwrap());
            (header[4] == 3).then_some((number, at))
        };
        (0..PAGES).map(offset).filter_map(checkpoint).collect()
    }

    fn flip(&self, at: u64) {
        let file = self.vfs.open("flash", Mode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_at(at, &mut byte, Purpose::Maintenance).unwrap();
        file.write_at(at, &[byte[0] ^ 1], Purpose::Maintenance).unwrap();
    }
}

#[test]
fn history_before_a_clear_stays_readable() {
    for mapping in MAPPINGS {
        let mut table = Table::new(mapping, Duration::from_secs(3600));
        for (time, key) in [(20_000, "a"), (30_000, "b"), (50_000, "a")] {
            table.clock.set(time);
            table.put(key, 100).unwrap();
        }
        table.clock.set(40_000);
        // Later than all timestamps, although the clock was set back.
        table.engine().clear().unwrap();
        table.clock.set(60_000);
        table.put("c", 100).unwrap();
        for _ in 0..2 {
            assert_eq!(table.keys(), ["c"], "{mapping}");
            for (time, a, b) in
                [(25_000, true, false), (35_000, true, true), (59_000, false, false)]
            {
                let engine = table.engine();
                let at = engine.at(time).unwrap();
                let found = [b"a", b"b"].map(|key| engine.get_at(key, &at).unwrap().is_some());
                assert_eq!(found, [a, b], "{mapping}: {time}");
            }
            table.engine().maintain().unwrap();
            table.reopen().unwrap();
        }
    }
}

#[test]
fn damaged_checkpoint_does_not_undo_a_clear() {
    for mapping in MAPPINGS {
        let mut table = Table::new(mapping, Duration::ZERO);
        (0..50).for_each(|i| table.put(&format!("old {i}"), 300).unwrap());
        table.engine().clear().unwrap();
        table.put("new", 100).unwrap();
        let pages = table.checkpoint_pages();
        assert!(pages.len() >= 2, "{mapping}: {pages:?}");
        for (_, at) in &pages {
            let mut copy = table.copy();
            copy.flip(at + 100);
            copy.reopen().unwrap();
            assert_eq!(copy.keys(), ["new"], "{mapping}: {at}");
        }
        // Without both, the page that was written after them proves that they are missing.
        let newest = pages.iter().map(|(number, _)| *number).max().unwrap();
        let last_two = pages.iter().filter(|(number, _)| number + 1 >= newest);
        last_two.for_each(|(_, at)| table.flip(at + 100));
        let opened = table.reopen();
        assert!(matches!(opened, Err(Error::Corruption { .. })), "{mapping}: {opened:?}");
    }
}

#[test]
fn cleared_keys_stay_so_after_a_repair() {
    for mapping in MAPPINGS {
        let mut table = Table::new(mapping, Duration::from_secs(3600));
        (0..50).for_each(|i| table.put(&format!("old {i}"), 300).unwrap());
        table.clock.set(20_000);
        table.engine().clear().unwrap();
        table.clock.set(30_000);
        table.put("new", 100).unwrap();
        table.open = None;
        // The label.
        table.flip(29);
        let vfs: Arc<dyn Vfs> = table.vfs.clone();
        let report = repair(&vfs, table.env(), &table.options).unwrap();
        assert!(report.is_lossless(), "{mapping}: {report:?}");
        table.reopen().unwrap();
        assert_eq!(table.keys(), ["new"], "{mapping}");
        let at = table.engine().at(15_000).unwrap();
        assert!(table.engine().get_at(b"old 7", &at).unwrap().is_some(), "{mapping}");
    }
}

#[test]
fn full_device_takes_writes_again_after_a_clear() {
    for mapping in MAPPINGS {
        let mut table = Table::new(mapping, Duration::ZERO);
        for round in 0..3 {
            let mut written = 0;
            while table.put(&format!("{round}: {written}"), 2000).is_ok() {
                written += 1;
            }
            assert!(written > 50, "{mapping}: {written} in round {round}");
            table.engine().clear().unwrap();
            assert!(table.keys().is_empty());
            table.reopen().unwrap();
            assert!(table.keys().is_empty());
        }
    }
}
