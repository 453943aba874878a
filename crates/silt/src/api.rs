//! Public API of the engine.

use std::sync::Arc;

use siltstone_durable::{LogStructuredEngine, OpenTable, flush};
use siltstone_engine::{Cursor, Entry, Forward, KeyRange, ReadPoint, Result};
use siltstone_runtime::{BackgroundWork, Env};
use siltstone_vfs::Vfs;

use crate::cursor::SiltCursor;
use crate::engine::SiltEngine;
use crate::options::Options;
use crate::recover;

/// An open table of the engine.
pub type Silt = LogStructuredEngine<SiltEngine>;

impl OpenTable for SiltEngine {
    type Options = Options;

    fn recover(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<(Arc<Self>, bool)> {
        recover::open(vfs, env, options)
    }

    fn start(&self, must_flush: bool) -> Result<()> {
        if !self.options.loads_in_background {
            self.load_indexes()?;
        }
        if must_flush {
            flush::wait_for_flushes(self)?;
        }
        if self.options.loads_in_background {
            self.schedule();
        }
        Ok(())
    }

    fn get(&self, key: &[u8], _: Option<&ReadPoint>) -> Result<Option<Entry>> {
        self.get(key)
    }

    fn cursor(&self, _: KeyRange, _: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(Forward::new(SiltCursor::new(self)?)))
    }
}
