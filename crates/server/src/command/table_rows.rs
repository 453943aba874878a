//! Rows of a table as a command reads them: under the writes of its transaction or of its group.

use siltstone_collections::rows::{LookupVisit, Visit};
use siltstone_collections::{EngineRows, OverlayRows, PendingRows, Rows, Walk, WrittenRow};
use siltstone_engine::{Entry, KeyRange, Result, Timestamp};

use crate::store::Overlay;

/// Pending writes above a table, and the time at which their rows expire.
#[derive(Clone, Copy)]
pub(super) enum Above<'a> {
    Nothing,
    Transaction(&'a Overlay, Timestamp),
    Group(&'a PendingRows, Timestamp),
}

/// Rows of a table under pending writes.
pub(super) struct TableRows<'a> {
    pub(super) below: EngineRows<'a>,
    pub(super) writes: Above<'a>,
}

impl TableRows<'_> {
    /// What the pending writes have of a row; `None` if nothing.
    fn written(&self, key: &[u8]) -> Option<WrittenRow<'_>> {
        let (written, now) = match self.writes {
            Above::Nothing => return None,
            Above::Transaction(overlay, now) => {
                let written = overlay.get(key)?;
                (written.map(|entry| (entry.value.as_slice(), entry.expires_at)), now)
            }
            Above::Group(rows, now) => (rows.get(key)?, now),
        };
        Some(written.filter(|(_, expires_at)| expires_at.is_none_or(|at| at > now)))
    }
}

impl Rows for TableRows<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Entry>> {
        let entry = |(value, expires_at): (&[u8], _)| Entry { value: value.to_vec(), expires_at };
        self.written(key).map_or_else(|| self.below.row(key), |written| Ok(written.map(entry)))
    }

    fn lookup(&self, key: &[u8], visit: &mut LookupVisit<'_>) -> Result<bool> {
        let Some(written) = self.written(key) else { return self.below.lookup(key, visit) };
        if let Some((value, expires_at)) = written {
            visit(value, expires_at);
        }
        Ok(written.is_some())
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Timestamp>>> {
        let expiry = |written: WrittenRow<'_>| Ok(written.map(|(_, expires_at)| expires_at));
        self.written(key).map_or_else(|| self.below.expiry(key), expiry)
    }

    fn scan(&self, range: &KeyRange, walk: Walk, visit: &mut Visit<'_>) -> Result<()> {
        let (writes, now) = match self.writes {
            Above::Group(rows, now) if !rows.is_empty() => (rows.ordered(), now),
            Above::Transaction(overlay, now) => (overlay, now),
            _ => return self.below.scan(range, walk, visit),
        };
        OverlayRows { below: &self.below, writes, now }.scan(range, walk, visit)
    }
}
