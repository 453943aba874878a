//! Merges sorted runs with a binary heap of runs, ordered by the current version of each.
//!
//! A step advances the top run and sifts it down (see `run_heap`): about log₂(runs) comparisons,
//! often one, because the same run tends to be next again. A change of direction seeks every run.
//!
//! Forward seeks are lazy:
//! - If the filter of a run excludes the target key, its seek is deferred. If another run has the
//!   key, the seek happens only when the merge advances, so most seeks to existing keys read one
//!   block. Otherwise the deepest run, which has most keys, seeks first, and then, upwards, only
//!   those whose range filter does not exclude the keys from the target to the smallest key found
//!   so far.
//! - If the L0 cursor has passed the target in a run, the run has no live key before that cursor,
//!   and its seek is deferred until the merge gets there.
//! - The first few steps work the same way, since they often pass a tombstone; then all runs seek.
//! - The iterator of an L0 run in files is created by its first seek.
//!
//! RowTables (L0 runs in persistent memory) seek together, newest to oldest, so that each narrows
//! the next by its hints (see `rowtable::hints`).

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::{BloomProbe, hash64};
use siltstone_table::{IterOptions, Kind};

use super::run_head::{HeadPrefix, RunHead};
use super::run_heap::RunHeap;
use super::seek_state::SeekState;
use super::source::{self, Source};
use crate::blob_ref::BlobRef;
use crate::live_range::LiveRange;
use crate::rowtable::{RowTableIter, hints};
use crate::view::View;

/// After this many steps all deferred seeks are done: checking filters at each step would cost
/// more.
const MAX_DEFERRED_STEPS: u32 = 4;

/// The merge of sorted runs.
pub(crate) struct Merge {
    runs: Vec<Source>,
    /// The view with the lazy runs.
    view: Option<Arc<View>>,
    /// The index of the first L0 run of the view.
    first_l0: usize,
    heap: RunHeap,
    direction: Direction,
    /// By run. The keys of deferred runs come after the top.
    seek_states: Vec<SeekState>,
    /// The number of deferred runs.
    deferred: usize,
    target: (Vec<u8>, u64),
    /// Steps since the last seek.
    steps: u32,
    /// See [`take_l0_seeks`](Merge::take_l0_seeks).
    l0_seeks: u64,
    /// Whether RowTables narrow each other's searches.
    hints: bool,
}

