//! Jobs let writes pass that they are told of: each, and its end. Of all tables of a process, so in one of its own.

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::{Env, write_activity};
use siltstone_vfs::Ram;

#[test]
fn are_jobs_told_of_each_write_and_of_its_end() {
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    let lsm = Lsm::open(Arc::new(Ram::new()), env, Options::default()).unwrap();
    for (before, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
        assert_eq!(write_activity::told(), (before as u64, 0));
        let mut batch = WriteBatch::new();
        batch.put(key, b"1");
        lsm.write(&batch, Durability::Buffered).unwrap();
        assert_eq!(write_activity::told(), (before as u64 + 1, 0));
    }
}
