//! Rows of a table as a command reads them: under the writes of its transaction, and with the last
//! row that its group has read.

use std::cell::RefCell;

use siltstone_collections::layout::PREFIX;
use siltstone_collections::rows::{LookupVisit, Visit};
use siltstone_collections::{EngineRows, Order, OverlayRows, Rows};
use siltstone_engine::{Entry, KeyRange, Result, Timestamp};

use crate::store::Overlay;
use crate::store::row_cache::RowCache;

/// Rows of a table under the writes of the running transaction, if there is one.
pub(super) struct TableRows<'a> {
    pub(super) below: EngineRows<'a>,
    pub(super) writes: Option<&'a Overlay>,
    pub(super) cache: Option<&'a RefCell<RowCache>>,
    pub(super) now: Timestamp,
}

impl TableRows<'_> {
    fn layered(&self) -> Option<OverlayRows<'_>> {
        self.writes.map(|writes| OverlayRows { below: &self.below, writes, now: self.now })
    }
}

impl Rows for TableRows<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.layered().map_or_else(|| self.below.row(key), |layered| layered.row(key))
    }

    fn scan(&self, range: &KeyRange, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        match self.layered() {
            Some(layered) => layered.scan(range, order, visit),
            None => self.below.scan(range, order, visit),
        }
    }

    fn lookup(&self, key: &[u8], visit: &mut LookupVisit<'_>) -> Result<bool> {
        let written = self.writes.and_then(|writes| writes.get(key));
        match (written, self.cache) {
            (Some(written), _) => {
                let visible = written.filter(|entry| !entry.is_expired(self.now));
                visible.iter().for_each(|entry| visit(&entry.value, entry.expires_at));
                Ok(visible.is_some())
            }
            (None, Some(cache)) if !key.starts_with(&PREFIX) => {
                let read = |visit: &mut LookupVisit<'_>| self.below.lookup(key, visit);
                cache.borrow_mut().lookup(key, visit, read)
            }
            _ => self.below.lookup(key, visit),
        }
    }
}
