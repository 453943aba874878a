//! Integers in the protocol: strict decimal, optional `-`, no leading zeros.
//!
//! Redis distinguishes the integer `1` from the string `01`, so `INCR` must reject what
//! `str::parse` accepts (`+1`, `01`, `-0`).

/// Parses a strict decimal integer.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ => {}
    }
    // Accumulated as a negative number, whose range is larger by one.
    let mut value = 0i64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Parses a strict decimal integer of at least zero.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        [] => None,
        [b'0'] => Some(0),
        [b'0', ..] => None,
        digits => digits.iter().try_fold(0u64, |value, &digit| {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
            value.checked_mul(10)?.checked_add(digit)
        }),
    }
}

/// Decimal digits of an integer, without allocation.
#[derive(Debug, Clone, Copy)]
pub struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    /// The digits of `value`.
    pub fn new(value: i64) -> Self {
        let mut digits = Self::unsigned(value.unsigned_abs());
        if value < 0 {
            digits.start -= 1;
            digits.bytes[digits.start] = b'-';
        }
        digits
    }

    /// The digits of an unsigned number.
    pub fn unsigned(value: u64) -> Self {
        let mut bytes = [0; 20];
        let (mut start, mut rest) = (bytes.len(), value);
        loop {
            start -= 1;
            bytes[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Digits { bytes, start }
    }

    /// The digits as text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Formats a floating-point number as Redis 7.2 does: the shortest digits that read back as the
/// same number, with an exponent if there would be many zeros.
pub fn format_double(value: f64) -> String {
    const MAX_INTEGER: f64 = (i64::MAX / 2) as f64;
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if value.abs() <= MAX_INTEGER && value.fract() == 0.0 {
        return (value as i64).to_string();
    }
    // d.dddde±n: the digits without the point, and the power of ten of the first one.
    let text = format!("{:e}", value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = digits.len() as i32;
    // Power of ten of the last digit.
    let last = exponent - count + 1;
    let magnitude = exponent.abs();
    let sign = if value < 0.0 { "-" } else { "" };
    if last >= 0 && magnitude < count + 7 {
        return format!("{sign}{digits}{}", "0".repeat(last as usize));
    }
    if last < 0 && (last > -7 || magnitude < 4) {
        return match count + last {
            whole @ 1.. => {
                format!("{sign}{}.{}", &digits[..whole as usize], &digits[whole as usize..])
            }
            zeros => format!("{sign}0.{}{digits}", "0".repeat(-zeros as usize)),
        };
    }
    let (head, tail) = digits.split_at(1);
    let point = if tail.is_empty() { "" } else { "." };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{head}{point}{tail}e{exponent_sign}{magnitude}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [1i64 << shift, (1i64 << shift).wrapping_sub(1), i64::MIN >> shift, 0] {
                assert_eq!(parse_i64(Digits::new(value).as_bytes()), Some(value));
            }
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn doubles_have_redis_s_form() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-3.5, "-3.5"),
            (0.1, "0.1"),
            (3.1, "3.1"),
            (1e17, "100000000000000000"),
            (4.611686018427388e18, "4611686018427387904"),
            (1e19, "1e+19"),
            (1.5e300, "1.5e+300"),
            (-1.5e-9, "-1.5e-9"),
            (0.000001, "0.000001"),
            (0.00012345, "1.2345e-4"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (123456.789, "123456.789"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(format_double(value), text);
        }
    }

    #[test]
    fn non_canonical_integers_are_rejected() {
        for bad in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "-01",
            " 1",
            "1 ",
            "1.0",
            "0x1",
            "1e3",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999",
        ] {
            assert_eq!(parse_i64(bad.as_bytes()), None, "{bad:?}");
        }
        for bad in ["", "-1", "00", "18446744073709551616"] {
            assert_eq!(parse_u64(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
