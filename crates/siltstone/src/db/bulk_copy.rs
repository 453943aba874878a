//! Rows of a moving table as sorted files, which the target ingests.
//!
//! ```text
//!   rows in ascending order ──▶ table-NAME.1/copy-0.sorted ── ingest ──▶ SSTable of the last level
//! ```
//!
//! The target writes each row once: not to the log first, and again in compactions. That needs an
//! ordered source, and a target on `lsm`. The file is in the directory of the target, so that it is
//! encrypted as the target, linked instead of copied, and removed with the target.

use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{Engine, IngestMode, IngestOptions, Op, Result, WriteBatch};
use siltstone_lsm::SortedFileWriter;
use siltstone_vfs::Vfs;

use crate::catalogue::TableSpec;

/// Size from which a file is ingested.
const FILE_BYTES: u64 = 64 << 20;

/// The rows that are not ingested yet are in a file.
pub(super) struct BulkCopy {
    target: Arc<dyn Engine>,
    directory: Arc<dyn Vfs>,
    options: siltstone_lsm::Options,
    file: Option<SortedFileWriter>,
    /// The number of the next file.
    next: u64,
}

impl BulkCopy {
    /// A copy to `target`, whose files are in `directory`; `None` if it takes no sorted files, or
    /// the rows are in no order.
    pub(super) fn of(
        source: &dyn Engine,
        target: &Arc<dyn Engine>,
        spec: &TableSpec,
        directory: Arc<dyn Vfs>,
    ) -> Result<Option<Self>> {
        // A file of a table with merges has no rows that expire.
        let has_merges = target.merge_operator().is_some();
        let ingests = target.prepare_ingestion(&[], IngestOptions::default()).is_ok();
        if !source.capabilities().ordered || has_merges || !ingests {
            return Ok(None);
        }
        let options = siltstone_lsm::Options::from_map(&spec.options)?;
        Ok(Some(BulkCopy { target: target.clone(), directory, options, file: None, next: 0 }))
    }

    /// Adds the puts of a batch. Their keys are above all before.
    pub(super) fn append(&mut self, batch: &WriteBatch) -> Result<()> {
        for op in batch.iter() {
            let Op::Put { key, value, expires_at } = op else { continue };
            let file = match self.file.take() {
                Some(file) => file,
                None => {
                    SortedFileWriter::create(self.directory.clone(), &self.name(), &self.options)?
                }
            };
            let file = self.file.insert(file);
            match expires_at {
                None => file.put(key, value)?,
                Some(at) => file.put_until(key, value, at)?,
            }
        }
        match &self.file {
            Some(file) if file.estimated_bytes() >= FILE_BYTES => self.ingest(),
            _ => Ok(()),
        }
    }

    /// Ingests the rows that are in a file.
    pub(super) fn ingest(&mut self) -> Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        file.finish()?;
        let (name, mode) = (self.name(), IngestMode::Move);
        // Each byte was written just now.
        let options = IngestOptions { mode, verify: false, prefix: None };
        self.target.prepare_ingestion(&[Path::new(&name)], options)?.commit()?;
        self.next += 1;
        Ok(())
    }

    /// The name of the file; relative to the directory of the table for the engine.
    fn name(&self) -> String {
        format!("copy-{}.sorted", self.next)
    }
}
