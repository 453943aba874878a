//! Writing a row: items to pages as they come, then the metadata, the directory and the header.
//!
//! ```text
//!   add ─▶ data pages …            stored page by page
//!   finish ─▶ last data page, metadata pages, directory pages, header
//!             one barrier over all of them
//!             a handle for the manifest
//! ```
//!
//! Nothing names a row before its handle is in the manifest, so no order is needed among its own
//! pages and one barrier makes all of them durable. A builder that is dropped, or that a crash ends,
//! leaves pages that nobody names: free.
//!
//! In memory a version costs 20 bytes until the row is finished. The bytes that all keys begin with
//! are known only then, but they are never more than the first key shares with the one just added; so
//! each element keeps how many those were, and the bytes behind.
//!
//! Invariant: versions ascend strictly in run order, or are refused.
//!
//! Source: TriangleKV paper, sections 3.1 and 3.4 (construction of rows and of hints).

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::{EntryRef, kind};
use siltstone_vfs::{PageMut, PmemPool};

use super::directory::{Directory, GRANULE, GranuleWriter};
use super::element::{ELEMENT, Element, FRAGMENT, MAX_ENTRIES, fragment, hint, place_of};
use super::header::{DIRECTORY_PLACE, HEADER_PLACE, Header, METADATA_PLACE, RowHandle};
use super::item::{ALIGNMENT, RowSum, encode_head};
use super::probe::Tally;
use super::table::{Parts, RowTable};
use crate::live_range::LiveRange;

/// The smallest pages that rows can be built in: one holds a granule's elements.
pub(crate) const MIN_PAGE_BYTES: usize = GRANULE * ELEMENT;

/// Builds one row.
pub(crate) struct RowBuilder {
    pool: PmemPool,
    number: u64,
    sum: RowSum,
    purpose: Purpose,
    hints: Option<Hints>,
    data: Pages,
    elements: Vec<Pending>,
    granules: GranuleWriter,
    first_key: Vec<u8>,
    last: Option<(Vec<u8>, u64)>,
    sequences: (u64, u64),
    head: Vec<u8>,
}

/// An element whose fragment is not known yet.
struct Pending {
    /// How many bytes the key and the first key begin with alike.
    shared: u32,
    /// The bytes of the key behind those.
    rest: [u8; FRAGMENT],
    hint: u32,
    place: u32,
}

impl RowBuilder {
    /// A row of this number, 1 or more, whose pages are the pool's and whose forward pointers point
    /// into `previous`, the newest row there is. If that is found damaged, the row has no pointers.
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
            data: Pages::new(pool, purpose),
            pool: pool.clone(),
            number,
            sum: RowSum::new(number),
            purpose,
            hints: previous.map(|row| Hints { row, position: 0, last: None }),
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
    /// `Invalid`: it does not come after the one before. `TooLarge`: the row is full (32 GiB of
    /// items, or 2²⁸ of them). `Io`: of kind `StorageFull` if the pool is; the medium's. After any
    /// of them the builder is of no use.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let follows = self.last.as_ref().is_none_or(|(key, sequence)| {
            kind::compare((key, *sequence), (entry.key, entry.sequence)).is_lt()
        });
        if !follows {
            return Err(Error::Invalid("a row's versions were added out of order".into()));
        }
        let address = self.data.len;
        let place = match (place_of(address), self.elements.len() < MAX_ENTRIES as usize) {
            (Some(place), true) => place,
            _ => return Err(too_large(address)),
        };
        let hint = match self.hints.as_mut().map(|hints| hints.next(entry.key)) {
            Some(Ok(hint)) => hint,
            // A row that cannot be read is no reason not to write one; who reads it, hears of it.
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
        if self.elements.len().is_multiple_of(GRANULE) {
            self.granules.granule(place, entry.key);
        }
        self.head.clear();
        encode_head(&entry, self.sum, address, &mut self.head);
        self.data.append(&self.head)?;
        self.data.append(entry.value)?;
        self.data.pad(ALIGNMENT)?;

        let shared = self.first_key.iter().zip(entry.key).take_while(|(a, b)| a == b).count();
        let rest = fragment(&entry.key[shared..]).to_be_bytes();
        self.elements.push(Pending { shared: shared as u32, rest, hint, place });
        let (oldest, newest) = self.sequences;
        self.sequences = (oldest.min(entry.sequence), newest.max(entry.sequence));
        let (mut key, _) = self.last.take().unwrap_or_default();
        key.clear();
        key.extend_from_slice(entry.key);
        self.last = Some((key, entry.sequence));
        Ok(())
    }

    /// Whether nothing was added yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Writes the rest, makes all of it durable with one barrier, and opens it: every key is live.
    ///
    /// # Errors
    /// `Invalid`: nothing was added. As [`add`](Self::add).
    pub(crate) fn finish(mut self) -> Result<RowTable> {
        let Some((last_key, _)) = self.last.take() else {
            return Err(Error::Invalid("a row without versions".into()));
        };
        let data_bytes = self.data.len;
        let mut pages = self.data.finish()?;
        let data_pages = pages.len();

        let mut metadata = Pages::new(&self.pool, self.purpose);
        let mut sums = Vec::new();
        let common = common(&self.first_key, &last_key);
        let mut bytes = Vec::with_capacity(self.pool.page_bytes());
        for elements in self.elements.chunks(self.pool.page_bytes() / ELEMENT) {
            bytes.clear();
            for pending in elements {
                pending.element(&self.first_key, common).encode(&mut bytes);
            }
            sums.push(self.sum.of(METADATA_PLACE + sums.len() as u64, &bytes));
            metadata.append(&bytes)?;
        }
        pages.extend(metadata.finish()?);

        self.granules.last(&last_key);
        let (data, metadata) = pages.split_at(data_pages);
        let metadata = metadata.iter().map(PageMut::number).zip(sums);
        let directory = self.granules.finish(data.iter().map(PageMut::number), metadata);
        let metadata_pages = pages.len() - data_pages;
        let mut writer = Pages::new(&self.pool, self.purpose);
        writer.append(&directory)?;
        let directory_pages = writer.finish()?;
        if directory_pages.len() > Header::max_directory_pages(self.pool.page_bytes()) {
            return Err(too_large(data_bytes));
        }
        let header = Header {
            page_bytes: self.pool.page_bytes() as u32,
            number: self.number,
            previous: self.hints.as_ref().map_or(0, |hints| hints.row.number()),
            min_sequence: self.sequences.0,
            max_sequence: self.sequences.1,
            data_bytes,
            directory_bytes: directory.len() as u64,
            entries: self.elements.len() as u32,
            data_pages: data_pages as u32,
            metadata_pages: metadata_pages as u32,
            directory_pages: directory_pages.iter().map(PageMut::number).collect(),
            directory_sum: self.sum.of(DIRECTORY_PLACE, &directory),
        };
        let bytes = header.encode();
        let mut first = self.pool.allocate()?;
        first.store(0, &bytes, self.purpose)?;
        let handle = RowHandle {
            page: first.number(),
            bytes: bytes.len() as u32,
            checksum: self.sum.of(HEADER_PLACE, &bytes),
        };
        let frame: Vec<PageMut> = std::iter::once(first).chain(directory_pages).collect();
        self.pool.persist(pages.iter().chain(&frame), self.purpose)?;

        let mut pages = pages.into_iter().map(|page| Some(page.freeze()));
        let data = pages.by_ref().take(data_pages).collect();
        let directory = Directory::parse(directory, &header).map_err(|reason| {
            Error::corruption(self.pool.name(), 0, format!("as it was built: {reason}"))
        })?;
        let frame = frame.into_iter().map(PageMut::freeze).collect();
        let parts = Parts { handle, header, directory, frame, data, metadata: pages.collect() };
        RowTable::assemble(parts, LiveRange::all()).settle()
    }
}

