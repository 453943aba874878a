//! A row that is open: its pages, and what of it is live.
//!
//! ```text
//!   index     0 ···· | a0 ██████ b0 | ······ | a1 ██████ b1 | ···· entries     all elements
//!   position           0 ···· b0-a0            b0-a0 ···· len                   the live ones
//! ```
//!
//! Everything that looks for keys goes by *position*, which counts live elements alone; forward
//! pointers are *indexes*, which stay what they were when the row was built. The one is turned into
//! the other by clamping, and order is kept, so bounds stay bounds however much of a row died.
//!
//! Pages of what died are let go, to a granule's precision; the header and the directory stay until
//! the row is dropped. A trimmed row shares its pages with the one that it was trimmed from, so
//! readers of the older version go on undisturbed.
//!
//! Invariant: the pages of every live element, and of its item, are held.
//!
//! Source: TriangleKV paper, sections 3.1 (progressive reclamation) and 4 (lazy deletion).

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::EntryRef;
use siltstone_vfs::{Page, PageClaims};

use super::directory::Directory;
use super::element::ELEMENT;
use super::header::{DIRECTORY_PLACE, Header, METADATA_PLACE, RowHandle};
use super::item::{ALIGNMENT, Item, RowSum};
use super::probe::Tally;
use super::scale::Scale;
use crate::live_range::LiveRange;

/// A row of level 0 in persistent memory. Immutable; its pages are freed when the last row that
/// shares them is dropped.
pub(crate) struct RowTable {
    handle: RowHandle,
    pub(super) header: Arc<Header>,
    directory: Arc<Directory>,
    pub(super) sum: RowSum,
    live: LiveRange,
    /// The live elements, by index, in order; either may be empty.
    segments: [Range<usize>; 2],
    /// The header's page and the directory's.
    pub(super) frame: Vec<Page>,
    /// By number in the row; `None` is let go.
    pub(super) metadata: Vec<Option<Page>>,
    pub(super) data: Vec<Option<Page>>,
}

/// A version found by a lookup, copied out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowVersion {
    pub(crate) sequence: u64,
    pub(crate) kind: siltstone_table::Kind,
    /// In milliseconds since 1970; 0 unless the kind is `PutExpiring`.
    pub(crate) expires_at: u64,
    pub(crate) value: Vec<u8>,
}

/// The pages of a row, as its builder has them or as they were claimed.
pub(super) struct Parts {
    pub(super) handle: RowHandle,
    pub(super) header: Header,
    pub(super) directory: Directory,
    pub(super) frame: Vec<Page>,
    pub(super) metadata: Vec<Option<Page>>,
    pub(super) data: Vec<Option<Page>>,
}

impl RowTable {
    /// Opens the row that the manifest names `handle` and `number`: claims the pages that `live`
    /// needs and checks the header, the directory and the metadata. Items are checked when read.
    /// Cost: reads the directory and the live metadata, 16 bytes a version.
    ///
    /// # Errors
    /// `Corruption`: a checksum or a structure does not hold, or a page is claimed already; then
    /// all that was claimed is free again.
    pub(crate) fn open(
        claims: &PageClaims,
        handle: RowHandle,
        number: u64,
        live: LiveRange,
    ) -> Result<Self> {
        let first = claims.claim(handle.page)?;
        let header = Header::parse(first.bytes(), handle, number, claims.pages())
            .map_err(|reason| first.corruption(0, reason))?;
        let mut frame = vec![first];
        for &page in &header.directory_pages {
            frame.push(claims.claim(page)?);
        }
        let mut bytes: Vec<u8> = frame[1..].iter().flat_map(Page::bytes).copied().collect();
        bytes.truncate(header.directory_bytes as usize);
        let corrupt = |reason: &str| frame[0].corruption(0, reason);
        if RowSum::new(number).of(DIRECTORY_PLACE, &bytes) != header.directory_sum {
            return Err(corrupt("a row's directory does not match its checksum"));
        }
        frame[0].note_read(u64::from(handle.bytes) + bytes.len() as u64, Purpose::Recovery);
        let directory = Directory::parse(bytes, &header).map_err(corrupt)?;
        let mut parts = Parts {
            metadata: vec![None; directory.metadata_pages()],
            data: vec![None; directory.data_pages()],
            handle,
            header,
            directory,
            frame,
        };
        parts.claim(claims, &live)?;
        let row = Self::assemble(parts, live);
        row.check_metadata(Purpose::Recovery)?;
        row.settle()
    }

