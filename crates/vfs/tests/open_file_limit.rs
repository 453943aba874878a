//! The process's limit of open files below the budget. One test: the limit is the process's.

#![cfg(all(target_os = "linux", not(siltstone_portable)))]
#![allow(clippy::unwrap_used, reason = "a test")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use siltstone_engine::Purpose;
use siltstone_vfs::{Disk, DiskOptions, Mode, Vfs};

const WHY: Purpose = Purpose::Maintenance;

fn set_limit(current: u64) {
    let limit = Rlimit { current: Some(current), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn process_limit_lowers_the_budget_and_is_survived_when_it_is_reached() {
    let scratch = tempfile::tempdir().unwrap();
    let open = || Disk::open(scratch.path()).unwrap();
    assert_eq!(open().open_files().unwrap().max_open, DiskOptions::default().max_open_files as u64);
    set_limit(64);
    assert_eq!(open().open_files().unwrap().max_open, 32);
    set_limit(40);
    let disk = open();
    assert_eq!(disk.open_files().unwrap().max_open, 16);
    // Logs with unsynced bytes are not closed for the budget. Near the limit they are, after a sync.
    let logs: Vec<_> = (0..60)
        .map(|i| {
            let log = disk.create_append(&format!("{i}.log")).unwrap();
            log.allow_close();
            log.write_at(0, &[i; 100], WHY).unwrap();
            log
        })
        .collect();
    for (i, log) in logs.iter().enumerate() {
        log.write_at(100, &[i as u8; 100], WHY).unwrap();
        let read = disk.open(&format!("{i}.log"), Mode::Read).unwrap();
        let mut bytes = [0; 200];
        read.read_at(0, &mut bytes, WHY).unwrap();
        assert_eq!(bytes, [i as u8; 200]);
        // 16 are left to sockets, pipes and whatever else does not try again.
        let open = disk.open_files().unwrap().open;
        assert!(open <= 40 - 16, "{open} files are open");
    }
    // Everything else that takes a descriptor.
    assert_eq!(disk.list().unwrap().len(), 60);
    disk.sync_dir(WHY).unwrap();
    let _lock = disk.lock("LOCK").unwrap();
    let _mapping = disk.map("mapped", 4096).unwrap();
    disk.subdirectory("sub").unwrap().create("file").unwrap();
    disk.remove_subdirectory("sub").unwrap();
    disk.remove("0.log").unwrap();
    logs.iter().for_each(|log| log.sync(WHY).unwrap());
    // Many removed files, which are closed in the background.
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let name = |i| format!("removed-{i}");
    (0..100).for_each(|i| std::fs::write(scratch.path().join(name(i)), "content").unwrap());
    for i in 0..100 {
        disk.remove(&name(i)).unwrap();
        assert!(descriptors() < 40 - 5, "after {i} removals");
    }
    // A directory whose name could not be made durable must not be found by the next attempt.
    let path = scratch.path().join("new");
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    assert!(Disk::create(&path).is_err() && !path.exists());
    drop(taken);
    Disk::create(&path).unwrap();
}
