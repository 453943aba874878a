//! The length of the common prefix of two keys.

/// The length of the longest common prefix, in bytes.
#[inline]
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let mut at = 0;
    for (x, y) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return at + differing.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(x, y)| x == y).count()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn common_prefix_of_any_length_is_found() {
        let key: Vec<u8> = (0..40).collect();
        for end in 0..=key.len() {
            assert_eq!(common_prefix_len(&key[..end], &key), end);
            for at in 0..end {
                let mut other = key[..end].to_vec();
                other[at] ^= 0x80;
                assert_eq!(common_prefix_len(&other, &key), at);
                assert_eq!(common_prefix_len(&key, &other), at);
            }
        }
    }
}
