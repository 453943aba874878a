//! Who reads at which moment, and what becomes of those who fall silent.
//!
//! The engine keeps every version that a live [`ReadPoint`] can see: its watermark is the oldest of
//! them. A reader that is held and never used again would hold it back for ever, so readers expire:
//!
//! ```text
//!   every read        marks its reader as used                             (a store, no clock)
//!   every look        used since the last look: it lives on from now       (at most eight in `idle`)
//!                     not used for `idle`: its read point goes back to the engine
//!   a read after that Error::Expired
//! ```
//!
//! Looks happen when readers begin and when the table is written to: while nobody writes, an old
//! version costs nothing. The clock is the store's. A reader that is inside a read or a commit does not
//! expire. An iterator holds files of the engine's until it is dropped or moved, even if its reader has
//! expired.
//!
//! Source: the watermark of SEMEL and SkimpyFTL (Misra et al., "Multi-version Indexing in Flash-based
//! Key-Value Stores", section 3.4), which follows Centiman (Ding et al., SoCC 2015).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use siltstone_engine::{Clock, Cursor, Error, ReadPoint, Result, Timestamp};

/// Looks in the time after which a silent reader expires.
const LOOKS: u64 = 8;

/// The live readers of one table.
pub(crate) struct Readers {
    clock: Arc<dyn Clock>,
    /// In milliseconds; none: readers live for ever.
    idle: Option<u64>,
    live: Mutex<Live>,
    count: AtomicUsize,
    expired: AtomicU64,
}

#[derive(Default)]
struct Live {
    readers: BTreeMap<u64, Arc<Held>>,
    next: u64,
    looked_at: Timestamp,
}

/// What a reader holds of the engine.
struct Held {
    point: RwLock<Option<ReadPoint>>,
    sequence: u64,
    used: AtomicBool,
    /// By the clock of the last look that found it used.
    used_at: AtomicU64,
    /// Runs when the reader has ended, however it did.
    ended: Box<dyn Fn() + Send + Sync>,
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

    /// Lets a reader live; `ended` is called once, when it is dropped or expires.
    pub(crate) fn begin(
        self: &Arc<Self>,
        kind: &'static str,
        point: ReadPoint,
        ended: Box<dyn Fn() + Send + Sync>,
    ) -> Reader {
        let held = Arc::new(Held {
            sequence: point.sequence(),
            point: RwLock::new(Some(point)),
            used: AtomicBool::new(false),
            used_at: AtomicU64::new(self.clock.now()),
            ended,
        });
        let mut live = self.live.lock();
        let id = live.next;
        live.next += 1;
        live.readers.insert(id, held.clone());
        self.count.store(live.readers.len(), Relaxed);
        drop(live);
        Reader { readers: self.clone(), id, kind, held }
    }

    /// Ends readers that have been silent for too long, if it is time to look.
    pub(crate) fn look(&self) {
        let Some(idle) = self.idle else { return };
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let now = self.clock.now();
        let mut live = self.live.lock();
        // A clock that went back begins anew.
        let since = now.checked_sub(live.looked_at);
        if since.is_some_and(|since| since < (idle / LOOKS).max(1)) {
            return;
        }
        live.looked_at = now;
        let mut silent = Vec::new();
        for (id, held) in &live.readers {
            let used_at = held.used_at.load(Relaxed);
            if held.used.swap(false, Relaxed) || used_at > now {
                held.used_at.store(now, Relaxed);
            } else if now - used_at >= idle
                && let Some(mut point) = held.point.try_write()
            {
                *point = None;
                silent.push(*id);
            }
        }
        let silent: Vec<_> = silent.iter().filter_map(|id| live.readers.remove(id)).collect();
        self.count.store(live.readers.len(), Relaxed);
        drop(live);
        self.expired.fetch_add(silent.len() as u64, Relaxed);
        silent.iter().for_each(|held| (held.ended)());
    }

    /// The least sequence number that a live reader may still ask for.
    pub(crate) fn watermark(&self) -> Option<u64> {
        self.live.lock().readers.values().map(|held| held.sequence).min()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// How many have expired.
    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Relaxed)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// A live reader; dropping it ends it.
pub(crate) struct Reader {
    readers: Arc<Readers>,
    id: u64,
    kind: &'static str,
    held: Arc<Held>,
}

/// The read point of a reader, which does not expire while this is held.
pub(crate) struct InUse<'a>(RwLockReadGuard<'a, Option<ReadPoint>>);

impl Reader {
    /// The moment to read at.
    ///
    /// # Errors
    /// [`Error::Expired`].
    pub(crate) fn point(&self) -> Result<InUse<'_>> {
        let point = self.held.point.read();
        if point.is_none() {
            return Err(self.expired());
        }
        self.held.used.store(true, Relaxed);
        Ok(InUse(point))
    }

    /// A cursor of the engine that knows its reader.
    pub(crate) fn cursor(self: &Arc<Self>, cursor: Box<dyn Cursor>) -> Box<dyn Cursor> {
        Box::new(ReaderCursor { reader: self.clone(), cursor: Some(cursor) })
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
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

impl std::ops::Deref for InUse<'_> {
    type Target = ReadPoint;

    fn deref(&self) -> &ReadPoint {
        self.0.as_ref().expect("a point in use is there")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut live = self.readers.live.lock();
        let ended = live.readers.remove(&self.id);
        self.readers.count.store(live.readers.len(), Relaxed);
        drop(live);
        // Not there: it has expired, and was told so then.
        if let Some(held) = ended {
            (held.ended)();
        }
    }
}

/// A cursor that is refused once its reader has expired, and keeps it from expiring by being used.
struct ReaderCursor {
    reader: Arc<Reader>,
    cursor: Option<Box<dyn Cursor>>,
}

impl ReaderCursor {
    fn step(&mut self, step: impl FnOnce(&mut dyn Cursor) -> Result<bool>) -> Result<bool> {
        match self.reader.point() {
            Ok(_in_use) => {
                step(self.cursor.as_mut().expect("held while its reader lives").as_mut())
            }
            Err(expired) => {
                self.cursor = None;
                Err(expired)
            }
        }
    }

    fn standing(&self) -> &dyn Cursor {
        self.cursor.as_deref().expect("the cursor stands on an entry")
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

    fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| cursor.valid())
    }

    fn key(&self) -> &[u8] {
        self.standing().key()
    }

    fn value(&self) -> &[u8] {
        self.standing().value()
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.standing().expires_at()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use siltstone_engine::ManualClock;

    #[test]
    fn a_reader_in_use_does_not_expire_and_ends_once() {
        let clock = Arc::new(ManualClock::at(1000));
        let readers = Readers::new(clock.clone(), Some(Duration::from_millis(100)));
        let ends = Arc::new(AtomicU64::new(0));
        let counted = ends.clone();
        let ended = Box::new(move || _ = counted.fetch_add(1, Relaxed));
        let reader = readers.begin("transaction", ReadPoint::new(7, Arc::new(())), ended);
        let look = || {
            clock.advance(100);
            readers.look();
        };
        let in_use = reader.point().unwrap();
        (0..5).for_each(|_| look());
        assert_eq!((in_use.sequence(), readers.count()), (7, 1));
        drop(in_use);
        look();
        assert!(matches!(reader.point(), Err(Error::Expired { .. })));
        assert_eq!((readers.count(), readers.watermark()), (0, None));
        drop(reader);
        assert_eq!(ends.load(Relaxed), 1);
    }
}
