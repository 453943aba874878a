//! Keys and values. Every value identifies its write.
//!
//! A value is `LANE.WRITE.KEY.LENGTH;`, followed by pseudo-random bytes with these four numbers as
//! the seed. So the harness recognizes an old value, a value of another key, and a single wrong
//! byte.

use crate::random::Random;

/// Minimum length of a value, with room for the four numbers.
pub const MIN_BYTES: u32 = 48;

/// The name of a key of a lane.
pub fn key(lane: u32, key: u32) -> Vec<u8> {
    format!("k{lane}:{key}").into_bytes()
}

/// The value of a key in a write of a lane: `bytes` long, at least [`MIN_BYTES`].
pub fn value(lane: u32, write: u64, key: u32, bytes: u32) -> Vec<u8> {
    let bytes = bytes.max(MIN_BYTES);
    let mut value = format!("{lane}.{write}.{key}.{bytes};").into_bytes();
    let name = value.len();
    value.resize(bytes as usize, 0);
    let seed = Random::seed_of(&[lane.into(), write, key.into(), bytes.into()]);
    Random::new(seed).fill(&mut value[name..]);
    value
}

/// The write whose value for this key of this lane is `found`, if there is one.
pub fn write_of(lane: u32, key: u32, found: &[u8]) -> Option<u64> {
    let end = found.iter().take(MIN_BYTES as usize).position(|&byte| byte == b';')?;
    let name = std::str::from_utf8(&found[..end]).ok()?;
    let mut numbers = name.split('.').map(|number| number.parse::<u64>().ok());
    let (of_lane, write, of_key, bytes) =
        (numbers.next()??, numbers.next()??, numbers.next()??, numbers.next()??);
    let is_ours = of_lane == u64::from(lane) && of_key == u64::from(key);
    let is_whole = bytes == found.len() as u64;
    (is_ours && is_whole && value(lane, write, key, bytes as u32) == found).then_some(write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_identifies_its_write() {
        let found = value(2, 77, 5, 300);
        assert_eq!(write_of(2, 5, &found), Some(77));
    }

    #[test]
    fn value_with_a_wrong_byte_identifies_no_write() {
        let mut found = value(2, 77, 5, 300);
        found[299] ^= 1;
        assert_eq!(write_of(2, 5, &found), None);
        let found = value(2, 77, 5, 300);
        assert_eq!(write_of(2, 6, &found), None, "another key's");
        assert_eq!(write_of(1, 5, &found), None, "another lane's");
        assert_eq!(write_of(2, 5, &found[..299]), None, "cut");
    }
}
