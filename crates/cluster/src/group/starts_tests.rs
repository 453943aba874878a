//! Starts of nodes: older copies of directories are recognized, and nothing else is.

#![allow(clippy::unwrap_used)]

use siltstone_faults::FaultyVfs;

use super::registration_tests::{Nodes, put};
use super::*;
use crate::identities::{MAGIC, Stage, replace_file};
use crate::log::is_lost;
use crate::packet::{ForgottenState, StartId};

const ALL: [u64; 3] = [1, 2, 3];

/// A group of three whose nodes have all been started again.
fn started() -> Nodes {
    let mut nodes = Nodes::start(&ALL);
    nodes.settle();
    for id in ALL {
        nodes.stop(id);
        nodes.restart(id, &ALL).unwrap();
        nodes.settle();
    }
    nodes
}

fn copy(nodes: &Nodes, id: u64) -> FaultyVfs {
    nodes.0[id as usize - 1].0.after_crash(id)
}

fn put_back(nodes: &mut Nodes, id: u64, copy: &FaultyVfs) {
    nodes.stop(id);
    nodes.0[id as usize - 1].0 = copy.after_crash(id);
}

fn write(nodes: &mut Nodes) {
    let leader = nodes.leader().unwrap();
    nodes.get(leader).propose(&put(b"k")).unwrap();
    nodes.settle();
}

/// Starts a node, which stops when others answer what it has forgotten.
fn is_refused(nodes: &mut Nodes, id: u64) -> String {
    nodes.restart(id, &ALL).unwrap();
    let failures = nodes.run(60, |_| true);
    let [(of, error)] = &failures[..] else { panic!("{failures:?}") };
    assert!(*of == id && is_lost(error), "{error}");
    // It needs no second answer.
    let again = nodes.restart(id, &ALL).err().unwrap();
    assert!(is_lost(&again) && again.to_string().contains("older copy"), "{again}");
    error.to_string()
}

#[test]
fn copy_of_before_the_last_start_is_refused_by_each_node_that_knows_of_it() {
    for knows in [1, 2] {
        let mut nodes = started();
        nodes.stop(3);
        let copied = copy(&nodes, 3);
        nodes.restart(3, &ALL).unwrap();
        nodes.settle();
        nodes.stop(3);
        // What the others have heard is gone, and what they have noted is not.
        ALL[..2].iter().for_each(|id| nodes.stop(*id));
        nodes.restart(knows, &ALL).unwrap();
        put_back(&mut nodes, 3, &copied);
        let error = is_refused(&mut nodes, 3);
        let expected = format!("has forgotten its start 2, as node {knows} knows");
        assert!(error.contains(&expected) && error.contains("cluster remove"), "{error}");
        assert_eq!(nodes.leader(), None);
    }
}

#[test]
fn copy_that_is_started_often_while_it_reaches_nobody_is_refused_in_the_end() {
    let mut nodes = started();
    let copied = copy(&nodes, 3);
    for _ in 0..2 {
        nodes.stop(3);
        nodes.restart(3, &ALL).unwrap();
        nodes.settle();
    }
    put_back(&mut nodes, 3, &copied);
    for _ in 0..10 {
        nodes.restart(3, &ALL).unwrap();
        assert!(nodes.run(5, |_| false).is_empty());
    }
    is_refused(&mut nodes, 3);
}

#[test]
fn copy_of_a_running_node_is_refused_by_whoever_has_heard_what_it_has_forgotten() {
    // An acknowledged entry.
    let mut nodes = started();
    let copied = copy(&nodes, 3);
    write(&mut nodes);
    put_back(&mut nodes, 3, &copied);
    assert!(is_refused(&mut nodes, 3).contains("has forgotten that it had entry"));
    // An entry that the leader has counted itself for, when its follower has heard of the commit.
    let mut nodes = started();
    let leader = nodes.leader().unwrap();
    let (copied, absent) = (copy(&nodes, leader), leader % 3 + 1);
    nodes.stop(absent);
    write(&mut nodes);
    put_back(&mut nodes, leader, &copied);
    assert!(is_refused(&mut nodes, leader).contains("has forgotten that it had entry"));
    // A vote in a later term.
    let mut nodes = started();
    let leader = nodes.leader().unwrap();
    let copies = ALL.map(|id| copy(&nodes, id));
    nodes.stop(leader);
    nodes.settle();
    let candidate = nodes.leader().unwrap();
    let voter = 6 - leader - candidate;
    put_back(&mut nodes, voter, &copies[voter as usize - 1]);
    assert!(is_refused(&mut nodes, voter).contains("forgotten that it had reached term"));
}

#[test]
fn copy_of_a_running_node_that_has_forgotten_nothing_takes_part() {
    let mut nodes = started();
    let copied = copy(&nodes, 3);
    put_back(&mut nodes, 3, &copied);
    nodes.restart(3, &ALL).unwrap();
    nodes.settle();
    write(&mut nodes);
    let applied = nodes.get(1).applied().clone();
    assert_eq!(*nodes.get(3).applied(), applied);
}

