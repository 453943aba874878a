//! Builds a row: data pages as items are added, then the metadata, the directory and the header.
//!
//! ```text
//!   add ─▶ data pages …            stored page by page
//!   finish ─▶ last data page, metadata pages, directory pages, header
//!             one barrier over all of them
//!             a handle for the manifest
//! ```
//!
//! No manifest names a row before it is finished, so its pages need no order among themselves, and
//! one barrier makes all of them durable. The pages of a builder that is dropped, or that a crash
//! ends, are free.
//!
//! Until the row is finished, each version takes 20 bytes of memory. The common prefix of all keys
//! is known only then, but is never longer than the prefix that the first key shares with any
//! other. So each element keeps the length of the prefix that its key shares with the first key,
//! and the bytes after it.
//!
//! Invariant: versions ascend strictly in run order, or are rejected.
//!
//! Source: TriangleKV paper, sections 3.1 and 3.4 (construction of rows and of hints).

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::{EntryRef, FileSum, kind};
use siltstone_vfs::{PageMut, PmemPool};

use super::directory::{Directory, GRANULE_ELEMENTS, GranuleWriter};
use super::element::{
    ELEMENT_BYTES, Element, FRAGMENT_BYTES, MAX_ENTRIES, encode_place, fragment, hint,
};
use super::header::{DIRECTORY_POSITION, HEADER_POSITION, Header, METADATA_POSITION, RowHandle};
use super::item::{ALIGNMENT, encode_head};
use super::search_stats::SearchStats;
use super::table::{RowParts, RowTable};
use crate::live_range::LiveRange;

/// The minimum page size: a page holds the elements of a granule.
pub(crate) const MIN_PAGE_BYTES: usize = GRANULE_ELEMENTS * ELEMENT_BYTES;

/// Builds one row.
pub(crate) struct RowBuilder {
    pool: PmemPool,
    number: u64,
    sum: FileSum,
    purpose: Purpose,
    hints: Option<HintWriter>,
    data: PageWriter,
    elements: Vec<PendingElement>,
    granules: GranuleWriter,
    first_key: Vec<u8>,
    last: Option<(Vec<u8>, u64)>,
    sequences: (u64, u64),
    head: Vec<u8>,
}

/// An element whose fragment is not known yet.
struct PendingElement {
    /// The length of the common prefix of the key and the first key.
    shared: u32,
    /// The bytes of the key after that prefix.
    rest: [u8; FRAGMENT_BYTES],
    hint: u32,
    place: u32,
}

impl RowBuilder {
    /// A row with this number, 1 or more, in pages of `pool`. Its forward pointers point into
    /// `previous`, the newest row. If `previous` is damaged, the row has no pointers.
    ///
    /// # Errors
    /// `Invalid`: the pool's pages are smaller than [`MIN_PAGE_BYTES`].
    pub(crate) fn new(
        pool: &PmemPool,
        number: u64,
        previous: Option<Arc<RowTable>>,
        purpose: Purpose,
    ) -> Result<Self> {
        if pool.page_bytes() < MIN_PAGE_BYTES {
            let reason = format!("rows need pages of at least {MIN_PAGE_BYTES} bytes");
            return Err(Error::Invalid(reason));
        }
        Ok(RowBuilder {
            data: PageWriter::new(pool, purpose),
            pool: pool.clone(),
            number,
            sum: FileSum::new(number),
            purpose,
            hints: previous.map(|previous| HintWriter { previous, position: 0, last: None }),
            elements: Vec::new(),
            granules: GranuleWriter::default(),
            first_key: Vec::new(),
            last: None,
            sequences: (u64::MAX, 0),
            head: Vec::new(),
        })
    }

