//! Sliced Bloom filter: blocked filters of equal size, transposed, so that one query asks them all.
//!
//! ```text
//!   filters, a row of bits each           sliced: a row per bit, a column per filter
//!     a  [. 1 . . 1 1 . .]                  bit 0  [. . 1]
//!     b  [. . . 1 . 1 . .]       ──▶        bit 1  [1 . .]
//!     c  [1 . . . . 1 . 1]                  …      the AND of the rows of a key has a 1
//!                                           bit 7  [. . 1]    in the columns that may contain it
//! ```
//!
//! Eight columns are a *plane*, a byte of each row. A filter has up to 8 planes, so a row is read
//! as one integer, and a query reads as many rows as the filters have probes. All are in the rows
//! of one block: 512 rows of up to 8 bytes, a page. The columns have exactly the bits of the
//! filters that they were built from, and a plane can be taken apart into them again.
//!
//! Cost: a query touches up to 7 cache lines, in any order, for up to 64 filters; these would take
//! one line each. Memory: that of the filters.
//!
//! Invariant: no false negatives; a filter is immutable.
//!
//! Source: the bit-sliced signature file (Faloutsos and Christodoulakis, TOIS 1984; Goodwin et al.,
//! "BitFunnel", SIGIR 2017), here over blocked Bloom filters.

use super::blocked::{BITS, BLOCK, BlockedBloomView, block_of, each_bit};

/// Columns of a plane.
const COLUMNS: usize = 8;
/// Maximum number of planes: a row is read as one integer.
const MAX_PLANES: usize = 8;
/// Behind the rows, so that 8 bytes can be read from the start of each.
const PADDING: usize = 8;

/// Up to 64 blocked Bloom filters, one per column.
#[derive(Debug)]
pub struct SlicedBloom {
    /// Rows of `planes` bytes, then the padding.
    rows: Vec<u8>,
    blocks: usize,
    probes: u8,
    planes: usize,
}

/// Where the eight columns of a plane come from.
#[derive(Clone, Copy, Debug)]
pub enum PlaneSource<'a> {
    /// Filters, all of one size and number of probes.
    Filters([BlockedBloomView<'a>; COLUMNS]),
    /// A plane of a sliced filter.
    Plane(&'a SlicedBloom, usize),
}

impl PlaneSource<'_> {
    /// The number of blocks and of probes.
    fn shape(&self) -> (usize, u8) {
        match self {
            PlaneSource::Filters(filters) => filters[0].shape(),
            PlaneSource::Plane(sliced, _) => sliced.shape(),
        }
    }

    /// Copies the plane's bytes of the rows of a block, `stride` bytes apart.
    fn copy_block(&self, block: usize, rows: &mut [u8], stride: usize) {
        match self {
            PlaneSource::Filters(filters) => {
                let filters = filters.map(|filter| &filter.as_bytes()[block * BLOCK..][..BLOCK]);
                for (at, rows) in rows.chunks_mut(8 * stride).enumerate() {
                    let bytes = transpose(filters.map(|filter| filter[at]));
                    let places = rows.iter_mut().step_by(stride);
                    places.zip(bytes).for_each(|(to, from)| *to = from);
                }
            }
            PlaneSource::Plane(sliced, plane) => {
                let bytes = &sliced.rows[block * BITS * sliced.planes + plane..];
                let (places, bytes) =
                    (rows.iter_mut().step_by(stride), bytes.iter().step_by(sliced.planes));
                places.zip(bytes).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

impl SlicedBloom {
    /// The number of columns of a plane.
    pub const COLUMNS_PER_PLANE: usize = COLUMNS;
    /// The maximum number of planes.
    pub const MAX_PLANES: usize = MAX_PLANES;

    /// A filter of these planes: plane `i` has the columns from `8 * i` on. `None` if they differ
    /// in size or number of probes, or are none or too many. Cost: about 2 ns per row and plane.
    pub fn build(planes: &[PlaneSource<'_>]) -> Option<Self> {
        let (blocks, probes) = planes.first()?.shape();
        let is_uniform = planes.iter().all(|source| match source {
            PlaneSource::Filters(filters) => {
                filters.iter().all(|filter| filter.shape() == (blocks, probes))
            }
            PlaneSource::Plane(sliced, plane) => {
                sliced.shape() == (blocks, probes) && *plane < sliced.planes
            }
        });
        if !is_uniform || planes.len() > MAX_PLANES {
            return None;
        }
        let stride = planes.len();
        let mut rows = vec![0; blocks * BITS * stride + PADDING];
        // Block by block, so that the rows of all planes are written while they are in cache.
        for (block, rows) in rows.chunks_mut(BITS * stride).take(blocks).enumerate() {
            for (plane, source) in planes.iter().enumerate() {
                source.copy_block(block, &mut rows[plane..], stride);
            }
        }
        Some(SlicedBloom { rows, blocks, probes, planes: stride })
    }

    /// The columns whose filters may contain the hash: bit `i` stands for column `i`. Cost: up to
    /// one cache line per probe; no branch depends on the bits.
    #[inline]
    pub fn columns_of(&self, hash: u64) -> u64 {
        let first = block_of(hash, self.blocks) * BITS;
        let mut columns = u64::MAX >> (64 - COLUMNS * self.planes);
        each_bit(hash, self.probes, |bit| {
            let at = (first + bit) * self.planes;
            let row = self.rows.get(at..).and_then(|rows| rows.first_chunk());
            // There is a row for each bit; if there were none, nothing would be excluded.
            columns &= row.map_or(u64::MAX, |row| u64::from_le_bytes(*row));
        });
        columns
    }

    /// The bits of the eight filters of a plane.
    ///
    /// # Panics
    /// If there is no such plane.
    pub fn filters_of(&self, plane: usize) -> [Vec<u8>; COLUMNS] {
        assert!(plane < self.planes, "plane {plane} of {}", self.planes);
        let mut filters = [(); COLUMNS].map(|()| vec![0; self.blocks * BLOCK]);
        for at in 0..self.blocks * BLOCK {
            let row = |row: usize| self.rows[(at * 8 + row) * self.planes + plane];
            let bytes = transpose(std::array::from_fn(row));
            filters.iter_mut().zip(bytes).for_each(|(filter, byte)| filter[at] = byte);
        }
        filters
    }

    /// The number of planes.
    pub fn planes(&self) -> usize {
        self.planes
    }

    /// The number of blocks and of probes of its filters.
    pub fn shape(&self) -> (usize, u8) {
        (self.blocks, self.probes)
    }

    /// Resident bytes.
    pub fn memory_bytes(&self) -> usize {
        self.rows.capacity()
    }
}

/// Bit `i` of byte `j` becomes bit `j` of byte `i`.
///
/// Source: Warren, "Hacker's Delight", section 7-3, by swaps of ever larger blocks.
#[inline]
fn transpose(bytes: [u8; 8]) -> [u8; 8] {
    let mut x = u64::from_le_bytes(bytes);
    for (shift, mask) in
        [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)]
    {
        let swapped = (x ^ (x >> shift)) & mask;
        x ^= swapped ^ (swapped << shift);
    }
    x.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposed_bit_exchanges_row_and_column() {
        for (row, column) in (0..8).flat_map(|row| (0..8).map(move |column| (row, column))) {
            let mut bytes = [0; 8];
            bytes[row] = 1 << column;
            let mut expected = [0; 8];
            expected[column] = 1 << row;
            assert_eq!(transpose(bytes), expected, "{row} {column}");
        }
    }
}
