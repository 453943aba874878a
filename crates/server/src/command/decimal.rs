//! Sums of decimal fractions, exact where they can be.
//!
//! `INCRBYFLOAT` on `0.1` by `0.2` should give `0.3`, which sums of doubles don't. So numbers of up
//! to 17 digits on either side of the point are added as integers at a common scale; all others as
//! doubles. The result is written without an exponent and without trailing zeros.

/// `a + b` as text; `None` if either is no number, or the sum is none that is finite.
pub(super) fn add(a: &[u8], b: &[u8]) -> Result<String, Mistake> {
    match (Fixed::parse(a), Fixed::parse(b)) {
        (Some(a), Some(b)) => Ok(a.plus(b).to_text()),
        _ => {
            let sum = parse_double(a)? + parse_double(b)?;
            if sum.is_finite() { Ok(format!("{sum}")) } else { Err(Mistake::NotFinite) }
        }
    }
}

/// Why there is no sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    NotANumber,
    NotFinite,
}

/// Checks that a text is a number.
pub(super) fn parse_double(text: &[u8]) -> Result<f64, Mistake> {
    let text = std::str::from_utf8(text).map_err(|_| Mistake::NotANumber)?;
    let value: f64 = text.parse().map_err(|_| Mistake::NotANumber)?;
    if value.is_nan() { Err(Mistake::NotANumber) } else { Ok(value) }
}

const SCALE: usize = 17;
const UNIT: i128 = 10i128.pow(SCALE as u32);

/// A number as so many times 10^-17.
#[derive(Clone, Copy)]
struct Fixed(i128);

impl Fixed {
    /// Reads `[-]digits[.digits]` with at most 17 digits on either side.
    fn parse(text: &[u8]) -> Option<Self> {
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let point = text.iter().position(|byte| *byte == b'.');
        let (whole, fraction) = match point {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, &text[..0]),
        };
        let is_short = |digits: &[u8]| digits.len() <= SCALE;
        if whole.is_empty() || !is_short(whole) || !is_short(fraction) {
            return None;
        }
        let padding = std::iter::repeat_n(&b'0', SCALE - fraction.len());
        let mut value = 0i128;
        for digit in whole.iter().chain(fraction).chain(padding) {
            if !digit.is_ascii_digit() {
                return None;
            }
            // 34 digits fit into 128 bits with room to spare.
            value = value * 10 + i128::from(digit - b'0');
        }
        Some(Fixed(if negative { -value } else { value }))
    }

    fn plus(self, other: Self) -> Self {
        Fixed(self.0 + other.0)
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
    fn sums_are_exact_and_plain() {
        let cases = [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3.0", "1.000000000000000005", "4"),
            ("1", "-1", "0"),
            ("-0.5", "0.25", "-0.25"),
            ("99999999999999999", "1", "100000000000000000"),
            ("-1", "0.00000000000000001", "-0.99999999999999999"),
            ("1e17", "1", "100000000000000000"),
        ];
        for (a, b, sum) in cases {
            assert_eq!(add(a.as_bytes(), b.as_bytes()).as_deref(), Ok(sum), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_finite_number_is_refused() {
        for bad in ["", "x", " 1", "1 ", "nan", "1.2.3", "0x10"] {
            assert_eq!(add(bad.as_bytes(), b"1"), Err(Mistake::NotANumber), "{bad}");
        }
        assert_eq!(add(b"inf", b"1"), Err(Mistake::NotFinite));
        assert_eq!(add(b"1.7e308", b"1.7e308"), Err(Mistake::NotFinite));
    }
}
