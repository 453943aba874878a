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
pub(super) struct Holder {
    pub(super) token: usize,
    pub(super) client: u64,
    /// The position in its replies that the commit releases.
    pub(super) end: u64,
}

/// What waits for one commit.
#[derive(Default)]
pub(super) struct Held {
    pub(super) holders: Vec<Holder>,
    deliveries: Vec<Delivery>,
}

impl Held {
    /// Posts the replies to parked commands.
    pub(super) fn deliver(&mut self) {
        for Delivery { client, reply, .. } in self.deliveries.drain(..) {
            client.complete(Completion::Reply(reply));
        }
    }

    /// Closes the clients whose parked commands have run.
    pub(super) fn fail_deliveries(&mut self) {
        for Delivery { client, .. } in self.deliveries.drain(..) {
            client.kill();
        }
    }

    fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.deliveries.is_empty()
    }
}

/// Replies that wait.
#[derive(Default)]
pub(super) struct HeldReplies {
    open: Held,
    in_flight: Held,
}

impl HeldReplies {
    /// Adds the replies of a connection in an iteration.
    pub(super) fn add(&mut self, holder: Holder) {
        self.open.holders.push(holder);
    }

    /// Adds a reply to a parked command.
    pub(super) fn add_delivery(&mut self, delivery: Delivery) {
        self.open.deliveries.push(delivery);
    }

    /// Whether there is something that a commit would release.
    pub(super) fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// A commit of all that is open has begun.
    pub(super) fn begin(&mut self) {
        self.in_flight = std::mem::take(&mut self.open);
        // Of several iterations the last one has the position.
        let holders = &mut self.in_flight.holders;
        holders.sort_by_key(|holder| (holder.token, holder.client, holder.end));
        holders.dedup_by(|later, earlier| {
            let is_same = (later.token, later.client) == (earlier.token, earlier.client);
            if is_same {
                earlier.end = later.end;
            }
            is_same
        });
    }

    /// Takes what the commit in flight releases.
    pub(super) fn committed(&mut self) -> Held {
        std::mem::take(&mut self.in_flight)
    }

    /// Takes everything: nothing of it will be committed, as far as this node knows.
    pub(super) fn lost(&mut self) -> [Held; 2] {
        [std::mem::take(&mut self.in_flight), std::mem::take(&mut self.open)]
    }
}
