//! The end of an SSTable: the directory of meta blocks, and the footer that locates it.
//!
//! ```text
// ANCHOR: layout
//! directory := data_bytes:u64  { name_len:u8  name  frame_bytes:u32 }*          little endian
//! footer    := directory_offset:u64  directory_bytes:u32  file_number:u64  file_bytes:u64
//!              version:u32  crc32c:u32  magic:"SILTSTSB"                          44 bytes
// ANCHOR_END: layout
//! ```
//!
//! Data blocks fill the first `data_bytes`; then follow the meta blocks in the directory's order,
//! the directory's frame, and the footer. The footer's checksum is seeded with the file's number
//! and the footer's offset and covers the footer's first 32 bytes. Magic, checksum and version keep
//! their positions and meanings in every version, so that a newer file is distinguished from a
//! damaged one and rejected by name. Version 2 has entries of the kind `Merge`; tables without them
//! have version 1, so that earlier programs read them. Version 3 is a table that was written
//! outside of a keyspace: its file number is drawn at random, and the sequence number of each entry
//! is 1, which stands for that of its ingestion. Version 4 has entries of the kind `Reference`, and
//! perhaps merges. Version 5 has data blocks that need the meta block "dictionary" (see
//! `block::dictionary`), and entries of any kind; version 6 is as version 3 with such blocks. A
//! reader skips meta blocks with unknown names.
//!
//! Invariant: a truncated or extended file does not open, because `file_bytes` states its length
//! and the footer the position of everything else.

use siltstone_engine::{Error, Result};

use crate::FileSum;
use crate::block::frame::TRAILER;
use crate::number::FileNumber;

/// Bytes of a footer.
pub const FOOTER_BYTES: usize = 44;
/// The newest format version that this program writes and reads.
pub const VERSION: u32 = 6;
/// A table for ingestion with a dictionary.
const VERSION_EXTERNAL_WITH_DICTIONARY: u32 = 6;
/// A table with a dictionary.
const VERSION_WITH_DICTIONARY: u32 = 5;
/// A table with references.
const VERSION_WITH_REFERENCES: u32 = 4;
/// A table for ingestion.
const VERSION_EXTERNAL: u32 = 3;
/// A table with merges and without references.
const VERSION_WITH_MERGES: u32 = 2;
/// A table without either.
const VERSION_WITHOUT_MERGES: u32 = 1;

const MAGIC: [u8; 8] = *b"SILTSTSB";
const CHECKSUMMED_BYTES: usize = 32;

/// The location of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// Offset of the directory's frame.
    pub directory_offset: u64,
    /// The length of that frame.
    pub directory_bytes: u32,
    /// The contents of the table.
    pub contents: Contents,
    /// Whether data blocks need the meta block "dictionary".
    pub has_dictionary: bool,
}

/// The contents of a table, which its version states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Entries of any kind but `Merge` and `Reference`.
    Plain,
    /// Entries of any kind but `Reference`.
    WithMerges,
    /// Entries of any kind.
    WithReferences,
    /// Puts and deletes to be ingested.
    External,
}

/// The version of a table.
fn version_of(contents: Contents, has_dictionary: bool) -> u32 {
    match (contents, has_dictionary) {
        (Contents::External, true) => VERSION_EXTERNAL_WITH_DICTIONARY,
        (_, true) => VERSION_WITH_DICTIONARY,
        (Contents::Plain, false) => VERSION_WITHOUT_MERGES,
        (Contents::WithMerges, false) => VERSION_WITH_MERGES,
        (Contents::WithReferences, false) => VERSION_WITH_REFERENCES,
        (Contents::External, false) => VERSION_EXTERNAL,
    }
}

