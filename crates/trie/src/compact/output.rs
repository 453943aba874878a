//! The tables that a job writes: begun with their first item, gone again if the job fails.
//!
//! Deletions and expired items go on as deletions where something older may lie beneath them, and end
//! where nothing does.
//!
//! Invariant: files of a job that failed do not stay, unless removing them fails too; then the next
//! open removes them.
//!
//! Source: ours.

use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result, Timestamp};

use crate::engine::Inner;
use crate::files::Kind;
use crate::hash::Hash;
use crate::htable::{Build, Expected, Origin, TableWriter};
use crate::item::Item;
use crate::version::{Added, Edit, Place};

/// The table that goes to one container, if anything does.
pub(crate) struct Output<'a> {
    inner: &'a Inner,
    place: Place,
    build: Build,
    last_sequence: u64,
    expected: Expected,
    purpose: Purpose,
    hides: bool,
    now: Timestamp,
    writer: Option<(u64, TableWriter<'a>)>,
}

impl<'a> Output<'a> {
    /// Of writes up to `last_sequence`, so many; `hides`: something older may lie where it goes, or
    /// beneath.
    pub(crate) fn new(
        inner: &'a Inner,
        place: Place,
        (build, purpose): (Build, Purpose),
        (last_sequence, expected): (u64, Expected),
        hides: bool,
    ) -> Self {
        let now = inner.env.clock.now();
        Output { inner, place, build, last_sequence, expected, purpose, hides, now, writer: None }
    }

    /// The next item of the table.
    pub(crate) fn push(&mut self, hash: Hash, item: &Item<'_>) -> Result<()> {
        match (item.is_gone(self.now), self.hides) {
            (true, false) => Ok(()),
            (true, true) => self.writer()?.push(hash, &Item::delete(item.key)),
            (false, _) => self.writer()?.push(hash, item),
        }
    }

    fn writer(&mut self) -> Result<&mut TableWriter<'a>> {
        if self.writer.is_none() {
            let Output { inner, build, expected, purpose, place, last_sequence, .. } = *self;
            let origin = Origin { place, shape: inner.versions.shape, last_sequence };
            let number = inner.versions.new_number();
            let vfs = inner.media_of(self.place.level);
            let rate = &inner.env.rate;
            let media_ref = vfs.as_ref();
            let writer =
                TableWriter::create(media_ref, number, build, origin, expected, rate, purpose)
                    .inspect_err(|_| {
                        let _ = vfs.remove(&Kind::HTable.name(number));
                    })?;
            self.writer = Some((number, writer));
        }
        match &mut self.writer {
            Some((_, writer)) => Ok(writer),
            None => unreachable!("it was made above"),
        }
    }

    /// Bytes that it holds in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.writer.as_ref().map_or(0, |(_, writer)| writer.memory_bytes())
    }

    /// Writes the rest; the table, if there is one, joins `edit`.
    pub(crate) fn finish(mut self, is_oldest: bool, edit: &mut Edit) -> Result<()> {
        let Some((number, writer)) = self.writer.take() else { return Ok(()) };
        let (place, inner) = (self.place, self.inner);
        let built = writer.finish().inspect_err(|_| self.remove(number))?;
        inner.counters.wrote(place.level, built.bytes);
        inner.counters.table_item_bytes.fetch_add(built.item_bytes, Relaxed);
        inner.counters.table_bucket_bytes.fetch_add(built.bucket_bytes, Relaxed);
        inner.counters.table_filter_bytes.fetch_add(built.filter_bytes, Relaxed);
        inner.counters.overflow.fetch_add(built.overflow, Relaxed);
        if self.purpose == Purpose::Compaction {
            inner.counters.items_out.fetch_add(built.items, Relaxed);
        }
        edit.added.push(Added { place, number, bytes: built.bytes, is_oldest });
        Ok(())
    }

    fn remove(&self, number: u64) {
        let _ = self.inner.media_of(self.place.level).remove(&Kind::HTable.name(number));
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        // The job failed before it could finish this table.
        if let Some((number, writer)) = self.writer.take() {
            drop(writer);
            self.remove(number);
        }
    }
}
