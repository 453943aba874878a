//! The latency monitor (LATENCY): the worst latency per event and second, for the last 160 seconds
//! with one above the threshold.
//!
//! | event | latency |
//! | --- | --- |
//! | `command` | of a command that is not marked as fast |
//! | `fast-command` | of a command that is marked as fast |
//! | `aof-fsync-always` | of the sync of an iteration of an event loop |

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Seconds with samples that are kept per event.
const MAX_SAMPLES: usize = 160;

/// Latencies by event.
#[derive(Default)]
pub(crate) struct LatencyMonitor {
    events: Mutex<BTreeMap<&'static str, LatencyEvent>>,
}

/// Latencies of one event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LatencyEvent {
    /// Second since 1970, and the worst latency in it in milliseconds.
    pub(crate) samples: VecDeque<(u64, u64)>,
    /// The worst latency ever, in milliseconds.
    pub(crate) max_ms: u64,
}

impl LatencyMonitor {
    /// Records a latency.
    pub(crate) fn record(&self, event: &'static str, latency: Duration) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.events
            .lock()
            .entry(event)
            .or_default()
            .record(now.as_secs(), latency.as_millis() as u64);
    }

    /// Latencies of all events, sorted by name.
    pub(crate) fn all(&self) -> Vec<(&'static str, LatencyEvent)> {
        self.events.lock().iter().map(|(name, event)| (*name, event.clone())).collect()
    }

    /// Latencies of one event.
    pub(crate) fn get(&self, name: &[u8]) -> Option<LatencyEvent> {
        let name = name.to_ascii_lowercase();
        let events = self.events.lock();
        events.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, event)| event.clone())
    }

    /// Forgets one event. Returns whether there was one.
    pub(crate) fn reset(&self, name: &[u8]) -> bool {
        let name = name.to_ascii_lowercase();
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|known, _| known.as_bytes() != name);
        events.len() < before
    }

    /// Forgets all events. Returns their number.
    pub(crate) fn reset_all(&self) -> usize {
        std::mem::take(&mut *self.events.lock()).len()
    }
}

impl LatencyEvent {
    fn record(&mut self, second: u64, latency_ms: u64) {
        self.max_ms = self.max_ms.max(latency_ms);
        match self.samples.back_mut() {
            Some((last, worst)) if *last == second => *worst = (*worst).max(latency_ms),
            _ => {
                self.samples.push_back((second, latency_ms));
                if self.samples.len() > MAX_SAMPLES {
                    self.samples.pop_front();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_latency_of_each_second_is_kept() {
        let mut event = LatencyEvent::default();
        for (second, latency_ms) in [(1, 5), (1, 9), (1, 7), (3, 2)] {
            event.record(second, latency_ms);
        }
        assert_eq!((event.samples.as_slices().0, event.max_ms), (&[(1, 9), (3, 2)][..], 9));
        (4..1000).for_each(|second| event.record(second, 1));
        assert_eq!((event.samples.len(), event.max_ms), (MAX_SAMPLES, 9));
    }
}
