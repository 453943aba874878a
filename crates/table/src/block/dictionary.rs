//! A Zstandard dictionary that the blocks of one file share.
//!
//! A block of a few KiB has little history to refer to. A dictionary is history that every block of
//! the file begins with: it is trained from blocks of the file itself, and stored in it.
//!
//! ```text
// ANCHOR: layout
//! meta block "dictionary" := 37 A4 30 EC  id:u32  entropy tables  contents       little endian
// ANCHOR_END: layout
//! ```
//!
//! The format is Zstandard's (RFC 8878, section 5). The meta block is never compressed, so that a
//! salvage finds it by its first bytes. Its checksum is that of its frame.
//!
//! Invariant: training the same samples gives the same dictionary.

use super::codec::FrameError;
use super::zstandard::{self, PreparedDictionary};

/// The first bytes of a dictionary.
pub(crate) const MAGIC: [u8; 4] = [0x37, 0xA4, 0x30, 0xEC];
/// The smallest dictionary: Zstandard trains none below it.
pub const MIN_DICTIONARY_BYTES: usize = 256;
/// The largest dictionary.
pub const MAX_DICTIONARY_BYTES: usize = 1 << 20;
/// A dictionary of 1 byte is trained from up to this many bytes (Zstandard recommends 100).
const SAMPLES_PER_BYTE: usize = 100;
/// The samples of one dictionary take at most this many bytes.
const MAX_SAMPLE_BYTES: usize = 16 << 20;
/// A dictionary takes at most this share of its samples: it must not outweigh what it saves.
const MIN_SAMPLES_PER_BYTE: usize = 16;

/// A dictionary that is prepared for decompression. Memory: about 27 KiB, and its size.
pub(crate) struct Dictionary {
    prepared: PreparedDictionary,
    bytes: usize,
}

impl Dictionary {
    /// Prepares the dictionary in these bytes.
    ///
    /// # Errors
    /// [`FrameError`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        if !bytes.starts_with(&MAGIC) {
            let reason = "the dictionary does not begin with its magic number";
            return Err(FrameError::Damaged(reason));
        }
        let prepared = PreparedDictionary::new(bytes).map_err(FrameError::Missing)?;
        let reason = "the dictionary is not one of Zstandard";
        let prepared = prepared.ok_or(FrameError::Damaged(reason))?;
        Ok(Dictionary { prepared, bytes: bytes.len() })
    }

    /// As the decompression of blocks needs it.
    pub(super) fn prepared(&self) -> &PreparedDictionary {
        &self.prepared
    }

    /// Its size in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.prepared.memory_bytes()
    }

    /// The size of the dictionary as it is stored.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The bytes of samples that a dictionary of up to `bytes` is trained from.
pub(crate) fn sample_bytes(bytes: usize) -> usize {
    bytes.saturating_mul(SAMPLES_PER_BYTE).min(MAX_SAMPLE_BYTES)
}

/// Trains a dictionary of up to `max_bytes` from samples that follow each other; `None` if they are
/// too few or have too little in common.
pub(crate) fn train(samples: &[u8], sizes: &[usize], max_bytes: usize) -> Option<Vec<u8>> {
    let max_bytes = max_bytes.min(samples.len() / MIN_SAMPLES_PER_BYTE);
    if max_bytes < MIN_DICTIONARY_BYTES {
        return None;
    }
    let trained = zstandard::train(samples, sizes, max_bytes)?;
    trained.starts_with(&MAGIC).then_some(trained)
}
