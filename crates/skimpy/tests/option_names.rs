//! Tables created with old option names stay open to programs that use the old or the new names.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, Result, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::engine_under_test;
use siltstone_vfs::{Ram, Vfs};

fn open(vfs: &Arc<dyn Vfs>, names: &str) -> Result<Skimpy> {
    let map = engine_under_test::options(["capacity=2MiB block=4 buckets=8", names]);
    let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
    Skimpy::open(vfs.clone(), env, Options::from_map(&map)?)
}

#[test]
fn table_created_with_old_option_names_opens_with_old_and_new_names() {
    let old = "tidy=4 pack=2ms free=0.5 lanes=2";
    let new = "read_compaction_after=4 buffer_delay=2ms reserved_space=0.5 channels=2";
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let table = open(&vfs, old).unwrap();
    table.write(WriteBatch::new().put(b"key", b"value"), Durability::Synced).unwrap();
    table.close().unwrap();
    for names in [old, new] {
        let table = open(&vfs, names).unwrap();
        assert_eq!(table.get(b"key").unwrap().unwrap().value, b"value");
        table.close().unwrap();
    }
    assert!(matches!(open(&vfs, "lanes=2 channels=2"), Err(Error::InvalidOptions(_))));
}
