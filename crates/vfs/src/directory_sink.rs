//! A checkpoint of a table in another directory: immutable files are linked where that is possible,
//! the others are copied.

use std::sync::Arc;

use siltstone_engine::{CheckpointSink, Error, Purpose, Result};

use crate::{File, Vfs};

/// Receives the checkpoint of a table in `source` in the directory `target`, whose names the caller
/// makes durable ([`Vfs::sync_dir`]).
pub struct DirectorySink {
    source: Arc<dyn Vfs>,
    target: Arc<dyn Vfs>,
    file: Option<(Arc<dyn File>, u64)>,
}

impl DirectorySink {
    /// A sink into an empty directory.
    pub fn new(source: Arc<dyn Vfs>, target: Arc<dyn Vfs>) -> Self {
        DirectorySink { source, target, file: None }
    }

    fn file(&mut self) -> Result<&mut (Arc<dyn File>, u64)> {
        self.file.as_mut().ok_or_else(|| Error::Invalid("no file was created".into()))
    }
}

impl CheckpointSink for DirectorySink {
    fn link(&mut self, name: &str) -> Result<bool> {
        self.source.link(name, self.target.as_ref(), name)
    }

    fn create(&mut self, name: &str) -> Result<()> {
        self.file = Some((self.target.create(name)?, 0));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let (file, len) = self.file()?;
        file.write_at(*len, bytes, Purpose::Maintenance)?;
        *len += bytes.len() as u64;
        Ok(())
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        self.file()?.1 += bytes;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let (file, len) = self.file()?;
        // Zeros at the end were not written.
        if file.len()? < *len {
            file.set_len(*len)?;
        }
        file.sync(Purpose::Maintenance)?;
        self.file = None;
        Ok(())
    }
}
