//! CRC-64 with Redis's polynomial, which is named after its author Jones.
//!
//! Polynomial `ad93d235 94c935a9`, bits in reflected order, initial value and final mask 0. Eight
//! tables let a step take eight bytes.

/// The polynomial with its bits reversed.
const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();

/// `TABLES[k][b]`: the checksum of byte `b` followed by `k` zeros.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[zeros - 1][byte];
            tables[zeros][byte] = (crc >> 8) ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// The checksum of bytes that follow those with the checksum `crc`, which is 0 at the beginning.
pub fn crc64(mut crc: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mixed = crc ^ u64::from_le_bytes(*word);
        crc = 0;
        for (at, byte) in mixed.to_le_bytes().into_iter().enumerate() {
            crc ^= TABLES[7 - at][usize::from(byte)];
        }
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_redis_however_the_bytes_are_cut() {
        // The check value that Redis publishes.
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let bytes: Vec<u8> = (0..100).map(|n: u8| n.wrapping_mul(7)).collect();
        let whole = crc64(0, &bytes);
        for cut in 0..bytes.len() {
            assert_eq!(crc64(crc64(0, &bytes[..cut]), &bytes[cut..]), whole);
        }
    }
}
