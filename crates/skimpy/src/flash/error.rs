//! What a flash device refuses, by the rule that was broken.
//!
//! A broken rule is a bug of the caller, an unreadable page is a fact of life and an erased page is
//! how recovery finds the end of what was written: so each is a variant that can be matched on.
//! Above the engine they all become the house's error, with the device's name.
//!
//! Source: ours; the rules are section 2.1's of the SkimpyFTL paper.

use siltstone_engine::Error;

/// A result with a [`FlashError`].
pub type FlashResult<T> = Result<T, FlashError>;

/// What a device refuses. After it nothing has changed, unless the variant says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FlashError {
    /// The device ends before this page.
    #[error("{device} has no page {page}: its pages are 0 to {last}")]
    NoSuchPage {
        /// The device's name.
        device: String,
        /// The page that was asked for.
        page: u32,
        /// The last page there is.
        last: u32,
    },

    /// The device ends before this block.
    #[error("{device} has no block {block}: its blocks are 0 to {last}")]
    NoSuchBlock {
        /// The device's name.
        device: String,
        /// The block that was asked for.
        block: u32,
        /// The last block there is.
        last: u32,
    },

    /// Pages are read and programmed whole.
    #[error("{bytes} bytes are not a page of {device}, which has {page_bytes}")]
    NotAPage {
        /// The device's name.
        device: String,
        /// What was given, in bytes.
        bytes: usize,
        /// A page, in bytes.
        page_bytes: usize,
    },

    /// The pages of a block are programmed in order.
    #[error("page {page} of {device} is out of order: the next of its block is page {next}")]
    OutOfOrder {
        /// The device's name.
        device: String,
        /// The page that was to be programmed.
        page: u32,
        /// The page that can be programmed.
        next: u32,
    },

    /// A page is programmed once between two erases of its block.
    #[error("page {page} of {device} is programmed already: erase block {block} first")]
    AlreadyProgrammed {
        /// The device's name.
        device: String,
        /// The page that was to be programmed.
        page: u32,
        /// Its block.
        block: u32,
    },

    /// The page was not programmed since its block was erased.
    #[error("page {page} of {device} is erased: nothing was programmed there")]
    Erased {
        /// The device's name.
        device: String,
        /// The page that was to be read.
        page: u32,
    },

    /// The page was programmed, and its bytes do not hold: torn by a power cut, left by an erase
    /// that was cut, or damaged.
    #[error("page {page} of {device} is unreadable: erase block {block} before using it again")]
    Unreadable {
        /// The device's name.
        device: String,
        /// The page that was to be read.
        page: u32,
        /// Its block.
        block: u32,
        /// A page, in bytes: with the page it gives the byte.
        page_bytes: usize,
    },

    /// The block was erased as often as it bears. What it holds can be read on.
    #[error("block {block} of {device} is worn out after {erases} erases: retire it")]
    WornOut {
        /// The device's name.
        device: String,
        /// The block that was to be erased.
        block: u32,
        /// How often it was.
        erases: u64,
    },

    /// Power went off in this operation or before; what was in flight is as
    /// [`survivor`](super::Emulator::survivor) says.
    #[error("power of {device} is off")]
    PowerOff {
        /// The device's name.
        device: String,
    },

    /// What the device stands on failed. A program that failed has spoiled its page; a failed
    /// erase has changed nothing or erased the block.
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
