//! An engine wrapper that records requests to a trace.
//!
//! ```text
//! callers ─▶ RecordingEngine ─▶ the engine
//!                  └─ lines ─▶ Recorder: a buffer ─ whole lines ─▶ file
//! ```
//!
//! A request is recorded after it succeeded; failed requests are not recorded. A scan is recorded
//! as one request: the smallest key that it reached, and its number of entries.
//!
//! Invariant: the file ends with a whole line even after a crash of the process. If the trace
//! cannot be written, recording stops, and requests continue.
//!
//! Cost: 100 to 200 ns per request under one lock.

use std::any::Any;
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use siltstone_engine::entry::check_key;
use siltstone_engine::{
    Capabilities, Cursor, Durability, Engine, Entry, Error, KeyRange, Op, ReadPoint, Result, Stats,
    Timestamp, VerifyReport, WriteBatch, forward_cursor, forward_engine,
};

use super::{Line, Verb};

/// Buffered bytes that trigger a write to the file.
const FLUSH_BYTES: usize = 64 << 10;

/// Resolution of arrival times.
const TICK: Duration = Duration::from_millis(1);

/// A writer of a trace.
pub struct Recorder {
    name: String,
    /// Nothing is recorded before.
    began: OnceLock<Instant>,
    state: Mutex<State>,
}

struct State {
    /// `None` after a failed write.
    file: Option<File>,
    /// Buffered whole lines.
    lines: Vec<u8>,
    last_time: Duration,
    failed: Option<Error>,
}

impl Recorder {
    /// Creates the file of a trace. Requests are recorded from [`start`](Self::start) on.
    ///
    /// # Errors
    /// [`Error::Io`] if the file exists or cannot be created.
    pub fn create(path: &Path) -> Result<Arc<Self>> {
        let name = path.display().to_string();
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = Some(file.map_err(|error| Error::io("create", &name, &error))?);
        let state = State { file, lines: Vec::new(), last_time: Duration::ZERO, failed: None };
        Ok(Arc::new(Recorder { name, began: OnceLock::new(), state: Mutex::new(state) }))
    }

    /// Starts to record: reads of the server itself while it opens the table are not recorded.
    pub fn start(&self) {
        self.began.get_or_init(Instant::now);
    }

    /// Writes buffered lines to the file.
    ///
    /// # Errors
    /// The first write error since the start of the trace, at which it ends.
    pub fn finish(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.write(&self.name);
        state.failed.clone().map_or(Ok(()), Err)
    }

