//! Cross-row hint search: a search in one row narrows the search in the previous row.
//!
//! ```text
//!   row i      … 10 ──── 23 …            k = 12 is between two neighbours;
//!                 \        \             their forward pointers are its bounds in the previous row
//!   row i-1    … 8  11 13 … 30 …
//! ```
//!
//! Let p be the first element of row i whose key is not less than k. In row i-1 the first such
//! element is not before forward(p-1), because all elements before that have keys less than that of
//! p-1; and not after forward(p), whose key is not less than that of p. If the key of p is greater
//! than k, so are the keys from forward(p) on, and none of them needs a comparison. In rows of the
//! same size the bounds are two elements apart on average (k is more likely to be in a wide gap),
//! and equal a quarter of the time: then no comparison is needed. The element of p gives both
//! bounds: see `element`. If there are several candidates and p-1 is on the cache line of p, the
//! search interpolates between the keys of the two (`search`).
//!
//! *The first row* is searched by interpolation between the bounds of its live keys, which are in
//! memory.
//!
//! *Trimmed rows.* A pointer was exact when it was made, for a superset of the present live keys;
//! clamped to the live elements it is still a bound. So dead metadata is not needed, and only at
//! the ends of a row, where p-1 or p is missing, does the window extend to the end of the previous
//! row.
//!
//! *Missing rows.* A row names the row that its pointers point into. If the next row to be searched
//! is another one, it is searched completely, and the hints continue from there. Rows are dropped
//! oldest first, so this happens for the oldest row, after a repair, and if there are runs in files
//! between.
//!
//! Invariant: hint search has the result of a complete search of each row.
//!
//! Source: TriangleKV paper, section 3.4, and fractional cascading (Chazelle and Guibas, 1986) as
//! cited there. The paper also checks the previous key if the two hints don't include the target;
//! by the argument above the lower bound does not need it.

use std::sync::Arc;

use siltstone_engine::Result;

use super::element::{ELEMENTS_PER_LINE, Element};
use super::iter::RowTableIter;
use super::search::{Bounds, KeyPosition, SearchHit};
use super::search_stats::{SearchObserver, SearchStats};
use super::table::{RowTable, RowVersion};

/// The newest version of `key` with a sequence number up to `at`; `rows` are given newest to
/// oldest. Cost: about five comparisons for the first row, and one per further row.
///
/// # Errors
/// `Corruption` in what was read.
pub(crate) fn get<'a>(
    rows: impl IntoIterator<Item = &'a Arc<RowTable>>,
    key: &'a [u8],
    at: u64,
    observer: &mut impl SearchObserver,
) -> Result<Option<RowVersion>> {
    let mut search = HintSearch::new(key);
    for row in rows {
        let hit = search.find_in(row, observer)?;
        if let Some(version) = row.version(hit, key, at, observer)? {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

/// Seeks iterators over rows, given newest to oldest, as [`RowTableIter::seek`] does each.
///
/// # Errors
/// `Corruption` in what was read.
pub(crate) fn seek_all<'i>(
    iters: impl IntoIterator<Item = &'i mut RowTableIter>,
    key: &[u8],
    sequence: u64,
) -> Result<()> {
    seek_each(iters, key, |iter, position| iter.seek_from(position, key, sequence))
}

/// Seeks iterators over rows, given newest to oldest, as [`RowTableIter::seek_back`] does each.
///
/// # Errors
/// `Corruption` in what was read.
pub(crate) fn seek_back_all<'i>(
    iters: impl IntoIterator<Item = &'i mut RowTableIter>,
    key: &[u8],
    sequence: u64,
) -> Result<()> {
    seek_each(iters, key, |iter, position| iter.seek_back_from(position, key, sequence))
}

fn seek_each<'i>(
    iters: impl IntoIterator<Item = &'i mut RowTableIter>,
    key: &[u8],
    mut seek: impl FnMut(&mut RowTableIter, KeyPosition) -> Result<()>,
) -> Result<()> {
    let iters: Vec<&mut RowTableIter> = iters.into_iter().collect();
    let rows: Vec<Arc<RowTable>> = iters.iter().map(|iter| iter.row().clone()).collect();
    let mut search = HintSearch::new(key);
    for (row, iter) in rows.iter().zip(iters) {
        let mut stats = SearchStats::default();
        let position = search.find_in(row, &mut stats).map(|hit| hit.position);
        row.note_read(&stats, iter.purpose());
        seek(iter, position?)?;
    }
    Ok(())
}

/// A search that goes through rows, newest to oldest.
pub(crate) struct HintSearch<'a> {
    key: &'a [u8],
    last: Option<PreviousHit<'a>>,
}

/// The position of the key in the row searched last, and the element there if it was read.
#[derive(Clone, Copy)]
struct PreviousHit<'a> {
    row: &'a RowTable,
    at: KeyPosition,
    element: Option<Element>,
}

impl<'a> HintSearch<'a> {
    /// A search for `key` before the first row.
    pub(crate) fn new(key: &'a [u8]) -> Self {
        HintSearch { key, last: None }
    }

    /// Finds the key in the next row.
    ///
    /// # Errors
    /// `Corruption` in what was read.
    pub(super) fn find_in(
        &mut self,
        row: &'a RowTable,
        observer: &mut impl SearchObserver,
    ) -> Result<SearchHit<'a>> {
        let target = row.target(self.key);
        let hit = match self.last {
            Some(last) if last.row.previous() == Some(row.number()) && !last.row.is_empty() => {
                let bounds = last.narrow(row, observer)?;
                let above = bounds.window.end;
                let hit = row.search(&target, bounds, observer)?;
                // The upper bound was not compared: its key may be equal if that in the newer row
                // was.
                match last.at.is_exact && hit.position.position == above {
                    true => row.hit_at(above, &target, observer)?,
                    false => hit,
                }
            }
            _ => row.search(&target, row.search_bounds(self.key), observer)?,
        };
        self.last = Some(PreviousHit { row, at: hit.position, element: hit.element });
        Ok(hit)
    }
}

impl PreviousHit<'_> {
    /// The bounds of the key in the row that this one's pointers point into.
    fn narrow(&self, row: &RowTable, observer: &mut impl SearchObserver) -> Result<Bounds> {
        let (newer, p) = (self.row, self.at.position);
        let mut read = |position: usize| newer.element(newer.index(position), observer);
        let upper = match self.element {
            None if p < newer.len() => Some(read(p)?),
            known => known,
        };
        let above = upper.map_or(row.len(), |upper| row.position(upper.forward()));
        // For a key in the newer row the pointer is exact: it points to the key's first version.
        if self.at.is_exact {
            return Ok(Bounds { window: above..above, ends: None });
        }
        let Some(before) = p.checked_sub(1) else {
            return Ok(Bounds { window: 0..above, ends: None });
        };
        // The gap refers to the previous index: that is p-1 unless elements between them are dead.
        let upper = upper.filter(|_| newer.index(p) == newer.index(before) + 1);
        let known_forward = upper.and_then(|upper| upper.forward_before());
        let below = |forward| row.position(forward).min(above);
        if let Some(forward) = known_forward {
            let below = below(forward);
            let is_on_line = !newer.index(p).is_multiple_of(ELEMENTS_PER_LINE);
            if above - below < 2 || !is_on_line {
                return Ok(Bounds { window: below..above, ends: None });
            }
        }
        let lower = read(before)?;
        let have_same_prefix = newer.common_prefix() == row.common_prefix();
        let ends = upper.filter(|_| have_same_prefix).map(|upper| [lower.fragment, upper.fragment]);
        Ok(Bounds { window: below(lower.forward())..above, ends })
    }
}
