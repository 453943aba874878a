//! Hash index: buckets of one or two cache lines, with entries of a tag and an offset.
//!
//! ```text
//! bucket   word 0                      words 1 ..= W−1
//!          version · next spare        entries
//!
//! entry    63 ....... 48 47 ...................... 0
//!          tag           offset of the item            all zeros: empty
//! ```
//!
//! W is 16 for the [`lossy`] index (15 entries in two cache lines) and 8 for the
//! [`lossless`] one (7 entries in one line). The version (see `version`) covers the whole
//! chain of its main bucket. A lossy bucket has no spare buckets; that half of the word states
//! whether its second line has entries, so that a sparse table touches one line only.
//!
//! Source: Lim, thesis, section 5.3.3, "Lossy Concurrent Hash Index"; the sizes are those of the
//! authors' prototype.

pub(crate) mod lossless;
pub(crate) mod lossy;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::keyhash;
use crate::lines;
use crate::mapping::Region;
use crate::prefetch::prefetch;
use crate::ring::OFFSET_BITS;
use crate::version;

const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// An index entry.
#[inline(always)]
pub(crate) fn entry(hash: u64, offset: u64) -> u64 {
    keyhash::tag(hash) << OFFSET_BITS | offset
}

/// The offset in an entry.
#[inline(always)]
pub(crate) fn offset_of(entry: u64) -> u64 {
    entry & OFFSET_MASK
}

/// Buckets of `W` words: main buckets, chosen by hash, followed by spare buckets.
pub(crate) struct Buckets<const W: usize> {
    region: Region,
    main: usize,
    /// Number of buckets with entries in their second line.
    wide: AtomicU64,
}

/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Flag in the header of a two-line bucket: the second line has entries.
const IS_WIDE: u64 = 1 << 32;

impl<const W: usize> Buckets<W> {
    /// Empty buckets, at least one main bucket.
    pub(crate) fn new(main: usize, spare: usize) -> io::Result<Self> {
        let region = Region::plain((main + spare) * W)?;
        Ok(Buckets { region, main, wide: AtomicU64::new(0) })
    }

    #[inline(always)]
    fn all(&self) -> &[[AtomicU64; W]] {
        self.region.as_chunks().0
    }

    /// Number of main buckets.
    pub(crate) fn main_count(&self) -> usize {
        self.main
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.region.bytes()
    }

    /// The main bucket of a hash.
    #[inline(always)]
    pub(crate) fn of(&self, hash: u64) -> &[AtomicU64; W] {
        &self.all()[keyhash::bucket(hash, self.main)]
    }

    /// The main bucket with this number.
    pub(crate) fn main(&self, number: usize) -> &[AtomicU64; W] {
        &self.all()[number]
    }

    /// The spare bucket named by a header, if any.
    #[inline(always)]
    fn next(&self, header: u64) -> Option<&[AtomicU64; W]> {
        let number = if W > LINE_WORDS { 0 } else { (header >> 32) as usize };
        (number > 0).then(|| &self.all()[self.main + number - 1])
    }

    /// Whether the second line of a bucket may have entries.
    #[inline(always)]
    fn is_wide(bucket: &[AtomicU64; W]) -> bool {
        W > LINE_WORDS && bucket[0].load(Relaxed) & IS_WIDE != 0
    }

    /// The entries of a bucket with a tag, as a bit set. The matching position is unpredictable, so
    /// all entries are compared without branches.
    #[inline(always)]
    fn tag_matches(bucket: &[AtomicU64; W], tag: u64) -> u32 {
        lines::touch_one(&bucket[0]);
        let is_hit = |at: usize| u32::from(bucket[at].load(Relaxed) >> OFFSET_BITS == tag) << at;
        let mut hits = (1..LINE_WORDS).fold(0, |hits, at| hits | is_hit(at));
        if Self::is_wide(bucket) {
            lines::touch_one(&bucket[LINE_WORDS]);
            hits |= (LINE_WORDS..W).fold(0, |hits, at| hits | is_hit(at));
        }
        hits
    }

    /// Sets whether the second line of a bucket has entries. The bucket is being written.
    fn set_wide(&self, bucket: &[AtomicU64; W], is_wide: bool) {
        let header = bucket[0].load(Relaxed);
        match (header & IS_WIDE != 0, is_wide) {
            (false, true) => self.wide.fetch_add(1, Relaxed),
            (true, false) => self.wide.fetch_sub(1, Relaxed),
            _ => return,
        };
        bucket[0].store(header ^ IS_WIDE, Relaxed);
    }

    /// Calls `matches` for each entry with the hash's tag in the chain of `main`, until it returns
    /// a result.
    ///
    /// A reader with concurrent writers passes the header that it has seen: if the chain changes
    /// meanwhile, the search stops, since it may lead anywhere.
    #[inline(always)]
    pub(crate) fn find<'b, T>(
        &'b self,
        main: &'b [AtomicU64; W],
        hash: u64,
        seen: Option<u64>,
        mut matches: impl FnMut(&'b AtomicU64, u64) -> Option<T>,
    ) -> Option<T> {
        let tag = keyhash::tag(hash);
        let mut bucket = main;
        loop {
            let mut hits = Self::tag_matches(bucket, tag);
            while hits != 0 {
                let slot = &bucket[hits.trailing_zeros() as usize];
                let entry = slot.load(Relaxed);
                if entry >> OFFSET_BITS == tag
                    && let Some(found) = matches(slot, offset_of(entry))
                {
                    return Some(found);
                }
                hits &= hits - 1;
            }
            bucket = self.next(bucket[0].load(Relaxed))?;
            if seen.is_some_and(|seen| !version::is_unchanged(&main[0], seen)) {
                return None;
            }
        }
    }

    /// Visits the offsets with a tag in `main` and in its first spare bucket. For callers without a
    /// version to check: a chain that changes meanwhile may lead into the free list.
    #[inline(always)]
    pub(crate) fn for_first_buckets(
        &self,
        main: &[AtomicU64; W],
        tag: u64,
        mut visit: impl FnMut(u64),
    ) {
        let mut bucket = Some(main);
        for _ in 0..2 {
            let Some(here) = bucket else { return };
            let mut hits = Self::tag_matches(here, tag);
            while hits != 0 {
                visit(offset_of(here[hits.trailing_zeros() as usize].load(Relaxed)));
                hits &= hits - 1;
            }
            bucket = self.next(here[0].load(Relaxed));
        }
    }

    /// All entries of the chain of a main bucket, including empty ones.
    pub(crate) fn chain(&self, number: usize) -> impl Iterator<Item = &AtomicU64> {
        let first = Some(self.main(number));
        std::iter::successors(first, |bucket| self.next(bucket[0].load(Relaxed)))
            .flat_map(|bucket| &bucket[1..])
    }

    /// Prefetches a main bucket.
    #[inline(always)]
    pub(crate) fn prefetch(&self, bucket: &[AtomicU64; W]) {
        prefetch(&bucket[0]);
        // Prefetch the second line only if enough buckets use it.
        if W > LINE_WORDS && self.wide.load(Relaxed) > self.main as u64 / 4 {
            prefetch(&bucket[LINE_WORDS]);
        }
    }
}
