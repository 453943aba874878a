//! A replicated table: its commands run on the leader of a Raft group, against writes that are not
//! committed yet, and their replies wait for the commit.
//!
//! ```text
//!   worker   commands of round n ─▶ proposal ─────────▶ committed: replies of round n
//!                commands of round n+1, n+2 … (replies held) ─▶ next proposal ─▶ …
//!   node     ────────────────── Raft ───────────────────
//! ```
//!
//! One worker thread runs all commands, one after the other, so each sees all before it
//! ([`table`]). At most one request is in flight at the node: a proposal with all writes since the
//! last one, or a ReadIndex if there are none. It is made after the commands have run. Its success
//! shows that no other leader had been elected when they ran, and that all they have seen is
//! committed; so their replies are linearizable, reads as writes. If it fails, everything
//! uncommitted is dropped, and the connections whose replies were held are closed, since their
//! outcome is unknown. The same happens if there is no answer for three election timeouts: the
//! node's disk hangs, or those of a majority. Clients then look for another leader, and this node
//! does not lead again before the answer is there.
//!
//! With several groups ([`groups`]) each has all of this for itself: a table, a request in flight,
//! a leader, a time. The one worker runs the commands of all of them.
//!
//! A term begins with a ReadIndex: after it the table has all that earlier leaders have committed.
//! In the term only this worker adds to the log.
//!
//! | module | contents |
//! | --- | --- |
//! | [`options`] | the nodes, and what this one is |
//! | [`groups`] | all groups of this node, and their slots |
//! | [`group_set`] | sets of them |
//! | [`table`] | the table with its uncommitted writes, as an engine |
//! | `unexpired` | a cursor that hides what has expired by the leader's clock |
//! | [`clock`] | the group's time |
//! | [`members`] | the members' addresses, in rows of the table |
//! | [`membership`] | who the members are, and changes of it |
//! | [`placement`] | the nodes of groups after the first, and preferred leaders |
//! | [`handovers`] | when a leader hands over to the preferred one |
//! | [`peers`] | the nodes to which the transport connects |
//! | [`publications`] | messages of PUBLISH that other nodes have passed on |
//! | [`join`] | how a new node asks to be added |
//! | [`named_rows`] | rows of the first group that the nodes put in force |
//! | [`function_rows`], [`user_rows`] | libraries of functions, and users, in such rows |
//! | [`cluster_changes`] | changes of users, as nodes ask the leader for them |
//! | [`digest`] | checksums of the table, to compare nodes |
//! | [`group_table`] | notes the group's own rows when they are applied |
//! | [`slots`] | slots of keys |
//! | [`checkpoint`] | copies of all tables of a running node |
//! | [`origin`] | where the tables of a restored node come from |
//! | [`start`] | starts the node |
//!
//! Held replies are the worker's ([`crate::net::held_replies`]). Which commands run here is decided
//! by `command::routing`.

pub(crate) mod checkpoint;
pub(crate) mod clock;
pub(crate) mod cluster_changes;
pub(crate) mod digest;
pub(crate) mod function_rows;
pub(crate) mod group_set;
pub(crate) mod group_table;
pub(crate) mod groups;
mod handovers;
pub(crate) mod join;
pub(crate) mod members;
pub(crate) mod membership;
pub(crate) mod named_rows;
pub(crate) mod options;
mod origin;
mod peers;
pub(crate) mod placement;
pub(crate) mod publications;
pub(crate) mod slots;
pub(crate) mod start;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod unexpired;
pub(crate) mod user_rows;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use siltstone_cluster::OpenTable;
use siltstone_cluster::node::{NodeHandle, Role, Status};
use siltstone_engine::Engine;
use siltstone_runtime::Env;

use crate::net::wakeups::Wakeups;
use crate::tls::NodeTls;
use clock::{CommittedClock, GroupClock};
use digest::Digests;
use group_table::{GroupTable, Notes};
use membership::Membership;
use named_rows::NamedRows;
use options::{ClusterOptions, Member};
use table::SpeculativeTable;

/// Delay until a leader whose first read has failed tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// This node's part in the group, as its commands see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Commands run here.
    Leading { term: u64 },
    /// This node leads, but may not have applied what earlier leaders have committed.
    Preparing,
    /// Commands run elsewhere.
    Following,
}

/// The change since the last [`Replication::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing.
    None,
    /// A term begins: other nodes may have written.
    Began,
    /// What was in flight is committed.
    Committed,
    /// What is not committed is lost; other nodes may have it, or not.
    Lost,
}

/// The server's side of one group of a replicated table.
pub(crate) struct Replication {
    pub(crate) node: NodeHandle,
    pub(crate) membership: Arc<Membership>,
    pub(crate) digests: Arc<Digests>,
    /// TLS between nodes.
    pub(crate) tls: Option<Arc<NodeTls>>,
    pub(crate) table: Arc<SpeculativeTable>,
    pub(crate) clock: Arc<GroupClock>,
    /// Rows of libraries of functions that the worker has not seen; of the first group.
    pub(crate) functions: Arc<NamedRows>,
    /// Rows of users that are not in force here yet; of the first group.
    pub(crate) users: Arc<NamedRows>,
    machine: Mutex<Machine>,
    answer: Arc<Answer>,
}

struct Machine {
    state: State,
    is_in_flight: bool,
    /// When the request in flight was made.
    began: Instant,
    /// Not before this does a leader prepare again.
    prepares_from: Instant,
}

/// The answer to the request in flight.
#[derive(Default)]
struct Answer {
    /// The term in which it has succeeded; `None` if it has failed.
    term: Mutex<Option<Option<u64>>>,
    worker: OnceLock<Arc<Wakeups>>,
}

