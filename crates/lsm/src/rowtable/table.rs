//! An open row: its pages and its live elements.
//!
//! ```text
//!   index     0 ···· | a0 ██████ b0 | ······ | a1 ██████ b1 | ···· entries     all elements
//!   position           0 ···· b0-a0            b0-a0 ···· len                   the live ones
//! ```
//!
//! Searches use *positions*, which count live elements only; forward pointers are *indexes*, which
//! never change after the row was built. Clamping converts one to the other and preserves order, so
//! bounds stay valid however much of a row is dead.
//!
//! The pages of dead elements are released, to the precision of a granule; the header and the
//! directory stay until the row is dropped. A trimmed row shares its pages with the untrimmed one,
//! so readers of the older version are not affected.
//!
//! Invariant: a row owns the pages of every live element and of its item.
//!
//! Source: TriangleKV paper, sections 3.1 (progressive reclamation) and 4 (lazy deletion).

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::{EntryRef, FileSum};
use siltstone_vfs::{Page, PageClaims};

use super::directory::Directory;
use super::element::ELEMENT_BYTES;
use super::header::{DIRECTORY_POSITION, Header, METADATA_POSITION, RowHandle};
use super::interpolation::InterpolationScale;
use super::item::{ALIGNMENT, Item};
use super::search_stats::SearchStats;
use crate::live_range::LiveRange;

/// An L0 run in persistent memory. Immutable; its pages are freed when the last row that shares
/// them is dropped.
pub(crate) struct RowTable {
    handle: RowHandle,
    pub(super) header: Arc<Header>,
    directory: Arc<Directory>,
    pub(super) sum: FileSum,
    live: LiveRange,
    /// The indexes of live elements, in order; either range may be empty.
    segments: [Range<usize>; 2],
    /// The pages of the header and the directory.
    pub(super) frame: Vec<Page>,
    /// By number in the row; `None`: released.
    pub(super) metadata: Vec<Option<Page>>,
    pub(super) data: Vec<Option<Page>>,
}

/// A copy of the version that a lookup found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowVersion {
    pub(crate) sequence: u64,
    pub(crate) kind: siltstone_table::Kind,
    /// In milliseconds since 1970; 0 unless the kind is `PutExpiring`.
    pub(crate) expires_at: u64,
    pub(crate) value: Vec<u8>,
}

/// The pages of a row, from its builder or claimed at open.
pub(super) struct RowParts {
    pub(super) handle: RowHandle,
    pub(super) header: Header,
    pub(super) directory: Directory,
    pub(super) frame: Vec<Page>,
    pub(super) metadata: Vec<Option<Page>>,
    pub(super) data: Vec<Option<Page>>,
}

impl RowTable {
    /// Opens the row that the manifest names with `handle` and `number`: claims the pages that
    /// `live` needs and verifies the header, the directory and the metadata. Items are verified
    /// when read. Cost: reads the directory and the live metadata, 16 bytes per version.
    ///
    /// # Errors
    /// `Corruption`: a checksum does not match, a structure is inconsistent, or a page is claimed
    /// already; then all claimed pages are free again.
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
        if FileSum::new(number).of(DIRECTORY_POSITION, &bytes) != header.directory_sum {
            return Err(corrupt("a row's directory does not match its checksum"));
        }
        frame[0].note_read(u64::from(handle.bytes) + bytes.len() as u64, Purpose::Recovery);
        let directory = Directory::parse(bytes, &header).map_err(corrupt)?;
        let mut parts = RowParts {
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
        row.locate_segments()
    }

    /// A row with all its live pages; its segments are not yet computed.
    pub(super) fn assemble(parts: RowParts, live: LiveRange) -> Self {
        let RowParts { handle, header, directory, frame, metadata, data } = parts;
        RowTable {
            handle,
            sum: FileSum::new(header.number),
            header: Arc::new(header),
            directory: Arc::new(directory),
            live,
            segments: [0..0, 0..0],
            frame,
            metadata,
            data,
        }
    }

