//! Checksums that bind bytes to a file and an offset in it.
//!
//! Bytes that were read from another file or place fail their checksum like flipped bits.

/// The size of a checksum in bytes.
pub const SUM_BYTES: usize = 4;

/// The checksums of one file, seeded with its number.
#[derive(Debug, Clone, Copy)]
pub struct FileSum(u32);

impl FileSum {
    /// The checksums of the file with this number.
    pub fn new(number: u64) -> Self {
        FileSum(crc32c::crc32c(&number.to_le_bytes()))
    }

    /// The checksum of no bytes at `offset` of the file, to be extended by `crc32c_append`.
    #[inline]
    pub fn begin(self, offset: u64) -> u32 {
        crc32c::crc32c_append(self.0, &offset.to_le_bytes())
    }

    /// The checksum of `head` at `offset` of the file, to be extended by `crc32c_append`. Costs one
    /// pass over the offset and the head together.
    #[inline]
    pub fn begin_with(self, offset: u64, head: [u8; 3]) -> u32 {
        let [a, b, c, d, e, f, g, h] = offset.to_le_bytes();
        crc32c::crc32c_append(self.0, &[a, b, c, d, e, f, g, h, head[0], head[1], head[2]])
    }

    /// The checksum of `bytes` at `offset` of the file.
    #[inline]
    pub fn of(self, offset: u64, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.begin(offset), bytes)
    }

    /// Appends `bytes`, for `offset` of the file, and their checksum to `out`.
    pub fn seal(self, out: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
        out.extend_from_slice(bytes);
        out.extend_from_slice(&self.of(offset, bytes).to_le_bytes());
    }

    /// The bytes that were sealed for `offset`; `None` if they do not match their checksum.
    pub fn open(self, offset: u64, sealed: &[u8]) -> Option<&[u8]> {
        let (bytes, sum) = sealed.split_last_chunk::<SUM_BYTES>()?;
        (self.of(offset, bytes) == u32::from_le_bytes(*sum)).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_bytes_are_bound_to_their_file_and_offset() {
        let mut sealed = Vec::new();
        FileSum::new(1).seal(&mut sealed, 40, b"bytes");
        assert_eq!(FileSum::new(1).open(40, &sealed), Some(&b"bytes"[..]));
        assert!(FileSum::new(1).open(41, &sealed).is_none());
        assert!(FileSum::new(2).open(40, &sealed).is_none());
        assert_eq!(FileSum::new(1).begin_with(40, *b"byt"), FileSum::new(1).of(40, b"byt"));
        sealed[2] ^= 1;
        assert!(FileSum::new(1).open(40, &sealed).is_none());
    }
}
