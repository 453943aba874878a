//! Byte-addressable memory in pages, with a free list.
//!
//! ```text
//!   file   | page 0 | page 1 | page 2 | …          page n starts at n · page_bytes
//!   used       1        0        1                 one bit per page, in memory
//! ```
//!
//! The file contains only pages. Which of them are used follows from the claims at open (a manifest
//! lists tables, tables list pages), so no write to the file is needed to allocate or free a page,
//! and no crash can leak one. Allocation continues after the last allocated page, so that a table
//! gets adjacent pages, which persist as one range.
//!
//! Invariant: a bit is set exactly while a lease of that number exists; nothing is allocated before
//! all claims were made.
//!
//! Source: TriangleKV paper, section 3.1, "Space Management" (4 KiB pages of a pool of 8 GB, a free
//! list). The paper's free list is in persistent memory; here it is rebuilt at open, which costs
//! one bit per page in DRAM.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};

use super::page::{Lease, Page, PageMut};
use super::{LINE_BYTES, Mapping};

/// The pages of a mapping. Clones share the pool.
#[derive(Clone)]
pub struct PmemPool {
    shared: Arc<Shared>,
}

/// A pool during open: pages in use are claimed, then the pool is [ready](PageClaims::ready).
pub struct PageClaims {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) mapping: Mapping,
    pub(super) page_bytes: usize,
    pages: u32,
    used: Mutex<PageBitmap>,
}

struct PageBitmap {
    bits: Vec<u64>,
    count: u32,
    /// The word where the search for a free page begins.
    next: usize,
}

impl PmemPool {
    /// The paper's page size, in bytes.
    pub const DEFAULT_PAGE_BYTES: usize = 4096;

    /// Divides a mapping into pages, all free until claimed. A remainder is not used.
    ///
    /// # Errors
    /// `Invalid`: `page_bytes` is not a power of two of at least 64, or there are 2³² pages or
    /// more.
    pub fn open(mapping: Mapping, page_bytes: usize) -> Result<PageClaims> {
        if !page_bytes.is_power_of_two() || (page_bytes as u64) < LINE_BYTES {
            let reason = "a page has a power of two of bytes, at least 64";
            return Err(Error::Invalid(format!("{page_bytes} bytes per page: {reason}")));
        }
        let pages = u32::try_from(mapping.capacity_bytes() / page_bytes as u64);
        let pages = pages.map_err(|_| {
            Error::Invalid(format!("pages of {page_bytes} bytes are too many: make them larger"))
        })?;
        let bits = vec![0; (pages as usize).div_ceil(64)];
        let used = Mutex::new(PageBitmap { bits, count: 0, next: 0 });
        Ok(PageClaims { shared: Arc::new(Shared { mapping, page_bytes, pages, used }) })
    }

    /// Allocates a page. Its bytes are those of its last owner. Cost: a short lock.
    ///
    /// # Errors
    /// `Io` of kind `StorageFull` if no page is free; pages that are freed later are available.
    pub fn allocate(&self) -> Result<PageMut> {
        let number = self.shared.used.lock().take_next(self.shared.pages);
        let number = number.ok_or_else(|| {
            let Shared { page_bytes, pages, .. } = *self.shared;
            let reason = format!("all {pages} pages of {page_bytes} bytes are taken");
            let full = std::io::Error::new(ErrorKind::StorageFull, reason);
            Error::io("allocate a page of", self.shared.name(), &full)
        })?;
        Ok(PageMut::new(Lease { shared: self.shared.clone(), number }))
    }

    /// Makes whole pages durable with one barrier; adjacent pages form one range.
    ///
    /// # Errors
    /// A failed persist, after which the state of these pages is unknown.
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

    /// The number of pages.
    pub fn pages(&self) -> u32 {
        self.shared.pages
    }

    /// The number of free pages.
    pub fn free_pages(&self) -> u32 {
        self.shared.pages - self.shared.used.lock().count
    }
}

impl PageClaims {
    /// Claims a page that was in use before.
    ///
    /// # Errors
    /// `Corruption`: there is no such page, or it is claimed already: of two tables with the same
    /// page, one is damaged.
    pub fn claim(&self, number: u32) -> Result<Page> {
        let shared = &self.shared;
        let corrupt = |reason: String| {
            let at = shared.offset_of(number);
            Err(Error::corruption(shared.name(), at, reason))
        };
        if number >= shared.pages {
            return corrupt(format!("page {number} is claimed, of {} pages", shared.pages));
        }
        if !shared.used.lock().take(number) {
            return corrupt(format!("page {number} is claimed twice"));
        }
        Ok(Page::new(Arc::new(Lease { shared: shared.clone(), number })))
    }

    /// The size of a page, in bytes.
    pub fn page_bytes(&self) -> usize {
        self.shared.page_bytes
    }

    /// The number of pages.
    pub fn pages(&self) -> u32 {
        self.shared.pages
    }

    /// The file's name in messages.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// Ends the claims: all other pages are free.
    pub fn ready(self) -> PmemPool {
        PmemPool { shared: self.shared }
    }
}

impl Shared {
    pub(super) fn name(&self) -> &str {
        self.mapping.name()
    }

    /// The offset of a page, in bytes.
    pub(super) fn offset_of(&self, number: u32) -> u64 {
        u64::from(number) * self.page_bytes as u64
    }

    pub(super) fn release(&self, number: u32) {
        let mut used = self.used.lock();
        used.bits[number as usize / 64] &= !(1 << (number % 64));
        used.count -= 1;
    }
}

impl PageBitmap {
    /// Allocates a page; `false` if it is in use.
    fn take(&mut self, number: u32) -> bool {
        let (word, bit) = (&mut self.bits[number as usize / 64], 1 << (number % 64));
        let is_free = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(is_free);
        is_free
    }

    /// Allocates the next free page of `pages`, round robin.
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
