//! Raw flash: pages that are programmed once per erase, in blocks that are erased as a whole.
//!
//! A [`Flash`] is an array of erase blocks of pages ([`Geometry`]). Its rules:
//!
//! * A page is read and programmed as a whole.
//! * The pages of a block are programmed in order, each once between two erases of the block.
//! * A page cannot be read between the erase of its block and its programming.
//! * After a number of erases (its endurance), a block is read-only.
//! * A program or erase is durable once it has completed and a later [`flush`](Flash::flush) has
//!   returned. A power cut before leaves a page erased, torn or complete, and a block unchanged,
//!   erased or full of garbage. Garbage may read without an error, so readers need a checksum of
//!   their own.
//!
//! A violation returns a [`FlashError`] and changes nothing. Requests are submitted and waited for
//! separately, so that channels work in parallel:
//!
//! ```text
//!   submit_program ─┐
//!   submit_program ─┼─▶ Completion, Completion, … ─▶ wait
//!   submit_read   ──┘                                 real or virtual time passes
//! ```
//!
//! | module | content |
//! | --- | --- |
//! | `geometry` | [`Geometry`]: pages and blocks |
//! | `error` | [`FlashError`]: the violated rule |
//! | `clock` | [`RealTime`] and [`VirtualTime`] |
//! | `schedule` | [`Timing`]: latencies, channels, queue depth, completion times |
//! | `emulator` | [`Emulator`]: the rules, over cells |
//! | `cells` | storage of pages: `memory`, `file` (one file), `zones` (one file per zone) |
//! | `label`, `slot` | the header of a device in files, and a page in a file |
//! | `power`, `survivor` | requests in flight at a power cut, and what it leaves of them |
//!
//! Source: SkimpyFTL paper, section 2 (rules) and section 4 (emulator).

use std::sync::Arc;
use std::time::Duration;

use siltstone_engine::{IoCounters, Purpose};

mod cells;
mod clock;
mod emulator;
mod error;
mod file;
mod geometry;
mod label;
mod memory;
mod power;
mod schedule;
mod slot;
mod survivor;
#[cfg(test)]
mod tests;
mod zones;

pub use clock::{DeviceClock, RealTime, VirtualTime};
pub use emulator::{Emulator, FlashOptions};
pub use error::{FlashError, FlashResult};
pub use geometry::Geometry;
pub use schedule::Timing;

/// A raw flash device, for any number of concurrent threads.
pub trait Flash: Send + Sync {
    /// The device's name in messages.
    fn name(&self) -> String;

    /// Its pages and blocks.
    fn geometry(&self) -> Geometry;

    /// Reads a page into `buf`, which has the length of a page and is filled on return.
    ///
    /// # Errors
    /// `Erased`: the page was not programmed since the erase of its block. `Unreadable`: it was,
    /// but its bytes are damaged; the content of `buf` is undefined. `NoSuchPage`, `NotAPage`.
    fn submit_read(&self, page: u32, buf: &mut [u8], purpose: Purpose) -> FlashResult<Completion>;

    /// Programs the next page of its block.
    ///
    /// # Errors
    /// `OutOfOrder`, `AlreadyProgrammed`, `NoSuchPage`, `NotAPage`. `Medium`: the page counts as
    /// programmed and may be unreadable.
    fn submit_program(&self, page: u32, bytes: &[u8], purpose: Purpose) -> FlashResult<Completion>;

    /// Erases a block.
    ///
    /// # Errors
    /// `WornOut`: it can still be read. `NoSuchBlock`. `Medium`: nothing can be programmed in the
    /// block until an erase succeeds.
    fn submit_erase(&self, block: u32, purpose: Purpose) -> FlashResult<Completion>;

    /// Waits until a request is complete.
    ///
    /// # Errors
    /// `PowerOff`: power was cut before, and the request may have had no effect.
    fn wait(&self, completion: Completion) -> FlashResult<()>;

    /// The device's time.
    fn now(&self) -> Duration;

    /// Makes all completed requests durable. Free if the device is not in files.
    ///
    /// # Errors
    /// `Medium`: the state of what it covered is unknown, and no later flush succeeds.
    fn flush(&self, purpose: Purpose) -> FlashResult<()>;

    /// Writes a programmed page again unchanged: if a device in files is reopened after a failed
    /// flush, a later flush does not cover what that one did. Takes no device time.
    ///
    /// # Errors
    /// `Medium`: as for a program. `NoSuchPage`.
    fn renew(&self, page: u32, purpose: Purpose) -> FlashResult<()>;

    /// Checks that the device's file has no bytes past the end of the device. Such bytes are never
    /// read and are harmless.
    ///
    /// # Errors
    /// `Medium` with a corruption if there are any.
    fn check_end(&self) -> FlashResult<()> {
        Ok(())
    }

    /// The number of pages programmed since the erase of the block, i.e. the index of the next.
    fn programmed(&self, block: u32) -> FlashResult<u32>;

    /// The number of erases of the block.
    fn erases(&self, block: u32) -> FlashResult<u64>;

    /// The number of erases that a block endures.
    fn endurance(&self) -> u64;

    /// Requests and bytes by purpose, counted as [`MeteredVfs`](siltstone_vfs::MeteredVfs) counts
    /// them: pages read, pages programmed, flushes. Erases are [`erases`](Self::erases).
    fn counters(&self) -> Arc<IoCounters>;

    /// [`submit_read`](Self::submit_read), and waits.
    fn read(&self, page: u32, buf: &mut [u8], purpose: Purpose) -> FlashResult<()> {
        self.wait(self.submit_read(page, buf, purpose)?)
    }

    /// [`submit_program`](Self::submit_program), and waits.
    fn program(&self, page: u32, bytes: &[u8], purpose: Purpose) -> FlashResult<()> {
        self.wait(self.submit_program(page, bytes, purpose)?)
    }

    /// [`submit_erase`](Self::submit_erase), and waits.
    fn erase(&self, block: u32, purpose: Purpose) -> FlashResult<()> {
        self.wait(self.submit_erase(block, purpose)?)
    }
}

/// The completion time of a submitted request.
#[must_use = "a request that nobody waits for may be undone by a power cut"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Completion {
    done: Duration,
}

impl Completion {
    /// For devices that are built on other devices: complete at `done`.
    pub fn new(done: Duration) -> Self {
        Completion { done }
    }

    /// The device time of the completion.
    pub fn at(&self) -> Duration {
        self.done
    }
}
