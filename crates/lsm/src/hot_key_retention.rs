//! TRIAD-MEM: keeps hot keys in memory when their memtable is flushed.
//!
//! ```text
//!   full memtable ── hot keys ──▶ active memtable, and its log as "retained" records
//!                 └─ cold keys ─▶ an L0 run
//! ```
//!
//! The flush thread appends the newest version of each hot key to the active log and memtable, in
//! batches of 64 KiB under the writer lock, and writes only the cold keys to level 0. Keys that a
//! younger memtable already contains are skipped. If the memtable is full only because its log is,
//! and few of its bytes are cold, every key is retained: no L0 run is written and the old log is
//! deleted.
//!
//! Invariants:
//! - A version is retained only if no younger memtable contains its key, so a younger memtable
//!   never contains an older version. It is retained only if no snapshot needs an older version of
//!   the key, so the L0 runs of a key are ordered by their newest entries.
//! - Retained versions keep their sequence numbers.
//! - Before the old log is deleted, every log with retained versions, or with the newer versions
//!   that made retention unnecessary, is synced and recorded in the manifest as synced, because
//!   records in the log itself may be no evidence of it.
//! - A forced flush retains nothing from the moment that it is forced: all of it must be in
//!   tables. Nothing is retained before a checkpoint is copied either, because the copy lacks the
//!   younger memtables.
//!
//! Source: TRIAD paper, section 4.1 and algorithms 1 and 2.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Error, Op, Purpose, Result, WriteBatch};
use siltstone_structures::{EntryRef, Version};
use siltstone_table::Kind;

use crate::engine::Tree;
use crate::hotness::Hotness;
use crate::memtable::{Memtable, kind_of};
use crate::record::{self, Position};

/// The limit of one retained batch under the writer lock.
const MAX_BATCH_BYTES: usize = 64 << 10;

/// The keys between two checks for cancellation.
const CHECK_INTERVAL: usize = 64;

/// A memtable whose newest values take more than this share of its limit is flushed in any case, so
/// that the retained versions leave space for new writes.
const RETAIN_ALL_BELOW: f64 = 0.9;

/// The keys of a memtable, by their index in key order, that need not be flushed.
#[derive(Default)]
pub(crate) struct RetainedKeys {
    skip: Vec<bool>,
    /// The last log with retained versions, and its durable length in bytes.
    pub(crate) synced_log: Option<(u64, u64)>,
}

impl RetainedKeys {
    /// Whether the newest version of the key with index `at` is in a younger memtable, or hidden by
    /// one.
    pub(crate) fn contains(&self, at: usize) -> bool {
        self.skip.get(at).is_some_and(|&skip| skip)
    }
}

