//! Building a table: items in the order of their hashes become a file, a segment at a time.
//!
//! ```text
//!   items ─┬─ too large ──────────────────────▶ special items, at once
//!          └─ the others, a segment ─ balance ─┬─ fit nowhere ─▶ special items
//!                                   or pack    └─ buckets                    … frames ─ footer
//! ```
//!
//! A segment has as many buckets as its items fill to the share that was asked for; the last bucket of the
//! last segment is as short as it can be. If then some fit in no bucket, though they are small, it is tried
//! again with a little more air: items of one length need none, those of many lengths the more the larger they
//! are. What a segment needed the next one begins with.
//!
//! In memory are one segment, the filter, and what the table will have in memory anyway.
//!
//! Invariant: the file is durable when `finish` returns, its name excepted; every item is in it once.
//!
//! Source: LSM-trie paper, section 2.4.2.

use siltstone_engine::{Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_vfs::Vfs;

use super::balance::{Migration, Room, Weight, balance};
use super::bucket::{BUCKET_HEADER, BucketHeader, NOWHERE, Shape};
use super::directory::{Directory, Segment, segment_of};
use super::filter::FilterBuilder;
use super::format::{
    FILTER, FOOTER_BYTES, FRAMES, Footer, Layout, Origin, Special, VERSION, encode_migrations,
    encode_specials,
};
use super::run::PageIndexBuilder;
use crate::files::{FRAME_TRAILER, FileSum, FileWriter, Kind};
use crate::hash::Hash;
use crate::item::Item;

/// How much air there is besides what was asked for, attempt by attempt. What does not fit with the
/// last either is of one hash, mostly, and goes to the special bucket.
const AIR: [f64; 11] = [0.0, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.09, 0.16];

/// How a table is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build {
    pub(crate) bucket_bytes: u32,
    /// Buckets of a segment, about.
    pub(crate) segment: u32,
    /// The share of the buckets' room that items take, if they let themselves be placed so.
    pub(crate) fill: f64,
    /// Columns of the filter of a table of full size.
    pub(crate) columns: u32,
    /// Bits of filter an item.
    pub(crate) filter_bits: f64,
    /// The share of buckets whose migration is kept in memory.
    pub(crate) cached_migrations: f64,
    pub(crate) layout: Layout,
}

/// What is to come, at most or about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) items: u64,
    pub(crate) bytes: u64,
}

/// What was written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Built {
    pub(crate) bytes: u64,
    pub(crate) items: u64,
    /// Bytes of the items' keys and values, of the buckets, and of the filter.
    pub(crate) item_bytes: u64,
    pub(crate) bucket_bytes: u64,
    pub(crate) filter_bytes: u64,
    /// Items that were not too large for a bucket and fit in none.
    pub(crate) overflow: u64,
}

/// A table that is being written.
pub(crate) struct TableWriter<'a> {
    build: Build,
    origin: Origin,
    number: u64,
    sum: FileSum,
    file: FileWriter<'a>,
    /// There are to be 2^bits segments.
    bits: u32,
    segments: Vec<Segment>,
    buckets: u32,
    bucket_bytes: u64,
    /// The attempt that the last segment needed.
    air: usize,
    /// The segment in hand.
    pending: Vec<Pending>,
    arena: Vec<u8>,
    specials: Vec<Special>,
    migrations: Vec<Migration>,
    filter: Option<FilterBuilder>,
    pages: Option<PageIndexBuilder>,
    entries: u64,
    deletes: u64,
    item_bytes: u64,
    overflow: u64,
}

/// An item of the segment in hand.
#[derive(Debug, Clone, Copy)]
struct Pending {
    hash: Hash,
    /// In the arena: key and value of a plain put; of any other the form of a batch.
    at: u32,
    /// 0: it is no plain put.
    key_len: u16,
    /// Of the value, or of the whole item if it is no plain put.
    len: u16,
}

impl Pending {
    fn bytes<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        &arena[self.at as usize..][..usize::from(self.key_len) + usize::from(self.len)]
    }

    /// Bytes that it takes in a bucket whose common items have `shape`.
    fn weight(&self, shape: Shape) -> usize {
        match self.key_len {
            0 => self.len.into(),
            key_len => shape.bytes(key_len, self.len),
        }
    }

    fn is_common(&self, shape: Shape) -> bool {
        self.key_len > 0 && shape.holds(self.key_len, self.len)
    }

    /// Appends the item in the form of a batch.
    fn push(&self, arena: &[u8], out: &mut Vec<u8>) {
        let bytes = self.bytes(arena);
        if self.key_len == 0 {
            return out.extend_from_slice(bytes);
        }
        let (key, value) = bytes.split_at(self.key_len.into());
        Item { key, value: Some(value), expires_at: None }.push(out);
    }
}

