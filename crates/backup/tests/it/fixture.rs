//! A store with tables, and a place for its backups.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use siltstone::{Db, DbOptions, Durability, Table, WriteBatch};
use siltstone_backup::storage::objects::{LockTimes, ObjectStorage};
use siltstone_backup::{BackupReport, Repository, Storage};
use tempfile::TempDir;

use crate::faulty_store::FaultyStore;

const ENGINES: [&str; 4] = ["lsm", "trie", "silt", "skimpy"];

pub(crate) struct Fixture {
    pub(crate) scratch: TempDir,
    pub(crate) db: Db,
    pub(crate) tables: Vec<Table>,
    pub(crate) place: Place,
}

/// Where backups lie.
pub(crate) enum Place {
    Directory(PathBuf),
    Objects(Arc<FaultyStore>),
}

/// All engines with backups in a directory, and one with backups in an object store.
pub(crate) fn fixtures() -> [Fixture; 2] {
    [Fixture::in_directory(&ENGINES), Fixture::in_objects()]
}

impl Fixture {
    pub(crate) fn in_directory(engines: &[&str]) -> Self {
        Self::on(engines, |scratch| Place::Directory(scratch.join("backups")))
    }

    pub(crate) fn in_objects() -> Self {
        Self::on(&["lsm"], |_| Place::Objects(Arc::default()))
    }

    fn on(engines: &[&str], place: impl FnOnce(&Path) -> Place) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let place = place(scratch.path());
        let db = Db::open_or_create(scratch.path().join("store"), DbOptions::default()).unwrap();
        let create = |engine| db.table_or_create(engine, engine, &Default::default()).unwrap();
        let tables = engines.iter().copied().map(create).collect();
        Fixture { scratch, db, tables, place }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(crate) fn repository(&self) -> Repository {
        self.place.repository()
    }

    /// The object store of the backups.
    pub(crate) fn objects(&self) -> &Arc<FaultyStore> {
        match &self.place {
            Place::Objects(store) => store,
            Place::Directory(path) => panic!("{} is a directory", path.display()),
        }
    }

    /// Writes `count` keys from `first` on to each table, and flushes them.
    pub(crate) fn write(&self, first: u32, count: u32) {
        for table in &self.tables {
            let mut batch = WriteBatch::new();
            for i in first..first + count {
                batch.put(format!("key{i:06}").as_bytes(), &[i as u8; 100]);
            }
            table.write(&batch, Durability::Synced).unwrap();
            table.flush().unwrap();
        }
    }

    pub(crate) fn back_up(&self) -> BackupReport {
        self.repository().back_up(&self.db, &mut |_, _| {}).unwrap()
    }
}

impl Place {
    /// The repository, as a process that has just started opens it.
    pub(crate) fn repository(&self) -> Repository {
        match self {
            Place::Directory(path) => Repository::open_or_create(path).unwrap(),
            Place::Objects(store) => Repository::open_or_create_in(storage(store)).unwrap(),
        }
    }

    /// Changes a file of the repository behind its back.
    pub(crate) fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        match self {
            Place::Directory(directory) => {
                let mut content = std::fs::read(directory.join(path)).unwrap();
                change(&mut content);
                std::fs::write(directory.join(path), content).unwrap();
            }
            Place::Objects(store) => {
                let mut content = store.content(path);
                change(&mut content);
                store.overwrite(path, content);
            }
        }
    }
}

/// The storage in `store`, as a process that has just started opens it.
pub(crate) fn storage(store: &Arc<FaultyStore>) -> Arc<dyn Storage> {
    storage_with(store, LockTimes::default())
}

pub(crate) fn storage_with(store: &Arc<FaultyStore>, times: LockTimes) -> Arc<dyn Storage> {
    let prefix = FaultyStore::PREFIX.into();
    Arc::new(ObjectStorage::new(store.clone(), prefix, "s3://bucket/shop", times).unwrap())
}

/// Asserts that the store in `dir` passes verification and has `count` keys in each table.
pub(crate) fn assert_has(dir: &Path, count: u32) {
    let db = Db::open(dir, DbOptions::default()).unwrap();
    for engine in db.table_names().unwrap() {
        let table = db.table(&engine).unwrap();
        assert_eq!(table.verify(&mut |_, _| {}).unwrap().damage, []);
        for i in 0..count + 100 {
            let found = table.get(format!("key{i:06}").as_bytes()).unwrap();
            let expected = (i < count).then(|| vec![i as u8; 100]);
            assert_eq!(found, expected, "{engine} {i}");
        }
    }
    db.close().unwrap();
}
