//! Replies that wait for a commit of one replicated group, of all connections of the worker.
//!
//! ```text
//!   iteration      a connection's replies depend on uncommitted writes ─▶ open
//!   submit         open ─▶ in flight, with the position that its replies have reached
//!   committed      in flight: released up to that position
//!   lost           open and in flight: the connections are closed
//! ```
//!
//! A connection that has replies in both is released in two steps, in their order. One whose
//! replies wait for several groups goes on when all of them have committed
//! ([`hold`](super::connection::Connection::hold)). Replies to parked commands of other clients
//! ("deliveries") wait in the same way.
//!
//! Memory: a few words per connection. The replies themselves stay in the connection, where they
//! count for its limits.

use crate::mailbox::Completion;
use crate::store::write_batcher::Delivery;

/// A connection with held replies. Its token may be another connection's meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldConnection {
    pub(super) token: usize,
    pub(super) client: u64,
    /// The position in its replies that the commit releases.
    pub(super) end: u64,
}

/// The replies that one commit releases.
#[derive(Default)]
pub(super) struct HeldBatch {
    pub(super) connections: Vec<HeldConnection>,
    deliveries: Vec<Delivery>,
}

impl HeldBatch {
    /// Posts the replies to parked commands.
    pub(super) fn deliver(&mut self) {
        for Delivery { client, reply, .. } in self.deliveries.drain(..) {
            client.complete(Completion::Reply(reply));
        }
    }

    /// Closes the clients of parked commands that have run: their outcome is unknown.
    pub(super) fn fail_deliveries(&mut self) {
        for Delivery { client, .. } in self.deliveries.drain(..) {
            client.kill();
        }
    }

    fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.deliveries.is_empty()
    }
}

/// The replies of a worker's connections that wait for commits of a group.
#[derive(Default)]
pub(super) struct HeldReplies {
    /// For the next commit.
    open: HeldBatch,
    /// For the commit in flight.
    in_flight: HeldBatch,
}

impl HeldReplies {
    /// Holds the replies of a connection in an iteration.
    pub(super) fn add_connection(&mut self, connection: HeldConnection) {
        self.open.connections.push(connection);
    }

    /// Holds a reply to a parked command.
    pub(super) fn add_delivery(&mut self, delivery: Delivery) {
        self.open.deliveries.push(delivery);
    }

    /// Whether replies wait for the next commit.
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Records that a commit has begun, which releases all open replies.
    pub(super) fn begin_commit(&mut self) {
        self.in_flight = std::mem::take(&mut self.open);
        // Of several iterations the last one has the position.
        let connections = &mut self.in_flight.connections;
        connections.sort_by_key(|held| (held.token, held.client, held.end));
        connections.dedup_by(|later, earlier| {
            let is_same = (later.token, later.client) == (earlier.token, earlier.client);
            if is_same {
                earlier.end = later.end;
            }
            is_same
        });
    }

    /// Takes the replies that the commit in flight has released.
    pub(super) fn take_committed(&mut self) -> HeldBatch {
        std::mem::take(&mut self.in_flight)
    }

    /// Takes all replies, because this node does not know whether their writes will be committed.
    pub(super) fn take_all(&mut self) -> [HeldBatch; 2] {
        [std::mem::take(&mut self.in_flight), std::mem::take(&mut self.open)]
    }
}