#[test]
fn forgotten_vote_of_the_same_term_is_recognized() {
    let mut nodes = started();
    let start = |vote, last| crate::packet::Start {
        from: 3,
        to: 1,
        id: StartId { number: 9, random: 9 },
        process: 9,
        term: 7,
        vote,
        last,
    };
    let mut vote = Message { from: 3, to: 1, term: 7, ..Message::default() };
    vote.set_msg_type(MessageType::MsgRequestVoteResponse);
    nodes.get(1).raft.raft.term = 7;
    nodes.get(1).note_durable_state(&vote);
    let directory = nodes.get(3).directory();
    let mut answer = |vote| {
        nodes.get(1).output.packets.clear();
        nodes.get(1).note_start(directory, &start(vote, 100)).unwrap();
        match nodes.get(1).output.packets[..] {
            [Packet::Started(ref answer)] => answer.forgotten,
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(answer(0), Some(ForgottenState::Vote(7)));
    assert_eq!(answer(2), Some(ForgottenState::Vote(7)));
    assert_eq!(answer(1), None);
}

#[test]
fn start_is_repeated_after_a_power_cut_at_any_operation() {
    for cut in 0.. {
        let mut nodes = started();
        nodes.stop(3);
        let before = nodes.0[2].0.after_crash(cut);
        before.cut_power_at(cut);
        nodes.0[2].0 = before;
        let is_started = nodes.restart(3, &ALL).is_ok() && {
            // The disk fails while the node begins to take part.
            let mut is_whole = true;
            for _ in 0..5 {
                let group = nodes.get(3);
                group.tick();
                let Ok(output) = group.ready() else {
                    is_whole = false;
                    break;
                };
                let directory = group.directory();
                for packet in output.packets {
                    let to = packet.to();
                    let _ = nodes.get(to).step(Envelope { group: 1, directory, packet });
                }
                for from in [1, 2] {
                    let directory = nodes.get(from).directory();
                    for packet in nodes.get(from).ready().unwrap().packets {
                        let to = packet.to();
                        let envelope = Envelope { group: 1, directory, packet };
                        is_whole &= nodes.get(to).step(envelope).is_ok();
                    }
                }
            }
            is_whole && nodes.get(3).takes_part()
        };
        nodes.stop(3);
        nodes.0[2].0.cut_power();
        nodes.0[2].0 = nodes.0[2].0.survivors(cut);
        nodes.restart(3, &ALL).unwrap();
        nodes.settle();
        write(&mut nodes);
        if is_started {
            assert!(cut > 10, "{cut}");
            return;
        }
    }
}

#[test]
fn majority_is_enough_after_an_election_timeout() {
    let mut nodes = started();
    ALL.iter().for_each(|id| nodes.stop(*id));
    [1, 2].iter().for_each(|id| nodes.restart(*id, &ALL).unwrap());
    assert!(nodes.run(5, |_| true).is_empty());
    assert!(!nodes.get(1).takes_part());
    nodes.settle();
    write(&mut nodes);
    // The third one is asked when it is back, and with that it knows.
    let copied = copy(&nodes, 1);
    nodes.stop(1);
    nodes.restart(1, &ALL).unwrap();
    nodes.settle();
    nodes.restart(3, &ALL).unwrap();
    nodes.settle();
    nodes.stop(2);
    put_back(&mut nodes, 1, &copied);
    assert!(is_refused(&mut nodes, 1).contains("as node 3 knows"));
}

#[test]
fn node_of_an_earlier_version_is_not_waited_for() {
    let mut nodes = started();
    ALL.iter().for_each(|id| nodes.stop(*id));
    nodes.restart(1, &ALL).unwrap();
    [2, 3].iter().for_each(|id| nodes.get(1).note_earlier_version(*id));
    nodes.get(1).ready().unwrap();
    assert!(nodes.get(1).takes_part() && nodes.get(1).starts.exchanges_with(2));
}

#[test]
fn directory_of_the_previous_version_begins_its_first_start() {
    let mut nodes = Nodes::start(&ALL);
    nodes.settle();
    for id in ALL {
        nodes.stop(id);
        let vfs = &nodes.0[id as usize - 1].0;
        let identities = Identities::open(Arc::new(vfs.clone())).unwrap();
        let mut body = [&MAGIC[..], &[3], &identities.own().to_le_bytes(), &[2]].concat();
        body.extend_from_slice(&0u32.to_le_bytes());
        replace_file(vfs, body).unwrap();
    }
    ALL.iter().for_each(|id| nodes.restart(*id, &ALL).unwrap());
    nodes.settle();
    write(&mut nodes);
    assert!(ALL.iter().all(|id| nodes.get(*id).identities.start().number == 1));
    assert!(nodes.get(1).identities.stage() == Stage::Registered);
}
