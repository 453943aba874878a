//! The write set of a transaction, before it is applied.
//!
//! Reads of the transaction search it first; at commit it becomes one batch. So a rolled-back
//! transaction leaves nothing, and the batch holds each key once.
//!
//! ```text
//!   deleted ranges     ├───────────┤        ├────┤     before the keys, disjoint
//!   keys            a'      d'         f✗
//!   engine          a   b   d   e      f   g   h  i
//!   merged          a'      d'             g      i
//! ```
//!
//! Operands for keys whose value the overlay does not have are apart from `keys`: they are merged
//! into what is stored.
//!
//! Invariants: what is written to a key after the deletion of a range is in `keys`; what was
//! written before it is not. A key with operands is neither in `keys` nor in a deleted range.

use std::collections::BTreeMap;
use std::ops::Bound;

use siltstone_engine::{
    BatchOp, Entry, KeyRange, MergeOperator, Op, Result, WriteBatch, merge_operator,
};

/// The write set for one table: an entry or a removal per key.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    keys: BTreeMap<Vec<u8>, Option<Entry>>,
    /// Ranges that were deleted before `keys` were written: the end by the start; `None`: no end.
    /// They are not empty, disjoint, and none begins where another one ends.
    deleted: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The operands of each key, the oldest first; there is at least one.
    operands: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    bytes: usize,
    /// All keys of the table were removed before `keys` were written.
    is_cleared: bool,
}

/// A deleted range: its start and, unless it has none, its end, which is not in it.
pub type DeletedRange<'a> = (&'a [u8], Option<&'a [u8]>);

