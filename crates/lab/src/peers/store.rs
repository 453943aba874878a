//! Stores of others behind our contract, as far as workloads ask.
//!
//! ```text
//!   Store (get, write, walk …), one a library ─▶ Peer: an Engine ─▶ the runner, as any engine of ours
//!   Walk (first, seek, next …) ────────────────▶ Ranged: a Cursor
//! ```
//!
//! What the user asked for is counted here, alike for all. What reached the disk is told by the library
//! itself where it counts that, and else by the kernel: the calls of this process that read and write
//! since the store was opened, and their bytes (`/proc/self/io`). What a store reads by mapping files is
//! not among them.
//!
//! Source: ours.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, IoCounts, KeyRange, ReadPoint,
    Result, Stats, Timestamp, VerifyReport, WriteBatch,
};

use crate::run::process;

/// An ordered store of somebody else's.
pub(super) trait Store: Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;
    /// Whether it reads files by mapping them, which nobody counts.
    const MAPS_FILES: bool = false;
    /// The largest value that it takes.
    const MAX_VALUE_BYTES: usize = 1 << 30;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Writes a batch whole.
    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()>;

    /// Makes all that was written durable.
    fn sync(&self) -> Result<()>;

    /// A walk over the present state.
    fn walk(self: &Arc<Self>) -> Result<Box<dyn Walk>>;

    /// Writes what is buffered in memory to tables; nothing where there are none.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until nothing is left to do in the background.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// What it tells of itself; `io` if it counts what it writes.
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// A step of a walk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    First,
    Last,
    /// To the first entry at the key or behind it.
    Seek(&'a [u8]),
    /// To the last entry at the key or before it.
    SeekBack(&'a [u8]),
    Next,
    Prev,
}

/// A walk in the order of keys; `Next` and `Prev` are only asked for where it stands on an entry.
pub(super) trait Walk: Send {
    /// Does a step; `true` if it stands on an entry then.
    fn go(&mut self, step: Step<'_>) -> Result<bool>;
    /// The key that it stands on.
    fn key(&self) -> &[u8];
    /// The value that it stands on.
    fn value(&self) -> &[u8];
}

/// A store as an engine.
pub(super) struct Peer<S> {
    store: Arc<S>,
    before: IoCounts,
    user_bytes: AtomicU64,
    writes: AtomicU64,
    gets: AtomicU64,
    gets_found: AtomicU64,
    seeks: AtomicU64,
}

impl<S: Store> Peer<S> {
    pub(super) fn new(store: S) -> Self {
        Peer {
            store: Arc::new(store),
            before: asked_of_the_kernel(),
            user_bytes: AtomicU64::default(),
            writes: AtomicU64::default(),
            gets: AtomicU64::default(),
            gets_found: AtomicU64::default(),
            seeks: AtomicU64::default(),
        }
    }
}

/// What this process has asked of the kernel; 0 where it does not tell.
fn asked_of_the_kernel() -> IoCounts {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    IoCounts {
        reads: number("syscr"),
        bytes_read: number("rchar"),
        writes: number("syscw"),
        bytes_written: number("wchar"),
        syncs: 0,
    }
}

/// Waits until this process has written nothing for a second: for stores that do not tell whether they
/// work in the background.
pub(super) fn rest() {
    let mut before = asked_of_the_kernel().bytes_written;
    let mut calm = 0;
    while calm < 10 {
        std::thread::sleep(Duration::from_millis(100));
        let now = asked_of_the_kernel().bytes_written;
        calm = if now == before { calm + 1 } else { 0 };
        before = now;
    }
}

impl<S: Store> Engine for Peer<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            durable: true,
            versioned: false,
            incremental_gc: false,
            max_value_bytes: S::MAX_VALUE_BYTES,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.gets.fetch_add(1, Relaxed);
        let Some(value) = self.store.get(key)? else { return Ok(None) };
        self.gets_found.fetch_add(1, Relaxed);
        Ok(Some(Entry { value, expires_at: None }))
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.store.write(batch, durability)?;
        self.user_bytes.fetch_add(batch.user_bytes(), Relaxed);
        self.writes.fetch_add(batch.len() as u64, Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.range(KeyRange::all(), None)
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        if at.is_some() {
            return Err(self.unsupported("reads at a snapshot"));
        }
        self.seeks.fetch_add(1, Relaxed);
        Ok(Box::new(Ranged { walk: self.store.walk()?, range, valid: false }))
    }

    fn flush(&self) -> Result<()> {
        self.store.flush()
    }

    fn maintain(&self) -> Result<()> {
        self.store.settle()
    }

    fn checkpoint(&self, _: &mut dyn CheckpointSink) -> Result<()> {
        Err(self.unsupported("checkpoints"))
    }

    fn verify(&self, _: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        Err(self.unsupported("verification"))
    }

    fn stats(&self) -> Stats {
        let mut stats = self.store.stats();
        let (now, before) = (asked_of_the_kernel(), self.before);
        let bytes_written = now.bytes_written - before.bytes_written;
        if stats.io.is_empty() {
            stats.io.insert("process", IoCounts { bytes_written, ..IoCounts::default() });
        }
        if !S::MAPS_FILES {
            stats.counters.extend([
                (process::READS, now.reads - before.reads),
                (process::BYTES_READ, now.bytes_read - before.bytes_read),
                (process::WRITES, now.writes - before.writes),
                (process::BYTES_WRITTEN, bytes_written),
            ]);
        }
        Stats {
            engine: S::NAME,
            user_bytes_written: self.user_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            gets: self.gets.load(Relaxed),
            gets_found: self.gets_found.load(Relaxed),
            seeks: self.seeks.load(Relaxed),
            ..stats
        }
    }

    fn close(&self) -> Result<()> {
        self.store.sync()
    }
}

/// A walk that ends with its range.
struct Ranged {
    walk: Box<dyn Walk>,
    range: KeyRange,
    valid: bool,
}

impl Ranged {
    fn go(&mut self, step: Step<'_>) -> Result<bool> {
        self.valid = false;
        self.valid = self.walk.go(step)? && self.range.contains(self.walk.key());
        Ok(self.valid)
    }
}

impl Cursor for Ranged {
    fn first(&mut self) -> Result<bool> {
        match self.range.start.clone() {
            Bound::Included(start) => self.go(Step::Seek(&start)),
            Bound::Excluded(start) => self.go(Step::Seek(&[&start[..], &[0]].concat())),
            Bound::Unbounded => self.go(Step::First),
        }
    }

    fn last(&mut self) -> Result<bool> {
        match self.range.end.clone() {
            Bound::Included(end) => self.go(Step::SeekBack(&end)),
            Bound::Excluded(end) => {
                let is_there = self.walk.go(Step::SeekBack(&end))?;
                if is_there && self.walk.key() == end {
                    return self.go(Step::Prev);
                }
                self.valid = is_there && self.range.contains(self.walk.key());
                Ok(self.valid)
            }
            Bound::Unbounded => self.go(Step::Last),
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.go(Step::Seek(key))
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        self.go(Step::SeekBack(key))
    }

    fn next(&mut self) -> Result<bool> {
        assert!(self.valid, "the cursor stands nowhere");
        self.go(Step::Next)
    }

    fn prev(&mut self) -> Result<bool> {
        assert!(self.valid, "the cursor stands nowhere");
        self.go(Step::Prev)
    }

    fn valid(&self) -> bool {
        self.valid
    }

    fn key(&self) -> &[u8] {
        assert!(self.valid, "the cursor stands nowhere");
        self.walk.key()
    }

    fn value(&self) -> &[u8] {
        assert!(self.valid, "the cursor stands nowhere");
        self.walk.value()
    }

    fn expires_at(&self) -> Option<Timestamp> {
        None
    }
}

/// What every peer must do, asked of each by its own tests.
#[cfg(test)]
pub(super) fn does_it_keep_what_it_is_given(engine: &dyn Engine) -> Result<()> {
    for i in 0..1000u32 {
        let mut batch = WriteBatch::new();
        batch.put(&i.to_be_bytes(), &[i as u8; 100]);
        engine.write(&batch, Durability::Buffered)?;
    }
    let mut batch = WriteBatch::new();
    batch.delete(&7u32.to_be_bytes()).put(b"x", b"");
    engine.write(&batch, Durability::Synced)?;
    engine.flush()?;
    engine.maintain()?;
    assert_eq!(engine.get(&8u32.to_be_bytes())?.map(|entry| entry.value), Some(vec![8; 100]));
    assert_eq!(engine.get(b"x")?.map(|entry| entry.value), Some(vec![]));
    assert_eq!(engine.get(&7u32.to_be_bytes())?, None);
    let mut cursor = engine.iter()?;
    let mut seen = 0;
    let mut valid = cursor.first()?;
    while valid {
        seen += 1;
        valid = cursor.next()?;
    }
    assert_eq!(seen, 1000);
    assert!(cursor.seek(&7u32.to_be_bytes())? && cursor.key() == 8u32.to_be_bytes());
    assert_eq!(cursor.value(), [8; 100]);
    assert!(cursor.seek_back(&7u32.to_be_bytes())? && cursor.key() == 6u32.to_be_bytes());
    assert!(cursor.prev()? && cursor.key() == 5u32.to_be_bytes());
    assert!(cursor.next()? && cursor.key() == 6u32.to_be_bytes());
    assert!(cursor.last()? && cursor.key() == b"x");
    assert!(!cursor.next()?);
    assert!(cursor.seek_back(b"y")? && cursor.key() == b"x");
    assert!(!cursor.seek(b"y")?);
    let bound = |key: u32| key.to_be_bytes().to_vec();
    let (start, end) = (Bound::Included(bound(5)), Bound::Excluded(bound(9)));
    let range = KeyRange { start, end };
    let mut cursor = engine.range(range, None)?;
    assert!(cursor.last()? && cursor.key() == 8u32.to_be_bytes());
    assert!(cursor.first()? && cursor.key() == 5u32.to_be_bytes());
    assert!(!cursor.prev()?);
    let stats = engine.stats();
    assert_eq!(stats.user_bytes_written, 104_000 + 4 + 1);
    let written: u64 = stats.io.values().map(|io| io.bytes_written).sum();
    assert!(written > 104_000, "{:?}", stats.io);
    Ok(())
}
