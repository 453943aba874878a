//! The writes that a leader commits together.

use siltstone_engine::{Durability, WriteBatch};
use siltstone_runtime::group_commit::Size;

/// A write that waits for another thread to commit it.
pub(crate) struct QueuedWrite {
    pub(crate) batch: WriteBatch,
    pub(crate) durability: Durability,
}

impl Size for QueuedWrite {
    fn size_bytes(&self) -> usize {
        self.batch.as_bytes().len()
    }
}

/// The writes that are committed together.
#[derive(Clone, Copy)]
pub struct Group<'b> {
    pub(crate) own: &'b WriteBatch,
    pub(crate) durability: Durability,
    pub(crate) followers: &'b [QueuedWrite],
}

impl<'b> Group<'b> {
    /// The batches, in the order in which they are written.
    pub fn batches(&self) -> impl Iterator<Item = &'b WriteBatch> + Clone {
        std::iter::once(self.own).chain(self.followers.iter().map(|queued| &queued.batch))
    }

    pub(crate) fn is_synced(&self) -> bool {
        let durabilities = self.followers.iter().map(|queued| queued.durability);
        durabilities.chain([self.durability]).any(|durability| durability == Durability::Synced)
    }
}
