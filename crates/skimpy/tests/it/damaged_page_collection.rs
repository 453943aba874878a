//! Collection stops at an unreadable page with live versions instead of erasing it, with each
//! mapping.

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, Purpose, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::engine_under_test;
use siltstone_vfs::{Mode, Ram, Vfs};

const MAPPINGS: [&str; 3] = ["skimpy", "semel", "vftl"];
const KEPT: u64 = 12;

/// Flips a byte in the first occurrence of these bytes in the device's file.
fn damage(vfs: &Arc<dyn Vfs>, bytes: &[u8]) {
    let files = vfs.list().unwrap().into_iter();
    for name in files.filter(|name| !name.starts_with("STAGE")) {
        let file = vfs.open(&name, Mode::ReadWrite).unwrap();
        let mut all = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut all, Purpose::Maintenance).unwrap();
        if let Some(at) = all.windows(bytes.len()).position(|window| window == bytes) {
            file.write_at(at as u64, &[bytes[0] ^ 0x20], Purpose::Maintenance).unwrap();
            return;
        }
    }
    panic!("no file contains the bytes");
}

#[test]
fn unreadable_page_with_live_versions_is_not_erased() {
    for mapping in MAPPINGS {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let text =
            format!("capacity=1MiB block=4 buckets=8 reserved_space=0.5 cache=0 mapping={mapping}");
        let options = Options::from_map(&engine_under_test::options([text.as_str()])).unwrap();
        let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
        let table = Skimpy::open(vfs.clone(), env, options).unwrap();
        let value = |key: u64| format!("the value of {key} is kept").into_bytes();
        for key in 0..KEPT {
            let mut batch = WriteBatch::new();
            batch.put(format!("kept-{key}").as_bytes(), &value(key));
            table.write(&batch, Durability::Synced).unwrap();
        }
        damage(&vfs, &value(3));

        let overwrite = |turn: u64| {
            let mut batch = WriteBatch::new();
            batch.put(&(turn % 50).to_le_bytes(), &[7; 900]);
            table.write(&batch, Durability::Buffered)
        };
        let stopped = (0..10_000).find_map(|turn| overwrite(turn).err());
        let error =
            stopped.unwrap_or_else(|| panic!("{mapping}: the log wrapped around over the damage"));
        assert!(
            error.is_corruption() || error.to_string().contains("cannot be read"),
            "{mapping}: {error}"
        );
        // A lost key is reported as damaged, not as absent.
        for key in 0..KEPT {
            let found = table.get(format!("kept-{key}").as_bytes());
            let is_right = found.as_ref().map_or(true, |entry| {
                entry.as_ref().is_some_and(|entry| entry.value == value(key))
            });
            assert!(is_right, "{mapping}: key {key}: {found:?}");
        }
    }
}
