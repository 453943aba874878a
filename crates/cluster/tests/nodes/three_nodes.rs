//! Groups of three nodes in one process, over TCP and on directories.

use std::collections::BTreeMap;
use std::sync::{Mutex, RwLock};

use siltstone_cluster::Change;
use siltstone_cluster::log::is_lost;
use siltstone_cluster::node::{NodeHandle, Refusal, RequestError, Role};

use crate::clients::{Answer, Histories, Service};
use crate::support::{
    TICK, TIMEOUT, TestCluster, TestNode, node_options, propose, put, read_index, wait_for,
};

/// The handles of the running nodes.
#[derive(Default)]
struct Handles(RwLock<BTreeMap<u64, NodeHandle>>);

impl Handles {
    fn of(cluster: &TestCluster) -> Self {
        let handles = Handles::default();
        handles.update(cluster);
        handles
    }

    fn update(&self, cluster: &TestCluster) {
        let running = cluster.nodes.iter().filter(|node| node.is_running());
        *self.0.write().unwrap() = running.map(|node| (node.id, node.handle().clone())).collect();
    }

    fn handle(&self, node: u64) -> Option<NodeHandle> {
        self.0.read().unwrap().get(&node).cloned()
    }
}

fn leader_of(refusal: &Refusal) -> Option<u64> {
    match refusal {
        Refusal::NotLeader { leader } => leader.as_ref().map(|leader| leader.node),
        _ => None,
    }
}

impl Service for Handles {
    fn nodes(&self) -> u64 {
        3
    }

    fn get(&self, node: u64, key: &str) -> Answer<(u64, Option<String>)> {
        let Some(handle) = self.handle(node) else { return Answer::Refused(None) };
        match read_index(&handle) {
            Err(refusal) => Answer::Refused(leader_of(&refusal)),
            Ok(read) => match handle.table().get(key.as_bytes()) {
                Ok(entry) => {
                    let value = entry.map(|entry| String::from_utf8(entry.value).unwrap());
                    Answer::Done((read.term, value))
                }
                // The node was stopped meanwhile.
                Err(_) => Answer::Unknown,
            },
        }
    }

    fn put(&self, node: u64, term: Option<u64>, key: &str, value: &str) -> Answer<()> {
        let Some(handle) = self.handle(node) else { return Answer::Refused(None) };
        match propose(&handle, term, put(key, value)) {
            Ok(_) => Answer::Done(()),
            Err(RequestError::NotProposed(refusal)) => Answer::Refused(leader_of(&refusal)),
            Err(RequestError::OutcomeUnknown(_)) => Answer::Unknown,
        }
    }
}

#[test]
fn no_acknowledged_write_is_lost_when_nodes_stop_and_start() {
    let cluster = Mutex::new(TestCluster::start(3, node_options));
    let service = Handles::of(&cluster.lock().unwrap());
    let histories = Histories::default();
    let mut handovers = 0;
    histories.run(&service, 1, || {
        let mut cluster = cluster.lock().unwrap();
        for round in 0..4 {
            histories.next_phase();
            let enough = histories.acknowledged() + 60;
            wait_for("writes", || histories.acknowledged() >= enough);
            // The leader, then a follower.
            let at = (cluster.leader() + round % 2) % 3;
            let handle = cluster.nodes[at].handle().clone();
            let before = handle.status();
            cluster.nodes[at].stop();
            let after = handle.status();
            handovers += u64::from(before.role == Role::Leader && after.term > before.term);
            service.update(&cluster);
            let enough = histories.acknowledged() + 60;
            wait_for("writes with two nodes", || histories.acknowledged() >= enough);
            cluster.open(at).unwrap();
            service.update(&cluster);
        }
    });
    histories.check(&service);
    // A leader that is held up may lose its leadership otherwise.
    assert!(handovers > 0, "no leader has handed over before it stopped");
    cluster.into_inner().unwrap().check_that_all_agree();
}

