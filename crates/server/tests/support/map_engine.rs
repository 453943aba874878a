//! An ordered engine in memory whose writes and syncs fail on request.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use siltstone::{
    Capabilities, Clock, Durability, Engine, Entry, Error, KeyRange, Op, Result, Stats,
    SystemClock, VerifyReport, WriteBatch,
};
use siltstone_engine::{CheckpointSink, Cursor, ReadPoint};

type Map = BTreeMap<Vec<u8>, Entry>;

/// An ordered engine in memory with injectable errors.
#[derive(Default)]
pub struct MapEngine {
    map: RwLock<Arc<Map>>,
    pub writes: AtomicU64,
    /// Writes that have begun, and a lock that each of them takes first.
    pub begun_writes: AtomicU64,
    pub gate: Mutex<()>,
    pub syncs: AtomicU64,
    pub fail_syncs: AtomicBool,
    pub fail_writes: AtomicBool,
    pub disk_full: AtomicBool,
    /// Each sync takes 5 ms.
    pub slow_syncs: AtomicBool,
    /// Each lookup takes 1 ms.
    pub slow_reads: AtomicBool,
    /// The keys of each call of `begin_reads`.
    pub begun_reads: Mutex<Vec<Vec<Vec<u8>>>>,
}

fn fault(operation: &'static str, kind: std::io::ErrorKind) -> Error {
    Error::io(operation, "000001.log", &std::io::Error::from(kind))
}

impl Engine for MapEngine {
    fn name(&self) -> &'static str {
        "map"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            durable: true,
            versioned: false,
            incremental_gc: false,
            range_deletes: false,
            merge: false,
            change_feed: false,
            max_value_bytes: 32 << 20,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        siltstone_engine::entry::check_key(key)?;
        if self.slow_reads.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let now = SystemClock.now();
        Ok(self.map.read().get(key).filter(|entry| !entry.is_expired(now)).cloned())
    }

    fn begin_reads(&self, keys: &[&[u8]]) {
        self.begun_reads.lock().push(keys.iter().map(|key| key.to_vec()).collect());
    }

    fn write(&self, batch: &WriteBatch, _durability: Durability) -> Result<()> {
        batch.check(self.capabilities().max_value_bytes)?;
        self.begun_writes.fetch_add(1, SeqCst);
        drop(self.gate.lock());
        if self.disk_full.load(SeqCst) {
            return Err(fault("write", std::io::ErrorKind::StorageFull));
        }
        if self.fail_writes.load(SeqCst) {
            return Err(Error::ReadOnly { cause: "a test".into() });
        }
        self.writes.fetch_add(1, SeqCst);
        let mut guard = self.map.write();
        let map = Arc::make_mut(&mut guard);
        for op in batch.iter() {
            match op {
                Op::Put { key, value, expires_at } => {
                    map.insert(key.to_vec(), Entry { value: value.to_vec(), expires_at });
                }
                Op::Delete { key } => {
                    map.remove(key);
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.syncs.fetch_add(1, SeqCst);
        if self.slow_syncs.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.fail_syncs.load(SeqCst) {
            return Err(fault("sync", std::io::ErrorKind::Other));
        }
        Ok(())
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        let map = self.map.read().clone();
        Ok(Box::new(MapCursor { map, at: None, now: SystemClock.now() }))
    }

    fn range(&self, range: KeyRange, _at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        range.check()?;
        let map = self.map.read().clone();
        let inside = map.iter().filter(|(key, _)| range.contains(key));
        let map = Arc::new(inside.map(|(key, entry)| (key.clone(), entry.clone())).collect());
        Ok(Box::new(MapCursor { map, at: None, now: SystemClock.now() }))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn maintain(&self) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&self, _sink: &mut dyn CheckpointSink) -> Result<()> {
        Err(self.unsupported("checkpoints"))
    }

    fn verify(&self, _progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        Ok(VerifyReport::default())
    }

    fn stats(&self) -> Stats {
        Stats {
            engine: "map",
            keys_estimate: Some(self.map.read().len() as u64),
            writes: self.writes.load(SeqCst),
            ..Stats::default()
        }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

struct MapCursor {
    map: Arc<Map>,
    at: Option<(Vec<u8>, Entry)>,
    now: u64,
}

impl MapCursor {
    fn place(&mut self, start: Bound<&[u8]>) -> Result<bool> {
        let mut range = self.map.range::<[u8], _>((start, Bound::Unbounded));
        let found = range.find(|(_, entry)| !entry.is_expired(self.now));
        self.at = found.map(|(key, entry)| (key.clone(), entry.clone()));
        Ok(self.at.is_some())
    }

    fn place_back(&mut self, end: Bound<&[u8]>) -> Result<bool> {
        let range = self.map.range::<[u8], _>((Bound::Unbounded, end));
        let found = range.rev().find(|(_, entry)| !entry.is_expired(self.now));
        self.at = found.map(|(key, entry)| (key.clone(), entry.clone()));
        Ok(self.at.is_some())
    }
}

impl Cursor for MapCursor {
    fn first(&mut self) -> Result<bool> {
        self.place(Bound::Unbounded)
    }

    fn last(&mut self) -> Result<bool> {
        self.place_back(Bound::Unbounded)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.place(Bound::Included(key))
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        self.place_back(Bound::Included(key))
    }

    fn next(&mut self) -> Result<bool> {
        let (key, _) = self.at.take().unwrap();
        self.place(Bound::Excluded(&key))
    }

    fn prev(&mut self) -> Result<bool> {
        let (key, _) = self.at.take().unwrap();
        self.place_back(Bound::Excluded(&key))
    }

    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.at.as_ref().unwrap().0
    }

    fn value(&self) -> &[u8] {
        &self.at.as_ref().unwrap().1.value
    }

    fn expires_at(&self) -> Option<u64> {
        self.at.as_ref().unwrap().1.expires_at
    }
}
