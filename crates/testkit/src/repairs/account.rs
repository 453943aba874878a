//! Records every write to a store, and finds each row in its files.
//!
//! A value begins and ends with random bytes and a key ends with some, so a search for eight bytes
//! finds every copy of a version in the files. Ordered tables omit the prefix that a key shares
//! with the one before; the random end remains. A record of a log may continue in the next block,
//! behind two headers; a pattern is found on both sides of them, too.
//!
//! Invariant: the values of two versions differ, whatever their keys.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use siltstone_engine::{Op, WriteBatch};

use super::store::Image;

/// The bytes to search for.
type Pattern = [u8; 8];

const PATTERN_BYTES: usize = size_of::<Pattern>();

/// Bytes of a block of a log.
const LOG_BLOCK_BYTES: usize = 32 << 10;

/// Bytes between the parts of a record in two blocks: the headers of the block and of the fragment.
const LOG_HEADER_BYTES: usize = 24 + 7;

/// Everything that was written, batch by batch.
#[derive(Default)]
pub(super) struct History {
    rows: BTreeMap<Vec<u8>, Row>,
    /// The digest of each state, with its sequence number.
    states: HashMap<u64, u64>,
    digest: u64,
    sequence: u64,
}

/// The versions of a key, oldest first; `None` for a deletion.
#[derive(Default)]
pub(super) struct Row(Vec<Option<Vec<u8>>>);

impl History {
    pub(super) fn new() -> Self {
        let mut history = History::default();
        history.states.insert(0, 0);
        history
    }

    pub(super) fn apply(&mut self, batch: &WriteBatch) {
        for op in batch.iter() {
            let row = self.rows.entry(op.key().to_vec()).or_default();
            let value = match op {
                Op::Put { value, .. } => Some(value.to_vec()),
                Op::Delete { .. } => None,
            };
            let before = row.newest().map_or(0, |before| digest(op.key(), before));
            let after = value.as_ref().map_or(0, |after| digest(op.key(), after));
            self.digest ^= before ^ after;
            row.0.push(value);
        }
        self.sequence += 1;
        self.states.insert(self.digest, self.sequence);
    }

    /// The last sequence number with exactly these rows.
    pub(super) fn sequence_of(&self, found: &BTreeMap<Vec<u8>, Vec<u8>>) -> Option<u64> {
        let digest = found.iter().fold(0, |sum, (key, value)| sum ^ digest(key, value));
        self.states.get(&digest).copied()
    }

    pub(super) fn last_sequence(&self) -> u64 {
        self.states.get(&self.digest).copied().unwrap_or_default()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (&Vec<u8>, &Row)> {
        self.rows.iter()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.rows.keys()
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.rows.contains_key(key)
    }
}

impl Row {
    pub(super) fn newest(&self) -> Option<&Vec<u8>> {
        self.0.last().and_then(Option::as_ref)
    }

    /// Whether the key ever had this value.
    pub(super) fn ever_was(&self, value: &[u8]) -> bool {
        self.0.iter().flatten().any(|was| was == value)
    }

    /// The patterns of its newest version: the ends of the value, or for a deletion the end of the
    /// key.
    fn patterns(&self, key: &[u8]) -> Vec<Pattern> {
        let ends = match self.newest() {
            Some(value) => vec![value.first_chunk(), value.last_chunk()],
            None => vec![key.last_chunk()],
        };
        ends.into_iter().flatten().copied().collect()
    }
}

/// The locations (file and offset) of the newest versions of all keys; for a deletion, of the key.
pub(super) struct Locations(HashMap<Pattern, Vec<(String, u64)>>);

impl Locations {
    pub(super) fn of(history: &History, image: &Image) -> Self {
        let patterns = history.rows().flat_map(|(key, row)| row.patterns(key));
        let mut locations: HashMap<Pattern, Vec<(String, u64)>> =
            patterns.map(|pattern| (pattern, Vec::new())).collect();
        for (path, bytes) in image.files() {
            for (at, window) in bytes.windows(PATTERN_BYTES).enumerate() {
                // Most of a flash device is zeros.
                if window[0] == 0 && window == [0; PATTERN_BYTES] {
                    continue;
                }
                if let Some(found) = locations.get_mut(window) {
                    found.push((path.to_owned(), at as u64));
                }
            }
            for block in (LOG_BLOCK_BYTES..bytes.len()).step_by(LOG_BLOCK_BYTES) {
                for (pattern, ends) in split_patterns(bytes, block) {
                    if let Some(found) = locations.get_mut(&pattern) {
                        found.extend(ends.map(|at| (path.to_owned(), at as u64)));
                    }
                }
            }
        }
        Locations(locations)
    }

