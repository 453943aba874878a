//! Building a table: items in the order of their hashes become a file.
//!
//! ```text
//!   items ─┬─ too large ─────────────────────────────────────┐
//!          └─ the others ─ balance ─┬─ buckets, front to back ├─ special items ─ frames ─ footer
//!                                   └─ fit nowhere ───────────┘
//! ```
//!
//! There are as many buckets as the items fill to the share that was asked for, so a table that
//! got few items is a small file. If then some fit in no bucket, though they are small, it is tried
//! again with a few more buckets: larger items need a little more air than small ones.
//!
//! Invariant: the file is durable when `write` returns, its name excepted; every item is in it once.
//!
//! Source: LSM-trie paper, section 2.4.2.

use siltstone_engine::{Purpose, RateLimiter, Result};
use siltstone_media::Media;

use super::balance::{Balanced, Weight, balance};
use super::filter::Filter;
use super::format::{
    BUCKET_HEADER, BucketHeader, FOOTER_BYTES, Footer, NOWHERE, Special, encode_migrations,
    encode_specials,
};
use super::run::RunIndex;
use crate::files::{FRAME_TRAILER, FileSum, FileWriter, Kind};
use crate::hash::Hash;

/// By how much the buckets are more, attempt by attempt, when items fit in none. What does not fit
/// then either is of one hash, mostly, and goes to the special bucket.
const AIR: [f64; 5] = [0.01, 0.02, 0.04, 0.08, 0.16];

/// An item to be written: its hash, and its bytes as they will stand in the bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) hash: Hash,
    pub(crate) bytes: &'a [u8],
    pub(crate) is_delete: bool,
}

/// How items are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Buckets by hash.
    Buckets,
    /// A dense run under a rank index; buckets after all if the hashes are too uneven for one.
    Run,
}

/// How a table is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build {
    pub(crate) bucket_bytes: u32,
    /// The share of the buckets' room that items may take.
    pub(crate) fill: f64,
    /// Bits of filter an item; `None`: the table's filter lies elsewhere.
    pub(crate) filter_bits: Option<f64>,
    /// The share of buckets whose migration is kept in memory.
    pub(crate) cached_migrations: f64,
    pub(crate) layout: Layout,
}

/// What was written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Built {
    pub(crate) bytes: u64,
    /// Items that were not too large for a bucket and fit in none.
    pub(crate) overflow: u64,
}

/// Items that are not too large, by the buckets in which they are placed.
struct Arranged {
    /// Items' numbers, bucket by bucket.
    order: Vec<u32>,
    /// Where each bucket ends in `order`.
    ends: Vec<u32>,
    balanced: Balanced,
    run: Option<RunIndex>,
}

