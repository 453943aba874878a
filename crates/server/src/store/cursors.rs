//! Saved positions of SCAN.
//!
//! A client gets a number, and the server keeps the position it refers to: the last key returned.
//! The next call continues after it in engine order, so every key that exists during the whole scan
//! is returned: exactly once in key order, at least once in unordered engines. A number stays valid
//! until it is evicted by 65,536 newer ones or 64 MiB of keys. An unknown number, evicted or
//! invented, restarts the scan: Redis accepts any cursor, and a restarted scan returns keys twice
//! but misses none.
//!
//! The first number is random, so that numbers of an earlier process are unknown.
//!
//! Invariant: memory is bounded, however many scans are started and abandoned.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

const MAX_CURSORS: usize = 64 << 10;
const MAX_KEY_BYTES: usize = 64 << 20;

/// Saved positions by number; the oldest is evicted first.
pub(crate) struct Cursors {
    positions: HashMap<u64, Position>,
    order: VecDeque<u64>,
    key_bytes: usize,
    next: u64,
    max_cursors: usize,
}

struct Position {
    table: usize,
    /// `None`: the start of the table.
    after: Option<Vec<u8>>,
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
            // 0 means start and end of a scan. Some clients store a cursor in a double, so numbers
            // stay below 2^53.
            next: (RandomState::new().hash_one(()) >> 14).max(1),
            max_cursors,
        }
    }

    /// Saves the position after `after`, or the start of the table, and returns its number.
    pub(crate) fn save(&mut self, table: usize, after: Option<Vec<u8>>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.key_bytes += after.as_ref().map_or(0, Vec::len);
        self.positions.insert(number, Position { table, after });
        self.order.push_back(number);
        while self.order.len() > self.max_cursors || self.key_bytes > MAX_KEY_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(position) = self.positions.remove(&oldest) {
                self.key_bytes -= position.after.map_or(0, |after| after.len());
            }
        }
        number
    }

    /// Forgets the positions in a table, so that its scans begin again.
    pub(crate) fn forget(&mut self, table: usize) {
        for position in self.positions.values_mut().filter(|position| position.table == table) {
            self.key_bytes -= position.after.take().map_or(0, |after| after.len());
        }
    }

    /// The table of the position of `number`, unless it was evicted.
    pub(crate) fn table_of(&self, number: u64) -> Option<usize> {
        Some(self.positions.get(&number)?.table)
    }

    /// The position of `number` in this table, unless it is the start or was evicted.
    pub(crate) fn load(&self, table: usize, number: u64) -> Option<Vec<u8>> {
        let position = self.positions.get(&number)?;
        position.after.clone().filter(|_| position.table == table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_position_is_evicted_first() {
        let mut cursors = Cursors::with_capacity(2);
        let numbers = [b"a", b"b", b"c"].map(|key| cursors.save(0, Some(key.to_vec())));
        assert_eq!(cursors.load(0, numbers[0]), None);
        assert_eq!(cursors.load(0, numbers[1]).as_deref(), Some(&b"b"[..]));
        assert_eq!(cursors.load(0, numbers[2]).as_deref(), Some(&b"c"[..]));
        assert_eq!(cursors.load(1, numbers[2]), None);
        assert_eq!(cursors.key_bytes, 2);
    }
}