/// What was written to a key.
#[derive(Clone, Copy)]
pub(super) enum Written<'a> {
    /// An entry, or a removal.
    Value(Option<&'a Entry>),
    /// Operands for what is stored.
    Operands(&'a [Vec<u8>]),
}

impl Overlay {
    /// What the transaction wrote to `key`, or `None` if it did not write it, or has operands for
    /// it.
    pub fn get(&self, key: &[u8]) -> Option<Option<&Entry>> {
        let written = self.keys.get(key).map(Option::as_ref);
        written.or_else(|| self.deletes(key).then_some(None))
    }

    /// Whether `key` was deleted with a range or with all keys.
    fn deletes(&self, key: &[u8]) -> bool {
        self.is_cleared || self.deleted_range_of(key).is_some()
    }

    /// The operands for what is stored under `key`, the oldest first.
    pub(super) fn operands(&self, key: &[u8]) -> &[Vec<u8>] {
        self.operands.get(key).map_or(&[], Vec::as_slice)
    }

    /// Number of written keys.
    pub fn len(&self) -> usize {
        self.keys.len() + self.operands.len()
    }

    /// Whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.deleted.is_empty() && !self.is_cleared
    }

    /// Removes all keys of the table. [`to_batch`](Self::to_batch) then has only later writes:
    /// whoever applies it must remove the other keys in the same step.
    pub fn clear(&mut self) {
        *self = Overlay { is_cleared: true, ..Overlay::default() };
    }

    /// Whether all keys of the table were removed.
    pub fn is_cleared(&self) -> bool {
        self.is_cleared
    }

    /// Bytes of keys, values and bounds of ranges, for limits on a transaction's memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds one write.
    pub fn push(&mut self, op: Op<'_>) {
        let entry = match op {
            Op::Put { value, expires_at, .. } => Some(Entry { value: value.to_vec(), expires_at }),
            Op::Delete { .. } => None,
        };
        let value_bytes = |entry: &Option<Entry>| entry.as_ref().map_or(0, |e| e.value.len());
        self.forget_operands(op.key());
        self.bytes += op.key().len() + value_bytes(&entry);
        if let Some(replaced) = self.keys.insert(op.key().to_vec(), entry) {
            self.bytes -= op.key().len() + value_bytes(&replaced);
        }
    }

    /// Adds an operand for what is stored under a key whose value the overlay does not have: see
    /// [`get`](Self::get).
    pub(super) fn merge(&mut self, key: &[u8], operand: &[u8]) {
        debug_assert!(self.get(key).is_none(), "the value is known");
        self.bytes += operand.len();
        match self.operands.get_mut(key) {
            Some(operands) => operands.push(operand.to_vec()),
            None => {
                self.bytes += key.len();
                self.operands.insert(key.to_vec(), vec![operand.to_vec()]);
            }
        }
    }

    fn forget_operands(&mut self, key: &[u8]) {
        if let Some(operands) = self.operands.remove(key) {
            self.bytes -= key.len() + operands.iter().map(Vec::len).sum::<usize>();
        }
    }

    /// Deletes the keys from `start` to before `end` (`None`: to the last key), and what was
    /// written to them before. Cost: a search per key written in the range.
    pub fn delete_range(&mut self, start: &[u8], end: Option<&[u8]>) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        self.forget_keys(start, end);
        if self.is_cleared {
            return;
        }
        let (mut start, mut end) = (start.to_vec(), end.map(<[u8]>::to_vec));
        // Ranges that overlap it or adjoin become one with it.
        let last = end.as_ref().map_or(Bound::Unbounded, |end| Bound::Included(end.clone()));
        while let Some((other, other_end)) =
            self.deleted.range((Bound::Unbounded, last.clone())).next_back()
            && other_end.as_ref().is_none_or(|other_end| *other_end >= start)
        {
            let (other, other_end) = (other.clone(), other_end.clone());
            self.deleted.remove(&other);
            self.bytes -= other.len() + other_end.as_ref().map_or(0, Vec::len);
            start = start.min(other);
            end = end.zip(other_end).map(|(end, other_end)| end.max(other_end));
        }
        self.bytes += start.len() + end.as_ref().map_or(0, Vec::len);
        self.deleted.insert(start, end);
    }

    /// Drops what was written to the keys of a range, which is not inverted.
    fn forget_keys(&mut self, start: &[u8], end: Option<&[u8]>) {
        let bounds = (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded));
        let written: Vec<_> =
            self.keys.range::<[u8], _>(bounds).map(|(key, _)| key.clone()).collect();
        for key in written {
            let entry = self.keys.remove(&key).flatten();
            self.bytes -= key.len() + entry.map_or(0, |entry| entry.value.len());
        }
        let merged: Vec<_> =
            self.operands.range::<[u8], _>(bounds).map(|(key, _)| key.clone()).collect();
        merged.iter().for_each(|key| self.forget_operands(key));
    }

    /// Adds the writes of a batch, besides merges.
    pub fn apply(&mut self, batch: &WriteBatch) {
        for op in batch.iter_all() {
            match op {
                BatchOp::Point(op) => self.push(op),
                BatchOp::DeleteRange { start, end } => self.delete_range(start, end),
                BatchOp::Merge { .. } => {}
            }
        }
    }

    /// The deleted ranges, in order.
    pub fn deleted_ranges(&self) -> impl Iterator<Item = DeletedRange<'_>> {
        self.deleted.iter().map(|(start, end)| (start.as_slice(), end.as_deref()))
    }

    /// The deleted range that has `key`. What is in `keys` was written to it later.
    pub(super) fn deleted_range_of(&self, key: &[u8]) -> Option<DeletedRange<'_>> {
        if self.deleted.is_empty() {
            return None;
        }
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (start, end) = self.deleted.range::<[u8], _>(up_to).next_back()?;
        let contains = end.as_ref().is_none_or(|end| key < end.as_slice());
        contains.then_some((start.as_slice(), end.as_deref()))
    }

    /// The parts of a range whose keys were not deleted with a range or with all keys, in order:
    /// what is stored there shows, unless the key was written.
    pub fn undeleted(&self, range: &KeyRange) -> Vec<KeyRange> {
        match (self.is_cleared, self.deleted.is_empty()) {
            (true, _) => return Vec::new(),
            (false, true) => return vec![range.clone()],
            (false, false) => {}
        }
        let (mut parts, mut start) = (Vec::new(), Some(range.start.clone()));
        let overlapping = self.deleted_ranges().filter(|(deleted, end)| {
            range.is_before_end(deleted) && end.is_none_or(|end| range.is_after_start(end))
        });
        for (deleted, end) in overlapping {
            let before = start.take().filter(|_| range.is_after_start(deleted));
            let end_before = Bound::Excluded(deleted.to_vec());
            parts.extend(before.map(|start| KeyRange { start, end: end_before }));
            start = end.map(|end| Bound::Included(end.to_vec()));
        }
        parts.extend(start.map(|start| KeyRange { start, end: range.end.clone() }));
        // Nothing is left where the range itself ends.
        parts.retain(|part| part.check().is_ok());
        parts
    }

    /// The written keys at or after `from` besides those with operands, in order.
    pub fn from<'a>(
        &'a self,
        from: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a Entry>)> + use<'a> {
        self.keys.range(from.to_vec()..).map(|(key, entry)| (key.as_slice(), entry.as_ref()))
    }

    /// The written keys of a range besides those with operands, in order, from both ends.
    pub fn range<'a>(
        &'a self,
        range: &KeyRange,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a Entry>)> + use<'a> {
        use Bound::Excluded;
        // A map panics at such a range.
        let is_empty = range.check().is_err()
            || matches!((&range.start, &range.end), (Excluded(a), Excluded(b)) if a == b);
        let bounds = match is_empty {
            false => (range.start.clone(), range.end.clone()),
            true => (Bound::Included(Vec::new()), Excluded(Vec::new())),
        };
        self.keys.range(bounds).map(|(key, entry)| (key.as_slice(), entry.as_ref()))
    }

    /// The first written key from `start` on.
    pub(super) fn first_from(&self, start: Bound<&[u8]>) -> Option<(&[u8], Written<'_>)> {
        let bounds = (start, Bound::Unbounded);
        let value = self.keys.range::<[u8], _>(bounds).next().map(of_value);
        let merged = self.operands.range::<[u8], _>(bounds).next().map(of_operands);
        value.into_iter().chain(merged).min_by_key(|(key, _)| *key)
    }

    /// The last written key up to `end`.
    pub(super) fn last_to(&self, end: Bound<&[u8]>) -> Option<(&[u8], Written<'_>)> {
        let bounds = (Bound::Unbounded, end);
        let value = self.keys.range::<[u8], _>(bounds).next_back().map(of_value);
        let merged = self.operands.range::<[u8], _>(bounds).next_back().map(of_operands);
        value.into_iter().chain(merged).max_by_key(|(key, _)| *key)
    }

    /// All writes as one batch, without the removal of all keys.
    pub fn to_batch(&self) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (start, end) in self.deleted_ranges() {
            batch.push_any(BatchOp::DeleteRange { start, end });
        }
        for (key, entry) in &self.keys {
            match entry {
                Some(entry) => batch.put_entry(key, entry),
                None => batch.delete(key),
            };
        }
        for (key, operands) in &self.operands {
            operands.iter().for_each(|operand| _ = batch.merge(key, operand));
        }
        batch
    }
}

