//! Which pages make up a row, and the keys that part them.
//!
//! ```text
//!   data pages       number u32                      × data_pages        in the order of addresses
//!   metadata pages   number u32, sum u32             × metadata_pages    CRC-32C of the elements
//!   granules         place u32, key_len u32, key     × ⌈entries / 64⌉    first item of 64 elements
//!   last             key_len u32, key
//! ```
//!
//! A row that was trimmed does not own its dead pages any more, and they hold whatever they were
//! used for next. So what is live must be told without looking at any page that might be dead: that is
//! what the keys of the granules are for. A granule (64 elements: 1 KiB of metadata, and the data of
//! 64 items) is live if a key between its first and the next one's may be.
//!
//! Invariant: the pages of a live range are a function of the directory and the range alone, and a
//! smaller range needs no page that a larger one does not.
//!
//! Source: ours; the paper does not say how its rows know what is left of them.

use std::ops::Range;

use super::element::{ELEMENT, fragment};
use super::header::Header;
use super::item::{ALIGNMENT, u32_at};
use super::scale::Scale;
use crate::live_range::{Interval, LiveRange};

/// Elements that live and die together.
pub(super) const GRANULE: usize = 64;

/// A directory, read. Takes about 20 bytes of memory and a key for each granule, and 320.
#[derive(Debug)]
pub(super) struct Directory {
    bytes: Vec<u8>,
    data_pages: usize,
    metadata_pages: usize,
    entries: usize,
    data_bytes: u64,
    granules: Vec<Granule>,
    last: Range<usize>,
    /// How many bytes all keys begin with alike.
    common: usize,
    /// For what stands behind those.
    scale: Scale,
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
    /// Reads a directory whose checksum held; memory is bounded by its length.
    ///
    /// # Errors
    /// What does not hold.
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
        for _ in 0..entries.div_ceil(GRANULE) {
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
        let scale = Scale::of(keys.map(|key| fragment(&bytes[key.clone()][common..])));
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

    /// The pool's number of a data page of the row.
    pub(super) fn data_page(&self, i: usize) -> u32 {
        u32_at(&self.bytes, i * 4).unwrap_or(u32::MAX)
    }

    /// The pool's number of a metadata page of the row, and its checksum.
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

    /// The first key of the row, dead or alive.
    pub(super) fn first(&self) -> &[u8] {
        self.key(0)
    }

    /// The last key of the row, dead or alive.
    pub(super) fn last(&self) -> &[u8] {
        &self.bytes[self.last.clone()]
    }

    /// The bytes that all keys begin with.
    pub(super) fn common_prefix(&self) -> &[u8] {
        &self.first()[..self.common]
    }

    /// Where fragments of the row stand.
    pub(super) fn scale(&self) -> &Scale {
        &self.scale
    }

    /// The granules that may hold keys of an interval. Cost: two binary searches.
    pub(super) fn granules_of(&self, (start, end): Interval<'_>) -> Range<usize> {
        let count = self.granules.len();
        // A granule's last key is not known, but it is not greater than the next one's first.
        let from = match start <= self.last() {
            true => partition(1..count, |g| self.key(g) < start) - 1,
            false => count,
        };
        let to = end.map_or(count, |end| partition(0..count, |g| self.key(g) < end));
        from..to.max(from)
    }

    /// Their elements, by index.
    pub(super) fn elements_of(&self, granules: &Range<usize>) -> Range<usize> {
        (granules.start * GRANULE).min(self.entries)..(granules.end * GRANULE).min(self.entries)
    }

    /// The pages of the row that a live range needs: metadata pages and data pages, each as ranges
    /// in order, which may overlap.
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
            pages((elements.start * ELEMENT) as u64, (elements.end * ELEMENT) as u64)
        });
        let address = |g: usize| self.granules.get(g).map_or(self.data_bytes, |g| g.address);
        let data = granules.clone().map(|granules| match granules.is_empty() {
            true => 0..0,
            false => pages(address(granules.start), address(granules.end)),
        });
        (metadata.collect(), data.collect())
    }

    /// Resident memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.granules.capacity() * size_of::<Granule>()
    }

    fn key(&self, granule: usize) -> &[u8] {
        &self.bytes[self.granules[granule].key.clone()]
    }
}

/// The first of a range for which `is_before` does not hold.
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
