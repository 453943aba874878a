//! What the emulator asks of the thing that keeps its pages.
//!
//! The emulator knows the rules, the times and the power; [`Cells`] keep bytes and know nothing. They
//! are called under the lock of the block: reads share it, programs and erases have it alone.
//!
//! Invariant: cells are asked only for what the rules allow.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

/// A page of a block in the block's present life.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The page's number on the device.
    pub(super) page: u32,
    pub(super) block: u32,
    /// Where in its block.
    pub(super) index: u32,
    /// How often its block was erased.
    pub(super) erases: u64,
}

/// How a block is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct State {
    /// How often it was erased.
    pub(super) erases: u64,
    /// Pages programmed since, good or not: the index of the next.
    pub(super) next: u32,
}

/// What a programmed page holds.
#[derive(Debug, Clone)]
pub(super) enum Image {
    Bytes(Arc<[u8]>),
    Unreadable,
}

/// Keeps the pages of one device.
pub(super) trait Cells: Send + Sync {
    /// The device's name in messages.
    fn name(&self) -> &str;

    /// How the block is found; asked once for each block.
    fn load(&self, block: u32) -> Result<State>;

    /// Fills `buf`, a page long; `false` if the bytes don't hold.
    fn read(&self, place: Place, buf: &mut [u8], purpose: Purpose) -> Result<bool>;

    /// Keeps a page.
    fn program(&self, place: Place, bytes: &[u8], purpose: Purpose) -> Result<()>;

    /// Keeps a page once more, as it is.
    fn renew(&self, _place: Place, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    /// Forgets a block, which has now been erased `erases` times.
    fn erase(&self, block: u32, erases: u64, purpose: Purpose) -> Result<()>;

    /// Makes all of that durable. Not called again once it failed.
    fn sync(&self, purpose: Purpose) -> Result<()>;

    /// Checks that nothing stands behind the device.
    ///
    /// # Errors
    /// `Corruption` if something does.
    fn check_end(&self) -> Result<()> {
        Ok(())
    }

    /// What a page holds; cells in memory copy nothing for it.
    fn image(&self, place: Place, page_bytes: usize) -> Result<Image> {
        let mut bytes = vec![0; page_bytes];
        let good = self.read(place, &mut bytes, Purpose::Maintenance)?;
        Ok(if good { Image::Bytes(bytes.into()) } else { Image::Unreadable })
    }
}
