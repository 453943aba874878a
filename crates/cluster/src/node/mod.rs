//! A node that runs: a thread that drives a [`Group`], and handles for its users.
//!
//! ```text
//!   NodeHandle ── proposals, reads ──▶ inputs ─▶ thread: Group ─▶ Network ─▶ other nodes
//!       ▲  status, table                 ▲         │                              │
//!       └────────────────────────────────┼─────────┴─▶ callbacks                  │
//!                                        └───────────────── packets ◀─────────────┘
//! ```
//!
//! Use: [`Node::create`] once in an empty directory, [`Node::open`] at each later start. A write is
//! [`NodeHandle::propose`]; a read is [`NodeHandle::read_index`] and then a read of
//! [`NodeHandle::table`]. A write that depends on a read is proposed in the term of that read;
//! meanwhile the caller keeps others of its own process from writing these keys.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use siltstone_cluster::node::{NoPeers, Node, NodeOptions, RequestError};
//! # use siltstone_cluster::{GroupOptions, OpenTable};
//! # use siltstone_engine::WriteBatch;
//! # fn run(vfs: Arc<dyn siltstone_vfs::Vfs>, open: OpenTable) -> siltstone_engine::Result<()> {
//! let options = NodeOptions::new(GroupOptions::new(1, 1, 42));
//! let node = Node::create(options, vfs, open, Arc::new(NoPeers::default()), &[1])?;
//! let mut batch = WriteBatch::new();
//! batch.put(b"key", b"value");
//! node.handle().propose(None, batch, |outcome| match outcome {
//!     Ok(committed) => println!("durable, and applied at {}", committed.index),
//!     Err(RequestError::NotProposed(refusal)) => println!("no effect: {refusal}"),
//!     Err(RequestError::OutcomeUnknown(reason)) => println!("written or not: {reason}"),
//! });
//! node.shutdown()
//! # }
//! ```
//!
//! Invariants:
//! * A callback is called exactly once, and gets `NotProposed` only if the write never has an
//!   effect.
//! * Packets of a node are accepted only from its first directory: a node that was created again
//!   under its old id neither votes nor counts.
//! * One process at a time runs the node of a directory: the lock file `NODE-LOCK` is held.

mod checkpoint;
mod directory;
mod driver;
mod handle;
mod inputs;
mod messages;
mod options;
mod request;
mod status;

use std::sync::Arc;
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use siltstone_engine::{Error, Result};
use siltstone_vfs::{LockGuard, Vfs};

pub use crate::group::PeerStatus;
pub use crate::network::{Network, NoPeers};
pub use directory::NodeDirectory;
pub use handle::NodeHandle;
pub use options::NodeOptions;
pub use request::{Committed, Leader, ReadIndex, Refusal, RequestError};
pub use status::{Role, Status};

use crate::group::{Group, LOCK_FILE, is_new};
use crate::identities::{Identities, Stage, stage_in};
use crate::stream::OpenTable;
use driver::Driver;
use inputs::{Input, Inputs};
use messages::Messages;
use request::InFlight;
use status::{PublishedState, PublishedTable};

