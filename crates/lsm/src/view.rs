//! What a read of the tree can see.

use crate::memtable::Memtable;
use crate::version::Version;

/// The memtables and the files of one moment.
pub(crate) type View = siltstone_durable::View<Memtable, Version>;
