//! What these tests need of a medium beyond what `Faulty` offers.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test binary uses a part")]

use std::sync::Arc;

use siltstone_engine::Purpose;
use siltstone_faults::Faulty;
use siltstone_vfs::Vfs;

/// A medium without faults so far.
pub fn medium() -> Arc<Faulty> {
    Arc::new(Faulty::new(1))
}

/// Puts a file there, durably, in place of what bore its name.
pub fn put(vfs: &Faulty, name: &str, bytes: &[u8]) {
    if vfs.exists(name).unwrap() {
        vfs.remove(name).unwrap();
    }
    let file = vfs.create(name).unwrap();
    file.write_at(0, bytes, Purpose::Maintenance).unwrap();
    file.sync(Purpose::Maintenance).unwrap();
    vfs.sync_dir(Purpose::Maintenance).unwrap();
}

/// Leaves room for this many more bytes, of which a write that doesn't fit uses what it can.
pub fn fill_up_after(vfs: &Faulty, bytes: u64) {
    vfs.set_torn_on_full(true);
    vfs.set_capacity(vfs.space_used() + bytes);
}

/// Takes the limit away.
pub fn make_room(vfs: &Faulty) {
    vfs.set_capacity(u64::MAX);
}
