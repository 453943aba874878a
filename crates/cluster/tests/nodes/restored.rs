//! Barriers at followers, and new groups from checkpoints of a running node.

use std::sync::Arc;

use siltstone_cluster::Change;
use siltstone_cluster::node::Role;
use siltstone_engine::Purpose;
use siltstone_vfs::{Disk, Vfs};

use crate::support::{TestCluster, barrier, node_options, wait_for};

#[test]
fn follower_has_what_was_acknowledged_before_its_barrier() {
    let mut cluster = TestCluster::start(3, node_options);
    cluster.write("k", "0");
    for round in 1..50 {
        let value = round.to_string();
        cluster.write("k", &value);
        let at = (cluster.leader() + round % 3) % 3;
        let handle = cluster.nodes[at].handle();
        // Refused while an election is under way.
        wait_for("a barrier", || barrier(handle).is_ok());
        let found = handle.table().get(b"k").unwrap().unwrap().value;
        assert_eq!(found, value.as_bytes(), "node {at}");
    }
    // Without a majority there is no outcome, until the next one begins.
    let follower = (cluster.leader() + 1) % 3;
    (0..3).filter(|at| *at != follower).for_each(|at| cluster.nodes[at].stop());
    let handle = cluster.nodes[follower].handle();
    wait_for("no leader", || handle.status().leader.is_none());
    assert!(barrier(handle).is_err());
}

#[test]
fn checkpoint_of_a_follower_begins_a_new_group_that_others_join() {
    let cluster = TestCluster::start(3, node_options);
    for number in 0..200 {
        cluster.write(&format!("key-{number}"), "before");
    }
    let follower = cluster.nodes[(cluster.leader() + 1) % 3].handle();
    wait_for("a barrier", || barrier(follower).is_ok());
    let copy: Arc<dyn Vfs> = Arc::new(Disk::create(cluster.root().join("copy")).unwrap());
    follower.checkpoint(copy.as_ref()).unwrap();
    copy.sync_dir(Purpose::Maintenance).unwrap();
    cluster.write("key-0", "after");
    let mut restored = TestCluster::restore(&cluster.root().join("copy"));
    restored.write("more", "1");
    restored.create(2, &[]);
    restored.change(&[Change::AddLearner(2)]);
    let joined = restored.nodes[1].handle().clone();
    wait_for("the table at the new node", || {
        joined.status().role == Role::Learner
            && joined.table().get(b"more").is_ok_and(|entry| entry.is_some())
    });
    restored.change(&[Change::Promote(2)]);
    for at in 0..2 {
        let table = restored.nodes[at].handle().table();
        for number in 0..200 {
            let key = format!("key-{number}");
            assert_eq!(table.get(key.as_bytes()).unwrap().unwrap().value, b"before");
        }
    }
    restored.check_that_all_agree();
    cluster.check_that_all_agree();
}
