//! The user's cursor: of the merged versions, those that are visible at one sequence number.
//!
//! Forwards, the first version of a key that is not newer is the visible one, and the others are
//! skipped. Backwards, the versions of a key come oldest first, so the cursor passes all of them,
//! copies the newest visible one, and ends before the key. A version that is older than a range
//! deletion of its key is missing. If the visible version is an operand of a merge, the key is
//! looked up (`merged_value`). Runs in which all keys of a deleted range are older than the
//! deletion are moved past the range by one seek. A move that passes many tombstones is charged for
//! them (`compact::tombstones`).

use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use arc_swap::Guard;
use siltstone_engine::{Clock, Cursor, KeyRange, ReadPoint, Result, Timestamp};
use siltstone_structures::KeyBuffer;
use siltstone_table::Kind;

use super::Merge;
use super::merged_value::MergeReader;
use super::skip_guard::SkipGuard;
use super::view_deletes::ViewDeletes;
use crate::compact::MIN_PASSED;
use crate::engine::Tree;
use crate::view::View;

/// After this many versions of one key, the cursor seeks past the rest.
const MAX_STEPS_BEFORE_SEEK: usize = 8;

/// A cursor over one view.
pub(crate) struct TreeCursor {
    merge: Merge,
    at: u64,
    range: KeyRange,
    deletes: Option<ViewDeletes>,
    skips: SkipGuard,
    clock: Arc<dyn Clock>,
    state: State,
    /// The copied entry, or the key being skipped.
    key: KeyBuffer,
    value: Vec<u8>,
    expires_at: u64,
    wants_values: bool,
    /// The tombstones that the current move has passed, and the key of the first.
    passed: u64,
    passed_from: Vec<u8>,
    /// Of a table with merges.
    merges: Option<MergeReader>,
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
    /// The merge is at the newest operand of the entry; the value was made of it and older
    /// versions.
    OnOperand,
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
        let view = Guard::into_inner(view);
        let merge = Merge::of_view(view.clone(), at, self.hints);
        let tree = self.me.clone();
        let merges = view.version.merge_operator.is_some().then(|| self.merge_reader());
        let cursor = TreeCursor::new(merge, at, range, self.env.clock.clone(), view, tree);
        Ok(Box::new(TreeCursor { merges, ..cursor }))
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
        mut merge: Merge,
        at: u64,
        range: KeyRange,
        clock: Arc<dyn Clock>,
        view: Arc<View>,
        tree: Weak<Tree>,
    ) -> Self {
        if let Bound::Included(end) | Bound::Excluded(end) = &range.end {
            merge.set_end(end);
        }
        TreeCursor {
            merge,
            at,
            range,
            deletes: ViewDeletes::of(&view, at),
            skips: SkipGuard::default(),
            clock,
            state: State::Invalid,
            key: KeyBuffer::default(),
            value: Vec::new(),
            expires_at: 0,
            wants_values: true,
            passed: 0,
            passed_from: Vec::new(),
            merges: None,
            view,
            tree,
        }
    }

    /// Moves forwards to the first visible entry in range.
    #[inline]
    fn find_forward(&mut self) -> Result<bool> {
        self.state = State::Invalid;
        while self.merge.valid() {
            if !self.merge.is_before_end() && !self.range.is_before_end(self.merge.key()) {
                return Ok(false);
            }
            let Some(deleted) = self.deleted_up_to(true)? else { continue };
            let sequence = self.merge.sequence();
            if sequence > self.at {
                self.merge.next()?;
                continue;
            }
            let (kind, expires_at) =
                if sequence > deleted { self.resolve()? } else { (self.merge.kind(), 0) };
            let is_gone = sequence < deleted || is_gone(kind, expires_at, &*self.clock);
            if !is_gone && kind == Kind::Merge {
                let key = self.merge.key().to_vec();
                if self.read_operands(&key)? {
                    self.state = State::OnOperand;
                    return Ok(true);
                }
            } else if !is_gone {
                self.state = State::OnMerge;
                return Ok(true);
            }
            let is_tombstone = is_gone && kind == Kind::Delete;
            self.skip_key()?;
            self.count_passed(is_tombstone);
        }
        Ok(false)
    }

    /// The sequence number up to which a range deletion hides the key under the merge; 0 if none
    /// does. `None` if the merge has moved past the rest of the deleted range instead.
    #[inline(always)]
    fn deleted_up_to(&mut self, is_forward: bool) -> Result<Option<u64>> {
        if self.skips.is_active() && !self.skips.is_ordered(self.merge.key(), is_forward) {
            return Err(self.merge.out_of_order());
        }
        let Some(deletes) = &mut self.deletes else { return Ok(Some(0)) };
        let key = self.merge.key();
        let span = deletes.span(key);
        if span.sequence == 0 || !self.merge.may_skip_run(span.sequence) {
            return Ok(Some(span.sequence));
        }
        if !self.skips.note(key, self.merge.runs()) {
            return Err(self.merge.out_of_order());
        }
        match is_forward {
            true => self.merge.skip_run_to(span.end.as_deref())?,
            false => self.merge.skip_run_back(&span.start)?,
        }
        Ok(None)
    }

    /// Counts the key that was just passed.
    fn count_passed(&mut self, is_tombstone: bool) {
        if is_tombstone && self.passed == 0 {
            self.passed_from.clear();
            self.passed_from.extend_from_slice(self.key.as_slice());
        }
        self.passed += u64::from(is_tombstone);
    }

    /// Makes the value of `key` of operands; `false` if there is none.
    fn read_operands(&mut self, key: &[u8]) -> Result<bool> {
        self.value.clear();
        self.expires_at = 0;
        if !self.wants_values {
            return Ok(true);
        }
        let nothing_set = MergeReader { operator: None, hints: false };
        let merges = self.merges.as_ref().unwrap_or(&nothing_set);
        let found = merges.read(&self.view, key, self.at, || self.clock.now())?;
        let Some((value, expires_at)) = found else { return Ok(false) };
        (self.value, self.expires_at) = (value, expires_at.unwrap_or(0));
        Ok(true)
    }

    /// Makes the value available if it is wanted. Returns kind and expiry.
    #[inline]
    fn resolve(&mut self) -> Result<(Kind, u64)> {
        if self.wants_values { self.merge.resolve() } else { self.merge.resolve_without_value() }
    }

    /// Moves past all versions of the key under the merge.
    #[inline(always)]
    fn skip_key(&mut self) -> Result<()> {
        self.key.set(self.merge.key());
        let head = self.merge.next()?;
        match self.merge.is_at(self.key.as_slice(), head) {
            false => Ok(()),
            true => self.skip_older_versions(),
        }
    }

    /// Moves past the other versions of the copied key.
    #[inline(never)]
    fn skip_older_versions(&mut self) -> Result<()> {
        for _ in 1..MAX_STEPS_BEFORE_SEEK {
            let head = self.merge.next()?;
            if !self.merge.is_at(self.key.as_slice(), head) {
                return Ok(());
            }
        }
        let key = self.key.as_slice();
        if !self.skips.note(key, self.merge.runs()) {
            return Err(self.merge.out_of_order());
        }
        // Sequence 0 comes after all versions of a key.
        self.merge.seek(key, 0)?;
        while self.merge.valid() && self.merge.key() == key {
            self.merge.next()?;
        }
        Ok(())
    }

    /// Moves backwards to the last visible entry in range.
    fn find_backward(&mut self) -> Result<bool> {
        self.state = State::Invalid;
        while self.merge.valid() {
            if !self.range.is_after_start(self.merge.key()) {
                return Ok(false);
            }
            let Some(deleted) = self.deleted_up_to(false)? else { continue };
            self.key.set(self.merge.key());
            let mut newest = None;
            while self.merge.valid() && self.merge.key() == self.key.as_slice() {
                if (deleted..=self.at).contains(&self.merge.sequence()) {
                    newest = Some(self.resolve()?);
                    self.value.clear();
                    if self.wants_values {
                        self.value.extend_from_slice(self.merge.value());
                    }
                }
                self.merge.prev()?;
            }
            self.count_passed(newest.is_some_and(|(kind, _)| kind == Kind::Delete));
            if let Some((kind, expires_at)) = newest
                && !is_gone(kind, expires_at, &*self.clock)
            {
                let is_there = if kind == Kind::Merge {
                    let key = self.key.as_slice().to_vec();
                    self.read_operands(&key)?
                } else {
                    self.expires_at = if kind == Kind::PutExpiring { expires_at } else { 0 };
                    true
                };
                if is_there {
                    self.state = State::Copied;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Runs a positioning move.
    fn position(&mut self, step: impl FnOnce(&mut Self) -> Result<bool>) -> Result<bool> {
        self.skips.reset();
        self.passed = 0;
        let result = step(self);
        self.end_move(true, result)
    }

    /// Runs a move that is no positioning move; after an error the cursor is invalid.
    #[inline]
    fn move_with(&mut self, step: impl FnOnce(&mut Self) -> Result<bool>) -> Result<bool> {
        self.passed = 0;
        let result = step(self);
        if self.passed < MIN_PASSED && !self.merge.has_l0_seeks() && result.is_ok() {
            return result;
        }
        self.end_move(false, result)
    }

    /// Charges for a move with this result.
    #[inline(never)]
    fn end_move(&mut self, is_positioning: bool, result: Result<bool>) -> Result<bool> {
        let seeks = self.merge.take_l0_seeks();
        if let Some(tree) = self.tree.upgrade() {
            if self.passed >= MIN_PASSED {
                tree.counters.tombstones_passed.fetch_add(self.passed, Relaxed);
                let ends = [&self.passed_from, self.key.as_slice()];
                tree.charge_walk(&self.view, self.passed, ends);
            }
            let mut filtered = 0;
            if is_positioning {
                tree.counters.seeks.increment();
                filtered = self.view.version.level0.len() as u64;
            }
            if seeks + filtered > 0 {
                tree.charge_seeks(&self.view, seeks, filtered);
            }
        }
        if result.is_err() {
            self.state = State::Invalid;
        }
        result
    }
}

/// Whether a version is a delete or has expired. Reads the clock only if it may expire.
pub(super) fn is_gone(kind: Kind, expires_at: u64, clock: &dyn Clock) -> bool {
    kind == Kind::Delete || (kind == Kind::PutExpiring && expires_at <= clock.now())
}

impl Cursor for TreeCursor {
    fn skip_values(&mut self) {
        self.wants_values = false;
    }

    fn first(&mut self) -> Result<bool> {
        self.position(|c| {
            match &c.range.start {
                Bound::Unbounded => c.merge.first()?,
                Bound::Included(key) => c.merge.seek(key, u64::MAX)?,
                Bound::Excluded(key) => {
                    let key = key.clone();
                    c.merge.seek(&key, u64::MAX)?;
                    while c.merge.valid() && c.merge.key() == key {
                        c.skip_key()?;
                    }
                }
            }
            c.find_forward()
        })
    }

    fn last(&mut self) -> Result<bool> {
        self.position(|c| {
            match c.range.end.clone() {
                Bound::Unbounded => c.merge.last()?,
                Bound::Included(key) => c.merge.seek_back(&key, 0)?,
                Bound::Excluded(key) => {
                    c.merge.seek_back(&key, 0)?;
                    while c.merge.valid() && c.merge.key() == key {
                        c.merge.prev()?;
                    }
                }
            }
            c.find_backward()
        })
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if !self.range.is_after_start(key) {
            return self.first();
        }
        self.position(|c| {
            c.merge.seek(key, c.at)?;
            c.find_forward()
        })
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        if !self.range.is_before_end(key) {
            return self.last();
        }
        self.position(|c| {
            c.merge.seek_back(key, 0)?;
            c.find_backward()
        })
    }

    fn next(&mut self) -> Result<bool> {
        self.move_with(|c| {
            match c.state {
                State::Invalid => return Err(not_positioned()),
                State::OnMerge | State::OnOperand => c.skip_key()?,
                State::Copied => {
                    c.skips.reset();
                    let key = std::mem::take(&mut c.key);
                    c.merge.seek(key.as_slice(), u64::MAX)?;
                    c.key = key;
                    if c.merge.valid() && c.merge.key() == c.key.as_slice() {
                        c.skip_key()?;
                    }
                }
            }
            c.find_forward()
        })
    }

    fn prev(&mut self) -> Result<bool> {
        self.move_with(|c| {
            match c.state {
                State::Invalid => return Err(not_positioned()),
                State::OnMerge | State::OnOperand => {
                    c.skips.reset();
                    let key = c.merge.key().to_vec();
                    // The newest version of the key comes first: seek to the one before it.
                    c.merge.seek_back(&key, u64::MAX)?;
                    while c.merge.valid() && c.merge.key() == key {
                        c.merge.prev()?;
                    }
                }
                State::Copied => {}
            }
            c.find_backward()
        })
    }

    fn valid(&self) -> bool {
        self.state != State::Invalid
    }

    fn key(&self) -> &[u8] {
        match self.state {
            State::OnMerge | State::OnOperand => self.merge.key(),
            State::Copied => self.key.as_slice(),
            State::Invalid => panic!("the cursor is not positioned"),
        }
    }

    fn value(&self) -> &[u8] {
        match self.state {
            State::OnMerge => self.merge.value(),
            State::OnOperand | State::Copied => &self.value,
            State::Invalid => panic!("the cursor is not positioned"),
        }
    }

    fn expires_at(&self) -> Option<Timestamp> {
        let at = match self.state {
            State::OnMerge if self.merge.kind() == Kind::PutExpiring => self.merge.expires_at(),
            State::OnOperand | State::Copied => self.expires_at,
            _ => 0,
        };
        (at > 0).then_some(at)
    }
}

fn not_positioned() -> siltstone_engine::Error {
    siltstone_engine::Error::Invalid("a cursor was moved before it was placed".to_owned())
}
