//! The page that names a row, and what the manifest keeps of it.
//!
//! ```text
//!    0  magic            8 bytes  "SiltRow\0"
//!    8  version          u32      1; a reader refuses any other by name
//!   12  page_bytes       u32      of the pool it was built in
//!   16  number           u64      the row's
//!   24  previous         u64      the row that the forward pointers point into; 0: none
//!   32  min_sequence     u64
//!   40  max_sequence     u64
//!   48  data_bytes       u64      all items
//!   56  directory_bytes  u64
//!   64  entries          u32
//!   68  data_pages       u32
//!   72  metadata_pages   u32
//!   76  directory_pages  u32
//!   80  directory_sum    u32      CRC-32C of the directory
//!   84  page numbers     u32 × directory_pages
//! ```
//!
//! The manifest's [`RowHandle`] has the page, the length and the checksum of this; from there every
//! part has its checksum in the part that names it, each seeded with the row's number and a place.
//!
//! Invariant: a header that was parsed has counts that fit each other and the pool, so what they make
//! one allocate is bounded by the pool's pages.
//!
//! Source: ours; the paper keeps the like of it in its manifest (section 4, "Consistency").

use super::element::{ELEMENT, MAX_ENTRIES};
use super::item::{ALIGNMENT, FIXED, RowSum, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"SiltRow\0";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 84;

/// Places that seed the checksums of what is not an item; addresses stay far below.
pub(super) const HEADER_PLACE: u64 = 1 << 63;
pub(super) const DIRECTORY_PLACE: u64 = (1 << 63) + 1;
/// Plus the number of the metadata page in the row.
pub(super) const METADATA_PLACE: u64 = 1 << 62;

/// All that a manifest needs to name a row: where its header is, and that it is this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowHandle {
    /// The number of the header's page in the pool.
    pub(crate) page: u32,
    /// Bytes of the header.
    pub(crate) bytes: u32,
    /// CRC-32C of the header, seeded.
    pub(crate) checksum: u32,
}

/// A header, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) page_bytes: u32,
    pub(super) number: u64,
    pub(super) previous: u64,
    pub(super) min_sequence: u64,
    pub(super) max_sequence: u64,
    pub(super) data_bytes: u64,
    pub(super) directory_bytes: u64,
    pub(super) entries: u32,
    pub(super) data_pages: u32,
    pub(super) metadata_pages: u32,
    pub(super) directory_pages: Vec<u32>,
    pub(super) directory_sum: u32,
}

impl Header {
    /// How many pages a directory can have, if the header is to fit its page.
    pub(super) fn max_directory_pages(page_bytes: usize) -> usize {
        (page_bytes - FIXED_BYTES) / 4
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        put(&VERSION.to_le_bytes());
        put(&self.page_bytes.to_le_bytes());
        for value in [
            self.number,
            self.previous,
            self.min_sequence,
            self.max_sequence,
            self.data_bytes,
            self.directory_bytes,
        ] {
            put(&value.to_le_bytes());
        }
        let pages = self.directory_pages.len() as u32;
        for value in [self.entries, self.data_pages, self.metadata_pages, pages, self.directory_sum]
        {
            put(&value.to_le_bytes());
        }
        self.directory_pages.iter().for_each(|number| put(&number.to_le_bytes()));
        out
    }

    /// Reads a header from its page, which is one of `pool_pages`.
    ///
    /// # Errors
    /// What does not hold.
    pub(super) fn parse(
        page: &[u8],
        handle: RowHandle,
        number: u64,
        pool_pages: u32,
    ) -> Result<Self, String> {
        let bytes = page.get(..handle.bytes as usize).ok_or("a row's header is cut off")?;
        if RowSum::new(number).of(HEADER_PLACE, bytes) != handle.checksum {
            return Err("a row's header does not match the manifest's checksum".into());
        }
        if bytes.get(..8) != Some(MAGIC) || bytes.len() < FIXED_BYTES {
            return Err("this is no header of a row".into());
        }
        let half = |at| u32_at(bytes, at).unwrap_or(0);
        let whole = |at| u64_at(bytes, at).unwrap_or(0);
        if half(8) != VERSION {
            return Err(format!("a row of version {}, and {VERSION} is known", half(8)));
        }
        let directory_pages = bytes[FIXED_BYTES..].chunks_exact(4);
        let header = Header {
            page_bytes: half(12),
            number: whole(16),
            previous: whole(24),
            min_sequence: whole(32),
            max_sequence: whole(40),
            data_bytes: whole(48),
            directory_bytes: whole(56),
            entries: half(64),
            data_pages: half(68),
            metadata_pages: half(72),
            directory_sum: half(80),
            directory_pages: directory_pages.map(|n| u32_at(n, 0).unwrap_or(0)).collect(),
        };
        let pages = header.directory_pages.len();
        if half(76) as usize != pages || bytes.len() != FIXED_BYTES + 4 * pages {
            return Err("a row's header has another length than it says".into());
        }
        header.check(page.len() as u64, number, pool_pages)?;
        Ok(header)
    }

    fn check(&self, page_bytes: u64, number: u64, pool_pages: u32) -> Result<(), String> {
        if u64::from(self.page_bytes) != page_bytes {
            let built = self.page_bytes;
            return Err(format!(
                "a row of pages of {built} bytes, and the pool's have {page_bytes}"
            ));
        }
        if self.number != number {
            return Err(format!("row {} stands where row {number} should", self.number));
        }
        let pages = |bytes: u64| bytes.div_ceil(page_bytes);
        let metadata_bytes = u64::from(self.entries) * ELEMENT as u64;
        let directory_pages = self.directory_pages.len() as u64;
        let all = u64::from(self.data_pages) + u64::from(self.metadata_pages) + directory_pages;
        let fits = (1..=MAX_ENTRIES).contains(&self.entries)
            && pages(self.data_bytes) == u64::from(self.data_pages)
            && pages(metadata_bytes) == u64::from(self.metadata_pages)
            && pages(self.directory_bytes) == directory_pages
            && self.data_bytes.is_multiple_of(ALIGNMENT)
            && self.data_bytes / FIXED as u64 >= u64::from(self.entries)
            && all < u64::from(pool_pages);
        if fits { Ok(()) } else { Err("the counts in a row's header don't fit each other".into()) }
    }
}