    /// Adds the next version in run order.
    ///
    /// # Errors
    /// `Invalid`: it does not come after the last one. `TooLarge`: the row is full (32 GiB of
    /// items, or 2²⁸ of them). `Io` of kind `StorageFull` if the pool is full, or another error of
    /// the device. The builder is unusable after an error.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let is_ordered = self.last.as_ref().is_none_or(|(key, sequence)| {
            kind::compare((key, *sequence), (entry.key, entry.sequence)).is_lt()
        });
        if !is_ordered {
            return Err(Error::Invalid("a row's versions were added out of order".into()));
        }
        let address = self.data.len;
        let place = match (encode_place(address), self.elements.len() < MAX_ENTRIES as usize) {
            (Some(place), true) => place,
            _ => return Err(too_large(address)),
        };
        let hint = match self.hints.as_mut().map(|hints| hints.next(entry.key)) {
            Some(Ok(hint)) => hint,
            // A damaged previous row does not prevent the build; its readers report the damage.
            Some(Err(error)) if error.is_corruption() => {
                self.hints = None;
                0
            }
            Some(Err(error)) => return Err(error),
            None => 0,
        };
        if self.elements.is_empty() {
            self.first_key.extend_from_slice(entry.key);
        }
        if self.elements.len().is_multiple_of(GRANULE_ELEMENTS) {
            self.granules.granule(place, entry.key);
        }
        self.head.clear();
        encode_head(&entry, self.sum, address, &mut self.head);
        self.data.append(&self.head)?;
        self.data.append(entry.value)?;
        self.data.pad(ALIGNMENT)?;

        let shared = self.first_key.iter().zip(entry.key).take_while(|(a, b)| a == b).count();
        let rest = fragment(&entry.key[shared..]).to_be_bytes();
        self.elements.push(PendingElement { shared: shared as u32, rest, hint, place });
        let (oldest, newest) = self.sequences;
        self.sequences = (oldest.min(entry.sequence), newest.max(entry.sequence));
        let (mut key, _) = self.last.take().unwrap_or_default();
        key.clear();
        key.extend_from_slice(entry.key);
        self.last = Some((key, entry.sequence));
        Ok(())
    }

    /// Whether no version was added yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Writes the other parts, makes everything durable with one barrier, and opens the row, with
    /// every key live.
    ///
    /// # Errors
    /// `Invalid`: no version was added. Others as of [`add`](Self::add).
    pub(crate) fn finish(mut self) -> Result<RowTable> {
        let Some((last_key, _)) = self.last.take() else {
            return Err(Error::Invalid("a row without versions".into()));
        };
        let data_bytes = self.data.len;
        let mut pages = self.data.finish()?;
        let data_pages = pages.len();

        let mut metadata = PageWriter::new(&self.pool, self.purpose);
        let mut sums = Vec::new();
        let common = common(&self.first_key, &last_key);
        let mut bytes = Vec::with_capacity(self.pool.page_bytes());
        for elements in self.elements.chunks(self.pool.page_bytes() / ELEMENT_BYTES) {
            bytes.clear();
            for pending in elements {
                pending.element(&self.first_key, common).encode(&mut bytes);
            }
            sums.push(self.sum.of(METADATA_POSITION + sums.len() as u64, &bytes));
            metadata.append(&bytes)?;
        }
        pages.extend(metadata.finish()?);

        self.granules.last(&last_key);
        let (data, metadata) = pages.split_at(data_pages);
        let metadata = metadata.iter().map(PageMut::number).zip(sums);
        let directory = self.granules.finish(data.iter().map(PageMut::number), metadata);
        let metadata_pages = pages.len() - data_pages;
        let mut writer = PageWriter::new(&self.pool, self.purpose);
        writer.append(&directory)?;
        let directory_pages = writer.finish()?;
        if directory_pages.len() > Header::max_directory_pages(self.pool.page_bytes()) {
            return Err(too_large(data_bytes));
        }
        let header = Header {
            page_bytes: self.pool.page_bytes() as u32,
            number: self.number,
            previous: self.hints.as_ref().map_or(0, |hints| hints.previous.number()),
            min_sequence: self.sequences.0,
            max_sequence: self.sequences.1,
            data_bytes,
            directory_bytes: directory.len() as u64,
            entries: self.elements.len() as u32,
            data_pages: data_pages as u32,
            metadata_pages: metadata_pages as u32,
            directory_pages: directory_pages.iter().map(PageMut::number).collect(),
            directory_sum: self.sum.of(DIRECTORY_POSITION, &directory),
        };
        let bytes = header.encode();
        let mut first = self.pool.allocate()?;
        first.store(0, &bytes, self.purpose)?;
        let handle = RowHandle {
            page: first.number(),
            bytes: bytes.len() as u32,
            checksum: self.sum.of(HEADER_POSITION, &bytes),
        };
        let frame: Vec<PageMut> = std::iter::once(first).chain(directory_pages).collect();
        self.pool.persist(pages.iter().chain(&frame), self.purpose)?;

        let mut pages = pages.into_iter().map(|page| Some(page.freeze()));
        let data = pages.by_ref().take(data_pages).collect();
        let directory = Directory::parse(directory, &header).map_err(|reason| {
            Error::corruption(self.pool.name(), 0, format!("as it was built: {reason}"))
        })?;
        let frame = frame.into_iter().map(PageMut::freeze).collect();
        let parts = RowParts { handle, header, directory, frame, data, metadata: pages.collect() };
        RowTable::assemble(parts, LiveRange::all()).locate_segments()
    }
}

