//! The 32-bit location of a record.
//!
//! ```text
//!   31                      slot bits      0
//!   page on the device     │ slot in the page        programmed
//!   0xfff0_0000 ..                                   pending: number in the buffer, modulo 2^20
//!   0xffff_fffe                                      unknown: older ones are down the chain
//!   0xffff_ffff                                      none
//! ```
//!
//! The paper has 29 bits for the page and 3 for the chunk that a record starts in. On a smaller
//! device the unused bits of page numbers, up to 8 in all, number more records per page, so that
//! records below an eighth of a page can fill it. At 2^29 pages this is the paper's layout. A slot
//! is the record's index in its page.
//!
//! Source: SkimpyFTL, sections 3.3 and 4.

/// The location of a record.
pub(crate) type Location = u32;

/// No record.
pub(crate) const NONE: Location = u32::MAX;
/// Unknown: older versions may be further down the chain.
pub(crate) const UNKNOWN: Location = u32::MAX - 1;
const FIRST_PENDING: Location = u32::MAX << 20;
/// The number of distinct locations of pending records; they repeat after this many.
pub(crate) const PENDING: u64 = (1 << 20) - 2;

/// Whether this is the location of a programmed record.
pub(crate) fn is_programmed(at: Location) -> bool {
    at < FIRST_PENDING
}

/// Whether this is the location of a record in the write buffer.
pub(crate) fn is_pending(at: Location) -> bool {
    (FIRST_PENDING..UNKNOWN).contains(&at)
}

/// The location of the pending record with this number.
pub(crate) fn pending(number: u64) -> Location {
    FIRST_PENDING + (number % PENDING) as u32
}

/// The number of the pending record at a location, if all numbers are `least` or more; `None` for
/// other locations.
pub(crate) fn number(at: Location, least: u64) -> Option<u64> {
    let ahead = || (u64::from(at - FIRST_PENDING) + PENDING - least % PENDING) % PENDING;
    is_pending(at).then(|| least + ahead())
}

/// Splits locations of a device into page and slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots(u32);

impl Slots {
    /// For a device of up to 2^29 - 2^17 pages.
    pub(crate) fn for_pages(pages: u64) -> Self {
        let most = u64::from(FIRST_PENDING) / pages.max(1);
        Slots(most.max(1).ilog2().min(8))
    }

    /// The maximum number of records per page.
    pub(crate) fn per_page(self) -> usize {
        1 << self.0
    }

    pub(crate) fn at(self, page: u32, slot: usize) -> Location {
        (page << self.0) | slot as u32
    }

    pub(crate) fn page(self, at: Location) -> u32 {
        at >> self.0
    }

    pub(crate) fn slot(self, at: Location) -> usize {
        (at & ((1 << self.0) - 1)) as usize
    }
}

/// The locations of the records of a programmed page: their pending locations by slot, and the
/// location of the first slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placement {
    pub(crate) from: Vec<Location>,
    pub(crate) base: Location,
}

impl Placement {
    /// The present location of a record.
    pub(crate) fn resolve(&self, at: Location) -> Location {
        if !is_pending(at) {
            return at;
        }
        match self.from.iter().position(|from| *from == at) {
            Some(slot) => self.base + slot as u32,
            None => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_of_every_device_stay_below_the_reserved_ones() {
        for pages in [1, 100, 1 << 20, 1 << 24, 1 << 28, (1 << 29) - (1 << 17)] {
            let slots = Slots::for_pages(pages);
            assert!(slots.per_page() >= 8, "{pages}");
            let last = slots.at((pages - 1) as u32, slots.per_page() - 1);
            assert!(is_programmed(last));
            assert_eq!(u64::from(slots.page(last)), pages - 1);
            assert_eq!(slots.slot(last), slots.per_page() - 1);
        }
        assert!(is_pending(pending(0)) && is_pending(pending(PENDING - 1)));
        assert_eq!(pending(PENDING), pending(0));
        assert!(![NONE, UNKNOWN].into_iter().any(|at| is_pending(at) || is_programmed(at)));
    }

    #[test]
    fn pending_number_is_recovered_from_its_location_modulo_2_20() {
        for least in [0, 5, PENDING - 3, PENDING, 7 * PENDING - 1] {
            for ahead in [0, 1, 2, 3, 4, PENDING - 1] {
                assert_eq!(number(pending(least + ahead), least), Some(least + ahead));
            }
        }
        assert_eq!([3, UNKNOWN, NONE].map(|at| number(at, 0)), [None; 3]);
    }
}
