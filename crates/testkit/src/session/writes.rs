//! The writes of a session: batches and ingestions, on the engine and then on the oracle.
//!
//! Operations that the engine does not take are left out on both sides.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use siltstone_engine::{
    BatchOp, Clock, Durability, Error, IngestMode, IngestOptions, IngestReport, Op, WriteBatch,
};
use siltstone_vfs::Vfs;

use super::Session;
use crate::CheckError;
use crate::history::Step;

/// The directory of files to be ingested, in the table's.
const SORTED_FILES: &str = "sorted";

impl Session<'_> {
    /// The operations of a batch that the engine takes: histories delete ranges, merge, and put
    /// entries that expire.
    fn supported<'b>(&self, batch: &'b WriteBatch) -> Cow<'b, WriteBatch> {
        let (has_ranges, has_merges) =
            (self.tested.capabilities().range_deletes, self.has_merges());
        let is_supported = (batch.range_deletions() == 0 || has_ranges)
            && if has_merges { batch.expiring_puts() == 0 } else { batch.merges() == 0 };
        if is_supported {
            return Cow::Borrowed(batch);
        }
        let mut supported = WriteBatch::new();
        for op in batch.iter_all() {
            match op {
                BatchOp::Merge { .. } if !has_merges => &mut supported,
                BatchOp::DeleteRange { .. } if !has_ranges => &mut supported,
                BatchOp::Point(Op::Put { key, value, .. }) if has_merges => {
                    supported.put(key, value)
                }
                other => supported.push_any(other),
            };
        }
        Cow::Owned(supported)
    }

    pub(super) fn write(
        &mut self,
        batch: &WriteBatch,
        durability: Durability,
    ) -> Result<(), CheckError> {
        let batch = &*self.supported(batch);
        self.engine().write(batch, durability)?;
        self.oracle.apply(batch, self.clock.now());
        self.acknowledged = self.oracle.sequence();
        if durability == Durability::Synced {
            self.synced = self.acknowledged;
        }
        Ok(())
    }

    pub(super) fn ingest(
        &mut self,
        files: &[WriteBatch],
        mode: IngestMode,
    ) -> Result<(), CheckError> {
        let files: Vec<_> = files.iter().map(|file| self.supported(file).into_owned()).collect();
        let mut all = WriteBatch::new();
        files.iter().for_each(|file| _ = all.append(file));
        if !self.tested.ingests(self.option_set) {
            return self.write(&all, Durability::Synced);
        }
        let names = 0..files.len() as u64;
        let names = names.map(|at| format!("{}.sorted", self.ingested + at)).collect::<Vec<_>>();
        self.ingested += files.len() as u64;
        let directory = self.vfs.subdirectory(SORTED_FILES)?;
        let outcome = self.ingest_files(&files, &names, &directory, mode);
        for name in &names {
            let found = directory.exists(name);
            let _ = directory.remove(name);
            let is_expected = match &outcome {
                Ok(report) if mode == IngestMode::Move => {
                    let is_named = |path: &PathBuf| path.ends_with(name);
                    (!report.not_removed.iter().any(is_named)).then_some(false)
                }
                Ok(_) | Err((true, _)) => Some(true),
                // It may not have been written.
                Err((false, _)) => None,
            };
            if let (Ok(found), Some(expected)) = (found, is_expected)
                && found != expected
            {
                let what = if expected { "is lost" } else { "was not moved" };
                return Err(CheckError::Mismatch(format!("the sorted file {name} {what}")));
            }
        }
        outcome.map_err(|(_, error)| error)?;
        self.oracle.apply(&all, self.clock.now());
        self.acknowledged = self.oracle.sequence();
        self.synced = self.acknowledged;
        Ok(())
    }

    /// Writes sorted files and ingests them; an error comes with whether all were written.
    fn ingest_files(
        &self,
        files: &[WriteBatch],
        names: &[String],
        directory: &Arc<dyn Vfs>,
        mode: IngestMode,
    ) -> Result<IngestReport, (bool, Error)> {
        let (tested, set) = (self.tested, self.option_set);
        for (file, name) in files.iter().zip(names) {
            // Left by an earlier session on this disk.
            if directory.exists(name).map_err(|error| (false, error))? {
                directory.remove(name).map_err(|error| (false, error))?;
            }
            let written = tested.write_sorted_file(directory.clone(), name, file, set);
            written.map_err(|error| (false, error))?;
        }
        let paths: Vec<_> = names.iter().map(|name| Path::new(SORTED_FILES).join(name)).collect();
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let options = IngestOptions { mode, ..IngestOptions::default() };
        let prepared = self.engine().prepare_ingestion(&paths, options);
        let ingested = prepared.and_then(|prepared| prepared.commit());
        ingested.map_err(|error| (true, error))
    }

    /// Applies a write with an unknown outcome to the oracle: it may appear after the next open.
    pub fn apply_uncertain(&mut self, step: &Step) {
        match step {
            Step::Write(batch, _) => {
                let batch = self.supported(batch);
                self.oracle.apply(&batch, self.clock.now());
            }
            Step::Clear => self.oracle.clear(self.clock.now()),
            Step::Ingest(files, _) => {
                let mut all = WriteBatch::new();
                files.iter().for_each(|file| _ = all.append(&self.supported(file)));
                self.oracle.apply(&all, self.clock.now());
            }
            _ => {}
        }
    }
}
