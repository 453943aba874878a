//! The options of a running node.

use std::time::Duration;

use siltstone_engine::{Error, Result};

use crate::codec::MAX_BODY_BYTES;
use crate::group::GroupOptions;

/// The shortest tick.
const MIN_TICK: Duration = Duration::from_millis(1);

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
    /// How long a node that is shut down waits for the writes that are in flight, and a leader for
    /// the next one.
    pub drain: Duration,
}

impl NodeOptions {
    /// Checks what the group does not check.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::Invalid(reason));
        if self.tick < MIN_TICK {
            return invalid(format!("the tick is {:?}; make it at least {MIN_TICK:?}", self.tick));
        }
        let limit = MAX_BODY_BYTES / 4;
        for (name, bytes) in [
            ("max_batch_bytes", self.max_batch_bytes),
            ("max_chunk_bytes", self.group.max_chunk_bytes),
        ] {
            if bytes > limit {
                return invalid(format!("{name} is {bytes}; make it at most {limit}"));
            }
        }
        Ok(())
    }

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
