//! What the mappings have in common: how the rest of the engine speaks to them.
//!
//! They share device, placement and interface, and differ in how a version is found, how it is told
//! that one is live, and what a checkpoint has to keep.
//!
//! Source: SkimpyFTL, section 4.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

use crate::engine::Inner;
use crate::location::Location;
use crate::log::Writer;
use crate::page::Page;
use crate::pending::{Pending, Placed};
use crate::record::Record;
use crate::space::LogBlock;

/// A step of a sweep.
pub(crate) enum Swept {
    /// Nothing is live there.
    Done,
    /// Some was remapped, which stands for so many pages of the log.
    Remapped(f64),
    /// The mapping has to be shown the pages.
    Show,
}

/// From keys to the places of their versions.
pub(crate) trait Mapping: Send + Sync {
    /// Links new records, each with its place to be, to what is there, in their order. None may outgrow so many
    /// bytes by that.
    fn link(&self, records: &mut [(Location, Record)], most_bytes: usize);

    /// Pages of buffered records that wait for one another, so that they can be sorted; 0: each goes to its page
    /// at once.
    fn together(&self) -> usize;

    /// Lays out what has gathered, by when collection will read it again; `number` is that of the log's next page.
    /// `false` if nothing has.
    fn settle(&self, pending: &Pending, number: u64) -> bool;

    /// Lets readers find records that were linked and are now at these places; `number` is that of the
    /// page of the log that was next when the first of them, or of their payloads, was yet to be programmed.
    fn publish(&self, records: &[(Location, Arc<Record>)], number: u64);

    /// Pending records were programmed; those that were published are found there from now on.
    fn placed(&self, records: &[Arc<Record>], placed: &Placed);

    /// The newest version of the key that is not younger than `at`, deletions too; with its value. The second
    /// part tells whether a younger one was met.
    fn find(
        &self,
        inner: &Inner,
        key: &[u8],
        at: u64,
        purpose: Purpose,
    ) -> Result<(Option<Record>, bool)>;

    /// Remaps some of what is oldest, if the mapping can tell without reading pages, and anything is live in
    /// the block of the tail; `slack`: pages that may be programmed before blocks are short, below zero if they
    /// are.
    fn sweep(&self, _: &Inner, _: &mut Writer, _tail: LogBlock, _slack: i64) -> Result<Swept> {
        Ok(Swept::Show)
    }

    /// Steps of collection for a page that is programmed, where these shares of the blocks are free and are
    /// wanted to be.
    fn pace(&self, free: f64, wanted: f64) -> f64;

    /// Steps of collection that a write of so many pages takes at most while there is room: what it leaves is due
    /// with the next.
    fn most_steps(&self, _pages: u64) -> u64 {
        u64::MAX
    }

    /// Remaps what is live in a page of the log's tail, if the mapping has to be shown it.
    fn collect(&self, _: &Inner, _: &mut Writer, _page: Page) -> Result<()> {
        Ok(())
    }

    /// Whether a read has found something that collection would make shorter.
    fn is_untidy(&self) -> bool {
        false
    }

    /// Makes it shorter.
    fn tidy(&self, _inner: &Inner, _writer: &mut Writer) -> Result<()> {
        Ok(())
    }

    /// Whether anything live is in a page that can't be read, and would have been shown: an error if so.
    fn check_lost(&self, _: &Inner, _page: u32) -> Result<()> {
        Ok(())
    }

    /// Whether opening takes every page of the log, not those behind the checkpoint alone.
    fn replays_all(&self) -> bool {
        false
    }

    /// Of a mapping that does: whether a page was cut off by an earlier opening.
    fn is_cut_off(&self, _epoch: u32, _number: u64) -> bool {
        false
    }

    /// The same: pages of this epoch from this number on are cut off; the log begins with `tail`, and
    /// pages of these epochs are on the device.
    fn cut(&self, _epoch: u32, _end: u64, _tail: u64, _epochs: &BTreeSet<u32>) {}

    /// The same: versions with this timestamp are of a batch that was given up halfway, in pages below
    /// this number.
    fn give_up(&self, _timestamp: u64, _number: u64) {}

    /// Takes a group of records that was found in the log, each with its place; `number` is that of the
    /// first page that it has a part in.
    fn replay(&self, records: Vec<(Location, Record)>, number: u64);

    /// What a checkpoint keeps of it.
    fn encode(&self) -> Vec<u8>;

    /// How many bytes that is.
    fn checkpoint_bytes(&self) -> u64;

    /// Takes it back.
    fn decode(&self, bytes: &[u8]) -> Result<(), &'static str>;

    /// How many steps a walk takes: [`step`](Self::step) from 0 to this.
    fn steps(&self) -> u64;

    /// The versions of a step of a walk that are seen at `at`, with their values, sorted by key.
    fn step(&self, inner: &Inner, step: u64, at: u64) -> Result<Vec<Record>>;

    /// Memory by structure, in bytes.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    /// Counters of its own.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