#[test]
fn leader_that_is_cut_off_neither_acknowledges_nor_reads() {
    let cluster = TestCluster::start(3, node_options);
    cluster.write("k", "1");
    let old = cluster.leader();
    let status = cluster.nodes[old].handle().status();
    let address = format!("client-of-{}", old + 1);
    assert_eq!(status.leader.clone().unwrap().client_address, Some(address.clone()));
    let peers = [1, 2, 3].into_iter().filter(|&node| node != old as u64 + 1);
    for peer in peers.clone() {
        wait_for("the leader's address at the others", || {
            let status = cluster.nodes[peer as usize - 1].handle().status();
            let leader = status.leader.clone();
            leader.is_some_and(|leader| leader.client_address.as_ref() == Some(&address))
        });
        cluster.nodes[old].transport().remove_peer(peer);
    }
    let handle = cluster.nodes[old].handle();
    // It still takes itself for the leader, and finds out while the requests wait.
    let read = std::thread::scope(|scope| {
        let read = scope.spawn(|| read_index(handle));
        let write = propose(handle, None, put("k", "2"));
        assert!(matches!(write, Err(RequestError::OutcomeUnknown(_))), "{write:?}");
        read.join().unwrap()
    });
    assert!(matches!(read, Err(Refusal::NotLeader { .. })), "{read:?}");
    let write = propose(handle, None, put("k", "3"));
    assert!(
        matches!(write, Err(RequestError::NotProposed(Refusal::NotLeader { .. }))),
        "{write:?}"
    );
    wait_for("another leader", || cluster.leader() != old);
    cluster.write("k", "4");
    for peer in peers {
        let address = cluster.nodes[peer as usize - 1].address.to_string();
        cluster.nodes[old].transport().set_peer(peer, address).unwrap();
    }
    cluster.check_that_all_agree();
    assert_eq!(cluster.nodes[old].handle().table().get(b"k").unwrap().unwrap().value, b"4");
}

#[test]
fn follower_behind_the_compacted_log_is_sent_a_snapshot() {
    let mut cluster = TestCluster::start(3, |id| {
        let mut options = node_options(id);
        options.group.max_log_bytes = 20_000;
        options.group.retained_entries = 5;
        options.group.max_chunk_bytes = 5_000;
        options
    });
    let value = "v".repeat(500);
    cluster.write("first", "1");
    let follower = (cluster.leader() + 1) % 3;
    cluster.nodes[follower].stop();
    for number in 0..150 {
        cluster.write(&format!("key-{number}"), &value);
    }
    cluster.open(follower).unwrap();
    let handle = cluster.nodes[follower].handle().clone();
    let old = handle.table();
    wait_for("a snapshot", || handle.status().snapshots > 0);
    cluster.check_that_all_agree();
    assert!(old.get(b"first").is_err(), "the old table is not closed");
    assert_eq!(handle.table().get(b"key-149").unwrap().unwrap().value, value.as_bytes());
    let lagging = |cluster: &TestCluster| {
        let status = cluster.nodes[cluster.leader()].handle().status();
        status.peers.iter().map(|peer| peer.lag).max()
    };
    wait_for("no lag", || lagging(&cluster) == Some(0));
}

#[test]
fn node_without_its_directory_is_refused_and_replaced_under_a_new_id() {
    let mut cluster = TestCluster::start(3, node_options);
    cluster.write("k", "1");
    let lost = (cluster.leader() + 1) % 3;
    let id = cluster.nodes[lost].id;
    cluster.nodes[lost].stop();
    std::fs::remove_dir_all(&cluster.nodes[lost].directory).unwrap();
    let error = cluster.open(lost).unwrap_err();
    assert!(is_lost(&error), "{error}");
    cluster.create(4, &[]);
    cluster.change(&[Change::AddLearner(4)]);
    let joined = cluster.nodes[3].handle().clone();
    wait_for("the table at the new node", || {
        joined.status().role == Role::Learner
            && joined.table().get(b"k").is_ok_and(|entry| entry.is_some())
    });
    cluster.change(&[Change::Promote(4), Change::Remove(id)]);
    wait_for("the new node to vote", || {
        let status = joined.status();
        status.role != Role::Learner && status.voters.len() == 3 && !status.voters.contains(&id)
    });
    cluster.check_that_all_agree();
    // With two of three, one of which is the new one.
    let other = (0..3).find(|&at| at != lost && at != cluster.leader()).unwrap_or(cluster.leader());
    cluster.nodes[other].stop();
    cluster.write("k", "2");
    assert!(cluster.root().exists());
}

