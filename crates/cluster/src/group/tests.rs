//! A group against single messages: late and foreign ones, snapshots, the order of sends and syncs.

#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;
use siltstone_engine::{Durability, ManualClock, forward_engine};
use siltstone_faults::{FaultKind, FaultyVfs};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::Ram;

use super::*;
use crate::planted::with_planted;

fn open_table() -> OpenTable {
    Arc::new(|vfs| {
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        Ok(Arc::new(Lsm::open(vfs, env, Options::default())?) as Arc<dyn Engine>)
    })
}

fn node_on(vfs: Arc<dyn Vfs>, id: u64, voters: &[u64]) -> Group {
    let options = GroupOptions::new(1, id, id);
    Group::create(vfs, open_table(), options, voters).unwrap().assume_registered()
}

fn node(id: u64) -> Group {
    node_on(Arc::new(Ram::new()), id, &[1, 2])
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
            nodes[packet.to() as usize - 1].handle(packet).unwrap();
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
    leader.handle(Packet::Raft(late)).unwrap();
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
    nodes[0].handle(Packet::Raft(forwarded)).unwrap();
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
        let outgoing = OutgoingSnapshot::begin(leader.table.clone(), message, id, 1000).unwrap();
        follower.handle(Packet::Chunk(outgoing.chunk())).unwrap();
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
        leader.handle(Packet::Raft(ack)).unwrap();
        stream(leader, number);
    }
    let output = follower.ready().unwrap();
    assert!(output.events.contains(&Event::Restored), "{output:?}");
    assert_eq!(follower.applied(), leader.applied());
    assert_eq!(follower.table.get(b"k").unwrap().unwrap().value, [2]);
    assert_eq!(follower.vfs.subdirectories().unwrap().len(), 1);
}

#[test]
fn sole_voter_sends_nothing_of_a_new_term_before_it_is_durable() {
    assert_eq!(sent_before_a_failed_first_sync(), []);
    let sent = with_planted(Fault::EarlyFirstAppend, sent_before_a_failed_first_sync);
    assert_eq!(sent.len(), 1);
}

fn sent_before_a_failed_first_sync() -> Vec<Packet> {
    let vfs = FaultyVfs::new(1);
    let mut node = node_on(Arc::new(vfs.clone()), 1, &[1]);
    node.campaign_if_alone();
    node.ready().unwrap();
    node.change_membership(&[Change::AddLearner(2)]).unwrap();
    node.ready().unwrap();
    node.close().unwrap();
    let options = GroupOptions::new(1, 1, 1);
    let mut node = Group::open(Arc::new(vfs.clone()), open_table(), options).unwrap();
    // The learner is not there.
    (0..10).for_each(|_| node.tick());
    node.end_wait().unwrap();
    node.note_earlier_version(2);
    vfs.fail_next(FaultKind::Sync, 1);
    let mut sent = Vec::new();
    node.ready_with(&mut |packet| sent.push(packet)).unwrap_err();
    sent.retain(|packet| !matches!(packet, Packet::Start(_)));
    sent
}

#[test]
fn leader_sends_entries_before_its_own_sync() {
    let vfs = FaultyVfs::new(1);
    let mut nodes = [node_on(Arc::new(vfs.clone()), 1, &[1, 2]), node(2)];
    elect(&mut nodes);
    nodes[0].propose(&WriteBatch::new()).unwrap();
    vfs.fail_next(FaultKind::Sync, 1);
    let mut sent = Vec::new();
    nodes[0].ready_with(&mut |packet| sent.push(packet)).unwrap_err();
    assert!(matches!(&sent[..], [Packet::Raft(append)] if append.get_entries().len() == 1));
}

#[test]
fn heartbeat_that_counts_on_lost_entries_stops_the_node() {
    let mut nodes = [node(1), node(2)];
    elect(&mut nodes);
    let last = nodes[1].log().last_index();
    let mut heartbeat = Message::default();
    (heartbeat.from, heartbeat.to, heartbeat.term) = (1, 2, nodes[0].term());
    heartbeat.set_msg_type(MessageType::MsgHeartbeat);
    heartbeat.commit = last + 1;
    let directory = nodes[0].directory();
    let envelope = Envelope { group: 1, directory, packet: Packet::Raft(heartbeat) };
    let error = nodes[1].step(envelope).unwrap_err();
    assert!(crate::log::is_lost(&error) && error.to_string().contains("counts on"), "{error}");
    assert!(nodes[1].ready().is_err());
}

