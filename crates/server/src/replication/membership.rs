//! The members of a group, their addresses, and changes of both.
//!
//! A thread follows the group's configuration and the rows of [`super::members`]. At every node it
//! connects to the members and disconnects the others. At the leader it also
//!
//! | does | when |
//! | --- | --- |
//! | writes a member's row | there is none, or the command line says another address |
//! | adds a new node: its row, then a learner | CLUSTER ADD-NODE has asked for it |
//! | makes a learner a voter | it has nearly the whole log |
//! | removes a row | its node is no member |
//!
//! A row is committed before its node is a member, and removed after it. So a node knows the
//! addresses of all members that it knows of. A leader begins once it has committed in its term:
//! what an earlier leader has begun is over then.
//!
//! Removal and handover go from the command to the node directly ([`Membership::check_removal`]).
//!
//! With several groups, nodes are added to the first group and removed from it. The leaders of the
//! others follow it, by their own node's copy of it ([`super::placement`]); each group has rows of
//! all its members.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use siltstone_cluster::Change;
use siltstone_cluster::node::{NodeHandle, Role, Status};
use siltstone_engine::{Engine, Error, Result, WriteBatch};

use super::members::{self, MemberRow, MemberRows};
use super::options::{Member, needs_tls};
use super::peers::Peers;
use super::placement::Placement;
use crate::process;

/// Delay until a change is noticed.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long the thread waits for the outcome of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The entries that a learner may lack when it becomes a voter.
const MAX_LEARNER_LAG: u64 = 1000;
/// Nodes that may wait to be added.
const MAX_WAITING: usize = 16;

/// The members of this node's group.
pub(crate) struct Membership {
    /// This node, with its number.
    pub(crate) own: Member,
    pub(super) node: NodeHandle,
    /// Whether connections between nodes use TLS.
    has_tls: bool,
    /// The addresses of all nodes that this one knows of.
    known: RwLock<Arc<BTreeMap<u64, Member>>>,
    /// When each other node was last active, as the leader sees it.
    active_at: Mutex<BTreeMap<u64, Instant>>,
    /// A node is taken for dead after this time.
    pub(crate) dead_after: Duration,
    /// The rows as they were last read.
    pub(super) rows: Mutex<MemberRows>,
    /// Nodes that want to be added.
    waiting: Mutex<VecDeque<MemberRow>>,
    changed: Condvar,
    is_stopped: AtomicBool,
}

/// Counts the changes of rows that a table has applied.
pub(crate) type RowChanges = AtomicU64;

