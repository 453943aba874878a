//! Random operations on the table with uncommitted writes, against a model, while a node of one
//! voter commits them on its own thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_cluster::network::{Network, Receiver};
use siltstone_cluster::node::{Committed, Node, NodeOptions, RequestError};
use siltstone_cluster::packet::Register;
use siltstone_cluster::{Change, Envelope, GroupOptions, Packet};
use siltstone_engine::{Clock, Cursor, Durability, Engine, KeyRange, SystemClock, WriteBatch};
use siltstone_testkit::TestRng;
use siltstone_vfs::Ram;

use super::clock::TIME_KEY;
use super::group_table::Notes;
use super::members::{self, MemberRow, MemberRows};
use super::membership::{Membership, add_waiting};
use super::options::{ClusterOptions, Member};
use super::{Progress, Replication, State, opener};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Far above what a busy machine takes.
const LONG: Duration = Duration::from_secs(20);

/// The network of a node whose peers are not there.
#[derive(Default)]
struct AbsentPeers(Mutex<Option<Arc<dyn Receiver>>>);

impl Network for AbsentPeers {
    fn send(&self, _envelope: Envelope) {}

    fn attach(&self, _group: u64, receiver: Arc<dyn Receiver>) {
        *self.0.lock() = Some(receiver);
    }

    fn detach(&self, _group: u64) {
        *self.0.lock() = None;
    }

    fn client_address(&self, _node: u64) -> Option<String> {
        None
    }
}

fn start() -> (Node, Replication) {
    let (node, replication, _) = start_with(10, LONG);
    (node, replication)
}

/// Starts a group of one node, which takes requests for lost after three timeouts.
fn start_with(election_ticks: usize, timeout: Duration) -> (Node, Replication, Arc<AbsentPeers>) {
    let notes = Notes::default();
    let own: Member = "1=127.0.0.1:7001".parse().unwrap();
    let options = ClusterOptions::new(1, 1, vec![own], "unused".into());
    let group = GroupOptions { election_ticks, ..GroupOptions::new(1, 1, 7) };
    let node = NodeOptions {
        tick: Duration::from_millis(5),
        drain: Duration::from_millis(100),
        ..NodeOptions::new(group)
    };
    let (open, network) = (opener(&options, &notes), Arc::new(AbsentPeers::default()));
    let vfs = Arc::new(Ram::new());
    let node = Node::create(node, vfs, open, network.clone(), &[1]).unwrap();
    let handle = node.handle().clone();
    let membership = Arc::new(Membership::new(handle.clone(), own, &[own], false, timeout));
    let replication = Replication::new(handle, membership, &notes, None);
    wait(&replication, Progress::Began);
    (node, replication, network)
}

type Done = Box<dyn FnOnce(Result<Committed, RequestError>) + Send>;

/// Waits until a request is committed.
fn commit(send: impl FnOnce(Done)) {
    let (done, outcome) = channel();
    send(Box::new(move |result| done.send(result.is_ok()).unwrap()));
    assert!(outcome.recv().unwrap());
}

/// Adds a voter that has sent one packet: nothing is committed any more.
fn add_absent_voter(replication: &Replication, network: &AbsentPeers) {
    let node = &replication.node;
    commit(|done| node.change_membership(vec![Change::AddLearner(2)], done));
    let packet = Packet::Register(Register { from: 2, to: 1 });
    let receiver = network.0.lock().clone().unwrap();
    receiver.deliver(Envelope { group: 1, directory: 20, packet });
    // Its directory is committed first.
    loop {
        let (done, outcome) = channel();
        node.change_membership(vec![Change::Promote(2)], move |result| {
            done.send(result.is_ok()).unwrap();
        });
        if outcome.recv().unwrap() {
            return;
        }
    }
}

fn wait(replication: &Replication, expected: Progress) {
    for _ in 0..5000 {
        match replication.advance() {
            Progress::None => std::thread::sleep(Duration::from_millis(1)),
            progress => return assert_eq!(progress, expected),
        }
    }
    panic!("nothing happens");
}

/// The rows of users in a range, forwards and backwards.
fn rows(replication: &Replication, range: &KeyRange) -> [Vec<(Vec<u8>, Vec<u8>)>; 2] {
    let mut cursor = replication.table.range(range.clone(), None).unwrap();
    let row = |cursor: &dyn Cursor| (cursor.key().to_vec(), cursor.value().to_vec());
    let mut both = [Vec::new(), Vec::new()];
    let mut is_there = cursor.first().unwrap();
    while is_there {
        both[0].push(row(cursor.as_ref()));
        is_there = cursor.next().unwrap();
    }
    is_there = cursor.last().unwrap();
    while is_there {
        both[1].push(row(cursor.as_ref()));
        is_there = cursor.prev().unwrap();
    }
    both[1].reverse();
    both.map(|rows| rows.into_iter().filter(|(key, _)| !key.starts_with(b"\xff\xc0")).collect())
}

