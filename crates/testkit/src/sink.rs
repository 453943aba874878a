//! The target of checkpoints in tests: another directory, byte by byte.
//!
//! Nothing is linked, so that the streaming of the engine is tested.
//!
//! Invariant: files come one after the other; bytes without a file are refused.

use std::sync::Arc;

use siltstone_engine::{CheckpointSink, Error, Purpose, Result};
use siltstone_vfs::{File, Vfs};

/// Copies a checkpoint to a directory.
pub struct VfsSink {
    target: Arc<dyn Vfs>,
    file: Option<(Arc<dyn File>, u64)>,
}

impl VfsSink {
    /// A sink into an empty directory.
    pub fn new(target: Arc<dyn Vfs>) -> Self {
        VfsSink { target, file: None }
    }
}

impl CheckpointSink for VfsSink {
    fn create(&mut self, name: &str) -> Result<()> {
        if self.file.is_some() {
            return Err(Error::Invalid(format!("{name} begins before the last file ended")));
        }
        self.file = Some((self.target.create(name)?, 0));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let none = || Error::Invalid("bytes without a file".into());
        let (file, len) = self.file.as_mut().ok_or_else(none)?;
        file.write_at(*len, bytes, Purpose::Maintenance)?;
        *len += bytes.len() as u64;
        Ok(())
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        let none = || Error::Invalid("bytes without a file".into());
        self.file.as_mut().ok_or_else(none)?.1 += bytes;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let none = || Error::Invalid("no file to finish".into());
        let (file, len) = self.file.take().ok_or_else(none)?;
        if file.len()? < len {
            file.set_len(len)?;
        }
        file.sync(Purpose::Maintenance)?;
        self.target.sync_dir(Purpose::Maintenance)
    }
}
