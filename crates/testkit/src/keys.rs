//! Keys that collide, and values of every size.
//!
//! A history draws its keys from a small pool of one kind, so that most writes overwrite and
//! neighbours differ minimally.
//!
//! Several kinds of pools have the empty key.
//!
//! Invariant: every key is valid; the keys of a pool are distinct.

use std::collections::BTreeSet;

use crate::TestRng;

/// The keys of one history.
#[derive(Debug, Clone)]
pub struct KeyPool {
    keys: Vec<Vec<u8>>,
}

impl KeyPool {
    /// A pool of a random kind and size, at most `max + 3` keys.
    pub fn draw(rng: &mut TestRng, max: usize) -> Self {
        let size = 4 + rng.index(max.max(1));
        let kind = rng.below(6);
        let mut keys = BTreeSet::new();
        // Some kinds have fewer distinct keys.
        for i in 0..size * 4 {
            if keys.len() < size {
                keys.insert(key(rng, kind, i));
            }
        }
        KeyPool { keys: keys.into_iter().collect() }
    }

    /// A pool of up to `count` keys that diverge at any position: neighbours share long prefixes,
    /// which as a rule are longer the closer they are.
    pub fn with_shared_prefixes(rng: &mut TestRng, count: usize) -> Self {
        let start = vec![b'k'; rng.index(12)];
        let key = |_| {
            let rest =
                (0..8 + rng.index(16)).map(|_| *rng.pick(&[b'a', b'a', b'a', b'a', b'b', 0xff]));
            start.iter().copied().chain(rest).collect()
        };
        let keys: BTreeSet<_> = (0..count).map(key).collect();
        KeyPool { keys: keys.into_iter().collect() }
    }

    /// A key of the pool, or at times one close to it that is not in the pool.
    pub fn key(&self, rng: &mut TestRng) -> Vec<u8> {
        let mut key = rng.pick(&self.keys).clone();
        match rng.below(24) {
            0 => key.push(0),
            1 => drop(key.pop()),
            2 if !key.is_empty() => key[0] = key[0].wrapping_add(1),
            _ => {}
        }
        key
    }
}

fn key(rng: &mut TestRng, kind: u64, i: usize) -> Vec<u8> {
    match kind {
        // The empty key, and one byte, including the extremes.
        0 if rng.one_in(8) => Vec::new(),
        0 => vec![*rng.pick(&[0, 1, 0x7f, 0x80, 0xfe, 0xff, b'a', b'b', b'c'])],
        // Each a prefix of others; the empty key is one of all.
        1 => vec![*rng.pick(&[0, b'a', 0xff]); rng.index(10)],
        // A long shared prefix.
        2 => format!("table/users/by-name/{:04}", i * 7).into_bytes(),
        // Strings of the extreme bytes.
        3 => (0..rng.index(6)).map(|_| *rng.pick(&[0, 0xff])).collect(),
        // Long keys that differ at the end.
        4 => {
            let mut key = vec![b'k'; 200 + rng.index(1200)];
            key.extend_from_slice(&(i as u32).to_be_bytes());
            key
        }
        // Random bytes.
        _ => {
            let len = rng.index(25);
            rng.bytes(len)
        }
    }
}

/// A value: often short, sometimes empty, rarely up to `max` bytes.
pub fn value(rng: &mut TestRng, max: usize) -> Vec<u8> {
    let len = match rng.below(32) {
        0..3 => 0,
        3..14 => 1 + rng.index(16),
        14..26 => 100 + rng.index(300),
        26..31 => rng.index(max.min(4 << 10)),
        _ => rng.index(max),
    };
    match rng.one_in(2) {
        // Compressible and incompressible.
        true => vec![rng.draw() as u8; len],
        false => rng.bytes(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pools_contain_the_empty_key() {
        let is_empty = |seed| {
            let pool = KeyPool::draw(&mut TestRng::new(seed), 30);
            pool.keys.contains(&Vec::new())
        };
        let pools = (0..200).filter(|&seed| is_empty(seed)).count();
        assert!((50..150).contains(&pools), "{pools} of 200");
    }

    #[test]
    fn keys_are_valid_and_collide() {
        for seed in 0..200 {
            let mut rng = TestRng::new(seed);
            let pool = KeyPool::draw(&mut rng, 30);
            assert!(!pool.keys.is_empty());
            let drawn: BTreeSet<_> = (0..300).map(|_| pool.key(&mut rng)).collect();
            assert!(drawn.iter().all(|key| siltstone_engine::entry::check_key(key).is_ok()));
            assert!(drawn.len() < 150, "{} of 300", drawn.len());
        }
    }
}
