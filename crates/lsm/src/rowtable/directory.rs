//! The directory of a row (an L0 run in persistent memory): its pages, and the first key of each
//! granule of 64 elements.
//!
//! ```text
//!   data pages       number u32                      × data_pages        in the order of addresses
//!   metadata pages   number u32, sum u32             × metadata_pages    CRC-32C of the elements
//!   granules         place u32, key_len u32, key     × ⌈entries / 64⌉    first item of 64 elements
//!   last             key_len u32, key
//! ```
//!
//! A trimmed row no longer owns its dead pages, which may have other content. So the live pages
//! must be determined without access to pages that might be dead, from the keys of the granules. A
//! granule (64 elements: 1 KiB of metadata, and the data of 64 items) is live if a key between its
//! first key and that of the next granule may be live.
//!
//! Invariant: the pages of a live range depend on the directory and the range only, and a smaller
//! range needs a subset of the pages of a larger one.

use std::ops::Range;

use super::element::{ELEMENT_BYTES, fragment};
use super::header::Header;
use super::interpolation::InterpolationScale;
use super::item::{ALIGNMENT, u32_at};
use crate::live_range::{Interval, LiveRange};

/// The number of elements per granule.
pub(super) const GRANULE_ELEMENTS: usize = 64;

/// A decoded directory. Takes about 20 bytes and a key per granule, and 320 bytes.
#[derive(Debug)]
pub(super) struct Directory {
    bytes: Vec<u8>,
    data_pages: usize,
    metadata_pages: usize,
    entries: usize,
    data_bytes: u64,
    granules: Vec<Granule>,
    last: Range<usize>,
    /// The length of the common prefix of all keys.
    common: usize,
    /// For the fragments after the common prefix.
    scale: InterpolationScale,
}

#[derive(Debug, Clone)]
struct Granule {
    address: u64,
    key: Range<usize>,
}

/// Writes the part of a directory that is known key by key.
#[derive(Debug, Default)]
pub(super) struct GranuleWriter {
    bytes: Vec<u8>,
}

impl GranuleWriter {
    pub(super) fn granule(&mut self, place: u32, key: &[u8]) {
        self.bytes.extend_from_slice(&place.to_le_bytes());
        self.last(key);
    }

    pub(super) fn last(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(key);
    }

    /// The whole directory.
    pub(super) fn finish(
        self,
        data_pages: impl Iterator<Item = u32>,
        metadata_pages: impl Iterator<Item = (u32, u32)>,
    ) -> Vec<u8> {
        let metadata = metadata_pages.flat_map(|(number, sum)| [number, sum]);
        let mut out: Vec<u8> = data_pages.chain(metadata).flat_map(u32::to_le_bytes).collect();
        out.extend_from_slice(&self.bytes);
        out
    }
}

