//! Finds the authentic frames of a file that may be damaged or torn.
//!
//! In an intact block the frames follow each other. Where none follows, every later byte of the
//! block is tried as the beginning of one, so a damaged frame hides no other. What is found must be
//! authentic and must continue the offsets before it.

use siltstone_engine::{Purpose, Result};

use super::frame::{BLOCK_BYTES, Frame, FrameCipher, MAX_CONTENT};
use super::header::HEADER_BYTES;
use crate::File;
use crate::zeros::is_zero;

/// Files are read in pieces of at most this size.
const MAX_PIECE_BYTES: u64 = 1 << 20;

/// Where the frames of a file end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// In the decrypted file.
    pub(super) offset: u64,
    /// In the encrypted file.
    pub(super) position: u64,
}

pub(super) const EMPTY: End = End { offset: 0, position: HEADER_BYTES };

/// An authentic frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) frame: Frame,
    /// The position of its block.
    pub(super) block: u64,
}

/// The authentic frames of a file, in the order of their offsets.
pub(super) type Extents = Vec<Extent>;

/// The authentic frames of the block at `position`; offsets begin at `offset` or later.
fn scan_block(
    cipher: &FrameCipher,
    block: &[u8],
    position: u64,
    mut offset: u64,
    found: &mut Extents,
) {
    let mut content = [0; MAX_CONTENT];
    let mut at = 0;
    while at < block.len() {
        // The content before a frame takes less space than its frames.
        let plausible = |frame: &Frame| frame.offset >= offset && frame.offset <= position;
        let frame = Frame::parse(block, at)
            .filter(plausible)
            .filter(|frame| cipher.open(block, frame, position, &mut content[..frame.len]));
        match frame {
            Some(frame) => {
                offset = frame.end_offset();
                at = frame.end();
                found.push(Extent { frame, block: position });
            }
            None => at += 1,
        }
    }
}

/// All authentic frames before `end`.
pub(super) fn scan(file: &dyn File, cipher: &FrameCipher, end: End) -> Result<Extents> {
    let mut found = Extents::new();
    let mut piece = Vec::new();
    let mut at = HEADER_BYTES;
    while at < end.position {
        piece.resize(MAX_PIECE_BYTES.min(end.position - at) as usize, 0);
        file.read_at(at, &mut piece, Purpose::Recovery)?;
        for block in piece.chunks(BLOCK_BYTES as usize) {
            let offset = found.last().map_or(0, |last: &Extent| last.frame.end_offset());
            scan_block(cipher, block, at, offset, &mut found);
            at += block.len() as u64;
        }
    }
    Ok(found)
}

/// Where the last authentic frame ends. Cost: reads the last block, and those that are behind the
/// last frame: what was preallocated or torn.
pub(super) fn find_end(file: &dyn File, cipher: &FrameCipher) -> Result<End> {
    let mut to = file.len()?;
    let mut piece = Vec::new();
    let mut piece_bytes = BLOCK_BYTES;
    let mut found = Extents::new();
    while to > HEADER_BYTES {
        let last_block = (to - 1) / BLOCK_BYTES * BLOCK_BYTES;
        let from = (last_block + BLOCK_BYTES).saturating_sub(piece_bytes).max(HEADER_BYTES);
        piece.resize((to - from) as usize, 0);
        if let Err(error) = file.read_at(from, &mut piece, Purpose::Recovery) {
            // The writer may have released what it had preallocated.
            let len = file.len()?;
            if len >= to {
                return Err(error);
            }
            to = len;
            continue;
        }
        for (i, block) in piece.chunks(BLOCK_BYTES as usize).enumerate().rev() {
            if is_zero(block) {
                continue;
            }
            let position = from + i as u64 * BLOCK_BYTES;
            scan_block(cipher, block, position, 0, &mut found);
            if let Some(Extent { frame, block }) = found.last() {
                let position = block + frame.end() as u64;
                return Ok(End { offset: frame.end_offset(), position });
            }
        }
        to = from;
        piece_bytes = (piece_bytes * 4).min(MAX_PIECE_BYTES);
    }
    Ok(EMPTY)
}
