//! TRIAD-MEM: hot keys stay in memory when their memtable is flushed.
//!
//! ```text
//!   full memtable ── hot keys ──▶ active memtable, and its log ("carried")
//!                 └─ cold keys ─▶ a row of level 0
//! ```
//!
//! The flush does the carrying, in small steps under the writer's lock, so no writer waits for more
//! than one step. A hot key that a newer memtable has already needs nothing at all. If the memtable
//! is full only because its log is, and little in it is cold, every key is carried: then nothing is
//! written to level 0, and the old log is dropped.
//!
//! Invariants. A version is carried only if no newer memtable has its key, so a newer memtable never
//! holds an older version; and only if readers see no older one beside it, so the rows of a key are in the
//! order of their newest entries. Carried versions keep their sequence numbers. Before the old log goes,
//! every log that holds what was carried, or what made carrying needless, is synced, and the
//! manifest says so: nothing in the log may prove it. A flush that
//! someone waits for carries nothing from then on: all of it shall be in tables. Nor does any before a copy
//! is made, which would lack what newer memtables hold.
//!
//! Source: TRIAD paper, section 4.1 and algorithms 1 and 2.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Error, Op, Purpose, Result, WriteBatch};
use siltstone_structures::{EntryRef, Version};
use siltstone_table::Kind;

use crate::engine::Inner;
use crate::hotness::Hotness;
use crate::memtable::{Memtable, kind_of};
use crate::record::{self, Position};

/// What one step under the writer's lock carries at most, in bytes.
const STEP_BYTES: usize = 64 << 10;

/// How often a walk over the memtable looks up, in keys.
const STEP: usize = 64;

/// A memtable whose newest values take more than this share of its measure is flushed in any case:
/// what is carried shall leave room for new writes.
const CARRY_ALL_BELOW: f64 = 0.9;

/// Which keys of a memtable, counted in key order, need not be flushed.
#[derive(Default)]
pub(crate) struct Carried {
    gone: Vec<bool>,
    /// The log that was written last, and how much of it was made durable with what was carried.
    pub(crate) synced_log: Option<(u64, u64)>,
}

impl Carried {
    /// Whether the newest version of key number `at` is in a newer memtable or hidden by one.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.gone.get(at).is_some_and(|&gone| gone)
    }
}