/// The thread. Dropping it ends it.
pub(crate) struct MembershipThread {
    membership: Arc<Membership>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for MembershipThread {
    fn drop(&mut self) {
        self.membership.is_stopped.store(true, Ordering::Release);
        self.membership.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A state of CLUSTER ADD-NODE.
pub(crate) enum Addition {
    /// The node is a member with this number.
    Added(u64),
    /// It will be one.
    Waiting,
}

impl Membership {
    pub(crate) fn new(
        node: NodeHandle,
        own: Member,
        known: &[Member],
        has_tls: bool,
        election_timeout: Duration,
    ) -> Self {
        let known = known.iter().chain([&own]).map(|member| (member.node, *member)).collect();
        Membership {
            own,
            node,
            has_tls,
            known: RwLock::new(Arc::new(known)),
            active_at: Mutex::default(),
            dead_after: 3 * election_timeout,
            rows: Mutex::default(),
            waiting: Mutex::default(),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// The addresses of the members, by number. A node that has no configuration yet takes all that
    /// it knows for members.
    pub(crate) fn members(&self, status: &Status) -> Vec<Member> {
        let known = self.known.read().clone();
        let is_member = |node: &u64| is_member(status, *node);
        let has_members = !status.voters.is_empty();
        known
            .iter()
            .filter(|(node, _)| !has_members || is_member(node))
            .map(|(_, member)| *member)
            .collect()
    }

    /// The address of a node.
    pub(crate) fn member(&self, node: u64) -> Option<Member> {
        self.known.read().get(&node).copied()
    }

    /// Whether the leader, this node, has lately heard of a node.
    pub(crate) fn is_alive(&self, node: u64) -> bool {
        let heard = self.active_at.lock().get(&node).copied();
        node == self.own.node || heard.is_some_and(|at| at.elapsed() < self.dead_after)
    }

    /// Has the node of a directory added, at the leader.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn add(&self, directory: u64, member: Member) -> Result<Addition, String> {
        let status = self.node.status();
        let rows = self.rows.lock().clone();
        if let Some(row) = rows.of_directory(directory)
            && is_member(&status, row.member.node)
        {
            return Ok(Addition::Added(row.member.node));
        }
        let taken = |other: &&Member| {
            let is_same = other.client == member.client || other.bus == member.bus;
            is_same && rows.by_node.get(&other.node).is_none_or(|row| row.directory != directory)
        };
        if let Some(other) = self.members(&status).iter().find(taken) {
            return Err(format!(
                "node {} has the address {}; remove that node first if it is gone for good, or \
                 choose other ports",
                other.node,
                other.address()
            ));
        }
        if !self.has_tls && !member.bus.ip().is_loopback() {
            return Err(needs_tls(&member));
        }
        let mut waiting = self.waiting.lock();
        if waiting.iter().all(|row| row.directory != directory) {
            if waiting.len() >= MAX_WAITING {
                return Err("too many nodes wait to be added; try again later".to_owned());
            }
            waiting.push_back(MemberRow { member, directory });
            self.changed.notify_all();
        }
        Ok(Addition::Waiting)
    }

    /// Checks whether a node can be removed without losing the majority, at the leader.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(crate) fn check_removal(&self, status: &Status, node: u64) -> Result<(), String> {
        if node == self.own.node {
            return Err(format!(
                "node {node} leads; move the leadership to another node first (CLUSTER MOVE-LEADER)"
            ));
        }
        let left: Vec<_> = status.voters.iter().filter(|voter| **voter != node).collect();
        let alive = left.iter().filter(|voter| self.is_alive(***voter)).count();
        if status.voters.contains(&node) && alive * 2 <= left.len() {
            return Err(format!(
                "without node {node} the group has {} voters, of which {alive} can be reached: no \
                 majority, so it would stop serving. Start the other nodes or remove a dead one \
                 first; FORCE removes node {node} all the same",
                left.len()
            ));
        }
        Ok(())
    }
}

pub(super) fn is_member(status: &Status, node: u64) -> bool {
    status.voters.contains(&node) || status.learners.contains(&node)
}

/// Starts the thread. It ends with the guard, or with the node.
pub(crate) fn start(
    membership: &Arc<Membership>,
    peers: Arc<Peers>,
    placement: Placement,
    changes: Arc<RowChanges>,
) -> Result<MembershipThread> {
    let keeper = Keeper {
        membership: Arc::downgrade(membership),
        peers,
        placement,
        changes,
        seen: None,
        configured: (**membership.known.read()).clone(),
        ready_term: None,
        given_up: 0,
        began: Instant::now(),
        waits_for: Vec::new(),
    };
    let name = "siltstone-members";
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(|| keeper.run());
    let thread = thread.map_err(|error| Error::io("start thread", name, &error))?;
    Ok(MembershipThread { membership: membership.clone(), thread: Some(thread) })
}

/// The state of the thread.
struct Keeper {
    membership: Weak<Membership>,
    peers: Arc<Peers>,
    placement: Placement,
    changes: Arc<RowChanges>,
    /// The changes and the table at which the rows were last read.
    seen: Option<(u64, Weak<dyn Engine>)>,
    /// Addresses of the command line, until a row that differs is written.
    configured: BTreeMap<u64, Member>,
    /// The term in which this leader has committed.
    ready_term: Option<u64>,
    /// Followers that were given up, by then.
    given_up: u64,
    began: Instant,
    /// The nodes of the last line about a first start that waits.
    waits_for: Vec<u64>,
}

impl Keeper {
    fn run(mut self) {
        while let Some(membership) = self.membership.upgrade() {
            let status = membership.node.status();
            if let Some(failure) = &status.failure {
                process::log(&format!("this node has failed: {failure}"));
            }
            if membership.is_stopped.load(Ordering::Acquire) || status.is_stopped {
                return;
            }
            self.report_waiting(&membership, &status);
            self.report_given_up(&status);
            self.read_rows(&membership);
            self.connect(&membership, &status);
            note_active(&membership, &status);
            match status.role == Role::Leader {
                true => self.lead(&membership, &status),
                false => self.placement.follow(&membership, &status),
            }
            let mut waiting = membership.waiting.lock();
            if status.role != Role::Leader {
                // They ask the next leader.
                waiting.clear();
            }
            membership.changed.wait_for(&mut waiting, INTERVAL);
        }
    }

    /// Says for which nodes a first start waits, if it takes long.
    fn report_waiting(&mut self, membership: &Membership, status: &Status) {
        let is_late = self.began.elapsed() >= membership.dead_after;
        if !is_late || status.unregistered_at == self.waits_for {
            return;
        }
        self.waits_for.clone_from(&status.unregistered_at);
        let missing: Vec<_> = self.waits_for.iter().map(u64::to_string).collect();
        process::log(&match missing.is_empty() {
            true => "all first nodes of the group have been started".to_owned(),
            false => format!(
                "waiting for node {}: a group begins once each of its first nodes has been started",
                missing.join(", ")
            ),
        });
    }

    /// Says that followers were given up.
    fn report_given_up(&mut self, status: &Status) {
        if status.given_up_followers > self.given_up {
            process::log(
                "the log has reached its limit while a node received a snapshot or caught up after \
                 it, which now begins again; a larger --max-log or --snapshot-rate, or fewer writes \
                 let it end",
            );
        }
        self.given_up = status.given_up_followers;
    }

    /// Reads the rows, if there are others than before.
    fn read_rows(&mut self, membership: &Membership) {
        let (changes, table) = (self.changes.load(Ordering::Acquire), membership.node.table());
        let is_same = |(seen, of): &(u64, Weak<dyn Engine>)| {
            *seen == changes && std::ptr::addr_eq(of.as_ptr(), Arc::as_ptr(&table))
        };
        if self.seen.as_ref().is_some_and(is_same) {
            return;
        }
        // A table that was just replaced by a snapshot is closed: the next one is read later.
        let Ok(rows) = MemberRows::read(table.as_ref()) else { return };
        let is_first = self.seen.is_none();
        self.seen = Some((changes, Arc::downgrade(&table)));
        let mut known = (**membership.known.read()).clone();
        let before = membership.rows.lock().clone();
        for (node, row) in &rows.by_node {
            // At the start the command line counts, later what has changed.
            let is_new = before.by_node.get(node) != Some(row);
            if *node != membership.own.node && is_new && !(is_first && known.contains_key(node)) {
                known.insert(*node, row.member);
            }
        }
        *membership.known.write() = Arc::new(known);
        *membership.rows.lock() = rows;
    }

    /// Connects to all members and to no one else.
    fn connect(&self, membership: &Membership, status: &Status) {
        let members = membership.members(status);
        let others = members.iter().filter(|member| member.node != membership.own.node);
        let wanted = others.map(|member| (member.node, *member)).collect();
        self.peers.want(self.placement.group, &wanted);
    }

    /// Does the leader's part: rows, new nodes, voters, removals.
    fn lead(&mut self, membership: &Membership, status: &Status) {
        if self.ready_term != Some(status.term) {
            let outcome = request(membership, |done| membership.node.read_index(done));
            self.ready_term = outcome.map(|read| read.term);
            // The status may have changed.
            return;
        }
        let done = self.write_rows(membership, status)
            && add_waiting(membership)
            && self.placement.follow_first(membership, status)
            && promote(membership, status);
        self.placement.balance(membership, status);
        if !done {
            // Not committed, perhaps because another node leads: look again.
            self.ready_term = None;
        }
    }

    /// Makes the rows those of the members.
    fn write_rows(&mut self, membership: &Membership, status: &Status) -> bool {
        let rows = membership.rows.lock().clone();
        let mut batch = WriteBatch::new();
        for (node, member) in &self.configured {
            let row = rows.by_node.get(node);
            if is_member(status, *node) && row.is_none_or(|row| row.member != *member) {
                let directory = row.map_or(0, |row| row.directory);
                members::put(&mut batch, &MemberRow { member: *member, directory }, rows.next_node);
            }
        }
        for node in rows.by_node.keys().filter(|node| !is_member(status, **node)) {
            members::remove(&mut batch, *node);
        }
        if batch.is_empty() {
            self.configured.clear();
            return true;
        }
        propose(membership, batch) && {
            self.read_rows(membership);
            true
        }
    }
}

/// Takes a node that waits. The lock is released at once: the worker takes it for each node that
/// asks to be added, and no client is served while it waits for it.
fn next_waiting(membership: &Membership) -> Option<MemberRow> {
    membership.waiting.lock().pop_front()
}

/// Adds the nodes that wait, as learners.
pub(super) fn add_waiting(membership: &Membership) -> bool {
    while let Some(MemberRow { member, directory }) = next_waiting(membership) {
        let Ok(rows) = MemberRows::read(membership.node.table().as_ref()) else { return false };
        let node = rows.of_directory(directory).map_or(rows.next_node, |row| row.member.node);
        if is_member(&membership.node.status(), node) {
            continue;
        }
        let row = MemberRow { member: Member { node, ..member }, directory };
        let mut batch = WriteBatch::new();
        members::put(&mut batch, &row, rows.next_node);
        let changes = vec![Change::AddLearner(node)];
        if !propose(membership, batch) || !change(membership, changes) {
            // The new node asks again.
            return false;
        }
        process::log(&format!("node {node} at {} joins the group", row.member.address()));
    }
    true
}

/// Makes learners voters that have nearly the whole log.
fn promote(membership: &Membership, status: &Status) -> bool {
    let is_ready = |node: &&u64| {
        let peer = status.peers.iter().find(|peer| peer.node == **node);
        peer.is_some_and(|peer| {
            peer.is_active
                && !peer.is_receiving_snapshot
                && peer.matched > 0
                && peer.lag <= MAX_LEARNER_LAG
        })
    };
    let Some(&node) = status.learners.iter().find(is_ready) else { return true };
    let is_done = change(membership, vec![Change::Promote(node)]);
    if is_done {
        process::log(&format!("node {node} has caught up and votes now"));
    }
    is_done
}

fn note_active(membership: &Membership, status: &Status) {
    let mut active_at = membership.active_at.lock();
    active_at.retain(|node, _| is_member(status, *node));
    for peer in status.peers.iter().filter(|peer| peer.is_active) {
        active_at.insert(peer.node, Instant::now());
    }
}

pub(super) fn propose(membership: &Membership, batch: WriteBatch) -> bool {
    request(membership, |done| membership.node.propose(None, batch, done)).is_some()
}

pub(super) fn change(membership: &Membership, changes: Vec<Change>) -> bool {
    request(membership, |done| membership.node.change_membership(changes, done)).is_some()
}

/// Sends a request and waits for its outcome; `None` if it is not a success.
fn request<T: Send + 'static, E: std::fmt::Display + Send + 'static>(
    membership: &Membership,
    send: impl FnOnce(Box<dyn FnOnce(Result<T, E>) + Send>),
) -> Option<T> {
    let (done, outcome) = channel();
    // Nobody waits for a late outcome.
    send(Box::new(move |result| drop(done.send(result))));
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    while Instant::now() < deadline && !membership.is_stopped.load(Ordering::Acquire) {
        match outcome.recv_timeout(INTERVAL) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => {
                process::log(&format!("a change of the members: {error}"));
                return None;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
}