/// Where the items of a segment go.
struct Arranged {
    /// The bucket of each item, from 0; `None`: the special bucket.
    places: Vec<Option<u32>>,
    buckets: u32,
    /// Of the buckets all together.
    bytes: u64,
    migrations: Vec<Migration>,
}

impl<'a> TableWriter<'a> {
    /// Begins table `number`, which is to stand where `origin` says.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn create(
        vfs: &dyn Vfs,
        number: u64,
        build: Build,
        origin: Origin,
        expected: Expected,
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
            air: 0,
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

    /// Bytes of a bucket that items may take.
    fn room(&self) -> usize {
        self.build.bucket_bytes as usize - BUCKET_HEADER
    }

    /// The next item; hashes ascend and keys are distinct.
    ///
    /// # Errors
    /// The medium's.
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
        // One so large that two do not share a bucket would only upset the balance.
        if item.key.len() + value.len() + Item::MOST_BESIDES > self.room() / 2 {
            let mut bytes = Vec::with_capacity(item.key.len() + value.len() + Item::MOST_BESIDES);
            item.push(&mut bytes);
            return self.write_special(hash, &bytes);
        }
        let at = self.arena.len() as u32;
        let (key_len, len) = match item.is_plain() {
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
        self.pending.push(Pending { hash, at, key_len, len });
        Ok(())
    }

    fn write_special(&mut self, hash: Hash, bytes: &[u8]) -> Result<()> {
        let offset = self.file.offset();
        self.sum.frame(&mut self.file.buffer, offset, bytes);
        self.specials.push(Special { hash, offset, bytes: bytes.len() as u32 });
        self.file.flush_if_full()
    }

