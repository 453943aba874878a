//! Raw flash: pages that are programmed once and blocks that are erased.
//!
//! A [`Flash`] is an array of erase blocks of pages ([`Geometry`]). Its rules:
//!
//! * A page is read and programmed whole.
//! * The pages of a block are programmed in order, each once between two erases of the block.
//! * A page that was not programmed since can't be read.
//! * A block bears a number of erases, then it is read-only.
//! * Programming and erasing are durable once they completed and a later [`flush`](Flash::flush)
//!   returned. A power cut before leaves a page erased, torn or whole, and a block as it was, erased,
//!   or full of rubbish. Rubbish can read without an error: readers need a checksum of their own.
//!
//! A break of a rule is a [`FlashError`] of its own and changes nothing. Requests are submitted and
//! waited for apart, so that channels overlap:
//!
//! ```text
//!   submit_program ─┐
//!   submit_program ─┼─▶ Completion, Completion, … ─▶ wait
//!   submit_read   ──┘                                 real time passes, or virtual
//! ```
//!
//! | module | one idea |
//! | --- | --- |
//! | `geometry` | [`Geometry`]: pages in blocks |
//! | `error` | [`FlashError`]: which rule was broken |
//! | `clock` | [`RealTime`] and [`VirtualTime`] |
//! | `schedule` | [`Timing`]: latencies, channels, queue depth, and when a request is done |
//! | `emulator` | [`Emulator`]: the rules, over cells |
//! | `cells` | what keeps the pages: `memory`, `file` (one file), `zones` (a file a zone) |
//! | `label`, `slot` | what a device in files says of itself, and a page in a file |
//! | `power`, `survivor` | what is in flight when power goes off, and what that leaves |
//!
//! Source: section 2 of the SkimpyFTL paper for the rules, section 4 for the emulator.

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

/// A raw flash device. Any number of threads at once.
pub trait Flash: Send + Sync {
    /// What to call the device in messages.
    fn name(&self) -> String;

    /// Its pages and blocks.
    fn geometry(&self) -> Geometry;

    /// Reads a page into `buf`, which is a page long and is filled on return.
    ///
    /// # Errors
    /// `Erased`: the page was not programmed since its block was erased. `Unreadable`: it was, and
    /// its bytes don't hold. What `buf` holds then is no one's. `NoSuchPage`, `NotAPage`.
    fn submit_read(&self, page: u32, buf: &mut [u8], purpose: Purpose) -> FlashResult<Completion>;

    /// Programs the next page of its block.
    ///
    /// # Errors
    /// `OutOfOrder`, `AlreadyProgrammed`, `NoSuchPage`, `NotAPage`. `Medium`: the page is used up
    /// and may not be readable.
    fn submit_program(&self, page: u32, bytes: &[u8], purpose: Purpose) -> FlashResult<Completion>;

    /// Erases a block.
    ///
    /// # Errors
    /// `WornOut`: it can be read on. `NoSuchBlock`. `Medium`: nothing can be programmed there until
    /// an erase succeeds.
    fn submit_erase(&self, block: u32, purpose: Purpose) -> FlashResult<Completion>;

    /// Returns when a request is done.
    ///
    /// # Errors
    /// `PowerOff`: power went off before, and it may not have happened.
    fn wait(&self, completion: Completion) -> FlashResult<()>;

    /// The device's time.
    fn now(&self) -> Duration;

    /// Makes everything that completed so far durable. Costs nothing where the device is not kept
    /// in files.
    ///
    /// # Errors
    /// `Medium`: what it covered is unknown, and no later flush succeeds.
    fn flush(&self, purpose: Purpose) -> FlashResult<()>;

    /// Keeps a page that was programmed once more, as it is: where a device in files was opened anew
    /// after a flush that failed, a later one does not cover what that one did. Takes no time of the
    /// device's.
    ///
    /// # Errors
    /// `Medium`: as of a program. `NoSuchPage`.
    fn renew(&self, page: u32, purpose: Purpose) -> FlashResult<()>;

    /// Checks that nothing stands behind the device in the file that it is kept in. What stands
    /// there is not read, and does no harm.
    ///
    /// # Errors
    /// `Medium` with a corruption if something does.
    fn check_end(&self) -> FlashResult<()> {
        Ok(())
    }

    /// How many pages of the block were programmed since it was erased: the index of the next.
    fn programmed(&self, block: u32) -> FlashResult<u32>;

    /// How often the block was erased.
    fn erases(&self, block: u32) -> FlashResult<u64>;

    /// How many erases a block bears.
    fn endurance(&self) -> u64;

    /// Requests and bytes by purpose, counted as [`Metered`](siltstone_vfs::Metered) counts them: pages
    /// read, pages programmed, flushes. Erases are [`erases`](Self::erases).
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

/// When a submitted request is done.
#[must_use = "a request that nobody waits for may be undone by a power cut"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Completion {
    done: Duration,
}

impl Completion {
    /// For devices that stand on others: done at that time.
    pub fn new(done: Duration) -> Self {
        Completion { done }
    }

    /// The device's time at which it is done.
    pub fn at(&self) -> Duration {
        self.done
    }
}
