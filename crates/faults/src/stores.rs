//! Unpersisted stores to a mapped file, and what a power cut leaves of them.
//!
//! A cache line of 64 bytes is written back to memory at any time, with its bytes at that time, and
//! may tear between words of eight bytes. So any prefix of the stores to a line may be left, and
//! any prefix of the stores to each of its words.
//!
//! ```text
//! current = durable + pending changes + stores[0] + stores[1] + …
//! ```
//!
//! Invariant: the persisted lines are cut out of the stores; the rest of a store may be lost in a
//! power cut.
//!
//! Source: the persistency model of x86 with ADR (Raad et al., "Persistency Semantics of the
//! Intel-x86 Architecture", POPL 2020): lines in any order, the stores to one line in order.
//! Tearing at words is the weakest guarantee of Intel's guide.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use siltstone_structures::SplitMix64;
use siltstone_vfs::backend::{LINE_BYTES, SparseBytes};

use super::file::FileState;

const WORD_BYTES: u64 = 8;
/// One line in this many tears.
const TEARS_OF: u64 = 4;

/// Bytes stored but not persisted.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) sequence: u64,
    /// Whether a failed persist covered the store.
    poisoned: bool,
    offset: u64,
    bytes: Box<[u8]>,
}

impl Store {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Its parts in pieces of `grain` bytes: the number of the piece and the range.
    fn parts(&self, grain: u64) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
        let (start, end) = (self.offset, self.end());
        let pieces = start / grain..end.div_ceil(grain);
        pieces.map(move |n| (n, start.max(n * grain)..end.min((n + 1) * grain)))
    }

    fn apply(&self, part: &Range<u64>, to: &mut SparseBytes) {
        to.write(part.start, self.slice(part));
    }

    fn slice(&self, part: &Range<u64>) -> &[u8] {
        &self.bytes[(part.start - self.offset) as usize..(part.end - self.offset) as usize]
    }

    fn apply_all(&self, to: &mut SparseBytes) {
        to.write(self.offset, &self.bytes);
    }
}

impl FileState {
    /// Stores bytes within the file's length.
    pub(super) fn store(&mut self, sequence: u64, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.current.write(offset, bytes);
        self.stores.push(Store { sequence, poisoned: false, offset, bytes: bytes.into() });
    }

    /// Makes the current bytes of some lines durable, except lines that a failed persist covered
    /// and that were not stored to since.
    pub(super) fn persist(&mut self, ranges: &[Range<u64>]) {
        let covered = lines(ranges);
        let fresh = self.stores.iter().filter(|store| !store.poisoned);
        let persisted: BTreeSet<u64> = fresh
            .flat_map(|store| store.parts(LINE_BYTES))
            .map(|(line, _)| line)
            .filter(|line| is_among(&covered, *line))
            .collect();
        let mut bytes = [0; LINE_BYTES as usize];
        for line in &persisted {
            let start = line * LINE_BYTES;
            let len = self.current.len().saturating_sub(start).min(LINE_BYTES) as usize;
            if self.current.read(start, &mut bytes[..len]) {
                self.durable.write(start, &bytes[..len]);
            }
        }
        let stores = std::mem::take(&mut self.stores);
        self.stores = stores.into_iter().flat_map(|store| outside(store, &persisted)).collect();
    }

    /// Excludes the stores to some ranges from later persists.
    pub(super) fn poison_stores(&mut self, ranges: &[Range<u64>]) {
        let covered = lines(ranges);
        for store in &mut self.stores {
            store.poisoned |= store.parts(LINE_BYTES).any(|(line, _)| is_among(&covered, line));
        }
    }

    /// Applies all stores in order.
    pub(super) fn apply_stores(&self, to: &mut SparseBytes) {
        self.stores.iter().for_each(|store| store.apply_all(to));
    }

    /// Applies all stores before a sequence number, and a random subset of the words of the store
    /// with it.
    pub(super) fn apply_stores_before(
        &self,
        cut_sequence: u64,
        random: &mut SplitMix64,
        to: &mut SparseBytes,
    ) {
        for store in self.stores.iter().take_while(|store| store.sequence <= cut_sequence) {
            match store.sequence < cut_sequence {
                true => store.apply_all(to),
                false => {
                    let kept = store.parts(WORD_BYTES).filter(|_| random.coin());
                    kept.for_each(|(_, part)| store.apply(&part, to));
                }
            }
        }
    }