#[test]
fn emptied_node_under_its_old_id_cannot_lose_an_acknowledged_write() {
    let mut cluster = TestCluster::start(3, node_options);
    cluster.check_that_all_agree();
    let behind = (cluster.leader() + 1) % 3;
    let (kept, emptied) = ((behind + 1) % 3, (behind + 2) % 3);
    cluster.nodes[behind].stop();
    // Two nodes have this write. One of them is emptied, and the other one is down.
    cluster.write("k", "acknowledged");
    cluster.nodes[emptied].stop();
    cluster.nodes[kept].stop();
    cluster.create_again(emptied, &[1, 2, 3]);
    cluster.open(behind).unwrap();
    let emptied_id = cluster.nodes[emptied].id;
    let handle = cluster.nodes[behind].handle().clone();
    wait_for("a refusal", || handle.status().refused_nodes == [emptied_id]);
    let again = cluster.nodes[emptied].handle().clone();
    wait_for("the end of the emptied node", || again.status().is_stopped);
    let error = cluster.nodes[emptied].shut_down().unwrap_err();
    assert!(is_lost(&error) && error.to_string().contains("created again"), "{error}");
    // Several election timeouts.
    std::thread::sleep(60 * TICK);
    assert_ne!(handle.status().role, Role::Leader);
    cluster.open(kept).unwrap();
    cluster.write("k2", "v");
    let leader = cluster.leader();
    assert!(leader != emptied);
    let table = cluster.nodes[leader].handle().table();
    assert_eq!(table.get(b"k").unwrap().unwrap().value, b"acknowledged");
    // It joins again under a new id.
    cluster.create(4, &[]);
    cluster.change(&[Change::AddLearner(4)]);
    let joined = cluster.nodes[3].handle().clone();
    wait_for("the new node to catch up", || joined.table().get(b"k2").is_ok_and(|k| k.is_some()));
    cluster.change(&[Change::Promote(4), Change::Remove(emptied_id)]);
    cluster.check_that_all_agree();
}

#[test]
fn leadership_is_handed_over_without_a_lost_write() {
    let cluster = TestCluster::start(3, node_options);
    let service = Handles::of(&cluster);
    let histories = Histories::default();
    histories.run(&service, 2, || {
        for _ in 0..3 {
            histories.next_phase();
            let enough = histories.acknowledged() + 30;
            wait_for("writes", || histories.acknowledged() >= enough);
            let old = cluster.leader();
            let next = 1 + (old as u64 + 1) % 3;
            let (done, outcome) = std::sync::mpsc::channel();
            cluster.nodes[old].handle().transfer_leader(next, move |result| {
                done.send(result).unwrap();
            });
            outcome.recv().unwrap().unwrap();
            // An aborted handover is possible, if the machine is slow.
            wait_for("a leader", || cluster.leader() < 3);
        }
    });
    histories.check(&service);
    cluster.check_that_all_agree();
    let wrong = cluster.leader();
    let (done, outcome) = std::sync::mpsc::channel();
    cluster.nodes[wrong].handle().transfer_leader(9, move |result| done.send(result).unwrap());
    assert!(matches!(outcome.recv().unwrap(), Err(Refusal::Invalid(_))));
}

#[test]
fn write_costs_one_sync_per_node() {
    const WRITES: u64 = 50;
    let cluster = TestCluster::start(3, node_options);
    cluster.write("k", "0");
    cluster.check_that_all_agree();
    let leader = cluster.nodes[cluster.leader()].handle();
    let count = |of: fn(&TestNode) -> u64| cluster.nodes.iter().map(of).collect::<Vec<_>>();
    let (syncs, packets) = (count(TestNode::log_syncs), count(TestNode::sent_packets));
    for number in 0..WRITES {
        propose(leader, None, put("k", &number.to_string())).unwrap();
    }
    let since = |before: &[u64], after: Vec<u64>| {
        after.iter().zip(before).map(|(after, before)| after - before).collect::<Vec<_>>()
    };
    let syncs = since(&syncs, count(TestNode::log_syncs));
    let packets: u64 = since(&packets, count(TestNode::sent_packets)).iter().sum();
    println!("{WRITES} writes: syncs {syncs:?}, {packets} packets of all nodes");
    // The last write may not be at all followers yet, and an election is possible.
    assert!(syncs.iter().all(|&syncs| syncs <= WRITES + 3), "{syncs:?}");
    assert!(syncs.iter().sum::<u64>() >= 2 * WRITES, "{syncs:?}");
}

#[test]
fn message_arrives_at_the_named_node_with_its_sender_and_in_order() {
    let cluster = TestCluster::start(3, node_options);
    cluster.write("k", "1");
    let [one, two, three] = [0, 1, 2].map(|node| cluster.nodes[node].handle().clone());
    // Before there is a connection messages are lost.
    wait_for("a first message", || {
        one.send_message(2, b"first".to_vec());
        two.next_message(TICK).is_some()
    });
    while two.next_message(TICK).is_some() {}
    for number in 0..10 {
        one.send_message(2, vec![number]);
    }
    for number in 0..10 {
        let message = two.next_message(TIMEOUT).unwrap();
        assert_eq!((message.from, message.to, message.bytes), (1, 2, vec![number]));
    }
    assert!(three.next_message(TICK).is_none());
}
