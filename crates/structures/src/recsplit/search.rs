//! The search for seeds: numbers for all nodes of a tree, with backtracking.
//!
//! ```text
//!  node 0   0 1 2 ✓            preorder: the parts of a set are split after it
//!  node 1         0 1 ✓
//!  node 2             0 1 ✗    no number of this width splits the set: back to node 1, at 2
//!  node 1         2 3 ✓
//!  node 2             0 ✓      the same number makes another seed than before
//! ```
//!
//! A successful number leaves an expected 2^slack successes at the next node, so that the numbers
//! tried form a slightly supercritical branching process: with small slack, most branches die out
//! after a few steps, but a share of about the slack survives indefinitely.
//!
//! Invariant: the keys of a node are those that its ancestors' seeds send there, at consecutive
//! places, in any order among themselves.
//!
//! Source: Lehmann et al., ESA 2025, section 3, for the search; see [`super`].

use super::shape::{End, Shape};
use crate::bits::BitWriter;

/// Bits of a seed.
const SEED_BITS: u32 = 57;
/// Maximum number of bits of a number; if a root has more, the first of them are zeros.
const MAX_WIDTH: u32 = 32;
/// The golden ratio as a fraction of 2^64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bits as a seed.
#[inline]
pub(super) fn seed(bits: u64) -> Seed {
    let product = (bits & ((1 << SEED_BITS) - 1)).wrapping_mul(STEP);
    Seed((product ^ (product >> 32)) | 1)
}

/// A hash function of keys: the high half of their product with an odd number. It is linear, so
/// keys must be random themselves: an arithmetic progression would remain one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed(u64);

impl Seed {
    /// The place of a key among n.
    #[inline]
    pub(super) fn place(self, key: u64, n: u32) -> u32 {
        (((key.wrapping_mul(self.0) >> 32) * u64::from(n)) >> 32) as u32
    }
}

/// A node with a choice.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The place of its first key.
    first: u32,
    /// Number of keys.
    n: u32,
    /// Number of keys that go left; 0 for a leaf.
    left: u32,
    /// Bits of its number.
    width: u32,
    /// The next number to try.
    next: u64,
    /// The bits before its number.
    before: u64,
}

/// A search, whose memory is reused for the next bucket.
#[derive(Debug, Default)]
pub(super) struct Search {
    nodes: Vec<Node>,
    /// Zeros before the root's number.
    zeros: u64,
    keys: Vec<u64>,
    /// For every key its index in hash order.
    places: Vec<u32>,
    /// Sorted keys, to check that all are distinct.
    sorted: Vec<u64>,
}

impl Search {
    /// Finds the numbers for a bucket that occupies the given bits, after the bits `before`;
    /// returns whether there are any.
    ///
    /// Takes about 0.6 microseconds per key by default.
    pub(super) fn run(
        &mut self,
        shape: &Shape,
        keys: impl Iterator<Item = u64>,
        bits: std::ops::Range<u64>,
        before: u64,
    ) -> bool {
        self.keys.clear();
        self.keys.extend(keys);
        let n = self.keys.len() as u32;
        self.places.clear();
        self.places.extend(0..n);
        self.nodes.clear();
        // A bucket of one key has no choice, only bits.
        self.zeros = bits.end - bits.start;
        if n > 1 {
            let root = shape.root(n, bits.end);
            self.zeros = (root.bit() - bits.start).saturating_sub(MAX_WIDTH.into());
            self.plan(shape, 0, n, bits.start + self.zeros, root);
        }
        self.are_distinct() && self.solve(self.after_zeros(before))
    }

    /// Lists the nodes of n keys in preorder; the number of the first occupies the bits from
    /// `start` to `end`. Returns the bit after the last.
    fn plan(&mut self, shape: &Shape, first: u32, n: u32, start: u64, end: End) -> u64 {
        if n < 2 {
            return start;
        }
        let left = shape.size(n).left;
        let width = (end.bit() - start) as u32;
        self.nodes.push(Node { first, n, left, width, next: 0, before: 0 });
        if left == 0 {
            return end.bit();
        }
        let start = self.plan(shape, first, left, end.bit(), shape.left_end(end, left));
        self.plan(shape, first + left, n - left, start, shape.right_end(end, left, n - left))
    }

    fn are_distinct(&mut self) -> bool {
        self.sorted.clear();
        self.sorted.extend(&self.keys);
        self.sorted.sort_unstable();
        self.sorted.is_sorted_by(|one, other| one < other)
    }

