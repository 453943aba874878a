//! Adapters from other stores to our engine API, as far as workloads need it.
//!
//! ```text
//!   Store (get, write, cursor …), one per library ─▶ Peer: an Engine ─▶ the runner
//!   StoreCursor (first, seek, next …) ────────────▶ RangeCursor: a Cursor
//! ```
//!
//! The user's operations are counted here, in the same way for all. Bytes written to storage are
//! reported by the library if it counts them, else by the kernel: the reads and writes of this
//! process since the store was opened, and their bytes (`/proc/self/io`). Reads of memory-mapped
//! files are not included.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use siltstone_bench::run::process;
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, IoCounts, KeyRange, ReadPoint,
    Result, Stats, Timestamp, VerifyReport, WriteBatch,
};

/// An ordered store of a peer.
pub(super) trait Store: Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;
    /// Whether it reads memory-mapped files, which the kernel does not count.
    const MAPS_FILES: bool = false;
    /// Maximal size of a value.
    const MAX_VALUE_BYTES: usize = 1 << 30;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Writes a batch atomically.
    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()>;

    /// Makes all writes durable.
    fn sync(&self) -> Result<()>;

    /// A cursor over the current state.
    fn cursor(self: &Arc<Self>) -> Result<Box<dyn StoreCursor>>;

    /// Flushes memtables, if the store has any.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until background work is idle.
    fn wait_until_idle(&self) -> Result<()> {
        Ok(())
    }

    /// Statistics of the store, with `io` if it counts its writes.
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// A move of a cursor.
#[derive(Debug, Clone, Copy)]
pub(super) enum CursorMove<'a> {
    First,
    Last,
    /// To the first entry at or after the key.
    Seek(&'a [u8]),
    /// To the last entry at or before the key.
    SeekBack(&'a [u8]),
    Next,
    Prev,
}

/// A cursor in key order; `Next` and `Prev` are only used at an entry.
pub(super) trait StoreCursor: Send {
    /// Moves the cursor; `true` if it is at an entry then.
    fn move_to(&mut self, target: CursorMove<'_>) -> Result<bool>;
    /// The key of the current entry.
    fn key(&self) -> &[u8];
    /// The value of the current entry.
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
            before: kernel_io_counts(),
            user_bytes: AtomicU64::default(),
            writes: AtomicU64::default(),
            gets: AtomicU64::default(),
            gets_found: AtomicU64::default(),
            seeks: AtomicU64::default(),
        }
    }
}

/// The I/O counters of this process; 0 if the kernel does not offer them.
fn kernel_io_counts() -> IoCounts {
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

/// Waits until this process has written nothing for a second, for stores that do not report
/// background work.
pub(super) fn wait_until_idle() {
    let mut before = kernel_io_counts().bytes_written;
    let mut idle_polls = 0;
    while idle_polls < 10 {
        std::thread::sleep(Duration::from_millis(100));
        let now = kernel_io_counts().bytes_written;
        idle_polls = if now == before { idle_polls + 1 } else { 0 };
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
            range_deletes: false,
            merge: false,
            change_feed: false,
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
        Ok(Box::new(RangeCursor { cursor: self.store.cursor()?, range, valid: false }))
    }

    fn flush(&self) -> Result<()> {
        self.store.flush()
    }

    fn maintain(&self) -> Result<()> {
        self.store.wait_until_idle()
    }

    fn checkpoint(&self, _: &mut dyn CheckpointSink) -> Result<()> {
        Err(self.unsupported("checkpoints"))
    }

    fn verify(&self, _: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        Err(self.unsupported("verification"))
    }

    fn stats(&self) -> Stats {
        let mut stats = self.store.stats();
        let (now, before) = (kernel_io_counts(), self.before);
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

/// A cursor that is limited to a range.
struct RangeCursor {
    cursor: Box<dyn StoreCursor>,
    range: KeyRange,
    valid: bool,
}

impl RangeCursor {
    fn move_to(&mut self, target: CursorMove<'_>) -> Result<bool> {
        self.valid = false;
        self.valid = self.cursor.move_to(target)? && self.range.contains(self.cursor.key());
        Ok(self.valid)
    }
}

impl Cursor for RangeCursor {
    fn first(&mut self) -> Result<bool> {
        match self.range.start.clone() {
            Bound::Included(start) => self.move_to(CursorMove::Seek(&start)),
            Bound::Excluded(start) => self.move_to(CursorMove::Seek(&[&start[..], &[0]].concat())),
            Bound::Unbounded => self.move_to(CursorMove::First),
        }
    }

    fn last(&mut self) -> Result<bool> {
        match self.range.end.clone() {
            Bound::Included(end) => self.move_to(CursorMove::SeekBack(&end)),
            Bound::Excluded(end) => {
                let exists = self.cursor.move_to(CursorMove::SeekBack(&end))?;
                if exists && self.cursor.key() == end {
                    return self.move_to(CursorMove::Prev);
                }
                self.valid = exists && self.range.contains(self.cursor.key());
                Ok(self.valid)
            }
            Bound::Unbounded => self.move_to(CursorMove::Last),
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.move_to(CursorMove::Seek(key))
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        self.move_to(CursorMove::SeekBack(key))
    }

    fn next(&mut self) -> Result<bool> {
        assert!(self.valid, "the cursor is at no entry");
        self.move_to(CursorMove::Next)
    }

    fn prev(&mut self) -> Result<bool> {
        assert!(self.valid, "the cursor is at no entry");
        self.move_to(CursorMove::Prev)
    }

    fn valid(&self) -> bool {
        self.valid
    }

    fn key(&self) -> &[u8] {
        assert!(self.valid, "the cursor is at no entry");
        self.cursor.key()
    }

    fn value(&self) -> &[u8] {
        assert!(self.valid, "the cursor is at no entry");
        self.cursor.value()
    }

    fn expires_at(&self) -> Option<Timestamp> {
        None
    }
}

/// A test of the engine API that every peer must pass.
#[cfg(test)]
pub(super) fn check_peer(engine: &dyn Engine) -> Result<()> {
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
    let mut count = 0;
    let mut valid = cursor.first()?;
    while valid {
        count += 1;
        valid = cursor.next()?;
    }
    assert_eq!(count, 1000);
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
