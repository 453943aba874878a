//! Builds a table from items in hash order, one segment at a time.
//!
//! ```text
//!   items ─┬─ too large ──────────────────────▶ special items, at once
//!          └─ the others, a segment ─ balance ─┬─ fit nowhere ─▶ special items
//!                                   or pack    └─ buckets                    … frames ─ footer
//! ```
//!
//! A segment has as many buckets as its items fill at the requested fill; the last bucket of the
//! table ends with its items. If small items fit in no bucket, the segment is balanced again with a
//! little more slack: items of one length need none, those of many lengths the more the larger they
//! are. The next segment starts with the slack of this one.
//!
//! Memory: one segment, the filter, and the memory of the open table.
//!
//! Invariant: the file is durable when `finish` returns, except for its name; it contains every
//! item once.
//!
//! Source: LSM-trie paper, section 2.4.2.

use siltstone_engine::{Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_table::{FileSum, SUM_BYTES};
use siltstone_vfs::Vfs;

use super::balance::{BucketSpace, ItemWeight, Migration, balance};
use super::bucket::{BUCKET_HEADER_BYTES, BucketHeader, ItemFormat, NO_DESTINATION};
use super::directory::{Directory, Segment, segment_of};
use super::filter::FilterBuilder;
use super::format::{
    FILTER, FOOTER_BYTES, FRAMES, Footer, Layout, Origin, SpecialEntry, VERSION, encode_migrations,
    encode_specials,
};
use super::page_index::PageIndexBuilder;
use crate::files::{FileWriter, Kind};
use crate::hash::Hash;
use crate::item::Item;

/// Additional space beyond the requested fill, by attempt. Items that do not fit with the last one
/// have mostly the same hash, and go to the special bucket.
const SLACK: [f64; 11] = [0.0, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.09, 0.16];

/// The parameters of building a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build {
    pub(crate) bucket_bytes: u32,
    /// The approximate number of buckets per segment.
    pub(crate) segment: u32,
    /// The requested share of the buckets' capacity that items take.
    pub(crate) fill: f64,
    /// The columns of the filter of a table of full size.
    pub(crate) columns: u32,
    /// Filter bits per item.
    pub(crate) filter_bits: f64,
    /// The share of buckets with their migration in memory.
    pub(crate) cached_migrations: f64,
    pub(crate) layout: Layout,
}

/// The approximate or maximum size of the content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedSize {
    pub(crate) items: u64,
    pub(crate) bytes: u64,
}

/// The sizes of a finished table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TableSummary {
    pub(crate) bytes: u64,
    pub(crate) items: u64,
    /// The bytes of keys and values, of the buckets, and of the filter.
    pub(crate) item_bytes: u64,
    pub(crate) bucket_bytes: u64,
    pub(crate) filter_bytes: u64,
    /// Items that were small enough for a bucket but fit in none.
    pub(crate) overflow: u64,
}

/// Writes a table.
pub(crate) struct TableWriter<'a> {
    build: Build,
    origin: Origin,
    number: u64,
    sum: FileSum,
    file: FileWriter<'a>,
    /// The table gets 2^bits segments.
    bits: u32,
    segments: Vec<Segment>,
    buckets: u32,
    bucket_bytes: u64,
    /// The attempt that the last segment needed.
    slack: usize,
    /// The current segment.
    pending: Vec<PendingItem>,
    arena: Vec<u8>,
    specials: Vec<SpecialEntry>,
    migrations: Vec<Migration>,
    filter: Option<FilterBuilder>,
    pages: Option<PageIndexBuilder>,
    entries: u64,
    deletes: u64,
    item_bytes: u64,
    overflow: u64,
}

/// An item of the current segment.
#[derive(Debug, Clone, Copy)]
struct PendingItem {
    hash: Hash,
    /// Offset in the arena: key and value of a plain put of a key that is not empty, the encoding
    /// of batches of any other item.
    at: u32,
    /// 0: in the encoding of batches.
    key_len: u16,
    /// The length of the value, or of the whole item if it is in the encoding of batches.
    len: u16,
}

impl PendingItem {
    fn bytes<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        &arena[self.at as usize..][..usize::from(self.key_len) + usize::from(self.len)]
    }

    /// Its size in a bucket whose common items have `item_format`.
    fn weight(&self, item_format: ItemFormat) -> usize {
        match self.key_len {
            0 => self.len.into(),
            key_len => item_format.bytes(key_len, self.len),
        }
    }

    fn is_common(&self, item_format: ItemFormat) -> bool {
        self.key_len > 0 && item_format.matches(self.key_len, self.len)
    }

    /// Appends the item in the encoding of batches.
    fn push(&self, arena: &[u8], out: &mut Vec<u8>) {
        let bytes = self.bytes(arena);
        if self.key_len == 0 {
            return out.extend_from_slice(bytes);
        }
        let (key, value) = bytes.split_at(self.key_len.into());
        Item { key, value: Some(value), expires_at: None }.push(out);
    }
}

