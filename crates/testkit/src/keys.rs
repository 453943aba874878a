//! Keys that get in each other's way, and values of every size.
//!
//! A history draws its keys from a small pool of one kind, so that most writes overwrite and most
//! neighbours differ in the least that they can.
//!
//! Invariant: every key is within the limits of the house; no two of a pool are equal.
//!
//! Source: ours.

use std::collections::BTreeSet;

use crate::Dice;

/// The keys of one history.
#[derive(Debug, Clone)]
pub struct KeyPool {
    keys: Vec<Vec<u8>>,
}

impl KeyPool {
    /// A pool of a kind and a size that the dice choose.
    pub fn draw(dice: &mut Dice, most: usize) -> Self {
        let size = 4 + dice.index(most.max(1));
        let kind = dice.below(6);
        let mut keys = BTreeSet::new();
        // Small kinds have fewer keys than may be asked for.
        for i in 0..size * 4 {
            if keys.len() < size {
                keys.insert(key(dice, kind, i));
            }
        }
        KeyPool { keys: keys.into_iter().collect() }
    }

    /// A pool of about `most` keys that part from one another anywhere: what they begin with alike is long for
    /// neighbours, and as a rule longer the nearer they are.
    pub fn crowd(dice: &mut Dice, most: usize) -> Self {
        let start = vec![b'k'; dice.index(12)];
        let key = |_| {
            let rest =
                (0..8 + dice.index(16)).map(|_| *dice.pick(&[b'a', b'a', b'a', b'a', b'b', 0xff]));
            start.iter().copied().chain(rest).collect()
        };
        let keys: BTreeSet<_> = (0..most).map(key).collect();
        KeyPool { keys: keys.into_iter().collect() }
    }

    /// A key of the pool, or now and then one that is not, near to one that is.
    pub fn key(&self, dice: &mut Dice) -> Vec<u8> {
        let mut key = dice.pick(&self.keys).clone();
        match dice.below(24) {
            0 => key.push(0),
            1 if key.len() > 1 => drop(key.pop()),
            2 => key[0] = key[0].wrapping_add(1),
            _ => {}
        }
        key
    }
}

fn key(dice: &mut Dice, kind: u64, i: usize) -> Vec<u8> {
    match kind {
        // One byte: the ends of the order among them.
        0 => vec![*dice.pick(&[0, 1, 0x7f, 0x80, 0xfe, 0xff, b'a', b'b', b'c'])],
        // Each a prefix of others.
        1 => vec![*dice.pick(&[0, b'a', 0xff]); 1 + dice.index(9)],
        // A long shared prefix.
        2 => format!("table/users/by-name/{:04}", i * 7).into_bytes(),
        // The extreme bytes in every order.
        3 => (0..=dice.index(5)).map(|_| *dice.pick(&[0, 0xff])).collect(),
        // Long ones that differ at the end.
        4 => {
            let mut key = vec![b'k'; 200 + dice.index(1200)];
            key.extend_from_slice(&(i as u32).to_be_bytes());
            key
        }
        // Nothing in common.
        _ => {
            let len = 1 + dice.index(24);
            dice.bytes(len)
        }
    }
}

/// A value: often short, sometimes empty, now and then up to `most` bytes.
pub fn value(dice: &mut Dice, most: usize) -> Vec<u8> {
    let len = match dice.below(32) {
        0..3 => 0,
        3..14 => 1 + dice.index(16),
        14..26 => 100 + dice.index(300),
        26..31 => dice.index(most.min(4 << 10)),
        _ => dice.index(most),
    };
    match dice.one_in(2) {
        // What compression likes, and what it doesn't.
        true => vec![dice.draw() as u8; len],
        false => dice.bytes(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_legal_and_collide() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let pool = KeyPool::draw(&mut dice, 30);
            assert!(!pool.keys.is_empty());
            let drawn: BTreeSet<_> = (0..300).map(|_| pool.key(&mut dice)).collect();
            assert!(drawn.iter().all(|key| siltstone_engine::entry::check_key(key).is_ok()));
            assert!(drawn.len() < 150, "{} of 300", drawn.len());
        }
    }
}
