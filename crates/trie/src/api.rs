//! Public API of the LSM-trie engine.

use std::sync::Arc;

use siltstone_durable::{LogStructuredEngine, OpenTable};
use siltstone_engine::{Cursor, Entry, KeyRange, ReadPoint, Result};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::engine::Tree;
use crate::files::StorageTiers;
use crate::options::Options;
use crate::recover;
use crate::tiering;

/// An open table of the LSM-trie engine.
pub type Trie = LogStructuredEngine<Tree>;

/// Opens the table with `upper` as its fast tier, regardless of the option `fast_dir`. The caller
/// ensures that no other table uses it.
///
/// # Errors
/// As [`Trie::open`]; `Refused` if the fast tier belongs to another table.
pub fn open_on(
    vfs: Arc<dyn Vfs>,
    upper: Option<Arc<dyn Vfs>>,
    env: Env,
    options: Options,
) -> Result<Trie> {
    let (tree, must_flush) = recover_on(vfs, upper, env, options)?;
    Trie::start(tree, must_flush)
}

fn recover_on(
    vfs: Arc<dyn Vfs>,
    upper: Option<Arc<dyn Vfs>>,
    env: Env,
    options: Options,
) -> Result<(Arc<Tree>, bool)> {
    let fast = upper.map(|vfs| (vfs, options.fast_levels));
    recover::open(StorageTiers::new(vfs, fast), env, options)
}

impl OpenTable for Tree {
    type Options = Options;

    fn recover(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<(Arc<Self>, bool)> {
        let second = options.fast_dir.as_deref().map(|upper| tiering::open(vfs.as_ref(), upper));
        let (upper, lock) = second.transpose()?.unzip();
        let (tree, must_flush) = recover_on(vfs, upper, env, options)?;
        *tree.lock.lock() = lock;
        Ok((tree, must_flush))
    }

    fn get(&self, key: &[u8], _: Option<&ReadPoint>) -> Result<Option<Entry>> {
        self.get(key)
    }

    fn begin_reads(&self, keys: &[&[u8]]) {
        self.begin_reads(keys);
    }

    fn cursor(&self, _: KeyRange, _: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        self.cursor()
    }

    fn release(&self) {
        self.lock.lock().take();
    }
}