#[test]
fn snapshot_is_sent_at_the_rate_of_the_options() {
    const RATE: u64 = 2000;
    const CHUNK: usize = 500;
    let mut options = GroupOptions::new(1, 1, 1);
    (options.snapshot_bytes_per_tick, options.max_chunk_bytes) = (RATE, CHUNK);
    let leader = Group::create(Arc::new(Ram::new()), open_table(), options, &[1]).unwrap();
    let mut nodes = [leader, node_on(Arc::new(Ram::new()), 2, &[])];
    elect(&mut nodes);
    for i in 0..200u32 {
        let mut batch = WriteBatch::new();
        batch.put(&i.to_be_bytes(), &[7; 96]);
        nodes[0].propose(&batch).unwrap();
    }
    settle(&mut nodes);
    nodes[0].change_membership(&[Change::AddLearner(2)]).unwrap();
    settle(&mut nodes);
    let mut ticks = 0;
    while nodes[1].applied().index < nodes[0].applied().index {
        let mut bytes = 0;
        nodes.iter_mut().for_each(Group::tick);
        loop {
            let ready = nodes.iter_mut().flat_map(|node| node.ready().unwrap().packets);
            let packets: Vec<_> = ready.collect();
            if packets.is_empty() {
                break;
            }
            for packet in packets {
                if let Packet::Chunk(chunk) = &packet {
                    let rows = chunk.rows.iter();
                    bytes += rows.map(|row| row.key.len() + row.value.len()).sum::<usize>();
                }
                nodes[packet.to() as usize - 1].handle(packet).unwrap();
            }
        }
        assert!(bytes <= RATE as usize + CHUNK, "{bytes} bytes in a tick");
        ticks += 1;
        assert!(ticks < 100, "the snapshot does not arrive");
    }
    assert!(ticks >= 8, "20 kB took {ticks} ticks");
}

/// The keys of each batch that a table was written.
type Batches = Arc<Mutex<Vec<Vec<Vec<u8>>>>>;

struct Recorder(Arc<dyn Engine>, Batches);

impl Engine for Recorder {
    forward_engine!(0: name capabilities get get_at lookup multi_lookup prepare clear sync iter);
    forward_engine!(0: range random_key snapshot at flush maintain compact_range);
    forward_engine!(0: set_compaction_filter set_merge_operator check_write merge_operator);
    forward_engine!(0: set_options checkpoint verify stats warnings trouble close);

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.1.lock().push(batch.iter().map(|op| op.key().to_vec()).collect());
        self.0.write(batch, durability)
    }
}

#[test]
fn entry_that_marks_a_point_is_the_last_one_of_its_batch() {
    use crate::applied::POINT_KEY;
    let batches = Batches::default();
    let (open, of_table) = (open_table(), batches.clone());
    let open: OpenTable =
        Arc::new(
            move |vfs| Ok(Arc::new(Recorder(open(vfs)?, of_table.clone())) as Arc<dyn Engine>),
        );
    let options = GroupOptions::new(1, 1, 1);
    let mut node = Group::create(Arc::new(Ram::new()), open, options, &[1]).unwrap();
    node.campaign_if_alone();
    node.ready().unwrap();
    batches.lock().clear();
    for key in [&b"a"[..], b"b", POINT_KEY, b"c", POINT_KEY] {
        let mut batch = WriteBatch::new();
        batch.put(key, b"");
        node.propose(&batch).unwrap();
    }
    node.ready().unwrap();
    let applied = b"\xff\xc0\xffapplied".to_vec();
    let expected = [
        vec![b"a".to_vec(), b"b".to_vec(), POINT_KEY.to_vec(), applied.clone()],
        vec![b"c".to_vec(), POINT_KEY.to_vec(), applied],
    ];
    assert_eq!(*batches.lock(), expected);
}

/// Nodes 1 and 2 of a group whose third node is dead.
fn two_of_three(seed: u64) -> [Group; 2] {
    [1, 2].map(|id| {
        let options = GroupOptions::new(1, id, 100 * seed + id);
        let vfs = Arc::new(Ram::new());
        Group::create(vfs, open_table(), options, &[1, 2, 3]).unwrap().assume_registered()
    })
}

/// Delivers what one of the two nodes has to send to the other one.
fn deliver(nodes: &mut [Group; 2], from: usize) {
    for packet in nodes[from].ready().unwrap().packets {
        nodes[1 - from].handle(packet).unwrap();
    }
}

#[test]
fn node_that_has_granted_a_pre_vote_leaves_the_other_time_to_persist_its_vote() {
    let mut elections = 0;
    for seed in 0..20 {
        let mut nodes = two_of_three(seed);
        while !nodes.iter().any(Group::campaigns) {
            nodes.iter_mut().for_each(Group::tick);
        }
        if nodes.iter().all(Group::campaigns) {
            continue;
        }
        let first = usize::from(nodes[1].campaigns());
        deliver(&mut nodes, first);
        deliver(&mut nodes, 1 - first);
        // It has the pre-vote. Its own vote takes nearly half an election timeout.
        for _ in 0..4 {
            nodes[1 - first].tick();
            assert!(!nodes[1 - first].campaigns(), "seed {seed}");
        }
        deliver(&mut nodes, first);
        deliver(&mut nodes, 1 - first);
        assert!(nodes[first].leads(), "seed {seed}");
        elections += 1;
    }
    assert!(elections > 10, "{elections}");
}

