//! Where a record is: 32 bits.
//!
//! ```text
//!   31                      slot bits      0
//!   page on the device     │ slot in the page        placed
//!   0xfff0_0000 ..                                   pending: its number in the packing buffer, modulo 2^20
//!   0xffff_fffe                                      unknown: older versions are further down the chain
//!   0xffff_ffff                                      none
//! ```
//!
//! The paper has 29 bits for the page and 3 for the chunk that a record starts in. On a device of
//! fewer pages than 2^29 the bits that page numbers leave over, up to 8 in all, number more records
//! of a page, so that records below an eighth of a page fill it too; at 2^29 pages it is the paper's
//! layout. A slot is the record's place in the order of its page.
//!
//! Source: SkimpyFTL, sections 3.3 and 4.

/// A record's place.
pub(crate) type Location = u32;

/// There is none.
pub(crate) const NONE: Location = u32::MAX;
/// There may be some, further down the chain.
pub(crate) const UNKNOWN: Location = u32::MAX - 1;
const FIRST_PENDING: Location = u32::MAX << 20;
/// Numbers of pending records come again after so many.
pub(crate) const PENDING: u64 = (1 << 20) - 2;

/// Whether a record is there that was programmed.
pub(crate) fn is_placed(at: Location) -> bool {
    at < FIRST_PENDING
}

/// Whether a record is there that waits to be programmed.
pub(crate) fn is_pending(at: Location) -> bool {
    (FIRST_PENDING..UNKNOWN).contains(&at)
}

/// The location of the pending record with this number.
pub(crate) fn pending(number: u64) -> Location {
    FIRST_PENDING + (number % PENDING) as u32
}

/// The number of the pending record at a place, where none has a number below this; `None` of a place on flash.
pub(crate) fn number(at: Location, least: u64) -> Option<u64> {
    let ahead = || (u64::from(at - FIRST_PENDING) + PENDING - least % PENDING) % PENDING;
    is_pending(at).then(|| least + ahead())
}

/// How locations of a device are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots(u32);

impl Slots {
    /// For a device of so many pages, at most 2^29 (less those whose locations stand for others).
    pub(crate) fn for_pages(pages: u64) -> Self {
        let most = u64::from(FIRST_PENDING) / pages.max(1);
        Slots(most.max(1).ilog2().min(8))
    }

    /// Records that a page can have.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_of_every_device_stay_below_those_that_stand_for_others() {
        for pages in [1, 100, 1 << 20, 1 << 24, 1 << 28, (1 << 29) - (1 << 17)] {
            let slots = Slots::for_pages(pages);
            assert!(slots.per_page() >= 8, "{pages}");
            let last = slots.at((pages - 1) as u32, slots.per_page() - 1);
            assert!(is_placed(last));
            assert_eq!(u64::from(slots.page(last)), pages - 1);
            assert_eq!(slots.slot(last), slots.per_page() - 1);
        }
        assert!(is_pending(pending(0)) && is_pending(pending(PENDING - 1)));
        assert_eq!(pending(PENDING), pending(0));
        assert!(![NONE, UNKNOWN].into_iter().any(|at| is_pending(at) || is_placed(at)));
    }

    #[test]
    fn a_number_is_told_by_its_place_though_places_come_round() {
        for least in [0, 5, PENDING - 3, PENDING, 7 * PENDING - 1] {
            for ahead in [0, 1, 2, 3, 4, PENDING - 1] {
                assert_eq!(number(pending(least + ahead), least), Some(least + ahead));
            }
        }
        assert_eq!([3, UNKNOWN, NONE].map(|at| number(at, 0)), [None; 3]);
    }
}
