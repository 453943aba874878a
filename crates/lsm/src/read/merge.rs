//! Several sorted runs as one: a binary heap of runs by the version each stands on.
//!
//! The heap holds the indexes of valid runs, the next one in the direction of travel on top. A step
//! moves the top run and sifts it down: about log₂(runs) comparisons, often one, because the run
//! that was next tends to be next again. Turning round places every run anew.
//!
//! A run whose filter says that it does not hold the key that is sought stands behind that key, wherever
//! exactly. If another run holds the key, the first is placed no sooner than the merge moves on: most seeks
//! to a key that is there read one block. If none does, the deepest run is placed, which has most keys, and then,
//! upwards, those alone whose filter for ranges does not say that they have nothing up to the least key found so far. So
//! does a row whose keys there the cursor over level 0 has passed: it has nothing before where that cursor stands, and
//! is placed no sooner than the merge comes so far. The first few steps go on in the same way, since they often pass
//! over a deletion; then all runs are placed. And a row in files is not even begun before it is placed.
//!
//! Rows in persistent memory are placed together, newest to oldest, so that each narrows the next by
//! its hints (see `rowtable::hints`).

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_structures::hash64;
use siltstone_table::{IterOptions, Kind};

use super::{Source, View};
use crate::live_range::LiveRange;
use crate::rowtable::{RowIter, hints};

/// After so many steps from what was sought every run is placed: to ask filters at each would cost more.
const STEPS_OF_LATE: u32 = 4;

/// The merge of sorted runs.
pub(crate) struct Merge {
    runs: Vec<Source>,
    /// What has the rows that wait.
    view: Option<Arc<View>>,
    heap: Vec<usize>,
    direction: Direction,
    /// By run. What those that are late hold comes after the top.
    turns: Vec<Turn>,
    /// How many are yet to be placed at what was sought.
    late: usize,
    sought: (Vec<u8>, u64),
    /// Since then.
    steps: u32,
    /// Rows placed that nobody has asked for yet: see [`take_looks`](Merge::take_looks).
    looks: u64,
    /// Whether rows in persistent memory narrow each other.
    hints: bool,
}

/// Places rows in persistent memory, newest first.
type PlaceAll<'a> = Box<dyn FnOnce(Vec<&mut RowIter>) -> Result<()> + 'a>;

