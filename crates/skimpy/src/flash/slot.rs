//! A page in a file: a header that identifies it, then its bytes.
//!
//! ```text
//!    0  life        u64, 1 + number of erases of the block when the page was programmed
//!    8  data sum    u32, CRC-32C of the page's number (u32), life and bytes
//!   12  head sum    u32, CRC-32C of the page's number (u32) and bytes 0..12
//!   16  the page's bytes
//! ```
//!
//! All numbers are little-endian; slots start at multiples of 16, so a header is in one sector and
//! never torn. A header of zeros was never written. A page of an earlier life than its block's is
//! erased; so one write erases a block. A header with a wrong checksum is damage, and its page
//! counts as programmed and unreadable, not as erased.

/// The size of a slot beyond its page.
pub(super) const HEAD_BYTES: usize = 16;

/// The meaning of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    NeverWritten,
    /// Programmed in this life.
    Life(u64),
    Damaged,
}

/// The slot of a page.
pub(super) fn encode(page: u32, life: u64, bytes: &[u8]) -> Vec<u8> {
    let mut slot = Vec::with_capacity(HEAD_BYTES + bytes.len());
    slot.extend_from_slice(&life.to_le_bytes());
    slot.extend_from_slice(&data_sum(page, life, bytes).to_le_bytes());
    slot.extend_from_slice(&head_sum(page, &slot).to_le_bytes());
    slot.extend_from_slice(bytes);
    slot
}

/// Decodes the header of a page's slot.
pub(super) fn head(page: u32, head: &[u8; HEAD_BYTES]) -> Head {
    let (said, sum) = head.split_at(12);
    if head == &[0; HEAD_BYTES] {
        return Head::NeverWritten;
    }
    match head_sum(page, said).to_le_bytes() == sum {
        true => Head::Life(life_of(head)),
        false => Head::Damaged,
    }
}

/// Whether the page's slot is of this life and its checksums match.
pub(super) fn is_valid(page: u32, life: u64, head_bytes: &[u8; HEAD_BYTES], bytes: &[u8]) -> bool {
    head(page, head_bytes) == Head::Life(life)
        && head_bytes[8..12] == data_sum(page, life, bytes).to_le_bytes()
}

fn life_of(head: &[u8; HEAD_BYTES]) -> u64 {
    let mut life = [0; 8];
    life.copy_from_slice(&head[..8]);
    u64::from_le_bytes(life)
}

fn data_sum(page: u32, life: u64, bytes: &[u8]) -> u32 {
    let seed = crc32c::crc32c_append(crc32c::crc32c(&page.to_le_bytes()), &life.to_le_bytes());
    crc32c::crc32c_append(seed, bytes)
}

fn head_sum(page: u32, said: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page.to_le_bytes()), said)
}
