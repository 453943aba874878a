//! Power cuts at any point of the archiver and of the store: what is archived is always a part of
//! the store's history, and the next segments follow it.
//!
//! Store and repository are in one file system, whose unsynced writes survive in part, torn and
//! reordered. After each cut the archive is replayed from its first segment, and each mark is
//! compared with the store at these sequence numbers.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone::{Db, DbBatch, DbOptions, Durability, Env, ManualClock, Table, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_structures::SplitMix64;
use siltstone_vfs::{Ram, Vfs};

use crate::archiver::Archiver;
use crate::replay::Replay;
use crate::repository::Repository;
use crate::segment;

const NAMES: [&str; 2] = ["a", "b"];
const LIVES: u64 = 4;

type Rows = Vec<Vec<(Vec<u8>, Vec<u8>)>>;

fn options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..DbOptions::default() }
}

fn tables(db: &Db) -> siltstone::Result<Vec<Table>> {
    let given = [("memtable", "64KiB"), ("log_retention", "64MiB"), ("l0_capacity", "0")];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    NAMES.iter().map(|name| db.table_or_create(name, "lsm", &given)).collect()
}

fn rows(tables: &[Table]) -> siltstone::Result<Rows> {
    let of_table = |table: &Table| {
        table.iter()?.map(|row| row.map(|(key, entry)| (key, entry.value))).collect()
    };
    tables.iter().map(of_table).collect()
}

fn sequences(tables: &[Table]) -> siltstone::Result<Vec<u64>> {
    tables.iter().map(|table| Ok(table.snapshot()?.sequence())).collect()
}

struct Run {
    random: SplitMix64,
    clock: Arc<ManualClock>,
    vfs: Arc<FaultyVfs>,
    /// The content at the sequence numbers of both tables.
    history: BTreeMap<Vec<u64>, Rows>,
    marks: u64,
    /// The log lacks a change, so that the archive cannot go on.
    has_gap: bool,
}

impl Run {
    fn open(&self) -> siltstone::Result<(Db, Vec<Table>, Archiver)> {
        let store = self.vfs.subdirectory("store")?;
        let db = match siltstone::catalogue::Catalogue::exists(store.as_ref())? {
            true => Db::open_vfs(store, options())?,
            false => Db::create_vfs(store, options())?,
        };
        let tables = tables(&db)?;
        let repository = Repository::open_or_create_vfs(self.vfs.subdirectory("repository")?)?;
        let archiver = Archiver::with_clock(db.clone(), repository, self.clock.clone());
        Ok((db, tables, archiver))
    }

    fn change(&mut self, db: &Db, tables: &[Table]) -> siltstone::Result<()> {
        let table = &tables[self.random.below(2) as usize];
        let key = [self.random.below(40) as u8];
        let value = vec![self.random.below(256) as u8; 1 + self.random.below(3000) as usize];
        let durability = match self.random.below(8) {
            0 => Durability::Synced,
            _ => Durability::Buffered,
        };
        match self.random.below(20) {
            0 => table.clear(),
            1 => table.flush(),
            2 => table.delete_range(key..[key[0].saturating_add(9)]),
            3..=7 => {
                let mut batch = DbBatch::new();
                tables.iter().for_each(|table| _ = batch.table(table).put(&key, &value));
                db.write(&batch, durability)
            }
            8..=10 => table.write(WriteBatch::new().delete(&key), durability),
            _ => table.write(WriteBatch::new().put(&key, &value), durability),
        }
    }

    /// Writes and archives until the power is cut.
    fn live(&mut self) -> siltstone::Result<()> {
        let (db, tables, mut archiver) = self.open()?;
        // What the cut took is history no more.
        let reached = sequences(&tables)?;
        let is_left = |at: &Vec<u64>| at.iter().zip(&reached).all(|(at, reached)| at <= reached);
        self.history.retain(|at, _| is_left(at));
        self.history.insert(reached, rows(&tables)?);
        self.check_archive();
        let mut is_first_step = true;
        loop {
            self.clock.set(self.clock_time() + 1 + self.random.below(3));
            if self.random.below(6) == 0 || is_first_step {
                let report = archiver.step()?;
                if let Some(gap) = report.gap {
                    // A cut has taken the record of a removal of all keys out of the log.
                    assert!(is_first_step && gap.contains("not in the log"), "{gap}");
                    self.has_gap = true;
                    return Ok(());
                }
                is_first_step = false;
                self.marks += 1;
            }
            self.change(&db, &tables)?;
            self.history.insert(sequences(&tables)?, rows(&tables)?);
        }
    }

    fn clock_time(&self) -> u64 {
        siltstone::Clock::now(self.clock.as_ref())
    }

    /// Replays all segments, and compares each mark with the history.
    fn check_archive(&self) {
        let repository = Repository::open_vfs(self.vfs.subdirectory("repository").unwrap());
        let Ok(repository) = repository else { return };
        for (series, names) in repository.all_series().unwrap() {
            let db = Db::create_vfs(Arc::new(Ram::new()), options()).unwrap();
            let mut replay = Replay::new(&db, &options()).unwrap();
            let mut last = None;
            for name in names {
                let bytes = series.read(name).unwrap();
                let (segment, hash) = segment::decode("s", &bytes, db.keys()).unwrap();
                let expected = last.map_or((1, segment::NO_SEGMENT), |(n, hash)| (n + 1, hash));
                assert_eq!((segment.header.number, segment.header.previous), expected);
                last = Some((segment.header.number, hash));
                if last.is_some_and(|(number, _)| number == 1) {
                    let is_new = segment.state.feeds().all(|(_, feed)| feed.sequence == 0);
                    assert!(is_new, "no series begins later, as after a gap");
                }
                replay.apply("s", &segment).unwrap();
                let tables = NAMES.map(|name| db.table(name).unwrap());
                let at = sequences(&tables).unwrap();
                let content = self.history.get(&at);
                assert!(
                    content == Some(&rows(&tables).unwrap()),
                    "{at:?} is no state of the store"
                );
            }
        }
    }
}

#[test]
fn archive_is_a_part_of_the_history_after_any_power_cut() {
    let (mut cuts, mut marks, mut gaps) = (0, 0, 0);
    for seed in 0..60 {
        let mut run = Run {
            random: SplitMix64::new(seed),
            clock: Arc::new(ManualClock::at(1_000_000)),
            vfs: Arc::new(FaultyVfs::new(seed)),
            history: BTreeMap::new(),
            marks: 0,
            has_gap: false,
        };
        for life in 0..LIVES {
            let within = run.random.below(600);
            run.vfs.cut_power_at(run.vfs.operations() + within);
            let ended = run.live();
            if run.has_gap {
                gaps += 1;
                break;
            }
            assert!(run.vfs.power_is_off(), "seed {seed}: {ended:?}");
            run.vfs = Arc::new(run.vfs.survivors(seed ^ life));
            cuts += 1;
        }
        marks += run.marks;
    }
    println!("{cuts} cuts, {marks} marks, {gaps} gaps");
    assert!(cuts > 100 && marks > 100 && gaps < cuts / 4, "{cuts} {marks} {gaps}");
}
