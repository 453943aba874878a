//! Flush: writes a full memtable to a table of the root container.
//!
//! Memtables are flushed one at a time, oldest first, so that tables enter the root in write order.
//! The manifest edit that adds the table also advances the first log that recovery needs; the old
//! log is removed only after it.
//!
//! Invariant: at any time a write is in a log that recovery reads or in a table that it opens.
//!
//! Source: LSM-trie paper, section 2.1.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_durable::EditHeader;
use siltstone_engine::{FileInfo, Purpose, Result};

use crate::compact::Output;
use crate::container_id::ContainerId;
use crate::engine::Tree;
use crate::hash::Hash;
use crate::htable::ExpectedSize;
use crate::memtable::{ItemPosition, Memtable};
use crate::version::Edit;
use crate::view::View;

/// The container of flushed memtables.
pub(crate) const ROOT: ContainerId = ContainerId { level: 0, id: 0 };

impl Tree {
    pub(crate) fn flush_oldest_of(&self, view: &View) -> Result<Vec<FileInfo>> {
        let Some(memtable) = view.flushing.first() else { return Ok(Vec::new()) };
        let next = view.flushing.get(1).unwrap_or(&view.active);
        let began = Instant::now();
        let mut edit = Edit {
            header: EditHeader {
                first_log: Some(next.first_log),
                last_sequence: Some(memtable.last_sequence()),
                ..EditHeader::default()
            },
            ..Edit::default()
        };
        let expired = self.write_memtable(memtable, &mut edit)?;
        let files = Edit { added: edit.added.clone(), ..Edit::default() };
        let installed = self.install(view.generation, edit, |view| {
            view.flushing.remove(0);
        });
        match installed {
            Ok(true) => {}
            // All keys were cleared meanwhile.
            Ok(false) => {
                self.remove_files(&files);
                return Ok(Vec::new());
            }
            Err(error) => {
                // The manifest does not name the table then, and a retry writes another one.
                if error.is_transient() {
                    self.remove_files(&files);
                }
                return Err(error);
            }
        }
        self.counters.flushes.fetch_add(1, Relaxed);
        self.counters.expired.fetch_add(expired, Relaxed);
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        self.discard_logs_before(next.first_log, &[]);
        Ok(files.infos())
    }

    /// Returns the number of expired items.
    fn write_memtable(&self, memtable: &Memtable, edit: &mut Edit) -> Result<u64> {
        if memtable.is_empty() {
            return Ok(0);
        }
        let hash = self.config.hash;
        let frozen = memtable.freeze();
        let mut items: Vec<(Hash, ItemPosition)> = Vec::with_capacity(memtable.keys() as usize);
        let mut bytes = 0;
        items.extend(frozen.items().map(|(position, item)| {
            bytes += (item.key.len() + item.value.map_or(0, <[u8]>::len)) as u64;
            (hash.hash(item.key), position)
        }));
        items.sort_unstable();
        let expected = ExpectedSize { items: items.len() as u64, bytes };
        let build = self.options.build(self.options.layout());
        let content = (memtable.last_sequence(), expected);
        let mut output = Output::new(self, ROOT, (build, Purpose::Flush), content, true);
        for &(hash, position) in &items {
            output.push(hash, &frozen.item(position))?;
        }
        let expired = output.finish(false, edit)?;
        self.sync_dirs(Purpose::Flush)?;
        Ok(expired)
    }
}