    pub(super) fn get(&self, key: &[u8], row: &Row) -> Vec<&(String, u64)> {
        row.patterns(key).iter().filter_map(|pattern| self.0.get(pattern)).flatten().collect()
    }
}

/// The patterns that begin before the log block at `block` and continue in it, with the offsets of
/// their first and last byte.
fn split_patterns(bytes: &[u8], block: usize) -> impl Iterator<Item = (Pattern, [usize; 2])> {
    let start = block + LOG_HEADER_BYTES;
    (1..PATTERN_BYTES).filter_map(move |before| {
        let after = PATTERN_BYTES - before;
        let parts = [&bytes[block - before..block], bytes.get(start..start + after)?];
        Some((parts.concat().try_into().ok()?, [block - before, start + after - 1]))
    })
}

fn digest(key: &[u8], value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn state_is_identified_by_its_rows() {
        let mut history = History::new();
        let mut batch = WriteBatch::new();
        batch.put(b"key-one", b"value-one").put(b"key-two", b"value-two");
        history.apply(&batch);
        let mut batch = WriteBatch::new();
        batch.delete(b"key-one").put(b"key-two", b"other");
        history.apply(&batch);
        let state = |rows: &[(&[u8], &[u8])]| {
            rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
        };
        assert_eq!(history.sequence_of(&state(&[])), Some(0));
        let first = state(&[(b"key-one", b"value-one"), (b"key-two", b"value-two")]);
        assert_eq!(history.sequence_of(&first), Some(1));
        assert_eq!(history.sequence_of(&state(&[(b"key-two", b"other")])), Some(2));
        assert_eq!(history.sequence_of(&state(&[(b"key-one", b"value-one")])), None);
        assert_eq!(history.last_sequence(), 2);
    }

    #[test]
    fn row_is_found_in_every_file_with_its_newest_version() {
        let mut history = History::new();
        for value in [b"an older value", b"a newest value"] {
            let mut batch = WriteBatch::new();
            batch.put(b"some long key", value);
            history.apply(&batch);
        }
        let files: [(&str, &[u8]); 2] =
            [("old", b"....an older value"), ("new", b"...a newest value...")];
        let locations = Locations::of(&history, &Image::from_files(files));
        let (key, row) = history.rows().next().unwrap();
        let new = |at| ("new".to_owned(), at);
        assert_eq!(locations.get(key, row), [&new(3), &new(9)]);
    }

    #[test]
    fn deletion_is_found_in_both_blocks_of_a_split_record() {
        let mut history = History::new();
        let mut batch = WriteBatch::new();
        batch.put(b"some long key", b"an older value").delete(b"some long key");
        history.apply(&batch);
        for before in 1..PATTERN_BYTES {
            let (head, tail) = b"some long key".split_at(13 - PATTERN_BYTES + before);
            let mut log = vec![0; LOG_BLOCK_BYTES - head.len()];
            log.extend_from_slice(head);
            log.extend_from_slice(&[7; LOG_HEADER_BYTES]);
            log.extend_from_slice(tail);
            let locations = Locations::of(&history, &Image::from_files([("log", &log)]));
            let (key, row) = history.rows().next().unwrap();
            let [first, last] = [LOG_BLOCK_BYTES - before, log.len() - 1];
            let at = |at: usize| ("log".to_owned(), at as u64);
            assert_eq!(locations.get(key, row), [&at(first), &at(last)], "{before}");
        }
    }
}