    fn record<'a>(&self, requests: impl IntoIterator<Item = (Verb, &'a [u8])>) {
        let Some(began) = self.began.get() else { return };
        let mut state = self.state.lock();
        if state.file.is_none() {
            return;
        }
        let now = began.elapsed();
        if now >= state.last_time + TICK {
            state.last_time = now;
            Line::Time(now).write(&mut state.lines);
        }
        // A key over the limit is in no store, and a trace with one could not be read.
        for (verb, key) in requests.into_iter().filter(|(_, key)| check_key(key).is_ok()) {
            Line::Request(verb, Cow::Borrowed(key)).write(&mut state.lines);
        }
        if state.lines.len() >= FLUSH_BYTES {
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

/// An engine whose requests are recorded.
pub struct RecordingEngine {
    engine: Arc<dyn Engine>,
    recorder: Arc<Recorder>,
}

impl RecordingEngine {
    /// Records the requests to `engine`.
    pub fn new(engine: Arc<dyn Engine>, recorder: Arc<Recorder>) -> Self {
        RecordingEngine { engine, recorder }
    }

    fn recording_cursor(&self, range: KeyRange, cursor: Box<dyn Cursor>) -> Box<dyn Cursor> {
        let start = match range.start {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => Vec::new(),
        };
        let recorder = self.recorder.clone();
        Box::new(RecordingCursor {
            cursor,
            recorder,
            start,
            is_started: false,
            smallest: None,
            entries: 0,
        })
    }
}

impl Engine for RecordingEngine {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let entry = self.engine.get(key)?;
        self.recorder.record([(Verb::Get, key)]);
        Ok(entry)
    }

    fn get_at(&self, key: &[u8], at: &ReadPoint) -> Result<Option<Entry>> {
        let entry = self.engine.get_at(key, at)?;
        self.recorder.record([(Verb::Get, key)]);
        Ok(entry)
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.engine.write(batch, durability)?;
        self.recorder.record(batch.iter().map(|op| match op {
            // Values are smaller than 4 GiB.
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
        // A scan of unordered keys cannot be replayed.
        let is_request = self.capabilities().ordered;
        Ok(if is_request { self.recording_cursor(KeyRange::all(), cursor) } else { cursor })
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        let cursor = self.engine.range(range.clone(), at)?;
        Ok(self.recording_cursor(range, cursor))
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

    forward_engine!(engine: compact_range set_options changes checkpoint);
    forward_engine!(engine: check_open check_write must_wait set_merge_operator merge_operator);

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

    /// `None`: requests that bypass this wrapper would not be recorded.
    fn as_any(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    fn close(&self) -> Result<()> {
        self.engine.close()
    }
}

/// A cursor whose scan is recorded when it ends.
struct RecordingCursor {
    cursor: Box<dyn Cursor>,
    recorder: Arc<Recorder>,
    /// Start of the range, or the key of the last seek.
    start: Vec<u8>,
    is_started: bool,
    smallest: Option<Vec<u8>>,
    entries: u32,
}

impl RecordingCursor {
    /// Records the current scan and starts a new one.
    fn start_scan(&mut self, key: Option<&[u8]>) {
        self.record();
        if let Some(key) = key {
            self.start = key.to_vec();
        }
        (self.is_started, self.smallest, self.entries) = (true, None, 0);
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

    fn record(&self) {
        match &self.smallest {
            Some(key) => self.recorder.record([(Verb::Scan { entries: self.entries }, &key[..])]),
            // A scan without entries is a request, too.
            None if self.is_started => {
                self.recorder.record([(Verb::Scan { entries: 1 }, &self.start[..])]);
            }
            None => {}
        }
    }
}

impl Cursor for RecordingCursor {
    forward_cursor!(cursor);

    fn first(&mut self) -> Result<bool> {
        self.start_scan(None);
        let moved = self.cursor.first();
        self.moved(moved)
    }

    fn last(&mut self) -> Result<bool> {
        self.start_scan(None);
        let moved = self.cursor.last();
        self.moved(moved)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.start_scan(Some(key));
        let moved = self.cursor.seek(key);
        self.moved(moved)
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        self.start_scan(Some(key));
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
        self.start_scan(None);
        let moved = self.cursor.resume(position);
        self.moved(moved)
    }
}

impl Drop for RecordingCursor {
    fn drop(&mut self) {
        self.record();
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use siltstone_engine::MAX_KEY_BYTES;
    use siltstone_lsm::{Lsm, Options};
    use siltstone_runtime::Env;
    use siltstone_vfs::Ram;

    use super::*;

    fn recorded() -> (tempfile::TempDir, PathBuf, Arc<Recorder>, RecordingEngine) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let recorder = Recorder::create(&path).unwrap();
        recorder.start();
        let engine = Lsm::open(Arc::new(Ram::new()), Env::system(1), Options::default()).unwrap();
        let engine = RecordingEngine::new(Arc::new(engine), recorder.clone());
        (directory, path, recorder, engine)
    }

    /// The lines without times.
    fn lines(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter(|line| !line.starts_with('@')).map(str::to_owned).collect()
    }

    #[test]
    fn requests_are_recorded_in_order() {
        let (_directory, path, recorder, engine) = recorded();
        let mut batch = WriteBatch::new();
        batch.put(b"a", &[0; 10]).put(b"b c", b"").put_until(b"d", b"x", 1).delete(b"e");
        engine.write(&batch, Durability::Synced).unwrap();
        engine.get(b"b c").unwrap();
        let snapshot = engine.snapshot().unwrap();
        engine.get_at(b"\xff", &snapshot).unwrap();
        engine.get(b"").unwrap();
        // A lookup of an invalid key and an unused cursor are not recorded.
        assert!(engine.get(&[0; MAX_KEY_BYTES + 1]).is_err());
        drop(engine.iter().unwrap());
        recorder.finish().unwrap();
        assert_eq!(
            lines(&path),
            ["put a 10", "put b\\x20c 0", "put d 1", "del e", "get b\\x20c", "get \\xff", "get \\"]
        );
    }

    #[test]
    fn scan_is_recorded_from_its_smallest_key() {
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
    fn existing_file_is_not_overwritten() {
        let (_directory, path, ..) = recorded();
        assert!(matches!(Recorder::create(&path), Err(Error::Io { .. })));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn write_error_stops_recording_but_not_requests() {
        let file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let state = State { file, lines: Vec::new(), last_time: Duration::ZERO, failed: None };
        let began = OnceLock::from(Instant::now());
        let recorder = Recorder { name: "full".to_owned(), began, state: Mutex::new(state) };
        let (_directory, _, _, engine) = recorded();
        let engine = RecordingEngine::new(engine.engine.clone(), Arc::new(recorder));
        for _ in 0..FLUSH_BYTES {
            engine.get(b"key").unwrap();
        }
        assert!(matches!(engine.recorder.finish(), Err(Error::Io { .. })));
    }
}
