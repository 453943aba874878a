//! The public API, with groups of one node on a disk in memory.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_cluster::log::is_lost;
use siltstone_cluster::{Change, Event, Group, GroupOptions, OpenTable, Output, Rejection};
use siltstone_engine::{Engine, SystemClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

fn open_table() -> OpenTable {
    Arc::new(|vfs| {
        let env = Env::replayable(Arc::new(SystemClock), 1);
        Ok(Arc::new(Lsm::open(vfs, env, Options::default())?) as Arc<dyn Engine>)
    })
}

fn options() -> GroupOptions {
    GroupOptions::new(1, 7, 3)
}

fn create(vfs: &Arc<Ram>) -> Group {
    Group::create(vfs.clone(), open_table(), options(), &[7]).unwrap()
}

fn open(vfs: &Arc<Ram>, options: GroupOptions) -> siltstone_engine::Result<Group> {
    Group::open(vfs.clone(), open_table(), options)
}

fn elect(group: &mut Group) {
    for _ in 0..30 {
        group.tick();
        group.ready().unwrap();
    }
    assert!(group.leads());
}

fn put(key: &[u8], value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, value);
    batch
}

fn events(output: siltstone_engine::Result<Output>) -> Vec<Event> {
    output.unwrap().events
}

#[test]
fn proposal_is_applied_and_read_back_after_reopen() {
    let vfs = Arc::new(Ram::new());
    let mut group = create(&vfs);
    elect(&mut group);
    let id = group.propose(&put(b"k", b"v")).unwrap();
    assert_eq!(events(group.ready()), [Event::Applied(id)]);
    let read = group.read_index().unwrap();
    let term = group.term();
    assert_eq!(events(group.ready()), [Event::ReadReady { id: read, term }]);
    assert!(matches!(group.propose_at(term - 1, &put(b"k", b"w")), Err(Rejection::OldTerm)));
    group.close().unwrap();
    let mut group = open(&vfs, options()).unwrap();
    assert_eq!(group.table().get(b"k").unwrap().unwrap().value, b"v");
    assert!(matches!(group.propose(&put(b"k", b"w")), Err(Rejection::NotLeader { leader: None })));
    elect(&mut group);
    assert_eq!(group.table().get(b"k").unwrap().unwrap().value, b"v");
}

#[test]
fn wrong_requests_are_rejected() {
    let mut group = create(&Arc::new(Ram::new()));
    elect(&mut group);
    assert!(matches!(group.propose(&put(b"\xff\xc0\xffx", b"v")), Err(Rejection::Invalid(_))));
    let mut merge = WriteBatch::new();
    merge.merge(b"k", b"operand");
    let rejection = group.propose(&merge);
    assert!(matches!(rejection, Err(Rejection::Invalid(_))), "{rejection:?}");
    group.ready().unwrap();
    let error = group.change_membership(&[Change::Remove(7)]).unwrap_err().to_string();
    assert!(error.contains("leads"), "{error}");
    let id = group.change_membership(&[Change::AddLearner(8)]).unwrap();
    let error = group.change_membership(&[Change::AddLearner(9)]).unwrap_err();
    assert!(matches!(error, Rejection::Busy(_)), "{error}");
    assert_eq!(events(group.ready()), [Event::Applied(id)]);
    assert_eq!(group.applied().members.learners, [8]);
}

#[test]
fn node_without_its_log_or_table_does_not_open() {
    let refused = |vfs: &Arc<Ram>| {
        let error = open(vfs, options()).err().unwrap();
        assert!(is_lost(&error) && error.to_string().contains("under a new node id"), "{error}");
    };
    refused(&Arc::new(Ram::new()));
    let vfs = Arc::new(Ram::new());
    drop(create(&vfs));
    vfs.remove_subdirectory("table-000001").unwrap();
    refused(&vfs);
    let vfs = Arc::new(Ram::new());
    drop(create(&vfs));
    let log = vfs.list().unwrap().into_iter().find(|name| name.ends_with(".log")).unwrap();
    vfs.remove(&log).unwrap();
    refused(&vfs);
    assert!(vfs.has_subdirectory("table-000001").unwrap(), "the table was removed");
}

#[test]
fn log_of_another_node_is_refused() {
    let vfs = Arc::new(Ram::new());
    drop(create(&vfs));
    let other = GroupOptions { node: 8, ..options() };
    let error = open(&vfs, other).err().unwrap();
    assert!(!is_lost(&error) && error.to_string().contains("node 7 of group 1"), "{error}");
}
