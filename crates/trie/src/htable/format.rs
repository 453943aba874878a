//! The bytes of an HTable. All integers are little endian.
//!
//! ```text
// ANCHOR: layout
//! file      := segment*  filter  special index  migrations  directory  page index  footer
//!                                                        the last bucket ends behind its last item
//! segment   := special*  zeros to a multiple of the bucket's bytes, if there are any  bucket*
//! bucket    := see super::bucket; found by super::directory
//! special   := frame of one item                        too large for a bucket, or fit nowhere
//! filter, special index, migrations, directory, page index := frames; 0 bytes where there is none
//!   special index := { suffix:u64  infix:u32  prefix:u64  offset:u64  item bytes:u32 }*   ascending
//!   migrations    := { source:u32  destination:u32  mark:u32 }*          ascending by source
//! footer    := buckets:u32  bucket_bytes:u32  layout:u32  file_number:u64  file_bytes:u64
//!              entries:u64  deletes:u64  bytes of filter, special index, migrations, directory,
//!              page index:u32 each  level:u32  container:u64  last sequence:u64
//!              seed:u64  weak_bits:u8  fanout_bits:u8  0:u16
//!              version:u32  crc32c:u32  magic:"SILTHTBL"                            112 bytes
// ANCHOR_END: layout
//! ```
//!
//! Where a table stands in the trie, how its keys were hashed and up to which sequence number it holds
//! writes, is said again in its footer: from that a lost manifest can be made anew.
//!
//! Every checksum starts from the file's number and the place of what it covers: of a bucket all
//! bytes behind it, of the footer all before it. Layout 0 is the HTable; layout 1 a dense run and
//! layout 2 a sorted table: their pages are such buckets without migration, and are found by the page
//! index (see [`super::run`]).
//!
//! The migration record stands in the bucket, so that a lookup that was led astray knows where to go
//! on; `migrations` repeats those of the fullest buckets, to be kept in memory.
//!
//! Upgrade: magic, checksum and version keep their place in every version; a reader refuses a newer
//! version by name, and a new layout or field is a new version. Version 3 is written. In version 2 the
//! last bucket was whole and the directory stated numbers of buckets; it is read. Version 1, without
//! segments, was in no release and is refused.
//!
//! Invariant: a file cut, extended or moved anywhere does not open.
//!
//! Source: LSM-trie paper, section 2.4.2 and figures 4 and 6; the layout is ours.

use siltstone_engine::{Error, Result};

use super::balance::Migration;
use super::bucket::BUCKET_HEADER;
use crate::files::{FRAME_TRAILER, NamedFile};
use crate::hash::{Hash, HashKind};
use crate::version::{DEEPEST, Place, TrieShape};

/// Bytes of the footer.
pub(crate) const FOOTER_BYTES: usize = 112;

const MAGIC: [u8; 8] = *b"SILTHTBL";
/// The version that is written.
pub(crate) const VERSION: u32 = 3;
/// The oldest that is read: its buckets are all whole.
pub(crate) const WHOLE_BUCKETS: u32 = 2;
/// Frames behind the segments.
pub(crate) const FRAMES: usize = 5;
pub(crate) const FILTER: usize = 0;
pub(crate) const SPECIALS: usize = 1;
pub(crate) const MIGRATIONS: usize = 2;
pub(crate) const DIRECTORY: usize = 3;
pub(crate) const PAGES: usize = 4;

/// How the items of a table are laid out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Balanced buckets by hash.
    #[default]
    Buckets,
    /// Pages in the order of hashes under a rank index; no filter.
    Run,
    /// Pages in the order of hashes under an index of their first items: the paper's SSTable.
    Sorted,
}

const LAYOUTS: [Layout; 3] = [Layout::Buckets, Layout::Run, Layout::Sorted];

/// Whose a table is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) place: Place,
    pub(crate) shape: TrieShape,
    /// The newest sequence number of the writes in it; of two tables on one path through the trie the
    /// newer one's is greater.
    pub(crate) last_sequence: u64,
}

/// What the footer says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) version: u32,
    pub(crate) buckets: u32,
    pub(crate) bucket_bytes: u32,
    pub(crate) layout: Layout,
    pub(crate) file_bytes: u64,
    /// Items, deletions counted.
    pub(crate) entries: u64,
    pub(crate) deletes: u64,
    /// Bytes of the frames behind the segments.
    pub(crate) frames: [u32; FRAMES],
    pub(crate) origin: Origin,
}

