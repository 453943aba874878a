//! How a read travels: a view is pinned, then searched from the newest data to the oldest.
//!
//! ```text
//!   get(key)   active memtable → flushing memtables, newest first → level-0 rows, newest first
//!              → level 1 → level 2 → …      the first version found is the newest: stop there
//! ```
//!
//! A view is one pointer, loaded without a lock; nothing it names goes away while it is held.

mod ahead;
mod cursor;
mod level;
mod merge;
mod random;
mod row;
mod source;

pub(crate) use ahead::AheadShare;
pub(crate) use cursor::TreeCursor;
pub(crate) use level::LevelIter;
pub(crate) use merge::Merge;
pub(crate) use source::{MemtableIter, Source};

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use siltstone_engine::{Entry, Error, Purpose, ReadPoint, Result};
use siltstone_structures::hash64;
use siltstone_table::{Found, IterOptions, Kind};

use crate::engine::Inner;
use crate::memtable::{Memtable, kind_of};
use crate::rowtable::{RowVersion, Tally, hints};
use crate::version::{InRow, Row, Version};

/// All that a read can see: the memtables and the files of one moment.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// The one that stands for persistent memory (`level0=novelsm`), if it has any writes: of every
    /// key it has the newest.
    pub(crate) large: Option<Arc<Memtable>>,
    /// Full memtables on their way to level 0, oldest first.
    pub(crate) flushing: Vec<Arc<Memtable>>,
    pub(crate) version: Arc<Version>,
    /// How often all keys were removed since the opening: what a job made of an earlier
    /// generation's memtables and tables is of no use.
    pub(crate) generation: u64,
}

impl View {
    /// The memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.large.iter().chain([&self.active]).chain(self.flushing.iter().rev())
    }

    /// Every sorted run of the view, for a cursor at sequence `at`. Rows in files wait: most seeks need few.
    pub(crate) fn runs(&self, at: u64) -> Vec<Source> {
        let (purpose, options) = (Purpose::Scan, IterOptions::SCAN);
        let memtables =
            self.memtables().map(|m| Source::Memtable(MemtableIter::new(m.tree().cursor(), at)));
        let rows = self.version.level0.iter().enumerate().map(|(i, row)| match row.nvm() {
            None => Source::Waiting(i),
            Some(_) => Source::of_row(row, purpose, options),
        });
        let levels = self.version.levels.iter().filter(|tables| !tables.is_empty()).cloned();
        let levels =
            levels.map(|tables| Source::Level(Box::new(LevelIter::new(tables, purpose, options))));
        memtables.chain(rows).chain(levels).collect()
    }

    /// The newest version of `key` that is not newer than `at`. `hints`: neighbouring rows in
    /// persistent memory narrow each other's searches; `tally` is told of what they read.
    fn find(&self, key: &[u8], at: u64, hints: bool, tally: &mut Tally) -> Result<Option<Seen>> {
        for memtable in self.memtables() {
            if let Some(version) = memtable.tree().get(key, at) {
                let kind = kind_of(version.kind);
                let value = version.value.to_vec();
                return Ok(Some(Seen { kind, expires_at: version.expires_at, value }));
            }
        }
        let hash = hash64(key);
        let found = self.find_in_rows(key, hash, at, hints, tally);
        if let Some(row) = self.version.nvm_rows().next() {
            row.note_read(tally, Purpose::Get);
        }
        if let Some(seen) = found? {
            return Ok(Some(seen));
        }
        for tables in &self.version.levels {
            let at_or_after = tables.partition_point(|table| table.largest() < key);
            if let Some(file) = tables.get(at_or_after)
                && let Some(found) = file.get(key, hash, at)?
            {
                return Ok(Some(found.into()));
            }
        }
        Ok(None)
    }

    fn find_in_rows(
        &self,
        key: &[u8],
        hash: u64,
        at: u64,
        hints: bool,
        tally: &mut Tally,
    ) -> Result<Option<Seen>> {
        let live = &self.version.level0[..self.version.live_rows(key).0];
        for rows in live.chunk_by(are_linked) {
            if hints && rows[0].nvm().is_some() {
                let live = rows.iter().filter(|row| row.live().contains(key));
                if let Some(found) = hints::get(live.filter_map(Row::nvm), key, at, tally)? {
                    return Ok(Some(found.into()));
                }
                continue;
            }
            for row in rows {
                if let Some(found) = row.get(key, hash, at, tally)? {
                    return Ok(Some(found.into()));
                }
            }
        }
        Ok(None)
    }
}

