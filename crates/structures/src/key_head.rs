//! The first 8 bytes of a key, to compare keys as integers.

/// The first 8 bytes as a big-endian integer, padded with zeros. Unequal heads order keys as their
/// bytes do; equal heads decide nothing, because a short key may end in real zeros.
///
/// Source: Graefe, Larson, "B-tree indexes and CPU caches", ICDE 2001 (poor man's normalized keys).
#[inline]
pub fn key_head(key: &[u8]) -> u64 {
    if let Some(bytes) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}
