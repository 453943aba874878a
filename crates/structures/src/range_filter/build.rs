//! Building a range filter from keys in order, in one pass.
//!
//! The code depends on all the keys, so what it may look at of each is kept until the last has come: no
//! position behind the first [`MOST_DIGITS`] after the prefix that all share, and of those only what is not as
//! in the key before. The prefix that two neighbours share is never shorter than the one that all do.
//!
//! Memory: 5 + [`MOST_DIGITS`] bytes a key at most.

use super::code::{KeyCode, MOST_DIGITS, Spans, shared};
use super::{LOW_BITS, common_prefix};

/// Collects the keys of a sorted run.
#[derive(Debug, Default)]
pub struct RangeFilterBuilder {
    keys: u64,
    first: Vec<u8>,
    last: Vec<u8>,
    /// How much of the last key is kept.
    last_kept: usize,
    /// For each key but the first, of which all is: `common:u32 len:u8 rest`, what it shares with what is kept of
    /// the key before, and what follows that.
    kept: Vec<u8>,
}

impl RangeFilterBuilder {
    /// Adds the next key: greater than the one before. Cost: a comparison with it.
    pub fn add(&mut self, key: &[u8]) {
        self.keys += 1;
        if self.keys == 1 {
            // Nobody knows yet what the others share with it.
            self.first.extend_from_slice(key);
            self.last_kept = key.len();
        } else {
            let common = common_prefix(&self.last, key).min(self.last_kept);
            let rest = &key[common..key.len().min(common + MOST_DIGITS)];
            self.last_kept = common + rest.len();
            self.kept.extend_from_slice(&(common as u32).to_le_bytes());
            self.kept.push(rest.len() as u8);
            self.kept.extend_from_slice(rest);
        }
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    /// Bytes that it holds.
    pub fn memory_bytes(&self) -> usize {
        self.kept.capacity() + self.first.capacity() + self.last.capacity()
    }

    /// The stored form; `None` if there are no keys, or more than can be. Cost: two walks over the keys.
    pub fn finish(self) -> Option<Vec<u8>> {
        if self.keys == 0 {
            return None;
        }
        let prefix = shared(&self.first, &self.last);
        let mut spans = Spans::new();
        self.for_each(|key| spans.note(&key[prefix.len()..]));
        let code = spans.code(prefix);
        let shift = shift(&code, self.keys);
        let buckets = ((code.codes() - 1) >> shift >> LOW_BITS) + 1;
        let mut lows = Vec::with_capacity(self.keys as usize);
        let mut highs = Highs::default();
        let mut before = None;
        self.for_each(|key| {
            let number = code.of(key) >> shift;
            if before != Some(number) {
                before = Some(number);
                highs.begin(number >> LOW_BITS);
                highs.push(true);
                lows.push(number as u8);
            }
        });
        highs.begin(buckets);
        u32::try_from(highs.bits).ok()?;
        let mut out = Vec::with_capacity(64 + prefix.len() + lows.len() * 3 / 2);
        code.encode(&mut out);
        out.push(shift as u8);
        out.extend_from_slice(&(lows.len() as u32).to_le_bytes());
        out.extend_from_slice(&lows);
        out.extend_from_slice(&highs.bytes);
        Some(out)
    }

    /// Calls `each` with what is kept of each key.
    fn for_each(&self, mut each: impl FnMut(&[u8])) {
        let mut key = self.first.clone();
        each(&key);
        let mut kept = &self.kept[..];
        while let Some((&[a, b, c, d, len], behind)) = kept.split_first_chunk() {
            let (rest, behind) = behind.split_at(usize::from(len));
            key.truncate(u32::from_le_bytes([a, b, c, d]) as usize);
            key.extend_from_slice(rest);
            each(&key);
            kept = behind;
        }
    }
}

/// By how much codes are too long for `keys`: to the right by this there are at most 256 for each.
fn shift(code: &KeyCode, keys: u64) -> u32 {
    let most = keys << LOW_BITS;
    let greatest = code.codes() - 1;
    (0..64).find(|&shift| greatest >> shift < most).unwrap_or(63)
}

/// A one for each key and a zero for each bucket's end.
#[derive(Default)]
struct Highs {
    bytes: Vec<u8>,
    bits: u64,
    bucket: u64,
}

impl Highs {
    /// Ends all buckets before this one.
    fn begin(&mut self, bucket: u64) {
        while self.bucket < bucket {
            self.push(false);
            self.bucket += 1;
        }
    }

    fn push(&mut self, bit: bool) {
        if self.bits.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (self.bits % 8);
        }
        self.bits += 1;
    }
}