impl Tree {
    /// Retains the hot keys of the oldest full memtable in the active one.
    pub(crate) fn retain_hot_keys(&self, memtable: &Arc<Memtable>) -> Result<RetainedKeys> {
        let mut retained = RetainedKeys::default();
        if !self.options.load().triad.mem || !memtable.has_keys() || memtable.is_flush_forced() {
            return Ok(retained);
        }
        let Some(threshold) = self.hot_threshold(memtable)? else { return Ok(retained) };
        retained.skip.resize(memtable.tree().keys(), false);
        let mut batch_keys: Vec<(usize, EntryRef<'_>)> = Vec::new();
        let mut bytes = 0;
        let mut hot = memtable.tree().iter().enumerate().peekable();
        while let Some((at, entry)) = hot.next() {
            if at % CHECK_INTERVAL == 0 {
                self.background.check_cancelled()?;
            }
            if entry.updates() >= threshold {
                bytes += entry.key().len() + entry.newest().value.len();
                batch_keys.push((at, entry));
            }
            if (bytes >= MAX_BATCH_BYTES || hot.peek().is_none()) && !batch_keys.is_empty() {
                if !self.retain_batch(memtable, &batch_keys, &mut retained)? {
                    break;
                }
                batch_keys.clear();
                bytes = 0;
            }
        }
        retained.synced_log = Some(self.sync_logs_from(memtable.first_log + 1)?);
        Ok(retained)
    }

    /// The minimum number of updates of a hot key; `None`: no key is hot, 0: every key is retained.
    fn hot_threshold(&self, memtable: &Memtable) -> Result<Option<u32>> {
        let mut hotness = Hotness::default();
        for (at, entry) in memtable.tree().iter().enumerate() {
            if at % CHECK_INTERVAL == 0 {
                self.background.check_cancelled()?;
            }
            hotness.count(entry.updates(), entry.key().len() + entry.newest().value.len());
        }
        let options = self.options.load();
        let hot = hotness.threshold(options.triad.hot, self.counters.written_for_each_flushed());
        let (cold, live) = (hotness.bytes_below(hot) as f64, hotness.bytes_below(None) as f64);
        let limit = options.memtable() as f64;
        if cold < options.triad.flush_threshold * limit && live < RETAIN_ALL_BELOW * limit {
            return Ok(Some(0));
        }
        Ok(hot)
    }

    /// Retains its `keys`; `false` without effect if the flush of the memtable is forced.
    fn retain_batch(
        &self,
        memtable: &Arc<Memtable>,
        keys: &[(usize, EntryRef<'_>)],
        retained: &mut RetainedKeys,
    ) -> Result<bool> {
        let mut writer = self.writer.lock();
        let writer = writer.as_mut().ok_or(Error::Closed)?;
        self.background.check_writable()?;
        if memtable.is_flush_forced() || self.checkpoint_lock.is_running() {
            return Ok(false);
        }
        // While the writer is locked, no memtable changes and none becomes full.
        let view = self.view.load_full();
        let at = view.flushing.iter().position(|other| Arc::ptr_eq(other, memtable));
        // All keys were cleared meanwhile, and the memtable with them.
        let Some(at) = at else { return Ok(false) };
        let newer: Vec<_> = view.flushing[at + 1..].iter().collect();
        let newer = || newer.iter().copied().chain([&view.active]);
        let snapshots = self.snapshots.boundaries(&self.visible);
        let stripe = |sequence: u64| snapshots.partition_point(|&snapshot| snapshot < sequence);

        let mut batch = WriteBatch::new();
        let mut sequences = Vec::new();
        for &(at, entry) in keys {
            let version = entry.newest();
            let successor = newer().find_map(|other| other.tree().entry(entry.key()));
            match successor {
                // The oldest of the newer versions decides which snapshots still see this one.
                Some(successor) => {
                    let next = successor.versions().last().map_or(0, |next| next.sequence);
                    // An operand does not hide what is below it.
                    let hides = successor.versions().last().is_some_and(|next| !is_merge(&next));
                    retained.skip[at] = hides && stripe(version.sequence) == stripe(next);
                }
                // Older versions that a snapshot reads would remain in this run alone, and runs are
                // ordered by their newest entry.
                None if is_read_before(entry, &version, stripe) => {}
                // What is below an operand is in this run or below it.
                None if is_merge(&version) => {}
                None => {
                    batch.push(operation(entry.key(), &version));
                    sequences.push(version.sequence);
                    retained.skip[at] = true;
                }
            }
        }
        self.counters.hot_keys_retained.fetch_add(sequences.len() as u64, Relaxed);
        let mut sequences = &sequences[..];
        for (bytes, count) in batch.pieces(record::PART_BYTES) {
            let (part, rest) = sequences.split_at(count as usize);
            sequences = rest;
            let header = record::retained_header(part);
            let mut offsets = Vec::new();
            writer.log.append([[&header, bytes]], &mut offsets).map_err(|error| {
                self.background.poison_unless_transient("appending to the log", error)
            })?;
            let position = Position::new(offsets[0], header.len() + bytes.len());
            let operations = siltstone_engine::batch::operations(bytes).filter_map(|op| op.ok());
            for (&sequence, op) in part.iter().zip(operations) {
                writer.memtable.add(sequence, op, position);
            }
        }
        Ok(true)
    }

    /// Syncs the log `number` and all later ones; returns the number and the length in bytes of the
    /// last one. Earlier logs may stay unsynced: they are needed until the flush succeeds, so the
    /// logs themselves must not state that everything before is durable. The manifest does, when it
    /// no longer names the earlier ones.
    pub(crate) fn sync_logs_from(&self, number: u64) -> Result<(u64, u64)> {
        let (handles, last) = {
            let writer = self.writer.lock();
            let writer = writer.as_ref().ok_or(Error::Closed)?;
            let last = (writer.log.number(), writer.log.len());
            (writer.log.sync_handles_after(number - 1), last)
        };
        for handle in handles {
            handle.sync_alone()?;
        }
        self.vfs.sync_dir(Purpose::Log)?;
        Ok(last)
    }
}

/// Whether a snapshot sees an older version of a key beside its `newest`.
fn is_read_before(
    entry: EntryRef<'_>,
    newest: &Version<'_>,
    stripe: impl Fn(u64) -> usize,
) -> bool {
    let oldest = entry.versions().last().map_or(newest.sequence, |oldest| oldest.sequence);
    stripe(oldest) != stripe(newest.sequence)
}

/// Whether a version is an operand of a merge.
fn is_merge(version: &Version<'_>) -> bool {
    kind_of(version.kind) == Kind::Merge
}

/// The operation that wrote a version, which is no merge.
fn operation<'a>(key: &'a [u8], version: &Version<'a>) -> Op<'a> {
    let expires_at = match kind_of(version.kind) {
        Kind::Delete => return Op::Delete { key },
        Kind::PutExpiring => Some(version.expires_at),
        Kind::Put | Kind::Position | Kind::Reference | Kind::Merge => None,
    };
    Op::Put { key, value: version.value, expires_at }
}
