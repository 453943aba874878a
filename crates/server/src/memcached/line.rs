//! Words of a line: keys, numbers, times.
//!
//! Source: memcached's `doc/protocol.txt`, "Keys" and "Expiration times".

use siltstone_engine::Timestamp;

/// The longest key, in bytes.
pub(super) const MAX_KEY_BYTES: usize = 250;
/// An expiry time up to this many seconds counts from now, a larger one from 1970.
const MAX_RELATIVE: i64 = 60 * 60 * 24 * 30;

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// The word as a key, if it can be one.
#[inline]
pub(super) fn key(word: &[u8]) -> Option<&[u8]> {
    let is_printable = word.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    ((1..=MAX_KEY_BYTES).contains(&word.len()) && is_printable).then_some(word)
}

/// A decimal number of digits alone.
#[inline]
pub(super) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A decimal number that may be negative.
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    match word {
        [b'-', digits @ ..] => 0i64.checked_sub_unsigned(number(digits)?),
        digits => number(digits)?.try_into().ok(),
    }
}

/// A time in seconds. memcached reads 32 bits of it, so a number beyond 2^31 wraps as it does there.
pub(super) fn seconds(word: &[u8]) -> Option<i64> {
    Some(i64::from(signed(word)? as i32))
}

/// What a line goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// A word, and the position behind it.
    Word(&'a [u8], usize),
    /// The line is over; the position behind its end.
    End(usize),
    /// Neither has come whole: what has come of the word begins here.
    Incomplete(usize),
}

/// What a line goes on with at a position of `input`, which may end within the line.
#[inline]
pub(super) fn next(input: &[u8], at: usize) -> Next<'_> {
    let spaces = input[at..].iter().take_while(|byte| **byte == b' ').count();
    let start = at + spaces;
    let rest = &input[start..];
    let Some(len) = rest.iter().position(|byte| *byte == b' ' || *byte == b'\n') else {
        return Next::Incomplete(start);
    };
    let is_last = rest[len] == b'\n';
    let word = &rest[..len];
    let word = if is_last { word.strip_suffix(b"\r").unwrap_or(word) } else { word };
    match word.is_empty() {
        // A word that is not the last has at least one byte.
        true => Next::End(start + len + 1),
        false => Next::Word(word, start + len),
    }
}

/// Bytes of a data block. More than memcached's own limit is no length.
pub(super) fn data_len(word: &[u8]) -> Option<usize> {
    number(word).filter(|len| *len <= i32::MAX as u64 - 2).map(|len| len as usize)
}

/// When an item expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    Never,
    At(Timestamp),
    /// At once.
    Past,
}

impl Expiry {
    /// What an expiry time in seconds means at `now`.
    pub(super) fn of(seconds: i64, now: Timestamp) -> Self {
        let moment = match seconds {
            0 => return Expiry::Never,
            ..0 => return Expiry::Past,
            1..=MAX_RELATIVE => now.saturating_add(seconds as u64 * 1000),
            _ => (seconds as u64).saturating_mul(1000),
        };
        if moment <= now { Expiry::Past } else { Expiry::At(moment) }
    }
}

/// The bytes of a base64 word of the standard alphabet, padded; `None` if it is none.
pub(super) fn base64(word: &[u8]) -> Option<Vec<u8>> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    if word.is_empty() || !word.len().is_multiple_of(4) {
        return None;
    }
    let digits = word.strip_suffix(b"==").or_else(|| word.strip_suffix(b"=")).unwrap_or(word);
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let bits =
            group.iter().try_fold(0u32, |bits, byte| Some(bits << 6 | u32::from(value(*byte)?)))?;
        let bits = bits << (6 * (4 - group.len()));
        // Bits beyond the last byte must be zero, or two words would be one key.
        let (used, [_, all @ ..]) = (group.len() * 3 / 4, bits.to_be_bytes());
        if group.len() == 1 || all[used..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&all[..used]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_time_relative_up_to_thirty_days() {
        let now = 1_800_000_000_000;
        assert_eq!(Expiry::of(0, now), Expiry::Never);
        assert_eq!(Expiry::of(-1, now), Expiry::Past);
        assert_eq!(Expiry::of(i64::MIN, now), Expiry::Past);
        assert_eq!(Expiry::of(1, now), Expiry::At(now + 1000));
        assert_eq!(Expiry::of(2_592_000, now), Expiry::At(now + 2_592_000_000));
        assert_eq!(Expiry::of(2_592_001, now), Expiry::Past);
        assert_eq!(Expiry::of(1_800_000_001, now), Expiry::At(now + 1000));
        assert_eq!(Expiry::of(i64::MAX, now), Expiry::At(u64::MAX));
    }

    #[test]
    fn seconds_beyond_32_bits_wrap() {
        for (word, expected) in [
            ("2147483647", 2_147_483_647),
            ("2147483648", -2_147_483_648),
            ("4294967296", 0),
            ("4294967297", 1),
            ("-2147483649", 2_147_483_647),
        ] {
            assert_eq!(seconds(word.as_bytes()), Some(expected), "{word}");
        }
        assert_eq!(seconds(b"9223372036854775808"), None);
    }

    #[test]
    fn next_walks_over_words_to_the_end_of_the_line() {
        let line = b"  get a  bc\r\nnext";
        assert_eq!(next(line, 0), Next::Word(b"get", 5));
        assert_eq!(next(line, 5), Next::Word(b"a", 7));
        assert_eq!(next(line, 7), Next::Word(b"bc", 12));
        assert_eq!(next(line, 12), Next::End(13));
        for (cut, position) in [("get", 0), ("  ", 2), ("", 0), ("a\r", 0)] {
            assert_eq!(next(cut.as_bytes(), 0), Next::Incomplete(position), "{cut}");
        }
        assert_eq!(next(b"\r\n", 0), Next::End(2));
        assert_eq!(next(b" \n", 0), Next::End(2));
    }

    #[test]
    fn are_numbers_strict() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        for bad in ["", "-", "+1", "1x", " 1", "18446744073709551616"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(signed(b"9223372036854775808"), None);
    }

    #[test]
    fn are_keys_short_and_without_control_characters() {
        assert!(key(&[b'k'; 250]).is_some() && key("schlüssel".as_bytes()).is_some());
        for bad in [&[b'k'; 251][..], b"", b"a\tb", b"a\0", b"\x7f"] {
            assert_eq!(key(bad), None);
        }
    }

    #[test]
    fn is_base64_read_in_one_way_only() {
        for (word, bytes) in
            [("YQ==", &b"a"[..]), ("YWI=", b"ab"), ("YWJj", b"abc"), ("/+8A", &[255, 239, 0])]
        {
            assert_eq!(base64(word.as_bytes()).as_deref(), Some(bytes), "{word}");
        }
        for bad in ["", "a", "YQ=", "YR==", "YWJ=", "Y===", "====", "Y Q=", "YQ==YQ=="] {
            assert_eq!(base64(bad.as_bytes()), None, "{bad}");
        }
    }
}