impl Inner {
    /// Carries the hot keys of the oldest full memtable over to the active one.
    pub(crate) fn carry(&self, memtable: &Arc<Memtable>) -> Result<Carried> {
        let mut carried = Carried::default();
        if !self.options.triad.mem || memtable.is_empty() || memtable.is_wanted() {
            return Ok(carried);
        }
        let Some(threshold) = self.hot_from(memtable)? else { return Ok(carried) };
        carried.gone.resize(memtable.tree().keys(), false);
        let mut step: Vec<(usize, EntryRef<'_>)> = Vec::new();
        let mut bytes = 0;
        let mut hot = memtable.tree().iter().enumerate().peekable();
        while let Some((at, entry)) = hot.next() {
            if at % STEP == 0 {
                self.background.check_cancelled()?;
            }
            if entry.updates() >= threshold {
                bytes += entry.key().len() + entry.newest().value.len();
                step.push((at, entry));
            }
            if (bytes >= STEP_BYTES || hot.peek().is_none()) && !step.is_empty() {
                if !self.carry_step(memtable, &step, &mut carried)? {
                    break;
                }
                step.clear();
                bytes = 0;
            }
        }
        carried.synced_log = Some(self.sync_logs_from(memtable.first_log + 1)?);
        Ok(carried)
    }

    /// The number of updates from which on keys are carried; `None`: none is, 0: all are.
    fn hot_from(&self, memtable: &Memtable) -> Result<Option<u32>> {
        let mut hotness = Hotness::default();
        for (at, entry) in memtable.tree().iter().enumerate() {
            if at % STEP == 0 {
                self.background.check_cancelled()?;
            }
            hotness.count(entry.updates(), entry.key().len() + entry.newest().value.len());
        }
        let hot =
            hotness.threshold(self.options.triad.hot, self.counters.written_for_each_flushed());
        let (cold, live) = (hotness.bytes_below(hot) as f64, hotness.bytes_below(None) as f64);
        let room = self.options.memtable() as f64;
        if cold < self.options.triad.flush_threshold * room && live < CARRY_ALL_BELOW * room {
            return Ok(Some(0));
        }
        Ok(hot)
    }

    /// Carries some keys; `false` if the memtable is wanted in tables, and nothing was done.
    fn carry_step(
        &self,
        memtable: &Arc<Memtable>,
        keys: &[(usize, EntryRef<'_>)],
        carried: &mut Carried,
    ) -> Result<bool> {
        let mut writer = self.writer.lock();
        let writer = writer.as_mut().ok_or(Error::Closed)?;
        self.background.check_writable()?;
        if memtable.is_wanted() || self.copies.is_begun() {
            return Ok(false);
        }
        // While the writer is locked no memtable changes and none becomes full.
        let view = self.view.load_full();
        let at = view.flushing.iter().position(|other| Arc::ptr_eq(other, memtable));
        // All keys were removed meanwhile, and the memtable with them.
        let Some(at) = at else { return Ok(false) };
        let newer: Vec<_> = view.flushing[at + 1..].iter().collect();
        let newer = || newer.iter().copied().chain([&view.active]);
        let moments = self.snapshots.boundaries(&self.visible);
        let stratum = |sequence: u64| moments.partition_point(|&moment| moment < sequence);

        let mut batch = WriteBatch::new();
        let mut sequences = Vec::new();
        for &(at, entry) in keys {
            let version = entry.newest();
            let successor = newer().find_map(|other| other.tree().entry(entry.key()));
            match successor {
                // The oldest of the newer versions decides who still sees this one.
                Some(successor) => {
                    let next = successor.versions().last().map_or(0, |next| next.sequence);
                    carried.gone[at] = stratum(version.sequence) == stratum(next);
                }
                // Older versions that a snapshot reads would be left to this row alone, whose place among
                // rows is told by its newest entry.
                None if is_read_before(entry, &version, stratum) => {}
                None => {
                    batch.push(operation(entry.key(), &version));
                    sequences.push(version.sequence);
                    carried.gone[at] = true;
                }
            }
        }
        self.counters.hot_keys_carried.fetch_add(sequences.len() as u64, Relaxed);
        let mut sequences = &sequences[..];
        for (bytes, count) in batch.pieces(record::PART_BYTES) {
            let (these, rest) = sequences.split_at(count as usize);
            sequences = rest;
            let header = record::carried_header(these);
            let mut offsets = Vec::new();
            writer
                .log
                .append(&[[&header, bytes]], &mut offsets)
                .map_err(|error| self.background.doubt("appending to the log", error))?;
            let position = Position::new(offsets[0], header.len() + bytes.len());
            let operations = siltstone_engine::batch::operations(bytes).filter_map(|op| op.ok());
            for (&sequence, op) in these.iter().zip(operations) {
                writer.memtable.add(sequence, op, position);
            }
        }
        Ok(true)
    }

    /// Makes durable what this log and those after it hold by now; answers the number and the
    /// length of the last.
    pub(crate) fn sync_logs_from(&self, number: u64) -> Result<(u64, u64)> {
        let (handles, last) = {
            let writer = self.writer.lock();
            let writer = writer.as_ref().ok_or(Error::Closed)?;
            let last = (writer.log.number(), writer.log.len());
            (writer.log.sync_handles_after(number - 1), last)
        };
        for handle in handles {
            handle.sync()?;
        }
        self.vfs.sync_dir(Purpose::Log)?;
        Ok(last)
    }
}

/// Whether readers see an older version of a key beside its `newest`.
fn is_read_before(
    entry: EntryRef<'_>,
    newest: &Version<'_>,
    stratum: impl Fn(u64) -> usize,
) -> bool {
    let oldest = entry.versions().last().map_or(newest.sequence, |oldest| oldest.sequence);
    stratum(oldest) != stratum(newest.sequence)
}

/// The operation that wrote a version.
fn operation<'a>(key: &'a [u8], version: &Version<'a>) -> Op<'a> {
    let expires_at = match kind_of(version.kind) {
        Kind::Delete => return Op::Delete { key },
        Kind::PutExpiring => Some(version.expires_at),
        Kind::Put | Kind::Position => None,
    };
    Op::Put { key, value: version.value, expires_at }
}
