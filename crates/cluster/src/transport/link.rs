//! The link to a peer: a bounded queue of packets, and the connection that carries them.
//!
//! ```text
//!   push ─▶ queue ─▶ take: the thread of the link sends all of it     (see `outgoing`)
//!     └─ no connection, or full: dropped, as a network may
//! ```
//!
//! Published messages have a queue of their own with a smaller limit, and go behind the packets in
//! small portions: they neither take the place of packets nor delay them by much.
//!
//! A peer that restarts connects to this node. The link then drops its connection to the earlier
//! process and connects again without waiting for the backoff.
//!
//! Invariant: the queue is empty while there is no connection.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

use super::options::TransportOptions;
use crate::codec::packet_bytes;
use crate::packet::Envelope;
use crate::publication::{Publication, PublicationQueue};

/// The published messages that are sent before packets that have come meanwhile, in bytes.
const PORTION_BYTES: usize = 256 << 10;

/// A link to a peer.
pub(super) struct Link {
    pub(super) node: u64,
    /// The address, `host:port`.
    pub(super) address: String,
    queue: Mutex<Queue>,
    changed: Condvar,
    max_packets: usize,
    max_bytes: usize,
}

#[derive(Default)]
struct Queue {
    packets: VecDeque<Envelope>,
    bytes: usize,
    publications: PublicationQueue,
    /// The connection and the peer's process.
    connection: Option<(TcpStream, u64)>,
    /// When the connection was opened.
    opened_at: Option<SystemTime>,
    /// The peer's process has connected to this node: connect to it now.
    is_hurried: bool,
    /// A packet was dropped since the thread last took the queue.
    is_overflowing: bool,
    is_closed: bool,
}

/// What [`Link::push`] has done with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PushOutcome {
    Queued,
    /// Dropped: there is no connection, or an earlier packet was dropped for the same reason.
    Dropped,
    /// Dropped, as the first of several, because the queue is full.
    Overflows,
}

/// The next work of a link's thread.
pub(super) enum Work {
    Send(VecDeque<Envelope>, Vec<Arc<Publication>>),
    /// The deadline has passed.
    Idle,
    /// The connection is dead.
    Broken,
    Closed,
}

impl Link {
    pub(super) fn new(node: u64, address: String, options: &TransportOptions) -> Self {
        let publications = PublicationQueue::new(options.max_queued_publication_bytes);
        let (queue, changed) =
            (Mutex::new(Queue { publications, ..Queue::default() }), Condvar::new());
        let (max_packets, max_bytes) = (options.max_queued_packets, options.max_queued_bytes);
        Link { node, address, queue, changed, max_packets, max_bytes }
    }

    /// Queues a packet, or drops it.
    pub(super) fn push(&self, envelope: Envelope) -> PushOutcome {
        let bytes = packet_bytes(&envelope.packet);
        let mut queue = self.queue.lock();
        let is_full = queue.packets.len() >= self.max_packets
            || (queue.bytes > 0 && queue.bytes + bytes > self.max_bytes);
        if queue.is_closed || queue.connection.is_none() {
            return PushOutcome::Dropped;
        }
        if is_full {
            let is_first = !std::mem::replace(&mut queue.is_overflowing, true);
            return if is_first { PushOutcome::Overflows } else { PushOutcome::Dropped };
        }
        queue.bytes += bytes;
        queue.packets.push_back(envelope);
        if queue.packets.len() == 1 {
            self.changed.notify_one();
        }
        PushOutcome::Queued
    }

    /// Queues a published message; `false` if it is dropped.
    pub(super) fn publish(&self, publication: Arc<Publication>) -> bool {
        let mut queue = self.queue.lock();
        if queue.is_closed || queue.connection.is_none() || !queue.publications.push(publication) {
            return false;
        }
        if queue.publications.len() == 1 {
            self.changed.notify_one();
        }
        true
    }

    /// Waits for packets until the deadline.
    pub(super) fn take(&self, deadline: Instant) -> Work {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_closed {
                return Work::Closed;
            }
            if queue.is_hurried {
                return Work::Broken;
            }
            if !queue.packets.is_empty() || !queue.publications.is_empty() {
                (queue.bytes, queue.is_overflowing) = (0, false);
                let publications = queue.publications.take(PORTION_BYTES);
                return Work::Send(std::mem::take(&mut queue.packets), publications);
            }
            if self.changed.wait_until(&mut queue, deadline).timed_out() {
                return Work::Idle;
            }
        }
    }

    /// Waits until it is time to connect; `false` if the link is closed.
    pub(super) fn wait_to_connect(&self, deadline: Instant) -> bool {
        let mut queue = self.queue.lock();
        while !queue.is_closed && !queue.is_hurried {
            if self.changed.wait_until(&mut queue, deadline).timed_out() {
                break;
            }
        }
        queue.is_hurried = false;
        !queue.is_closed
    }

    /// Accepts packets from now on, for this process of the peer.
    pub(super) fn open(&self, stream: TcpStream, process: u64) {
        let mut queue = self.queue.lock();
        queue.is_hurried = false;
        queue.connection = Some((stream, process));
        queue.opened_at = Some(SystemTime::now());
    }

    /// When its connection was opened, and the bytes that wait; `None` without a connection.
    pub(super) fn connection(&self) -> Option<(SystemTime, usize)> {
        let queue = self.queue.lock();
        let bytes = queue.bytes + queue.publications.bytes();
        queue.connection.is_some().then_some((queue.opened_at?, bytes))
    }

    /// Drops what is queued, and accepts nothing until it is opened again. Returns the number of
    /// published messages that were dropped.
    pub(super) fn reset(&self) -> usize {
        let mut queue = self.queue.lock();
        (queue.connection, queue.bytes, queue.is_overflowing) = (None, 0, false);
        queue.packets.clear();
        queue.publications.clear()
    }

    /// Records that this process of the peer has connected to this node: a connection to an earlier
    /// process is dead, and without one the link connects now.
    pub(super) fn note_process(&self, process: u64) {
        let mut queue = self.queue.lock();
        match &queue.connection {
            Some((_, known)) if *known == process => {}
            Some((stream, _)) => {
                // It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
                queue.is_hurried = true;
            }
            None => queue.is_hurried = true,
        }
        self.changed.notify_one();
    }

    /// Ends the link.
    pub(super) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        if let Some((stream, _)) = &queue.connection {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_one();
    }
}
