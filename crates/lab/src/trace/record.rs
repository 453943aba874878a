//! An engine that writes down what it is asked.
//!
//! ```text
//! callers ─▶ Recorded ─▶ the engine
//!               └─ lines ─▶ Recorder: a buffer ─ whole lines ─▶ file
//! ```
//!
//! A request is written down when it has been answered; one that fails is not. A walk counts as one
//! request: the smallest key that it came to, and how many entries.
//!
//! Invariant: the file ends with a whole line however the process ends; and a trace that can't be written
//! is given up, not the request.
//!
//! Cost: 100 to 200 ns a request under one lock, for a file that is measured against none.

use std::any::Any;
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, Error, KeyRange, Op,
    ReadPoint, Result, Stats, Timestamp, VerifyReport, WriteBatch,
};

use super::{Line, Verb};

/// Lines are written to the file in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;

/// Requests that came within so short a time share a time.
const TICK: Duration = Duration::from_millis(1);

/// A trace that is being written.
pub struct Recorder {
    name: String,
    began: Instant,
    state: Mutex<State>,
}

struct State {
    /// None once writing has failed.
    file: Option<File>,
    /// Whole lines.
    lines: Vec<u8>,
    told: Duration,
    failed: Option<Error>,
}

impl Recorder {
    /// Begins a trace in a new file.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be made, or is there already.
    pub fn create(path: &Path) -> Result<Arc<Self>> {
        let name = path.display().to_string();
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = Some(file.map_err(|error| Error::io("create", &name, &error))?);
        let state = State { file, lines: Vec::new(), told: Duration::ZERO, failed: None };
        Ok(Arc::new(Recorder { name, began: Instant::now(), state: Mutex::new(state) }))
    }

    /// Writes what is buffered to the file.
    ///
    /// # Errors
    /// What went wrong since the trace began: it ends there.
    pub fn finish(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.write(&self.name);
        state.failed.clone().map_or(Ok(()), Err)
    }

    fn note<'a>(&self, requests: impl IntoIterator<Item = (Verb, &'a [u8])>) {
        let mut state = self.state.lock();
        if state.file.is_none() {
            return;
        }
        let now = self.began.elapsed();
        if now >= state.told + TICK {
            state.told = now;
            Line::Time(now).write(&mut state.lines);
        }
        // An empty key is none, and no store holds one.
        for (verb, key) in requests.into_iter().filter(|(_, key)| !key.is_empty()) {
            Line::Request(verb, Cow::Borrowed(key)).write(&mut state.lines);
        }
        if state.lines.len() >= PIECE_BYTES {
            state.write(&self.name);
        }
    }
}

impl State {
    fn write(&mut self, name: &str) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(&self.lines) {
            self.failed = Some(Error::io("write", name, &error));
            self.file = None;
        }
        self.lines.clear();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.state.get_mut().write(&self.name);
    }
}

/// An engine whose requests are written down.
pub struct Recorded {
    engine: Arc<dyn Engine>,
    recorder: Arc<Recorder>,
}

impl Recorded {
    /// Writes down what `engine` is asked.
    pub fn new(engine: Arc<dyn Engine>, recorder: Arc<Recorder>) -> Self {
        Recorded { engine, recorder }
    }

    fn walk(&self, range: KeyRange, cursor: Box<dyn Cursor>) -> Box<dyn Cursor> {
        let start = match range.start {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => Vec::new(),
        };
        let recorder = self.recorder.clone();
        Box::new(Walk { cursor, recorder, start, is_placed: false, smallest: None, entries: 0 })
    }
}

impl Engine for Recorded {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let entry = self.engine.get(key)?;
        self.recorder.note([(Verb::Get, key)]);
        Ok(entry)
    }

    fn get_at(&self, key: &[u8], at: &ReadPoint) -> Result<Option<Entry>> {
        let entry = self.engine.get_at(key, at)?;
        self.recorder.note([(Verb::Get, key)]);
        Ok(entry)
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.engine.write(batch, durability)?;
        self.recorder.note(batch.iter().map(|op| match op {
            // A value is smaller than 4 GiB, by the contract.
            Op::Put { key, value, .. } => (Verb::Put { bytes: value.len() as u32 }, key),
            Op::Delete { key } => (Verb::Delete, key),
        }));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        let cursor = self.engine.iter()?;
        // Where keys have no order a walk is no request that could be asked again.
        let is_request = self.capabilities().ordered;
        Ok(if is_request { self.walk(KeyRange::all(), cursor) } else { cursor })
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        let cursor = self.engine.range(range.clone(), at)?;
        Ok(self.walk(range, cursor))
    }

    fn snapshot(&self) -> Result<ReadPoint> {
        self.engine.snapshot()
    }

    fn at(&self, time: Timestamp) -> Result<ReadPoint> {
        self.engine.at(time)
    }

    fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    fn maintain(&self) -> Result<()> {
        self.engine.maintain()
    }

    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.engine.checkpoint(sink)
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.engine.verify(progress)
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }

    fn warnings(&self) -> Vec<String> {
        self.engine.warnings()
    }

    fn trouble(&self) -> Option<String> {
        self.engine.trouble()
    }

    /// Nothing: what goes past this face would not be written down.
    fn behind(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    fn close(&self) -> Result<()> {
        self.engine.close()
    }
}

/// A walk that is written down when it ends.
struct Walk {
    cursor: Box<dyn Cursor>,
    recorder: Arc<Recorder>,
    /// Where the range begins, or where it was placed last.
    start: Vec<u8>,
    is_placed: bool,
    smallest: Option<Vec<u8>>,
    entries: u32,
}

