//! Keys: the number i, encoded in a given number of bytes.
//!
//! ```text
//! 8 or more bytes: | i, big-endian, 8 bytes | '0' … |
//! fewer bytes:     | the low bytes of i, big-endian |
//! ```
//!
//! Invariant: different numbers give different keys, in the order of the numbers.
//!
//! Source: the layout of RocksDB's and LevelDB's `db_bench`, so that a peer stores the same keys.

use siltstone_engine::{Error, MAX_KEY_BYTES, Result};

/// Bytes of the encoded number.
const NUMBER_BYTES: usize = 8;

/// Keys of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpace {
    key_bytes: usize,
}

impl KeySpace {
    /// Keys of `key_bytes` bytes, for `keys` keys.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] for a size outside 4 bytes to 64 KiB, or one too small for `keys`
    /// keys.
    pub fn new(key_bytes: usize, keys: u64) -> Result<Self> {
        let bad = |reason: String| Err(Error::invalid_option("key-size", reason));
        if !(4..=MAX_KEY_BYTES).contains(&key_bytes) {
            return bad(format!("{key_bytes} is not from 4 to {MAX_KEY_BYTES} bytes"));
        }
        if key_bytes < NUMBER_BYTES && keys > 1 << (8 * key_bytes) {
            return bad(format!("{key_bytes} bytes are too few for {keys} distinct keys"));
        }
        Ok(KeySpace { key_bytes })
    }

    /// Bytes per key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Sets `out` to the key of number `i`.
    pub fn write(&self, i: u64, out: &mut Vec<u8>) {
        out.clear();
        let number = i.to_be_bytes();
        out.extend_from_slice(&number[NUMBER_BYTES.saturating_sub(self.key_bytes)..]);
        out.resize(self.key_bytes, b'0');
    }

    /// Sets `out` to a key that no number has, directly after the key of number `i`. It lies within
    /// the key ranges of the SSTables, so a lookup of it needs the filters.
    pub fn write_missing(&self, i: u64, out: &mut Vec<u8>) {
        self.write(i, out);
        if out.len() == MAX_KEY_BYTES {
            // The key cannot grow: change the padding.
            out[MAX_KEY_BYTES - 1] = b'1';
        } else {
            out.push(b'0');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_ordered_at_every_size() {
        for size in [4, 5, 8, 9, 16, 1024, MAX_KEY_BYTES] {
            let space = KeySpace::new(size, 1 << 32).unwrap();
            let mut previous = Vec::new();
            for i in [0u64, 1, 255, 256, 65_535, (1 << 32) - 1] {
                let (mut key, mut missing) = (Vec::new(), Vec::new());
                space.write(i, &mut key);
                space.write_missing(i, &mut missing);
                assert_eq!(key.len(), size);
                assert!(missing.len() <= MAX_KEY_BYTES);
                assert!(previous < key && key < missing, "{i} at {size}");
                previous = missing;
            }
        }
    }

    #[test]
    fn layout_equals_that_of_db_bench() {
        let mut key = Vec::new();
        KeySpace::new(16, 1000).unwrap().write(0x0102, &mut key);
        assert_eq!(key, b"\0\0\0\0\0\0\x01\x0200000000");
        KeySpace::new(4, 1000).unwrap().write(0x0102, &mut key);
        assert_eq!(key, b"\0\0\x01\x02");
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for (size, keys) in [(3, 1), (MAX_KEY_BYTES + 1, 1), (4, (1 << 32) + 1)] {
            let Err(Error::InvalidOptions(mistakes)) = KeySpace::new(size, keys) else {
                panic!("accepted {size}")
            };
            assert_eq!(mistakes[0].option, "key-size");
        }
    }
}
