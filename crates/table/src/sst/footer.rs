//! The end of a sorted table: its directory of meta blocks, and the footer that finds it.
//!
//! ```text
// ANCHOR: layout
//! directory := data_bytes:u64  { name_len:u8  name  frame_bytes:u32 }*          little endian
//! footer    := directory_offset:u64  directory_bytes:u32  file_number:u64  file_bytes:u64
//!              version:u32  crc32c:u32  magic:"SILTSTSB"                          44 bytes
// ANCHOR_END: layout
//! ```
//!
//! Data blocks fill the first `data_bytes`; the meta blocks follow in the directory's order, then the
//! directory's frame, then the footer. The footer's checksum starts from the file's number and the
//! footer's offset and covers its first 32 bytes; magic, checksum and version keep their place and
//! meaning in every version, so a newer file is told from a damaged one and refused by name. A
//! reader skips meta blocks whose names it does not know.
//!
//! Invariant: a file cut or extended anywhere does not open, since `file_bytes` says how long it is
//! and the footer how far from the end everything stands.

use siltstone_engine::{Error, Result};

use crate::block::frame::{FileSum, TRAILER};
use crate::number::FileNumber;

/// Bytes of a footer.
pub const FOOTER_BYTES: usize = 44;
/// The version of the format that this program writes, and the newest it reads.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"SILTSTSB";
const COVERED: usize = 32;

/// Where the directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The directory's frame in the file, in bytes.
    pub directory_offset: u64,
    /// The length of that frame.
    pub directory_bytes: u32,
}

/// A meta block in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaBlock {
    /// Its name.
    pub name: String,
    /// Its frame's offset in the file.
    pub offset: u64,
    /// Its frame's length in bytes.
    pub bytes: u32,
}

impl Footer {
    /// The footer of a file of `file_bytes` in all.
    pub fn encode(&self, number: FileNumber, file_bytes: u64) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.directory_offset.to_le_bytes());
        out.extend_from_slice(&self.directory_bytes.to_le_bytes());
        out.extend_from_slice(&number.0.to_le_bytes());
        out.extend_from_slice(&file_bytes.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        let crc = FileSum::new(number.0).of(file_bytes - FOOTER_BYTES as u64, &out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        let mut footer = [0; FOOTER_BYTES];
        footer.copy_from_slice(&out);
        footer
    }

    /// Reads the footer from the last bytes of the file `name`, which is `file_bytes` long and
    /// should be number `number`.
    ///
    /// # Errors
    /// `Corruption`; `Refused` for a newer version.
    pub fn decode(tail: &[u8], name: &str, number: FileNumber, file_bytes: u64) -> Result<Footer> {
        let at = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let bad = |reason: &str| Error::corruption(name, at, reason);
        let Some(bytes) = tail.last_chunk::<FOOTER_BYTES>() else {
            return Err(bad("a table is too short to have a footer"));
        };
        if bytes[COVERED + 4..] != MAGIC {
            return Err(bad("a table does not end with its magic number"));
        }
        let u64_at = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| bytes[i + k]));
        let u32_at = |i: usize| u32::from_le_bytes(std::array::from_fn(|k| bytes[i + k]));
        if u64_at(12) != number.0 {
            return Err(bad(&format!("this is file {}, not {number}", FileNumber(u64_at(12)))));
        }
        if FileSum::new(number.0).of(at, &bytes[..COVERED]) != u32_at(COVERED) {
            return Err(bad("the footer does not match its checksum"));
        }
        let version = u32_at(28);
        if version > VERSION {
            return Err(Error::Refused {
                path: name.into(),
                reason: format!(
                    "table format {version} is newer than {VERSION}; use a newer program"
                ),
            });
        }
        if u64_at(20) != file_bytes {
            return Err(bad(&format!("the table had {} bytes, not {file_bytes}", u64_at(20))));
        }
        let footer = Footer { directory_offset: u64_at(0), directory_bytes: u32_at(8) };
        let ends = footer.directory_offset.checked_add(u64::from(footer.directory_bytes));
        if ends != Some(at) {
            return Err(bad("the directory does not end at the footer"));
        }
        Ok(footer)
    }
}

/// The contents of a directory.
pub(crate) fn encode_directory(data_bytes: u64, metas: &[MetaBlock]) -> Vec<u8> {
    let mut out = data_bytes.to_le_bytes().to_vec();
    for meta in metas {
        // The writer refuses longer names.
        out.push(meta.name.len() as u8);
        out.extend_from_slice(meta.name.as_bytes());
        out.extend_from_slice(&meta.bytes.to_le_bytes());
    }
    out
}

/// Reads a directory that stands at `directory_offset`: where the data ends, and the meta blocks.
///
/// # Errors
/// What is malformed.
pub fn decode_directory(
    bytes: &[u8],
    directory_offset: u64,
) -> Result<(u64, Vec<MetaBlock>), &'static str> {
    const CUT: &str = "the directory is cut off";
    let (data_bytes, mut rest) = bytes.split_first_chunk::<8>().ok_or(CUT)?;
    let data_bytes = u64::from_le_bytes(*data_bytes);
    let (mut metas, mut offset) = (Vec::new(), data_bytes);
    while let Some((&name_len, tail)) = rest.split_first() {
        let (name, tail) = tail.split_at_checked(usize::from(name_len)).ok_or(CUT)?;
        let (frame_bytes, tail) = tail.split_first_chunk::<4>().ok_or(CUT)?;
        let name = std::str::from_utf8(name).map_err(|_| "a meta block's name is not UTF-8")?;
        let frame_bytes = u32::from_le_bytes(*frame_bytes);
        if (frame_bytes as usize) < TRAILER {
            return Err("a meta block is too short");
        }
        metas.push(MetaBlock { name: name.into(), offset, bytes: frame_bytes });
        offset = offset.checked_add(u64::from(frame_bytes)).ok_or("the directory overflows")?;
        rest = tail;
    }
    if offset != directory_offset {
        return Err("the meta blocks do not end at the directory");
    }
    Ok((data_bytes, metas))
}