/// When a run is placed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Now,
    /// If no run has the key that is sought: its filter says that it has not.
    Filtered,
    /// If nothing comes before its live keys: it has none there.
    Passed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Merge {
    /// A merge of `runs`; rows come newest first. `hints`: those in persistent memory narrow each
    /// other's searches.
    pub(crate) fn new(runs: Vec<Source>, hints: bool) -> Self {
        let heap = Vec::with_capacity(runs.len());
        let (turns, sought) = (vec![Turn::Now; runs.len()], (Vec::new(), 0));
        let direction = Direction::Forward;
        Merge {
            heap,
            runs,
            view: None,
            direction,
            turns,
            late: 0,
            sought,
            steps: 0,
            looks: 0,
            hints,
        }
    }

    /// The same of all runs of a view, as of sequence `at`.
    pub(crate) fn of_view(view: Arc<View>, at: u64, hints: bool) -> Self {
        let runs = view.runs(at);
        Merge { view: Some(view), ..Self::new(runs, hints) }
    }

    /// Begins run `i` if it waits.
    fn begin(&mut self, i: usize) {
        if let (Source::Waiting(row), Some(view)) = (&self.runs[i], &self.view) {
            let row = &view.version.level0[*row];
            self.runs[i] = Source::of_row(row, Purpose::Scan, IterOptions::SCAN);
        }
    }

    /// What is live of run `i`, if it is a row in files.
    fn live(&self, i: usize) -> Option<&LiveRange> {
        match (&self.runs[i], &self.view) {
            (Source::Waiting(row), Some(view)) => Some(view.version.level0[*row].live()),
            (Source::Row(row), _) => Some(row.live()),
            _ => None,
        }
    }

    /// Whether run `i` may have versions of `key`.
    fn may_hold(&self, i: usize, key: &[u8], hash: u64) -> bool {
        match (&self.runs[i], &self.view) {
            (Source::Waiting(row), Some(view)) => view.version.level0[*row].may_hold(hash),
            (run, _) => run.may_hold(key, hash),
        }
    }

    /// Whether run `i` may have versions of keys from what is sought to that of run `to`, both counted.
    fn may_come_before(&self, i: usize, to: usize) -> bool {
        let (from, to) = (&self.sought.0, self.runs[to].key());
        match (&self.runs[i], &self.view) {
            (Source::Waiting(row), Some(view)) => {
                view.version.level0[*row].may_hold_between(from, to)
            }
            (run, _) => run.may_hold_between(from, to),
        }
    }

    /// How many rows were placed since the last call: each is a look into level 0.
    pub(crate) fn take_looks(&mut self) -> u64 {
        std::mem::take(&mut self.looks)
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        self.all_now();
        self.place(Direction::Forward, Source::first, None)
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        self.all_now();
        self.place(Direction::Backward, Source::last, None)
    }

    pub(crate) fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        let hash = hash64(key);
        let live_rows = self.view.as_ref().map_or((0, false), |view| view.version.live_rows(key));
        for i in 0..self.runs.len() {
            let is_passed = match self.runs[i] {
                Source::Waiting(row) if live_rows.1 => row >= live_rows.0,
                _ => self.live(i).is_some_and(|live| !live.contains(key)),
            };
            self.turns[i] = if is_passed {
                Turn::Passed
            } else if !self.may_hold(i, key, hash) {
                Turn::Filtered
            } else {
                Turn::Now
            };
        }
        self.late = self.turns.iter().filter(|&&turn| turn != Turn::Now).count();
        let all: PlaceAll<'_> = Box::new(|rows| hints::seek_all(rows, key, sequence));
        self.place(Direction::Forward, |run| run.seek(key, sequence), Some(all))?;
        self.sought.0.clear();
        self.sought.0.extend_from_slice(key);
        self.sought.1 = sequence;
        self.steps = 0;
        if self.valid() && self.key() == key { Ok(()) } else { self.place_next() }
    }

    pub(crate) fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.all_now();
        let all: PlaceAll<'_> = Box::new(|rows| hints::seek_back_all(rows, key, sequence));
        self.place(Direction::Backward, |run| run.seek_back(key, sequence), Some(all))
    }

    /// To the next version; the merge must be valid.
    pub(crate) fn next(&mut self) -> Result<()> {
        if self.direction == Direction::Backward {
            let (key, sequence) = (self.key().to_vec(), self.sequence());
            self.seek(&key, sequence)?;
        }
        self.step(Source::next)
    }

    /// To the version before; the merge must be valid.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if self.direction == Direction::Forward {
            let (key, sequence) = (self.key().to_vec(), self.sequence());
            self.seek_back(&key, sequence)?;
        }
        self.step(Source::prev)
    }

    pub(crate) fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.top().key()
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.top().sequence()
    }

    /// To be called before kind, expiry or value of the version are asked for.
    pub(crate) fn resolve(&mut self) -> Result<()> {
        let top = self.heap[0];
        self.runs[top].resolve()
    }

    /// To be called instead by who does not want the value, which may read as empty then.
    pub(crate) fn resolve_without_value(&mut self) -> Result<()> {
        let top = self.heap[0];
        self.runs[top].resolve_without_value()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.top().kind()
    }

    pub(crate) fn expires_at(&self) -> u64 {
        self.top().expires_at()
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.top().value()
    }

    fn top(&self) -> &Source {
        &self.runs[self.heap[0]]
    }

    /// Places all runs but the late ones.
    fn place(
        &mut self,
        direction: Direction,
        mut place: impl FnMut(&mut Source) -> Result<()>,
        place_rows: Option<PlaceAll<'_>>,
    ) -> Result<()> {
        self.heap.clear();
        self.direction = direction;
        let place_rows = place_rows.filter(|_| self.hints);
        for i in 0..self.runs.len() {
            if self.turns[i] == Turn::Now {
                self.begin(i);
                self.count_look(i);
            }
        }
        let mut rows = Vec::new();
        for (run, _) in
            self.runs.iter_mut().zip(&self.turns).filter(|(_, turn)| **turn == Turn::Now)
        {
            match (run, &place_rows) {
                (Source::RowTable(row), Some(_)) => rows.push(&mut **row),
                (run, _) => place(run)?,
            }
        }
        if let Some(place_rows) = place_rows {
            place_rows(rows)?;
        }
        let placed = (0..self.runs.len()).filter(|&i| self.turns[i] == Turn::Now);
        self.heap.extend(placed.filter(|&i| self.runs[i].valid()));
        self.make_heap();
        Ok(())
    }

    /// Places those of the late runs that may hold the next version.
    fn place_next(&mut self) -> Result<()> {
        self.place_late(|merge, i, least| {
            let is_filtered = merge.turns[i] == Turn::Filtered;
            is_filtered && least.is_none_or(|least| merge.may_come_before(i, least))
        })?;
        self.place_late(|merge, i, least| {
            let from = merge.live(i).and_then(|live| live.after(&merge.sought.0));
            let is_passed = merge.turns[i] == Turn::Passed;
            is_passed
                && from
                    .is_some_and(|from| least.is_none_or(|least| from <= merge.runs[least].key()))
        })
    }

    /// Places what is late and wanted, the deepest run first; who asks is told which of those placed so far comes
    /// next.
    fn place_late(
        &mut self,
        is_wanted: impl Fn(&Self, usize, Option<usize>) -> bool,
    ) -> Result<()> {
        if self.late == 0 {
            return Ok(());
        }
        let mut least = self.heap.first().copied();
        for i in (0..self.runs.len()).rev() {
            if self.turns[i] == Turn::Now || !is_wanted(self, i, least) {
                continue;
            }
            self.begin(i);
            self.count_look(i);
            let run = &mut self.runs[i];
            if let Err(error) = run.seek(&self.sought.0, self.sought.1) {
                self.heap.clear();
                return Err(error);
            }
            self.turns[i] = Turn::Now;
            self.late -= 1;
            if self.runs[i].valid() {
                self.heap.push(i);
                if least.is_none_or(|least| self.runs[i].is_before(&self.runs[least])) {
                    least = Some(i);
                }
            }
        }
        self.make_heap();
        Ok(())
    }

    fn count_look(&mut self, i: usize) {
        let is_row = matches!(self.runs[i], Source::Row(_) | Source::RowTable(_));
        self.looks += u64::from(is_row);
    }

    fn all_now(&mut self) {
        self.late = 0;
        self.turns.fill(Turn::Now);
    }

    fn make_heap(&mut self) {
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    fn step(&mut self, step: fn(&mut Source) -> Result<()>) -> Result<()> {
        if self.steps == STEPS_OF_LATE {
            self.place_late(|_, _, _| true)?;
        }
        self.steps += 1;
        let top = self.heap[0];
        if let Err(error) = step(&mut self.runs[top]) {
            self.heap.clear();
            return Err(error);
        }
        if !self.runs[top].valid() {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        if self.late > 0 { self.place_next() } else { Ok(()) }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let child =
                if right < self.heap.len() && self.is_next(right, left) { right } else { left };
            if !self.is_next(child, at) {
                return;
            }
            self.heap.swap(child, at);
            at = child;
        }
    }

    /// Whether heap slot `a` comes before slot `b` in the direction of travel.
    fn is_next(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.runs[self.heap[a]], &self.runs[self.heap[b]]);
        match self.direction {
            Direction::Forward => a.is_before(b),
            Direction::Backward => b.is_before(a),
        }
    }
}
