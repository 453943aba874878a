//! The user's cursor: of the merged versions, those that are visible at one sequence number.
//!
//! Forwards, the first version of a key that is not newer is the visible one, and the others are
//! skipped. Backwards, the versions of a key come oldest first, so the cursor passes all of them,
//! copies the newest visible one, and ends before the key.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use siltstone_engine::{Clock, Cursor, KeyRange, ReadPoint, Result, Timestamp};
use siltstone_table::Kind;

use super::Merge;
use crate::engine::Tree;
use crate::view::View;

/// After this many versions of one key, the cursor seeks past the rest.
const MAX_STEPS_BEFORE_SEEK: usize = 8;

/// A cursor over one view.
pub(crate) struct TreeCursor {
    merge: Merge,
    at: u64,
    range: KeyRange,
    clock: Arc<dyn Clock>,
    state: State,
    /// The copied entry, or the key being skipped.
    key: Vec<u8>,
    value: Vec<u8>,
    expires_at: u64,
    wants_values: bool,
    // Keeps memtables and files alive.
    view: Arc<View>,
    /// For counters; a cursor may outlive its tree.
    tree: Weak<Tree>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Invalid,
    /// The merge is at the entry.
    OnMerge,
    /// The entry was copied; the merge is before its oldest version.
    Copied,
}

impl Tree {
    pub(crate) fn cursor(
        &self,
        range: KeyRange,
        point: Option<&ReadPoint>,
    ) -> Result<Box<dyn Cursor>> {
        let (view, at) = self.pin(point)?;
        let merge = Merge::of_view(view.clone(), at, self.options.hints);
        let tree = self.me.clone();
        Ok(Box::new(TreeCursor::new(merge, at, range, self.env.clock.clone(), view, tree)))
    }

    /// Charges the runs that a cursor was positioned in and those that it skipped, and begins the
    /// compaction that has become due by that.
    pub(crate) fn charge_seeks(&self, view: &View, placed: u64, passed: u64) {
        if self.strategy.record_seeks(&view.version, placed, passed) {
            self.schedule_compaction();
        }
    }
}

impl TreeCursor {
    pub(crate) fn new(
        merge: Merge,
        at: u64,
        range: KeyRange,
        clock: Arc<dyn Clock>,
        view: Arc<View>,
        tree: Weak<Tree>,
    ) -> Self {
        TreeCursor {
            merge,
            at,
            range,
            clock,
            state: State::Invalid,
            key: Vec::new(),
            value: Vec::new(),
            expires_at: 0,
            wants_values: true,
            view,
            tree,
        }
    }

    /// Moves forwards to the first visible entry in range.
    fn settle_forward(&mut self, now: Timestamp) -> Result<bool> {
        self.state = State::Invalid;
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

    /// Moves past all versions of the key under the merge.
    fn skip_key(&mut self) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(self.merge.key());
        for _ in 0..MAX_STEPS_BEFORE_SEEK {
            self.merge.next()?;
            if !self.merge.valid() || self.merge.key() != self.key {
                return Ok(());
            }
        }
        // Sequence 0 comes after all versions of a key.
        self.merge.seek(&self.key, 0)?;
        while self.merge.valid() && self.merge.key() == self.key {
            self.merge.next()?;
        }
        Ok(())
    }

    /// Moves backwards to the last visible entry in range.
    fn settle_backward(&mut self, now: Timestamp) -> Result<bool> {
        self.state = State::Invalid;
        while self.merge.valid() {
            if !self.range.is_after_start(self.merge.key()) {
                return Ok(false);
            }
            self.key.clear();
            self.key.extend_from_slice(self.merge.key());
            let mut newest = None;
            while self.merge.valid() && self.merge.key() == self.key {
                if self.merge.sequence() <= self.at {
                    self.resolve()?;
                    newest = Some((self.merge.kind(), self.merge.expires_at()));
                    self.value.clear();
                    if self.wants_values {
                        self.value.extend_from_slice(self.merge.value());
                    }
                }
                self.merge.prev()?;
            }
            if let Some((kind, expires_at)) = newest
                && !is_gone(kind, expires_at, now)
            {
                self.expires_at = if kind == Kind::PutExpiring { expires_at } else { 0 };
                self.state = State::Copied;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs a positioning move.
    fn position(
        &mut self,
        step: impl FnOnce(&mut Self, Timestamp) -> Result<bool>,
    ) -> Result<bool> {
        if let Some(tree) = self.tree.upgrade() {
            tree.counters.seeks.fetch_add(1, Relaxed);
            tree.charge_seeks(&self.view, 0, self.view.version.level0.len() as u64);
        }
        self.move_with(step)
    }

    /// Runs a move; after an error the cursor is invalid.
    fn move_with(
        &mut self,
        step: impl FnOnce(&mut Self, Timestamp) -> Result<bool>,
    ) -> Result<bool> {
        let now = self.clock.now();
        let result = step(self, now);
        let seeks = self.merge.take_l0_seeks();
        if seeks > 0
            && let Some(tree) = self.tree.upgrade()
        {
            tree.charge_seeks(&self.view, seeks, 0);
        }
        if result.is_err() {
            self.state = State::Invalid;
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
        self.position(|c, now| {
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
        self.position(|c, now| {
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
        self.position(|c, now| {
            c.merge.seek(key, c.at)?;
            c.settle_forward(now)
        })
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        if !self.range.is_before_end(key) {
            return self.last();
        }
        self.position(|c, now| {
            c.merge.seek_back(key, 0)?;
            c.settle_backward(now)
        })
    }

    fn next(&mut self) -> Result<bool> {
        self.move_with(|c, now| {
            match c.state {
                State::Invalid => return Err(not_positioned()),
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
        self.move_with(|c, now| {
            match c.state {
                State::Invalid => return Err(not_positioned()),
                State::OnMerge => {
                    let key = c.merge.key().to_vec();
                    // The newest version of the key comes first: seek to the one before it.
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
        self.state != State::Invalid
    }

    fn key(&self) -> &[u8] {
        match self.state {
            State::OnMerge => self.merge.key(),
            State::Copied => &self.key,
            State::Invalid => panic!("the cursor is not positioned"),
        }
    }

    fn value(&self) -> &[u8] {
        match self.state {
            State::OnMerge => self.merge.value(),
            State::Copied => &self.value,
            State::Invalid => panic!("the cursor is not positioned"),
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

fn not_positioned() -> siltstone_engine::Error {
    siltstone_engine::Error::Invalid("a cursor was moved before it was placed".to_owned())
}