impl Pending {
    /// The element, now that the bytes are known that all keys begin with: `common` of them, no more
    /// than `shared`.
    fn element(&self, first_key: &[u8], common: usize) -> Element {
        let mut bytes = [0; FRAGMENT];
        let known = &first_key[common..self.shared as usize];
        let known = &known[..known.len().min(FRAGMENT)];
        bytes[..known.len()].copy_from_slice(known);
        bytes[known.len()..].copy_from_slice(&self.rest[..FRAGMENT - known.len()]);
        Element::new(fragment(&bytes), self.hint, self.place)
    }
}

/// How many bytes two keys begin with alike.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn too_large(size: u64) -> Error {
    Error::TooLarge { what: "row", size, limit: u64::from(u32::MAX) * ALIGNMENT }
}

/// Walks the row before alongside the one that is built.
struct Hints {
    row: Arc<RowTable>,
    position: usize,
    /// The last pointer that was made.
    last: Option<u32>,
}

impl Hints {
    /// The hint of the next key.
    fn next(&mut self, key: &[u8]) -> Result<u32> {
        let forward = self.forward(key)?;
        Ok(hint(forward, self.last.replace(forward)))
    }

    /// The index of the first live element whose key is not less. Keys must ascend. Cost: about two
    /// comparisons where rows have as many keys; doubling steps where they have not.
    fn forward(&mut self, key: &[u8]) -> Result<u32> {
        let mut tally = Tally::default();
        let needle = self.row.needle(key);
        let len = self.row.len();
        let (mut low, mut step) = (self.position, 1);
        let mut high = low;
        while high < len && self.row.compare(self.row.index(high), &needle, &mut tally)?.is_lt() {
            low = high + 1;
            high = high.saturating_add(step).min(len);
            step *= 2;
        }
        self.position = self.row.lower_bound(key, low..high.max(low), &mut tally)?.position;
        let index = match self.position < len {
            true => self.row.index(self.position),
            false => self.row.entries(),
        };
        Ok(index as u32)
    }
}

/// Bytes on their way to pages, one after the other.
struct Pages {
    pool: PmemPool,
    purpose: Purpose,
    pages: Vec<PageMut>,
    /// The page that is being filled. Stored at once: persistent memory likes whole lines.
    buffer: Vec<u8>,
    len: u64,
}

impl Pages {
    fn new(pool: &PmemPool, purpose: Purpose) -> Self {
        let buffer = Vec::with_capacity(pool.page_bytes());
        Pages { pool: pool.clone(), purpose, pages: Vec::new(), buffer, len: 0 }
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = self.pool.page_bytes() - self.buffer.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
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
