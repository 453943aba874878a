//! Live readers (snapshots and transactions) and the expiry of idle ones.
//!
//! The engine keeps every version that a live [`ReadPoint`] can see: the oldest one is its
//! watermark. A reader that is never used again would hold the watermark back forever, so idle
//! readers expire:
//!
//! ```text
//!   each read         marks its reader as used                            (a store, no clock)
//!   each expiry check used since the last check: the idle time restarts   (up to eight per `idle`)
//!                     not used for `idle`: its read point is returned to the engine
//!   a later read      Error::Expired
//! ```
//!
//! Expiry checks run when a reader begins and when the table is written to, since old versions cost
//! nothing while nobody writes. The clock is the store's. A reader does not expire during a read or
//! a commit. An iterator keeps files of the engine open until it is dropped or moved, even if its
//! reader has expired.
//!
//! Source: the watermark of SEMEL and SkimpyFTL (Misra et al., "Multi-version Indexing in
//! Flash-based Key-Value Stores", section 3.4), which follows Centiman (Ding et al., SoCC 2015).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use siltstone_engine::{Clock, Cursor, Error, ReadPoint, Result, Timestamp};

/// Expiry checks within the time after which an idle reader expires.
const EXPIRY_CHECKS_PER_IDLE: u64 = 8;

/// The live readers of one table.
pub(crate) struct Readers {
    clock: Arc<dyn Clock>,
    /// In milliseconds. `None`: readers never expire.
    idle: Option<u64>,
    live: Mutex<LiveReaders>,
    count: AtomicUsize,
    expired: AtomicU64,
}

#[derive(Default)]
struct LiveReaders {
    readers: BTreeMap<u64, Arc<ReaderState>>,
    next: u64,
    checked_at: Timestamp,
}

/// A live reader's share of the engine's state.
struct ReaderState {
    point: RwLock<Option<ReadPoint>>,
    sequence: u64,
    used: AtomicBool,
    /// The time of the last expiry check that found it used.
    last_used_at: AtomicU64,
    /// Runs once when the reader ends, dropped or expired.
    on_end: Box<dyn Fn() + Send + Sync>,
}

impl Readers {
    pub(crate) fn new(clock: Arc<dyn Clock>, idle: Option<Duration>) -> Arc<Self> {
        Arc::new(Readers {
            clock,
            idle: idle.map(|idle| idle.as_millis() as u64),
            live: Mutex::default(),
            count: AtomicUsize::new(0),
            expired: AtomicU64::new(0),
        })
    }

    /// Registers a reader; `on_end` is called once, when it is dropped or expires.
    pub(crate) fn begin(
        self: &Arc<Self>,
        kind: &'static str,
        point: ReadPoint,
        on_end: Box<dyn Fn() + Send + Sync>,
    ) -> Reader {
        let state = Arc::new(ReaderState {
            sequence: point.sequence(),
            point: RwLock::new(Some(point)),
            used: AtomicBool::new(false),
            last_used_at: AtomicU64::new(self.clock.now()),
            on_end,
        });
        let mut live = self.live.lock();
        let id = live.next;
        live.next += 1;
        live.readers.insert(id, state.clone());
        self.count.store(live.readers.len(), Relaxed);
        drop(live);
        Reader { readers: self.clone(), id, kind, state }
    }

    /// Expires readers that have been idle for too long, if a check is due.
    pub(crate) fn expire_idle(&self) {
        let Some(idle) = self.idle else { return };
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let now = self.clock.now();
        let mut live = self.live.lock();
        // After the clock went back, the intervals start again.
        let since = now.checked_sub(live.checked_at);
        if since.is_some_and(|since| since < (idle / EXPIRY_CHECKS_PER_IDLE).max(1)) {
            return;
        }
        live.checked_at = now;
        let mut expired = Vec::new();
        for (id, state) in &live.readers {
            let used_at = state.last_used_at.load(Relaxed);
            if state.used.swap(false, Relaxed) || used_at > now {
                state.last_used_at.store(now, Relaxed);
            } else if now - used_at >= idle
                && let Some(mut point) = state.point.try_write()
            {
                *point = None;
                expired.push(*id);
            }
        }
        let expired: Vec<_> = expired.iter().filter_map(|id| live.readers.remove(id)).collect();
        self.count.store(live.readers.len(), Relaxed);
        drop(live);
        self.expired.fetch_add(expired.len() as u64, Relaxed);
        expired.iter().for_each(|state| (state.on_end)());
    }

    /// The lowest sequence number that a live reader can still read at.
    pub(crate) fn watermark(&self) -> Option<u64> {
        self.live.lock().readers.values().map(|state| state.sequence).min()
    }

