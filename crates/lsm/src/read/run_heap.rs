//! A binary heap of sorted runs, the one with the next version in the current direction on top.
//!
//! An item has the [head](super::run_head) of the run's key, so that most comparisons touch no run.
//! Backwards the heads are inverted, so that the smaller one comes first in both directions. The
//! heap counts the comparisons of different keys that heads did not decide. After some of them it
//! chooses the prefix of the heads again: by the key on top, and by the key that was on top at the
//! last choice. Other current keys do not count, because some may be far away.

use siltstone_structures::KeyBuffer;

use super::Source;
use super::run_head::{HeadPrefix, RunHead};

/// The heap chooses the prefix again after this many undecided comparisons, and after twice as many
/// each time that this did not change its length.
const MAX_UNDECIDED: u32 = 16;

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
    prefix: HeadPrefix,
    /// The key that was on top when the prefix was chosen.
    chosen_at: KeyBuffer,
    undecided: u32,
    max_undecided: u32,
    /// The end of the range that is read, and its head: the greatest one if there is no end.
    end: Option<Vec<u8>>,
    end_head: u64,
}

impl RunHeap {
    /// An empty heap for up to `runs` runs.
    pub(super) fn new(runs: usize) -> Self {
        RunHeap {
            items: Vec::with_capacity(runs),
            inversion: 0,
            prefix: HeadPrefix::default(),
            chosen_at: KeyBuffer::default(),
            undecided: 0,
            max_undecided: MAX_UNDECIDED,
            end: None,
            end_head: u64::MAX,
        }
    }

    /// Sets the end of the range that is read, for [`is_before_end`](Self::is_before_end).
    pub(super) fn set_end(&mut self, end: &[u8]) {
        self.end_head = self.prefix.head(end);
        self.end = Some(end.to_vec());
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

    /// The head of the key on top, in one form for all keys until the next choice of the prefix.
    #[inline]
    pub(super) fn top_key_head(&self) -> u64 {
        self.items[0].key_head
    }

    #[inline]
    pub(super) fn top_sequence(&self) -> u64 {
        self.items[0].sequence
    }

    /// Whether the key on top is before the end of the range, forwards; `false` if its head does
    /// not decide it.
    #[inline]
    pub(super) fn is_before_end(&self) -> bool {
        self.items[0].key_head < self.end_head
    }

    /// The prefix of the heads that moved runs are compared by.
    #[inline]
    pub(super) fn prefix(&self) -> &HeadPrefix {
        &self.prefix
    }

    /// Adds a run at the end; [`make`](Self::make) must follow.
    pub(super) fn push(&mut self, run: usize, head: RunHead) {
        let key_head = head.key ^ self.inversion;
        self.items.push(Item { key_head, sequence: head.sequence, run });
    }

    /// Restores the order of all items.
    pub(super) fn make(&mut self, runs: &[Source]) {
        for at in (0..self.items.len() / 2).rev() {
            self.sift_down(at, runs);
        }
    }

    /// Chooses the prefix of the heads by the two least keys. The items stay in order, because
    /// heads never contradict the order of keys. Cost: a comparison per run.
    pub(super) fn choose_prefix(&mut self, runs: &[Source]) {
        self.max_undecided = MAX_UNDECIDED;
        let second = self.items.iter().skip(1).take(2).min_by_key(|item| item.key_head);
        self.set_prefix(second.map(|item| runs[item.run].key()), runs);
    }

    /// Chooses the prefix of the heads again if they left too many comparisons undecided.
    #[inline]
    pub(super) fn choose_prefix_if_due(&mut self, runs: &[Source]) {
        if self.undecided >= self.max_undecided {
            self.choose_prefix_now(runs);
        }
    }

    #[inline(never)]
    fn choose_prefix_now(&mut self, runs: &[Source]) {
        let len = self.prefix.len();
        let chosen_at = std::mem::take(&mut self.chosen_at);
        self.set_prefix(Some(chosen_at.as_slice()), runs);
        self.max_undecided = match self.prefix.len() == len {
            true => self.max_undecided.saturating_mul(2),
            false => MAX_UNDECIDED,
        };
    }

    /// Chooses the prefix by the key on top and `other`, and sets all heads.
    fn set_prefix(&mut self, other: Option<&[u8]>, runs: &[Source]) {
        let Some(top) = self.items.first() else { return };
        let key = runs[top.run].key();
        self.prefix.choose(key, other.unwrap_or_default());
        self.chosen_at.set(key);
        self.undecided = 0;
        for item in &mut self.items {
            item.key_head = self.prefix.head(runs[item.run].key()) ^ self.inversion;
        }
        if let Some(end) = &self.end {
            self.end_head = self.prefix.head(end);
        }
    }

    /// Whether the key on top is `key`, which had this head when it was on top itself.
    #[inline]
    pub(super) fn is_at(&mut self, key: &[u8], head: u64, runs: &[Source]) -> bool {
        let Some(top) = self.items.first() else { return false };
        if top.key_head != head {
            return false;
        }
        let is_at = runs[top.run].key() == key;
        self.undecided += u32::from(!is_at);
        is_at
    }

    /// Updates the top after its run was moved to `head`; `None`: the run is not valid any more.
    #[inline]
    pub(super) fn update_top(&mut self, head: Option<RunHead>, runs: &[Source]) {
        match head {
            Some(head) => {
                let top = &mut self.items[0];
                (top.key_head, top.sequence) = (head.key ^ self.inversion, head.sequence);
            }
            None => _ = self.items.swap_remove(0),
        }
        self.sift_down(0, runs);
    }

    #[inline(always)]
    fn sift_down(&mut self, mut at: usize, runs: &[Source]) {
        let (is_forward, undecided) = (self.inversion == 0, &mut self.undecided);
        let mut is_next = |a: &Item, b: &Item| {
            if a.key_head != b.key_head {
                return a.key_head < b.key_head;
            }
            let (a, b) = if is_forward { (a, b) } else { (b, a) };
            is_first(a, b, runs, undecided)
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

/// Whether the version of `a` comes before that of `b` in run order. Counts it as undecided by the
/// heads if the keys differ.
#[inline(never)]
fn is_first(a: &Item, b: &Item, runs: &[Source], undecided: &mut u32) -> bool {
    let order = runs[a.run].key().cmp(runs[b.run].key());
    *undecided += u32::from(order.is_ne());
    order.then_with(|| b.sequence.cmp(&a.sequence)).is_lt()
}
