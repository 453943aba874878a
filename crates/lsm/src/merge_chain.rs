//! The operands of one key between its newest version and the value below them.
//!
//! Versions are added from the newest to the oldest. A flush or a compaction may have merged
//! several operands into one, which then covers a range of sequence numbers, from `first` to
//! `sequence`; so does a value that was made of operands: it covers everything up to its own
//! sequence number.
//!
//! ```text
//!   log, saved by a repair             5  4
//!   run of level 0                  [1 … 5]
//!   the operands of the key         [1 … 5]
//! ```
//!
//! A repair may save a log whose operands are in tables already. (Recovery leaves such operands
//! out: see `read::replayed`.)
//!
//! Invariant: the operands are disjoint, the newest first. Of two that cover the same sequence
//! number the wider one has the effect of the other, because ranges are nested or disjoint.

use siltstone_engine::{MAX_VALUE_BYTES, MergeOperator};

/// An operand, or several that were merged into one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operand {
    /// The oldest sequence number that it covers.
    first: u64,
    /// The newest one, which is its own.
    pub(crate) sequence: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Operand {
    /// The number of older sequence numbers that it covers, as tables store it.
    pub(crate) fn covered(&self) -> u64 {
        self.sequence - self.first
    }
}

/// Operands of one key, the newest first.
#[derive(Debug, Default)]
pub(crate) struct MergeChain {
    operands: Vec<Operand>,
}

impl MergeChain {
    pub(crate) fn is_empty(&self) -> bool {
        self.operands.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.operands.len()
    }

    pub(crate) fn clear(&mut self) {
        self.operands.clear();
    }

    /// The operands, the newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Operand> {
        self.operands.iter()
    }

    /// Adds the next older operand, which covers `covered` older sequence numbers than its own.
    pub(crate) fn push(&mut self, sequence: u64, covered: u64, bytes: &[u8]) {
        let first = sequence.saturating_sub(covered);
        let is_in_it = |last: &mut Operand| last.sequence <= sequence && last.first >= first;
        while self.operands.pop_if(is_in_it).is_some() {}
        // Otherwise an operand covers it already.
        if self.operands.last().is_none_or(|last| sequence < last.first) {
            self.operands.push(Operand { first, sequence, bytes: bytes.to_vec() });
        }
    }

    /// Removes the operands that are in the value below them, whose sequence number is `sequence`.
    pub(crate) fn remove_up_to(&mut self, sequence: u64) {
        while self.operands.pop_if(|last| last.sequence <= sequence).is_some() {}
    }

    /// The value after all operands.
    ///
    /// # Errors
    /// Why the operands do not apply to `value`.
    pub(crate) fn full_merge(
        &self,
        operator: &dyn MergeOperator,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        let merged = operator.full_merge(key, value, &self.oldest_first())?;
        match merged.len() {
            0..=MAX_VALUE_BYTES => Ok(merged),
            len => Err(format!("the value would have {len} bytes, more than {MAX_VALUE_BYTES}")),
        }
    }

    /// Merges the operands into one if the operator can.
    pub(crate) fn partial_merge(&mut self, operator: &dyn MergeOperator, key: &[u8]) {
        let [newest, .., oldest] = &self.operands[..] else { return };
        let (sequence, first) = (newest.sequence, oldest.first);
        let merged = operator.partial_merge(key, &self.oldest_first());
        if let Some(bytes) = merged.filter(|bytes| bytes.len() <= MAX_VALUE_BYTES) {
            self.operands.clear();
            self.operands.push(Operand { first, sequence, bytes });
        }
    }

    fn oldest_first(&self) -> Vec<&[u8]> {
        self.operands.iter().rev().map(|operand| operand.bytes.as_slice()).collect()
    }
}

#[cfg(test)]
mod tests {
    use siltstone_engine::MergeAppend;

    use super::*;

    fn value(chain: &MergeChain) -> String {
        let merged = chain.full_merge(&MergeAppend::new(b""), b"k", Some(b"=")).unwrap();
        String::from_utf8(merged).unwrap()
    }

    #[test]
    fn operands_apply_from_the_oldest_to_the_newest() {
        let mut chain = MergeChain::default();
        chain.push(9, 0, b"c");
        chain.push(7, 0, b"b");
        chain.push(3, 0, b"a");
        assert_eq!(value(&chain), "=abc");
        chain.partial_merge(&MergeAppend::new(b""), b"k");
        let merged: Vec<_> = chain.iter().map(|it| (it.sequence, it.covered())).collect();
        assert_eq!((value(&chain), merged), ("=abc".to_owned(), vec![(9, 6)]));
    }

    #[test]
    fn operand_that_was_merged_into_another_applies_once() {
        // Saved from the log, and then the same merged in a table; and the other way round.
        let mut chain = MergeChain::default();
        chain.push(8, 0, b"d");
        chain.push(5, 0, b"c");
        chain.push(4, 0, b"b");
        chain.push(5, 4, b"abc");
        chain.push(4, 0, b"b");
        chain.push(1, 0, b"a");
        assert_eq!(value(&chain), "=abcd");
        chain.remove_up_to(5);
        assert_eq!((value(&chain), chain.len()), ("=d".to_owned(), 1));
        chain.push(8, 0, b"d");
        assert_eq!(value(&chain), "=d");
    }
}