impl Build {
    /// Writes `items`, whose hashes ascend and whose keys are distinct, to a new file.
    ///
    /// # Errors
    /// The medium's; the file may then be there in part.
    pub(crate) fn write(
        &self,
        media: &dyn Media,
        number: u64,
        items: &[Piece<'_>],
        rate: &RateLimiter,
        purpose: Purpose,
    ) -> Result<Built> {
        let room = self.bucket_bytes - BUCKET_HEADER as u32;
        // One so large that two do not share a bucket would only upset the balance.
        let fits = |item: &Piece<'_>| item.bytes.len() <= room as usize / 2;
        let small: Vec<u32> =
            (0..).zip(items).filter(|(_, item)| fits(item)).map(|(at, _)| at).collect();
        let mut special: Vec<u32> =
            (0..).zip(items).filter(|(_, item)| !fits(item)).map(|(at, _)| at).collect();
        let large = special.len();
        let arranged = match self.layout {
            Layout::Run => self.pack(items, &small, &mut special, room),
            Layout::Buckets => None,
        };
        let arranged = match arranged {
            Some(arranged) => arranged,
            None => {
                special.truncate(large);
                self.arrange(items, &small, &mut special, room)
            }
        };
        let overflow = (special.len() - large) as u64;
        special.sort_unstable();

        let sum = FileSum::new(number);
        let mut file = FileWriter::create(media, &Kind::HTable.name(number), rate, purpose)?;
        self.write_buckets(items, &arranged, sum, &mut file)?;
        let mut specials = Vec::with_capacity(special.len());
        for &at in &special {
            let item = &items[at as usize];
            let offset = file.offset();
            sum.frame(&mut file.buffer, offset, item.bytes);
            let (check, bytes) = (item.hash.check(), item.bytes.len() as u32);
            specials.push(Special { check, offset, bytes });
            file.flush_if_full()?;
        }
        specials.sort_unstable();
        let buckets = arranged.ends.len() as u32;
        let filter = self.filter_bits.filter(|_| arranged.run.is_none()).map(|bits| {
            Filter::build(items.iter().map(|item| item.hash), buckets, bits).to_bytes()
        });
        let cached = (f64::from(buckets) * self.cached_migrations).ceil() as usize;
        let migrations = &arranged.balanced.migrations;
        let mut cached = migrations[..cached.min(migrations.len())].to_vec();
        cached.sort_unstable_by_key(|migration| migration.source);
        let frames = [
            filter.unwrap_or_default(),
            encode_specials(&specials),
            encode_migrations(&cached),
            arranged.run.map(|run| run.to_bytes()).unwrap_or_default(),
        ];
        let mut footer = Footer {
            buckets,
            bucket_bytes: self.bucket_bytes,
            is_run: !frames[3].is_empty(),
            entries: items.len() as u64,
            deletes: items.iter().filter(|item| item.is_delete).count() as u64,
            ..Footer::default()
        };
        for (frame, bytes) in frames.iter().zip(&mut footer.frames) {
            if !frame.is_empty() {
                let offset = file.offset();
                sum.frame(&mut file.buffer, offset, frame);
                *bytes = (frame.len() + FRAME_TRAILER) as u32;
                file.flush_if_full()?;
            }
        }
        footer.file_bytes = file.offset() + FOOTER_BYTES as u64;
        file.buffer.extend(footer.encode(&sum, number));
        let bytes = file.finish()?;
        Ok(Built { bytes, overflow })
    }

    /// Balanced buckets; what fits in none is added to `special`.
    fn arrange(
        &self,
        items: &[Piece<'_>],
        small: &[u32],
        special: &mut Vec<u32>,
        room: u32,
    ) -> Arranged {
        let bytes: u64 = small.iter().map(|&at| items[at as usize].bytes.len() as u64).sum();
        let tight = (bytes as f64 / (f64::from(room) * self.fill)).ceil().max(1.0);
        let place = |buckets: u32| {
            let weights = small.iter().map(|&at| {
                let Piece { hash, bytes, .. } = &items[at as usize];
                let bytes = bytes.len() as u32;
                Weight { bucket: hash.bucket(buckets), infix: hash.infix, bytes }
            });
            balance(&weights.collect::<Vec<_>>(), buckets, room)
        };
        let (mut buckets, mut balanced) = (tight as u32, place(tight as u32));
        for air in AIR {
            if balanced.places.iter().all(Option::is_some) {
                break;
            }
            buckets = (tight * (1.0 + air)).ceil() as u32;
            balanced = place(buckets);
        }
        // Counting sort of the items by their places.
        let mut ends = vec![0u32; buckets as usize + 1];
        for &bucket in balanced.places.iter().flatten() {
            ends[bucket as usize + 1] += 1;
        }
        for bucket in 1..ends.len() {
            ends[bucket] += ends[bucket - 1];
        }
        let mut order = vec![0; ends[buckets as usize] as usize];
        for (&at, place) in small.iter().zip(&balanced.places) {
            match place {
                Some(bucket) => {
                    let next = &mut ends[*bucket as usize];
                    order[*next as usize] = at;
                    *next += 1;
                }
                None => special.push(at),
            }
        }
        // Each start has moved to its bucket's end.
        ends.truncate(buckets as usize);
        Arranged { order, ends, balanced, run: None }
    }

    /// Dense pages; `None` if no index can be made of these hashes.
    fn pack(
        &self,
        items: &[Piece<'_>],
        small: &[u32],
        special: &mut Vec<u32>,
        room: u32,
    ) -> Option<Arranged> {
        let (mut order, mut hashes): (Vec<u32>, Vec<Hash>) = (Vec::new(), Vec::new());
        let (mut starts, mut ends, mut used) = (Vec::new(), Vec::new(), 0);
        for &at in small {
            let item = &items[at as usize];
            if hashes.last() == Some(&item.hash) {
                special.push(at);
                continue;
            }
            if !order.is_empty() && used + item.bytes.len() > room as usize {
                ends.push(order.len() as u32);
                used = 0;
            }
            if starts.len() == ends.len() {
                starts.push(order.len() as u32);
            }
            used += item.bytes.len();
            order.push(at);
            hashes.push(item.hash);
        }
        if order.is_empty() {
            return None;
        }
        ends.push(order.len() as u32);
        let run = RunIndex::build(&hashes, starts).ok()?;
        Some(Arranged { order, ends, balanced: Balanced::default(), run: Some(run) })
    }

    fn write_buckets(
        &self,
        items: &[Piece<'_>],
        arranged: &Arranged,
        sum: FileSum,
        file: &mut FileWriter<'_>,
    ) -> Result<()> {
        let mut migrations = arranged.balanced.migrations.clone();
        migrations.sort_unstable_by_key(|migration| migration.source);
        let mut migrations = migrations.into_iter().peekable();
        let mut start = 0;
        for (bucket, &end) in (0u32..).zip(&arranged.ends) {
            let offset = file.offset();
            let head = file.buffer.len();
            file.buffer.resize(head + BUCKET_HEADER, 0);
            for &at in &arranged.order[start as usize..end as usize] {
                file.buffer.extend_from_slice(items[at as usize].bytes);
            }
            let used = file.buffer.len() - head - BUCKET_HEADER;
            file.buffer.resize(head + self.bucket_bytes as usize, 0);
            let migration = migrations.next_if(|migration| migration.source == bucket);
            let header = BucketHeader {
                items: (end - start) as u16,
                used: used as u16,
                destination: migration.map_or(NOWHERE, |migration| migration.destination),
                mark: migration.map_or(0, |migration| migration.mark),
            };
            header.seal(sum, offset, &mut file.buffer[head..]);
            start = end;
            file.flush_if_full()?;
        }
        Ok(())
    }
}
