//! A medium for these tests: files in memory whose unsynced sectors a power cut may keep or lose.
//!
//! Every write is remembered by sector (512 bytes) until the file is synced. `power_cut` asks a
//! function, for each sector changed since, whether the new bytes survive. Writes and syncs can be
//! made to fail.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use siltstone_engine::{Error, Purpose, Result};
use siltstone_media::{File, LockGuard, Media, Mode};

pub const SECTOR: usize = 512;

#[derive(Default, Clone)]
pub struct TestMedia(Arc<Mutex<Directory>>);

#[derive(Default)]
struct Directory {
    /// Names now, and names that survive a power cut.
    now: BTreeMap<String, Arc<TestFile>>,
    durable: BTreeMap<String, Arc<TestFile>>,
    /// Operations that change the medium, so far; the one at which all of them begin to fail.
    operations: u64,
    fail_from: Option<(u64, ErrorKind)>,
}

pub struct TestFile {
    state: Mutex<State>,
    directory: Arc<Mutex<Directory>>,
}

#[derive(Default, Clone)]
struct State {
    now: Vec<u8>,
    durable: Vec<u8>,
    reads: u64,
    /// A write fails after this many more bytes, once.
    write_budget: Option<usize>,
    fail_sync: bool,
}

impl TestMedia {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn file(&self, name: &str) -> Arc<TestFile> {
        self.0.lock().unwrap().now[name].clone()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        self.file(name).state.lock().unwrap().now.clone()
    }

    /// Puts a file there, durably.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let file = self.new_file();
        *file.state.lock().unwrap() =
            State { now: bytes.to_vec(), durable: bytes.to_vec(), ..State::default() };
        let mut directory = self.0.lock().unwrap();
        directory.now.insert(name.into(), file.clone());
        directory.durable.insert(name.into(), file);
    }

    pub fn operations(&self) -> u64 {
        self.0.lock().unwrap().operations
    }

    /// From the operation of this number on, all fail.
    pub fn fail_from(&self, operation: u64, kind: ErrorKind) {
        self.0.lock().unwrap().fail_from = Some((operation, kind));
    }

    /// What is there after a power cut: unsynced names are kept if `keep_names`, and each sector
    /// that was not synced if `keep` says so.
    pub fn power_cut(&self, keep_names: bool, mut keep: impl FnMut() -> bool) -> Arc<TestMedia> {
        let after = TestMedia::new();
        let directory = self.0.lock().unwrap();
        let names = if keep_names { &directory.now } else { &directory.durable };
        for (name, file) in names {
            let state = file.state.lock().unwrap();
            after.put(name, &survivor(&state.durable, &state.now, &mut keep));
        }
        after
    }

    fn new_file(&self) -> Arc<TestFile> {
        Arc::new(TestFile { state: Mutex::default(), directory: self.0.clone() })
    }

    fn operate(&self) -> Result<()> {
        operate(&self.0)
    }
}

fn operate(directory: &Mutex<Directory>) -> Result<()> {
    let mut directory = directory.lock().unwrap();
    directory.operations += 1;
    match directory.fail_from {
        Some((from, kind)) if directory.operations > from => {
            Err(Error::io("change", "the medium", &kind.into()))
        }
        _ => Ok(()),
    }
}

/// A mix of sectors; the length is that of the last sector that survives, or what was durable.
fn survivor(durable: &[u8], now: &[u8], keep: &mut impl FnMut() -> bool) -> Vec<u8> {
    if durable == now {
        return durable.to_vec();
    }
    let mut out = durable.to_vec();
    for (i, sector) in now.chunks(SECTOR).enumerate() {
        let at = i * SECTOR;
        let old = durable.get(at..durable.len().min(at + SECTOR)).unwrap_or(&[]);
        if old != sector && keep() {
            out.resize(out.len().max(at + sector.len()), 0);
            out[at..at + sector.len()].copy_from_slice(sector);
        }
    }
    if now.len() > out.len() && keep() {
        out.resize(now.len(), 0);
    }
    out
}

impl TestFile {
    /// The next write puts this many bytes and then fails: disk full.
    pub fn fill_up_after(&self, bytes: usize) {
        self.state.lock().unwrap().write_budget = Some(bytes);
    }

    pub fn fail_syncs(&self, fail: bool) {
        self.state.lock().unwrap().fail_sync = fail;
    }

    pub fn reads(&self) -> u64 {
        self.state.lock().unwrap().reads
    }
}

impl Media for TestMedia {
    fn name(&self) -> String {
        "test".into()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.operate()?;
        let file = self.new_file();
        let mut directory = self.0.lock().unwrap();
        if directory.now.contains_key(name) {
            return Err(Error::io("create", name, &ErrorKind::AlreadyExists.into()));
        }
        directory.now.insert(name.into(), file.clone());
        Ok(file)
    }

    fn open(&self, name: &str, _: Mode) -> Result<Arc<dyn File>> {
        match self.0.lock().unwrap().now.get(name) {
            Some(file) => Ok(file.clone()),
            None => Err(Error::io("open", name, &ErrorKind::NotFound.into())),
        }
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.0.lock().unwrap().now.contains_key(name))
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.0.lock().unwrap().now.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.operate()?;
        match self.0.lock().unwrap().now.remove(name) {
            Some(_) => Ok(()),
            None => Err(Error::io("remove", name, &ErrorKind::NotFound.into())),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.operate()?;
        let mut directory = self.0.lock().unwrap();
        let file = directory.now.remove(from).expect("renamed file is there");
        directory.now.insert(to.into(), file);
        Ok(())
    }

    fn sync_dir(&self, _: Purpose) -> Result<()> {
        self.operate()?;
        let mut directory = self.0.lock().unwrap();
        directory.durable = directory.now.clone();
        Ok(())
    }

    fn subdirectory(&self, _: &str) -> Result<Arc<dyn Media>> {
        unimplemented!("not needed here")
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn remove_subdirectory(&self, _: &str) -> Result<()> {
        unimplemented!("not needed here")
    }

    fn lock(&self, _: &str) -> Result<LockGuard> {
        Ok(LockGuard::new(()))
    }
}

impl File for TestFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], _: Purpose) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.reads += 1;
        let from = offset as usize;
        match state.now.get(from..from + buf.len()) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(Error::io("read", "test file", &ErrorKind::UnexpectedEof.into())),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8], _: Purpose) -> Result<()> {
        operate(&self.directory)?;
        let mut state = self.state.lock().unwrap();
        let budget = state.write_budget.take().unwrap_or(usize::MAX);
        let written = &bytes[..bytes.len().min(budget)];
        let (from, to) = (offset as usize, offset as usize + written.len());
        if state.now.len() < to {
            state.now.resize(to, 0);
        }
        state.now[from..to].copy_from_slice(written);
        if written.len() < bytes.len() {
            return Err(Error::io("write", "test file", &ErrorKind::StorageFull.into()));
        }
        Ok(())
    }

    fn sync(&self, _: Purpose) -> Result<()> {
        operate(&self.directory)?;
        let mut state = self.state.lock().unwrap();
        if state.fail_sync {
            return Err(Error::io("sync", "test file", &ErrorKind::Other.into()));
        }
        state.durable = state.now.clone();
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state.lock().unwrap().now.len() as u64)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        operate(&self.directory)?;
        self.state.lock().unwrap().now.resize(len as usize, 0);
        Ok(())
    }

    fn reserve(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn punch_hole(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
}