/// The contents of a table of this version, and whether it has a dictionary.
fn of_version(version: u32) -> (Contents, bool) {
    match version {
        VERSION_EXTERNAL_WITH_DICTIONARY => (Contents::External, true),
        VERSION_WITH_DICTIONARY => (Contents::WithReferences, true),
        VERSION_WITH_REFERENCES => (Contents::WithReferences, false),
        VERSION_EXTERNAL => (Contents::External, false),
        VERSION_WITH_MERGES => (Contents::WithMerges, false),
        _ => (Contents::Plain, false),
    }
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
    /// Encodes the footer of a file of `file_bytes` in total.
    pub fn encode(&self, number: FileNumber, file_bytes: u64) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.directory_offset.to_le_bytes());
        out.extend_from_slice(&self.directory_bytes.to_le_bytes());
        out.extend_from_slice(&number.0.to_le_bytes());
        out.extend_from_slice(&file_bytes.to_le_bytes());
        out.extend_from_slice(&version_of(self.contents, self.has_dictionary).to_le_bytes());
        let crc = FileSum::new(number.0).of(file_bytes - FOOTER_BYTES as u64, &out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        let mut footer = [0; FOOTER_BYTES];
        footer.copy_from_slice(&out);
        footer
    }

    /// The number that an external table was written with, from its last bytes; `None` if they are
    /// not the end of an external table. Nothing is verified.
    pub fn external_number(tail: &[u8]) -> Option<FileNumber> {
        let bytes = tail.last_chunk::<FOOTER_BYTES>()?;
        let version: [u8; 4] = std::array::from_fn(|i| bytes[28 + i]);
        let number: [u8; 8] = std::array::from_fn(|i| bytes[12 + i]);
        let is_external = bytes[CHECKSUMMED_BYTES + 4..] == MAGIC
            && of_version(u32::from_le_bytes(version)).0 == Contents::External;
        let number = FileNumber(u64::from_le_bytes(number));
        (is_external && number <= FileNumber::LAST).then_some(number)
    }

    /// Decodes the footer from the last bytes of the file `name`, which has `file_bytes` and should
    /// have the number `number`.
    ///
    /// # Errors
    /// `Corruption`; `Refused` for a newer version.
    pub fn decode(tail: &[u8], name: &str, number: FileNumber, file_bytes: u64) -> Result<Footer> {
        let at = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let bad = |reason: &str| Error::corruption(name, at, reason);
        let Some(bytes) = tail.last_chunk::<FOOTER_BYTES>() else {
            return Err(bad("a table is too short to have a footer"));
        };
        if bytes[CHECKSUMMED_BYTES + 4..] != MAGIC {
            return Err(bad("a table does not end with its magic number"));
        }
        let u64_at = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| bytes[i + k]));
        let u32_at = |i: usize| u32::from_le_bytes(std::array::from_fn(|k| bytes[i + k]));
        if u64_at(12) != number.0 {
            return Err(bad(&format!("this is file {}, not {number}", FileNumber(u64_at(12)))));
        }
        if FileSum::new(number.0).of(at, &bytes[..CHECKSUMMED_BYTES]) != u32_at(CHECKSUMMED_BYTES) {
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
        let (contents, has_dictionary) = of_version(version);
        let footer = Footer {
            directory_offset: u64_at(0),
            directory_bytes: u32_at(8),
            contents,
            has_dictionary,
        };
        let ends = footer.directory_offset.checked_add(u64::from(footer.directory_bytes));
        if ends != Some(at) {
            return Err(bad("the directory does not end at the footer"));
        }
        Ok(footer)
    }
}

/// Encodes a directory.
pub(crate) fn encode_directory(data_bytes: u64, metas: &[MetaBlock]) -> Vec<u8> {
    let mut out = data_bytes.to_le_bytes().to_vec();
    for meta in metas {
        // The writer rejects longer names.
        out.push(meta.name.len() as u8);
        out.extend_from_slice(meta.name.as_bytes());
        out.extend_from_slice(&meta.bytes.to_le_bytes());
    }
    out
}

/// Decodes a directory at `directory_offset`: the end of the data, and the meta blocks.
///
/// # Errors
/// A message if it is malformed.
pub fn decode_directory(
    bytes: &[u8],
    directory_offset: u64,
) -> Result<(u64, Vec<MetaBlock>), &'static str> {
    const TRUNCATED: &str = "the directory is truncated";
    let (data_bytes, mut rest) = bytes.split_first_chunk::<8>().ok_or(TRUNCATED)?;
    let data_bytes = u64::from_le_bytes(*data_bytes);
    let (mut metas, mut offset) = (Vec::new(), data_bytes);
    while let Some((&name_len, tail)) = rest.split_first() {
        let (name, tail) = tail.split_at_checked(usize::from(name_len)).ok_or(TRUNCATED)?;
        let (frame_bytes, tail) = tail.split_first_chunk::<4>().ok_or(TRUNCATED)?;
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
