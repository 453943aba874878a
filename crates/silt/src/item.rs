//! An entry as all stores keep it: the operation that wrote it, in the log form of a batch.
//!
//! The same bytes go from log to HashStore to SortedStore, so converting copies and never encodes. No
//! operation begins with two zeros (keys are not empty), so zeros after the last one end a list.
//!
//! Invariant: bytes of any content give an operation that lies within them, or nothing.
//!
//! Source: `siltstone_engine::batch` draws the form.

use siltstone_engine::batch::operations;
use siltstone_engine::{Entry, Op, Timestamp};

/// The operation at the start of `bytes`, and how many of them it takes.
pub(crate) fn first(bytes: &[u8]) -> Option<(Op<'_>, usize)> {
    let op = operations(bytes).next()?.ok()?;
    let last = match op {
        Op::Put { value, .. } => value,
        Op::Delete { key } => key,
    };
    // What the operation borrows last is also its end.
    let end = last.as_ptr().addr() + last.len() - bytes.as_ptr().addr();
    (!op.key().is_empty()).then_some((op, end))
}

/// The entries in `bytes` up to the zeros that fill them up: each one's operation and its bytes.
/// After bytes that are no entry comes `None`, once.
pub(crate) fn list(mut bytes: &[u8]) -> impl Iterator<Item = Option<(Op<'_>, &[u8])>> {
    std::iter::from_fn(move || {
        if bytes.iter().take(2).all(|&byte| byte == 0) {
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

/// An entry copied out of a store: its operation begins at `start`.
#[derive(Debug)]
pub(crate) struct Item {
    bytes: Vec<u8>,
    start: usize,
}

impl Item {
    /// The entry that begins at `start` of `bytes`, where an operation is known to stand.
    pub(crate) fn new(bytes: Vec<u8>, start: usize) -> Self {
        Item { bytes, start }
    }

    /// The bytes from its start on.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn op(&self) -> Option<Op<'_>> {
        first(&self.bytes[self.start..]).map(|(op, _)| op)
    }

    /// What a reader sees of it at `now`; `None` if it is deleted or expired.
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
    fn do_entries_come_back_from_a_list_with_zeros_behind() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"").delete(b"b").put_until(b"c", &[0; 9], 4).put(b"d", &[0; 300]);
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
    fn are_malformed_entries_told() {
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value");
        let bytes = batch.as_bytes();
        assert!(list(&bytes[..bytes.len() - 1]).any(|entry| entry.is_none()));
        assert!(list(&[9, 9, 9]).any(|entry| entry.is_none()));
        assert_eq!(first(&[0, 0]), None);
    }
}