/// Rows that one search by hints goes through.
fn are_linked(newer: &Row, older: &Row) -> bool {
    newer.nvm().is_some() && older.nvm().is_some()
}

/// A version of a key that a lookup found, copied out of where it stood.
struct Seen {
    kind: Kind,
    expires_at: u64,
    value: Vec<u8>,
}

impl From<RowVersion> for Seen {
    fn from(RowVersion { kind, expires_at, value, .. }: RowVersion) -> Self {
        Seen { kind, expires_at, value }
    }
}

impl From<InRow> for Seen {
    fn from(found: InRow) -> Self {
        match found {
            InRow::Table(found) => found.into(),
            InRow::Nvm(found) => found.into(),
            InRow::Log(logged, record) => {
                let (kind, expires_at) = (logged.kind(), logged.expires_at);
                Seen { kind, expires_at, value: logged.cut_out(record) }
            }
        }
    }
}

impl From<Found> for Seen {
    fn from(found: Found) -> Self {
        let value = found.value().to_vec();
        Seen { kind: found.kind, expires_at: found.expires_at, value }
    }
}

impl Inner {
    /// The entry of `key` as of `point`, or now.
    pub(crate) fn get(&self, key: &[u8], point: Option<&ReadPoint>) -> Result<Option<Entry>> {
        siltstone_engine::entry::check_key(key)?;
        let (view, at) = self.pin(point)?;
        self.counters.gets.fetch_add(1, Relaxed);
        let mut tally = Tally::default();
        let found = view.find(key, at, self.options.hints, &mut tally);
        self.counters.searched_rows(&tally);
        let Some(found) = found? else { return Ok(None) };
        let expires_at = (found.kind == Kind::PutExpiring).then_some(found.expires_at);
        let is_gone = found.kind == Kind::Delete
            || expires_at.is_some_and(|expires_at| expires_at <= self.env.clock.now());
        if is_gone {
            return Ok(None);
        }
        self.counters.gets_found.fetch_add(1, Relaxed);
        Ok(Some(Entry { value: found.value, expires_at }))
    }

    /// A view, and the sequence number up to which to read in it.
    ///
    /// The view is loaded before the sequence: then it holds every write up to the sequence that
    /// this thread could have seen, and no version that is needed was compacted away in between.
    ///
    /// Of writes since then that went to a memtable of the view and to a new one a reader would see a part. While
    /// memtables are filled one after the other there are none; beside a large one there are, so that the
    /// view must still be the present one.
    pub(crate) fn pin(&self, point: Option<&ReadPoint>) -> Result<(Arc<View>, u64)> {
        self.background.check_open()?;
        let mut view = self.view.load_full();
        match point {
            None => loop {
                let at = self.visible.load(Acquire);
                let present = self.has_large().then(|| self.view.load_full());
                match present.filter(|present| !Arc::ptr_eq(present, &view)) {
                    Some(present) => view = present,
                    None => return Ok((view, at)),
                }
            },
            Some(point) if self.snapshots.owns(point) => {
                let at = point.sequence();
                // After the present view, of which it may already be known that it is too new.
                Ok((self.snapshots.view_before_clear(at).unwrap_or(view), at))
            }
            Some(_) => Err(Error::Invalid("this snapshot belongs to another table".into())),
        }
    }
}