/// The layout of a segment.
struct SegmentLayout {
    /// The bucket of each item, from 0; `None`: the special bucket.
    placements: Vec<Option<u32>>,
    buckets: u32,
    /// The size of all buckets.
    bytes: u64,
    migrations: Vec<Migration>,
}

impl<'a> TableWriter<'a> {
    /// Creates table `number` for the container in `origin`.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn create(
        vfs: &dyn Vfs,
        number: u64,
        build: Build,
        origin: Origin,
        expected: ExpectedSize,
        rate: &'a RateLimiter,
        purpose: Purpose,
    ) -> Result<Self> {
        let file = FileWriter::create(vfs, &Kind::HTable.name(number), rate, purpose)?;
        let buckets = expected.bytes.div_ceil(build.bucket_bytes.into()).max(1);
        let segments = (buckets as f64 / f64::from(build.segment)).log2().round().clamp(0.0, 31.0);
        let columns = buckets.next_power_of_two().min(build.columns.into()) as u32;
        let is_run = build.layout == Layout::Run;
        let has_pages = build.layout != Layout::Buckets;
        Ok(TableWriter {
            origin,
            number,
            sum: FileSum::new(number),
            file,
            bits: segments as u32,
            segments: Vec::new(),
            buckets: 0,
            bucket_bytes: 0,
            slack: 0,
            pending: Vec::new(),
            arena: Vec::new(),
            specials: Vec::new(),
            migrations: Vec::new(),
            filter: (!is_run).then(|| FilterBuilder::new(columns, build.filter_bits)),
            pages: has_pages.then(|| PageIndexBuilder::new(is_run, expected.items)),
            entries: 0,
            deletes: 0,
            item_bytes: 0,
            overflow: 0,
            build,
        })
    }

    /// The capacity of a bucket in bytes.
    fn capacity(&self) -> usize {
        self.build.bucket_bytes as usize - BUCKET_HEADER_BYTES
    }

    /// Adds the next item; hashes ascend and keys are distinct.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn push(&mut self, hash: Hash, item: &Item<'_>) -> Result<()> {
        while self.segments.len() < segment_of(hash.suffix, self.bits) {
            self.finish_segment()?;
        }
        self.entries += 1;
        self.deletes += u64::from(item.value.is_none());
        if let Some(filter) = &mut self.filter {
            filter.push(hash);
        }
        let value = item.value.unwrap_or_default();
        self.item_bytes += (item.key.len() + value.len()) as u64;
        // Items larger than half a bucket would spoil the balance.
        if item.key.len() + value.len() + Item::MAX_OVERHEAD > self.capacity() / 2 {
            let mut bytes = Vec::with_capacity(item.key.len() + value.len() + Item::MAX_OVERHEAD);
            item.push(&mut bytes);
            return self.write_special(hash, &bytes);
        }
        let at = self.arena.len() as u32;
        let (key_len, len) = match item.may_be_common() {
            true => {
                self.arena.extend_from_slice(item.key);
                self.arena.extend_from_slice(value);
                (item.key.len() as u16, value.len() as u16)
            }
            false => {
                item.push(&mut self.arena);
                (0, (self.arena.len() - at as usize) as u16)
            }
        };
        self.pending.push(PendingItem { hash, at, key_len, len });
        Ok(())
    }

    fn write_special(&mut self, hash: Hash, bytes: &[u8]) -> Result<()> {
        let offset = self.file.offset();
        self.sum.seal(&mut self.file.buffer, offset, bytes);
        self.specials.push(SpecialEntry { hash, offset, bytes: bytes.len() as u32 });
        self.file.flush_if_full()
    }

    fn finish_segment(&mut self) -> Result<()> {
        let plain = self.pending.iter().filter(|item| item.key_len > 0);
        let item_format = ItemFormat::of(plain.map(|item| (item.key_len, item.len)));
        let layout = match self.build.layout {
            Layout::Buckets => self.balance_segment(item_format),
            Layout::Run | Layout::Sorted => self.pack_pages(item_format),
        };
        // Counting sort of the items by bucket.
        let mut starts = vec![0u32; layout.buckets as usize + 1];
        for &bucket in layout.placements.iter().flatten() {
            starts[bucket as usize + 1] += 1;
        }
        for bucket in 1..starts.len() {
            starts[bucket] += starts[bucket - 1];
        }
        let mut next = starts.clone();
        let mut order = vec![0u32; starts[layout.buckets as usize] as usize];
        let mut special = Vec::new();
        for (at, place) in (0u32..).zip(&layout.placements) {
            match place {
                Some(bucket) => {
                    let next = &mut next[*bucket as usize];
                    order[*next as usize] = at;
                    *next += 1;
                }
                None => {
                    let item = self.pending[at as usize];
                    special.clear();
                    item.push(&self.arena, &mut special);
                    self.write_special(item.hash, &special)?;
                    self.overflow += 1;
                }
            }
        }
        let offset = self.file.offset().next_multiple_of(self.build.bucket_bytes.into());
        let zeros = (offset - self.file.offset()) as usize;
        self.file.buffer.resize(self.file.buffer.len() + zeros, 0);
        let (first, buckets) = (self.buckets, layout.buckets);
        self.buckets += buckets;
        self.write_buckets(item_format, &layout, &starts, &order)?;
        self.segments.push(Segment { offset, bytes: layout.bytes, first, buckets });
        let cached = (f64::from(buckets) * self.build.cached_migrations).ceil() as usize;
        self.migrations.extend(layout.migrations.iter().take(cached).map(|m| Migration {
            source: first + m.source,
            destination: first + m.destination,
            mark: m.mark,
        }));
        self.pending.clear();
        self.arena.clear();
        Ok(())
    }

    /// Whether the current segment is the last.
    fn is_last(&self) -> bool {
        self.segments.len() + 1 == 1 << self.bits
    }

    /// Lays out the segment in balanced buckets.
    fn balance_segment(&mut self, item_format: ItemFormat) -> SegmentLayout {
        if self.pending.is_empty() {
            return SegmentLayout {
                placements: Vec::new(),
                buckets: 0,
                bytes: 0,
                migrations: Vec::new(),
            };
        }
        let capacity = self.capacity();
        let bytes: usize = self.pending.iter().map(|item| item.weight(item_format)).sum();
        // If all items have the same length, the unused rest of a bucket is not slack.
        let are_all_common = self.pending.iter().all(|item| item.is_common(item_format));
        let unit = item_format
            .item_bytes()
            .filter(|&unit| are_all_common && unit <= capacity)
            .unwrap_or(1);
        let usable = capacity - capacity % unit;
        // Reduced regularly, so that a segment of larger items does not affect all that follow.
        if self.segments.len().is_multiple_of(4) {
            self.slack = self.slack.saturating_sub(1);
        }
        loop {
            let share = (1.0 + SLACK[self.slack]) / self.build.fill;
            let needed = ((bytes as f64 * share) as usize).next_multiple_of(unit).max(bytes);
            let buckets = needed.div_ceil(usable);
            let last = match needed - (buckets - 1) * usable {
                rest if self.is_last() && rest < usable => rest,
                _ => capacity,
            };
            let layout = self.place_items(item_format, buckets as u32, last);
            if self.slack + 1 == SLACK.len() || layout.placements.iter().all(Option::is_some) {
                return layout;
            }
            self.slack += 1;
        }
    }

    /// Balances the segment in `buckets` buckets, the last of which has a capacity of `last` bytes.
    fn place_items(&self, item_format: ItemFormat, buckets: u32, last: usize) -> SegmentLayout {
        let (first, capacity, bucket_bytes) =
            (self.buckets, self.capacity(), self.build.bucket_bytes);
        let bytes = u64::from(buckets) * u64::from(bucket_bytes) - (capacity - last) as u64;
        let segment = Segment { offset: 0, bytes, first: 0, buckets };
        let weight = |item: &PendingItem| ItemWeight {
            bucket: segment.bucket(item.hash.suffix, self.bits, bucket_bytes),
            infix: item.hash.infix,
            bytes: item.weight(item_format) as u32,
        };
        let weights: Vec<ItemWeight> = self.pending.iter().map(weight).collect();
        let capacity = BucketSpace { first, buckets, bytes: capacity as u32, last: last as u32 };
        let balanced = balance(&weights, capacity);
        SegmentLayout {
            placements: balanced.placements,
            buckets,
            bytes,
            migrations: balanced.migrations,
        }
    }

    /// Lays out the segment in pages, each filled with as many items as fit. An item with the
    /// suffix of the previous one would not be found if it began a page.
    fn pack_pages(&mut self, item_format: ItemFormat) -> SegmentLayout {
        let capacity = self.capacity();
        let (mut placements, mut pages, mut used) = (Vec::new(), 0, capacity);
        let mut last = None;
        for item in &self.pending {
            if last == Some(item.hash.suffix) {
                placements.push(None);
                continue;
            }
            last = Some(item.hash.suffix);
            let bytes = item.weight(item_format);
            let begins_page = used + bytes > capacity;
            if begins_page {
                pages += 1;
                used = 0;
            }
            used += bytes;
            placements.push(Some(pages - 1));
            if let Some(index) = &mut self.pages {
                index.push(item.hash, begins_page);
            }
        }
        let bytes = u64::from(pages) * u64::from(self.build.bucket_bytes);
        SegmentLayout { placements, buckets: pages, bytes, migrations: Vec::new() }
    }

    /// Writes the buckets of the current segment: bucket b has the items `order[starts[b]..]` up to
    /// `starts[b + 1]`.
    fn write_buckets(
        &mut self,
        item_format: ItemFormat,
        layout: &SegmentLayout,
        starts: &[u32],
        order: &[u32],
    ) -> Result<()> {
        let first = self.buckets - layout.buckets;
        let mut from = vec![None; starts.len()];
        for migration in &layout.migrations {
            from[migration.source as usize] = Some((first + migration.destination, migration.mark));
        }
        for (bucket, ends) in starts.windows(2).enumerate() {
            let items = &order[ends[0] as usize..ends[1] as usize];
            let items = || items.iter().map(|&at| &self.pending[at as usize]);
            let (offset, head) = (self.file.offset(), self.file.buffer.len());
            self.file.buffer.resize(head + BUCKET_HEADER_BYTES, 0);
            let mut common = 0;
            for item in items().filter(|item| item.is_common(item_format)) {
                item_format.push(item.bytes(&self.arena), &mut self.file.buffer);
                common += 1;
            }
            for item in items().filter(|item| !item.is_common(item_format)) {
                item.push(&self.arena, &mut self.file.buffer);
            }
            let used = self.file.buffer.len() - head - BUCKET_HEADER_BYTES;
            let is_last = self.is_last() && bucket + 1 == layout.buckets as usize;
            let capacity = if is_last { used } else { self.capacity() };
            self.file.buffer.resize(head + BUCKET_HEADER_BYTES + capacity, 0);
            self.bucket_bytes += (BUCKET_HEADER_BYTES + capacity) as u64;
            let (destination, mark) = from[bucket].unwrap_or((NO_DESTINATION, 0));
            let header = BucketHeader { mark, destination, used: used as u16, common, item_format };
            header.seal(self.sum, offset, &mut self.file.buffer[head..]);
            self.file.flush_if_full()?;
        }
        Ok(())
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<PendingItem>()
            + self.arena.capacity()
            + self.file.buffer.capacity()
            + self.specials.capacity() * size_of::<SpecialEntry>()
            + self.migrations.capacity() * size_of::<Migration>()
            + self.segments.capacity() * size_of::<Segment>()
            + self.filter.as_ref().map_or(0, FilterBuilder::memory_bytes)
            + self.pages.as_ref().map_or(0, PageIndexBuilder::memory_bytes)
    }

    /// Writes the rest and makes the file durable, except for its name.
    ///
    /// # Errors
    /// Those of the file system; the file may then be incomplete.
    pub(crate) fn finish(mut self) -> Result<TableSummary> {
        while self.segments.len() < 1 << self.bits {
            self.finish_segment()?;
        }
        self.specials.sort_unstable();
        self.migrations.sort_unstable_by_key(|migration| migration.source);
        let filter = self.filter.map(|filter| filter.finish().to_bytes());
        let frames: [Vec<u8>; FRAMES] = [
            filter.unwrap_or_default(),
            encode_specials(&self.specials),
            encode_migrations(&self.migrations),
            Directory::new(self.segments, self.file.offset()).to_bytes(),
            self.pages.map(PageIndexBuilder::finish).unwrap_or_default(),
        ];
        let mut footer = Footer {
            version: VERSION,
            buckets: self.buckets,
            bucket_bytes: self.build.bucket_bytes,
            layout: self.build.layout,
            entries: self.entries,
            deletes: self.deletes,
            origin: self.origin,
            ..Footer::default()
        };
        let mut file = self.file;
        for (frame, bytes) in frames.iter().zip(&mut footer.frames) {
            if !frame.is_empty() {
                let offset = file.offset();
                self.sum.seal(&mut file.buffer, offset, frame);
                *bytes = (frame.len() + SUM_BYTES) as u32;
                file.flush_if_full()?;
            }
        }
        footer.file_bytes = file.offset() + FOOTER_BYTES as u64;
        file.buffer.extend(footer.encode(&self.sum, self.number));
        let bytes = file.finish()?;
        Ok(TableSummary {
            bytes,
            items: self.entries,
            item_bytes: self.item_bytes,
            bucket_bytes: self.bucket_bytes,
            filter_bytes: footer.frames[FILTER].into(),
            overflow: self.overflow,
        })
    }
}
