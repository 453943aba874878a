//! Sums of decimal fractions, exact where possible.
//!
//! `INCRBYFLOAT` on `0.1` by `0.2` should give `0.3`, which doubles do not. So numbers of up to 20
//! digits before the point and 17 after it are added as scaled integers; all others as doubles. The
//! result has no exponent and no trailing zeros.
//!
//! Hexadecimal numbers (`0x10`, `-0xA.8p1`) are accepted as by `strtold`, which Redis uses. They
//! are read as doubles, which represent up to 53 bits exactly.
//!
//! Source: the documentation of Redis's INCRBYFLOAT; ISO C, "The strtod, strtof, and strtold
//! functions".

use std::borrow::Cow;

/// `a + b` as text; an error if either is not a number, or the sum is not finite.
pub(super) fn add(a: &[u8], b: &[u8]) -> Result<String, DecimalError> {
    let [a, b] = [a, b].map(|text| match parse_hexadecimal(text) {
        Some(value) => Cow::Owned(value.to_string().into_bytes()),
        None => Cow::Borrowed(text),
    });
    let (a, b) = (a.as_ref(), b.as_ref());
    match (FixedPoint::parse(a), FixedPoint::parse(b)) {
        (Some(a), Some(b)) => Ok(a.plus(b).to_text()),
        _ => {
            let sum = parse_double(a)? + parse_double(b)?;
            if sum.is_finite() { Ok(format!("{sum}")) } else { Err(DecimalError::NotFinite) }
        }
    }
}

/// Why there is no sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecimalError {
    NotANumber,
    NotFinite,
}

/// Parses a number.
pub(super) fn parse_double(text: &[u8]) -> Result<f64, DecimalError> {
    if let Some(value) = parse_hexadecimal(text) {
        return Ok(value);
    }
    let text = std::str::from_utf8(text).map_err(|_| DecimalError::NotANumber)?;
    let value: f64 = text.parse().map_err(|_| DecimalError::NotANumber)?;
    if value.is_nan() { Err(DecimalError::NotANumber) } else { Ok(value) }
}

/// Parses `[sign]0xdigits[.digits][p exponent]`; `None` for anything else. Digits beyond 64 bits
/// only affect the magnitude.
fn parse_hexadecimal(text: &[u8]) -> Option<f64> {
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let text = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))?;
    let (digits, exponent) = match text.iter().position(|byte| b"pP".contains(byte)) {
        Some(at) => {
            let exponent = std::str::from_utf8(&text[at + 1..]).ok()?;
            (&text[..at], exponent.parse::<i32>().ok()?)
        }
        None => (text, 0),
    };
    let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &digits[..0]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut mantissa, mut shift) = (0u64, i64::from(exponent));
    for (index, digit) in whole.iter().chain(fraction).enumerate() {
        let digit = u64::from(char::from(*digit).to_digit(16)?);
        let is_fraction = index >= whole.len();
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            shift -= if is_fraction { 4 } else { 0 };
        } else if !is_fraction {
            shift += 4;
        }
    }
    if mantissa == 0 {
        return Some(0.0);
    }
    // In two steps, so that neither factor overflows where the product does not.
    let shift = i32::try_from(shift.clamp(-2200, 2200)).ok()?;
    let value = mantissa as f64 * 2f64.powi(shift / 2) * 2f64.powi(shift - shift / 2);
    Some(if is_negative { -value } else { value })
}

const SCALE_DIGITS: i32 = 17;
const UNIT: i128 = 10i128.pow(SCALE_DIGITS as u32);

/// A number in units of 10^-17.
#[derive(Clone, Copy)]
struct FixedPoint(i128);

impl FixedPoint {
    /// Parses `[sign]digits[.digits][e exponent]`; `None` if digits would be lost, or if it is not
    /// a number.
    fn parse(text: &[u8]) -> Option<Self> {
        let (is_negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let (text, exponent) = match text.iter().position(|byte| b"eE".contains(byte)) {
            Some(at) => (&text[..at], std::str::from_utf8(&text[at + 1..]).ok()?.parse().ok()?),
            None => (text, 0i32),
        };
        let (whole, fraction) = match text.iter().position(|byte| *byte == b'.') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, &text[..0]),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut value = 0i128;
        for digit in whole.iter().chain(fraction) {
            let digit = digit.is_ascii_digit().then(|| i128::from(digit - b'0'))?;
            value = value.checked_mul(10)?.checked_add(digit)?;
        }
        // Power of ten by which the digits are scaled to units.
        let shift =
            exponent.checked_sub(fraction.len().try_into().ok()?)?.checked_add(SCALE_DIGITS)?;
        let power = 10i128.checked_pow(shift.unsigned_abs())?;
        let value = match shift < 0 {
            true if value % power != 0 => return None,
            true => value / power,
            false => value.checked_mul(power)?,
        };
        // The sum of two must not overflow.
        (value <= i128::MAX / 2).then_some(FixedPoint(if is_negative { -value } else { value }))
    }

    fn plus(self, other: Self) -> Self {
        FixedPoint(self.0 + other.0)
    }

    fn to_text(self) -> String {
        let (whole, fraction) =
            (self.0.unsigned_abs() / UNIT as u128, self.0.unsigned_abs() % UNIT as u128);
        let sign = if self.0 < 0 { "-" } else { "" };
        let text = format!("{sign}{whole}.{fraction:017}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_without_exponent() {
        let cases = [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3.0", "1.000000000000000005", "4"),
            ("1", "-1", "0"),
            ("-0.5", "0.25", "-0.25"),
            ("99999999999999999", "1", "100000000000000000"),
            ("-1", "0.00000000000000001", "-0.99999999999999999"),
            ("1e17", "1", "100000000000000001"),
            ("123456789012345678", "0.5", "123456789012345678.5"),
            ("9223372036854775807", "1e3", "9223372036854776807"),
            (
                "-99999999999999999999",
                "+0.00000000000000001",
                "-99999999999999999998.99999999999999999",
            ),
            ("1e-17", "2E-17", "0.00000000000000003"),
            (".5", "5.", "5.5"),
            ("0.12345678901234567", "-12e-2", "0.00345678901234567"),
            ("1e30", "1", "1000000000000000000000000000000"),
            ("0e400", "1", "1"),
            ("0x10", "1", "17"),
            ("16", "0x1p3", "24"),
            ("24", "0X.8", "24.5"),
            ("24.5", "-0x10", "8.5"),
            ("0xA.8p1", "0.1", "21.1"),
            ("0xffffffffffffffffffp-8", "0", "18446744073709552000"),
            ("0x0p99999", "1", "1"),
        ];
        for (a, b, sum) in cases {
            assert_eq!(add(a.as_bytes(), b.as_bytes()).as_deref(), Ok(sum), "{a} + {b}");
        }
    }

    #[test]
    fn non_finite_and_invalid_numbers_are_rejected() {
        for bad in [
            "", "x", " 1", "1 ", "nan", "1.2.3", "0x", "0x.", "0xg", "0x1p", "0x1p1.5", "10x1",
            ".", "+-1", "1e", "e1", "1e1.5", "--1",
        ] {
            assert_eq!(add(bad.as_bytes(), b"1"), Err(DecimalError::NotANumber), "{bad}");
        }
        assert_eq!(add(b"inf", b"1"), Err(DecimalError::NotFinite));
        assert_eq!(add(b"1.7e308", b"1.7e308"), Err(DecimalError::NotFinite));
    }
}