    /// A row all of whose live pages are there; its segments are still to be found.
    pub(super) fn assemble(parts: Parts, live: LiveRange) -> Self {
        let Parts { handle, header, directory, frame, metadata, data } = parts;
        RowTable {
            handle,
            sum: RowSum::new(header.number),
            header: Arc::new(header),
            directory: Arc::new(directory),
            live,
            segments: [0..0, 0..0],
            frame,
            metadata,
            data,
        }
    }

    /// What is left of the row when `live` is. It shares the pages that it needs; those that it does
    /// not are freed when nobody else has them. Cost: four binary searches, and a reference count
    /// for each page.
    ///
    /// # Errors
    /// `Invalid`: `live` is not within the row's own range. `Corruption` in what is searched.
    pub(crate) fn trim(&self, live: LiveRange) -> Result<RowTable> {
        if !live.is_within(&self.live) {
            let reason =
                format!("row {} cannot grow from {:?} to {live:?}", self.number(), self.live);
            return Err(Error::Invalid(reason));
        }
        let (metadata, data) = self.directory.pages_of(&live, self.page_bytes());
        let keep = |pages: &[Option<Page>], ranges: &[Range<usize>]| {
            let mut kept = vec![None; pages.len()];
            for range in ranges {
                kept[range.clone()].clone_from_slice(&pages[range.clone()]);
            }
            kept
        };
        let row = RowTable {
            handle: self.handle,
            header: self.header.clone(),
            directory: self.directory.clone(),
            sum: self.sum,
            live,
            segments: [0..0, 0..0],
            frame: self.frame.clone(),
            metadata: keep(&self.metadata, &metadata),
            data: keep(&self.data, &data),
        };
        row.settle()
    }

    /// Finds the segments.
    pub(super) fn settle(mut self) -> Result<Self> {
        let mut segments = [0..0, 0..0];
        for (segment, (start, end)) in segments.iter_mut().zip(self.live.intervals()) {
            let within = self.directory.elements_of(&self.directory.granules_of((start, end)));
            let bound = |key: &[u8]| {
                let needle = self.needle(key);
                let mut bounds = within.clone();
                while !bounds.is_empty() {
                    let middle = bounds.start + bounds.len() / 2;
                    match self.compare(middle, &needle, &mut Tally::default())?.is_lt() {
                        true => bounds.start = middle + 1,
                        false => bounds.end = middle,
                    }
                }
                Ok::<_, Error>(bounds.start)
            };
            let from = bound(start)?;
            *segment = from..end.map_or(Ok(within.end), bound)?.max(from);
        }
        self.segments = segments;
        Ok(self)
    }

    /// What the manifest is to name it by.
    pub(crate) fn handle(&self) -> RowHandle {
        self.handle
    }

    /// The row's number.
    pub(crate) fn number(&self) -> u64 {
        self.header.number
    }

    /// The row that its forward pointers point into; `None` if there was none.
    pub(crate) fn previous(&self) -> Option<u64> {
        (self.header.previous != 0).then_some(self.header.previous)
    }

    /// What of it is live.
    pub(crate) fn live(&self) -> &LiveRange {
        &self.live
    }

    /// How many pages of the pool it holds.
    #[cfg(test)]
    pub(crate) fn pages(&self) -> usize {
        (self.held_bytes().iter().sum::<u64>() / self.page_bytes() as u64) as usize
    }

    /// How many versions it has, dead ones counted.
    pub(crate) fn entries(&self) -> usize {
        self.header.entries as usize
    }

    /// How many versions are live.
    pub(crate) fn len(&self) -> usize {
        self.segment_lengths().iter().sum()
    }