impl Directory {
    /// Decodes a directory with a valid checksum. Memory use is limited by its length.
    ///
    /// # Errors
    /// A description of what is malformed.
    pub(super) fn parse(bytes: Vec<u8>, header: &Header) -> Result<Self, &'static str> {
        const CUT_OFF: &str = "a row's directory is cut off";
        let (data_pages, metadata_pages) =
            (header.data_pages as usize, header.metadata_pages as usize);
        let entries = header.entries as usize;
        let mut at = data_pages * 4 + metadata_pages * 8;
        let number = |at: &mut usize| {
            let value = u32_at(&bytes, *at).ok_or(CUT_OFF);
            *at += 4;
            value
        };
        let key = |at: &mut usize, len: u32| {
            let range = *at..*at + len as usize;
            *at = range.end;
            bytes.get(range.clone()).map(|_| range).ok_or(CUT_OFF)
        };
        let mut granules: Vec<Granule> = Vec::new();
        for _ in 0..entries.div_ceil(GRANULE_ELEMENTS) {
            let address = u64::from(number(&mut at)?) * ALIGNMENT;
            let len = number(&mut at)?;
            let key = key(&mut at, len)?;
            let follows = granules.last().map_or(address == 0, |before| {
                before.address < address && bytes[before.key.clone()] <= bytes[key.clone()]
            });
            if !follows || address >= header.data_bytes {
                return Err("a row's directory is out of order");
            }
            granules.push(Granule { address, key });
        }
        let len = number(&mut at)?;
        let last = key(&mut at, len)?;
        if at != bytes.len()
            || granules.last().is_some_and(|g| bytes[g.key.clone()] > bytes[last.clone()])
        {
            return Err("a row's directory is out of order");
        }
        let first = granules.first().map_or(0..0, |granule| granule.key.clone());
        let (first, other) = (&bytes[first], &bytes[last.clone()]);
        let common = first.iter().zip(other).take_while(|(a, b)| a == b).count();
        let keys = granules.iter().map(|granule| &granule.key).chain([&last]);
        let scale = InterpolationScale::of(keys.map(|key| fragment(&bytes[key.clone()][common..])));
        let data_bytes = header.data_bytes;
        Ok(Directory {
            bytes,
            data_pages,
            metadata_pages,
            entries,
            data_bytes,
            granules,
            last,
            common,
            scale,
        })
    }

    /// The number in the pool of a data page of the row.
    pub(super) fn data_page(&self, i: usize) -> u32 {
        u32_at(&self.bytes, i * 4).unwrap_or(u32::MAX)
    }

    /// The number in the pool of a metadata page of the row, and its checksum.
    pub(super) fn metadata_page(&self, i: usize) -> (u32, u32) {
        let at = self.data_pages * 4 + i * 8;
        let number = |at| u32_at(&self.bytes, at).unwrap_or(u32::MAX);
        (number(at), number(at + 4))
    }

    pub(super) fn data_pages(&self) -> usize {
        self.data_pages
    }

    pub(super) fn metadata_pages(&self) -> usize {
        self.metadata_pages
    }

    /// The first key of the row, live or dead.
    pub(super) fn first(&self) -> &[u8] {
        self.key(0)
    }

    /// The last key of the row, live or dead.
    pub(super) fn last(&self) -> &[u8] {
        &self.bytes[self.last.clone()]
    }

    /// The common prefix of all keys.
    pub(super) fn common_prefix(&self) -> &[u8] {
        &self.first()[..self.common]
    }

    /// The interpolation scale for the fragments of the row.
    pub(super) fn scale(&self) -> &InterpolationScale {
        &self.scale
    }

    /// The granules that may contain keys of an interval. Cost: two binary searches.
    pub(super) fn granules_of(&self, (start, end): Interval<'_>) -> Range<usize> {
        let count = self.granules.len();
        // The last key of a granule is unknown, but not greater than the first of the next.
        let from = match start <= self.last() {
            true => partition(1..count, |g| self.key(g) < start) - 1,
            false => count,
        };
        let to = end.map_or(count, |end| partition(0..count, |g| self.key(g) < end));
        from..to.max(from)
    }

    /// The indexes of the elements of `granules`.
    pub(super) fn elements_of(&self, granules: &Range<usize>) -> Range<usize> {
        (granules.start * GRANULE_ELEMENTS).min(self.entries)
            ..(granules.end * GRANULE_ELEMENTS).min(self.entries)
    }

    /// The pages of the row that a live range needs: metadata pages and data pages, each as ordered
    /// ranges, which may overlap.
    pub(super) fn pages_of(
        &self,
        live: &LiveRange,
        page_bytes: usize,
    ) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        let pages = |from: u64, to: u64| match from < to {
            true => (from / page_bytes as u64) as usize..to.div_ceil(page_bytes as u64) as usize,
            false => 0..0,
        };
        let granules = live.intervals().map(|interval| self.granules_of(interval));
        let metadata = granules.clone().map(|granules| {
            let elements = self.elements_of(&granules);
            pages((elements.start * ELEMENT_BYTES) as u64, (elements.end * ELEMENT_BYTES) as u64)
        });
        let address = |g: usize| self.granules.get(g).map_or(self.data_bytes, |g| g.address);
        let data = granules.clone().map(|granules| match granules.is_empty() {
            true => 0..0,
            false => pages(address(granules.start), address(granules.end)),
        });
        (metadata.collect(), data.collect())
    }

    /// Memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.granules.capacity() * size_of::<Granule>()
    }

    fn key(&self, granule: usize) -> &[u8] {
        &self.bytes[self.granules[granule].key.clone()]
    }
}

/// The first number of a range for which `is_before` is false.
fn partition(range: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end.max(range.start));
    while low < high {
        let middle = low + (high - low) / 2;
        match is_before(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}
