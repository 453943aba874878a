//! Writes the primitive parts of the format: lengths and strings. Their layout is in
//! [`crate::source`].
//!
//! Strings are written as they are, or as integers; never compressed.

/// Parses a decimal number that has no other spelling.
pub(crate) fn canonical_integer(bytes: &[u8]) -> Option<i64> {
    // `-9223372036854775808` has 20 bytes.
    if bytes.is_empty() || bytes.len() > 20 {
        return None;
    }
    let number: i64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    // `-0`, `+1` and `01` are other spellings.
    (number.to_string().as_bytes() == bytes).then_some(number)
}

pub(crate) fn put_length(out: &mut Vec<u8>, length: u64) {
    match length {
        0..=0x3f => out.push(length as u8),
        0x40..=0x3fff => out.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
        0x4000..=0xffff_ffff => {
            out.push(0x80);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

pub(crate) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    if let Some(number) = canonical_integer(bytes) {
        if let Ok(number) = i8::try_from(number) {
            out.extend_from_slice(&[0xc0, number as u8]);
            return;
        }
        if let Ok(number) = i16::try_from(number) {
            out.push(0xc1);
            out.extend_from_slice(&number.to_le_bytes());
            return;
        }
        if let Ok(number) = i32::try_from(number) {
            out.push(0xc2);
            out.extend_from_slice(&number.to_le_bytes());
            return;
        }
    }
    put_bytes(out, bytes);
}

/// A string as it is.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strings_and_lengths_round_trip(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            number: i64,
            shift in 0..64u32,
        ) {
            let number = number >> shift;
            let mut out = Vec::new();
            put_string(&mut out, &bytes);
            put_string(&mut out, number.to_string().as_bytes());
            put_length(&mut out, number.unsigned_abs());
            let mut source = Source::new(&out[..], 1 << 20, false);
            prop_assert_eq!(source.string().unwrap(), bytes);
            prop_assert_eq!(source.string().unwrap(), number.to_string().into_bytes());
            prop_assert_eq!(source.length().unwrap(), number.unsigned_abs());
            prop_assert!(source.is_at_end().unwrap());
        }
    }

    #[test]
    fn other_spellings_of_a_number_are_no_integers() {
        for text in ["", "-", "-0", "+1", "01", " 1", "1.0", "9223372036854775808"] {
            assert_eq!(canonical_integer(text.as_bytes()), None, "{text}");
        }
        assert_eq!(canonical_integer(b"-9223372036854775808"), Some(i64::MIN));
    }
}
