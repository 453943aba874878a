//! Little-endian numbers of fixed width, taken from the front of bytes.
//!
//! Source: ours.

/// Takes a number of four bytes; `None` if there are fewer.
pub fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (value, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*value))
}

/// Takes a number of eight bytes; `None` if there are fewer.
pub fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (value, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*value))
}
