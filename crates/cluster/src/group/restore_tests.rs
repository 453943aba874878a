//! New groups from the checkpoint of another group's table.

#![allow(clippy::unwrap_used)]

use siltstone_engine::ManualClock;
use siltstone_faults::FaultyVfs;
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_testkit::TestRng;
use siltstone_vfs::{DirectorySink, Ram};

use super::*;
use crate::directory_rows;
use crate::identities::{Stage, stage_in};
use crate::stream::table_name;

const KEPT: &[u8] = b"\xff\xc0\xfekept";
const KEPT_TOO: &[u8] = b"\xff\xc0\xfekept, as it begins like the other";

fn open_table() -> OpenTable {
    Arc::new(|vfs| {
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        Ok(Arc::new(Lsm::open(vfs, env, Options::default())?) as Arc<dyn Engine>)
    })
}

/// Writes at the only node of a group.
fn write(group: &mut Group, key: &[u8]) {
    let mut batch = WriteBatch::new();
    batch.put(key, b"value");
    let id = group.propose(&batch).unwrap();
    assert!(group.ready().unwrap().events.contains(&Event::Applied(id)));
}

/// The checkpoint of a group of one node that has some rows, in a directory of its own.
fn checkpoint(target: &Arc<dyn Vfs>) -> (u64, u64) {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let options = GroupOptions::new(1, 5, 5);
    let mut group = Group::create(vfs.clone(), open_table(), options, &[5]).unwrap();
    group.campaign_if_alone();
    group.ready().unwrap();
    for key in [b"k", KEPT, KEPT_TOO, b"\xff\xc0\xfeother"] {
        write(&mut group, key);
    }
    let name = table_name(group.log().table());
    let copy = target.subdirectory(&name).unwrap();
    let mut sink = DirectorySink::new(vfs.subdirectory(&name).unwrap(), copy.clone());
    group.table().checkpoint(&mut sink).unwrap();
    copy.sync_dir(siltstone_engine::Purpose::Maintenance).unwrap();
    target.sync_dir(siltstone_engine::Purpose::Maintenance).unwrap();
    (group.applied().index, group.applied().term)
}

fn restore(vfs: Arc<dyn Vfs>) -> Result<Group> {
    Group::restore(vfs, open_table(), GroupOptions::new(2, 1, 1), &[KEPT])
}

#[test]
fn restored_group_goes_on_behind_the_checkpoint_over_power_cuts() {
    for cut in 0.. {
        let mut rng = TestRng::new(cut);
        let vfs = FaultyVfs::new(cut);
        let (index, term) = checkpoint(&(Arc::new(vfs.clone()) as Arc<dyn Vfs>));
        vfs.cut_power_at(vfs.operations() + cut);
        let is_done = restore(Arc::new(vfs.clone())).is_ok();
        vfs.cut_power();
        let survivors = vfs.survivors(rng.draw());
        let vfs: Arc<dyn Vfs> = Arc::new(survivors);
        let is_created = stage_in(vfs.as_ref()).unwrap() == Some(Stage::Registered);
        assert!(is_created || !is_done, "{cut}");
        let options = GroupOptions::new(2, 1, 1);
        let mut group = match is_created {
            true => Group::open(vfs.clone(), open_table(), options).unwrap(),
            false => restore(vfs.clone()).unwrap(),
        };
        assert_eq!((group.applied().index, group.applied().term), (index, term), "{cut}");
        assert_eq!(group.applied().members.voters, [1]);
        assert!(directory_rows::read(group.table().as_ref()).unwrap().is_empty());
        group.campaign_if_alone();
        group.ready().unwrap();
        assert!(group.leads() && group.term() > term);
        write(&mut group, b"k2");
        let has = |key: &[u8]| group.table().get(key).unwrap().is_some();
        let kept: [&[u8]; 4] = [b"k", b"k2", KEPT, KEPT_TOO];
        assert!(kept.into_iter().all(has) && !has(b"\xff\xc0\xfeother"), "{cut}");
        assert_eq!(group.committed_directories().keys().collect::<Vec<_>>(), [&1]);
        drop(group);
        // It is no directory to restore any more.
        let again = restore(vfs.clone()).err().unwrap().to_string();
        assert!(again.contains("lives here already"), "{again}");
        if is_done {
            assert!(cut > 10, "{cut}");
            return;
        }
    }
}

#[test]
fn directory_without_one_table_is_not_restored() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let missing = restore(vfs.clone()).err().unwrap().to_string();
    assert!(missing.contains("must have the table of one group"), "{missing}");
    checkpoint(&vfs);
    vfs.subdirectory("table-000009").unwrap().create("x").unwrap();
    assert!(restore(vfs).is_err());
}
