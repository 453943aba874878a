//! A block on disk: optionally compressed, with a checksum.
//!
//! ```text
// ANCHOR: layout
//! frame    := stored  compression:u8  crc32c:u32                                 little endian
//!   compression 0: stored = contents
//!   compression 1: stored = contents_len:u32  LZ4 block
//!   compression 2: stored = contents_len:u32  Zstandard frame
//!   compression 3: stored = contents_len:u32  Zstandard frame that begins with the dictionary
// ANCHOR_END: layout
//! ```
//!
//! The checksum is seeded with the file's number and the frame's offset in the file, and covers
//! `stored` and the compression byte, so a frame from another file or offset fails it. A block that
//! would shrink by less than an eighth is stored uncompressed, which reads faster. An unknown
//! compression is reported as corruption; a new one needs a new format version of the SSTable.
//! Compression 3 is in data blocks of files with a dictionary (`dictionary`), and nowhere else.
//!
//! Invariant: decompression never allocates more than the stored length allows (255 times it for
//! LZ4, 32,768 times for Zstandard, which their formats cannot exceed).
//!
//! Source: LevelDB's block trailer.

use super::codec::{Codec, FrameError};
use super::dictionary::Dictionary;
use super::lz4;
use super::zstandard::{self, Compressor};
use crate::FileSum;

/// Bytes of a frame after the stored contents.
pub(crate) const TRAILER: usize = 5;

/// The compression of a block that needs the file's dictionary.
pub(crate) const WITH_DICTIONARY: u8 = 3;

const LZ4_RATIO: usize = 255;
const ZSTD_RATIO: usize = 32 << 10;

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4: fast to compress and decompress.
    Lz4,
    /// Zstandard at a level from 1 (fast) to 19 (small).
    Zstd {
        /// The level.
        level: i32,
    },
}

impl Compression {
    /// What it needs, if this build does not have it.
    pub fn missing_codec(self) -> Option<Codec> {
        let codec = match self {
            Compression::None => return None,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd { .. } => Codec::Zstandard,
        };
        (!codec.is_present()).then_some(codec)
    }
}

/// Writes frames and reuses the compressor's memory between them.
pub(crate) struct Framer {
    compression: Compression,
    zstd: Option<Compressor>,
    /// The compression byte of what `zstd` compresses.
    zstd_kind: u8,
}

impl Framer {
    pub(crate) fn new(compression: Compression) -> std::io::Result<Self> {
        let zstd = match compression {
            Compression::Zstd { level } => Some(Compressor::new(level)?),
            _ => None,
        };
        Ok(Framer { compression, zstd, zstd_kind: 2 })
    }

    /// A framer of Zstandard frames that begin with `dictionary`.
    pub(crate) fn with_dictionary(level: i32, dictionary: &[u8]) -> std::io::Result<Self> {
        let zstd = Compressor::with_dictionary(level, dictionary)?;
        let compression = Compression::Zstd { level };
        Ok(Framer { compression, zstd: Some(zstd), zstd_kind: WITH_DICTIONARY })
    }

    /// Appends the frame of `contents`, at `offset` of the file, to `out`, and returns its
    /// compression.
    pub(crate) fn frame(
        &mut self,
        out: &mut Vec<u8>,
        contents: &[u8],
        sum: FileSum,
        offset: u64,
        compress: bool,
    ) -> std::io::Result<u8> {
        let from = out.len();
        let mut kind = 0;
        if compress && self.compression != Compression::None {
            kind = self.compress(out, contents)?;
            let saved = contents.len().saturating_sub(out.len() - from);
            if saved < contents.len() / 8 || saved == 0 {
                out.truncate(from);
                kind = 0;
            }
        }
        if kind == 0 {
            out.extend_from_slice(contents);
        }
        out.push(kind);
        let crc = sum.of(offset, &out[from..]);
        out.extend_from_slice(&crc.to_le_bytes());
        Ok(kind)
    }

    fn compress(&mut self, out: &mut Vec<u8>, contents: &[u8]) -> std::io::Result<u8> {
        out.extend_from_slice(&(contents.len() as u32).to_le_bytes());
        match &mut self.zstd {
            None => lz4::compress(contents, out).map(|()| 1),
            Some(zstd) => zstd.compress(contents, out).map(|()| self.zstd_kind),
        }
    }
}

/// Checks the frame read from `offset` and returns a buffer and the length of the contents in it.
///
/// # Errors
/// [`FrameError`].
pub(crate) fn open_frame(
    frame: Vec<u8>,
    sum: FileSum,
    offset: u64,
    dictionary: Option<&Dictionary>,
) -> Result<(Vec<u8>, usize), FrameError> {
    let len = check_frame(&frame, sum, offset).map_err(FrameError::Damaged)?;
    match frame[len] {
        0 => Ok((frame, len)),
        kind => decompress(&frame[..len], kind, dictionary).map(|contents| {
            let len = contents.len();
            (contents, len)
        }),
    }
}

/// Checks a frame in place and returns the length of the stored contents.
fn check_frame(frame: &[u8], sum: FileSum, offset: u64) -> Result<usize, &'static str> {
    let Some((covered, crc)) = frame.split_last_chunk::<4>() else {
        return Err("a block is too short");
    };
    if covered.is_empty() {
        return Err("a block is too short");
    }
    if sum.of(offset, covered) != u32::from_le_bytes(*crc) {
        return Err("a block does not match its checksum");
    }
    Ok(covered.len() - 1)
}

fn decompress(
    stored: &[u8],
    kind: u8,
    dictionary: Option<&Dictionary>,
) -> Result<Vec<u8>, FrameError> {
    let damaged = |reason| Err(FrameError::Damaged(reason));
    let Some((len, packed)) = stored.split_first_chunk::<4>() else {
        return damaged("a compressed block is too short");
    };
    let len = u32::from_le_bytes(*len) as usize;
    let ratio = match kind {
        1 => LZ4_RATIO,
        2 | WITH_DICTIONARY => ZSTD_RATIO,
        _ => return damaged("a block has an unknown compression"),
    };
    if len / ratio > packed.len() {
        return damaged("a compressed block claims an impossible length");
    }
    if kind == WITH_DICTIONARY && dictionary.is_none() && Codec::Zstandard.is_present() {
        return damaged("a block needs a dictionary that the file does not have");
    }
    let mut contents = Vec::with_capacity(len);
    let done = match kind {
        1 => lz4::decompress(packed, len, &mut contents),
        _ => {
            let dictionary = dictionary.filter(|_| kind == WITH_DICTIONARY);
            zstandard::decompress(packed, dictionary.map(Dictionary::prepared), &mut contents)
        }
    };
    if done.map_err(FrameError::Missing)? != Some(len) {
        return damaged("a block does not decompress");
    }
    Ok(contents)
}
