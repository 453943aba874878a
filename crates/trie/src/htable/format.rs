//! The bytes of an HTable. All integers are little endian.
//!
//! ```text
//! file      := bucket{buckets}  special*  filter  special index  migrations  rank index  footer
//! bucket    := crc32c:u32  items:u16  used:u16  destination:u32  mark:u32  item*  zeros
//!              "bucket bytes" in all; `used` counts the items' bytes; destination 2^32 - 1: none
//! special   := frame of one item                        too large for a bucket, or fit nowhere
//! filter, special index, migrations, rank index := frames; empty (0 bytes) where there is none
//!   special index := { hash check:u64  offset:u64  item bytes:u32 }*      ascending by check
//!   migrations    := { source:u32  destination:u32  mark:u32 }*          ascending by source
//! footer    := buckets:u32  bucket_bytes:u32  layout:u32  0:u32  file_number:u64  file_bytes:u64
//!              entries:u64  deletes:u64  filter, special index, migrations, rank index bytes: u32
//!              each  version:u32  crc32c:u32  magic:"SILTHTBL"                       80 bytes
//! ```
//!
//! Every checksum starts from the file's number and the place of what it covers: of a bucket all
//! bytes behind it, of the footer all before it. Layout 0 is the HTable; layout 1 a dense run: its
//! pages are such buckets without migration, and are found by the rank index (see [`super::run`]).
//!
//! The migration record stands in the bucket, so that a lookup that was led astray knows where to go
//! on; `migrations` repeats those of the fullest buckets, to be kept in memory.
//!
//! Upgrade: magic, checksum and version keep their place in every version; a reader refuses a newer
//! version by name, and a new layout or field is a new version.
//!
//! Invariant: a file cut, extended or moved anywhere does not open.
//!
//! Source: LSM-trie paper, section 2.4.2 and figures 4 and 6; the layout is ours.

use siltstone_engine::{Error, Result};

use super::balance::Migration;
use crate::files::NamedFile;

/// Bytes of a bucket's header.
pub(crate) const BUCKET_HEADER: usize = 16;
/// Bytes of the footer.
pub(crate) const FOOTER_BYTES: usize = 80;
/// The destination of a bucket that nothing migrated from.
pub(crate) const NOWHERE: u32 = u32::MAX;

const MAGIC: [u8; 8] = *b"SILTHTBL";
const VERSION: u32 = 1;

/// What the footer says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) buckets: u32,
    pub(crate) bucket_bytes: u32,
    /// A dense run, not buckets by hash.
    pub(crate) is_run: bool,
    pub(crate) file_bytes: u64,
    /// Items, deletions counted.
    pub(crate) entries: u64,
    pub(crate) deletes: u64,
    /// Bytes of the frames behind the special items: filter, special index, migrations, rank index.
    pub(crate) frames: [u32; 4],
}

impl Footer {
    pub(crate) fn encode(&self, file: &crate::files::FileSum, number: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for value in [self.buckets, self.bucket_bytes, u32::from(self.is_run), 0] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        for value in [number, self.file_bytes, self.entries, self.deletes] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        for value in self.frames {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&VERSION.to_le_bytes());
        let crc = file.of(self.file_bytes - FOOTER_BYTES as u64, &out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out
    }

    /// Reads the footer of a file that is `len` bytes long.
    ///
    /// # Errors
    /// `Corruption`, or `Refused` for a newer version.
    pub(crate) fn decode(file: &NamedFile, len: u64, bytes: &[u8; FOOTER_BYTES]) -> Result<Self> {
        let offset = len - FOOTER_BYTES as u64;
        let damaged = |reason: &str| file.damaged(offset, reason);
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let crc_at = FOOTER_BYTES - 12;
        if bytes[crc_at + 4..] != MAGIC || word(crc_at) != file.sum.of(offset, &bytes[..crc_at]) {
            return Err(damaged("the footer of the HTable does not match its checksum"));
        }
        let version = word(crc_at - 4);
        if version > VERSION {
            let reason = format!(
                "HTable format {version} is newer than {VERSION}, the newest that this program \
                 knows; use a newer one"
            );
            return Err(Error::Refused { path: file.name.clone(), reason });
        }
        let footer = Footer {
            buckets: word(0),
            bucket_bytes: word(4),
            is_run: word(8) == 1,
            file_bytes: long(24),
            entries: long(32),
            deletes: long(40),
            frames: [48, 52, 56, 60].map(word),
        };
        let buckets = u64::from(footer.buckets) * u64::from(footer.bucket_bytes);
        let behind = footer.frames.iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
        let is_whole = long(16) == file.number && footer.file_bytes == len;
        let fits = buckets.checked_add(behind).is_some_and(|bytes| bytes <= offset);
        let is_known =
            word(8) <= 1 && word(12) == 0 && footer.bucket_bytes as usize > BUCKET_HEADER;
        if !(is_whole && fits && is_known) {
            return Err(damaged("the footer of the HTable is not that of this file"));
        }
        Ok(footer)
    }

    /// Bytes of all buckets: where the special items begin.
    pub(crate) fn special_at(&self) -> u64 {
        u64::from(self.buckets) * u64::from(self.bucket_bytes)
    }

    /// Where frame number `at` begins.
    pub(crate) fn frame_at(&self, at: usize) -> u64 {
        let behind: u64 = self.frames[at..].iter().map(|&bytes| u64::from(bytes)).sum();
        self.file_bytes - FOOTER_BYTES as u64 - behind
    }
}

/// An item of the special bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Special {
    pub(crate) check: u64,
    /// Of its frame, in the file.
    pub(crate) offset: u64,
    /// Of the item, without the frame's trailer.
    pub(crate) bytes: u32,
}

