//! A store with an archiver, and what is restored from its repository.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use siltstone::{Clock, Db, DbOptions, Entry, SystemClock, Table};
use siltstone_backup::{ArchiveReport, Archiver, Repository, RestoredMoment};
use tempfile::TempDir;

pub(crate) type Rows = BTreeMap<Vec<u8>, Entry>;

/// The content of a store: the rows of each table, and the tables in others' places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) tables: BTreeMap<String, Rows>,
    pub(crate) places: BTreeMap<String, String>,
}

impl Content {
    pub(crate) fn of(db: &Db) -> Self {
        let rows = |table: Table| table.iter().unwrap().collect::<Result<Rows, _>>().unwrap();
        let names = db.table_names().unwrap().into_iter();
        let tables = names.map(|name| (name.clone(), rows(db.table(&name).unwrap())));
        Content { tables: tables.collect(), places: db.catalogue().unwrap().places }
    }
}

pub(crate) struct Fixture {
    scratch: TempDir,
    pub(crate) db: Db,
    pub(crate) archiver: Archiver,
    restores: u32,
}

impl Fixture {
    /// An empty store, before its first mark.
    pub(crate) fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let (db, archiver) = open(scratch.path());
        Fixture { scratch, db, archiver, restores: 0 }
    }

    /// A store with a table, a mark and a backup.
    pub(crate) fn with_table() -> (Self, Table) {
        let mut fixture = Fixture::new();
        let table = fixture.table("stock");
        assert!(fixture.step().needs_backup);
        fixture.back_up();
        (fixture, table)
    }

    pub(crate) fn table(&self, name: &str) -> Table {
        let options = [("memtable", "64KiB"), ("log_retention", "64MiB")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        self.db.table_or_create(name, "lsm", &options).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(crate) fn repository(&self) -> Repository {
        Repository::open_or_create(self.path("backups")).unwrap()
    }

    pub(crate) fn back_up(&self) -> String {
        self.repository().back_up(&self.db, &mut |_, _| {}).unwrap().id
    }

    /// A step of the archiver, in a millisecond of its own.
    pub(crate) fn step(&mut self) -> ArchiveReport {
        self.try_step().unwrap()
    }

    pub(crate) fn try_step(&mut self) -> siltstone::Result<ArchiveReport> {
        next_millisecond();
        let report = self.archiver.step();
        next_millisecond();
        report
    }

    /// Puts a row, and returns a mark behind it.
    pub(crate) fn put(&mut self, table: &Table, key: &str) -> u64 {
        table.put(key.as_bytes(), b"value").unwrap();
        self.step().mark
    }

    /// Closes the store, and opens it again with a new archiver.
    pub(crate) fn reopen(&mut self) {
        self.db.close().unwrap();
        (self.db, self.archiver) = open(self.scratch.path());
    }

    pub(crate) fn try_restore(
        &mut self,
        time: u64,
    ) -> siltstone::Result<(RestoredMoment, Content)> {
        self.restores += 1;
        let target = self.path(&format!("restored{}", self.restores));
        let options = DbOptions::default();
        let restored = self.repository().restore_at(None, time, &target, &options, &mut |_| {});
        assert!(!self.path(&format!("restored{}.restoring", self.restores)).exists());
        let restored = restored.inspect_err(|_| assert!(!target.exists()))?;
        let db = Db::open(&target, options).unwrap();
        let content = Content::of(&db);
        db.close().unwrap();
        std::fs::remove_dir_all(target).unwrap();
        Ok((restored, content))
    }

    pub(crate) fn restore(&mut self, time: u64) -> (RestoredMoment, Content) {
        self.try_restore(time).unwrap()
    }

    /// The keys of the table "stock" at a moment.
    pub(crate) fn keys_at(&mut self, time: u64) -> Vec<String> {
        let (_, mut content) = self.restore(time);
        let keys = content.tables.remove("stock").unwrap().into_keys();
        keys.map(|key| String::from_utf8(key).unwrap()).collect()
    }

    /// The message with which a moment is refused.
    pub(crate) fn refusal(&mut self, time: u64) -> String {
        self.try_restore(time).unwrap_err().to_string()
    }

    /// The files of the only series, but HEAD, in order.
    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let mut series: Vec<_> = list(&self.path("backups/archive"));
        assert_eq!(series.len(), 1, "{series:?}");
        let mut segments = list(&series.remove(0));
        segments.retain(|path| !path.ends_with("HEAD"));
        segments
    }
}

fn open(scratch: &Path) -> (Db, Archiver) {
    let db = Db::open_or_create(scratch.join("store"), DbOptions::default()).unwrap();
    let repository = Repository::open_or_create(scratch.join("backups")).unwrap();
    let archiver = Archiver::new(db.clone(), repository);
    (db, archiver)
}

pub(crate) fn list(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Waits until the clock shows a later time, and returns the one before.
pub(crate) fn next_millisecond() -> u64 {
    let now = SystemClock.now();
    while SystemClock.now() <= now {
        std::thread::sleep(Duration::from_micros(200));
    }
    now
}