/// Seeks RowTables together, newest first.
type SeekAll<'a> = &'a dyn Fn(Vec<&mut RowTableIter>) -> Result<()>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Merge {
    /// A merge of `runs`; L0 runs come newest first. `hints`: RowTables narrow each other's
    /// searches.
    pub(crate) fn new(runs: Vec<Source>, hints: bool) -> Self {
        let heap = RunHeap::new(runs.len());
        let (seek_states, target) = (vec![SeekState::Done; runs.len()], (Vec::new(), 0));
        let direction = Direction::Forward;
        Merge {
            heap,
            runs,
            view: None,
            first_l0: 0,
            direction,
            seek_states,
            deferred: 0,
            target,
            steps: 0,
            l0_seeks: 0,
            hints,
        }
    }

    /// A merge of all runs of a view, as of sequence `at`.
    pub(crate) fn of_view(view: Arc<View>, at: u64, hints: bool) -> Self {
        let runs = source::runs(&view, at);
        let first_l0 = view.memtables().count();
        Merge { view: Some(view), first_l0, ..Self::new(runs, hints) }
    }

    /// A merge of all runs of a view in files.
    pub(super) fn of_files(view: Arc<View>, hints: bool) -> Self {
        let runs = source::file_runs(&view);
        Merge { view: Some(view), ..Self::new(runs, hints) }
    }

    /// Creates the iterator of run `i` if it is lazy.
    fn open_lazy(&mut self, i: usize) {
        if let (Source::Lazy(run), Some(view)) = (&self.runs[i], &self.view) {
            let run = &view.version.level0[*run];
            self.runs[i] = Source::of_l0_run(run, Purpose::Scan, IterOptions::SCAN);
        }
    }

    /// The live range of run `i`, if it is an L0 run in files.
    fn live(&self, i: usize) -> Option<&LiveRange> {
        match (&self.runs[i], &self.view) {
            (Source::Lazy(run), Some(view)) => Some(view.version.level0[*run].live()),
            (Source::L0Run(run), _) => Some(run.live()),
            _ => None,
        }
    }

    /// Whether run `i` may contain keys from the target to the current key of run `to`, inclusive.
    fn may_come_before(&self, i: usize, to: usize) -> bool {
        let (from, to) = (&self.target.0, self.runs[to].key());
        match (&self.runs[i], &self.view) {
            (Source::Lazy(run), Some(view)) => {
                view.version.level0[*run].may_contain_range(from, to)
            }
            (run, _) => run.may_contain_range(from, to),
        }
    }

    /// Whether [`take_l0_seeks`](Self::take_l0_seeks) would return any.
    #[inline]
    pub(super) fn has_l0_seeks(&self) -> bool {
        self.l0_seeks > 0
    }

    /// The number of seeks in L0 runs since the last call.
    pub(crate) fn take_l0_seeks(&mut self) -> u64 {
        std::mem::take(&mut self.l0_seeks)
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        self.undefer_all();
        self.seek_runs(Direction::Forward, Source::first, None)
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        self.undefer_all();
        self.seek_runs(Direction::Backward, Source::last, None)
    }

    pub(crate) fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        let probe = &mut BloomProbe::new(hash64(key));
        let (first_l0, mut first_level) = (self.first_l0, 0);
        self.seek_states[..first_l0].fill(SeekState::Done);
        if let Some(view) = &self.view {
            first_level = first_l0 + view.version.level0.len();
            let states = &mut self.seek_states[first_l0..first_level];
            SeekState::set_level0(states, &view.version, key, probe);
        }
        let others = self.runs.iter().zip(&mut self.seek_states).skip(first_level);
        for (run, state) in others {
            *state = SeekState::of(run, key, probe);
        }
        self.deferred = self.seek_states.iter().filter(|&&state| state != SeekState::Done).count();
        let all = |runs: Vec<&mut RowTableIter>| hints::seek_all(runs, key, sequence);
        self.seek_runs(Direction::Forward, |run| run.seek(key, sequence), Some(&all))?;
        self.target.0.clear();
        self.target.0.extend_from_slice(key);
        self.target.1 = sequence;
        self.steps = 0;
        let found = self.valid() && self.key() == key;
        if found || self.deferred == 0 {
            return Ok(());
        }
        self.seek_deferred()?;
        self.heap.choose_prefix(&self.runs);
        Ok(())
    }

    pub(crate) fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.undefer_all();
        let all = |runs: Vec<&mut RowTableIter>| hints::seek_back_all(runs, key, sequence);
        self.seek_runs(Direction::Backward, |run| run.seek_back(key, sequence), Some(&all))
    }

    /// Sets the end of the range that is read, for [`is_before_end`](Self::is_before_end).
    pub(super) fn set_end(&mut self, end: &[u8]) {
        self.heap.set_end(end);
    }

    /// Whether the current key is before the end of the range; `false` if that takes a comparison.
    /// The merge must be valid and move forwards.
    #[inline]
    pub(super) fn is_before_end(&self) -> bool {
        self.heap.is_before_end()
    }

    /// To the next version; the merge must be valid. Returns the head of the key that was current,
    /// for [`is_at`](Self::is_at).
    pub(crate) fn next(&mut self) -> Result<u64> {
        if self.direction == Direction::Backward {
            let (key, sequence) = (self.key().to_vec(), self.sequence());
            self.seek(&key, sequence)?;
        }
        self.begin_step()?;
        let head = self.heap.top_key_head();
        self.step(Source::next)?;
        Ok(head)
    }

    /// To the version before; the merge must be valid.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if self.direction == Direction::Forward {
            let (key, sequence) = (self.key().to_vec(), self.sequence());
            self.seek_back(&key, sequence)?;
        }
        self.begin_step()?;
        self.step(Source::prev)
    }

    /// Whether the table of the current version has no version newer than `newest`. The merge must
    /// be valid.
    pub(crate) fn may_skip_run(&self, newest: u64) -> bool {
        self.top().max_sequence() <= newest
    }

    /// The error for keys that are out of order in the run of the current version.
    pub(crate) fn out_of_order(&self) -> Error {
        Error::corruption(self.top().file_name(), 0, "its keys are out of order")
    }

    /// The number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Moves the run of the current version past the keys before `end` (`None`: past all), or past
    /// its table. The merge must be valid and move forwards. Cost: one seek.
    pub(crate) fn skip_run_to(&mut self, end: Option<&[u8]>) -> Result<()> {
        debug_assert!(self.direction == Direction::Forward);
        self.move_top(|run, prefix| run.skip_to(end, prefix))?;
        if self.deferred > 0 {
            self.seek_deferred()?;
        }
        Ok(())
    }

    /// As [`skip_run_to`](Self::skip_run_to), backwards, past the keys from `start` on.
    pub(crate) fn skip_run_back(&mut self, start: &[u8]) -> Result<()> {
        debug_assert!(self.direction == Direction::Backward);
        self.move_top(|run, prefix| run.skip_back(start, prefix))
    }

    /// Moves the run of the current version by `step`, which returns the head of its new version.
    #[inline]
    fn move_top(
        &mut self,
        step: impl FnOnce(&mut Source, &HeadPrefix) -> Result<Option<RunHead>>,
    ) -> Result<()> {
        match step(&mut self.runs[self.heap.top()], self.heap.prefix()) {
            Ok(head) => {
                self.heap.update_top(head, &self.runs);
                Ok(())
            }
            Err(error) => {
                self.heap.clear();
                Err(error)
            }
        }
    }

    pub(crate) fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.top().key()
    }

    /// Whether the merge is at a version of `key`, whose head [`next`](Self::next) returned last.
    #[inline]
    pub(super) fn is_at(&mut self, key: &[u8], head: u64) -> bool {
        self.heap.is_at(key, head, &self.runs)
    }

    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.heap.top_sequence()
    }

    /// Returns the kind and the expiry of the current version. To be called before `kind`,
    /// `expires_at` or `value`.
    #[inline]
    pub(crate) fn resolve(&mut self) -> Result<(Kind, u64)> {
        self.runs[self.heap.top()].resolve()
    }

    /// The reference to the value of the current version; `None` if it has none.
    pub(crate) fn reference(&self) -> Result<Option<BlobRef>> {
        self.top().reference()
    }

    /// As [`resolve`](Self::resolve) for callers without use for the value, which may be empty
    /// then.
    pub(crate) fn resolve_without_value(&mut self) -> Result<(Kind, u64)> {
        self.runs[self.heap.top()].resolve_without_value()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.top().kind()
    }

    pub(crate) fn expires_at(&self) -> u64 {
        self.top().expires_at()
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.top().value()
    }

    #[inline]
    fn top(&self) -> &Source {
        &self.runs[self.heap.top()]
    }

    /// Seeks all runs that are not deferred.
    fn seek_runs(
        &mut self,
        direction: Direction,
        mut seek: impl FnMut(&mut Source) -> Result<()>,
        seek_row_tables: Option<SeekAll<'_>>,
    ) -> Result<()> {
        self.heap.restart(direction == Direction::Forward);
        self.direction = direction;
        let together = seek_row_tables.filter(|_| self.hints);
        let mut has_row_tables = false;
        for i in 0..self.runs.len() {
            if self.seek_states[i] != SeekState::Done {
                continue;
            }
            self.open_lazy(i);
            self.count_l0_seek(i);
            if together.is_some() && matches!(self.runs[i], Source::RowTable(_)) {
                has_row_tables = true;
            } else if let Err(error) = seek(&mut self.runs[i]) {
                self.heap.clear();
                return Err(error);
            } else {
                self.push_valid(i);
            }
        }
        if let Some(seek_row_tables) = together.filter(|_| has_row_tables) {
            self.seek_together(seek_row_tables)?;
        }
        self.heap.make(&self.runs);
        self.heap.choose_prefix(&self.runs);
        Ok(())
    }

    /// Seeks the RowTables, of which none is deferred.
    fn seek_together(&mut self, seek_row_tables: SeekAll<'_>) -> Result<()> {
        let row_tables = self.runs.iter_mut().filter_map(|run| match run {
            Source::RowTable(run) => Some(&mut **run),
            _ => None,
        });
        if let Err(error) = seek_row_tables(row_tables.collect()) {
            self.heap.clear();
            return Err(error);
        }
        let is_row_table = |&i: &usize| matches!(self.runs[i], Source::RowTable(_));
        let row_tables: Vec<usize> = (0..self.runs.len()).filter(is_row_table).collect();
        row_tables.into_iter().for_each(|i| self.push_valid(i));
        Ok(())
    }

    /// Adds run `i` to the end of the heap if it is valid.
    fn push_valid(&mut self, i: usize) {
        if let Some(head) = self.runs[i].head(self.heap.prefix()) {
            self.heap.push(i, head);
        }
    }

    /// Seeks the deferred runs that may contain the next version.
    fn seek_deferred(&mut self) -> Result<()> {
        self.seek_deferred_if(|merge, i, least| {
            let is_filtered = merge.seek_states[i] == SeekState::DeferredByFilter;
            is_filtered && least.is_none_or(|least| merge.may_come_before(i, least))
        })?;
        self.seek_deferred_if(|merge, i, least| {
            let from = merge.live(i).and_then(|live| live.after(&merge.target.0));
            let is_dead = merge.seek_states[i] == SeekState::DeferredByLiveRange;
            is_dead
                && from
                    .is_some_and(|from| least.is_none_or(|least| from <= merge.runs[least].key()))
        })
    }

    /// Seeks the deferred runs for which `is_needed` is true, the deepest first. Its last argument
    /// is the run with the smallest version so far.
    fn seek_deferred_if(
        &mut self,
        is_needed: impl Fn(&Self, usize, Option<usize>) -> bool,
    ) -> Result<()> {
        if self.deferred == 0 {
            return Ok(());
        }
        let mut least = self.heap.first();
        for i in (0..self.runs.len()).rev() {
            if self.seek_states[i] == SeekState::Done || !is_needed(self, i, least) {
                continue;
            }
            self.open_lazy(i);
            self.count_l0_seek(i);
            let run = &mut self.runs[i];
            if let Err(error) = run.seek(&self.target.0, self.target.1) {
                self.heap.clear();
                return Err(error);
            }
            self.seek_states[i] = SeekState::Done;
            self.deferred -= 1;
            if let Some(head) = self.runs[i].head(self.heap.prefix()) {
                self.heap.push(i, head);
                if least.is_none_or(|least| self.runs[i].is_before(&self.runs[least])) {
                    least = Some(i);
                }
            }
        }
        self.heap.make(&self.runs);
        Ok(())
    }

    fn count_l0_seek(&mut self, i: usize) {
        let is_l0_run = matches!(self.runs[i], Source::L0Run(_) | Source::RowTable(_));
        self.l0_seeks += u64::from(is_l0_run);
    }

    fn undefer_all(&mut self) {
        self.deferred = 0;
        self.seek_states.fill(SeekState::Done);
    }

    /// Executes the deferred seeks that are due, and chooses the prefix of the heads again if that
    /// is due. A step leaves the prefix as it is.
    #[inline(always)]
    fn begin_step(&mut self) -> Result<()> {
        if self.deferred > 0 && self.steps == MAX_DEFERRED_STEPS {
            self.seek_all_deferred()?;
        }
        self.steps += 1;
        self.heap.choose_prefix_if_due(&self.runs);
        Ok(())
    }

    #[inline(never)]
    fn seek_all_deferred(&mut self) -> Result<()> {
        self.seek_deferred_if(|_, _, _| true)?;
        self.heap.choose_prefix(&self.runs);
        Ok(())
    }

    /// As [`move_top`](Self::move_top), with the deferred seeks that are due by then.
    #[inline]
    fn step(
        &mut self,
        step: impl FnOnce(&mut Source, &HeadPrefix) -> Result<Option<RunHead>>,
    ) -> Result<()> {
        self.move_top(step)?;
        if self.deferred > 0 { self.seek_deferred() } else { Ok(()) }
    }
}
