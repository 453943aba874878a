//! Where items are: buckets of a cache line or two, entries of a tag and an offset.
//!
//! ```text
//! bucket   word 0                      words 1 ..= W−1
//!          version · next spare        entries
//!
//! entry    63 ....... 48 47 ...................... 0
//!          tag           offset of the item            all zeros: empty
//! ```
//!
//! W is 16 for the [lossy](lossy) index (15 entries in two cache lines) and 8 for the
//! [lossless](lossless) one (7 entries in one). The version is that of `version`; it stands for the
//! whole chain of its main bucket. A lossy bucket has no spare ones: there that half of the word says
//! whether its second line has ever an entry, so that a table with room to spare touches one line.
//!
//! Source: thesis, section 5.3.3, "Lossy Concurrent Hash Index"; the sizes are those of the authors'
//! prototype.

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

/// Buckets of `W` words: main ones, which hashes choose, and spare ones behind them.
pub(crate) struct Buckets<const W: usize> {
    region: Region,
    main: usize,
    /// Buckets of two lines with entries in both.
    wide: AtomicU64,
}

/// Words of a cache line.
const LINE: usize = 8;
/// In the header of a bucket of two lines: the second has entries.
const IS_WIDE: u64 = 1 << 32;

impl<const W: usize> Buckets<W> {
    /// Empty buckets; at least one main one.
    pub(crate) fn new(main: usize, spare: usize) -> io::Result<Self> {
        let region = Region::plain((main + spare) * W)?;
        Ok(Buckets { region, main, wide: AtomicU64::new(0) })
    }

    #[inline(always)]
    fn all(&self) -> &[[AtomicU64; W]] {
        self.region.as_chunks().0
    }

    /// How many main buckets there are.
    pub(crate) fn main_count(&self) -> usize {
        self.main
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.region.bytes()
    }

    /// The main bucket of a hash.
    #[inline(always)]
    pub(crate) fn of(&self, hash: u64) -> &[AtomicU64; W] {
        &self.all()[keyhash::bucket(hash, self.main)]
    }

    /// The main bucket of this number.
    pub(crate) fn main(&self, number: usize) -> &[AtomicU64; W] {
        &self.all()[number]
    }

    /// The spare bucket that a header names, if it names one.
    #[inline(always)]
    fn next(&self, header: u64) -> Option<&[AtomicU64; W]> {
        let number = if W > LINE { 0 } else { (header >> 32) as usize };
        (number > 0).then(|| &self.all()[self.main + number - 1])
    }

    /// Whether the second line of a bucket may have entries.
    #[inline(always)]
    fn is_wide(bucket: &[AtomicU64; W]) -> bool {
        W > LINE && bucket[0].load(Relaxed) & IS_WIDE != 0
    }

    /// The entries of a bucket with a tag, a bit each. Where the one that is looked for stands nobody can
    /// predict, so all are compared and no branch depends on it.
    #[inline(always)]
    fn hits(bucket: &[AtomicU64; W], tag: u64) -> u32 {
        lines::touch_one(&bucket[0]);
        let is_hit = |at: usize| u32::from(bucket[at].load(Relaxed) >> OFFSET_BITS == tag) << at;
        let mut hits = (1..LINE).fold(0, |hits, at| hits | is_hit(at));
        if Self::is_wide(bucket) {
            lines::touch_one(&bucket[LINE]);
            hits |= (LINE..W).fold(0, |hits, at| hits | is_hit(at));
        }
        hits
    }

    /// Notes in a bucket that is begun to be written whether its second line has entries.
    fn set_wide(&self, bucket: &[AtomicU64; W], is_wide: bool) {
        let header = bucket[0].load(Relaxed);
        match (header & IS_WIDE != 0, is_wide) {
            (false, true) => self.wide.fetch_add(1, Relaxed),
            (true, false) => self.wide.fetch_sub(1, Relaxed),
            _ => return,
        };
        bucket[0].store(header ^ IS_WIDE, Relaxed);
    }

    /// Asks `is_it` about each entry with the hash's tag in the chain of its main bucket, until it has an
    /// answer.
    ///
    /// Who reads beside writers gives what it has seen of the main bucket's header: a chain that is
    /// changed meanwhile is left, whatever it was leading to.
    #[inline(always)]
    pub(crate) fn find<'b, T>(
        &'b self,
        main: &'b [AtomicU64; W],
        hash: u64,
        seen: Option<u64>,
        mut is_it: impl FnMut(&'b AtomicU64, u64) -> Option<T>,
    ) -> Option<T> {
        let tag = keyhash::tag(hash);
        let mut bucket = main;
        loop {
            let mut hits = Self::hits(bucket, tag);
            while hits != 0 {
                let slot = &bucket[hits.trailing_zeros() as usize];
                let entry = slot.load(Relaxed);
                if entry >> OFFSET_BITS == tag
                    && let Some(found) = is_it(slot, offset_of(entry))
                {
                    return Some(found);
                }
                hits &= hits - 1;
            }
            bucket = self.next(bucket[0].load(Relaxed))?;
            if seen.is_some_and(|seen| !version::is_still(&main[0], seen)) {
                return None;
            }
        }
    }

    /// Shows the offsets with a tag of a main bucket and of the first spare one behind it. For who has no
    /// version to look at: a chain that is changed meanwhile may lead through all the buckets that nobody uses.
    #[inline(always)]
    pub(crate) fn near(&self, main: &[AtomicU64; W], tag: u64, mut see: impl FnMut(u64)) {
        let mut bucket = Some(main);
        for _ in 0..2 {
            let Some(here) = bucket else { return };
            let mut hits = Self::hits(here, tag);
            while hits != 0 {
                see(offset_of(here[hits.trailing_zeros() as usize].load(Relaxed)));
                hits &= hits - 1;
            }
            bucket = self.next(here[0].load(Relaxed));
        }
    }

    /// All entries of the chain of a main bucket.
    pub(crate) fn chain(&self, number: usize) -> impl Iterator<Item = &AtomicU64> {
        let first = Some(self.main(number));
        std::iter::successors(first, |bucket| self.next(bucket[0].load(Relaxed)))
            .flat_map(|bucket| &bucket[1..])
    }

    /// Fetches a main bucket.
    #[inline(always)]
    pub(crate) fn prefetch(&self, bucket: &[AtomicU64; W]) {
        prefetch(&bucket[0]);
        // The second line is fetched in vain where few have one.
        if W > LINE && self.wide.load(Relaxed) > self.main as u64 / 4 {
            prefetch(&bucket[LINE]);
        }
    }
}
