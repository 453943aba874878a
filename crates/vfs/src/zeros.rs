//! Whether bytes are zeros: those of a hole, or of space that was never written.

/// Whether all bytes are 0. Reads 16 bytes at a time, until the first that are not.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_one_bit_set_are_not_zero() {
        for len in 0..70 {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            for at in 0..len {
                bytes[at] = 1 << (at % 8);
                assert!(!is_zero(&bytes), "byte {at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}