impl Footer {
    pub(crate) fn encode(&self, file: &crate::files::FileSum, number: u64) -> Vec<u8> {
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
        let Origin { place, shape, last_sequence } = self.origin;
        out.extend_from_slice(&(place.level as u32).to_le_bytes());
        for value in [place.id, last_sequence, shape.hash.seed] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&[shape.hash.weak_bits as u8, shape.fanout_bits as u8, 0, 0]);
        out.extend_from_slice(&self.version.to_le_bytes());
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
        let word = |at: usize| le32(&bytes[at..]);
        let long = |at: usize| le64(&bytes[at..]);
        let crc_at = FOOTER_BYTES - 12;
        if bytes[crc_at + 4..] != MAGIC || word(crc_at) != file.sum.of(offset, &bytes[..crc_at]) {
            return Err(damaged("the footer of the HTable does not match its checksum"));
        }
        let version = word(crc_at - 4);
        if !(WHOLE_BUCKETS..=VERSION).contains(&version) {
            let reason = format!(
                "HTable format {version} is none of {WHOLE_BUCKETS} to {VERSION}, which this program \
                 knows; use the program that wrote it"
            );
            return Err(Error::Refused { path: file.place(), reason });
        }
        let layout = LAYOUTS.get(word(8) as usize);
        let footer = Footer {
            version,
            buckets: word(0),
            bucket_bytes: word(4),
            layout: layout.copied().unwrap_or_default(),
            file_bytes: long(20),
            entries: long(28),
            deletes: long(36),
            frames: [44, 48, 52, 56, 60].map(word),
            origin: Origin {
                place: Place { level: word(64) as usize, id: long(68) },
                shape: TrieShape {
                    hash: HashKind { seed: long(84), weak_bits: bytes[92].into() },
                    fanout_bits: bytes[93].into(),
                },
                last_sequence: long(76),
            },
        };
        // All but the last, which may be short.
        let buckets = u64::from(footer.buckets.saturating_sub(1)) * u64::from(footer.bucket_bytes);
        let behind = footer.frames.iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
        let is_whole = long(12) == file.number && footer.file_bytes == len;
        let fits = buckets.checked_add(behind).is_some_and(|bytes| bytes <= offset);
        let is_known = layout.is_some() && footer.bucket_bytes as usize > BUCKET_HEADER;
        let Origin { place, shape, .. } = footer.origin;
        let is_possible =
            place.level <= DEEPEST && shape.fanout_bits <= 5 && shape.hash.weak_bits < 64;
        if !(is_whole && fits && is_known && is_possible) {
            return Err(damaged("the footer of the HTable is not that of this file"));
        }
        Ok(footer)
    }

    /// Where the segments end.
    pub(crate) fn segments_end(&self) -> u64 {
        self.frame_at(0)
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
    pub(crate) hash: Hash,
    /// Of its frame, in the file.
    pub(crate) offset: u64,
    /// Of the item, without the frame's trailer.
    pub(crate) bytes: u32,
}

impl Special {
    /// Bytes of its frame.
    pub(crate) fn frame_bytes(&self) -> u64 {
        u64::from(self.bytes) + FRAME_TRAILER as u64
    }
}

const SPECIAL_BYTES: usize = 32;
const MIGRATION_BYTES: usize = 12;

pub(crate) fn encode_specials(specials: &[Special]) -> Vec<u8> {
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

/// `None`: malformed, or not in their order before `end`.
pub(crate) fn decode_specials(bytes: &[u8], end: u64) -> Option<Vec<Special>> {
    let (records, rest) = bytes.as_chunks::<SPECIAL_BYTES>();
    let special = |record: &[u8; SPECIAL_BYTES]| Special {
        hash: Hash {
            suffix: le64(&record[..8]),
            infix: le32(&record[8..12]),
            prefix: le64(&record[12..20]),
        },
        offset: le64(&record[20..28]),
        bytes: le32(&record[28..]),
    };
    let specials: Vec<Special> = records.iter().map(special).collect();
    let fits = |special: &Special| {
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
