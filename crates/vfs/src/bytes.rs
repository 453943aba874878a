//! The content of a file in memory: sparse, with copy-on-write clones.
//!
//! A map from chunk number to a shared chunk of 16 KiB. A clone shares all chunks; the first write
//! to a shared chunk copies it. A chunk has a bit for each of its 32 sectors that says whether the
//! sector is allocated, so holes cost nothing and a full disk can be simulated to the sector.
//!
//! Invariant: a byte of a sector whose bit is clear is zero, and so is every byte at or past the
//! length; a chunk without bits is not in the map.
//!
//! A clone of a whole directory costs a pointer per chunk, so a test can check thousands of power
//! cuts.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The unit that a device writes atomically, in bytes.
pub const SECTOR_BYTES: u64 = 512;

const CHUNK_BYTES: u64 = 32 * SECTOR_BYTES;

/// The maximum length in bytes, that of `off_t`.
const MAX_BYTES: u64 = i64::MAX as u64;

/// `offset + len`, if that is a valid length.
pub fn end_of(offset: u64, len: u64) -> Option<u64> {
    offset.checked_add(len).filter(|&end| end <= MAX_BYTES)
}

/// Sparse bytes with a length. A clone costs a pointer per chunk.
#[derive(Clone, Default)]
pub struct SparseBytes {
    len: u64,
    chunks: BTreeMap<u64, Arc<Chunk>>,
    allocated_sectors: u64,
}

#[derive(Clone)]
struct Chunk {
    allocated: u32,
    bytes: [u8; CHUNK_BYTES as usize],
}

impl SparseBytes {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The allocated space in bytes: whole sectors, without holes.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_sectors * SECTOR_BYTES
    }

    /// Fills `buf` from `offset`; returns `false` without reading if the range ends past the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> bool {
        if end_of(offset, buf.len() as u64).is_none_or(|end| end > self.len) {
            return false;
        }
        let mut rest = buf;
        for piece in pieces(offset, offset + rest.len() as u64) {
            let (head, tail) = rest.split_at_mut(piece.len());
            match self.chunks.get(&piece.chunk) {
                Some(chunk) => head.copy_from_slice(&chunk.bytes[piece.start..piece.end]),
                None => head.fill(0),
            }
            rest = tail;
        }
        true
    }

    /// Writes `bytes` at `offset`, growing if necessary. The caller has checked [`end_of`].
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let mut rest = bytes;
        for piece in pieces(offset, end) {
            let (head, tail) = rest.split_at(piece.len());
            let chunk = self.chunks.entry(piece.chunk).or_insert_with(Chunk::empty);
            let chunk = Arc::make_mut(chunk);
            chunk.bytes[piece.start..piece.end].copy_from_slice(head);
            let added = piece.touched() & !chunk.allocated;
            chunk.allocated |= added;
            self.allocated_sectors += u64::from(added.count_ones());
            rest = tail;
        }
        if !bytes.is_empty() {
            self.len = self.len.max(end);
        }
    }

    /// Zeros a range and deallocates the sectors that are completely in it. The length and the
    /// bytes past it are unchanged.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        // The last sector is deallocated completely if no byte of the file remains in it.
        let end = if end >= self.len { self.len.next_multiple_of(SECTOR_BYTES) } else { end };
        self.erase(offset, end);
    }

    /// Truncates, or extends with a hole.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.erase(len, self.len.next_multiple_of(SECTOR_BYTES));
        }
        self.len = len;
    }

    /// The space in bytes that a write to this range would allocate.
    pub fn missing_bytes(&self, offset: u64, len: u64) -> u64 {
        let missing = |piece: Piece| {
            let allocated = self.chunks.get(&piece.chunk).map_or(0, |chunk| chunk.allocated);
            u64::from((piece.touched() & !allocated).count_ones())
        };
        pieces(offset, offset + len).map(missing).sum::<u64>() * SECTOR_BYTES
    }

    fn erase(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let span = from / CHUNK_BYTES..=(to - 1) / CHUNK_BYTES;
        let there: Vec<u64> = self.chunks.range(span).map(|(&number, _)| number).collect();
        for number in there {
            let base = number * CHUNK_BYTES;
            let piece = Piece {
                chunk: number,
                start: from.saturating_sub(base) as usize,
                end: (to - base).min(CHUNK_BYTES) as usize,
            };
            let Some(chunk) = self.chunks.get_mut(&number) else { continue };
            let freed = piece.covered() & chunk.allocated;
            self.allocated_sectors -= u64::from(freed.count_ones());
            if freed == chunk.allocated {
                self.chunks.remove(&number);
                continue;
            }
            let chunk = Arc::make_mut(chunk);
            chunk.bytes[piece.start..piece.end].fill(0);
            chunk.allocated &= !freed;
        }
    }
}