impl PendingElement {
    /// The element for the common prefix of all keys, of `common` bytes, no more than `shared`.
    fn element(&self, first_key: &[u8], common: usize) -> Element {
        let mut bytes = [0; FRAGMENT_BYTES];
        let suffix = &first_key[common..self.shared as usize];
        let suffix = &suffix[..suffix.len().min(FRAGMENT_BYTES)];
        bytes[..suffix.len()].copy_from_slice(suffix);
        bytes[suffix.len()..].copy_from_slice(&self.rest[..FRAGMENT_BYTES - suffix.len()]);
        Element::new(fragment(&bytes), self.hint, self.place)
    }
}

/// The length of the common prefix of two keys.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn too_large(size: u64) -> Error {
    Error::TooLarge { what: "row", size, limit: u64::from(u32::MAX) * ALIGNMENT }
}

/// Iterates over the previous row in parallel to the one that is built.
struct HintWriter {
    previous: Arc<RowTable>,
    position: usize,
    /// The last forward pointer.
    last: Option<u32>,
}

impl HintWriter {
    /// The hint of the next key.
    fn next(&mut self, key: &[u8]) -> Result<u32> {
        let forward = self.forward(key)?;
        Ok(hint(forward, self.last.replace(forward)))
    }

    /// The index of the first live element whose key is not less. Keys must ascend. Cost: about two
    /// comparisons if the rows have similar numbers of keys; otherwise exponential search.
    fn forward(&mut self, key: &[u8]) -> Result<u32> {
        let mut stats = SearchStats::default();
        let target = self.previous.target(key);
        let len = self.previous.len();
        let (mut low, mut step) = (self.position, 1);
        let mut high = low;
        while high < len
            && self.previous.compare(self.previous.index(high), &target, &mut stats)?.is_lt()
        {
            low = high + 1;
            high = high.saturating_add(step).min(len);
            step *= 2;
        }
        self.position = self.previous.lower_bound(key, low..high.max(low), &mut stats)?.position;
        let index = match self.position < len {
            true => self.previous.index(self.position),
            false => self.previous.entries(),
        };
        Ok(index as u32)
    }
}

/// Writes a byte stream to pages.
struct PageWriter {
    pool: PmemPool,
    purpose: Purpose,
    pages: Vec<PageMut>,
    /// The content of the next page, stored at once in full lines.
    buffer: Vec<u8>,
    len: u64,
}

impl PageWriter {
    fn new(pool: &PmemPool, purpose: Purpose) -> Self {
        let buffer = Vec::with_capacity(pool.page_bytes());
        PageWriter { pool: pool.clone(), purpose, pages: Vec::new(), buffer, len: 0 }
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            let space = self.pool.page_bytes() - self.buffer.len();
            let (now, later) = bytes.split_at(space.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == self.pool.page_bytes() {
                self.store()?;
            }
        }
        Ok(())
    }

    fn pad(&mut self, alignment: u64) -> Result<()> {
        let missing = self.len.next_multiple_of(alignment) - self.len;
        self.append(&[0; ALIGNMENT as usize][..missing as usize])
    }

    fn store(&mut self) -> Result<()> {
        let mut page = self.pool.allocate()?;
        page.store(0, &self.buffer, self.purpose)?;
        self.pages.push(page);
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<PageMut>> {
        if !self.buffer.is_empty() {
            self.store()?;
        }
        Ok(self.pages)
    }
}
