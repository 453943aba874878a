//! The errors of a flash device, by the violated rule.
//!
//! A violated rule is a bug of the caller; an unreadable page is expected after a power cut; an
//! erased page marks the end of what was written. So each is a variant of its own. The engine
//! converts them to the workspace's error with the device's name.
//!
//! Source: SkimpyFTL paper, section 2.1 (the rules).

use siltstone_engine::Error;

/// A result with a [`FlashError`].
pub type FlashResult<T> = Result<T, FlashError>;

/// An error of a device. Nothing has changed, unless the variant says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FlashError {
    /// The page is past the end of the device.
    #[error("{device} has no page {page}: its pages are 0 to {last}")]
    NoSuchPage {
        /// The device's name.
        device: String,
        /// The requested page.
        page: u32,
        /// The last page.
        last: u32,
    },

    /// The block is past the end of the device.
    #[error("{device} has no block {block}: its blocks are 0 to {last}")]
    NoSuchBlock {
        /// The device's name.
        device: String,
        /// The requested block.
        block: u32,
        /// The last block.
        last: u32,
    },

    /// Pages are read and programmed as a whole.
    #[error("{bytes} bytes are not a page of {device}, which has {page_bytes}")]
    NotAPage {
        /// The device's name.
        device: String,
        /// The length of the buffer, in bytes.
        bytes: usize,
        /// The page size, in bytes.
        page_bytes: usize,
    },

    /// The pages of a block are programmed in order.
    #[error("page {page} of {device} is out of order: the next of its block is page {next}")]
    OutOfOrder {
        /// The device's name.
        device: String,
        /// The page to be programmed.
        page: u32,
        /// The next page that can be programmed.
        next: u32,
    },

    /// A page is programmed once between two erases of its block.
    #[error("page {page} of {device} is programmed already: erase block {block} first")]
    AlreadyProgrammed {
        /// The device's name.
        device: String,
        /// The page to be programmed.
        page: u32,
        /// Its block.
        block: u32,
    },

    /// The page was not programmed since the erase of its block.
    #[error("page {page} of {device} is erased: nothing was programmed there")]
    Erased {
        /// The device's name.
        device: String,
        /// The page to be read.
        page: u32,
    },

    /// The page was programmed, but its bytes are damaged: torn by a power cut, left by an
    /// interrupted erase, or corrupted.
    #[error("page {page} of {device} is unreadable: erase block {block} before using it again")]
    Unreadable {
        /// The device's name.
        device: String,
        /// The page to be read.
        page: u32,
        /// Its block.
        block: u32,
        /// The page size in bytes; with the page's number it gives the offset.
        page_bytes: usize,
    },

    /// The block has reached its endurance. It can still be read.
    #[error("block {block} of {device} is worn out after {erases} erases: retire it")]
    WornOut {
        /// The device's name.
        device: String,
        /// The block to be erased.
        block: u32,
        /// Its number of erases.
        erases: u64,
    },

    /// Power is off. Requests in flight are as described at
    /// [`survivor`](super::Emulator::survivor).
    #[error("power of {device} is off")]
    PowerOff {
        /// The device's name.
        device: String,
    },

    /// A request to the underlying files failed. A failed program has made its page unusable; a
    /// failed erase may have erased the block or not.
    #[error(transparent)]
    Medium(#[from] Error),
}

impl From<FlashError> for Error {
    fn from(error: FlashError) -> Error {
        let reason = error.to_string();
        match error {
            FlashError::Medium(error) => error,
            FlashError::Unreadable { device, page, page_bytes, .. } => {
                Error::corruption(device, u64::from(page) * page_bytes as u64, reason)
            }
            FlashError::PowerOff { device } => {
                Error::io("use", device, &std::io::Error::other("power is off"))
            }
            _ => Error::Invalid(reason),
        }
    }
}
