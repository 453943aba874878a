//! The user's cursor: of the merged versions, the ones that a reader at one moment sees.
//!
//! Forwards, the first version of a key that is not newer than the moment is the key's; the rest
//! are skipped. Backwards the versions of a key come oldest first, so the cursor walks over all of
//! them, keeps a copy of the newest one seen, and ends standing before the key.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use siltstone_engine::{Clock, Cursor, KeyRange, Result, Timestamp};
use siltstone_table::Kind;

use super::{Merge, View};
use crate::engine::Inner;

/// After so many versions of one key stepped over, seek past the rest instead.
const STEPS_BEFORE_SEEK: usize = 8;

/// A cursor over one view.
pub(crate) struct TreeCursor {
    merge: Merge,
    at: u64,
    range: KeyRange,
    clock: Arc<dyn Clock>,
    state: State,
    /// The entry under the cursor when it came backwards, or the key being skipped forwards.
    key: Vec<u8>,
    value: Vec<u8>,
    expires_at: u64,
    wants_values: bool,
    // Keeps memtables and files alive; the runs of the merge borrow nothing.
    view: Arc<View>,
    /// Counts seeks; a cursor may outlive its tree.
    tree: Weak<Inner>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Nowhere,
    /// The merge stands on the entry.
    OnMerge,
    /// The entry was copied; the merge stands before the entry's oldest version.
    Copied,
}

impl TreeCursor {
    pub(crate) fn new(
        merge: Merge,
        at: u64,
        range: KeyRange,
        clock: Arc<dyn Clock>,
        view: Arc<View>,
        tree: Weak<Inner>,
    ) -> Self {
        TreeCursor {
            merge,
            at,
            range,
            clock,
            state: State::Nowhere,
            key: Vec::new(),
            value: Vec::new(),
            expires_at: 0,
            wants_values: true,
            view,
            tree,
        }
    }

    /// From where the merge stands, to the first entry that is seen, in range.
    fn settle_forward(&mut self, now: Timestamp) -> Result<bool> {
        self.state = State::Nowhere;
        while self.merge.valid() {
            if !self.range.is_before_end(self.merge.key()) {
                return Ok(false);
            }
            if self.merge.sequence() > self.at {
                self.merge.next()?;
                continue;
            }
            self.resolve()?;
            let is_gone = is_gone(self.merge.kind(), self.merge.expires_at(), now);
            if !is_gone {
                self.state = State::OnMerge;
                return Ok(true);
            }
            self.skip_key()?;
        }
        Ok(false)
    }

    fn resolve(&mut self) -> Result<()> {
        if self.wants_values { self.merge.resolve() } else { self.merge.resolve_without_value() }
    }