    /// The row with a smaller live range. It shares the pages that it needs; the others are freed
    /// unless another row shares them. Cost: four binary searches, and a reference count per page.
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
        let retain_pages = |pages: &[Option<Page>], ranges: &[Range<usize>]| {
            let mut retained = vec![None; pages.len()];
            for range in ranges {
                retained[range.clone()].clone_from_slice(&pages[range.clone()]);
            }
            retained
        };
        let row = RowTable {
            handle: self.handle,
            header: self.header.clone(),
            directory: self.directory.clone(),
            sum: self.sum,
            live,
            segments: [0..0, 0..0],
            frame: self.frame.clone(),
            metadata: retain_pages(&self.metadata, &metadata),
            data: retain_pages(&self.data, &data),
        };
        row.locate_segments()
    }

    /// Computes the segments.
    pub(super) fn locate_segments(mut self) -> Result<Self> {
        let mut segments = [0..0, 0..0];
        for (segment, (start, end)) in segments.iter_mut().zip(self.live.intervals()) {
            let within = self.directory.elements_of(&self.directory.granules_of((start, end)));
            let bound = |key: &[u8]| {
                let target = self.target(key);
                let mut bounds = within.clone();
                while !bounds.is_empty() {
                    let middle = bounds.start + bounds.len() / 2;
                    match self.compare(middle, &target, &mut SearchStats::default())?.is_lt() {
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

    /// The handle that names the row in the manifest.
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

    /// The live range.
    pub(crate) fn live(&self) -> &LiveRange {
        &self.live
    }

    /// The number of pages of the pool that it owns.
    #[cfg(test)]
    pub(crate) fn pages(&self) -> usize {
        (self.owned_bytes().iter().sum::<u64>() / self.page_bytes() as u64) as usize
    }

    /// The number of versions, live or dead.
    pub(crate) fn entries(&self) -> usize {
        self.header.entries as usize
    }

    /// The number of live versions.
    pub(crate) fn len(&self) -> usize {
        self.segment_lengths().iter().sum()
    }

    /// The number of live versions in each interval of the live range.
    pub(super) fn segment_lengths(&self) -> [usize; 2] {
        [self.segments[0].len(), self.segments[1].len()]
    }

    /// Whether no version is live.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The oldest and the newest sequence number of all versions, live or dead.
    pub(crate) fn sequences(&self) -> (u64, u64) {
        (self.header.min_sequence, self.header.max_sequence)
    }

    /// The first and the last key, live or dead.
    pub(crate) fn bounds(&self) -> (&[u8], &[u8]) {
        (self.directory.first(), self.directory.last())
    }

    /// The bytes of the pages that it owns: header and directory, metadata, data. Cost: iterates
    /// over all pages.
    pub(crate) fn owned_bytes(&self) -> [u64; 3] {
        let owned = |pages: &[Option<Page>]| pages.iter().flatten().count();
        let pages = [self.frame.len(), owned(&self.metadata), owned(&self.data)];
        pages.map(|pages| (pages * self.page_bytes()) as u64)
    }

    /// The size of all items, live or dead, in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.header.data_bytes
    }

    /// The key and the sequence number of the version at a position below [`len`](Self::len).
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn version_at(&self, position: usize) -> Result<(Vec<u8>, u64)> {
        let (item, head) = self.item(self.index(position), &mut SearchStats::default())?;
        Ok((item.key_in(&head).to_vec(), item.sequence))
    }

    /// Up to `count` live keys that split the live versions into parts of equal size, ascending.
    /// Cost: reads as many items.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn anchors(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let mut positions: Vec<_> = (1..=count).map(|i| i * self.len() / (count + 1)).collect();
        positions.dedup();
        let key = |position: usize| {
            let (item, head) = self.item(self.index(position), &mut SearchStats::default())?;
            Ok(item.key_in(&head).to_vec())
        };
        positions.into_iter().filter(|&position| position > 0).map(key).collect()
    }

    /// Passes every readable live version to `visit`; returns the number of the unreadable ones.
    /// Cost: reads all of the row.
    ///
    /// # Errors
    /// Those of `visit`.
    pub(crate) fn salvage(&self, mut visit: impl FnMut(EntryRef<'_>) -> Result<()>) -> Result<u64> {
        let mut lost = 0;
        let mut last: Option<(Vec<u8>, u64)> = None;
        for position in 0..self.len() {
            let mut stats = SearchStats::default();
            let read = self.item(self.index(position), &mut stats);
            let read = read.and_then(|(item, head)| {
                let value = self.value(&item, &mut stats)?;
                Ok((item, head, value))
            });
            let Ok((item, head, value)) = read else {
                lost += 1;
                continue;
            };
            let key = item.key_in(&head);
            // A damaged element may point to a valid item of another element.
            let follows = last.as_ref().is_none_or(|(before, sequence)| {
                siltstone_table::kind::compare((before, *sequence), (key, item.sequence)).is_lt()
            });
            if !follows || !self.live.contains(key) {
                lost += 1;
                continue;
            }
            let Item { sequence, kind, expires_at, .. } = item;
            visit(EntryRef { key, sequence, kind, expires_at, value: &value })?;
            last = Some((key.to_vec(), sequence));
        }
        Ok(lost)
    }

    /// About the size of the live items in bytes: what a compaction of the row would read. Cost:
    /// reads two elements.
    ///
    /// # Errors
    /// `Corruption`.
    #[cfg(test)]
    pub(crate) fn live_bytes(&self) -> Result<u64> {
        self.segments.iter().map(|range| self.bytes_between(range)).sum()
    }

    /// The size of the live items from `start` (included) to `end` (excluded), in bytes. Cost: two
    /// searches.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn bytes_in(&self, start: &[u8], end: Option<&[u8]>) -> Result<u64> {
        let position = |key| self.lower_bound(key, 0..self.len(), &mut SearchStats::default());
        let from = position(start)?.position;
        let to = end.map_or(Ok(self.len()), |end| Ok::<_, Error>(position(end)?.position))?;
        let before = self.segments[0].len();
        let [first, second] = &self.segments;
        let low = first.start + from.min(before)..first.start + to.min(before);
        let high =
            second.start + from.saturating_sub(before)..second.start + to.saturating_sub(before);
        Ok(self.bytes_between(&low)? + self.bytes_between(&high)?)
    }

    /// Memory in bytes, without pages.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pages = self.frame.len() + self.metadata.len() + self.data.len();
        size_of::<Self>() + pages * size_of::<Option<Page>>() + self.directory.memory_bytes()
    }

    /// Reads all that is live, and verifies checksums and key order. Cost: reads all of the row.
    ///
    /// # Errors
    /// `Corruption`: the first that is found.
    pub(crate) fn verify(&self, purpose: Purpose) -> Result<()> {
        self.check_metadata(purpose)?;
        let mut before: Option<(Vec<u8>, u64)> = None;
        let mut stats = SearchStats::default();
        for position in 0..self.len() {
            let (item, head) = self.item(self.index(position), &mut stats)?;
            let key = item.key_in(&head);
            self.value(&item, &mut stats)?;
            let follows = before.as_ref().is_none_or(|(last, sequence)| {
                siltstone_table::kind::compare((last, *sequence), (key, item.sequence)).is_lt()
            });
            if !follows || !self.live.contains(key) {
                return Err(self.corrupt(item.address, "the items of a row are out of order"));
            }
            before = Some((key.to_vec(), item.sequence));
        }
        self.frame[0].note_read(stats.bytes, purpose);
        Ok(())
    }

    /// Counts the bytes read for a purpose.
    pub(crate) fn note_read(&self, stats: &SearchStats, purpose: Purpose) {
        self.frame[0].note_read(stats.bytes, purpose);
    }

    pub(super) fn common_prefix(&self) -> &[u8] {
        self.directory.common_prefix()
    }

    pub(super) fn scale(&self) -> &InterpolationScale {
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

    /// The position of the first live element at or after an index.
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
        let mut stats = SearchStats::default();
        let last = self.item(range.end - 1, &mut stats)?.0;
        let first = self.element(range.start, &mut stats)?.address();
        let end = (last.value_address() + last.value_len as u64).next_multiple_of(ALIGNMENT);
        Ok(end.saturating_sub(first))
    }

    /// Verifies the metadata pages by the checksums in the directory.
    fn check_metadata(&self, purpose: Purpose) -> Result<()> {
        let per_page = self.page_bytes() / ELEMENT_BYTES;
        let mut read = 0;
        for (i, page) in self.metadata.iter().enumerate() {
            let Some(page) = page else { continue };
            let elements = (self.entries() - i * per_page).min(per_page);
            let bytes = &page.bytes()[..elements * ELEMENT_BYTES];
            if self.sum.of(METADATA_POSITION + i as u64, bytes) != self.directory.metadata_page(i).1
            {
                return Err(page.corruption(0, "a row's metadata does not match its checksum"));
            }
            read += bytes.len() as u64;
        }
        self.frame[0].note_read(read, purpose);
        Ok(())
    }
}

impl RowParts {
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
