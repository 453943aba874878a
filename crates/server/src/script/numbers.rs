//! Numbers as text, in C's format `%g`, which Lua and its libraries use.

/// Formats as `%.{precision}g`.
pub(super) fn format_g(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let precision = precision.max(1);
    let text = format!("{:.*e}", precision - 1, value);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

/// Text without zeros at the end of its fraction.
fn without_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_form_of_c() {
        for (value, precision, text) in [
            (0.1, 17, "0.10000000000000001"),
            (0.1, 14, "0.1"),
            (1e100, 14, "1e+100"),
            (12345678901234567.0, 17, "12345678901234568"),
            (12345678901234567.0, 14, "1.2345678901235e+16"),
            (-0.0, 17, "-0"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
            (100.0, 14, "100"),
            (1.5, 1, "2"),
        ] {
            assert_eq!(format_g(value, precision), text);
        }
    }
}
