//! The queue of a node's thread: packets and commands, in the order of their arrival.
//!
//! The thread takes everything that waits at once. Writes that arrive while it syncs are in the
//! next round together, and share the next sync.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use siltstone_engine::WriteBatch;

use super::request::{Callback, Committed, ReadIndex, Refusal, RequestError};
use crate::membership::Change;
use crate::network::Receiver;
use crate::packet::{Envelope, NodeMessage};

/// A packet or command for the thread.
pub(super) enum Input {
    Packet(Envelope),
    /// Packets to this node have been lost.
    Unreachable(u64),
    /// This node runs an earlier version, which notes no starts.
    EarlierVersion(u64),
    /// Propose a batch; with a term, only in that term.
    Propose(Option<u64>, WriteBatch, Callback<Committed, RequestError>),
    ReadIndex(Callback<ReadIndex, Refusal>),
    Barrier(Callback<ReadIndex, Refusal>),
    ChangeMembership(Vec<Change>, Callback<Committed, RequestError>),
    TransferLeader(u64, Callback<(), Refusal>),
    TakeOver(bool, Callback<(), Refusal>),
    /// Send a message to another node.
    Message(NodeMessage),
    Stop,
}

/// The queue.
pub(super) struct Inputs {
    state: Mutex<State>,
    arrived: Condvar,
    max_packets: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Input>,
    packets: usize,
    dropped_packets: u64,
    is_closed: bool,
}

impl Inputs {
    pub(super) fn new(max_packets: usize) -> Self {
        Inputs { state: Mutex::default(), arrived: Condvar::new(), max_packets }
    }

    /// Adds an input. If the queue is closed, or full of packets, the input is dropped, and its
    /// callback is called on this thread.
    pub(super) fn push(&self, input: Input) {
        let mut state = self.state.lock();
        let is_packet = matches!(input, Input::Packet(_));
        if state.is_closed || (is_packet && state.packets >= self.max_packets) {
            state.dropped_packets += u64::from(is_packet);
            drop(state);
            drop(input);
            return;
        }
        state.packets += usize::from(is_packet);
        state.waiting.push_back(input);
        if state.waiting.len() == 1 {
            self.arrived.notify_one();
        }
    }

    /// Waits for an input until the deadline, and takes all inputs.
    pub(super) fn take(&self, deadline: Instant) -> VecDeque<Input> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() {
            if self.arrived.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.packets = 0;
        std::mem::take(&mut state.waiting)
    }

    /// Drops the waiting inputs, and every later one.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        // Callbacks may begin other requests.
        drop(state);
        drop(waiting);
    }

    /// Packets that found the queue full.
    pub(super) fn dropped_packets(&self) -> u64 {
        self.state.lock().dropped_packets
    }
}

impl Receiver for Inputs {
    fn deliver(&self, envelope: Envelope) {
        self.push(Input::Packet(envelope));
    }

    fn report_unreachable(&self, node: u64) {
        self.push(Input::Unreachable(node));
    }

    fn report_earlier_version(&self, node: u64) {
        self.push(Input::EarlierVersion(node));
    }
}
