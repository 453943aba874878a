//! The division of a device into blocks and pages.
//!
//! ```text
//!   page number   = block · pages_per_block + index in the block
//!   block number  = 0 .. blocks          an erase block: erased as a whole
//! ```
//!
//! Invariant: every [`Geometry`] is valid: no part is zero, and every page number fits 32 bits.
//!
//! Source: SkimpyFTL paper, section 2.1; section 4 for the values of [`Geometry::paper`].

use siltstone_engine::{Error, InvalidOption, Result};
use siltstone_vfs::backend::SECTOR_BYTES;

/// The maximum page size in bytes.
const MAX_PAGE_BYTES: u32 = 1 << 20;

/// The sizes of pages, blocks and the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    page_bytes: u32,
    pages_per_block: u32,
    blocks: u32,
}

impl Geometry {
    /// A geometry of pages of `page_bytes`, blocks of `pages_per_block`, and `blocks` blocks.
    ///
    /// # Errors
    /// `InvalidOptions`, with every mistake: a page that is not a multiple of 512 bytes, or larger
    /// than 1 MiB; no pages; no blocks; more than 2^32 pages.
    pub fn new(page_bytes: u32, pages_per_block: u32, blocks: u32) -> Result<Self> {
        let mut mistakes = Vec::new();
        let mut refuse = |option: &str, reason: &str| {
            mistakes.push(InvalidOption { option: option.into(), reason: reason.into() });
        };
        let whole_sectors = u64::from(page_bytes).is_multiple_of(SECTOR_BYTES);
        if page_bytes == 0 || !whole_sectors || page_bytes > MAX_PAGE_BYTES {
            refuse("page_bytes", "a page is a multiple of 512 bytes, at most 1 MiB");
        }
        if pages_per_block == 0 {
            refuse("pages_per_block", "a block has at least one page");
        }
        if blocks == 0 {
            refuse("blocks", "a device has at least one block");
        }
        if u64::from(pages_per_block) * u64::from(blocks) > 1 << 32 {
            refuse("blocks", "a device has at most 2^32 pages");
        }
        match mistakes.is_empty() {
            true => Ok(Geometry { page_bytes, pages_per_block, blocks }),
            false => Err(Error::InvalidOptions(mistakes)),
        }
    }

    /// The paper's geometry: pages of 4 KiB, 32 per block.
    ///
    /// # Errors
    /// `InvalidOptions` if there are no blocks or more than 2^27.
    pub fn paper(blocks: u32) -> Result<Self> {
        Geometry::new(4096, 32, blocks)
    }

    /// Bytes per page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes as usize
    }

    /// Pages per block.
    pub fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    /// Blocks of the device.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Pages of the device.
    pub fn pages(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.pages_per_block)
    }

    /// Bytes of the device, including its reserve.
    pub fn bytes(&self) -> u64 {
        self.pages() * u64::from(self.page_bytes)
    }

    /// Blocks to keep free for remapping: 10 %, rounded up.
    pub fn reserved_blocks(&self) -> u32 {
        self.blocks.div_ceil(10)
    }

    /// The block of a page.
    pub fn block_of(&self, page: u32) -> u32 {
        page / self.pages_per_block
    }

    /// The index of a page in its block.
    pub fn index_of(&self, page: u32) -> u32 {
        page % self.pages_per_block
    }

    /// The number of a page. Both parts must be in range.
    pub fn page(&self, block: u32, index: u32) -> u32 {
        debug_assert!(block < self.blocks && index < self.pages_per_block);
        block * self.pages_per_block + index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_geometry_reports_every_mistake_and_page_numbers_round_trip() {
        let Err(Error::InvalidOptions(mistakes)) = Geometry::new(100, 0, 0) else { panic!() };
        assert_eq!(mistakes.len(), 3);
        Geometry::new(512, 1 << 16, 1 << 17).unwrap_err();
        Geometry::new(2 << 20, 1, 1).unwrap_err();
        let geometry = Geometry::paper(21).unwrap();
        assert_eq!((geometry.pages(), geometry.bytes()), (672, 672 * 4096));
        assert_eq!(geometry.reserved_blocks(), 3);
        for page in 0..672 {
            assert_eq!(geometry.page(geometry.block_of(page), geometry.index_of(page)), page);
        }
        let last = Geometry::new(512, 1 << 16, 1 << 16).unwrap();
        assert_eq!(last.page((1 << 16) - 1, (1 << 16) - 1), u32::MAX);
    }
}
