//! Decompression of LZF, by which Redis compresses strings.
//!
//! ```text
//!   000nnnnn  bytes             n + 1 bytes as they are
//!   lllooooo  o:u8              l + 2 bytes from a distance of o + 1       l is 1 to 6
//!   111ooooo  l:u8  o:u8        l + 9 bytes from a distance of o + 1
//! ```
//!
//! Offsets have 13 bits, the upper five first. A copy may overlap its own output.

/// Maximum output per byte of input: a copy of 264 bytes takes 3.
const MAX_EXPANSION: usize = 88;

/// Decompresses to exactly `len` bytes.
///
/// # Errors
/// Why the input is not of this format or length.
pub(crate) fn decompress(input: &[u8], len: usize) -> Result<Vec<u8>, &'static str> {
    const CUT: &str = "a compressed string ends in the middle of a code";
    const WRONG_LEN: &str = "a compressed string has another length than announced";
    // Before anything is allocated.
    if len > input.len().saturating_mul(MAX_EXPANSION) {
        return Err(WRONG_LEN);
    }
    let mut output = Vec::with_capacity(len);
    let mut rest = input;
    while let Some((&code, after)) = rest.split_first() {
        rest = after;
        if code < 32 {
            let (literal, after) = rest.split_at_checked(usize::from(code) + 1).ok_or(CUT)?;
            output.extend_from_slice(literal);
            rest = after;
        } else {
            let mut copied = usize::from(code >> 5);
            if copied == 7 {
                let (&more, after) = rest.split_first().ok_or(CUT)?;
                copied += usize::from(more);
                rest = after;
            }
            copied += 2;
            let (&low, after) = rest.split_first().ok_or(CUT)?;
            rest = after;
            let distance = (usize::from(code & 31) << 8 | usize::from(low)) + 1;
            let start = output.len().checked_sub(distance);
            let start = start.ok_or("a compressed string copies from before its beginning")?;
            if copied > len - output.len().min(len) {
                return Err(WRONG_LEN);
            }
            for at in start..start + copied {
                output.push(output[at]);
            }
        }
        if output.len() > len {
            return Err(WRONG_LEN);
        }
    }
    if output.len() == len { Ok(output) } else { Err(WRONG_LEN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_copies_are_decompressed() {
        // "ab", then 3 bytes from 2 back, then 10 bytes from 1 back.
        let input = [1, b'a', b'b', 1 << 5, 1, 7 << 5, 1, 0];
        assert_eq!(decompress(&input, 15).unwrap(), b"ababaaaaaaaaaaa");
        for len in [0, 14, 16, usize::MAX] {
            assert!(decompress(&input, len).is_err(), "{len}");
        }
        for cut in 1..input.len() {
            assert!(decompress(&input[..cut], 15).is_err(), "{cut}");
        }
        assert!(decompress(&[0, b'a', 1 << 5, 1], 4).is_err(), "from before the beginning");
        assert_eq!(decompress(&[], 0).unwrap(), b"");
    }
}
