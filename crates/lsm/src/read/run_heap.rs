//! A binary heap of sorted runs, the one with the next version in the current direction on top.
//!
//! An item has the first bytes of the run's key as an integer, so that most comparisons touch no
//! run. Backwards the integers are inverted, so that the smaller one comes first in both
//! directions.

use super::Source;
use super::run_head::RunHead;

#[derive(Clone, Copy)]
struct Item {
    /// That of the key, inverted if the direction is backwards.
    key_head: u64,
    sequence: u64,
    run: usize,
}

/// The valid runs of a merge.
pub(super) struct RunHeap {
    items: Vec<Item>,
    /// What a key's head is combined with by XOR: all ones backwards.
    inversion: u64,
}

impl RunHeap {
    /// An empty heap for up to `runs` runs.
    pub(super) fn new(runs: usize) -> Self {
        RunHeap { items: Vec::with_capacity(runs), inversion: 0 }
    }

    /// Empties the heap, for a direction.
    pub(super) fn restart(&mut self, is_forward: bool) {
        self.items.clear();
        self.inversion = if is_forward { 0 } else { u64::MAX };
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The run on top; `None` if the heap is empty.
    pub(super) fn first(&self) -> Option<usize> {
        self.items.first().map(|item| item.run)
    }

    /// The run on top. Panics if the heap is empty.
    #[inline]
    pub(super) fn top(&self) -> usize {
        self.items[0].run
    }

    /// The first bytes of the key on top, in one form for all keys of a direction.
    #[inline]
    pub(super) fn top_key_head(&self) -> u64 {
        self.items[0].key_head
    }

    #[inline]
    pub(super) fn top_sequence(&self) -> u64 {
        self.items[0].sequence
    }

    /// Adds a run at the end; [`make`](Self::make) must follow.
    pub(super) fn push(&mut self, run: usize, head: RunHead) {
        self.items.push(self.item(run, head));
    }

    /// Restores the order of all items.
    pub(super) fn make(&mut self, runs: &[Source]) {
        for at in (0..self.items.len() / 2).rev() {
            self.sift_down(at, runs);
        }
    }

    /// Updates the top after its run was moved to `head`; `None`: the run is not valid any more.
    #[inline]
    pub(super) fn update_top(&mut self, head: Option<RunHead>, runs: &[Source]) {
        match head {
            Some(head) => self.items[0] = self.item(self.items[0].run, head),
            None => _ = self.items.swap_remove(0),
        }
        self.sift_down(0, runs);
    }

    #[inline]
    fn item(&self, run: usize, head: RunHead) -> Item {
        Item { key_head: head.key ^ self.inversion, sequence: head.sequence, run }
    }

    #[inline]
    fn sift_down(&mut self, mut at: usize, runs: &[Source]) {
        let is_forward = self.inversion == 0;
        let is_next = |a: &Item, b: &Item| match a.key_head == b.key_head {
            true if is_forward => is_first(a, b, runs),
            true => is_first(b, a, runs),
            false => a.key_head < b.key_head,
        };
        let items = self.items.as_mut_slice();
        let Some(&item) = items.get(at) else { return };
        let mut child = 2 * at + 1;
        while child < items.len() {
            let mut next = &items[child];
            if let Some(right) = items.get(child + 1)
                && is_next(right, next)
            {
                (next, child) = (right, child + 1);
            }
            if !is_next(next, &item) {
                break;
            }
            items[at] = *next;
            at = child;
            child = 2 * at + 1;
        }
        items[at] = item;
    }
}

/// Whether the version of `a` comes before that of `b` in run order.
#[inline(never)]
fn is_first(a: &Item, b: &Item, runs: &[Source]) -> bool {
    let order = runs[a.run].key().cmp(runs[b.run].key());
    order.then_with(|| b.sequence.cmp(&a.sequence)).is_lt()
}
