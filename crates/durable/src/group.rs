//! The writes that a leader commits together.

use siltstone_engine::{Durability, WriteBatch};
use siltstone_runtime::group_commit::{self, Request};

/// A write in the commit queue.
pub(crate) enum Write {}

#[derive(Clone, Copy)]
pub(crate) struct WriteRef<'b> {
    pub(crate) batch: &'b WriteBatch,
    pub(crate) durability: Durability,
}

impl Request for Write {
    type Ref<'b> = WriteRef<'b>;

    fn shorten<'short, 'long: 'short>(write: WriteRef<'long>) -> WriteRef<'short> {
        write
    }

    fn size_bytes(write: WriteRef<'_>) -> usize {
        write.batch.as_bytes().len()
    }

    fn is_slow(write: WriteRef<'_>) -> bool {
        write.durability == Durability::Synced
    }
}

/// The writes that are committed together.
#[derive(Clone, Copy)]
pub struct Group<'b>(pub(crate) group_commit::Group<'b, Write>);

impl<'b> Group<'b> {
    /// The batches, in the order in which they are written.
    pub fn batches(&self) -> impl Iterator<Item = &'b WriteBatch> + Clone {
        self.0.requests().map(|write| write.batch)
    }

    /// One batch, outside of the commit queue.
    pub(crate) fn of_one(batch: &'b WriteBatch) -> Self {
        Group(group_commit::Group::of_one(WriteRef { batch, durability: Durability::Buffered }))
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.0.requests().any(Write::is_slow)
    }
}
