//! Words of a line: keys, numbers, times.
//!
//! Source: memcached's `doc/protocol.txt`, "Keys" and "Expiration times".

use siltstone_engine::Timestamp;

/// Maximum key length, in bytes.
pub(super) const MAX_KEY_BYTES: usize = 250;
/// Maximum expiry relative to now, in seconds; a larger one is a Unix time.
const MAX_RELATIVE_SECONDS: i64 = 60 * 60 * 24 * 30;

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// Validates a key.
#[inline]
pub(super) fn key(word: &[u8]) -> Option<&[u8]> {
    let is_printable = word.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    ((1..=MAX_KEY_BYTES).contains(&word.len()) && is_printable).then_some(word)
}

/// Parses an unsigned decimal number.
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

/// Parses a signed decimal number.
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    match word {
        [b'-', digits @ ..] => 0i64.checked_sub_unsigned(number(digits)?),
        digits => number(digits)?.try_into().ok(),
    }
}

/// Parses a time in seconds. As in memcached it has 32 bits, so larger numbers wrap.
pub(super) fn seconds(word: &[u8]) -> Option<i64> {
    Some(i64::from(signed(word)? as i32))
}

/// Next element of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineToken<'a> {
    /// A word, and the position after it.
    Word(&'a [u8], usize),
    /// The end of the line, and the position after it.
    End(usize),
    /// Incomplete; a partial word starts here.
    Incomplete(usize),
}

/// Next element of a line at a position of `input`, which may end within the line.
#[inline]
pub(super) fn next(input: &[u8], at: usize) -> LineToken<'_> {
    let spaces = input[at..].iter().take_while(|byte| **byte == b' ').count();
    let start = at + spaces;
    let rest = &input[start..];
    let Some(len) = rest.iter().position(|byte| *byte == b' ' || *byte == b'\n') else {
        return LineToken::Incomplete(start);
    };
    let is_last = rest[len] == b'\n';
    let word = &rest[..len];
    let word = if is_last { word.strip_suffix(b"\r").unwrap_or(word) } else { word };
    match word.is_empty() {
        // Only the last word can be empty.
        true => LineToken::End(start + len + 1),
        false => LineToken::Word(word, start + len),
    }
}

/// Parses the length of a data block, up to memcached's limit.
pub(super) fn data_len(word: &[u8]) -> Option<usize> {
    number(word).filter(|len| *len <= i32::MAX as u64 - 2).map(|len| len as usize)
}

/// Expiry of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    Never,
    At(Timestamp),
    /// Expires at once.
    Past,
}

impl Expiry {
    /// Interprets an expiry time in seconds at time `now`.
    pub(super) fn of(seconds: i64, now: Timestamp) -> Self {
        let moment = match seconds {
            0 => return Expiry::Never,
            ..0 => return Expiry::Past,
            1..=MAX_RELATIVE_SECONDS => now.saturating_add(seconds as u64 * 1000),
            _ => (seconds as u64).saturating_mul(1000),
        };
        if moment <= now { Expiry::Past } else { Expiry::At(moment) }
    }
}

/// Decodes padded base64 of the standard alphabet.
pub(crate) fn base64(word: &[u8]) -> Option<Vec<u8>> {
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
        // Bits beyond the last byte must be zero, otherwise two words would decode to one key.
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
    fn time_is_relative_up_to_thirty_days() {
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
    fn next_iterates_over_the_words_of_a_line() {
        let line = b"  get a  bc\r\nnext";
        assert_eq!(next(line, 0), LineToken::Word(b"get", 5));
        assert_eq!(next(line, 5), LineToken::Word(b"a", 7));
        assert_eq!(next(line, 7), LineToken::Word(b"bc", 12));
        assert_eq!(next(line, 12), LineToken::End(13));
        for (cut, position) in [("get", 0), ("  ", 2), ("", 0), ("a\r", 0)] {
            assert_eq!(next(cut.as_bytes(), 0), LineToken::Incomplete(position), "{cut}");
        }
        assert_eq!(next(b"\r\n", 0), LineToken::End(2));
        assert_eq!(next(b" \n", 0), LineToken::End(2));
    }

    #[test]
    fn invalid_numbers_are_rejected() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        for bad in ["", "-", "+1", "1x", " 1", "18446744073709551616"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(signed(b"9223372036854775808"), None);
    }

    #[test]
    fn long_keys_and_control_characters_are_rejected() {
        assert!(key(&[b'k'; 250]).is_some() && key("schlüssel".as_bytes()).is_some());
        for bad in [&[b'k'; 251][..], b"", b"a\tb", b"a\0", b"\x7f"] {
            assert_eq!(key(bad), None);
        }
    }

    #[test]
    fn base64_decoding_is_unambiguous() {
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
