//! The expected results: every version of every key, in a map.
//!
//! Each batch has a *sequence number*, from 1. The state at a sequence number is, for each key, the
//! last version at or before it. Versions are never dropped (except by [`Oracle::rewind`]), so the
//! oracle serves any snapshot, and the state after any number of batches, which is how recovery is
//! checked to be a prefix.
//!
//! Expiry is uncertain when clocks go back, because an engine may drop expired entries for good:
//!
//! ```text
//!   expires at ≤ now                        must read as missing
//!   now < expires at ≤ latest time seen     may read as missing or as this entry
//!   latest time seen < expires at           must be there
//! ```
//!
//! Invariant: an older version never reappears.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{
    BatchOp, Entry, KeyRange, MergeAppend, MergeOperator, Op, Timestamp, WriteBatch,
};

/// Between two operands of a value.
const MERGE_SEPARATOR: &[u8] = b",";

/// A model of one table.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
    sequence: u64,
}

#[derive(Debug, Clone)]
struct Version {
    sequence: u64,
    /// `None` for a deletion.
    entry: Option<Entry>,
    /// The latest time of the clock since the write.
    latest: Timestamp,
}

/// An entry that a read is expected to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedEntry<'o> {
    /// The key.
    pub key: &'o [u8],
    /// Its entry.
    pub entry: &'o Entry,
    /// Whether it must be there; otherwise it may be missing.
    pub certain: bool,
}

impl Oracle {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of batches so far.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Applies a batch at time `now`, under the next sequence number, unless it is empty.
    pub fn apply(&mut self, batch: &WriteBatch, now: Timestamp) {
        if batch.is_empty() {
            return;
        }
        self.sequence += 1;
        for op in batch.iter_all() {
            let op = match op {
                BatchOp::Point(op) => op,
                BatchOp::DeleteRange { start, end } => {
                    self.delete_range(start, end, now);
                    continue;
                }
                BatchOp::Merge { key, operand } => {
                    self.merge(key, operand, now);
                    continue;
                }
            };
            let entry = match op {
                Op::Delete { .. } => None,
                Op::Put { value, expires_at, .. } => {
                    Some(Entry { value: value.to_vec(), expires_at })
                }
            };
            let versions = self.keys.entry(op.key().to_vec()).or_default();
            push(versions, Version { sequence: self.sequence, entry, latest: now });
        }
    }

    /// Merges as [`operator`](Self::operator) does. Tables with merges have no expiring entries.
    fn merge(&mut self, key: &[u8], operand: &[u8], now: Timestamp) {
        let versions = self.keys.entry(key.to_vec()).or_default();
        let before = versions.last().and_then(|version| version.entry.as_ref());
        let parts = before.map(|entry| entry.value.as_slice()).into_iter().chain([operand]);
        let value = parts.collect::<Vec<_>>().join(MERGE_SEPARATOR);
        let entry = Some(Entry { value, expires_at: None });
        push(versions, Version { sequence: self.sequence, entry, latest: now });
    }

    /// The merge operator of the model, whose operands do not commute.
    pub fn operator() -> Arc<dyn MergeOperator> {
        Arc::new(MergeAppend::new(MERGE_SEPARATOR))
    }

    fn delete_range(&mut self, start: &[u8], end: Option<&[u8]>, now: Timestamp) {
        let in_range = |key: &[u8]| start <= key && end.is_none_or(|end| key < end);
        for (_, versions) in self.keys.iter_mut().filter(|(key, _)| in_range(key)) {
            push(versions, Version { sequence: self.sequence, entry: None, latest: now });
        }
    }

    /// Removes every key that is readable at `now`, as one batch. Expired entries stay as uncertain
    /// as they are.
    pub fn clear(&mut self, now: Timestamp) {
        let mut batch = WriteBatch::new();
        for expected in self.range(&KeyRange::all(), self.sequence, now) {
            batch.delete(expected.key);
        }
        self.apply(&batch, now);
    }

    /// Sets the clock to `now`.
    pub fn pass_time(&mut self, now: Timestamp) {
        for version in self.keys.values_mut().flatten() {
            version.latest = version.latest.max(now);
        }
    }

