//! Running nodes of groups with one voter.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use siltstone_cluster::node::{
    Committed, NoPeers, Node, NodeHandle, NodeOptions, ReadIndex, Refusal, RequestError, Role,
};
use siltstone_cluster::{GroupOptions, OpenTable};
use siltstone_engine::{Engine, Error, Purpose, SystemClock, WriteBatch};
use siltstone_faults::{FaultKind, FaultyVfs};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Ram, Vfs};

fn open_table() -> OpenTable {
    Arc::new(|vfs| {
        let env = Env::replayable(Arc::new(SystemClock), 1);
        Ok(Arc::new(Lsm::open(vfs, env, Options::default())?) as Arc<dyn Engine>)
    })
}

fn options() -> NodeOptions {
    let tick = Duration::from_millis(10);
    NodeOptions { tick, ..NodeOptions::new(GroupOptions::new(1, 7, 3)) }
}

fn create(vfs: Arc<dyn Vfs>, options: NodeOptions) -> Node {
    let network = NoPeers { client_address: Some("localhost:6379".into()) };
    Node::create(options, vfs, open_table(), Arc::new(network), &[7]).unwrap()
}

fn open(vfs: Arc<dyn Vfs>) -> siltstone_engine::Result<Node> {
    Node::open(options(), vfs, open_table(), Arc::new(NoPeers::default()))
}

fn put(key: &[u8], value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, value);
    batch
}

fn propose(
    handle: &NodeHandle,
    term: Option<u64>,
    batch: WriteBatch,
) -> Receiver<Result<Committed, RequestError>> {
    let (done, outcome) = channel();
    handle.propose(term, batch, move |result| done.send(result).unwrap());
    outcome
}

fn read_index(handle: &NodeHandle) -> Result<ReadIndex, Refusal> {
    let (done, outcome) = channel();
    handle.read_index(move |result| done.send(result).unwrap());
    outcome.recv().unwrap()
}

#[test]
fn single_voter_serves_writes_and_reads_and_keeps_them_over_a_restart() {
    let vfs = Arc::new(Ram::new());
    let node = create(vfs.clone(), options());
    let handle = node.handle().clone();
    let committed = propose(&handle, None, put(b"k", b"1")).recv().unwrap().unwrap();
    let read = read_index(&handle).unwrap();
    assert!(read.index >= committed.index && read.term == committed.term, "{read:?}");
    assert_eq!(handle.table().get(b"k").unwrap().unwrap().value, b"1");
    let dependent = propose(&handle, Some(read.term), put(b"k", b"2")).recv().unwrap();
    assert!(dependent.is_ok(), "{dependent:?}");
    let old = propose(&handle, Some(read.term - 1), put(b"k", b"3")).recv().unwrap();
    assert!(matches!(old, Err(RequestError::NotProposed(Refusal::OldTerm))), "{old:?}");
    let status = handle.status();
    assert_eq!((status.role, status.term, &status.voters[..]), (Role::Leader, read.term, &[7][..]));
    let leader = status.leader.clone().unwrap();
    assert_eq!((leader.node, leader.client_address.as_deref()), (7, Some("localhost:6379")));
    let locked = open(vfs.clone()).err().unwrap();
    assert!(matches!(locked, Error::Locked { .. }), "{locked}");
    node.shutdown().unwrap();
    assert!(handle.status().is_stopped);
    let late = propose(&handle, None, put(b"k", b"4")).recv().unwrap();
    assert!(matches!(late, Err(RequestError::NotProposed(Refusal::Stopped))), "{late:?}");
    assert!(matches!(read_index(&handle), Err(Refusal::Stopped)));
    let node = open(vfs).unwrap();
    read_index(node.handle()).unwrap();
    assert_eq!(node.handle().table().get(b"k").unwrap().unwrap().value, b"2");
}

