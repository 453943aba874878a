//! The options of a running node.

use std::time::Duration;

use crate::group::GroupOptions;

/// The options of a node that runs.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Those of the state machine.
    pub group: GroupOptions,
    /// A tick, the unit of election timeouts and heartbeats.
    pub tick: Duration,
    /// The requests that may be in flight at this node; more are refused.
    pub max_in_flight_requests: usize,
    /// The bytes of the batches that may be in flight at this node; more are refused.
    pub max_in_flight_bytes: usize,
    /// The largest batch, in bytes. It must fit a frame of the transport.
    pub max_batch_bytes: usize,
    /// The packets that may wait for this node; more are dropped.
    pub max_waiting_packets: usize,
    /// How long a node that is shut down waits for the writes that are in flight.
    pub drain: Duration,
}

impl NodeOptions {
    /// The defaults: a leader that dies is replaced in 1 to 2 s.
    pub fn new(group: GroupOptions) -> Self {
        NodeOptions {
            group,
            tick: Duration::from_millis(100),
            max_in_flight_requests: 65_536,
            max_in_flight_bytes: 32 << 20,
            max_batch_bytes: 16 << 20,
            max_waiting_packets: 4096,
            drain: Duration::from_secs(1),
        }
    }
}