    /// Removes all batches after `sequence`: a crash has lost them.
    pub fn rewind(&mut self, sequence: u64) {
        self.sequence = self.sequence.min(sequence);
        for versions in self.keys.values_mut() {
            while versions.pop_if(|version| version.sequence > sequence).is_some() {}
        }
        self.keys.retain(|_, versions| !versions.is_empty());
    }

    /// The expected result of a get of `key` as of `sequence` at time `now`.
    pub fn get(&self, key: &[u8], sequence: u64, now: Timestamp) -> Option<ExpectedEntry<'_>> {
        let (key, versions) = self.keys.get_key_value(key)?;
        expect(key, versions, sequence, now)
    }

    /// The expected result of a scan of `range` as of `sequence` at time `now`, in key order.
    pub fn range(&self, range: &KeyRange, sequence: u64, now: Timestamp) -> Vec<ExpectedEntry<'_>> {
        let keys = self.keys.iter().filter(|(key, _)| range.contains(key));
        keys.filter_map(|(key, versions)| expect(key, versions, sequence, now)).collect()
    }

    /// The last of the sequence numbers `from..` whose state at time `now` is exactly `entries`.
    pub fn find_sequence(
        &self,
        entries: &BTreeMap<Vec<u8>, Entry>,
        from: u64,
        now: Timestamp,
    ) -> Option<u64> {
        let all = KeyRange::all();
        let fits = |&sequence: &u64| compare(&self.range(&all, sequence, now), entries).is_ok();
        (from..=self.sequence).rev().find(fits)
    }
}

/// Adds a version: within a batch the last operation on a key wins.
fn push(versions: &mut Vec<Version>, version: Version) {
    versions.pop_if(|last| last.sequence == version.sequence);
    versions.push(version);
}

fn expect<'o>(
    key: &'o [u8],
    versions: &'o [Version],
    sequence: u64,
    now: Timestamp,
) -> Option<ExpectedEntry<'o>> {
    let after = versions.partition_point(|version| version.sequence <= sequence);
    let version = &versions[after.checked_sub(1)?];
    let entry = version.entry.as_ref().filter(|entry| !entry.is_expired(now))?;
    Some(ExpectedEntry { key, entry, certain: !entry.is_expired(version.latest) })
}

