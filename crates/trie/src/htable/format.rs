//! The format of an HTable file. All integers are little endian.
//!
//! ```text
// ANCHOR: layout
//! file      := segment*  filter  special index  migrations  directory  page index  footer
//!                                             the last bucket ends with its last item
//! segment   := special*  zeros to a multiple of the bucket's bytes, if there are any  bucket*
//! bucket    := see super::bucket; found by super::directory
//! special   := frame of one item                        too large for a bucket, or fits in none
//! filter, special index, migrations, directory, page index := frames; 0 bytes where there is none
//!   special index := { suffix:u64  infix:u32  prefix:u64  offset:u64  item bytes:u32 }*  ascending
//!   migrations    := { source:u32  destination:u32  mark:u32 }*          ascending by source
//! footer    := buckets:u32  bucket_bytes:u32  layout:u32  file_number:u64  file_bytes:u64
//!              entries:u64  deletes:u64  bytes of filter, special index, migrations, directory,
//!              page index:u32 each  level:u32  container:u64  last sequence:u64
//!              seed:u64  weak_bits:u8  fanout_bits:u8  0:u16
//!              version:u32  crc32c:u32  magic:"SILTHTBL"                            112 bytes
// ANCHOR_END: layout
//! ```
//!
//! The footer records the container of the table, its hash function and its last sequence number,
//! from which a lost manifest can be rebuilt.
//!
//! Checksums are seeded with the file's number and the offset of the covered bytes: of a bucket all
//! bytes after the checksum, of the footer all before it. Layout 0 is the HTable, layout 1 a dense
//! run, layout 2 a sorted table. The pages of the latter two are buckets without migration, and are
//! found by the page index (see [`super::page_index`]).
//!
//! The migration record is in the bucket, so that a lookup in a wrong bucket can continue;
//! `migrations` repeats those of the fullest buckets, to be kept in memory.
//!
//! Compatibility: magic, checksum and version have the same offset in every version. A reader
//! rejects a newer version, and a new layout or field requires a new version. Version 3 is written.
//! Version 2, with a full-size last bucket and numbers of buckets in the directory, is read.
//! Version 1, without segments, was never released and is rejected.
//!
//! Invariant: a file that was truncated, extended or moved does not open.
//!
//! Source: LSM-trie paper, section 2.4.2 and figures 4 and 6.

use siltstone_engine::{Error, Result};

use super::balance::Migration;
use super::bucket::BUCKET_HEADER_BYTES;
use crate::config::TrieConfig;
use crate::container_id::{ContainerId, MAX_LEVEL};
use crate::files::NamedFile;
use crate::hash::{Hash, HashKind};
use siltstone_table::SUM_BYTES;

/// The size of the footer.
pub(crate) const FOOTER_BYTES: usize = 112;

const MAGIC: [u8; 8] = *b"SILTHTBL";
/// The version that is written.
pub(crate) const VERSION: u32 = 3;
/// The oldest version that is read: its last bucket has full size.
pub(crate) const FULL_SIZE_BUCKETS_VERSION: u32 = 2;
/// The number of frames after the segments.
pub(crate) const FRAMES: usize = 5;
pub(crate) const FILTER: usize = 0;
pub(crate) const SPECIALS: usize = 1;
pub(crate) const MIGRATIONS: usize = 2;
pub(crate) const DIRECTORY: usize = 3;
pub(crate) const PAGES: usize = 4;

/// The layout of the items of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Balanced buckets by hash.
    #[default]
    Buckets,
    /// Pages in hash order with a rank index; no filter.
    Run,
    /// Pages in hash order with an index of their first items: the paper's SSTable.
    Sorted,
}

const LAYOUTS: [Layout; 3] = [Layout::Buckets, Layout::Run, Layout::Sorted];

/// The container, the configuration and the age of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) container_id: ContainerId,
    pub(crate) config: TrieConfig,
    /// The newest sequence number in it. Of two tables on one path through the trie, the newer one
    /// has the greater number.
    pub(crate) last_sequence: u64,
}

/// The content of the footer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) version: u32,
    pub(crate) buckets: u32,
    pub(crate) bucket_bytes: u32,
    pub(crate) layout: Layout,
    pub(crate) file_bytes: u64,
    /// The number of items, deletions included.
    pub(crate) entries: u64,
    pub(crate) deletes: u64,
    /// The sizes of the frames after the segments.
    pub(crate) frames: [u32; FRAMES],
    pub(crate) origin: Origin,
}

impl Footer {
    pub(crate) fn encode(&self, file: &siltstone_table::FileSum, number: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for value in [self.buckets, self.bucket_bytes, self.layout as u32] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        for value in [number, self.file_bytes, self.entries, self.deletes] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        for value in self.frames {
            out.extend_from_slice(&value.to_le_bytes());
        }
        let Origin { container_id, config, last_sequence } = self.origin;
        out.extend_from_slice(&(container_id.level as u32).to_le_bytes());
        for value in [container_id.id, last_sequence, config.hash.seed] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&[config.hash.weak_bits as u8, config.fanout_bits as u8, 0, 0]);
        out.extend_from_slice(&self.version.to_le_bytes());
        let crc = file.of(self.file_bytes - FOOTER_BYTES as u64, &out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out
    }

