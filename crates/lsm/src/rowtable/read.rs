//! Reading the parts of a row in place.
//!
//! Elements never cross pages; items do, since the data is one stream of addresses over its pages.
//! What lies on one page is borrowed; what crosses pages is collected.
//!
//! Invariant: whatever elements and items say, no byte is read past the row's data or on a page that
//! the row doesn't hold, and nothing longer than the data is allocated.
//!
//! Source: ours.

use std::borrow::Cow;

use siltstone_engine::{Error, Result};
use siltstone_vfs::Page;

use super::element::{ELEMENT, Element};
use super::item::{FIXED, Item};
use super::probe::Probe;
use super::table::RowTable;

impl RowTable {
    /// The element at an index.
    #[inline]
    pub(super) fn element(&self, index: usize, probe: &mut impl Probe) -> Result<Element> {
        let at = index * ELEMENT;
        let (page, offset) = (at / self.page_bytes(), at % self.page_bytes());
        let bytes = self.metadata.get(page).and_then(Option::as_ref).map(Page::bytes);
        match bytes.and_then(|bytes| bytes.get(offset..)?.first_chunk::<ELEMENT>()) {
            Some(bytes) => {
                probe.read(bytes);
                Ok(Element::parse(bytes))
            }
            None => Err(self.corrupt(0, "an element lies on no page that the row has")),
        }
    }

    /// The item at an index, all but its value checked, and the bytes before its value.
    pub(super) fn item(
        &self,
        index: usize,
        probe: &mut impl Probe,
    ) -> Result<(Item, Cow<'_, [u8]>)> {
        let address = self.element(index, probe)?.address();
        self.item_at(address, probe)
    }

    pub(super) fn item_at(
        &self,
        address: u64,
        probe: &mut impl Probe,
    ) -> Result<(Item, Cow<'_, [u8]>)> {
        let corrupt = |reason| self.corrupt(address, reason);
        let fixed = self.bytes(address, FIXED, probe)?;
        let item = Item::parse(address, &fixed).map_err(corrupt)?;
        let head = self.bytes(address, item.head_len(), probe)?;
        Ok((item.check(self.sum, &head).map_err(corrupt)?, head))
    }

    /// An item's value, checked; borrowed where it lies on one page.
    pub(super) fn value(&self, item: &Item, probe: &mut impl Probe) -> Result<Cow<'_, [u8]>> {
        let value = self.bytes(item.value_address(), item.value_len, probe)?;
        match self.sum.of(item.address, &value) == item.value_sum {
            true => Ok(value),
            false => Err(self.corrupt(item.address, "a value does not match its checksum")),
        }
    }

    /// Bytes of the data; borrowed where they lie on one page.
    #[inline]
    pub(super) fn bytes(
        &self,
        address: u64,
        len: usize,
        probe: &mut impl Probe,
    ) -> Result<Cow<'_, [u8]>> {
        let (page, offset) = self.page_of(address);
        if let Some(Some(page)) = self.data.get(page)
            && let Some(bytes) = page.bytes().get(offset..offset + len)
            && address + len as u64 <= self.header.data_bytes
        {
            probe.read(bytes);
            return Ok(Cow::Borrowed(bytes));
        }
        self.collect(address, len, probe).map(Cow::Owned)
    }

    /// Bytes of the data that are known to lie on one page.
    pub(super) fn in_place(&self, address: u64, len: usize) -> &[u8] {
        let (page, offset) = self.page_of(address);
        let page = self.data.get(page).and_then(Option::as_ref);
        let bytes = page.and_then(|page| page.bytes().get(offset..offset + len));
        bytes.expect("they were read there, and a row does not change")
    }

    /// Bytes of the data that cross pages.
    fn collect(&self, address: u64, len: usize, probe: &mut impl Probe) -> Result<Vec<u8>> {
        // Before anything is allocated: a length may be anything.
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
            probe.read(bytes);
            out.extend_from_slice(bytes);
        }
        Ok(out)
    }

    /// The error for something at an address of the data.
    #[cold]
    pub(super) fn corrupt(&self, address: u64, reason: &str) -> Error {
        let (page, offset) = self.page_of(address);
        let reason = format!("{reason} (row {}, address {address})", self.number());
        match self.data.get(page) {
            Some(Some(page)) => page.corruption(offset, reason),
            _ => self.frame[0].corruption(0, reason),
        }
    }

    /// The number in the row of the page of an address, and the offset in it.
    #[inline]
    fn page_of(&self, address: u64) -> (usize, usize) {
        // Powers of two, but that is for the pool to know.
        let page_bytes = u64::from(self.header.page_bytes);
        ((address / page_bytes) as usize, (address % page_bytes) as usize)
    }
}
