//! The identity of a table, by which the parts of a batch over several tables name each other.

use std::sync::{Arc, OnceLock};

use super::open::OpenBatches;

/// The identity of a table in its store.
#[derive(Debug)]
pub(crate) struct Member {
    /// Assigned for the first batch. No other table of the store ever has the same, whatever its
    /// name.
    id: OnceLock<u64>,
    open: Arc<OpenBatches>,
}

impl Member {
    pub(crate) fn new(id: Option<u64>, open: Arc<OpenBatches>) -> Self {
        Member { id: id.map(OnceLock::from).unwrap_or_default(), open }
    }

    /// The identity, if one was assigned.
    pub(crate) fn id(&self) -> Option<u64> {
        self.id.get().copied()
    }

    pub(crate) fn set_id(&self, id: u64) {
        self.id.get_or_init(|| id);
    }

    /// Whether the table belongs to the store with these open batches.
    pub(crate) fn is_of(&self, open: &Arc<OpenBatches>) -> bool {
        Arc::ptr_eq(&self.open, open)
    }
}
