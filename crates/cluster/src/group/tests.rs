#![allow(clippy::unwrap_used)]

use siltstone_engine::ManualClock;
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::Ram;

use super::*;

fn node(id: u64) -> Group {
    let open: OpenTable = Arc::new(|vfs| {
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        Ok(Arc::new(Lsm::open(vfs, env, Options::default())?) as Arc<dyn Engine>)
    });
    Group::create(Arc::new(Ram::new()), open, GroupOptions::new(1, id, id), &[1, 2]).unwrap()
}

/// Delivers everything until there is no more.
fn settle(nodes: &mut [Group; 2]) {
    loop {
        let ready = nodes.iter_mut().flat_map(|node| node.ready().unwrap().packets);
        let packets: Vec<_> = ready.collect();
        if packets.is_empty() {
            return;
        }
        for packet in packets {
            nodes[packet.to() as usize - 1].step(packet).unwrap();
        }
    }
}

fn elect(nodes: &mut [Group; 2]) {
    for _ in 0..30 {
        nodes[0].tick();
        settle(nodes);
    }
    assert!(nodes[0].leads());
}

#[test]
fn late_rejection_does_not_go_back_behind_what_matches() {
    let mut nodes = [node(1), node(2)];
    elect(&mut nodes);
    let leader = &mut nodes[0];
    leader.raft.report_unreachable(2);
    let matched = leader.matched(2).unwrap();
    let mut late = Message::default();
    (late.from, late.to, late.term) = (2, 1, leader.term());
    (late.index, late.reject) = (matched, true);
    late.set_msg_type(MessageType::MsgAppendResponse);
    leader.step(Packet::Raft(late)).unwrap();
    let progress = leader.raft.raft.prs().get(2).unwrap();
    assert!(progress.next_idx > matched, "{progress:?}");
}

#[test]
fn requests_of_other_nodes_are_ignored() {
    let mut nodes = [node(1), node(2)];
    elect(&mut nodes);
    let last = nodes[0].log().last_index();
    let mut forwarded = Message::default();
    (forwarded.from, forwarded.to) = (2, 1);
    forwarded.set_msg_type(MessageType::MsgPropose);
    forwarded.set_entries(vec![raft::eraftpb::Entry::default()].into());
    nodes[0].step(Packet::Raft(forwarded)).unwrap();
    settle(&mut nodes);
    assert_eq!(nodes[0].log().last_index(), last);
}

#[test]
fn failed_node_answers_nothing_but_its_error() {
    let mut node = node(1);
    node.failure = Some("the disk is gone".into());
    let error = node.ready().unwrap_err().to_string();
    assert!(error.contains("the disk is gone"), "{error}");
    assert!(matches!(node.propose(&WriteBatch::new()), Err(Rejection::Failed(_))));
}

#[test]
fn later_snapshot_takes_the_place_of_one_that_is_not_installed() {
    let mut nodes = [node(1), node(2)];
    elect(&mut nodes);
    let [leader, follower] = &mut nodes;
    let mut stream = |leader: &mut Group, number| {
        leader.ready().unwrap();
        let mut message = Message::default();
        (message.from, message.to, message.term) = (1, 2, leader.term());
        message.set_msg_type(MessageType::MsgSnapshot);
        let id = crate::StreamId { node: 1, incarnation: 1, number };
        let outgoing = Outgoing::begin(leader.table.clone(), message, id, 1000).unwrap();
        follower.step(Packet::Chunk(outgoing.chunk())).unwrap();
    };
    for number in 1..3 {
        let mut batch = WriteBatch::new();
        batch.put(b"k", &[number as u8]);
        // The follower has not got these entries; the leader applies them as if it had.
        leader.raft.propose(vec![], round::encode_batch(&batch)).unwrap();
        let ready_to = leader.raft.raft.raft_log.last_index();
        leader.ready().unwrap();
        let mut ack = Message::default();
        (ack.from, ack.to, ack.term, ack.index) = (2, 1, leader.term(), ready_to);
        ack.set_msg_type(MessageType::MsgAppendResponse);
        leader.step(Packet::Raft(ack)).unwrap();
        stream(leader, number);
    }
    let output = follower.ready().unwrap();
    assert!(output.events.contains(&Event::Restored), "{output:?}");
    assert_eq!(follower.applied(), leader.applied());
    assert_eq!(follower.table.get(b"k").unwrap().unwrap().value, [2]);
    assert_eq!(follower.vfs.subdirectories().unwrap().len(), 1);
}
