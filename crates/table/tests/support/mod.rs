//! What these tests need of a medium beyond what `Faulty` offers.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test binary uses a part")]

use std::sync::Arc;

use siltstone_engine::Purpose;
use siltstone_media::{Faulty, Media};

/// A medium without faults so far.
pub fn medium() -> Arc<Faulty> {
    Arc::new(Faulty::new(1))
}

/// Puts a file there, durably, in place of what bore its name.
pub fn put(media: &Faulty, name: &str, bytes: &[u8]) {
    if media.exists(name).unwrap() {
        media.remove(name).unwrap();
    }
    let file = media.create(name).unwrap();
    file.write_at(0, bytes, Purpose::Maintenance).unwrap();
    file.sync(Purpose::Maintenance).unwrap();
    media.sync_dir(Purpose::Maintenance).unwrap();
}

/// Leaves room for this many more bytes, of which a write that doesn't fit uses what it can.
pub fn fill_up_after(media: &Faulty, bytes: u64) {
    media.set_torn_on_full(true);
    media.set_capacity(media.space_used() + bytes);
}

/// Takes the limit away.
pub fn make_room(media: &Faulty) {
    media.set_capacity(u64::MAX);
}
