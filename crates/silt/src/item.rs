//! An entry as all stores keep it: the operation that wrote it, in the log form of a batch
//! (`siltstone_engine::batch`).
//!
//! The same bytes go from log to HashStore to SortedStore, so conversion and merge copy and never
//! encode. No operation begins with two zeros, so zeros end a list of operations.
//!
//! Invariant: arbitrary bytes parse to an operation within them, or to nothing.

use siltstone_engine::batch::operations;
use siltstone_engine::{Entry, Op, Timestamp};

/// The operation at the start of `bytes`, and its length in bytes.
pub(crate) fn first(bytes: &[u8]) -> Option<(Op<'_>, usize)> {
    if is_end(bytes) {
        return None;
    }
    let op = operations(bytes).next()?.ok()?;
    let last = match op {
        Op::Put { value, .. } => value,
        Op::Delete { key } => key,
    };
    // The last slice that the operation borrows ends where the operation ends.
    let end = last.as_ptr().addr() + last.len() - bytes.as_ptr().addr();
    Some((op, end))
}

/// Whether a list of operations ends here: at its last byte, or at zeros.
pub(crate) fn is_end(bytes: &[u8]) -> bool {
    bytes.iter().take(2).all(|&byte| byte == 0)
}

/// Iterates over the entries in `bytes` up to the zero padding: each operation and its bytes.
/// Malformed bytes yield one `None` and end the iteration.
pub(crate) fn list(mut bytes: &[u8]) -> impl Iterator<Item = Option<(Op<'_>, &[u8])>> {
    std::iter::from_fn(move || {
        if is_end(bytes) {
            return None;
        }
        let Some((op, len)) = first(bytes) else {
            bytes = &[];
            return Some(None);
        };
        let (entry, rest) = bytes.split_at(len);
        bytes = rest;
        Some(Some((op, entry)))
    })
}

/// An entry copied out of a store; its operation begins at `start`.
#[derive(Debug)]
pub(crate) struct Item {
    bytes: Vec<u8>,
    start: usize,
}

impl Item {
    /// An item whose operation begins at `start` of `bytes`.
    pub(crate) fn new(bytes: Vec<u8>, start: usize) -> Self {
        Item { bytes, start }
    }

    /// The bytes from the operation on.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn op(&self) -> Option<Op<'_>> {
        first(&self.bytes[self.start..]).map(|(op, _)| op)
    }

    /// The value that a reader sees at `now`; `None` if it is deleted or expired.
    pub(crate) fn visible(&self, now: Timestamp) -> Option<Entry> {
        match self.op()? {
            Op::Delete { .. } => None,
            Op::Put { value, expires_at, .. } => {
                let is_live = expires_at.is_none_or(|at| at > now);
                is_live.then(|| Entry { value: value.to_vec(), expires_at })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::WriteBatch;

    #[test]
    fn entries_before_zero_padding_round_trip() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"").delete(b"b").put_until(b"c", &[0; 9], 4).put(b"d", &[0; 300]);
        batch.delete(b"").put(b"", b"").put_until(b"", b"", 0).delete(b"");
        for zeros in [0, 1, 2, 100] {
            let mut bytes = batch.as_bytes().to_vec();
            bytes.resize(bytes.len() + zeros, 0);
            let found: Vec<_> = list(&bytes).map(|entry| entry.unwrap()).collect();
            assert_eq!(
                found.iter().map(|entry| entry.0).collect::<Vec<_>>(),
                batch.iter().collect::<Vec<_>>()
            );
            assert_eq!(found.concat_entries(), batch.as_bytes());
        }
    }

    trait Concat {
        fn concat_entries(&self) -> Vec<u8>;
    }

    impl Concat for Vec<(Op<'_>, &[u8])> {
        fn concat_entries(&self) -> Vec<u8> {
            self.iter().flat_map(|entry| entry.1.to_vec()).collect()
        }
    }

    #[test]
    fn malformed_entries_are_rejected() {
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value");
        let bytes = batch.as_bytes();
        assert!(list(&bytes[..bytes.len() - 1]).any(|entry| entry.is_none()));
        assert!(list(&[9, 9, 9]).any(|entry| entry.is_none()));
        assert_eq!(first(&[0, 0]), None);
    }
}