fn of_value<'a>((key, entry): (&'a Vec<u8>, &'a Option<Entry>)) -> (&'a [u8], Written<'a>) {
    (key, Written::Value(entry.as_ref()))
}

fn of_operands<'a>((key, of): (&'a Vec<u8>, &'a Vec<Vec<u8>>)) -> (&'a [u8], Written<'a>) {
    (key, Written::Operands(of))
}

/// The value of `key` after operands, the oldest first, by the table's operator.
pub(super) fn merged(
    operator: Option<&dyn MergeOperator>,
    key: &[u8],
    value: Option<&[u8]>,
    operands: &[impl AsRef<[u8]>],
) -> Result<Vec<u8>> {
    let operator = operator.ok_or_else(merge_operator::no_operator)?;
    let operands: Vec<_> = operands.iter().map(AsRef::as_ref).collect();
    let merged = operator.full_merge(key, value, &operands);
    merged.map_err(|reason| merge_operator::failure(key, &reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random writes and deletions of ranges, compared with a table to which they are applied.
    #[test]
    fn overlay_with_deleted_ranges_shows_what_its_batch_leaves() {
        let mut random = 11u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let name = |number: u64| vec![b'a' + number as u8];
        for round in 0..500 {
            let stored: BTreeMap<_, _> =
                (0..12).filter(|number| number % 3 > 0).map(|n| (name(n), vec![0])).collect();
            let (mut expected, mut overlay) = (stored.clone(), Overlay::default());
            for step in 1..=1 + draw(9) as u8 {
                let (key, end) = (name(draw(12)), (draw(6) > 0).then(|| name(draw(14))));
                match draw(4) {
                    0 => {
                        overlay.push(Op::Delete { key: &key });
                        expected.remove(&key);
                    }
                    1 => {
                        overlay.push(Op::Put { key: &key, value: &[step], expires_at: None });
                        expected.insert(key, vec![step]);
                    }
                    _ => {
                        overlay.delete_range(&key, end.as_deref());
                        let is_kept = |it: &[u8]| {
                            it < &key[..] || end.as_deref().is_some_and(|end| it >= end)
                        };
                        expected.retain(|it, _| is_kept(it));
                    }
                }
                if round % 50 == 0 && draw(4) == 0 {
                    overlay.clear();
                    expected.clear();
                }
            }
            let ranges: Vec<_> = overlay.deleted_ranges().collect();
            let is_before =
                |a: &DeletedRange<'_>, b: &DeletedRange<'_>| a.1.is_some_and(|end| end < b.0);
            assert!(ranges.is_sorted_by(is_before), "{ranges:?}");
            // A batch applied in order leaves the same as the overlay shows.
            let mut again = Overlay::default();
            again.apply(&overlay.to_batch());
            for key in (0..14).map(name) {
                let stored = stored.get(&key).map(Vec::as_slice);
                let shown = |overlay: &Overlay| match overlay.get(&key) {
                    Some(written) => written.map(|entry| entry.value.clone()),
                    None => stored.map(<[u8]>::to_vec),
                };
                assert_eq!(shown(&overlay), expected.get(&key).cloned(), "{key:?} of {overlay:?}");
                if !overlay.is_cleared() {
                    assert_eq!(shown(&again), shown(&overlay));
                }
            }
            for (start, end) in [(0, 14), (draw(12), draw(14))] {
                let range = KeyRange::new(name(start)..name(end));
                let parts = overlay.undeleted(&range);
                let found: Vec<_> = (0..14)
                    .map(name)
                    .flat_map(|key| {
                        parts
                            .iter()
                            .filter(|part| part.contains(&key))
                            .map(|_| key.clone())
                            .collect::<Vec<_>>()
                    })
                    .collect();
                let undeleted = |key: &Vec<u8>| range.contains(key) && !overlay.deletes(key);
                assert_eq!(found, (0..14).map(name).filter(undeleted).collect::<Vec<_>>());
            }
            let bytes: usize = overlay
                .keys
                .iter()
                .map(|(key, entry)| key.len() + entry.as_ref().map_or(0, |e| e.value.len()))
                .sum();
            let bounds: usize =
                ranges.iter().map(|(start, end)| start.len() + end.map_or(0, <[u8]>::len)).sum();
            assert_eq!(overlay.bytes(), bytes + bounds);
        }
    }

    #[test]
    fn clear_hides_every_key_except_later_writes() {
        let mut overlay = Overlay::default();
        overlay.push(Op::Put { key: b"a", value: b"1", expires_at: None });
        overlay.clear();
        assert!(overlay.is_cleared() && !overlay.is_empty());
        assert_eq!(overlay.bytes(), 0);
        assert_eq!(overlay.get(b"a"), Some(None));
        assert_eq!(overlay.get(b"never written"), Some(None));
        overlay.push(Op::Put { key: b"b", value: b"2", expires_at: None });
        assert_eq!(overlay.get(b"b").flatten().map(|entry| &entry.value[..]), Some(&b"2"[..]));
        assert_eq!(overlay.to_batch().len(), 1);
    }
}
