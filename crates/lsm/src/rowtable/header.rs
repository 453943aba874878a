//! The header page of a row (an L0 run in persistent memory), and its handle in the manifest.
//!
//! ```text
//!    0  magic            8 bytes  "SiltRow\0"
//!    8  version          u32      1; a reader rejects any other
//!   12  page_bytes       u32      page size of the pool that the row was built in
//!   16  number           u64      of the row
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
//! The manifest's [`RowHandle`] has the page, the length and the checksum of the header. The header
//! in turn has the checksum of the directory, and the directory those of the metadata pages. All
//! are seeded with the row's number and a position.
//!
//! Invariant: the counts of a decoded header are consistent with each other and with the pool, so
//! the memory allocated for them is limited by the number of pages in the pool.
//!
//! Source: TriangleKV paper, section 4 ("Consistency"), which stores similar data in its manifest.

use siltstone_table::FileSum;

use super::element::{ELEMENT_BYTES, MAX_ENTRIES};
use super::item::{ALIGNMENT, ITEM_HEADER_BYTES, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"SiltRow\0";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 84;

/// Positions that seed the checksums of parts other than items; addresses are far below.
pub(super) const HEADER_POSITION: u64 = 1 << 63;
pub(super) const DIRECTORY_POSITION: u64 = (1 << 63) + 1;
/// Plus the number of the metadata page in the row.
pub(super) const METADATA_POSITION: u64 = 1 << 62;

/// Names a row in the manifest: the location and the checksum of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowHandle {
    /// The number of the header page in the pool.
    pub(crate) page: u32,
    /// The length of the header in bytes.
    pub(crate) bytes: u32,
    /// The seeded CRC-32C of the header.
    pub(crate) checksum: u32,
}

/// A decoded header.
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
    /// The maximum number of directory pages whose numbers fit the header page.
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

    /// Decodes a header from its page, one of `pool_pages`.
    ///
    /// # Errors
    /// A description of what is malformed.
    pub(super) fn parse(
        page: &[u8],
        handle: RowHandle,
        number: u64,
        pool_pages: u32,
    ) -> Result<Self, String> {
        let bytes = page.get(..handle.bytes as usize).ok_or("a row's header is cut off")?;
        if FileSum::new(number).of(HEADER_POSITION, bytes) != handle.checksum {
            return Err("a row's header does not match the manifest's checksum".into());
        }
        if bytes.get(..8) != Some(MAGIC) || bytes.len() < FIXED_BYTES {
            return Err("this is no header of a row".into());
        }
        let u32_field = |at| u32_at(bytes, at).unwrap_or(0);
        let u64_field = |at| u64_at(bytes, at).unwrap_or(0);
        if u32_field(8) != VERSION {
            return Err(format!("a row of version {}, and {VERSION} is known", u32_field(8)));
        }
        let directory_pages = bytes[FIXED_BYTES..].chunks_exact(4);
        let header = Header {
            page_bytes: u32_field(12),
            number: u64_field(16),
            previous: u64_field(24),
            min_sequence: u64_field(32),
            max_sequence: u64_field(40),
            data_bytes: u64_field(48),
            directory_bytes: u64_field(56),
            entries: u32_field(64),
            data_pages: u32_field(68),
            metadata_pages: u32_field(72),
            directory_sum: u32_field(80),
            directory_pages: directory_pages.map(|n| u32_at(n, 0).unwrap_or(0)).collect(),
        };
        let pages = header.directory_pages.len();
        if u32_field(76) as usize != pages || bytes.len() != FIXED_BYTES + 4 * pages {
            return Err("a row's header has another length than it says".into());
        }
        header.check(page.len() as u64, number, pool_pages)?;
        Ok(header)
    }

    fn check(&self, page_bytes: u64, number: u64, pool_pages: u32) -> Result<(), String> {
        if u64::from(self.page_bytes) != page_bytes {
            let row_page_bytes = self.page_bytes;
            return Err(format!(
                "the row has pages of {row_page_bytes} bytes, the pool has pages of {page_bytes}"
            ));
        }
        if self.number != number {
            return Err(format!("row {} is in the place of row {number}", self.number));
        }
        let pages = |bytes: u64| bytes.div_ceil(page_bytes);
        let metadata_bytes = u64::from(self.entries) * ELEMENT_BYTES as u64;
        let directory_pages = self.directory_pages.len() as u64;
        let all = u64::from(self.data_pages) + u64::from(self.metadata_pages) + directory_pages;
        let fits = (1..=MAX_ENTRIES).contains(&self.entries)
            && pages(self.data_bytes) == u64::from(self.data_pages)
            && pages(metadata_bytes) == u64::from(self.metadata_pages)
            && pages(self.directory_bytes) == directory_pages
            && self.data_bytes.is_multiple_of(ALIGNMENT)
            && self.data_bytes / ITEM_HEADER_BYTES as u64 >= u64::from(self.entries)
            && all < u64::from(pool_pages);
        if fits { Ok(()) } else { Err("the counts in a row's header don't fit each other".into()) }
    }
}
