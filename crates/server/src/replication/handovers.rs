//! When the leader of a group hands over to the node that the group prefers.
//!
//! The preferred node takes over once it has been ready without a break for [`READY_TIMEOUTS`]
//! election timeouts. A handover that has not made it the leader is repeated: each time the wait is
//! twice as long, up to [`MAX_TIMEOUTS`]. Once the preferred node leads, what was before is
//! forgotten: if it dies and comes back, it takes over as soon as at first.

use std::time::{Duration, Instant};

/// How long the preferred node has been ready before it takes over, in election timeouts.
const READY_TIMEOUTS: u32 = 5;
/// The longest wait between two handovers, in election timeouts.
const MAX_TIMEOUTS: u32 = 60;

/// The handovers of one node in one group.
pub(super) struct Handovers {
    election_timeout: Duration,
    /// Since when the preferred node is ready.
    ready_since: Option<Instant>,
    /// When this node last handed over.
    last: Option<Instant>,
    /// The handovers since the preferred node was last seen to lead.
    count: u32,
}

impl Handovers {
    pub(super) fn new(election_timeout: Duration) -> Self {
        Handovers { election_timeout, ready_since: None, last: None, count: 0 }
    }

    /// Notes that this node does not lead. The question is asked only if it matters.
    pub(super) fn follow(&mut self, preferred_leads: impl FnOnce() -> bool) {
        self.ready_since = None;
        if self.count > 0 && preferred_leads() {
            (self.last, self.count) = (None, 0);
        }
    }

    /// Whether this node, which leads, hands over now.
    pub(super) fn is_due(&mut self, is_ready: bool, now: Instant) -> bool {
        if !is_ready {
            self.ready_since = None;
            return false;
        }
        let ready_since = *self.ready_since.get_or_insert(now);
        let timeouts = READY_TIMEOUTS << self.count.min(4);
        let wait = timeouts.min(MAX_TIMEOUTS) * self.election_timeout;
        if now.duration_since(ready_since) < READY_TIMEOUTS * self.election_timeout
            || self.last.is_some_and(|last| now.duration_since(last) < wait)
        {
            return false;
        }
        (self.last, self.count) = (Some(now), self.count + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    /// Asks every half timeout; returns the timeouts until a handover.
    fn timeouts_to_handover(handovers: &mut Handovers, now: &mut Instant) -> u32 {
        let begin = *now;
        while !handovers.is_due(true, *now) {
            *now += TIMEOUT / 2;
        }
        (now.duration_since(begin).as_millis() / TIMEOUT.as_millis()) as u32
    }

    #[test]
    fn node_that_leads_again_after_a_handover_hands_over_as_soon_as_at_first() {
        let (mut handovers, mut now) = (Handovers::new(TIMEOUT), Instant::now());
        assert_eq!(timeouts_to_handover(&mut handovers, &mut now), 5);
        handovers.follow(|| true);
        // The preferred node dies and comes back; this node leads meanwhile.
        assert_eq!(timeouts_to_handover(&mut handovers, &mut now), 5);
    }

    #[test]
    fn failed_handover_is_repeated_after_longer_and_longer_waits() {
        let (mut handovers, mut now) = (Handovers::new(TIMEOUT), Instant::now());
        let mut waits = [0; 7];
        for wait in &mut waits {
            *wait = timeouts_to_handover(&mut handovers, &mut now);
            // The preferred node has not won the election.
            handovers.follow(|| false);
        }
        assert_eq!(waits, [5, 10, 20, 40, 60, 60, 60]);
    }

    #[test]
    fn break_of_the_preferred_node_begins_its_wait_again() {
        let (mut handovers, mut now) = (Handovers::new(TIMEOUT), Instant::now());
        assert!(!handovers.is_due(true, now));
        now += 4 * TIMEOUT;
        assert!(!handovers.is_due(false, now));
        assert_eq!(timeouts_to_handover(&mut handovers, &mut now), 5);
    }
}