    /// Decodes the footer of a file of `len` bytes.
    ///
    /// # Errors
    /// `Corruption`, or `Refused` for a newer version.
    pub(crate) fn decode(file: &NamedFile, len: u64, bytes: &[u8; FOOTER_BYTES]) -> Result<Self> {
        let offset = len - FOOTER_BYTES as u64;
        let damaged = |reason: &str| file.corruption(offset, reason);
        let u32_at = |at: usize| le32(&bytes[at..]);
        let u64_at = |at: usize| le64(&bytes[at..]);
        let crc_at = FOOTER_BYTES - 12;
        if bytes[crc_at + 4..] != MAGIC || u32_at(crc_at) != file.sum.of(offset, &bytes[..crc_at]) {
            return Err(damaged("the footer of the HTable does not match its checksum"));
        }
        let version = u32_at(crc_at - 4);
        if !(FULL_SIZE_BUCKETS_VERSION..=VERSION).contains(&version) {
            let reason = format!(
                "HTable format {version} is none of {FULL_SIZE_BUCKETS_VERSION} to {VERSION}, which this program \
                 knows; use the program that wrote it"
            );
            return Err(Error::Refused { path: file.display_path(), reason });
        }
        let layout = LAYOUTS.get(u32_at(8) as usize);
        let footer = Footer {
            version,
            buckets: u32_at(0),
            bucket_bytes: u32_at(4),
            layout: layout.copied().unwrap_or_default(),
            file_bytes: u64_at(20),
            entries: u64_at(28),
            deletes: u64_at(36),
            frames: [44, 48, 52, 56, 60].map(u32_at),
            origin: Origin {
                container_id: ContainerId { level: u32_at(64) as usize, id: u64_at(68) },
                config: TrieConfig {
                    hash: HashKind { seed: u64_at(84), weak_bits: bytes[92].into() },
                    fanout_bits: bytes[93].into(),
                },
                last_sequence: u64_at(76),
            },
        };
        // All but the last bucket, which may be short.
        let buckets = u64::from(footer.buckets.saturating_sub(1)) * u64::from(footer.bucket_bytes);
        let frame_bytes_after = footer.frames.iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
        let is_whole = u64_at(12) == file.number && footer.file_bytes == len;
        let fits = buckets.checked_add(frame_bytes_after).is_some_and(|bytes| bytes <= offset);
        let is_known = layout.is_some() && footer.bucket_bytes as usize > BUCKET_HEADER_BYTES;
        let Origin { container_id, config, .. } = footer.origin;
        let is_possible = container_id.level <= MAX_LEVEL
            && config.fanout_bits <= 5
            && config.hash.weak_bits < 64;
        if !(is_whole && fits && is_known && is_possible) {
            return Err(damaged("the footer of the HTable is not that of this file"));
        }
        Ok(footer)
    }

    /// The end of the segments.
    pub(crate) fn segments_end(&self) -> u64 {
        self.frame_at(0)
    }

    /// The offset of frame number `at`.
    pub(crate) fn frame_at(&self, at: usize) -> u64 {
        let frame_bytes_after: u64 = self.frames[at..].iter().map(|&bytes| u64::from(bytes)).sum();
        self.file_bytes - FOOTER_BYTES as u64 - frame_bytes_after
    }
}

/// The index entry of an item of the special bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpecialEntry {
    pub(crate) hash: Hash,
    /// The offset of its frame in the file.
    pub(crate) offset: u64,
    /// The size of the item, without the trailer of the frame.
    pub(crate) bytes: u32,
}

impl SpecialEntry {
    /// The size of its frame.
    pub(crate) fn frame_bytes(&self) -> u64 {
        u64::from(self.bytes) + SUM_BYTES as u64
    }
}

const SPECIAL_BYTES: usize = 32;
const MIGRATION_BYTES: usize = 12;

pub(crate) fn encode_specials(specials: &[SpecialEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(specials.len() * SPECIAL_BYTES);
    for special in specials {
        out.extend_from_slice(&special.hash.suffix.to_le_bytes());
        out.extend_from_slice(&special.hash.infix.to_le_bytes());
        out.extend_from_slice(&special.hash.prefix.to_le_bytes());
        out.extend_from_slice(&special.offset.to_le_bytes());
        out.extend_from_slice(&special.bytes.to_le_bytes());
    }
    out
}

/// `None`: malformed, not ordered, or not before `end`.
pub(crate) fn decode_specials(bytes: &[u8], end: u64) -> Option<Vec<SpecialEntry>> {
    let (records, rest) = bytes.as_chunks::<SPECIAL_BYTES>();
    let special = |record: &[u8; SPECIAL_BYTES]| SpecialEntry {
        hash: Hash {
            suffix: le64(&record[..8]),
            infix: le32(&record[8..12]),
            prefix: le64(&record[12..20]),
        },
        offset: le64(&record[20..28]),
        bytes: le32(&record[28..]),
    };
    let specials: Vec<SpecialEntry> = records.iter().map(special).collect();
    let fits = |special: &SpecialEntry| {
        special.offset.checked_add(special.frame_bytes()).is_some_and(|at| at <= end)
    };
    (rest.is_empty() && specials.is_sorted() && specials.iter().all(fits)).then_some(specials)
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

pub(crate) fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

pub(crate) fn le64(bytes: &[u8]) -> u64 {
    u64::from(le32(bytes)) | u64::from(le32(&bytes[4..])) << 32
}
