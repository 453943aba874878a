//! HyperLogLog in Redis's format: registers, their two encodings, and the estimate.
//!
//! ```text
//!   0       4         5        8                16
//!   "HYLL"  encoding  0 0 0    cardinality      registers
//!           u8                 u64, cached      0 dense: 16,384 registers of 6 bits, from the lowest bit up
//!                              (top bit: stale) 1 sparse: runs of equal registers
//!
//!   sparse   00nnnnnn             n + 1 registers of 0
//!            01nnnnnn nnnnnnnn    n + 1 registers of 0, n big-endian
//!            1vvvvvnn             n + 1 registers of v + 1
//! ```
//!
//! A value stays sparse up to `hll-sparse-max-bytes` and registers of up to 32. The cached
//! cardinality is never used or updated: each estimate counts the registers. Values can be copied
//! from and to Redis by GET and SET, and estimates are equal.
//!
//! Sources: the comments on the format in Redis's documentation of PFADD and `hyperloglog.c`;
//! A. Appleby, MurmurHash64A; O. Ertl, "New cardinality estimation algorithms for HyperLogLog
//! sketches", 2017, algorithm 6.

const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// Bits of a hash behind the index.
const PATTERN_BITS: u32 = 64 - INDEX_BITS;
const HEADER_BYTES: usize = 16;
const DENSE_BYTES: usize = REGISTERS * 6 / 8;
/// Largest register of the sparse encoding.
const MAX_SPARSE_REGISTER: u8 = 32;
const MAX_ZERO_RUN: usize = 64;
const MAX_VALUE_RUN: usize = 4;
const HASH_SEED: u64 = 0xadc8_3b19;

/// Why a value is not a HyperLogLog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormatError {
    /// It has another header or length.
    OtherValue,
    /// The runs do not add up to the registers.
    Corrupt,
}

/// A HyperLogLog in memory.
pub(super) struct HyperLogLog {
    registers: Vec<u8>,
    /// Stays set, as in Redis.
    is_dense: bool,
}

impl HyperLogLog {
    /// Without elements.
    pub(super) fn new() -> Self {
        HyperLogLog { registers: vec![0; REGISTERS], is_dense: false }
    }

    /// Adds an element, and returns whether a register changed.
    pub(super) fn add(&mut self, element: &[u8]) -> bool {
        let hash = murmur64a(element);
        let register = &mut self.registers[hash as usize % REGISTERS];
        let pattern = hash >> INDEX_BITS | 1 << PATTERN_BITS;
        let rank = pattern.trailing_zeros() as u8 + 1;
        let is_larger = rank > *register;
        *register = rank.max(*register);
        is_larger
    }

    /// Adds all elements of another one.
    pub(super) fn merge(&mut self, other: &Self) {
        self.is_dense |= other.is_dense;
        for (register, other) in self.registers.iter_mut().zip(&other.registers) {
            *register = (*register).max(*other);
        }
    }

    /// Estimated number of distinct elements.
    pub(super) fn count(&self) -> u64 {
        const ALPHA: f64 = 0.721_347_520_444_481_7;
        let mut histogram = [0f64; 64];
        self.registers.iter().for_each(|register| histogram[usize::from(*register)] += 1.0);
        let m = REGISTERS as f64;
        let last = PATTERN_BITS as usize;
        let mut z = m * tau((m - histogram[last + 1]) / m);
        for count in histogram[1..=last].iter().rev() {
            z = 0.5 * (z + count);
        }
        z += m * sigma(histogram[0] / m);
        (ALPHA * m * m / z).round() as u64
    }