#[test]
fn random_commands_see_all_before_them_whatever_is_committed() {
    let (node, replication) = start();
    let mut rng = TestRng::new(1);
    // What is committed, what the proposal in flight makes of it, and what commands see.
    let (mut committed, mut proposed, mut seen) = (Map::new(), Map::new(), Map::new());
    let mut is_in_flight = false;
    let (mut commits, mut losses) = (0, 0);
    for step in 0..4000u32 {
        match rng.below(13) {
            0..=4 => {
                let mut batch = WriteBatch::new();
                for _ in 0..=rng.below(3) {
                    let key = format!("{:02}", rng.below(40)).into_bytes();
                    if rng.one_in(3) {
                        batch.delete(&key);
                        seen.remove(&key);
                    } else {
                        batch.put(&key, &step.to_le_bytes());
                        seen.insert(key, step.to_le_bytes().to_vec());
                    }
                }
                replication.table.write(&batch, Durability::Buffered).unwrap();
            }
            5..=7 => {
                let key = format!("{:02}", rng.below(40)).into_bytes();
                let found = replication.table.get(&key).unwrap().map(|entry| entry.value);
                assert_eq!(found.as_ref(), seen.get(&key), "step {step}");
            }
            8 => {
                let (a, b) = (format!("{:02}", rng.below(40)), format!("{:02}", rng.below(41)));
                let range = KeyRange::new(a.clone().min(b.clone())..a.max(b));
                let inside = seen.iter().filter(|(key, _)| range.contains(key));
                let expected: Vec<_> = inside.map(|(k, v)| (k.clone(), v.clone())).collect();
                let [forwards, backwards] = rows(&replication, &range);
                assert_eq!((&forwards, &backwards), (&expected, &expected), "step {step}");
            }
            9 if !is_in_flight => {
                is_in_flight = replication.submit();
                assert!(is_in_flight);
                proposed.clone_from(&seen);
            }
            10 if is_in_flight => {
                wait(&replication, Progress::Committed);
                committed.clone_from(&proposed);
                (is_in_flight, commits) = (false, commits + 1);
            }
            11 if !is_in_flight && rng.one_in(8) => {
                replication.table.discard();
                seen.clone_from(&committed);
                losses += 1;
            }
            12 if rng.one_in(4) => {
                replication.table.clear().unwrap();
                seen.clear();
            }
            _ => {}
        }
    }
    assert!(commits > 50 && losses > 5, "{commits} commits, {losses} losses");
    drop(replication);
    node.shutdown().unwrap();
}

#[test]
fn expiry_that_was_seen_is_committed_before_the_reply() {
    let (node, replication) = start();
    let now = SystemClock.now();
    let mut batch = WriteBatch::new();
    batch.put_until(b"k", b"v", now + 500);
    replication.table.write(&batch, Durability::Buffered).unwrap();
    assert!(replication.submit());
    wait(&replication, Progress::Committed);
    let before = replication.clock.committed();
    assert!(before >= now);
    std::thread::sleep(Duration::from_millis(510));
    // The engine does not know yet that it has expired.
    assert!(replication.node.table().get(b"k").unwrap().is_some());
    assert!(replication.table.get(b"k").unwrap().is_none());
    assert!(replication.submit());
    wait(&replication, Progress::Committed);
    assert!(replication.clock.committed() >= now + 500);
    assert!(replication.node.table().get(b"k").unwrap().is_none());
    // A follower goes by the committed time, which does not go back.
    replication.clock.set_leading(false);
    assert!(replication.clock.now() >= now + 500);
    drop(replication);
    node.shutdown().unwrap();
}

