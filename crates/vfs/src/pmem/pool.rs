//! Byte-addressable memory in pages, with a free list.
//!
//! ```text
//!   file   | page 0 | page 1 | page 2 | …          page n starts at n · page_bytes
//!   taken      1        0        1                 one bit a page, in memory
//! ```
//!
//! The file holds nothing but pages: which of them are taken follows from who claims them at open
//! (a manifest names rows, rows name pages), so no write to the file is ever needed to take or free
//! one, and no crash can leak any. Pages are given out from where the last one was, so that a row
//! gets runs of neighbours, which persist as one range.
//!
//! Invariant: a bit is set exactly while a lease of that number lives; nothing is allocated before
//! all claims were made.
//!
//! Source: TriangleKV paper, section 3.1, "Space Management" (4 KiB pages of a container of 8 GB,
//! a free list). Its free list stands in the memory itself; ours is rebuilt, which costs a bit a
//! page in DRAM and nothing in NVM.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};

use super::page::{Lease, Page, PageMut};
use super::{LINE_BYTES, Mapping};

/// Pages of one mapping. Clones are the same pool.
#[derive(Clone)]
pub struct PmemPool {
    shared: Arc<Shared>,
}

/// A pool that is being opened: pages that are in use are claimed, and then it is
/// [ready](PageClaims::ready).
pub struct PageClaims {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) mapping: Mapping,
    pub(super) page_bytes: usize,
    pages: u32,
    taken: Mutex<Taken>,
}

struct Taken {
    bits: Vec<u64>,
    count: u32,
    /// The word where the search for a free page begins.
    next: usize,
}

impl PmemPool {
    /// The paper's size of a page, in bytes.
    pub const DEFAULT_PAGE_BYTES: usize = 4096;

    /// Parts a mapping in pages, all free until claimed. A rest that fills no page is left alone.
    ///
    /// # Errors
    /// `Invalid`: `page_bytes` is not a power of two of at least 64, or there are 2³² pages or more.
    pub fn open(mapping: Mapping, page_bytes: usize) -> Result<PageClaims> {
        if !page_bytes.is_power_of_two() || (page_bytes as u64) < LINE_BYTES {
            let reason = "a page has a power of two of bytes, at least 64";
            return Err(Error::Invalid(format!("{page_bytes} bytes a page: {reason}")));
        }
        let pages = u32::try_from(mapping.capacity_bytes() / page_bytes as u64);
        let pages = pages.map_err(|_| {
            Error::Invalid(format!("pages of {page_bytes} bytes are too many: make them larger"))
        })?;
        let bits = vec![0; (pages as usize).div_ceil(64)];
        let taken = Mutex::new(Taken { bits, count: 0, next: 0 });
        Ok(PageClaims { shared: Arc::new(Shared { mapping, page_bytes, pages, taken }) })
    }

    /// Takes a free page. Its bytes are what its last owner left. Cost: a short lock.
    ///
    /// # Errors
    /// `Io` of kind `StorageFull` if there is none; once pages were freed there will be.
    pub fn allocate(&self) -> Result<PageMut> {
        let number = self.shared.taken.lock().take_next(self.shared.pages);
        let number = number.ok_or_else(|| {
            let Shared { page_bytes, pages, .. } = *self.shared;
            let reason = format!("all {pages} pages of {page_bytes} bytes are taken");
            let full = std::io::Error::new(ErrorKind::StorageFull, reason);
            Error::io("allocate a page of", self.shared.name(), &full)
        })?;
        Ok(PageMut::new(Lease { shared: self.shared.clone(), number }))
    }

    /// Makes whole pages durable with one barrier; neighbours become one range.
    ///
    /// # Errors
    /// The medium's; then nothing is known of any of them.
    pub fn persist<'a>(
        &self,
        pages: impl IntoIterator<Item = &'a PageMut>,
        purpose: Purpose,
    ) -> Result<()> {
        let mut numbers: Vec<u32> = pages.into_iter().map(PageMut::number).collect();
        numbers.sort_unstable();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for number in numbers {
            let start = self.shared.offset_of(number);
            let end = start + self.shared.page_bytes as u64;
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        self.shared.mapping.persist(&ranges, purpose)
    }

    /// The file's name in messages.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// The size of a page, in bytes.
    pub fn page_bytes(&self) -> usize {
        self.shared.page_bytes
    }

    /// How many pages there are.
    pub fn pages(&self) -> u32 {
        self.shared.pages
    }

    /// How many of them are free.
    pub fn free_pages(&self) -> u32 {
        self.shared.pages - self.shared.taken.lock().count
    }
}

impl PageClaims {
    /// Claims a page that is in use since before.
    ///
    /// # Errors
    /// `Corruption`: there is no such page, or it was claimed already: two rows that own one page
    /// cannot both be whole.
    pub fn claim(&self, number: u32) -> Result<Page> {
        let shared = &self.shared;
        let corrupt = |reason: String| {
            let at = shared.offset_of(number);
            Err(Error::corruption(shared.name(), at, reason))
        };
        if number >= shared.pages {
            return corrupt(format!("page {number} is claimed, of {} pages", shared.pages));
        }
        if !shared.taken.lock().take(number) {
            return corrupt(format!("page {number} is claimed twice"));
        }
        Ok(Page::new(Arc::new(Lease { shared: shared.clone(), number })))
    }

    /// The size of a page, in bytes.
    pub fn page_bytes(&self) -> usize {
        self.shared.page_bytes
    }

    /// How many pages there are.
    pub fn pages(&self) -> u32 {
        self.shared.pages
    }

    /// The file's name in messages.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// All claims were made: what is left is free.
    pub fn ready(self) -> PmemPool {
        PmemPool { shared: self.shared }
    }
}

impl Shared {
    pub(super) fn name(&self) -> &str {
        self.mapping.name()
    }

    /// Where a page starts, in bytes.
    pub(super) fn offset_of(&self, number: u32) -> u64 {
        u64::from(number) * self.page_bytes as u64
    }

    pub(super) fn release(&self, number: u32) {
        let mut taken = self.taken.lock();
        taken.bits[number as usize / 64] &= !(1 << (number % 64));
        taken.count -= 1;
    }
}

impl Taken {
    /// Takes a page; `false` if it is taken.
    fn take(&mut self, number: u32) -> bool {
        let (word, bit) = (&mut self.bits[number as usize / 64], 1 << (number % 64));
        let is_free = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(is_free);
        is_free
    }

    /// Takes the next free page of `pages`, round and round.
    fn take_next(&mut self, pages: u32) -> Option<u32> {
        if self.count == pages {
            return None;
        }
        for i in 0..self.bits.len() {
            let at = (self.next + i) % self.bits.len();
            let number = at as u32 * 64 + self.bits[at].trailing_ones();
            if self.bits[at] != u64::MAX && number < pages {
                self.next = at;
                self.take(number);
                return Some(number);
            }
        }
        None
    }
}