    /// Decodes a value.
    pub(super) fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let Some((header, body)) = value.split_at_checked(HEADER_BYTES) else {
            return Err(FormatError::OtherValue);
        };
        if !header.starts_with(b"HYLL") {
            return Err(FormatError::OtherValue);
        }
        let mut registers = Vec::with_capacity(REGISTERS);
        match header[4] {
            0 if body.len() == DENSE_BYTES => {
                for three in body.chunks_exact(3) {
                    let bits =
                        u32::from(three[0]) | u32::from(three[1]) << 8 | u32::from(three[2]) << 16;
                    registers.extend((0..4).map(|at| (bits >> (6 * at) & 63) as u8));
                }
                // No pattern is longer.
                if registers.iter().any(|register| u32::from(*register) > PATTERN_BITS + 1) {
                    return Err(FormatError::Corrupt);
                }
                Ok(HyperLogLog { registers, is_dense: true })
            }
            1 => {
                let mut bytes = body.iter().copied();
                while let Some(byte) = bytes.next() {
                    let (register, run) = match byte >> 6 {
                        0 => (0, usize::from(byte & 63) + 1),
                        1 => {
                            let low = bytes.next().ok_or(FormatError::Corrupt)?;
                            (0, (usize::from(byte & 63) << 8 | usize::from(low)) + 1)
                        }
                        _ => ((byte >> 2 & 31) + 1, usize::from(byte & 3) + 1),
                    };
                    if registers.len() + run > REGISTERS {
                        return Err(FormatError::Corrupt);
                    }
                    registers.resize(registers.len() + run, register);
                }
                match registers.len() {
                    REGISTERS => Ok(HyperLogLog { registers, is_dense: false }),
                    _ => Err(FormatError::Corrupt),
                }
            }
            _ => Err(FormatError::OtherValue),
        }
    }

    /// Encodes the value, with a stale cardinality. A sparse one has up to `max_sparse_bytes`.
    pub(super) fn encode(&self, max_sparse_bytes: usize) -> Vec<u8> {
        let sparse = if self.is_dense { None } else { self.encode_sparse(max_sparse_bytes) };
        let mut value = b"HYLL".to_vec();
        value.extend_from_slice(&[u8::from(sparse.is_some()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]);
        match sparse {
            Some(sparse) => value.extend_from_slice(&sparse),
            None => {
                for four in self.registers.chunks_exact(4) {
                    let bits =
                        four.iter().rev().fold(0u32, |bits, one| bits << 6 | u32::from(*one));
                    value.extend_from_slice(&bits.to_le_bytes()[..3]);
                }
            }
        }
        value
    }

    /// The runs; `None` if they do not fit.
    fn encode_sparse(&self, max_bytes: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for run in self.registers.chunk_by(|a, b| a == b) {
            let register = run[0];
            match register {
                0 if run.len() > MAX_ZERO_RUN => {
                    let rest = (run.len() - 1) as u16;
                    bytes.extend_from_slice(&(rest | 1 << 14).to_be_bytes());
                }
                0 => bytes.push((run.len() - 1) as u8),
                1..=MAX_SPARSE_REGISTER => {
                    for part in run.chunks(MAX_VALUE_RUN) {
                        bytes.push(0x80 | (register - 1) << 2 | (part.len() - 1) as u8);
                    }
                }
                _ => return None,
            }
            if HEADER_BYTES + bytes.len() > max_bytes {
                return None;
            }
        }
        Some(bytes)
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

fn murmur64a(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = HASH_SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        word ^= word >> SHIFT;
        hash ^= word.wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash ^= u64::from_le_bytes(word);
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_encodings_round_trip_and_estimates_are_close() {
        let mut log = HyperLogLog::new();
        let mut was_sparse = false;
        for count in 1..=20_000u64 {
            log.add(&count.to_le_bytes());
            if count.is_power_of_two() || count % 5000 == 0 {
                let value = log.encode(3000);
                let back = HyperLogLog::decode(&value).unwrap();
                assert_eq!(back.registers, log.registers);
                assert_eq!(back.is_dense, value.len() == HEADER_BYTES + DENSE_BYTES);
                was_sparse |= !back.is_dense;
                let error = (log.count() as f64 - count as f64).abs() / count as f64;
                assert!(error < 0.04, "{} of {count}", log.count());
                log = back;
            }
        }
        assert!(was_sparse && log.is_dense);
        assert_eq!(HyperLogLog::new().count(), 0);
        assert_eq!(HyperLogLog::new().encode(3000).len(), HEADER_BYTES + 2);
    }

    #[test]
    fn merged_registers_are_those_of_the_union() {
        let (mut a, mut b, mut union) =
            (HyperLogLog::new(), HyperLogLog::new(), HyperLogLog::new());
        for n in 0..3000u32 {
            let element = n.to_string();
            if n % 2 == 0 {
                a.add(element.as_bytes())
            } else {
                b.add(element.as_bytes())
            };
            union.add(element.as_bytes());
        }
        a.merge(&b);
        assert_eq!(a.registers, union.registers);
    }

    #[test]
    fn other_and_corrupt_values_are_rejected() {
        let decode = |value: &[u8]| HyperLogLog::decode(value).err();
        assert_eq!(decode(b""), Some(FormatError::OtherValue));
        assert_eq!(decode(&[0; 100]), Some(FormatError::OtherValue));
        let value = HyperLogLog::new().encode(3000);
        assert_eq!(decode(&value[..17]), Some(FormatError::Corrupt));
        assert_eq!(decode(&[&value[..], &[0x80]].concat()), Some(FormatError::Corrupt));
        let mut dense = vec![0xff; HEADER_BYTES + DENSE_BYTES];
        dense[..5].copy_from_slice(b"HYLL\0");
        assert_eq!(decode(&dense), Some(FormatError::Corrupt));
    }
}