#[test]
fn nothing_expires_while_a_command_on_a_follower_reads() {
    let (node, replication) = start();
    let now = SystemClock.now();
    let mut batch = WriteBatch::new();
    batch.put_until(b"k", b"v", now + 60_000);
    replication.table.write(&batch, Durability::Buffered).unwrap();
    assert!(replication.submit());
    wait(&replication, Progress::Committed);
    replication.clock.set_leading(false);
    replication.table.begin_snapshot().unwrap();
    let before = replication.clock.now();
    // The leader's time comes meanwhile, and background work drops what has expired then.
    let mut batch = WriteBatch::new();
    batch.put(TIME_KEY, &(now + 120_000).to_le_bytes()).put(b"other", b"v");
    commit(|done| replication.node.propose(None, batch, done));
    let engine = replication.node.table();
    engine.flush().unwrap();
    engine.compact_range(&KeyRange::all()).unwrap();
    engine.maintain().unwrap();
    assert_eq!(replication.clock.now(), before);
    assert!(replication.table.get(b"k").unwrap().is_some());
    let all = [(b"k".to_vec(), b"v".to_vec())];
    assert_eq!(rows(&replication, &KeyRange::all()), [all.to_vec(), all.to_vec()]);
    replication.table.end_snapshot();
    assert_eq!(replication.clock.now(), now + 120_000);
    assert!(replication.table.get(b"k").unwrap().is_none());
    drop(replication);
    node.shutdown().unwrap();
}

#[test]
fn expiry_of_an_uncommitted_write_that_a_scan_has_seen_is_committed_before_the_reply() {
    let (node, replication) = start();
    let mut batch = WriteBatch::new();
    batch.put_until(b"k", b"v", SystemClock.now() + 20);
    replication.table.write(&batch, Durability::Buffered).unwrap();
    // From now on it is in flight, with the time before its expiry.
    assert!(replication.table.begin_proposal().is_some());
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(rows(&replication, &KeyRange::all()), [[], []]);
    let next = replication.table.begin_proposal().expect("the time is to be committed");
    assert_eq!(next.len(), 1);
    drop(replication);
    node.shutdown().unwrap();
}

#[test]
fn leader_whose_request_is_not_answered_gives_up_and_says_so() {
    // Raft itself would find out after 10 s.
    let (node, replication, network) = start_with(2000, Duration::from_millis(100));
    add_absent_voter(&replication, &network);
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"v");
    replication.table.write(&batch, Durability::Buffered).unwrap();
    assert!(replication.submit() && !replication.has_given_up());
    wait(&replication, Progress::Lost);
    assert!(replication.has_given_up() && replication.state() == State::Following);
    assert!(replication.table.get(b"k").unwrap().is_none());
    // The write is still under way, so it does not lead again.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(replication.advance(), Progress::None);
    drop(replication);
    node.shutdown().unwrap();
}

#[test]
fn node_that_asks_to_be_added_is_answered_while_another_addition_is_not_committed() {
    let (node, replication, network) = start_with(2000, LONG);
    let mut batch = WriteBatch::new();
    members::put(&mut batch, &MemberRow { member: replication.membership.own, directory: 0 }, 3);
    commit(|done| replication.node.propose(None, batch, done));
    add_absent_voter(&replication, &network);
    let membership = replication.membership.clone();
    let asks = |directory: u64, port: u16| {
        let own = Member::at(0, &format!("127.0.0.1:{port}")).unwrap();
        let membership = membership.clone();
        move || membership.add(directory, own).is_ok()
    };
    assert!(asks(70, 7010)());
    let adding = std::thread::spawn({
        let membership = membership.clone();
        move || add_waiting(&membership)
    });
    while replication.node.in_flight().0 == 0 {
        assert!(!adding.is_finished(), "the node is not added");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (done, answer) = channel();
    let second = asks(71, 7020);
    std::thread::spawn(move || done.send(second()));
    assert_eq!(answer.recv_timeout(Duration::from_secs(4)), Ok(true));
    drop(replication);
    node.shutdown().unwrap();
    assert!(!adding.join().unwrap());
}

#[test]
fn removal_of_all_rows_keeps_those_of_the_group() {
    let (node, replication) = start();
    let member = replication.membership.own;
    let mut batch = WriteBatch::new();
    members::put(&mut batch, &MemberRow { member, directory: 0 }, 2);
    // Keys before and behind the group's own rows.
    batch.put(b"a", b"1").put(b"\xff\xc0\x01", b"2").put(b"\xff\xc1", b"3");
    commit(|done| replication.node.propose(None, batch, done));
    let rows = || MemberRows::read(replication.node.table().as_ref()).unwrap();
    let (before, applied) = (rows(), replication.node.status().applied);
    replication.table.clear().unwrap();
    assert!(replication.submit());
    wait(&replication, Progress::Committed);
    assert_eq!(rows(), before);
    assert!(replication.node.status().applied > applied);
    let table = replication.node.table();
    let keys = [&b"a"[..], b"\xff\xc0\x01", b"\xff\xc1"];
    assert!(keys.iter().all(|key| table.get(key).unwrap().is_none()));
    drop(replication);
    node.shutdown().unwrap();
}
