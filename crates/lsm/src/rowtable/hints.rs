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
//! narrow one), and a quarter of the time none. The element of p says both bounds: see `element`.
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

use super::iter::RowIter;
use super::probe::{Probe, Tally};
use super::search::Place;
use super::table::{RowTable, RowVersion};

/// The newest version of `key` at or before the sequence number `at`, from rows given newest to
/// oldest. Cost: a search of the first row, then about one comparison a row.
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
        let place = walk.place(row, probe)?;
        if let Some(version) = row.version(place, key, at, probe)? {
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
        let place = walk.place(row, &mut tally);
        row.note_read(&tally, iter.purpose());
        land(iter, place?)?;
    }
    Ok(())
}

/// A search on its way through rows.
pub(crate) struct HintWalk<'a> {
    key: &'a [u8],
    /// The row searched last, and where the key is in it.
    last: Option<(&'a RowTable, Place)>,
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
    pub(crate) fn place(&mut self, row: &'a RowTable, probe: &mut impl Probe) -> Result<Place> {
        let place = match self.last {
            Some((newer, at)) if newer.previous() == Some(row.number()) && !newer.is_empty() => {
                self.narrowed(row, newer, at, probe)?
            }
            _ => row.lower_bound(self.key, 0..row.len(), probe)?,
        };
        self.last = Some((row, place));
        Ok(place)
    }

    fn narrowed(
        &self,
        row: &RowTable,
        newer: &RowTable,
        at: Place,
        probe: &mut impl Probe,
    ) -> Result<Place> {
        let mut element = |position: usize| newer.element(newer.index(position), probe);
        let upper = if at.position < newer.len() { Some(element(at.position)?) } else { None };
        let above = upper.map_or(row.len(), |upper| row.position(upper.forward()));
        // The gap speaks of the element before by index; that is p-1 unless what is between died.
        let is_next = |position: &usize| newer.index(position + 1) == newer.index(*position) + 1;
        let below = match at.position.checked_sub(1) {
            // Of a key that the newer row has, the pointer says it all: it points to the first.
            _ if at.is_equal => above,
            None => 0,
            Some(position) => {
                let told = upper.filter(|_| is_next(&position));
                let lower = match told.and_then(|upper| upper.forward_before()) {
                    Some(index) => index,
                    None => element(position)?.forward(),
                };
                row.position(lower).min(above)
            }
        };
        let mut place = row.lower_bound(self.key, below..above, probe)?;
        // At the upper bound nothing was compared: it may be the key if that of the newer row was.
        if at.is_equal && place.position == above {
            place.is_equal = row.is_at(above, self.key, probe)?;
        }
        Ok(place)
    }
}
