//! Reads of rows, from a table or from a table under pending writes.
//!
//! Operations read through [`Rows`], so the same code works on a table, on a table under the writes
//! of a transaction, and on either under its own writes ([`OverlayRows`]).
//!
//! ```text
//!   write set of the operation      reads its own writes
//!   writes of the transaction       if there is one
//!   the table                       [`EngineRows`]
//! ```

use std::fmt;

use siltstone::transaction::Overlay;
use siltstone_engine::{Cursor, Engine, Entry, KeyRange, ReadPoint, Result, Timestamp};

/// Direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the first row to the last.
    Ascending,
    /// From the last row to the first.
    Descending,
}

impl Order {
    /// A scan in this direction that reads no values.
    pub fn keys_only(self) -> Walk {
        Walk { order: self, reads_values: false }
    }
}

/// How a scan visits rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// Direction.
    pub order: Order,
    /// Whether rows come with their values. A scan without them costs less, and its rows may have
    /// empty values.
    pub reads_values: bool,
}

impl From<Order> for Walk {
    /// With values.
    fn from(order: Order) -> Self {
        Walk { order, reads_values: true }
    }
}

/// A row that a scan visits.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// The stored key.
    pub key: &'a [u8],
    /// The stored value.
    pub value: &'a [u8],
    expiry: Expiry<'a>,
}

/// Where the expiry of a row is: few visitors need it.
#[derive(Clone, Copy)]
enum Expiry<'a> {
    Known(Option<Timestamp>),
    AtCursor(&'a dyn Cursor),
}

impl<'a> Row<'a> {
    #[inline]
    fn at_cursor(cursor: &'a dyn Cursor, walk: Walk) -> Self {
        let value = if walk.reads_values { cursor.value() } else { &[] };
        Row { key: cursor.key(), value, expiry: Expiry::AtCursor(cursor) }
    }

    fn of_entry(key: &'a [u8], entry: &'a Entry) -> Self {
        Row { key, value: &entry.value, expiry: Expiry::Known(entry.expires_at) }
    }

    /// When the row expires.
    pub fn expires_at(&self) -> Option<Timestamp> {
        match self.expiry {
            Expiry::Known(expires_at) => expires_at,
            Expiry::AtCursor(cursor) => cursor.expires_at(),
        }
    }
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Receives each row; returns whether to continue.
pub type Visit<'v> = dyn FnMut(Row<'_>) -> bool + 'v;

/// Receives a value and its expiry.
pub type LookupVisit<'v> = dyn FnMut(&[u8], Option<Timestamp>) + 'v;

/// Rows by stored key ([`crate::stored_key`]), in order.
pub trait Rows {
    /// The row of a key; `None` if it is missing or expired.
    ///
    /// # Errors
    /// As [`Engine::get`].
    fn row(&self, key: &[u8]) -> Result<Option<Entry>>;

    /// Lends the value of a key and its expiry to `visit`, and returns whether there is one.
    ///
    /// # Errors
    /// As [`row`](Self::row).
    fn lookup(&self, key: &[u8], visit: &mut LookupVisit<'_>) -> Result<bool> {
        let entry = self.row(key)?;
        entry.iter().for_each(|entry| visit(&entry.value, entry.expires_at));
        Ok(entry.is_some())
    }

    /// When the row of a key expires; `None` if there is no row.
    ///
    /// # Errors
    /// As [`row`](Self::row).
    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Timestamp>>> {
        let mut found = None;
        self.lookup(key, &mut |_, expires_at| found = Some(expires_at))?;
        Ok(found)
    }

    /// Visits the rows of a range until `visit` returns false. Cost: a seek and a step per row.
    ///
    /// # Errors
    /// As [`Engine::range`].
    fn scan(&self, range: &KeyRange, walk: Walk, visit: &mut Visit<'_>) -> Result<()>;
}

/// Rows of an ordered table.
pub struct EngineRows<'a> {
    /// The table's engine.
    pub engine: &'a dyn Engine,
    /// The snapshot to read at; `None`: the newest rows.
    pub at: Option<ReadPoint>,
}

