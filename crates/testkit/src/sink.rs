//! Where checkpoints go in tests: into another medium, byte by byte.
//!
//! Nothing is linked, so that what an engine streams is what gets tested.
//!
//! Invariant: files come one after the other; bytes without a file are refused.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::{CheckpointSink, Error, Purpose, Result};
use siltstone_vfs::{File, Vfs};

/// Copies a checkpoint into a medium.
pub struct MediaSink {
    target: Arc<dyn Vfs>,
    file: Option<(Arc<dyn File>, u64)>,
}

impl MediaSink {
    /// A sink into an empty medium.
    pub fn new(target: Arc<dyn Vfs>) -> Self {
        MediaSink { target, file: None }
    }
}

impl CheckpointSink for MediaSink {
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

    fn finish(&mut self) -> Result<()> {
        let none = || Error::Invalid("no file to finish".into());
        self.file.take().ok_or_else(none)?.0.sync(Purpose::Maintenance)?;
        self.target.sync_dir(Purpose::Maintenance)
    }
}