const SPECIAL_BYTES: usize = 20;
const MIGRATION_BYTES: usize = 12;

pub(crate) fn encode_specials(specials: &[Special]) -> Vec<u8> {
    let mut out = Vec::with_capacity(specials.len() * SPECIAL_BYTES);
    for special in specials {
        out.extend_from_slice(&special.check.to_le_bytes());
        out.extend_from_slice(&special.offset.to_le_bytes());
        out.extend_from_slice(&special.bytes.to_le_bytes());
    }
    out
}

/// `None`: malformed.
pub(crate) fn decode_specials(bytes: &[u8]) -> Option<Vec<Special>> {
    let (records, rest) = bytes.as_chunks::<SPECIAL_BYTES>();
    let special = |record: &[u8; SPECIAL_BYTES]| Special {
        check: le64(&record[..8]),
        offset: le64(&record[8..16]),
        bytes: le32(&record[16..]),
    };
    rest.is_empty().then(|| records.iter().map(special).collect())
}

pub(crate) fn encode_migrations(migrations: &[Migration]) -> Vec<u8> {
    let words = migrations.iter().flat_map(|m| [m.source, m.destination, m.mark]);
    words.flat_map(u32::to_le_bytes).collect()
}

/// `None`: malformed.
pub(crate) fn decode_migrations(bytes: &[u8]) -> Option<Vec<Migration>> {
    let (records, rest) = bytes.as_chunks::<MIGRATION_BYTES>();
    let migration = |record: &[u8; MIGRATION_BYTES]| Migration {
        source: le32(&record[..4]),
        destination: le32(&record[4..8]),
        mark: le32(&record[8..]),
    };
    rest.is_empty().then(|| records.iter().map(migration).collect())
}

/// The header of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketHeader {
    pub(crate) items: u16,
    pub(crate) used: u16,
    pub(crate) destination: u32,
    pub(crate) mark: u32,
}

impl BucketHeader {
    /// Writes the header over the head of a bucket whose items stand in place.
    pub(crate) fn seal(&self, sum: crate::files::FileSum, offset: u64, bucket: &mut [u8]) {
        bucket[4..6].copy_from_slice(&self.items.to_le_bytes());
        bucket[6..8].copy_from_slice(&self.used.to_le_bytes());
        bucket[8..12].copy_from_slice(&self.destination.to_le_bytes());
        bucket[12..16].copy_from_slice(&self.mark.to_le_bytes());
        let crc = sum.of(offset, &bucket[4..]);
        bucket[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Checks a bucket and gives its header and the bytes of its items; `None`: damaged.
    pub(crate) fn open(
        sum: crate::files::FileSum,
        offset: u64,
        bucket: &[u8],
    ) -> Option<(Self, &[u8])> {
        if le32(bucket.get(..4)?) != sum.of(offset, &bucket[4..]) {
            return None;
        }
        let half = |at: usize| u16::from_le_bytes([bucket[at], bucket[at + 1]]);
        let header = BucketHeader {
            items: half(4),
            used: half(6),
            destination: le32(&bucket[8..12]),
            mark: le32(&bucket[12..16]),
        };
        let items = bucket.get(BUCKET_HEADER..)?.get(..usize::from(header.used))?;
        Some((header, items))
    }
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn le64(bytes: &[u8]) -> u64 {
    u64::from(le32(bytes)) | u64::from(le32(&bytes[4..])) << 32
}
