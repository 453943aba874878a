//! Without `lsm` no engine ingests sorted files.

use std::sync::Arc;

use siltstone_engine::{Engine, Result, WriteBatch};
use siltstone_vfs::Vfs;

use crate::catalogue::TableSpec;

/// There is none.
pub(super) enum BulkCopy {}

impl BulkCopy {
    pub(super) fn of(
        _source: &dyn Engine,
        _target: &Arc<dyn Engine>,
        _spec: &TableSpec,
        _directory: Arc<dyn Vfs>,
    ) -> Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn append(&mut self, _batch: &WriteBatch) -> Result<()> {
        match *self {}
    }

    pub(super) fn ingest(&mut self) -> Result<()> {
        match *self {}
    }
}
