//! The storage of an emulated device's pages.
//!
//! The emulator implements rules, times and power cuts; [`Cells`] only store bytes. They are called
//! under the lock of the block, which reads share.
//!
//! Invariant: cells receive only requests that the rules allow.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

/// A page of a block in the block's current life.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageAddress {
    /// The page's number on the device.
    pub(super) page: u32,
    pub(super) block: u32,
    /// The index in its block.
    pub(super) index: u32,
    /// The number of erases of its block.
    pub(super) erases: u64,
}

/// The state of a block when the device is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The number of erases.
    pub(super) erases: u64,
    /// Pages programmed since, readable or not: the index of the next.
    pub(super) next: u32,
}

/// The content of a programmed page.
#[derive(Debug, Clone)]
pub(super) enum Image {
    Bytes(Arc<[u8]>),
    Unreadable,
}

/// Stores the pages of a device.
pub(super) trait Cells: Send + Sync {
    /// The device's name in messages.
    fn name(&self) -> &str;

    /// The state of a block; called once per block.
    fn load(&self, block: u32) -> Result<State>;

    /// Fills `buf`, which has the length of a page; `false` if the bytes are damaged.
    fn read(&self, address: PageAddress, buf: &mut [u8], purpose: Purpose) -> Result<bool>;

    /// Stores a page.
    fn program(&self, address: PageAddress, bytes: &[u8], purpose: Purpose) -> Result<()>;

    /// Stores a page again unchanged.
    fn renew(&self, _place: PageAddress, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    /// Erases a block; `erases` counts this erase.
    fn erase(&self, block: u32, erases: u64, purpose: Purpose) -> Result<()>;

    /// Makes everything durable. Not called again after a failure.
    fn sync(&self, purpose: Purpose) -> Result<()>;

    /// Checks that there are no bytes past the end of the device.
    ///
    /// # Errors
    /// `Corruption` if there are any.
    fn check_end(&self) -> Result<()> {
        Ok(())
    }

    /// The content of a page; cells in memory do not copy it.
    fn image(&self, address: PageAddress, page_bytes: usize) -> Result<Image> {
        let mut bytes = vec![0; page_bytes];
        let good = self.read(address, &mut bytes, Purpose::Maintenance)?;
        Ok(if good { Image::Bytes(bytes.into()) } else { Image::Unreadable })
    }
}