    /// Past all versions of the key under the merge.
    fn skip_key(&mut self) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(self.merge.key());
        for _ in 0..STEPS_BEFORE_SEEK {
            self.merge.next()?;
            if !self.merge.valid() || self.merge.key() != self.key {
                return Ok(());
            }
        }
        // Sequence 0 is the last of a key's versions in run order.
        self.merge.seek(&self.key, 0)?;
        while self.merge.valid() && self.merge.key() == self.key {
            self.merge.next()?;
        }
        Ok(())
    }

    /// From where the merge stands, back to the last entry that is seen, in range.
    fn settle_backward(&mut self, now: Timestamp) -> Result<bool> {
        self.state = State::Nowhere;
        while self.merge.valid() {
            if !self.range.is_after_start(self.merge.key()) {
                return Ok(false);
            }
            self.key.clear();
            self.key.extend_from_slice(self.merge.key());
            let mut seen = None;
            while self.merge.valid() && self.merge.key() == self.key {
                if self.merge.sequence() <= self.at {
                    self.resolve()?;
                    seen = Some((self.merge.kind(), self.merge.expires_at()));
                    self.value.clear();
                    if self.wants_values {
                        self.value.extend_from_slice(self.merge.value());
                    }
                }
                self.merge.prev()?;
            }
            if let Some((kind, expires_at)) = seen
                && !is_gone(kind, expires_at, now)
            {
                self.expires_at = if kind == Kind::PutExpiring { expires_at } else { 0 };
                self.state = State::Copied;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs a move that places the cursor.
    fn place(&mut self, walk: impl FnOnce(&mut Self, Timestamp) -> Result<bool>) -> Result<bool> {
        if let Some(tree) = self.tree.upgrade() {
            tree.counters.seeks.fetch_add(1, Relaxed);
            tree.count_looks(&self.view, 0, self.view.version.level0.len() as u64);
        }
        self.go(walk)
    }

    /// Runs a move; after an error the cursor stands nowhere.
    fn go(&mut self, walk: impl FnOnce(&mut Self, Timestamp) -> Result<bool>) -> Result<bool> {
        let now = self.clock.now();
        let result = walk(self, now);
        let looks = self.merge.take_looks();
        if looks > 0
            && let Some(tree) = self.tree.upgrade()
        {
            tree.count_looks(&self.view, looks, 0);
        }
        if result.is_err() {
            self.state = State::Nowhere;
        }
        result
    }
}

pub(super) fn is_gone(kind: Kind, expires_at: u64, now: Timestamp) -> bool {
    kind == Kind::Delete || (kind == Kind::PutExpiring && expires_at <= now)
}

impl Cursor for TreeCursor {
    fn skip_values(&mut self) {
        self.wants_values = false;
    }

    fn first(&mut self) -> Result<bool> {
        self.place(|c, now| {
            match c.range.start.clone() {
                std::ops::Bound::Unbounded => c.merge.first()?,
                std::ops::Bound::Included(key) => c.merge.seek(&key, u64::MAX)?,
                std::ops::Bound::Excluded(key) => {
                    c.merge.seek(&key, u64::MAX)?;
                    while c.merge.valid() && c.merge.key() == key {
                        c.skip_key()?;
                    }
                }
            }
            c.settle_forward(now)
        })
    }

    fn last(&mut self) -> Result<bool> {
        self.place(|c, now| {
            match c.range.end.clone() {
                std::ops::Bound::Unbounded => c.merge.last()?,
                std::ops::Bound::Included(key) => c.merge.seek_back(&key, 0)?,
                std::ops::Bound::Excluded(key) => {
                    c.merge.seek_back(&key, 0)?;
                    while c.merge.valid() && c.merge.key() == key {
                        c.merge.prev()?;
                    }
                }
            }
            c.settle_backward(now)
        })
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if !self.range.is_after_start(key) {
            return self.first();
        }
        self.place(|c, now| {
            c.merge.seek(key, c.at)?;
            c.settle_forward(now)
        })
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        if !self.range.is_before_end(key) {
            return self.last();
        }
        self.place(|c, now| {
            c.merge.seek_back(key, 0)?;
            c.settle_backward(now)
        })
    }

    fn next(&mut self) -> Result<bool> {
        self.go(|c, now| {
            match c.state {
                State::Nowhere => return Err(not_placed()),
                State::OnMerge => c.skip_key()?,
                State::Copied => {
                    let key = std::mem::take(&mut c.key);
                    c.merge.seek(&key, u64::MAX)?;
                    c.key = key;
                    if c.merge.valid() && c.merge.key() == c.key {
                        c.skip_key()?;
                    }
                }
            }
            c.settle_forward(now)
        })
    }

    fn prev(&mut self) -> Result<bool> {
        self.go(|c, now| {
            match c.state {
                State::Nowhere => return Err(not_placed()),
                State::OnMerge => {
                    let key = c.merge.key().to_vec();
                    // The newest version of the key is the first in run order: one before it.
                    c.merge.seek_back(&key, u64::MAX)?;
                    while c.merge.valid() && c.merge.key() == key {
                        c.merge.prev()?;
                    }
                }
                State::Copied => {}
            }
            c.settle_backward(now)
        })
    }

    fn valid(&self) -> bool {
        self.state != State::Nowhere
    }

    fn key(&self) -> &[u8] {
        match self.state {
            State::OnMerge => self.merge.key(),
            State::Copied => &self.key,
            State::Nowhere => panic!("the cursor stands nowhere"),
        }
    }

    fn value(&self) -> &[u8] {
        match self.state {
            State::OnMerge => self.merge.value(),
            State::Copied => &self.value,
            State::Nowhere => panic!("the cursor stands nowhere"),
        }
    }

    fn expires_at(&self) -> Option<Timestamp> {
        let at = match self.state {
            State::OnMerge if self.merge.kind() == Kind::PutExpiring => self.merge.expires_at(),
            State::Copied => self.expires_at,
            _ => 0,
        };
        (at > 0).then_some(at)
    }
}

fn not_placed() -> siltstone_engine::Error {
    siltstone_engine::Error::Invalid("a cursor was moved before it was placed".to_owned())
}
