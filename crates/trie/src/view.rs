//! The views of the trie: memtables and version.

use crate::memtable::Memtable;
use crate::version::Version;

/// The memtables and the files of one moment.
pub(crate) type View = siltstone_durable::View<Memtable, Version>;
