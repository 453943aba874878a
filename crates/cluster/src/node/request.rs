//! Requests to a running node: their outcomes, and the callbacks that receive them.
//!
//! A callback is called exactly once, whatever happens. If it is dropped (the node stops, fails, or
//! its thread panics), it is called with the outcome that is true then: a request that Raft has not
//! accepted certainly had no effect, and the outcome of the others is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use siltstone_engine::Error;

use crate::requests::Rejection;

/// A write that is committed, and applied at this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The term in which it was proposed.
    pub term: u64,
    /// The index that this node has applied now: that of the write, or a later one.
    pub index: u64,
}

/// A moment from which on a local read is linearizable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadIndex {
    /// The term for a proposal that depends on the read.
    pub term: u64,
    /// The index that this node has applied now.
    pub index: u64,
}

/// A leader, and where its clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// The node's id.
    pub node: u64,
    /// The address for clients, if it is known.
    pub client_address: Option<String>,
}

/// Why a write was not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// It has had no effect and will have none: it may be repeated.
    #[error("{0}")]
    NotProposed(Refusal),
    /// It may be applied already, later, or never: only a read shows which.
    #[error("the outcome of the request is unknown: {0}")]
    OutcomeUnknown(&'static str),
}

/// Why a request was refused. It has had no effect and will have none.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// This node does not lead.
    #[error("this node does not lead the group; the leader is {}", display_leader(.leader.as_ref()))]
    NotLeader {
        /// The leader, if it is known.
        leader: Option<Leader>,
    },
    /// The term is over in which the caller read what it wants to change.
    #[error("the term has changed since the read; read again")]
    OldTerm,
    /// The leader changes, a change of membership is pending, or too much is not committed yet.
    #[error("the group cannot accept this now: {0}; retry soon")]
    Busy(&'static str),
    /// The queue of this node is full.
    #[error("too much is in flight: {limit} already wait at this node; retry soon")]
    TooMuchInFlight {
        /// The limit that was reached, with its unit.
        limit: String,
    },
    /// The request is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The node has failed.
    #[error("the node has failed: {0}; restart it")]
    Failed(Error),
    /// The node stops, or has stopped.
    #[error("the node is stopping")]
    Stopped,
}

impl Refusal {
    /// The refusal for a rejection by the group; `leader` completes what the group knows.
    pub(super) fn of(rejection: Rejection, leader: impl FnOnce(u64) -> Leader) -> Self {
        match rejection {
            Rejection::NotLeader { leader: node } => {
                Refusal::NotLeader { leader: node.map(leader) }
            }
            Rejection::OldTerm => Refusal::OldTerm,
            Rejection::Busy(reason) => Refusal::Busy(reason),
            Rejection::Invalid(reason) => Refusal::Invalid(reason),
            Rejection::Failed(error) => Refusal::Failed(error),
        }
    }
}

fn display_leader(leader: Option<&Leader>) -> String {
    match leader {
        None => "not known".into(),
        Some(Leader { node, client_address: None }) => format!("node {node}"),
        Some(Leader { node, client_address: Some(address) }) => format!("node {node} at {address}"),
    }
}

/// Receives the outcome of a request.
pub(super) struct Callback<T, E> {
    call: Option<Call<T, E>>,
    /// The outcome if it is dropped.
    dropped: Option<E>,
    permit: Option<Permit>,
}

type Call<T, E> = Box<dyn FnOnce(Result<T, E>) + Send>;

impl<T, E> Callback<T, E> {
    pub(super) fn new(call: Call<T, E>, dropped: E, permit: Option<Permit>) -> Self {
        Callback { call: Some(call), dropped: Some(dropped), permit }
    }

    /// Sets the outcome for the case that nobody calls it.
    pub(super) fn set_dropped(&mut self, error: E) {
        self.dropped = Some(error);
    }

    /// Calls it. What it holds is released before, so that it may begin the next request.
    pub(super) fn complete(mut self, outcome: Result<T, E>) {
        self.permit = None;
        if let Some(call) = self.call.take() {
            call(outcome);
        }
    }
}

impl<T, E> Drop for Callback<T, E> {
    fn drop(&mut self) {
        self.permit = None;
        if let (Some(call), Some(error)) = (self.call.take(), self.dropped.take()) {
            call(Err(error));
        }
    }
}

/// The requests in flight at a node, and their limits.
pub(super) struct InFlight {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    max_requests: usize,
    max_bytes: usize,
}

/// A request's share of what may be in flight.
pub(super) struct Permit {
    in_flight: Arc<InFlight>,
    bytes: usize,
}

impl InFlight {
    pub(super) fn new(max_requests: usize, max_bytes: usize) -> Self {
        let (requests, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        InFlight { requests, bytes, max_requests, max_bytes }
    }

    /// The requests and their bytes.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.requests.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Admits a request of this size; a single one may be larger than the limit.
    pub(super) fn admit(self: &Arc<Self>, bytes: usize) -> Result<Permit, Refusal> {
        // Released by `drop` if it is refused below.
        let permit = Permit { in_flight: self.clone(), bytes };
        let requests = self.requests.fetch_add(1, Relaxed);
        let before = self.bytes.fetch_add(bytes, Relaxed);
        if requests >= self.max_requests {
            let limit = format!("{} requests", self.max_requests);
            return Err(Refusal::TooMuchInFlight { limit });
        }
        if before > 0 && before.saturating_add(bytes) > self.max_bytes {
            let limit = format!("{} bytes", self.max_bytes);
            return Err(Refusal::TooMuchInFlight { limit });
        }
        Ok(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.in_flight.requests.fetch_sub(1, Relaxed);
        self.in_flight.bytes.fetch_sub(self.bytes, Relaxed);
    }
}
