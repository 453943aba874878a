//! Where SCANs stand.
//!
//! A client gets a number and the server keeps the position that it stands for: that of the last key
//! returned. The next call goes on behind it, in engine order, so every key that is there during the
//! whole scan is returned: exactly once in key order, at least once where the engine has none. A
//! number stays good for repeated calls until 65,536 younger ones, or 64 MiB of keys, have pushed it
//! out. A number that is not known, because it was pushed out or invented, stands for the
//! beginning: Redis accepts any cursor, and a scan that begins again returns keys twice but misses
//! none.
//!
//! The first number is drawn by chance, so that a number of an earlier process is not known either.
//!
//! Invariant: memory is bounded however many scans are begun and left.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

const MAX_CURSORS: usize = 64 << 10;
const MAX_KEY_BYTES: usize = 64 << 20;

/// Positions by number, the oldest forgotten first.
pub(crate) struct Cursors {
    positions: HashMap<u64, Position>,
    order: VecDeque<u64>,
    key_bytes: usize,
    next: u64,
    max_cursors: usize,
}

struct Position {
    table: usize,
    after: Vec<u8>,
}

impl Default for Cursors {
    fn default() -> Self {
        Self::with_capacity(MAX_CURSORS)
    }
}

impl Cursors {
    fn with_capacity(max_cursors: usize) -> Self {
        Cursors {
            positions: HashMap::new(),
            order: VecDeque::new(),
            key_bytes: 0,
            // 0 means "begin" and "at the end". Some clients keep a cursor in a double, so there
            // are less than 2^53 numbers.
            next: (RandomState::new().hash_one(()) >> 14).max(1),
            max_cursors,
        }
    }

    /// A number for the position behind `after`.
    pub(crate) fn save(&mut self, table: usize, after: Vec<u8>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.key_bytes += after.len();
        self.positions.insert(number, Position { table, after });
        self.order.push_back(number);
        while self.order.len() > self.max_cursors || self.key_bytes > MAX_KEY_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(position) = self.positions.remove(&oldest) {
                self.key_bytes -= position.after.len();
            }
        }
        number
    }

    /// The position behind which `number` stands in this table, unless it was forgotten.
    pub(crate) fn load(&self, table: usize, number: u64) -> Option<Vec<u8>> {
        let position = self.positions.get(&number)?;
        (position.table == table).then(|| position.after.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut cursors = Cursors::with_capacity(2);
        let numbers = [b"a", b"b", b"c"].map(|key| cursors.save(0, key.to_vec()));
        assert_eq!(cursors.load(0, numbers[0]), None);
        assert_eq!(cursors.load(0, numbers[1]).as_deref(), Some(&b"b"[..]));
        assert_eq!(cursors.load(0, numbers[2]).as_deref(), Some(&b"c"[..]));
        assert_eq!(cursors.load(1, numbers[2]), None);
        assert_eq!(cursors.key_bytes, 2);
    }
}