#[test]
fn writes_that_wait_while_the_log_syncs_share_the_next_sync() {
    let vfs = Arc::new(MeteredVfs::new(Arc::new(Ram::new())));
    let node = create(vfs.clone(), options());
    let handle = node.handle().clone();
    read_index(&handle).unwrap();
    let (entered, has_entered) = channel();
    let (release, released) = channel::<()>();
    // The callback holds the thread up, as a slow sync would.
    handle.propose(None, put(b"first", b""), move |_| {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    has_entered.recv().unwrap();
    let syncs = || vfs.counters().unwrap().get(Purpose::Log).syncs;
    let before = syncs();
    let outcomes: Vec<_> =
        (0..100u32).map(|n| propose(&handle, None, put(&n.to_le_bytes(), b"v"))).collect();
    release.send(()).unwrap();
    outcomes.iter().for_each(|outcome| assert!(outcome.recv().unwrap().is_ok()));
    assert_eq!(syncs() - before, 1);
}

#[test]
fn full_queue_refuses_and_admits_again() {
    let limits = NodeOptions { max_in_flight_requests: 3, max_batch_bytes: 100, ..options() };
    let node = create(Arc::new(Ram::new()), limits);
    let handle = node.handle().clone();
    let (entered, has_entered) = channel();
    let (release, released) = channel::<()>();
    handle.propose(None, put(b"first", b""), move |_| {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    has_entered.recv().unwrap();
    let outcomes: Vec<_> = (0..5u8).map(|n| propose(&handle, None, put(&[n], b"v"))).collect();
    release.send(()).unwrap();
    let outcomes: Vec<_> = outcomes.iter().map(|outcome| outcome.recv().unwrap()).collect();
    assert!(outcomes[..3].iter().all(Result::is_ok), "{outcomes:?}");
    for refused in &outcomes[3..] {
        let full = Refusal::TooMuchInFlight { limit: "3 requests".into() }.to_string();
        assert!(
            matches!(refused, Err(RequestError::NotProposed(why)) if why.to_string() == full),
            "{refused:?}"
        );
    }
    assert!(propose(&handle, None, put(b"k", b"v")).recv().unwrap().is_ok());
    let large = propose(&handle, None, put(b"k", &[0; 200])).recv().unwrap();
    assert!(matches!(large, Err(RequestError::NotProposed(Refusal::Invalid(_)))), "{large:?}");
    assert_eq!(handle.in_flight(), (0, 0));
}

#[test]
fn failed_sync_leaves_the_outcome_unknown_and_stops_the_node() {
    let vfs = FaultyVfs::new(1);
    let node = create(Arc::new(vfs.clone()), options());
    let handle = node.handle().clone();
    read_index(&handle).unwrap();
    vfs.fail_next(FaultKind::Sync, 1);
    let outcome = propose(&handle, None, put(b"k", b"v")).recv().unwrap();
    assert!(matches!(outcome, Err(RequestError::OutcomeUnknown(_))), "{outcome:?}");
    let error = node.shutdown().unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let status = handle.status();
    assert!(status.is_stopped && status.failure.is_some(), "{status:?}");
    let late = propose(&handle, None, put(b"k", b"v")).recv().unwrap();
    assert!(matches!(late, Err(RequestError::NotProposed(_))), "{late:?}");
    let node = open(Arc::new(vfs.after_crash(1))).unwrap();
    read_index(node.handle()).unwrap();
}

#[test]
fn callback_that_panics_stops_the_node_and_leaves_no_request_without_an_answer() {
    let node = create(Arc::new(Ram::new()), options());
    let handle = node.handle().clone();
    read_index(&handle).unwrap();
    let (entered, has_entered) = channel();
    let (release, released) = channel::<()>();
    handle.propose(None, put(b"first", b""), move |_| {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    has_entered.recv().unwrap();
    // The three are in the next round, and the second one panics when it is completed.
    let first = propose(&handle, None, put(b"a", b""));
    handle.propose(None, put(b"b", b""), |_| panic!("planted"));
    let last = propose(&handle, None, put(b"c", b""));
    release.send(()).unwrap();
    assert!(first.recv().unwrap().is_ok());
    let last = last.recv().unwrap();
    assert!(matches!(last, Err(RequestError::OutcomeUnknown(_))), "{last:?}");
    assert!(node.shutdown().is_err());
    let status = handle.status();
    assert!(status.is_stopped && status.failure.is_some(), "{status:?}");
    assert!(matches!(read_index(&handle), Err(Refusal::Stopped)));
}

#[test]
fn unusable_options_are_refused() {
    for options in [
        NodeOptions { tick: Duration::ZERO, ..options() },
        NodeOptions { max_batch_bytes: usize::MAX, ..options() },
        NodeOptions {
            group: GroupOptions { heartbeat_ticks: 100, ..GroupOptions::new(1, 7, 3) },
            ..options()
        },
    ] {
        let network = Arc::new(NoPeers::default());
        let refused = Node::create(options, Arc::new(Ram::new()), open_table(), network, &[7]);
        let error = refused.err().unwrap();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
}
