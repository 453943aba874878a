//! A read-only file over bytes in memory.
//!
//! The entry points that take bytes (fuzzers, repair tools, tests) use it, so that they exercise
//! the same readers as files do.
//!
//! Invariant: no call changes the bytes.

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::File;

/// Bytes readable as a [`File`]; writes fail.
pub struct BytesFile(Vec<u8>);

impl BytesFile {
    /// A file with these contents.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        BytesFile(bytes.into())
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::Invalid("bytes in memory are read-only".into()))
}

impl File for BytesFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], _: Purpose) -> Result<()> {
        let range =
            usize::try_from(offset).ok().and_then(|from| self.0.get(from..)?.get(..buf.len()));
        match range {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(Error::io("read", "bytes", &std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn write_at(&self, _: u64, _: &[u8], _: Purpose) -> Result<()> {
        read_only()
    }

    fn sync(&self, _: Purpose) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        read_only()
    }

    fn reserve(&self, _: u64) -> Result<()> {
        read_only()
    }

    fn punch_hole(&self, _: u64, _: u64) -> Result<()> {
        read_only()
    }
}
