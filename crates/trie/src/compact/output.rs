//! The output tables of a job: created with their first item, removed if the job fails.
//!
//! Deleted and expired items are written as deletions if a deeper level may have older items, and
//! dropped otherwise.
//!
//! Invariant: the files of a failed job are removed; if that fails too, the next open removes them.

use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result, Timestamp};

use crate::container_id::ContainerId;
use crate::engine::Tree;
use crate::files::Kind;
use crate::hash::Hash;
use crate::htable::{Build, ExpectedSize, Origin, TableWriter};
use crate::item::Item;
use crate::version::{AddedTable, Edit};

/// The output table for one container, created by its first item.
pub(crate) struct Output<'a> {
    tree: &'a Tree,
    container_id: ContainerId,
    build: Build,
    last_sequence: u64,
    expected: ExpectedSize,
    purpose: Purpose,
    hides: bool,
    now: Timestamp,
    /// Expired items that were dropped or replaced by deletions.
    expired: u64,
    writer: Option<(u64, TableWriter<'a>)>,
}

impl<'a> Output<'a> {
    /// An output with writes up to `last_sequence`, of the expected size; `hides`: older items may
    /// be in its container or below.
    pub(crate) fn new(
        tree: &'a Tree,
        container_id: ContainerId,
        (build, purpose): (Build, Purpose),
        (last_sequence, expected): (u64, ExpectedSize),
        hides: bool,
    ) -> Self {
        let now = tree.env.clock.earliest();
        Output {
            tree,
            container_id,
            build,
            last_sequence,
            expected,
            purpose,
            hides,
            now,
            expired: 0,
            writer: None,
        }
    }

    /// Adds the next item of the table.
    pub(crate) fn push(&mut self, hash: Hash, item: &Item<'_>) -> Result<()> {
        let is_gone = item.is_gone(self.now);
        self.expired += u64::from(is_gone && item.value.is_some());
        match (is_gone, self.hides) {
            (true, false) => Ok(()),
            (true, true) => self.writer()?.push(hash, &Item::delete(item.key)),
            (false, _) => self.writer()?.push(hash, item),
        }
    }

    fn writer(&mut self) -> Result<&mut TableWriter<'a>> {
        if self.writer.is_none() {
            let Output { tree, build, expected, purpose, container_id, last_sequence, .. } = *self;
            let origin = Origin { container_id, config: tree.config, last_sequence };
            let number = tree.versions.new_number();
            let vfs = tree.tier_of(self.container_id.level);
            let rate = &tree.env.rate;
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

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.writer.as_ref().map_or(0, |(_, writer)| writer.memory_bytes())
    }

    /// Finishes the table, if there is one, and adds it to `edit`. Returns the number of expired
    /// items, which are not in the table.
    pub(crate) fn finish(mut self, is_oldest: bool, edit: &mut Edit) -> Result<u64> {
        let Some((number, writer)) = self.writer.take() else { return Ok(self.expired) };
        let (container_id, tree) = (self.container_id, self.tree);
        let summary = writer.finish().inspect_err(|_| self.remove(number))?;
        tree.counters.wrote(container_id.level, summary.bytes);
        tree.counters.table_item_bytes.fetch_add(summary.item_bytes, Relaxed);
        tree.counters.table_bucket_bytes.fetch_add(summary.bucket_bytes, Relaxed);
        tree.counters.table_filter_bytes.fetch_add(summary.filter_bytes, Relaxed);
        tree.counters.overflow.fetch_add(summary.overflow, Relaxed);
        if self.purpose == Purpose::Compaction {
            tree.counters.items_out.fetch_add(summary.items, Relaxed);
        }
        edit.added.push(AddedTable { container_id, number, bytes: summary.bytes, is_oldest });
        Ok(self.expired)
    }

    fn remove(&self, number: u64) {
        let _ = self.tree.tier_of(self.container_id.level).remove(&Kind::HTable.name(number));
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        // The job failed before this table was finished.
        if let Some((number, writer)) = self.writer.take() {
            drop(writer);
            self.remove(number);
        }
    }
}