    fn finish_segment(&mut self) -> Result<()> {
        let plain = self.pending.iter().filter(|item| item.key_len > 0);
        let shape = Shape::of(plain.map(|item| (item.key_len, item.len)));
        let arranged = match self.build.layout {
            Layout::Buckets => self.arrange(shape),
            Layout::Run | Layout::Sorted => self.pack(shape),
        };
        // Counting sort of the items by their places.
        let mut starts = vec![0u32; arranged.buckets as usize + 1];
        for &bucket in arranged.places.iter().flatten() {
            starts[bucket as usize + 1] += 1;
        }
        for bucket in 1..starts.len() {
            starts[bucket] += starts[bucket - 1];
        }
        let mut next = starts.clone();
        let mut order = vec![0u32; starts[arranged.buckets as usize] as usize];
        let mut special = Vec::new();
        for (at, place) in (0u32..).zip(&arranged.places) {
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
        let (first, buckets) = (self.buckets, arranged.buckets);
        self.buckets += buckets;
        self.write_buckets(shape, &arranged, &starts, &order)?;
        self.segments.push(Segment { offset, bytes: arranged.bytes, first, buckets });
        let cached = (f64::from(buckets) * self.build.cached_migrations).ceil() as usize;
        self.migrations.extend(arranged.migrations.iter().take(cached).map(|m| Migration {
            source: first + m.source,
            destination: first + m.destination,
            mark: m.mark,
        }));
        self.pending.clear();
        self.arena.clear();
        Ok(())
    }

    /// Whether the segment in hand is the last.
    fn is_last(&self) -> bool {
        self.segments.len() + 1 == 1 << self.bits
    }

    /// Balanced buckets.
    fn arrange(&mut self, shape: Shape) -> Arranged {
        if self.pending.is_empty() {
            return Arranged { places: Vec::new(), buckets: 0, bytes: 0, migrations: Vec::new() };
        }
        let room = self.room();
        let bytes: usize = self.pending.iter().map(|item| item.weight(shape)).sum();
        // What is left of a bucket behind the last item of a length that all have is no air.
        let are_common = self.pending.iter().all(|item| item.is_common(shape));
        let unit = shape.item_bytes().filter(|&unit| are_common && unit <= room).unwrap_or(1);
        let usable = room - room % unit;
        // Now and then with less: one segment of larger items is not to keep all that follow wide.
        if self.segments.len().is_multiple_of(4) {
            self.air = self.air.saturating_sub(1);
        }
        loop {
            let share = (1.0 + AIR[self.air]) / self.build.fill;
            let wanted = ((bytes as f64 * share) as usize).next_multiple_of(unit).max(bytes);
            let buckets = wanted.div_ceil(usable);
            let last = match wanted - (buckets - 1) * usable {
                rest if self.is_last() && rest < usable => rest,
                _ => room,
            };
            let arranged = self.place(shape, buckets as u32, last);
            if self.air + 1 == AIR.len() || arranged.places.iter().all(Option::is_some) {
                return arranged;
            }
            self.air += 1;
        }
    }

    /// The segment in hand, in so many buckets, the last of which has room for `last` bytes.
    fn place(&self, shape: Shape, buckets: u32, last: usize) -> Arranged {
        let (first, room, bucket_bytes) = (self.buckets, self.room(), self.build.bucket_bytes);
        let bytes = u64::from(buckets) * u64::from(bucket_bytes) - (room - last) as u64;
        let segment = Segment { offset: 0, bytes, first: 0, buckets };
        let weight = |item: &Pending| Weight {
            bucket: segment.bucket(item.hash.suffix, self.bits, bucket_bytes),
            infix: item.hash.infix,
            bytes: item.weight(shape) as u32,
        };
        let weights: Vec<Weight> = self.pending.iter().map(weight).collect();
        let room = Room { first, buckets, bytes: room as u32, last: last as u32 };
        let balanced = balance(&weights, room);
        Arranged { places: balanced.places, buckets, bytes, migrations: balanced.migrations }
    }

    /// Pages, each full to the last item that fits. An item with the suffix of the one before would
    /// not be found by it if a page began between them.
    fn pack(&mut self, shape: Shape) -> Arranged {
        let room = self.room();
        let (mut places, mut pages, mut used) = (Vec::new(), 0, room);
        let mut last = None;
        for item in &self.pending {
            if last == Some(item.hash.suffix) {
                places.push(None);
                continue;
            }
            last = Some(item.hash.suffix);
            let bytes = item.weight(shape);
            let begins_page = used + bytes > room;
            if begins_page {
                pages += 1;
                used = 0;
            }
            used += bytes;
            places.push(Some(pages - 1));
            if let Some(index) = &mut self.pages {
                index.push(item.hash, begins_page);
            }
        }
        let bytes = u64::from(pages) * u64::from(self.build.bucket_bytes);
        Arranged { places, buckets: pages, bytes, migrations: Vec::new() }
    }

    /// Writes the buckets of the segment in hand: bucket b has the items `order[starts[b]..]` up to
    /// the next one's.
    fn write_buckets(
        &mut self,
        shape: Shape,
        arranged: &Arranged,
        starts: &[u32],
        order: &[u32],
    ) -> Result<()> {
        let first = self.buckets - arranged.buckets;
        let mut from = vec![None; starts.len()];
        for migration in &arranged.migrations {
            from[migration.source as usize] = Some((first + migration.destination, migration.mark));
        }
        for (bucket, ends) in starts.windows(2).enumerate() {
            let items = &order[ends[0] as usize..ends[1] as usize];
            let items = || items.iter().map(|&at| &self.pending[at as usize]);
            let (offset, head) = (self.file.offset(), self.file.buffer.len());
            self.file.buffer.resize(head + BUCKET_HEADER, 0);
            let mut common = 0;
            for item in items().filter(|item| item.is_common(shape)) {
                shape.push(item.bytes(&self.arena), &mut self.file.buffer);
                common += 1;
            }
            for item in items().filter(|item| !item.is_common(shape)) {
                item.push(&self.arena, &mut self.file.buffer);
            }
            let used = self.file.buffer.len() - head - BUCKET_HEADER;
            let is_last = self.is_last() && bucket + 1 == arranged.buckets as usize;
            let room = if is_last { used } else { self.room() };
            self.file.buffer.resize(head + BUCKET_HEADER + room, 0);
            self.bucket_bytes += (BUCKET_HEADER + room) as u64;
            let (destination, mark) = from[bucket].unwrap_or((NOWHERE, 0));
            let header = BucketHeader { mark, destination, used: used as u16, common, shape };
            header.seal(self.sum, offset, &mut self.file.buffer[head..]);
            self.file.flush_if_full()?;
        }
        Ok(())
    }

    /// Bytes that it holds in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<Pending>()
            + self.arena.capacity()
            + self.file.buffer.capacity()
            + self.specials.capacity() * size_of::<Special>()
            + self.migrations.capacity() * size_of::<Migration>()
            + self.segments.capacity() * size_of::<Segment>()
            + self.filter.as_ref().map_or(0, FilterBuilder::memory_bytes)
            + self.pages.as_ref().map_or(0, PageIndexBuilder::memory_bytes)
    }

    /// Writes the rest and makes the file durable, its name excepted.
    ///
    /// # Errors
    /// The medium's; the file may then be there in part.
    pub(crate) fn finish(mut self) -> Result<Built> {
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
                self.sum.frame(&mut file.buffer, offset, frame);
                *bytes = (frame.len() + FRAME_TRAILER) as u32;
                file.flush_if_full()?;
            }
        }
        footer.file_bytes = file.offset() + FOOTER_BYTES as u64;
        file.buffer.extend(footer.encode(&self.sum, self.number));
        let bytes = file.finish()?;
        Ok(Built {
            bytes,
            items: self.entries,
            item_bytes: self.item_bytes,
            bucket_bytes: self.bucket_bytes,
            filter_bytes: footer.frames[FILTER].into(),
            overflow: self.overflow,
        })
    }
}
