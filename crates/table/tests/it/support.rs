//! Helpers on top of `FaultyVfs`.

use std::sync::Arc;

use siltstone_engine::Purpose;
use siltstone_faults::FaultyVfs;
use siltstone_vfs::Vfs;

/// A file system without faults so far.
pub(crate) fn new_vfs() -> Arc<FaultyVfs> {
    Arc::new(FaultyVfs::new(1))
}

/// Durably replaces or creates a file.
pub(crate) fn put(vfs: &FaultyVfs, name: &str, bytes: &[u8]) {
    if vfs.exists(name).unwrap() {
        vfs.remove(name).unwrap();
    }
    let file = vfs.create(name).unwrap();
    file.write_at(0, bytes, Purpose::Maintenance).unwrap();
    file.sync(Purpose::Maintenance).unwrap();
    vfs.sync_dir(Purpose::Maintenance).unwrap();
}

/// Limits the space to this many more bytes; a write that does not fit writes a part.
pub(crate) fn limit_space(vfs: &FaultyVfs, bytes: u64) {
    vfs.set_torn_on_full(true);
    vfs.set_capacity(vfs.space_used() + bytes);
}

/// Removes the limit.
pub(crate) fn remove_limit(vfs: &FaultyVfs) {
    vfs.set_capacity(u64::MAX);
}