#[test]
fn one_of_two_nodes_that_campaign_at_the_same_time_makes_way() {
    for seed in 0..20 {
        let mut nodes = two_of_three(seed);
        for node in &mut nodes {
            while !node.campaigns() {
                node.tick();
            }
        }
        for _ in 0..6 {
            let sent = nodes.iter_mut().flat_map(|node| node.ready().unwrap().packets);
            let sent: Vec<_> = sent.filter(|packet| packet.to() < 3).collect();
            for packet in sent {
                nodes[packet.to() as usize - 1].handle(packet).unwrap();
            }
        }
        assert!(nodes[0].leads() && !nodes[1].campaigns(), "seed {seed}");
    }
}

#[test]
fn node_holds_an_election_though_another_one_asks_for_pre_votes_without_end() {
    for seed in 0..20 {
        let [_, mut node] = two_of_three(seed);
        let mut question = Message::default();
        (question.from, question.to, question.term) = (1, 2, node.term() + 1);
        (question.index, question.log_term) = (1, 1);
        question.set_msg_type(MessageType::MsgRequestPreVote);
        let mut ticks = 0;
        while !node.campaigns() {
            node.handle(Packet::Raft(question.clone())).unwrap();
            let output = node.ready().unwrap();
            let is_answered = |packet: &Packet| matches!(packet, Packet::Raft(of) if !of.reject);
            assert!(output.packets.iter().any(is_answered));
            node.tick();
            ticks += 1;
            assert!(ticks < 30, "seed {seed}");
        }
    }
}

#[test]
fn snapshot_goes_on_after_its_receiver_was_held_up_for_long() {
    let mut options = GroupOptions::new(1, 1, 1);
    options.max_chunk_bytes = 500;
    let leader = Group::create(Arc::new(Ram::new()), open_table(), options, &[1]).unwrap();
    let mut nodes = [leader, node_on(Arc::new(Ram::new()), 2, &[])];
    elect(&mut nodes);
    for i in 0..200u32 {
        let mut batch = WriteBatch::new();
        batch.put(&i.to_be_bytes(), &[7; 96]);
        nodes[0].propose(&batch).unwrap();
    }
    settle(&mut nodes);
    nodes[0].change_membership(&[Change::AddLearner(2)]).unwrap();
    let (mut streams, mut chunks) = (std::collections::BTreeSet::new(), 0);
    let mut waiting = Vec::new();
    for tick in 0..400 {
        // The receiver's thread waits for its disk meanwhile.
        let is_held_up = (5..105).contains(&tick);
        nodes[0].tick();
        if !is_held_up {
            nodes[1].tick();
        }
        for _ in 0..2 {
            waiting.extend(nodes[0].ready().unwrap().packets);
            if is_held_up {
                continue;
            }
            for packet in waiting.drain(..) {
                if let Packet::Chunk(chunk) = &packet {
                    streams.insert(chunk.stream.number);
                    chunks += 1;
                }
                nodes[1].handle(packet).unwrap();
            }
            for packet in nodes[1].ready().unwrap().packets {
                nodes[0].handle(packet).unwrap();
            }
        }
    }
    assert_eq!(nodes[1].applied().index, nodes[0].applied().index);
    assert_eq!(streams.len(), 1, "the snapshot has begun again: {streams:?}");
    // What it does not take is not sent over and over.
    assert!(chunks < 60, "{chunks} chunks");
}

#[test]
fn snapshot_to_a_node_that_the_network_has_lost_is_given_up_soon() {
    let mut nodes = [node(1), node(2)];
    elect(&mut nodes);
    let mut message = Message::default();
    (message.from, message.to, message.term) = (1, 2, nodes[0].term());
    message.set_msg_type(MessageType::MsgSnapshot);
    nodes[0].send(message).unwrap();
    (0..100).for_each(|_| nodes[0].tick_streams());
    assert_eq!(nodes[0].outgoing.len(), 1);
    nodes[0].report_unreachable(2);
    (0..50).for_each(|_| nodes[0].tick_streams());
    assert!(nodes[0].outgoing.is_empty());
}