    fn solve(&mut self, before: u64) -> bool {
        if let Some(root) = self.nodes.first_mut() {
            root.before = before;
        }
        let mut at = 0;
        while let Some(&node) = self.nodes.get(at) {
            let range = node.first as usize..(node.first + node.n) as usize;
            let (keys, places) = (&mut self.keys[range.clone()], &mut self.places[range]);
            match node.try_numbers(keys) {
                Some(number) => {
                    let chosen = node.bits(number);
                    if node.left > 0 {
                        partition(keys, places, node.threshold(), seed(chosen));
                    }
                    self.nodes[at].next = number + 1;
                    at += 1;
                    if let Some(next) = self.nodes.get_mut(at) {
                        (next.next, next.before) = (0, chosen);
                    }
                }
                None if at == 0 => return false,
                None => at -= 1,
            }
        }
        true
    }

    /// Appends the bits of the bucket; returns the bits before the next.
    pub(super) fn write(&self, before: u64, writer: &mut BitWriter) -> u64 {
        (0..self.zeros).for_each(|_| writer.write(0, 1));
        let mut before = self.after_zeros(before);
        for node in &self.nodes {
            writer.write(node.next - 1, node.width);
            before = node.bits(node.next - 1);
        }
        before
    }

    fn after_zeros(&self, before: u64) -> u64 {
        u32::try_from(self.zeros).ok().and_then(|zeros| before.checked_shl(zeros)).unwrap_or(0)
    }

    /// Appends, for every position of the bucket, its key as an index in hash order.
    pub(super) fn order(&self, order: &mut Vec<u32>) {
        let base = order.len();
        order.extend(&self.places);
        for node in self.nodes.iter().filter(|node| node.left == 0) {
            let seed = seed(node.bits(node.next - 1));
            for at in node.first as usize..(node.first + node.n) as usize {
                let place = node.first + seed.place(self.keys[at], node.n);
                order[base + place as usize] = self.places[at];
            }
        }
    }
}

impl Node {
    /// The bits up to the end of a number here.
    #[inline]
    fn bits(&self, number: u64) -> u64 {
        self.before << self.width | number
    }

    /// Products of keys that go left are below this: the least that `Seed::place` sends right.
    fn threshold(&self) -> u64 {
        (u64::from(self.left) << 32).div_ceil(u64::from(self.n)) << 32
    }

    /// The next number that has the desired effect on the keys.
    fn try_numbers(&self, keys: &[u64]) -> Option<u64> {
        let numbers = self.next..1 << self.width;
        if self.left > 0 {
            let threshold = self.threshold();
            let goes_left = |key: &&u64, seed: Seed| key.wrapping_mul(seed.0) < threshold;
            return numbers.into_iter().find(|&number| {
                let seed = seed(self.bits(number));
                keys.iter().filter(|key| goes_left(key, seed)).count() == self.left as usize
            });
        }
        let all = (1u32 << self.n) - 1;
        numbers.into_iter().find(|&number| {
            let seed = seed(self.bits(number));
            keys.iter().fold(0, |taken, &key| taken | 1 << seed.place(key, self.n)) == all
        })
    }
}

/// Moves the keys that go left before the others, with their indexes.
fn partition(keys: &mut [u64], places: &mut [u32], threshold: u64, seed: Seed) {
    let (mut left, mut right) = (0, keys.len());
    while left < right {
        if keys[left].wrapping_mul(seed.0) < threshold {
            left += 1;
        } else {
            right -= 1;
            keys.swap(left, right);
            places.swap(left, right);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::recsplit::RecSplitOptions;

    #[test]
    fn equal_keys_are_rejected_and_one_bit_suffices() {
        let shape = Shape::new(RecSplitOptions::default()).unwrap();
        let mut search = Search::default();
        assert!(!search.run(&shape, [7, 1, 7].into_iter(), 0..30, 0));
        for bit in 0..64 {
            assert!(search.run(&shape, [5, 5 ^ 1 << bit].into_iter(), 0..10, 1), "{bit}");
        }
    }

    #[test]
    fn search_without_slack_fails() {
        let shape = Shape::new(RecSplitOptions::default()).unwrap();
        // Five keys need 4.8 bits on average; here there is a single number to try.
        let keys = (1..=5u64).map(crate::hash::mix64);
        let found = (0..20).filter(|&at| {
            let mut search = Search::default();
            search.run(&shape, keys.clone(), 4 * at..4 * at + 1, at)
        });
        assert!(found.count() < 10);
    }
}
