//! Sequential file writer and footers shared by all files of the engine.
//!
//! ```text
//! footer   := magic[8]  version:u32  fields (LE)  crc32c:u32     at the end of a file
//! ```
//!
//! A reader refuses a file of another format version, naming file and versions.
//!
//! Invariant: after `flush` the file holds everything given to `FileWriter`, in order.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_table::FileSum;
use siltstone_vfs::File;

use crate::names::Kind;

/// Writes are issued in pieces of this many bytes.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// Appends to a range of a file through a buffer.
pub(crate) struct FileWriter {
    file: Arc<dyn File>,
    purpose: Purpose,
    rate: Arc<RateLimiter>,
    /// The file offset of the buffer's first byte.
    start: u64,
    buffer: Vec<u8>,
}

impl FileWriter {
    pub(crate) fn new(
        file: Arc<dyn File>,
        start: u64,
        purpose: Purpose,
        rate: Arc<RateLimiter>,
    ) -> Self {
        FileWriter { file, purpose, rate, start, buffer: Vec::new() }
    }

    /// The file offset of the next byte.
    pub(crate) fn at(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        // Large writes bypass the buffer.
        if bytes.len() >= PIECE_BYTES {
            self.flush()?;
            self.send(bytes)?;
            self.start += bytes.len() as u64;
            return Ok(());
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer to the file.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.send(&self.buffer)?;
            self.start += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes bytes at the offset of the buffer, within the rate limit.
    fn send(&self, bytes: &[u8]) -> Result<()> {
        self.rate.take(bytes.len() as u64);
        self.file.write_at(self.start, bytes, self.purpose)
    }
}

/// The format of a footer around its fields.
pub(crate) struct Footer {
    pub(crate) magic: &'static [u8; 8],
    pub(crate) version: u32,
    /// Bytes of the fields.
    pub(crate) fields: usize,
}

impl Footer {
    /// Bytes of the footer.
    pub(crate) fn bytes(&self) -> usize {
        8 + 4 + self.fields + 4
    }

    /// The footer with these fields, to be written at `offset`.
    pub(crate) fn encode(&self, fields: &[u8], sum: FileSum, offset: u64) -> Vec<u8> {
        debug_assert_eq!(fields.len(), self.fields);
        let mut out = self.magic.to_vec();
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(fields);
        out.extend_from_slice(&sum.of(offset, &out).to_le_bytes());
        out
    }

    /// Reads the footer of a file: its fields and its offset.
    ///
    /// # Errors
    /// `Corruption`; `Refused` for another format version; I/O errors.
    pub(crate) fn read(
        &self,
        file: &dyn File,
        name: &str,
        sum: FileSum,
        purpose: Purpose,
    ) -> Result<(Vec<u8>, u64)> {
        let len = file.len()?;
        let corrupt = |at, reason| Error::corruption(name, at, reason);
        let at = len.checked_sub(self.bytes() as u64);
        let at = at.ok_or_else(|| corrupt(0, "the file is too short for its footer"))?;
        let mut bytes = vec![0; self.bytes()];
        file.read_at(at, &mut bytes, purpose)?;
        let (covered, crc) = bytes.split_at(bytes.len() - 4);
        if sum.of(at, covered).to_le_bytes() != crc {
            return Err(corrupt(at, "the footer does not match its checksum"));
        }
        let (magic, rest) = covered.split_at(8);
        let (version, fields) = rest.split_at(4);
        if magic != self.magic {
            return Err(corrupt(at, "the footer is that of another kind of file"));
        }
        if version != self.version.to_le_bytes() {
            let found = version.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte));
            let reason = format!(
                "the file is of format {found}, and this program reads format {}: use the program that wrote it",
                self.version
            );
            return Err(Error::Refused { path: name.to_owned(), reason });
        }
        Ok((fields.to_vec(), at))
    }
}

/// Takes integers off the front of a footer's fields, whose length has been checked.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn u32(&mut self) -> u32 {
        let Some((value, rest)) = self.0.split_first_chunk() else { return 0 };
        self.0 = rest;
        u32::from_le_bytes(*value)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        let Some((value, rest)) = self.0.split_first_chunk() else { return 0 };
        self.0 = rest;
        u64::from_le_bytes(*value)
    }
}

/// Writes and syncs a small derived file (a filter, an index), with a checksum after its bytes. A
/// derived file can be rebuilt from data. One that exists is replaced at once, because a checkpoint
/// or a verification may be about to read it.
pub(crate) fn write_derived(
    vfs: &dyn siltstone_vfs::Vfs,
    name: &str,
    number: u64,
    bytes: &[u8],
    purpose: Purpose,
) -> Result<()> {
    if !vfs.exists(name)? {
        return write_new(vfs, name, number, bytes, purpose);
    }
    // A name that no other file has; the next open removes what a crash leaves of it.
    let new = Kind::Run.name(number);
    let written = write_new(vfs, &new, number, bytes, purpose);
    let replaced = written.and_then(|()| vfs.rename(&new, name));
    if replaced.is_err() {
        let _ = vfs.remove(&new);
    }
    replaced
}

fn write_new(
    vfs: &dyn siltstone_vfs::Vfs,
    name: &str,
    number: u64,
    bytes: &[u8],
    purpose: Purpose,
) -> Result<()> {
    let file = vfs.create(name)?;
    let mut writer = FileWriter::new(file.clone(), 0, purpose, Arc::new(RateLimiter::unlimited()));
    writer.write(bytes)?;
    writer.write(&FileSum::new(number).of(0, bytes).to_le_bytes())?;
    writer.flush()?;
    file.sync(purpose)
}

/// Reads a file that [`write_derived`] wrote.
///
/// # Errors
/// `Corruption` if it is missing or does not match its checksum; I/O errors.
pub(crate) fn read_derived(
    vfs: &dyn siltstone_vfs::Vfs,
    name: &str,
    number: u64,
    purpose: Purpose,
) -> Result<Vec<u8>> {
    if !vfs.exists(name)? {
        return Err(Error::corruption(name, 0, "the file is missing"));
    }
    let file = vfs.open(name, siltstone_vfs::Mode::Read)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(0, &mut bytes, purpose)?;
    let wrong = || Error::corruption(name, 0, "the file does not match its checksum");
    let len = FileSum::new(number).open(0, &bytes).ok_or_else(wrong)?.len();
    bytes.truncate(len);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use siltstone_vfs::{Ram, Vfs};

    use super::*;

    #[test]
    fn footer_of_another_version_is_refused_and_flipped_bits_are_corruption() {
        const KNOWN: Footer = Footer { magic: b"SILTTEST", version: 1, fields: 8 };
        const NEWER: Footer = Footer { version: 0x0102_0304, ..KNOWN };
        let vfs = Ram::new();
        let sum = FileSum::new(7);
        let file = vfs.create("000007.test").unwrap();
        let read = || KNOWN.read(file.as_ref(), "000007.test", sum, Purpose::Get);
        let good = KNOWN.encode(&[9; 8], sum, 0);
        file.write_at(0, &NEWER.encode(&[9; 8], sum, 0), Purpose::Log).unwrap();
        let Err(Error::Refused { path, reason }) = read() else { panic!("{:?}", read()) };
        assert_eq!(path, "000007.test");
        assert!(reason.contains("format 16909060") && reason.contains("format 1:"), "{reason}");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            file.write_at(0, &bad, Purpose::Log).unwrap();
            assert!(read().unwrap_err().is_corruption(), "bit {bit}");
        }
        file.write_at(0, &good, Purpose::Log).unwrap();
        assert_eq!(read().unwrap(), (vec![9; 8], 0));
    }
}
