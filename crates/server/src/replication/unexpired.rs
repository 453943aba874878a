//! A cursor that hides entries which have expired by the leader's clock, but not at the committed
//! time. A command from which an entry was hidden commits the time before it replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone_engine::{Cursor, Result, Timestamp, forward_cursor};

/// A cursor that skips expired entries.
pub(super) struct UnexpiredCursor {
    inner: Box<dyn Cursor>,
    now: Timestamp,
    has_hidden: Arc<AtomicBool>,
}

impl UnexpiredCursor {
    pub(super) fn new(inner: Box<dyn Cursor>, now: Timestamp, has_hidden: Arc<AtomicBool>) -> Self {
        UnexpiredCursor { inner, now, has_hidden }
    }

    fn is_hidden(&self) -> bool {
        let is_hidden =
            self.inner.valid() && self.inner.expires_at().is_some_and(|at| at <= self.now);
        if is_hidden {
            self.has_hidden.store(true, Ordering::Release);
        }
        is_hidden
    }

    fn forwards(&mut self, mut is_there: bool) -> Result<bool> {
        while is_there && self.is_hidden() {
            is_there = self.inner.next()?;
        }
        Ok(is_there)
    }

    fn backwards(&mut self, mut is_there: bool) -> Result<bool> {
        while is_there && self.is_hidden() {
            is_there = self.inner.prev()?;
        }
        Ok(is_there)
    }
}

impl Cursor for UnexpiredCursor {
    forward_cursor!(inner);

    fn first(&mut self) -> Result<bool> {
        let is_there = self.inner.first()?;
        self.forwards(is_there)
    }

    fn last(&mut self) -> Result<bool> {
        let is_there = self.inner.last()?;
        self.backwards(is_there)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let is_there = self.inner.seek(key)?;
        self.forwards(is_there)
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        let is_there = self.inner.seek_back(key)?;
        self.backwards(is_there)
    }

    fn next(&mut self) -> Result<bool> {
        let is_there = self.inner.next()?;
        self.forwards(is_there)
    }

    fn prev(&mut self) -> Result<bool> {
        let is_there = self.inner.prev()?;
        self.backwards(is_there)
    }
}