impl<'a> EngineRows<'a> {
    /// The newest rows of a table.
    pub fn newest(engine: &'a dyn Engine) -> Self {
        EngineRows { engine, at: None }
    }
}

impl fmt::Debug for EngineRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineRows").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Rows for EngineRows<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Entry>> {
        match &self.at {
            None => self.engine.get(key),
            Some(at) => self.engine.get_at(key, at),
        }
    }

    fn lookup(&self, key: &[u8], visit: &mut LookupVisit<'_>) -> Result<bool> {
        self.engine.lookup(key, self.at.as_ref(), visit)
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Timestamp>>> {
        self.engine.expiry(key, self.at.as_ref())
    }

    fn scan(&self, range: &KeyRange, walk: Walk, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.engine.range(range.clone(), self.at.as_ref())?;
        if !walk.reads_values {
            cursor.skip_values();
        }
        let mut is_valid = match walk.order {
            Order::Ascending => cursor.first()?,
            Order::Descending => cursor.last()?,
        };
        while is_valid && visit(Row::at_cursor(cursor.as_ref(), walk)) {
            is_valid = match walk.order {
                Order::Ascending => cursor.next()?,
                Order::Descending => cursor.prev()?,
            };
        }
        Ok(())
    }
}

/// Rows under pending writes, which hide those below.
pub struct OverlayRows<'a> {
    /// Rows below.
    pub below: &'a dyn Rows,
    /// Pending writes.
    pub writes: &'a Overlay,
    /// Time at which entries of the pending writes expire.
    pub now: Timestamp,
}

impl fmt::Debug for OverlayRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayRows").field("writes", &self.writes).finish_non_exhaustive()
    }
}

impl Rows for OverlayRows<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Entry>> {
        match self.writes.get(key) {
            Some(written) => Ok(written.filter(|entry| !entry.is_expired(self.now)).cloned()),
            None => self.below.row(key),
        }
    }

    fn lookup(&self, key: &[u8], visit: &mut LookupVisit<'_>) -> Result<bool> {
        let Some(written) = self.writes.get(key) else { return self.below.lookup(key, visit) };
        let visible = written.filter(|entry| !entry.is_expired(self.now));
        visible.iter().for_each(|entry| visit(&entry.value, entry.expires_at));
        Ok(visible.is_some())
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Timestamp>>> {
        let Some(written) = self.writes.get(key) else { return self.below.expiry(key) };
        let visible = written.filter(|entry| !entry.is_expired(self.now));
        Ok(visible.map(|entry| entry.expires_at))
    }

    fn scan(&self, range: &KeyRange, walk: Walk, visit: &mut Visit<'_>) -> Result<()> {
        let order = walk.order;
        let mut written = self.writes.range(range);
        let mut advance = || match order {
            Order::Ascending => written.next(),
            Order::Descending => written.next_back(),
        };
        let is_before = |a: &[u8], b: &[u8]| match order {
            Order::Ascending => a < b,
            Order::Descending => a > b,
        };
        let mut pending = advance();
        let mut is_stopped = false;
        let visit_written = |key: &[u8], entry: Option<&Entry>, visit: &mut Visit<'_>| {
            let visible = entry.filter(|entry| !entry.is_expired(self.now));
            visible.is_none_or(|entry| visit(Row::of_entry(key, entry)))
        };
        let mut parts = self.writes.undeleted(range);
        if order == Order::Descending {
            parts.reverse();
        }
        for part in &parts {
            if is_stopped {
                break;
            }
            self.below.scan(part, walk, &mut |row| {
                while let Some((written, entry)) = pending
                    && is_before(written, row.key)
                {
                    pending = advance();
                    if !visit_written(written, entry, visit) {
                        is_stopped = true;
                        return false;
                    }
                }
                let goes_on = match pending {
                    Some((written, entry)) if written == row.key => {
                        pending = advance();
                        visit_written(written, entry, visit)
                    }
                    _ => visit(row),
                };
                is_stopped = !goes_on;
                goes_on
            })?;
        }
        while let Some((written, entry)) = pending
            && !is_stopped
        {
            is_stopped = !visit_written(written, entry, visit);
            pending = advance();
        }
        Ok(())
    }
}