/// Compares entries with the expected ones; the error describes the first difference.
pub fn compare(
    expected: &[ExpectedEntry<'_>],
    found: &BTreeMap<Vec<u8>, Entry>,
) -> Result<(), String> {
    let mut known = 0;
    for expected in expected {
        match found.get(expected.key) {
            None if !expected.certain => {}
            Some(entry) if entry == expected.entry => known += 1,
            other => {
                return Err(format!(
                    "key {} should be {} and is {}",
                    show(expected.key),
                    show_entry(Some(expected.entry)),
                    show_entry(other)
                ));
            }
        }
    }
    if known == found.len() {
        return Ok(());
    }
    let is_known = |key: &[u8]| expected.iter().any(|expected| expected.key == key);
    let stray = found.iter().find(|(key, _)| !is_known(key));
    Err(match stray {
        Some((key, entry)) => {
            format!("key {} should be missing and is {}", show(key), show_entry(Some(entry)))
        }
        None => "entries are more than expected".to_owned(),
    })
}

/// Bytes for messages: printable ones as they are, the rest in hex, long ones truncated.
pub fn show(bytes: &[u8]) -> String {
    const MAX_SHOWN_BYTES: usize = 24;
    let head = bytes[..bytes.len().min(MAX_SHOWN_BYTES)].escape_ascii();
    match bytes.len() {
        0..=MAX_SHOWN_BYTES => format!("\"{head}\""),
        len => format!("\"{head}…\" ({len} bytes)"),
    }
}

/// An entry for messages.
pub fn show_entry(entry: Option<&Entry>) -> String {
    match entry {
        None => "missing".to_owned(),
        Some(Entry { value, expires_at: None }) => show(value),
        Some(Entry { value, expires_at: Some(at) }) => format!("{} until {at}", show(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(make: impl Fn(&mut WriteBatch) -> &mut WriteBatch) -> WriteBatch {
        let mut batch = WriteBatch::new();
        make(&mut batch);
        batch
    }

    fn value(oracle: &Oracle, sequence: u64, now: u64) -> Option<(&[u8], bool)> {
        oracle.get(b"k", sequence, now).map(|e| (e.entry.value.as_slice(), e.certain))
    }

    #[test]
    fn every_state_stays_readable_and_the_last_operation_of_a_batch_wins() {
        let mut oracle = Oracle::new();
        oracle.apply(&batch(|b| b.put(b"k", b"1").delete(b"k").put(b"k", b"2")), 0);
        oracle.apply(&batch(|b| b.delete(b"k")), 0);
        oracle.apply(&batch(|b| b.put(b"k", b"3")), 0);
        oracle.apply(&WriteBatch::new(), 0);
        let seen: Vec<_> = (0..=oracle.sequence()).map(|at| value(&oracle, at, 0)).collect();
        assert_eq!(seen, [None, Some((&b"2"[..], true)), None, Some((&b"3"[..], true))]);
        oracle.rewind(1);
        assert_eq!(value(&oracle, 9, 0), Some((&b"2"[..], true)));
    }

    #[test]
    fn range_deletion_hides_what_was_written_before_it() {
        let mut oracle = Oracle::new();
        oracle.apply(&batch(|b| b.put(b"k", b"1")), 0);
        oracle.apply(&batch(|b| b.put(b"k", b"2").delete_range("a".."l")), 0);
        oracle.apply(&batch(|b| b.delete_range("a".."k").delete_range("k".."k")), 0);
        oracle.apply(&batch(|b| b.delete_range::<&[u8]>(..).put(b"k", b"4")), 0);
        let seen: Vec<_> = (1..=4).map(|at| value(&oracle, at, 0)).collect();
        assert_eq!(seen, [Some((&b"1"[..], true)), None, None, Some((&b"4"[..], true))]);
        oracle.apply(&batch(|b| b.delete_range("k"..="k")), 0);
        assert_eq!(value(&oracle, 5, 0), None);
    }

    #[test]
    fn expired_entry_may_disappear_and_never_uncovers_an_older_version() {
        let mut oracle = Oracle::new();
        oracle.apply(&batch(|b| b.put(b"k", b"old")), 10);
        oracle.apply(&batch(|b| b.put_until(b"k", b"new", 20)), 10);
        assert_eq!(value(&oracle, 2, 19), Some((&b"new"[..], true)));
        oracle.pass_time(20);
        assert_eq!(value(&oracle, 2, 20), None);
        oracle.pass_time(15);
        assert_eq!(value(&oracle, 2, 15), Some((&b"new"[..], false)));
        let old = BTreeMap::from([(b"k".to_vec(), Entry::new("old"))]);
        assert_eq!(oracle.find_sequence(&old, 0, 15), Some(1));
        assert_eq!(oracle.find_sequence(&old, 2, 15), None);
        assert_eq!(oracle.find_sequence(&BTreeMap::new(), 0, 15), Some(2));
    }

    #[test]
    fn comparison_finds_missing_wrong_and_extra_entries() {
        let mut oracle = Oracle::new();
        oracle.apply(&batch(|b| b.put(b"a", b"1").put(b"b", b"2")), 0);
        let expected = oracle.range(&KeyRange::all(), 1, 0);
        let good =
            BTreeMap::from([(b"a".to_vec(), Entry::new("1")), (b"b".to_vec(), "2".into_entry())]);
        compare(&expected, &good).unwrap();
        for spoil in [
            |map: &mut BTreeMap<Vec<u8>, Entry>| drop(map.remove(&b"a"[..])),
            |map: &mut BTreeMap<Vec<u8>, Entry>| drop(map.insert(b"a".to_vec(), "2".into_entry())),
            |map: &mut BTreeMap<Vec<u8>, Entry>| drop(map.insert(b"c".to_vec(), "2".into_entry())),
        ] {
            let mut bad = good.clone();
            spoil(&mut bad);
            assert!(compare(&expected, &bad).is_err());
        }
    }

    trait IntoEntry {
        fn into_entry(self) -> Entry;
    }

    impl IntoEntry for &str {
        fn into_entry(self) -> Entry {
            Entry::new(self)
        }
    }
}