#[test]
fn half_of_a_snapshot_is_removed_once_its_sender_does_not_lead_any_more() {
    let mut nodes = [node(1), node(2)];
    elect(&mut nodes);
    let term = nodes[0].term();
    let node = &mut nodes[1];
    let stream = crate::StreamId { node: 1, incarnation: 1, number: 1 };
    let row = crate::packet::Row { key: vec![1], value: vec![2], expires_at: None };
    let chunk = crate::Chunk { stream, to: 2, term, sequence: 0, rows: vec![row], last: None };
    node.handle(Packet::Chunk(chunk)).unwrap();
    node.ready().unwrap();
    assert_eq!(node.vfs.subdirectories().unwrap().len(), 2);
    let mut heartbeat = Message::default();
    (heartbeat.from, heartbeat.to, heartbeat.term) = (1, 2, term + 1);
    heartbeat.set_msg_type(MessageType::MsgHeartbeat);
    node.handle(Packet::Raft(heartbeat)).unwrap();
    node.ready().unwrap();
    assert_eq!(node.vfs.subdirectories().unwrap().len(), 1);
}

#[test]
fn node_without_a_vote_forgets_a_leader_that_is_silent() {
    let options = GroupOptions::new(1, 1, 1);
    let leader = Group::create(Arc::new(Ram::new()), open_table(), options, &[1]).unwrap();
    let mut nodes = [leader, node_on(Arc::new(Ram::new()), 2, &[])];
    elect(&mut nodes);
    nodes[0].change_membership(&[Change::AddLearner(2)]).unwrap();
    for _ in 0..30 {
        nodes.iter_mut().for_each(Group::tick);
        settle(&mut nodes);
    }
    assert_eq!(nodes[1].leader(), Some(1));
    (0..20).for_each(|_| nodes[1].tick());
    assert_eq!(nodes[1].leader(), None);
}

/// Proposes a row of 100 bytes.
fn write(node: &mut Group, key: u32) {
    let mut batch = WriteBatch::new();
    batch.put(&key.to_be_bytes(), &[7; 96]);
    node.propose(&batch).unwrap();
}

/// A leader with 200 rows and a small log, and a learner that needs a snapshot of it.
fn leader_with_new_learner(options: GroupOptions) -> [Group; 2] {
    let leader = Group::create(Arc::new(Ram::new()), open_table(), options, &[1]).unwrap();
    let mut nodes = [leader, node_on(Arc::new(Ram::new()), 2, &[])];
    elect(&mut nodes);
    (0..200).for_each(|key| write(&mut nodes[0], key));
    settle(&mut nodes);
    nodes[0].change_membership(&[Change::AddLearner(2)]).unwrap();
    nodes
}

#[test]
fn follower_needs_one_snapshot_though_the_log_grows_beyond_its_limit_meanwhile() {
    let mut options = GroupOptions::new(1, 1, 1);
    (options.max_chunk_bytes, options.max_log_bytes, options.retained_entries) = (500, 2000, 2);
    let mut nodes = leader_with_new_learner(options);
    let (mut streams, mut sent) = (std::collections::BTreeSet::new(), Vec::new());
    for key in 0..200 {
        nodes.iter_mut().for_each(Group::tick);
        write(&mut nodes[0], key);
        sent.extend(nodes[0].ready().unwrap().packets);
        for packet in sent.drain(..) {
            if let Packet::Chunk(chunk) = &packet {
                streams.insert(chunk.stream.number);
            }
            nodes[1].handle(packet).unwrap();
        }
        for packet in nodes[1].ready().unwrap().packets {
            nodes[0].handle(packet).unwrap();
            // The last ack comes before the answer to the snapshot.
            sent.extend(nodes[0].ready().unwrap().packets);
        }
    }
    settle(&mut nodes);
    assert_eq!(streams.len(), 1, "{streams:?}");
    assert_eq!(nodes[1].applied().index, nodes[0].applied().index);
    // Then the log is compacted as ever.
    assert!(nodes[0].catching_up.is_empty() && nodes[0].log().bytes() < 5000);
}

#[test]
fn log_does_not_grow_beyond_its_limit_while_a_follower_is_too_slow() {
    let mut options = GroupOptions::new(1, 1, 1);
    (options.max_chunk_bytes, options.max_log_bytes, options.retained_entries) = (500, 2000, 2);
    options.max_retained_log_bytes = 8000;
    let mut nodes = leader_with_new_learner(options);
    let mut largest = 0;
    for key in 0..400 {
        nodes.iter_mut().for_each(Group::tick);
        // More than the follower receives.
        (0..3).for_each(|_| write(&mut nodes[0], key));
        deliver(&mut nodes, 0);
        deliver(&mut nodes, 1);
        largest = largest.max(nodes[0].log().bytes());
    }
    assert!(largest < 9000, "{largest} bytes");
    assert!(nodes[0].given_up_followers() > 1);
    assert_ne!(nodes[1].applied().index, nodes[0].applied().index);
    // It catches up once there are fewer writes.
    for _ in 0..400 {
        nodes.iter_mut().for_each(Group::tick);
        settle(&mut nodes);
    }
    assert_eq!(nodes[1].applied().index, nodes[0].applied().index);
}