impl Answer {
    fn set(&self, term: Option<u64>) {
        *self.term.lock() = Some(term);
        if let Some(worker) = self.worker.get() {
            worker.interrupt();
        }
    }
}

/// Opens a node's tables, with the group's time as their clock.
pub(crate) fn opener(options: &ClusterOptions, notes: &Notes) -> OpenTable {
    let env = Env { clock: Arc::new(CommittedClock(notes.clock.clone())), ..Env::system(2) };
    let (options, notes) = (options.table.clone(), notes.clone());
    Arc::new(move |vfs| {
        let engine = siltstone::engines::open("lsm", vfs, &env, &options)?;
        Ok(Arc::new(GroupTable::new(engine, notes.clone())?) as Arc<dyn Engine>)
    })
}

impl Replication {
    pub(crate) fn new(
        node: NodeHandle,
        membership: Arc<Membership>,
        notes: &Notes,
        tls: Option<Arc<NodeTls>>,
    ) -> Self {
        let (state, now) = (State::Following, Instant::now());
        let machine = Machine { state, is_in_flight: false, began: now, prepares_from: now };
        Replication {
            membership,
            digests: notes.digests.clone(),
            tls,
            table: Arc::new(SpeculativeTable::new(node.clone(), notes.clock.clone())),
            node,
            clock: notes.clock.clone(),
            functions: notes.functions.clone(),
            users: notes.users.clone(),
            machine: Mutex::new(machine),
            answer: Arc::default(),
        }
    }

    /// Sets the worker that is woken by answers.
    pub(crate) fn wake(&self, worker: Arc<Wakeups>) {
        // The only worker.
        let _ = self.answer.worker.set(worker);
    }

    pub(crate) fn state(&self) -> State {
        self.machine.lock().state
    }

    /// Whether the state is that of the node's status. If not, it is about to change.
    pub(crate) fn leads(&self, status: &Status) -> bool {
        let term = (status.role == Role::Leader).then_some(status.term);
        matches!(self.state(), State::Leading { term: own } if Some(own) == term)
    }

    /// Whether this node has given up to lead, though its status may say that it leads: a request
    /// has no answer.
    pub(crate) fn has_given_up(&self) -> bool {
        let machine = self.machine.lock();
        machine.is_in_flight && machine.state == State::Following
    }

    /// This node's number.
    pub(crate) fn id(&self) -> u64 {
        self.membership.own.node
    }

    /// The address of a node.
    pub(crate) fn member(&self, node: u64) -> Option<Member> {
        self.membership.member(node)
    }

    /// Whether commands have to wait for the request in flight, so that uncommitted writes and held
    /// replies stay bounded.
    pub(crate) fn is_congested(&self) -> bool {
        self.table.is_full() && self.machine.lock().is_in_flight
    }

    /// Takes the answer to the request in flight and follows the node's status. The worker calls it
    /// in each iteration, until nothing has happened.
    pub(crate) fn advance(&self) -> Progress {
        let mut machine = self.machine.lock();
        if machine.is_in_flight {
            let Some(answer) = self.answer.term.lock().take() else {
                return match machine.state {
                    State::Leading { .. } if self.is_late(&machine) => self.lose(&mut machine),
                    _ => Progress::None,
                };
            };
            machine.is_in_flight = false;
            return match (machine.state, answer) {
                (State::Leading { term }, Some(answered)) if answered == term => {
                    self.table.end_proposal();
                    Progress::Committed
                }
                (State::Preparing, Some(term)) => {
                    machine.state = State::Leading { term };
                    self.clock.set_leading(true);
                    Progress::Began
                }
                _ => self.lose(&mut machine),
            };
        }
        let status = self.node.status();
        let leads = status.role == Role::Leader;
        match machine.state {
            State::Leading { term } if !(leads && status.term == term) => self.lose(&mut machine),
            State::Following if leads && Instant::now() >= machine.prepares_from => {
                machine.state = State::Preparing;
                (machine.is_in_flight, machine.began) = (true, Instant::now());
                drop(machine);
                self.read_index();
                Progress::None
            }
            _ => Progress::None,
        }
    }

    /// Whether another node leads by now, as far as time tells, because the request in flight has
    /// not been answered for so long.
    fn is_late(&self, machine: &Machine) -> bool {
        machine.began.elapsed() >= self.membership.dead_after && self.node.status().voters.len() > 1
    }

    fn lose(&self, machine: &mut Machine) -> Progress {
        machine.state = State::Following;
        machine.prepares_from = Instant::now() + RETRY_INTERVAL;
        self.clock.set_leading(false);
        self.table.discard();
        Progress::Lost
    }

    /// Begins the commit of what commands have seen and written, unless a request is in flight.
    /// Returns whether it did.
    pub(crate) fn submit(&self) -> bool {
        let mut machine = self.machine.lock();
        let State::Leading { term } = machine.state else { return false };
        if machine.is_in_flight {
            return false;
        }
        (machine.is_in_flight, machine.began) = (true, Instant::now());
        drop(machine);
        match self.table.begin_proposal() {
            Some(batch) => {
                let answer = self.answer.clone();
                self.node.propose(Some(term), batch, move |outcome| {
                    answer.set(outcome.ok().map(|committed| committed.term));
                });
            }
            None => self.read_index(),
        }
        true
    }

    fn read_index(&self) {
        let answer = self.answer.clone();
        self.node.read_index(move |outcome| answer.set(outcome.ok().map(|read| read.term)));
    }
}
