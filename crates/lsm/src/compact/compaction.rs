//! What one compaction merges: rows or tables of one level, and all that lies under them.

use std::sync::Arc;

use crate::version::{Row, TableFile, Version};

/// Rows or tables of one level to be merged with the tables under them.
#[derive(Clone)]
pub(crate) struct Compaction {
    pub(crate) level: usize,
    pub(crate) target: usize,
    /// Of level 0, newest first.
    pub(crate) rows: Vec<Row>,
    /// Of a deeper level.
    pub(crate) inputs: Vec<Arc<TableFile>>,
    /// Where the cursor over level 0 moves: of the rows only what lies before that is merged
    /// (`Some(None)`: up to the last key). `None`: the rows are merged whole.
    pub(crate) side: Option<Option<Vec<u8>>>,
    /// Of `target`.
    pub(crate) below: Vec<Arc<TableFile>>,
    /// Of the level after `target`: a table that would overlap too many of them is ended early.
    pub(crate) grandparents: Vec<Arc<TableFile>>,
    /// Levels deeper than `target`, to know whether a deletion still has something to hide.
    pub(crate) deeper: Vec<Vec<Arc<TableFile>>>,
}

impl Compaction {
    /// Every table it reads; rows in persistent memory are none.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.rows.iter().filter_map(Row::file).chain(&self.inputs).chain(&self.below)
    }

    /// About the bytes it reads.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = self.inputs.iter().chain(&self.below).map(|table| table.bytes());
        self.row_bytes() + tables.sum::<u64>()
    }

    /// About the bytes of keys and values that it takes from rows.
    pub(crate) fn row_bytes(&self) -> u64 {
        let of_row = |row: &Row| match &self.side {
            None => row.live_bytes(),
            Some(to) => row.side_bytes(to.as_deref()),
        };
        self.rows.iter().map(of_row).sum()
    }

    /// The tables only change their level: nothing lies under them, they don't overlap, and all of
    /// each is live and in the table itself.
    pub(crate) fn is_move(&self) -> bool {
        let is_table = |row: &Row| row.plain_file().is_some() && row.live().is_whole();
        let mut by_key: Vec<_> = self.spans().collect();
        by_key.sort_unstable();
        self.below.is_empty()
            && self.rows.iter().all(is_table)
            && self.finished_rows().count() == self.rows.len()
            && by_key.windows(2).all(|p| p[0].1 < p[1].0)
    }

    /// The rows of which nothing is left afterwards.
    pub(crate) fn finished_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| match &self.side {
            None => true,
            Some(to) => row.live().ends_by(to.as_deref()),
        })
    }

    pub(crate) fn largest_input(&self) -> &[u8] {
        self.spans().map(|(_, largest)| largest).max().unwrap_or_default()
    }

    /// The first and the last key of each row or table to be merged.
    fn spans(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let rows = self.rows.iter().map(|row| (row.smallest(), row.largest()));
        rows.chain(self.inputs.iter().map(|table| (table.smallest(), table.largest())))
    }

    /// Whether nothing lies in a level deeper than the target.
    pub(crate) fn is_bottom(&self) -> bool {
        self.deeper.iter().all(Vec::is_empty)
    }

    /// Whether a level deeper than the target may hold `key`.
    pub(crate) fn is_deeper(&self, key: &[u8]) -> bool {
        self.deeper.iter().any(|tables| {
            let at = tables.partition_point(|table| table.largest() < key);
            tables.get(at).is_some_and(|table| table.smallest() <= key)
        })
    }
}

/// A compaction of `rows` of level 0, or of `inputs` of a deeper one, with all that lies under them.
pub(super) fn complete(
    version: &Version,
    level: usize,
    rows: Vec<Row>,
    inputs: Vec<Arc<TableFile>>,
    side: Option<Option<Vec<u8>>>,
) -> Compaction {
    let firsts = rows.iter().map(Row::smallest);
    let smallest = firsts.chain(inputs.iter().map(|table| table.smallest())).min();
    let lasts = rows.iter().map(Row::largest);
    let largest = lasts.chain(inputs.iter().map(|table| table.largest())).max();
    let (smallest, largest) = (smallest.unwrap_or_default(), largest.unwrap_or_default());
    let mut span = Span { from: smallest, to: End::With(largest) };
    if let Some(to) = &side {
        span.from = span.from.max(&version.cursor);
        if let Some(to) = to.as_deref().filter(|to| *to <= largest) {
            span.to = End::Before(to);
        }
    }
    let below = span.under(version, level + 1);
    // What lies below reaches further than the inputs, and its deletions hide deeper entries too.
    let mut wide = span;
    if let (Some(first), Some(last)) = (below.first(), below.last()) {
        wide.from = wide.from.min(first.smallest());
        if !wide.to.is_after(last.largest()) {
            wide.to = End::With(last.largest());
        }
    }
    let grandparents = wide.under(version, level + 2);
    let deeper =
        (level + 2..=version.levels.len()).map(|level| wide.under(version, level)).collect();
    Compaction { level, target: level + 1, below, grandparents, deeper, rows, inputs, side }
}

/// An interval of keys.
#[derive(Clone, Copy)]
struct Span<'a> {
    from: &'a [u8],
    to: End<'a>,
}

#[derive(Clone, Copy)]
enum End<'a> {
    With(&'a [u8]),
    Before(&'a [u8]),
}

impl End<'_> {
    /// Whether `key` lies within, as far as the end goes.
    fn is_after(&self, key: &[u8]) -> bool {
        match *self {
            End::With(last) => key <= last,
            End::Before(end) => key < end,
        }
    }
}

impl Span<'_> {
    /// The tables of `level` ≥ 1 that have keys in the span.
    fn under(&self, version: &Version, level: usize) -> Vec<Arc<TableFile>> {
        if level > version.levels.len() {
            return Vec::new();
        }
        let tables = version.level(level);
        let from = tables.partition_point(|table| table.largest() < self.from);
        let to = tables.partition_point(|table| self.to.is_after(table.smallest()));
        tables[from..to.max(from)].to_vec()
    }
}
