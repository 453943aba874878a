//! The interface of the mappings to the rest of the engine.
//!
//! Mappings share device, placement and interface. They differ in how a version is found, how it is
//! known to be live, and what a checkpoint must store.
//!
//! Source: SkimpyFTL, section 4.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

use crate::location::Location;
use crate::location::Placement;
use crate::log::Writer;
use crate::page::Page;
use crate::record::Record;
use crate::shared::Shared;
use crate::space::LogBlock;
use crate::write_buffer::WriteBuffer;

/// The result of a step of a sweep.
pub(crate) enum SweepResult {
    /// Nothing in the block is live.
    Done,
    /// Some buckets were relocated, which pays for this many pages of the log.
    Relocated(f64),
    /// The mapping needs the pages of the block: see [`Mapping::collect`].
    ReadPages,
}

/// An index from keys to the locations of their versions.
pub(crate) trait Mapping: Send + Sync {
    /// Links new records, each with its future location, to existing ones, in their order. Links
    /// must not make a record longer than `max_bytes`.
    fn link(&self, records: &mut [(Location, Record)], max_bytes: usize);

    /// The number of pages of buffered records that accumulate to be sorted; 0: records are packed
    /// at once.
    fn accumulated_pages(&self) -> usize;

    /// Packs the accumulated records, sorted by the time of their next collection; `number` is that
    /// of the next log page. Returns `false` if there are none.
    fn pack_accumulated(&self, buffer: &WriteBuffer, number: u64) -> bool;

    /// Makes linked records at these locations visible to lookups; `number` is that of the next log
    /// page when the first of them, or of their payload pages, was not yet programmed.
    fn publish(&self, records: &[(Location, Arc<Record>)], number: u64);

    /// Updates the locations of published records that were programmed.
    fn on_programmed(&self, records: &[Arc<Record>], placement: &Placement);

    /// The newest version of the key that is not younger than `at`, deletions included, with its
    /// value, unless all keys were cleared after it; and whether a younger one was seen.
    fn find(
        &self,
        shared: &Shared,
        key: &[u8],
        at: u64,
        purpose: Purpose,
    ) -> Result<(Option<Record>, bool)>;

    /// Relocates some of the oldest buckets, if the mapping knows them without reading pages and
    /// any has live versions in the block `tail`. `slack`: pages that may be programmed before
    /// blocks become scarce; negative if they are.
    fn sweep(
        &self,
        _: &Shared,
        _: &mut Writer,
        _tail: LogBlock,
        _slack: i64,
    ) -> Result<SweepResult> {
        Ok(SweepResult::ReadPages)
    }

    /// Collection steps per programmed page, given the free and the target fraction of the blocks.
    fn pace(&self, free: f64, wanted: f64) -> f64;

    /// The maximum number of collection steps for a write of `pages` pages while there is room; the
    /// rest is left to later writes.
    fn max_steps_of(&self, _pages: u64) -> u64 {
        u64::MAX
    }

    /// Relocates the live versions in a page of the tail, after [`SweepResult::ReadPages`].
    fn collect(&self, _: &Shared, _: &mut Writer, _page: Page) -> Result<()> {
        Ok(())
    }

    /// Whether a lookup has made a bucket due for read compaction.
    fn needs_read_compaction(&self) -> bool {
        false
    }

    /// Collects that bucket.
    fn read_compaction(&self, _shared: &Shared, _writer: &mut Writer) -> Result<()> {
        Ok(())
    }

    /// Returns an error if live versions are in a page that cannot be read.
    fn check_lost(&self, _: &Shared, _page: u32) -> Result<()> {
        Ok(())
    }

    /// Whether opening replays the whole log, not only the part after the checkpoint.
    fn replays_all(&self) -> bool {
        false
    }

    /// Whether a page was cut off by an earlier opening; for mappings that replay the whole log.
    fn is_cut_off(&self, _epoch: u32, _number: u64) -> bool {
        false
    }

    /// Records that pages of this epoch from this number on are cut off; for mappings that replay
    /// the whole log. The log begins with `tail`, and pages of `epochs` are on the device.
    fn cut(&self, _epoch: u32, _end: u64, _tail: u64, _epochs: &BTreeSet<u32>) {}

    /// Records that versions with this timestamp, in pages below this number, are of an abandoned
    /// batch; for mappings that replay the whole log.
    fn abandon(&self, _timestamp: u64, _number: u64) {}

    /// Adds a group of records that was found in the log, each with its location; `number` is that
    /// of the first page of the group.
    fn replay(&self, records: Vec<(Location, Record)>, number: u64);

    /// The mapping's part of a checkpoint.
    fn encode(&self) -> Vec<u8>;

    /// The size of that part in bytes.
    fn checkpoint_bytes(&self) -> u64;

    /// Restores the mapping from its part of a checkpoint.
    fn decode(&self, bytes: &[u8]) -> Result<(), &'static str>;

    /// The number of steps of a scan: [`step`](Self::step) from 0 to this.
    fn steps(&self) -> u64;

    /// The versions of a step of a scan that are visible at `at`, with their values, sorted by key.
    fn step(&self, shared: &Shared, step: u64, at: u64) -> Result<Vec<Record>>;

    /// Memory by structure, in bytes.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    /// Counters of the mapping.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