    /// The number of live readers.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// The number of expired readers.
    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Relaxed)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }
}

/// A live reader; dropping it ends it.
pub(crate) struct Reader {
    readers: Arc<Readers>,
    id: u64,
    kind: &'static str,
    state: Arc<ReaderState>,
}

/// The read point of a reader. The reader does not expire while the guard lives.
pub(crate) struct PointGuard<'a>(RwLockReadGuard<'a, Option<ReadPoint>>);

impl Reader {
    /// The point to read at.
    ///
    /// # Errors
    /// [`Error::Expired`].
    pub(crate) fn point(&self) -> Result<PointGuard<'_>> {
        let point = self.state.point.read();
        if point.is_none() {
            return Err(self.expired());
        }
        self.state.used.store(true, Relaxed);
        Ok(PointGuard(point))
    }

    /// Binds a cursor of the engine to this reader.
    pub(crate) fn cursor(self: &Arc<Self>, cursor: Box<dyn Cursor>) -> Box<dyn Cursor> {
        Box::new(ReaderCursor { reader: self.clone(), cursor: Some(cursor) })
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// The sequence number at which it reads.
    pub(crate) fn sequence(&self) -> u64 {
        self.state.sequence
    }

    fn expired(&self) -> Error {
        let idle = self.readers.idle.unwrap_or_default();
        Error::Expired {
            reader: self.kind,
            reason: format!(
                "it was not used for {idle} ms, and the versions it saw are no longer kept \
                 (TransactionOptions::idle)"
            ),
        }
    }
}

impl std::ops::Deref for PointGuard<'_> {
    type Target = ReadPoint;

    fn deref(&self) -> &ReadPoint {
        self.0.as_ref().expect("`point` checked that there is one")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut live = self.readers.live.lock();
        let removed = live.readers.remove(&self.id);
        self.readers.count.store(live.readers.len(), Relaxed);
        drop(live);
        // Missing if it expired: then `on_end` has run.
        if let Some(state) = removed {
            (state.on_end)();
        }
    }
}

/// A cursor that fails once its reader has expired; each move counts as a use of the reader.
struct ReaderCursor {
    reader: Arc<Reader>,
    cursor: Option<Box<dyn Cursor>>,
}

impl ReaderCursor {
    fn step(&mut self, step: impl FnOnce(&mut dyn Cursor) -> Result<bool>) -> Result<bool> {
        match self.reader.point() {
            Ok(_in_use) => {
                step(self.cursor.as_mut().expect("present until its reader expires").as_mut())
            }
            Err(expired) => {
                self.cursor = None;
                Err(expired)
            }
        }
    }

    fn positioned(&self) -> &dyn Cursor {
        self.cursor.as_deref().expect("the cursor is on an entry")
    }
}

impl Cursor for ReaderCursor {
    fn first(&mut self) -> Result<bool> {
        self.step(|cursor| cursor.first())
    }

    fn last(&mut self) -> Result<bool> {
        self.step(|cursor| cursor.last())
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.step(|cursor| cursor.seek(key))
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        self.step(|cursor| cursor.seek_back(key))
    }

    fn next(&mut self) -> Result<bool> {
        self.step(|cursor| cursor.next())
    }

    fn prev(&mut self) -> Result<bool> {
        self.step(|cursor| cursor.prev())
    }

    fn skip_values(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.skip_values();
        }
    }

    fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| cursor.valid())
    }

    fn key(&self) -> &[u8] {
        self.positioned().key()
    }

    fn value(&self) -> &[u8] {
        self.positioned().value()
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.positioned().expires_at()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use siltstone_engine::ManualClock;

    #[test]
    fn reader_in_use_does_not_expire_and_ends_once() {
        let clock = Arc::new(ManualClock::at(1000));
        let readers = Readers::new(clock.clone(), Some(Duration::from_millis(100)));
        let ends = Arc::new(AtomicU64::new(0));
        let counted = ends.clone();
        let on_end = Box::new(move || _ = counted.fetch_add(1, Relaxed));
        let reader = readers.begin("transaction", ReadPoint::new(7, Arc::new(())), on_end);
        let check = || {
            clock.advance(100);
            readers.expire_idle();
        };
        let in_use = reader.point().unwrap();
        (0..5).for_each(|_| check());
        assert_eq!((in_use.sequence(), readers.count()), (7, 1));
        drop(in_use);
        check();
        assert!(matches!(reader.point(), Err(Error::Expired { .. })));
        assert_eq!((readers.count(), readers.watermark()), (0, None));
        drop(reader);
        assert_eq!(ends.load(Relaxed), 1);
    }
}
