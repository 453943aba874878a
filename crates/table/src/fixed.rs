//! Fixed-width little-endian integers, decoded from the front of a slice.

/// Decodes a `u32`; `None` if there are fewer than four bytes.
pub fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (value, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*value))
}

/// Decodes a `u64`; `None` if there are fewer than eight bytes.
pub fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (value, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*value))
}
