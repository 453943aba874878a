//! Range filter builder: one pass over sorted keys.
//!
//! The code depends on all keys, so the part of each key that it may use is buffered: at most
//! [`MAX_DIGITS`] bytes after the prefix common to all keys, and of those only the bytes after the
//! prefix shared with the previous key, which is at least as long.
//!
//! Memory: at most 5 + [`MAX_DIGITS`] bytes per key.

use super::LOW_BITS;
use super::code::{KeyCode, MAX_DIGITS, Spans, common_prefix_of};
use crate::common_prefix_len;

/// Collects the keys of a sorted run.
#[derive(Debug, Default)]
pub struct RangeFilterBuilder {
    keys: u64,
    first: Vec<u8>,
    last: Vec<u8>,
    /// Length of the buffered part of the last key.
    last_kept: usize,
    /// For each key but the first: `common:u32 len:u8 rest`, the length of the prefix shared with
    /// the buffered part of the previous key, and the bytes after it.
    kept: Vec<u8>,
}

impl RangeFilterBuilder {
    /// Adds the next key, greater than the previous one. Cost: a comparison with it.
    pub fn add(&mut self, key: &[u8]) {
        self.keys += 1;
        if self.keys == 1 {
            // The common prefix with the others is not known yet.
            self.first.extend_from_slice(key);
            self.last_kept = key.len();
        } else {
            let common = common_prefix_len(&self.last, key).min(self.last_kept);
            let rest = &key[common..key.len().min(common + MAX_DIGITS)];
            self.last_kept = common + rest.len();
            self.kept.extend_from_slice(&(common as u32).to_le_bytes());
            self.kept.push(rest.len() as u8);
            self.kept.extend_from_slice(rest);
        }
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.kept.capacity() + self.first.capacity() + self.last.capacity()
    }

    /// The stored form; `None` without keys or with too many. Cost: two passes over the keys.
    pub fn finish(self) -> Option<Vec<u8>> {
        if self.keys == 0 {
            return None;
        }
        let prefix = common_prefix_of(&self.first, &self.last);
        let mut spans = Spans::new();
        self.for_each(|key| spans.add(&key[prefix.len()..]));
        let code = spans.code(prefix);
        let shift = shift(&code, self.keys);
        let buckets = ((code.codes() - 1) >> shift >> LOW_BITS) + 1;
        let mut lows = Vec::with_capacity(self.keys as usize);
        let mut highs = HighBits::default();
        let mut previous = None;
        self.for_each(|key| {
            let number = code.of(key) >> shift;
            if previous != Some(number) {
                previous = Some(number);
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

    /// Calls `each` with the buffered part of each key.
    fn for_each(&self, mut each: impl FnMut(&[u8])) {
        let mut key = self.first.clone();
        each(&key);
        let mut kept = &self.kept[..];
        while let Some((&[a, b, c, d, len], tail)) = kept.split_first_chunk() {
            let (rest, tail) = tail.split_at(usize::from(len));
            key.truncate(u32::from_le_bytes([a, b, c, d]) as usize);
            key.extend_from_slice(rest);
            each(&key);
            kept = tail;
        }
    }
}

/// The right shift after which there are at most 256 codes per key.
fn shift(code: &KeyCode, keys: u64) -> u32 {
    let limit = keys << LOW_BITS;
    let max = code.codes() - 1;
    (0..64).find(|&shift| max >> shift < limit).unwrap_or(63)
}

/// A one for each key, and a zero at each bucket's end.
#[derive(Default)]
struct HighBits {
    bytes: Vec<u8>,
    bits: u64,
    bucket: u64,
}

impl HighBits {
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
