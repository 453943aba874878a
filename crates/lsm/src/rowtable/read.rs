//! Reads the elements and items of a row (an L0 run in persistent memory) in place.
//!
//! Elements never cross pages; items do, since the data is one address space over its pages. Bytes
//! on one page are borrowed; bytes that cross pages are copied.
//!
//! Invariant: whatever elements and items contain, no byte is read after the row's data or on a
//! page that the row doesn't own, and no more than the length of the data is allocated.

use std::borrow::Cow;

use siltstone_engine::{Error, Result};
use siltstone_vfs::Page;

use super::element::{ELEMENT_BYTES, Element};
use super::item::{ITEM_HEADER_BYTES, Item};
use super::search_stats::SearchObserver;
use super::table::RowTable;

impl RowTable {
    /// The element at an index.
    #[inline]
    pub(super) fn element(
        &self,
        index: usize,
        observer: &mut impl SearchObserver,
    ) -> Result<Element> {
        let at = index * ELEMENT_BYTES;
        let (page, offset) = (at / self.page_bytes(), at % self.page_bytes());
        let bytes = self.metadata.get(page).and_then(Option::as_ref).map(Page::bytes);
        match bytes.and_then(|bytes| bytes.get(offset..)?.first_chunk::<ELEMENT_BYTES>()) {
            Some(bytes) => {
                observer.on_read(bytes);
                Ok(Element::parse(bytes))
            }
            None => Err(self.corrupt(0, "an element lies on no page that the row has")),
        }
    }

    /// The item at an index and the bytes before its value, both verified.
    pub(super) fn item(
        &self,
        index: usize,
        observer: &mut impl SearchObserver,
    ) -> Result<(Item, Cow<'_, [u8]>)> {
        let address = self.element(index, observer)?.address();
        self.item_at(address, observer)
    }

    pub(super) fn item_at(
        &self,
        address: u64,
        observer: &mut impl SearchObserver,
    ) -> Result<(Item, Cow<'_, [u8]>)> {
        let corrupt = |reason| self.corrupt(address, reason);
        let fixed = self.bytes(address, ITEM_HEADER_BYTES, observer)?;
        let item = Item::parse(address, &fixed).map_err(corrupt)?;
        let head = self.bytes(address, item.head_len(), observer)?;
        Ok((item.check(self.sum, &head).map_err(corrupt)?, head))
    }

    /// The verified value of an item; borrowed if it is on one page.
    pub(super) fn value(
        &self,
        item: &Item,
        observer: &mut impl SearchObserver,
    ) -> Result<Cow<'_, [u8]>> {
        let value = self.bytes(item.value_address(), item.value_len, observer)?;
        match self.sum.of(item.address, &value) == item.value_sum {
            true => Ok(value),
            false => Err(self.corrupt(item.address, "a value does not match its checksum")),
        }
    }

    /// Bytes of the data; borrowed if they are on one page.
    #[inline]
    pub(super) fn bytes(
        &self,
        address: u64,
        len: usize,
        observer: &mut impl SearchObserver,
    ) -> Result<Cow<'_, [u8]>> {
        let (page, offset) = self.page_of(address);
        if let Some(Some(page)) = self.data.get(page)
            && let Some(bytes) = page.bytes().get(offset..offset + len)
            && address + len as u64 <= self.header.data_bytes
        {
            observer.on_read(bytes);
            return Ok(Cow::Borrowed(bytes));
        }
        self.collect(address, len, observer).map(Cow::Owned)
    }

    /// Bytes of the data that are known to be on one page.
    pub(super) fn in_place(&self, address: u64, len: usize) -> &[u8] {
        let (page, offset) = self.page_of(address);
        let page = self.data.get(page).and_then(Option::as_ref);
        let bytes = page.and_then(|page| page.bytes().get(offset..offset + len));
        bytes.expect("these bytes were read before, and a row does not change")
    }

    /// Bytes of the data that cross pages.
    fn collect(
        &self,
        address: u64,
        len: usize,
        observer: &mut impl SearchObserver,
    ) -> Result<Vec<u8>> {
        // Checked before the allocation: the length may be corrupt.
        if address.checked_add(len as u64).is_none_or(|end| end > self.header.data_bytes) {
            return Err(self.corrupt(address, "an item goes past the end of its row"));
        }
        let page_bytes = self.page_bytes() as u64;
        let mut out = Vec::with_capacity(len);
        while out.len() < len {
            let at = address + out.len() as u64;
            let Some(Some(page)) = self.data.get((at / page_bytes) as usize) else {
                return Err(self.corrupt(at, "an item lies on no page that the row has"));
            };
            let bytes = &page.bytes()[(at % page_bytes) as usize..];
            let bytes = &bytes[..bytes.len().min(len - out.len())];
            observer.on_read(bytes);
            out.extend_from_slice(bytes);
        }
        Ok(out)
    }

    /// The error for corruption at an address of the data.
    #[cold]
    pub(super) fn corrupt(&self, address: u64, reason: &str) -> Error {
        let (page, offset) = self.page_of(address);
        let reason = format!("{reason} (row {}, address {address})", self.number());
        match self.data.get(page) {
            Some(Some(page)) => page.corruption(offset, reason),
            _ => self.frame[0].corruption(0, reason),
        }
    }

    /// The number in the row of the page of an address, and the offset in the page.
    #[inline]
    fn page_of(&self, address: u64) -> (usize, usize) {
        // Usually powers of two, but the pool decides.
        let page_bytes = u64::from(self.header.page_bytes);
        ((address / page_bytes) as usize, (address % page_bytes) as usize)
    }
}
