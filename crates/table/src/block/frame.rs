//! A block on disk: optionally compressed, with a checksum.
//!
//! ```text
// ANCHOR: layout
//! frame    := stored  compression:u8  crc32c:u32                                 little endian
//!   compression 0: stored = contents
//!   compression 1: stored = contents_len:u32  LZ4 block
//!   compression 2: stored = contents_len:u32  Zstandard frame
// ANCHOR_END: layout
//! ```
//!
//! The checksum is seeded with the file's number and the frame's offset in the file, and covers
//! `stored` and the compression byte, so a frame from another file or offset fails it. A block that
//! would shrink by less than an eighth is stored uncompressed, which reads faster. An unknown
//! compression is reported as corruption; a new one needs a new format version of the SSTable.
//!
//! Invariant: decompression never allocates more than the stored length allows (255 times it for
//! LZ4, 32,768 times for Zstandard, which their formats cannot exceed).
//!
//! Source: LevelDB's block trailer.

use std::cell::RefCell;

use crate::FileSum;

/// Bytes of a frame after the stored contents.
pub(crate) const TRAILER: usize = 5;

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

/// Writes frames and reuses the compressor's memory between them.
pub(crate) struct Framer {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Framer {
    pub(crate) fn new(compression: Compression) -> std::io::Result<Self> {
        let zstd = match compression {
            Compression::Zstd { level } => Some(zstd::bulk::Compressor::new(level)?),
            _ => None,
        };
        Ok(Framer { compression, zstd })
    }

    /// Appends the frame of `contents`, at `offset` of the file, to `out`.
    pub(crate) fn frame(
        &mut self,
        out: &mut Vec<u8>,
        contents: &[u8],
        sum: FileSum,
        offset: u64,
        compress: bool,
    ) -> std::io::Result<()> {
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
        Ok(())
    }

    fn compress(&mut self, out: &mut Vec<u8>, contents: &[u8]) -> std::io::Result<u8> {
        out.extend_from_slice(&(contents.len() as u32).to_le_bytes());
        let at = out.len();
        match &mut self.zstd {
            None => {
                out.resize(at + lz4_flex::block::get_maximum_output_size(contents.len()), 0);
                let len = lz4_flex::block::compress_into(contents, &mut out[at..])
                    .map_err(std::io::Error::other)?;
                out.truncate(at + len);
                Ok(1)
            }
            Some(zstd) => {
                out.resize(at + zstd::zstd_safe::compress_bound(contents.len()), 0);
                let len = zstd.compress_to_buffer(contents, &mut out[at..])?;
                out.truncate(at + len);
                Ok(2)
            }
        }
    }
}

/// Checks the frame read from `offset` and returns a buffer and the length of the contents in it.
///
/// # Errors
/// A message if the frame is invalid.
pub(crate) fn open_frame(
    frame: Vec<u8>,
    sum: FileSum,
    offset: u64,
) -> Result<(Vec<u8>, usize), &'static str> {
    let len = check_frame(&frame, sum, offset)?;
    match frame[len] {
        0 => Ok((frame, len)),
        kind => decompress(&frame[..len], kind).map(|contents| {
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

fn decompress(stored: &[u8], kind: u8) -> Result<Vec<u8>, &'static str> {
    let Some((len, packed)) = stored.split_first_chunk::<4>() else {
        return Err("a compressed block is too short");
    };
    let len = u32::from_le_bytes(*len) as usize;
    let ratio = match kind {
        1 => LZ4_RATIO,
        2 => ZSTD_RATIO,
        _ => return Err("a block has an unknown compression"),
    };
    if len / ratio > packed.len() {
        return Err("a compressed block claims an impossible length");
    }
    let mut contents = Vec::with_capacity(len);
    let done = match kind {
        1 => {
            contents.resize(len, 0);
            lz4_flex::block::decompress_into(packed, &mut contents).ok()
        }
        _ => ZSTD.with_borrow_mut(|zstd| {
            // A decompressor takes 150 KiB, so each thread reuses its own.
            if zstd.is_none() {
                *zstd = zstd::bulk::Decompressor::new().ok();
            }
            zstd.as_mut()?.decompress_to_buffer(packed, &mut contents).ok()
        }),
    };
    if done != Some(len) {
        return Err("a block does not decompress");
    }
    Ok(contents)
}

thread_local! {
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}
