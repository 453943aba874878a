//! A view for reads: the memtables and the files of one moment.
//!
//! ```text
//!   newest   overlay?  ─▶  active  ─▶  flushing, newest to oldest  ─▶  version: files   oldest
//! ```
//!
//! A view is one pointer, loaded without a lock, and immutable: rotation, a flush and every edit of
//! the manifest publish a new one.
//!
//! Invariant: everything in a view stays readable while the view is held, and every write is in
//! each view from the moment it returned, without a gap between memtable and file.

use std::sync::Arc;

/// Memtables of type `M` and a version `V`.
pub struct View<M, V> {
    /// The memtable that takes writes.
    pub active: Arc<M>,
    /// A second memtable that takes writes beside the active one and has the newest version of each
    /// of its keys (NoveLSM's memtable in persistent memory); `None` in every other configuration.
    pub overlay: Option<Arc<M>>,
    /// Full memtables that wait for their flush, the oldest first.
    pub flushing: Vec<Arc<M>>,
    /// The files.
    pub version: Arc<V>,
    /// The number of times that all keys were removed since the table was opened. The output of a
    /// job that began in an earlier generation is dropped.
    pub generation: u64,
}

impl<M, V> View<M, V> {
    /// All memtables, the newest first.
    pub fn memtables(&self) -> impl DoubleEndedIterator<Item = &Arc<M>> {
        self.overlay.iter().chain([&self.active]).chain(self.flushing.iter().rev())
    }
}

impl<M, V> Clone for View<M, V> {
    fn clone(&self) -> Self {
        View {
            active: self.active.clone(),
            overlay: self.overlay.clone(),
            flushing: self.flushing.clone(),
            version: self.version.clone(),
            generation: self.generation,
        }
    }
}