    /// How many in each interval of the live range.
    pub(super) fn segment_lengths(&self) -> [usize; 2] {
        [self.segments[0].len(), self.segments[1].len()]
    }

    /// Whether none is.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The oldest and the newest sequence number, dead versions counted.
    pub(crate) fn sequences(&self) -> (u64, u64) {
        (self.header.min_sequence, self.header.max_sequence)
    }

    /// The first and the last key, dead ones counted.
    pub(crate) fn bounds(&self) -> (&[u8], &[u8]) {
        (self.directory.first(), self.directory.last())
    }

    /// What it holds of the pool, in bytes of pages: header and directory, metadata, data. Cost: a
    /// look at each page.
    pub(crate) fn held_bytes(&self) -> [u64; 3] {
        let held = |pages: &[Option<Page>]| pages.iter().flatten().count();
        let pages = [self.frame.len(), held(&self.metadata), held(&self.data)];
        pages.map(|pages| (pages * self.page_bytes()) as u64)
    }

    /// The bytes of all items, dead ones counted.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.header.data_bytes
    }

    /// The key and the sequence number of the version at a position, which is below
    /// [`len`](Self::len).
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn version_at(&self, position: usize) -> Result<(Vec<u8>, u64)> {
        let (item, head) = self.item(self.index(position), &mut Tally::default())?;
        Ok((item.key_in(&head).to_vec(), item.sequence))
    }

    /// At most `count` keys that part what is live into pieces of as many versions, ascending. Cost:
    /// a look at as many items.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn anchors(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let mut positions: Vec<_> = (1..=count).map(|i| i * self.len() / (count + 1)).collect();
        positions.dedup();
        let key = |position: usize| {
            let (item, head) = self.item(self.index(position), &mut Tally::default())?;
            Ok(item.key_in(&head).to_vec())
        };
        positions.into_iter().filter(|&position| position > 0).map(key).collect()
    }

    /// Shows every live version that can be read, and returns how many cannot. Cost: all of the row.
    ///
    /// # Errors
    /// Those of `show`.
    pub(crate) fn salvage(&self, mut show: impl FnMut(EntryRef<'_>) -> Result<()>) -> Result<u64> {
        let mut lost = 0;
        let mut last: Option<(Vec<u8>, u64)> = None;
        for position in 0..self.len() {
            let mut tally = Tally::default();
            let read = self.item(self.index(position), &mut tally);
            let read = read.and_then(|(item, head)| {
                let value = self.value(&item, &mut tally)?;
                Ok((item, head, value))
            });
            let Ok((item, head, value)) = read else {
                lost += 1;
                continue;
            };
            let key = item.key_in(&head);
            // A damaged element may lead to a sound item that is another's.
            let follows = last.as_ref().is_none_or(|(before, sequence)| {
                siltstone_table::kind::compare((before, *sequence), (key, item.sequence)).is_lt()
            });
            if !follows || !self.live.contains(key) {
                lost += 1;
                continue;
            }
            let Item { sequence, kind, expires_at, .. } = item;
            show(EntryRef { key, sequence, kind, expires_at, value: &value })?;
            last = Some((key.to_vec(), sequence));
        }
        Ok(lost)
    }

    /// About how many bytes of items are live: what a compaction of all of it would read. Cost: a
    /// look at two elements.
    ///
    /// # Errors
    /// `Corruption`.
    #[cfg(test)]
    pub(crate) fn live_bytes(&self) -> Result<u64> {
        self.segments.iter().map(|range| self.bytes_between(range)).sum()
    }

    /// The bytes of the live items from `start` up to `end`, without it: to size a compaction. Cost:
    /// two searches.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn bytes_in(&self, start: &[u8], end: Option<&[u8]>) -> Result<u64> {
        let position = |key| self.lower_bound(key, 0..self.len(), &mut Tally::default());
        let from = position(start)?.position;
        let to = end.map_or(Ok(self.len()), |end| Ok::<_, Error>(position(end)?.position))?;
        let before = self.segments[0].len();
        let [first, second] = &self.segments;
        let low = first.start + from.min(before)..first.start + to.min(before);
        let high =
            second.start + from.saturating_sub(before)..second.start + to.saturating_sub(before);
        Ok(self.bytes_between(&low)? + self.bytes_between(&high)?)
    }

    /// Resident memory in bytes, the pages not counted.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pages = self.frame.len() + self.metadata.len() + self.data.len();
        size_of::<Self>() + pages * size_of::<Option<Page>>() + self.directory.memory_bytes()
    }

    /// Reads all that is live and checks every sum, and that keys ascend. Cost: all of the row.
    ///
    /// # Errors
    /// `Corruption`: the first that does not hold.
    pub(crate) fn verify(&self, purpose: Purpose) -> Result<()> {
        self.check_metadata(purpose)?;
        let mut before: Option<(Vec<u8>, u64)> = None;
        let mut tally = Tally::default();
        for position in 0..self.len() {
            let (item, head) = self.item(self.index(position), &mut tally)?;
            let key = item.key_in(&head);
            self.value(&item, &mut tally)?;
            let follows = before.as_ref().is_none_or(|(last, sequence)| {
                siltstone_table::kind::compare((last, *sequence), (key, item.sequence)).is_lt()
            });
            if !follows || !self.live.contains(key) {
                return Err(self.corrupt(item.address, "the items of a row are out of order"));
            }
            before = Some((key.to_vec(), item.sequence));
        }
        self.frame[0].note_read(tally.bytes, purpose);
        Ok(())
    }

    /// Counts bytes read for a purpose.
    pub(crate) fn note_read(&self, tally: &Tally, purpose: Purpose) {
        self.frame[0].note_read(tally.bytes, purpose);
    }

    pub(super) fn common_prefix(&self) -> &[u8] {
        self.directory.common_prefix()
    }

    pub(super) fn scale(&self) -> &Scale {
        self.directory.scale()
    }

    /// The index of the live element at a position.
    #[inline]
    pub(super) fn index(&self, position: usize) -> usize {
        let [first, second] = &self.segments;
        match position < first.len() {
            true => first.start + position,
            false => second.start + (position - first.len()),
        }
    }

    /// The position of the first live element at an index or behind.
    #[inline]
    pub(super) fn position(&self, index: usize) -> usize {
        let [first, second] = &self.segments;
        let in_first = index.clamp(first.start, first.end) - first.start;
        in_first + (index.clamp(second.start, second.end) - second.start)
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.header.page_bytes as usize
    }

    fn bytes_between(&self, range: &Range<usize>) -> Result<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        let mut tally = Tally::default();
        let last = self.item(range.end - 1, &mut tally)?.0;
        let first = self.element(range.start, &mut tally)?.address();
        let end = (last.value_address() + last.value_len as u64).next_multiple_of(ALIGNMENT);
        Ok(end.saturating_sub(first))
    }

    /// The metadata pages that are held, against the directory's sums.
    fn check_metadata(&self, purpose: Purpose) -> Result<()> {
        let per_page = self.page_bytes() / ELEMENT;
        let mut read = 0;
        for (i, page) in self.metadata.iter().enumerate() {
            let Some(page) = page else { continue };
            let elements = (self.entries() - i * per_page).min(per_page);
            let bytes = &page.bytes()[..elements * ELEMENT];
            if self.sum.of(METADATA_PLACE + i as u64, bytes) != self.directory.metadata_page(i).1 {
                return Err(page.corruption(0, "a row's metadata does not match its checksum"));
            }
            read += bytes.len() as u64;
        }
        self.frame[0].note_read(read, purpose);
        Ok(())
    }
}

impl Parts {
    fn claim(&mut self, claims: &PageClaims, live: &LiveRange) -> Result<()> {
        let (metadata, data) = self.directory.pages_of(live, claims.page_bytes());
        for i in metadata.into_iter().flatten() {
            if self.metadata[i].is_none() {
                self.metadata[i] = Some(claims.claim(self.directory.metadata_page(i).0)?);
            }
        }
        for i in data.into_iter().flatten() {
            if self.data[i].is_none() {
                self.data[i] = Some(claims.claim(self.directory.data_page(i))?);
            }
        }
        Ok(())
    }
}
