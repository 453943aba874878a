//! A full memtable becomes a table of the root container.
//!
//! Oldest first, one at a time: tables must enter the root in the order of their writes. The
//! manifest edit that adds the table also moves the first log that is needed; only then is the old
//! log removed.
//!
//! Invariant: at every moment a write is in a log that recovery reads or in a table that it opens.
//!
//! Source: LSM-trie paper, section 2.1.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_engine::{BackgroundWork, Priority, Purpose, Result};

use crate::engine::{Inner, State};
use crate::files::Kind;
use crate::htable::{Build, Layout, Piece};
use crate::memtable::Memtable;
use crate::version::{Added, Edit, Place};

/// The container that memtables go to.
pub(crate) const ROOT: Place = Place { level: 0, id: 0 };

impl Inner {
    /// Queues a flush if one is due and none is queued.
    pub(crate) fn schedule_flush(&self) {
        let mut state = self.background.lock();
        if state.flushing == 0 || state.is_flush_queued || self.background.is_stopping() {
            return;
        }
        state.is_flush_queued = true;
        drop(state);
        let weak = self.me.clone();
        self.env.scheduler.spawn(Priority::Flush, move || {
            let Some(inner) = weak.upgrade() else { return };
            let settle = |state: &mut State| state.is_flush_queued = false;
            if inner.background.run(settle, || inner.flush_oldest()) {
                inner.schedule();
            }
        });
    }

    /// Moves what was replayed at opening into a table, so that no new log hangs on an old one.
    pub(crate) fn leave_old_logs(&self) -> Result<()> {
        self.flush()?;
        let first_log = self.view.load().active.first_log;
        self.install(Edit { first_log: Some(first_log), ..Edit::default() }, |_| ())?;
        self.remove_logs_before(first_log);
        Ok(())
    }

    fn flush_oldest(&self) -> Result<()> {
        let view = self.view.load_full();
        let Some(memtable) = view.flushing.first() else { return Ok(()) };
        let next = view.flushing.get(1).unwrap_or(&view.active);
        let began = Instant::now();
        let added = self.write_memtable(memtable)?;
        let edit = Edit {
            first_log: Some(next.first_log),
            last_sequence: Some(memtable.last_sequence()),
            added: added.into_iter().collect(),
            ..Edit::default()
        };
        let file = edit.added.first().map(|added| Kind::HTable.name(added.number));
        self.install(edit, |view| {
            view.flushing.remove(0);
        })
        .inspect_err(|error| {
            // Of a full medium the manifest took its edit back: nobody names the table, and the
            // next attempt writes another.
            if let Some(file) = file.filter(|_| error.is_disk_full()) {
                let _ = self.media.remove(&file);
            }
        })?;
        self.counters.flushes.fetch_add(1, Relaxed);
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        self.remove_logs_before(next.first_log);
        Ok(())
    }

    fn write_memtable(&self, memtable: &Memtable) -> Result<Option<Added>> {
        if memtable.is_empty() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let mut items = Vec::with_capacity(memtable.keys() as usize);
        for item in memtable.items(u64::MAX) {
            let start = bytes.len();
            item.push(&mut bytes);
            let hash = self.versions.shape.hash.hash(item.key);
            items.push((hash, start, bytes.len(), item.value.is_none()));
        }
        items.sort_unstable();
        let pieces: Vec<Piece<'_>> = items
            .iter()
            .map(|&(hash, start, end, is_delete)| Piece {
                hash,
                bytes: &bytes[start..end],
                is_delete,
            })
            .collect();
        let build = self.build(Layout::Buckets, true);
        let added = self.write_table(ROOT, &pieces, build, Purpose::Flush)?;
        self.media.sync_dir(Purpose::Flush)?;
        Ok(Some(added))
    }

    /// How tables are built.
    pub(crate) fn build(&self, layout: Layout, has_filter: bool) -> Build {
        Build {
            bucket_bytes: self.options.bucket_bytes as u32,
            fill: self.options.fill,
            filter_bits: has_filter.then_some(self.options.filter_bits),
            cached_migrations: self.options.cached_migrations,
            layout,
        }
    }

    /// Writes a table; if that fails, nothing of it stays.
    pub(crate) fn write_table(
        &self,
        place: Place,
        items: &[Piece<'_>],
        build: Build,
        purpose: Purpose,
    ) -> Result<Added> {
        let number = self.versions.new_number();
        let media = self.media.as_ref();
        let built =
            build.write(media, number, items, &self.env.rate, purpose).inspect_err(|_| {
                let _ = media.remove(&Kind::HTable.name(number));
            })?;
        self.counters.wrote(place.level, built.bytes);
        self.counters.overflow.fetch_add(built.overflow, Relaxed);
        Ok(Added { place, number, bytes: built.bytes, is_oldest: false })
    }

    /// Forgets the logs whose writes are all in tables, and removes them.
    fn remove_logs_before(&self, first_log: u64) {
        let unused = self.writer.lock().as_mut().map(|writer| writer.log.forget_before(first_log));
        drop(unused);
        let mut state = self.background.lock();
        let (gone, needed): (Vec<u64>, _) =
            state.logs.iter().partition(|&&number| number < first_log);
        state.logs = needed;
        drop(state);
        for number in gone {
            // A log that stays behind is removed by the next open.
            let _ = self.media.remove(&Kind::Log.name(number));
        }
    }
}