/// A node that runs. Dropping it stops it as [`shutdown`](Node::shutdown) does.
pub struct Node {
    handle: NodeHandle,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Node {
    /// Creates a node in an empty directory and runs it. The first nodes of a group all have the
    /// same `voters`; a node that joins later has none. If it was interrupted, it may be repeated.
    ///
    /// # Errors
    /// `Refused` if a node lives in the directory; `Locked`; `Invalid` options; those of the table;
    /// I/O errors.
    pub fn create(
        options: NodeOptions,
        vfs: Arc<dyn Vfs>,
        open: OpenTable,
        network: Arc<dyn Network>,
        voters: &[u64],
    ) -> Result<Self> {
        options.check()?;
        let lock = vfs.lock(LOCK_FILE)?;
        let group = Group::create(vfs.clone(), open, options.group.clone(), voters)?;
        Self::run(options, vfs, group, network, lock)
    }

    /// Whether a node has still to be created in a directory: there is nothing in it, or a creation
    /// was interrupted.
    ///
    /// # Errors
    /// `Refused` and `Corruption` for a file that cannot be read; I/O errors.
    pub fn is_new(vfs: &dyn Vfs) -> Result<bool> {
        is_new(vfs)
    }

    /// The random id of a directory, which it is given now if it has none. A node that is created
    /// in the directory keeps it.
    ///
    /// # Errors
    /// `Refused` and `Corruption` for a file that cannot be read; I/O errors.
    pub fn directory_id(vfs: Arc<dyn Vfs>) -> Result<u64> {
        Ok(Identities::create(vfs)?.own())
    }

    /// Opens the node of a directory and runs it.
    ///
    /// # Errors
    /// As from [`Group::open`]: a node that has lost its log or table does not open
    /// ([`is_lost`](crate::log::is_lost)). `Locked` if it runs already; `Invalid` options.
    pub fn open(
        options: NodeOptions,
        vfs: Arc<dyn Vfs>,
        open: OpenTable,
        network: Arc<dyn Network>,
    ) -> Result<Self> {
        options.check()?;
        let lock = vfs.lock(LOCK_FILE)?;
        let group = Group::open(vfs.clone(), open, options.group.clone())?;
        Self::run(options, vfs, group, network, lock)
    }

    /// Creates the only node of a new group in a directory that has nothing but the checkpoint of a
    /// table of another group ([`NodeHandle::checkpoint`]), and runs it. Others may join. The new
    /// group goes on at the checkpoint's entry of the log, and in its term. Of the group's own
    /// rows, whose keys begin with `ff c0 fe`, it has those whose keys begin with one of `kept`. If
    /// it was interrupted, it may be repeated.
    ///
    /// # Errors
    /// `Refused` if a node lives in the directory, or if it has not one table; `Locked`; `Invalid`
    /// options; those of the table; I/O errors.
    pub fn restore(
        options: NodeOptions,
        vfs: Arc<dyn Vfs>,
        open: OpenTable,
        network: Arc<dyn Network>,
        kept: &[&[u8]],
    ) -> Result<Self> {
        options.check()?;
        let lock = vfs.lock(LOCK_FILE)?;
        let group = Group::restore(vfs.clone(), open, options.group.clone(), kept)?;
        Self::run(options, vfs, group, network, lock)
    }

    /// Whether the node of a directory was created to the end.
    ///
    /// # Errors
    /// `Refused` and `Corruption` for a file that cannot be read; I/O errors.
    pub fn is_created(vfs: &dyn Vfs) -> Result<bool> {
        Ok(stage_in(vfs)?.is_some_and(|stage| stage != Stage::Creating))
    }

    fn run(
        options: NodeOptions,
        vfs: Arc<dyn Vfs>,
        group: Group,
        network: Arc<dyn Network>,
        lock: LockGuard,
    ) -> Result<Self> {
        let inputs = Arc::new(Inputs::new(options.max_waiting_packets));
        let leader = |node| Leader { node, client_address: network.client_address(node) };
        let published = Arc::new(PublishedState {
            vfs,
            status: ArcSwap::from_pointee(Status::of(&group, leader)),
            table: ArcSwap::from_pointee(PublishedTable::of(&group)),
        });
        let messages = Arc::new(Messages::default());
        let handle = NodeHandle {
            inputs: inputs.clone(),
            messages: messages.clone(),
            published: published.clone(),
            in_flight: Arc::new(InFlight::new(
                options.max_in_flight_requests,
                options.max_in_flight_bytes,
            )),
            max_batch_bytes: options.max_batch_bytes,
        };
        network.attach(group.id(), inputs.clone());
        let name = format!("raft-{}", group.id());
        let outputs = (published.clone(), messages);
        let driver = Driver::new(group, options, network, inputs.clone(), outputs);
        let run = move || {
            let _end = EndGuard { inputs, published };
            let outcome = driver.run();
            drop(lock);
            outcome
        };
        let thread = std::thread::Builder::new().name(name).spawn(run);
        let thread = thread.map_err(|error| Error::io("start", "the node's thread", &error))?;
        Ok(Node { handle, thread: Some(thread) })
    }

    /// A handle of the node.
    pub fn handle(&self) -> &NodeHandle {
        &self.handle
    }

    /// Refuses new requests, waits for the writes in flight, hands over if it leads, and closes log
    /// and table. It waits up to [`NodeOptions::drain`].
    ///
    /// # Errors
    /// The error that has stopped the node earlier; I/O errors. It can be opened all the same.
    pub fn shutdown(mut self) -> Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> Result<()> {
        self.handle.inputs.push(Input::Stop);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(Error::ReadOnly { cause: "the node's thread has panicked".into() }),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Who wants the error calls `shutdown`.
        let _ = self.stop();
    }
}

/// Publishes that the thread has ended, however it did, and answers what waits.
struct EndGuard {
    inputs: Arc<Inputs>,
    published: Arc<PublishedState>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.inputs.close();
        let mut status = (**self.published.status.load()).clone();
        status.is_stopped = true;
        (status.role, status.leader) = (Role::Outsider, None);
        if std::thread::panicking() {
            status.failure = Some("the node's thread has panicked".into());
        }
        self.published.publish(status);
    }
}
