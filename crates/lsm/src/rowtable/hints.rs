//! Cross-row hint search: from row to row by forward pointers.
//!
//! ```text
//!   row i      … 10 ──── 23 …            k = 12 is between two neighbours;
//!                 \        \             their forward pointers bound it in the row before
//!   row i-1    … 8  11 13 … 30 …
//! ```
//!
//! Let p be the first element of row i whose key is not less than k. In row i-1 the first such
//! element is not before forward(p-1), because all before that have keys less than that of p-1; and
//! not behind forward(p), whose key is not less than that of p. Where the key of p is greater than k,
//! so are those from forward(p) on, and none of them needs to be compared. In rows of one size the
//! two bounds are two elements apart on average (a key falls rather into a wide gap than into a
//! narrow one), and a quarter of the time none: nothing is compared then. The element of p says both
//! bounds: see `element`. Where there are several to compare and p-1 lies on the cache line of p, the
//! keys of the two tell which of them k should be near (`search`).
//!
//! *The first row* has no row before it to be narrowed by; there the search guesses from the start,
//! between the bounds of what is live, which are in memory.
//!
//! *Trimmed rows.* A pointer was exact for the row as it was when the pointer was made, whose keys
//! then were a superset of those that are live now; clamped to what is live it is a bound still. So
//! dead metadata need not be kept, and only at the ends of a row, where p-1 or p is missing, does a
//! window reach to the end of the next.
//!
//! *Missing rows.* A row names the one that its pointers point into. If the next to be searched is
//! another, it is searched in full and the hints go on from there. Rows are dropped oldest first by
//! the triangle, so this is for the last pointer of the stack, for rows that a repair made, and for
//! rows of other kinds between.
//!
//! Invariant: hint search finds what a search of each row in full finds.
//!
//! Source: TriangleKV paper, section 3.4, and fractional cascading (Chazelle and Guibas, 1986) as it
//! cites it. The paper adds the key before when the two hints don't include the target; by the
//! argument above the lower bound needs no such step.

use std::sync::Arc;

use siltstone_engine::Result;

use super::element::{ELEMENTS_A_LINE, Element};
use super::iter::RowIter;
use super::probe::{Probe, Tally};
use super::search::{Bracket, Landing, Place};
use super::table::{RowTable, RowVersion};

/// The newest version of `key` at or before the sequence number `at`, from rows given newest to
/// oldest. Cost: about five comparisons for the first row, and one for each further.
///
/// # Errors
/// `Corruption` in what was read.
pub(crate) fn get<'a>(
    rows: impl IntoIterator<Item = &'a Arc<RowTable>>,
    key: &'a [u8],
    at: u64,
    probe: &mut impl Probe,
) -> Result<Option<RowVersion>> {
    let mut walk = HintWalk::new(key);
    for row in rows {
        let landing = walk.land(row, probe)?;
        if let Some(version) = row.version(landing, key, at, probe)? {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

/// Places iterators over rows, given newest to oldest, as [`RowIter::seek`] does each.
///
/// # Errors
/// `Corruption` in what was read.
pub(crate) fn seek_all<'i>(
    iters: impl IntoIterator<Item = &'i mut RowIter>,
    key: &[u8],
    sequence: u64,
) -> Result<()> {
    place_all(iters, key, |iter, place| iter.land(place, key, sequence))
}

/// Places iterators over rows, given newest to oldest, as [`RowIter::seek_back`] does each.
///
/// # Errors
/// `Corruption` in what was read.
pub(crate) fn seek_back_all<'i>(
    iters: impl IntoIterator<Item = &'i mut RowIter>,
    key: &[u8],
    sequence: u64,
) -> Result<()> {
    place_all(iters, key, |iter, place| iter.land_back(place, key, sequence))
}

fn place_all<'i>(
    iters: impl IntoIterator<Item = &'i mut RowIter>,
    key: &[u8],
    mut land: impl FnMut(&mut RowIter, Place) -> Result<()>,
) -> Result<()> {
    let iters: Vec<&mut RowIter> = iters.into_iter().collect();
    let rows: Vec<Arc<RowTable>> = iters.iter().map(|iter| iter.row().clone()).collect();
    let mut walk = HintWalk::new(key);
    for (row, iter) in rows.iter().zip(iters) {
        let mut tally = Tally::default();
        let place = walk.land(row, &mut tally).map(|landing| landing.place);
        row.note_read(&tally, iter.purpose());
        land(iter, place?)?;
    }
    Ok(())
}

/// A search on its way through rows.
pub(crate) struct HintWalk<'a> {
    key: &'a [u8],
    last: Option<Step<'a>>,
}

/// The row searched last, where the key is in it, and the element there if it was read.
#[derive(Clone, Copy)]
struct Step<'a> {
    row: &'a RowTable,
    at: Place,
    element: Option<Element>,
}

impl<'a> HintWalk<'a> {
    /// A search for `key` that has seen no row yet.
    pub(crate) fn new(key: &'a [u8]) -> Self {
        HintWalk { key, last: None }
    }

    /// Where the key is in the next row.
    ///
    /// # Errors
    /// `Corruption` in what was read.
    pub(super) fn land(
        &mut self,
        row: &'a RowTable,
        probe: &mut impl Probe,
    ) -> Result<Landing<'a>> {
        let needle = row.needle(self.key);
        let landing = match self.last {
            Some(last) if last.row.previous() == Some(row.number()) && !last.row.is_empty() => {
                let bracket = last.narrow(row, probe)?;
                let above = bracket.window.end;
                let landing = row.search(&needle, bracket, probe)?;
                // At the upper bound nothing was compared: it may be the key if that of the newer
                // row was.
                match last.at.is_equal && landing.place.position == above {
                    true => row.look_at(above, &needle, probe)?,
                    false => landing,
                }
            }
            _ => row.search(&needle, row.bracket(self.key), probe)?,
        };
        self.last = Some(Step { row, at: landing.place, element: landing.element });
        Ok(landing)
    }
}

impl Step<'_> {
    /// Where the key can be in the row that this one's pointers point into.
    fn narrow(&self, row: &RowTable, probe: &mut impl Probe) -> Result<Bracket> {
        let (newer, p) = (self.row, self.at.position);
        let mut read = |position: usize| newer.element(newer.index(position), probe);
        let upper = match self.element {
            None if p < newer.len() => Some(read(p)?),
            known => known,
        };
        let above = upper.map_or(row.len(), |upper| row.position(upper.forward()));
        // Of a key that the newer row has, the pointer says it all: it points to the first.
        if self.at.is_equal {
            return Ok(Bracket { window: above..above, ends: None });
        }
        let Some(before) = p.checked_sub(1) else {
            return Ok(Bracket { window: 0..above, ends: None });
        };
        // The gap speaks of the element before by index; that is p-1 unless what is between died.
        let upper = upper.filter(|_| newer.index(p) == newer.index(before) + 1);
        let told = upper.and_then(|upper| upper.forward_before());
        let below = |forward| row.position(forward).min(above);
        if let Some(forward) = told {
            let below = below(forward);
            let is_on_line = !newer.index(p).is_multiple_of(ELEMENTS_A_LINE);
            if above - below < 2 || !is_on_line {
                return Ok(Bracket { window: below..above, ends: None });
            }
        }
        let lower = read(before)?;
        let are_alike = newer.common_prefix() == row.common_prefix();
        let ends = upper.filter(|_| are_alike).map(|upper| [lower.fragment, upper.fragment]);
        Ok(Bracket { window: below(lower.forward())..above, ends })
    }
}