impl Chunk {
    fn empty() -> Arc<Self> {
        Arc::new(Chunk { allocated: 0, bytes: [0; CHUNK_BYTES as usize] })
    }
}

/// The part of a range that is in one chunk.
struct Piece {
    chunk: u64,
    start: usize,
    end: usize,
}

impl Piece {
    fn len(&self) -> usize {
        self.end - self.start
    }

    /// The bits of the sectors that it overlaps.
    fn touched(&self) -> u32 {
        bits(self.start / SECTOR_BYTES as usize, self.end.div_ceil(SECTOR_BYTES as usize))
    }

    /// The bits of the sectors that it covers completely.
    fn covered(&self) -> u32 {
        bits(self.start.div_ceil(SECTOR_BYTES as usize), self.end / SECTOR_BYTES as usize)
    }
}

/// Bits `from..to` of 32.
fn bits(from: usize, to: usize) -> u32 {
    let below = |n: usize| (1u64 << n) - 1;
    if from >= to { 0 } else { (below(to) & !below(from)) as u32 }
}

fn pieces(from: u64, to: u64) -> impl Iterator<Item = Piece> {
    let mut at = from;
    std::iter::from_fn(move || {
        if at >= to {
            return None;
        }
        let chunk = at / CHUNK_BYTES;
        let base = chunk * CHUNK_BYTES;
        let end = (to - base).min(CHUNK_BYTES);
        let piece = Piece { chunk, start: (at - base) as usize, end: end as usize };
        at = base + end;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &SparseBytes) -> Vec<u8> {
        let mut out = vec![7; bytes.len() as usize];
        assert!(bytes.read(0, &mut out));
        out
    }

    /// Compares with a vector of bytes.
    #[test]
    fn sparse_bytes_behave_like_a_vector() {
        let mut random = siltstone_structures::SplitMix64::new(11);
        for _ in 0..50 {
            let mut sparse = SparseBytes::default();
            let mut plain: Vec<u8> = Vec::new();
            for _ in 0..40 {
                let offset = random.below(3 * CHUNK_BYTES);
                let len = random.below(CHUNK_BYTES + 2000);
                let (from, to) = (offset as usize, (offset + len) as usize);
                match random.below(3) {
                    0 => {
                        let value = random.below(256) as u8;
                        sparse.write(offset, &vec![value; len as usize]);
                        if len > 0 {
                            plain.resize(plain.len().max(to), 0);
                            plain[from..to].fill(value);
                        }
                    }
                    1 => {
                        sparse.zero(offset, len);
                        let end = to.min(plain.len());
                        if from < end {
                            plain[from..end].fill(0);
                        }
                    }
                    _ => {
                        sparse.set_len(offset);
                        plain.resize(from, 0);
                    }
                }
                assert_eq!(all(&sparse), plain);
                let counted: u32 = sparse.chunks.values().map(|c| c.allocated.count_ones()).sum();
                assert_eq!(sparse.allocated_sectors, u64::from(counted));
            }
        }
    }

    #[test]
    fn clone_is_isolated_and_holes_are_deallocated() {
        let mut bytes = SparseBytes::default();
        bytes.write(100, &[1; 3000]);
        assert_eq!(bytes.allocated_bytes(), 7 * SECTOR_BYTES);
        assert_eq!(bytes.missing_bytes(0, 4096), SECTOR_BYTES);
        let copy = bytes.clone();
        bytes.zero(0, 1024);
        assert_eq!(bytes.allocated_bytes(), 5 * SECTOR_BYTES);
        bytes.set_len(1);
        assert_eq!(bytes.allocated_bytes(), 0);
        assert_eq!(all(&copy)[100..], [1; 3000]);
    }
}
