//! Pages in memory. The emulator decides what a power cut leaves.
//!
//! A block is the list of the pages programmed since its last erase, so erased pages use no memory,
//! and a copy of a block shares its pages.

use parking_lot::Mutex;
use siltstone_engine::{Purpose, Result};

use super::cells::{Cells, Image, PageAddress, State};

/// A block and its programmed pages.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockImage {
    pub(super) erases: u64,
    pub(super) pages: Vec<Image>,
}

/// All blocks of a device.
pub(super) struct MemoryCells {
    name: String,
    blocks: Vec<Mutex<BlockImage>>,
}

impl MemoryCells {
    pub(super) fn new(name: String, blocks: impl Iterator<Item = BlockImage>) -> Self {
        MemoryCells { name, blocks: blocks.map(Mutex::new).collect() }
    }
}

impl Cells for MemoryCells {
    fn name(&self) -> &str {
        &self.name
    }

    fn load(&self, block: u32) -> Result<State> {
        let block = self.blocks[block as usize].lock();
        Ok(State { erases: block.erases, next: block.pages.len() as u32 })
    }

    fn read(&self, address: PageAddress, buf: &mut [u8], _purpose: Purpose) -> Result<bool> {
        let image = self.image(address, buf.len())?;
        if let Image::Bytes(bytes) = &image {
            buf.copy_from_slice(bytes);
        }
        Ok(matches!(image, Image::Bytes(_)))
    }

    fn program(&self, address: PageAddress, bytes: &[u8], _purpose: Purpose) -> Result<()> {
        self.blocks[address.block as usize].lock().pages.push(Image::Bytes(bytes.into()));
        Ok(())
    }

    fn erase(&self, block: u32, erases: u64, _purpose: Purpose) -> Result<()> {
        *self.blocks[block as usize].lock() = BlockImage { erases, pages: Vec::new() };
        Ok(())
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn image(&self, address: PageAddress, _page_bytes: usize) -> Result<Image> {
        Ok(self.blocks[address.block as usize].lock().pages[address.index as usize].clone())
    }
}