    /// Applies a prefix of the stores to each line; `keeps_of` draws its length.
    pub(super) fn apply_any_stores(
        &self,
        random: &mut SplitMix64,
        keeps_of: impl Fn(u64, &mut SplitMix64) -> u64,
        to: &mut SparseBytes,
    ) {
        let mut by_line: BTreeMap<u64, Vec<&Store>> = BTreeMap::new();
        for store in &self.stores {
            for (line, _) in store.parts(LINE_BYTES) {
                by_line.entry(line).or_default().push(store);
            }
        }
        for (line, stores) in by_line {
            let kept = keeps_of(stores.len() as u64, random);
            let torn = random.below(TEARS_OF) == 0;
            for word in line * (LINE_BYTES / WORD_BYTES)..(line + 1) * (LINE_BYTES / WORD_BYTES) {
                let kept = if torn { random.below(stores.len() as u64 + 1) } else { kept };
                for store in &stores[..kept as usize] {
                    let start = store.offset.max(word * WORD_BYTES);
                    let end = store.end().min((word + 1) * WORD_BYTES);
                    if start < end {
                        store.apply(&(start..end), to);
                    }
                }
            }
        }
    }
}

/// The lines of some ranges, in order.
fn lines(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let some = ranges.iter().filter(|range| !range.is_empty());
    let mut lines: Vec<_> =
        some.map(|r| r.start / LINE_BYTES..r.end.div_ceil(LINE_BYTES)).collect();
    lines.sort_unstable_by_key(|range| range.start);
    lines.dedup_by(|next, last| {
        let meet = next.start <= last.end;
        last.end = if meet { last.end.max(next.end) } else { last.end };
        meet
    });
    lines
}

fn is_among(lines: &[Range<u64>], line: u64) -> bool {
    let after = lines.partition_point(|range| range.start <= line);
    after.checked_sub(1).is_some_and(|i| lines[i].contains(&line))
}

/// The parts of a store outside some lines.
fn outside(store: Store, persisted: &BTreeSet<u64>) -> Vec<Store> {
    let mut rest: Vec<Range<u64>> = Vec::new();
    for (_, part) in store.parts(LINE_BYTES).filter(|(line, _)| !persisted.contains(line)) {
        match rest.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => rest.push(part),
        }
    }
    let remain = |part: Range<u64>| Store {
        sequence: store.sequence,
        poisoned: store.poisoned,
        offset: part.start,
        bytes: store.slice(&part).into(),
    };
    rest.into_iter().map(remain).collect()
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // A list of one range is meant.
mod tests {
    use super::*;

    fn file() -> FileState {
        let mut bytes = SparseBytes::default();
        bytes.set_len(1024);
        FileState::new_durable(1, bytes)
    }

    fn durable(file: &FileState, at: u64) -> u8 {
        let mut byte = [0];
        assert!(file.durable.read(at, &mut byte));
        byte[0]
    }

    #[test]
    fn persist_makes_whole_lines_durable_and_leaves_the_rest_pending() {
        let mut file = file();
        file.store(1, 60, &[1; 200]);
        file.persist(&[100..101]);
        assert_eq!([60, 63, 64, 127, 128].map(|at| durable(&file, at)), [0, 0, 1, 1, 0]);
        let left: Vec<_> = file.stores.iter().map(|s| s.offset..s.end()).collect();
        assert_eq!(left, [60..64, 128..260]);
        file.persist(&[0..1024]);
        assert!(file.stores.is_empty());
    }

    #[test]
    fn persist_skips_poisoned_lines_until_they_are_stored_to_again() {
        let mut file = file();
        file.store(1, 0, &[1; 128]);
        file.poison_stores(&[0..128]);
        file.persist(&[0..1024]);
        assert_eq!([0, 64].map(|at| durable(&file, at)), [0, 0]);
        file.store(2, 70, &[2; 1]);
        file.persist(&[0..1024]);
        assert_eq!([0, 64, 70].map(|at| durable(&file, at)), [0, 1, 2]);
    }
}