impl Walk {
    /// A walk begins anew.
    fn place(&mut self, key: Option<&[u8]>) {
        self.note();
        if let Some(key) = key {
            self.start = key.to_vec();
        }
        (self.is_placed, self.smallest, self.entries) = (true, None, 0);
    }

    fn moved(&mut self, moved: Result<bool>) -> Result<bool> {
        if matches!(moved, Ok(true)) {
            self.entries = self.entries.saturating_add(1);
            let key = self.cursor.key();
            match &mut self.smallest {
                None => self.smallest = Some(key.to_vec()),
                Some(smallest) if *key < smallest[..] => {
                    smallest.clear();
                    smallest.extend_from_slice(key);
                }
                Some(_) => {}
            }
        }
        moved
    }

    fn note(&self) {
        match &self.smallest {
            Some(key) => self.recorder.note([(Verb::Scan { entries: self.entries }, &key[..])]),
            // It found nothing, which is a request, too.
            None if self.is_placed && !self.start.is_empty() => {
                self.recorder.note([(Verb::Scan { entries: 1 }, &self.start[..])]);
            }
            None => {}
        }
    }
}

impl Cursor for Walk {
    fn first(&mut self) -> Result<bool> {
        self.place(None);
        let moved = self.cursor.first();
        self.moved(moved)
    }

    fn last(&mut self) -> Result<bool> {
        self.place(None);
        let moved = self.cursor.last();
        self.moved(moved)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.place(Some(key));
        let moved = self.cursor.seek(key);
        self.moved(moved)
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        self.place(Some(key));
        let moved = self.cursor.seek_back(key);
        self.moved(moved)
    }

    fn next(&mut self) -> Result<bool> {
        let moved = self.cursor.next();
        self.moved(moved)
    }

    fn prev(&mut self) -> Result<bool> {
        let moved = self.cursor.prev();
        self.moved(moved)
    }

    fn position(&self) -> Vec<u8> {
        self.cursor.position()
    }

    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        self.place(None);
        let moved = self.cursor.resume(position);
        self.moved(moved)
    }

    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.cursor.expires_at()
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.note();
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use siltstone_lsm::{Lsm, Options};
    use siltstone_runtime::Env;
    use siltstone_vfs::Ram;

    use super::*;

    fn recorded() -> (tempfile::TempDir, PathBuf, Arc<Recorder>, Recorded) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let recorder = Recorder::create(&path).unwrap();
        let engine = Lsm::open(Arc::new(Ram::new()), Env::system(1), Options::default()).unwrap();
        let engine = Recorded::new(Arc::new(engine), recorder.clone());
        (directory, path, recorder, engine)
    }

    /// The lines but for times.
    fn lines(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter(|line| !line.starts_with('@')).map(str::to_owned).collect()
    }

    #[test]
    fn every_request_is_a_line_in_its_order() {
        let (_directory, path, recorder, engine) = recorded();
        let mut batch = WriteBatch::new();
        batch.put(b"a", &[0; 10]).put(b"b c", b"").put_until(b"d", b"x", 1).delete(b"e");
        engine.write(&batch, Durability::Synced).unwrap();
        engine.get(b"b c").unwrap();
        let then = engine.snapshot().unwrap();
        engine.get_at(b"\xff", &then).unwrap();
        // A key that none can be and a walk that was never begun are no requests.
        let _ = engine.get(b"");
        drop(engine.iter().unwrap());
        recorder.finish().unwrap();
        assert_eq!(
            lines(&path),
            ["put a 10", "put b\\x20c 0", "put d 1", "del e", "get b\\x20c", "get \\xff"]
        );
    }

    #[test]
    fn a_walk_is_one_request_from_its_smallest_key() {
        let (_directory, path, recorder, engine) = recorded();
        for key in [b"a", b"b", b"c", b"d"] {
            engine.write(WriteBatch::new().put(key, b"1"), Durability::Buffered).unwrap();
        }
        let mut cursor = engine.range(KeyRange::new(&b"b"[..]..), None).unwrap();
        assert!(cursor.first().unwrap() && cursor.next().unwrap());
        assert!(cursor.seek(b"d").unwrap() && !cursor.next().unwrap());
        assert!(cursor.last().unwrap() && cursor.prev().unwrap() && cursor.prev().unwrap());
        assert!(!cursor.seek(b"x").unwrap());
        drop(cursor);
        recorder.finish().unwrap();
        assert_eq!(lines(&path)[4..], ["scan b 2", "scan d 1", "scan b 3", "scan x 1"]);
    }

    #[test]
    fn a_trace_in_the_place_of_a_file_is_refused() {
        let (_directory, path, ..) = recorded();
        assert!(matches!(Recorder::create(&path), Err(Error::Io { .. })));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_trace_that_can_t_be_written_is_given_up_and_the_store_goes_on() {
        let file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let state = State { file, lines: Vec::new(), told: Duration::ZERO, failed: None };
        let began = Instant::now();
        let recorder = Recorder { name: "full".to_owned(), began, state: Mutex::new(state) };
        let (_directory, _, _, engine) = recorded();
        let engine = Recorded::new(engine.engine.clone(), Arc::new(recorder));
        for _ in 0..PIECE_BYTES {
            engine.get(b"key").unwrap();
        }
        assert!(matches!(engine.recorder.finish(), Err(Error::Io { .. })));
    }
}
