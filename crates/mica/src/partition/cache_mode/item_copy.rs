//! A copy of an item while it is moved: its new place may overlap its old one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::item::{self, Item};

/// The words of an item: on the stack unless it is large.
pub(super) struct ItemCopy {
    inline: [u64; ItemCopy::INLINE_WORDS],
    heap: Vec<u64>,
}

impl ItemCopy {
    const INLINE_WORDS: usize = 32;

    /// Copies an item for reinsertion, with a new access mark.
    pub(super) fn of(item: &Item<'_>, mark: u64) -> Self {
        let mut copy = ItemCopy { inline: [0; ItemCopy::INLINE_WORDS], heap: Vec::new() };
        let words = item.words();
        if words.len() > ItemCopy::INLINE_WORDS {
            copy.heap.resize(words.len(), 0);
        }
        let to = if words.len() > ItemCopy::INLINE_WORDS {
            &mut copy.heap[..]
        } else {
            &mut copy.inline
        };
        for (to, word) in to.iter_mut().zip(words) {
            *to = word.load(Relaxed);
        }
        to[0] = item::with_mark(to[0], mark);
        copy
    }

    /// Writes the copy to its new place.
    pub(super) fn write(&self, place: &[AtomicU64]) {
        let from = if self.heap.is_empty() { &self.inline[..] } else { &self.heap };
        for (word, &value) in place.iter().zip(from) {
            word.store(value, Relaxed);
        }
    }
}
