//! Completion times of requests: channels, queue depth, latencies.
//!
//! ```text
//!   submitted ──▶ queue (depth) ──▶ channel of the block ──▶ complete
//!                 waits for a slot    waits for a gap as long as the request
//! ```
//!
//! Channels work in parallel; a channel serves one request at a time. A request is admitted when
//! fewer than `queue_depth` requests are between admission and completion. In a simulation, a
//! client that runs later may submit at an earlier time. So a channel has a list of busy intervals,
//! and a request takes the first gap that fits it. Assigned times do not change, so a request from
//! an earlier time may temporarily exceed the queue depth.
//!
//! Invariant: the times depend only on the requests and their order; the intervals of a channel do
//! not overlap.
//!
//! Source: SkimpyFTL paper, section 4 (latencies and queue depth of [`Timing::PAPER`]).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// The latencies and the parallelism of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The time to read a page.
    pub read: Duration,
    /// The time to program a page.
    pub program: Duration,
    /// The time to erase a block.
    pub erase: Duration,
    /// Block `b` is on channel `b mod channels`, which serves one request at a time; 0 counts as 1.
    pub channels: u32,
    /// The number of requests in the queue; 0 counts as 1.
    pub queue_depth: u32,
}

impl Timing {
    /// The paper's device. The paper gives no number of channels; 16 is common for open-channel
    /// drives.
    pub const PAPER: Timing = Timing {
        read: Duration::from_micros(50),
        program: Duration::from_micros(100),
        erase: Duration::from_millis(1),
        channels: 16,
        queue_depth: 128,
    };

    /// No latency.
    pub const INSTANT: Timing = Timing {
        read: Duration::ZERO,
        program: Duration::ZERO,
        erase: Duration::ZERO,
        channels: 1,
        queue_depth: u32::MAX,
    };

    /// The channel of a block.
    pub fn channel_of(&self, block: u32) -> u32 {
        block % self.channels.max(1)
    }
}

/// The number of busy intervals that a channel keeps (no request is scheduled before them), and the
/// minimum length of the queue's history.
const MAX_REMEMBERED_REQUESTS: usize = 256;

/// The queue and the channels of one device.
pub(super) struct Schedule {
    queue_depth: usize,
    /// Admission and completion of requests that may be in progress at some client's time.
    queue: Vec<(Duration, Duration)>,
    /// At this length, requests completed before the latest submission are removed.
    queue_limit: usize,
    /// The latest completions, up to the queue depth. The earliest frees a slot for a request that
    /// is submitted in order.
    latest: BinaryHeap<Reverse<Duration>>,
    /// The latest submission.
    horizon: Duration,
    channels: Vec<ChannelSchedule>,
}

impl Schedule {
    pub(super) fn new(timing: &Timing) -> Self {
        let channels = (0..timing.channels.max(1)).map(|_| ChannelSchedule::default()).collect();
        Schedule {
            queue_depth: timing.queue_depth.max(1) as usize,
            queue: Vec::new(),
            queue_limit: MAX_REMEMBERED_REQUESTS,
            latest: BinaryHeap::new(),
            horizon: Duration::ZERO,
            channels,
        }
    }

    /// Schedules a request and returns its completion. It starts neither before it was `submitted`
    /// nor before its block is `ready`. Cost: logarithmic in the queue depth if requests are
    /// submitted in order, else linear in the requests in progress.
    pub(super) fn schedule(
        &mut self,
        submitted: Duration,
        ready: Duration,
        channel: u32,
        cost: Duration,
    ) -> Duration {
        let admitted = match submitted >= self.horizon {
            true => self.admission_in_order(submitted),
            false => self.admission(submitted),
        };
        self.horizon = self.horizon.max(submitted);
        let done = self.channels[channel as usize].fit(admitted.max(ready), cost);
        if done > admitted {
            self.note(admitted, done);
        }
        done
    }

    fn note(&mut self, admitted: Duration, done: Duration) {
        self.latest.push(Reverse(done));
        if self.latest.len() > self.queue_depth {
            self.latest.pop();
        }
        self.queue.push((admitted, done));
        if self.queue.len() > self.queue_limit {
            let horizon = self.horizon;
            self.queue.retain(|&(_, done)| done > horizon);
            self.queue_limit = MAX_REMEMBERED_REQUESTS.max(2 * self.queue.len());
        }
    }

    /// The first time at or after `from` at which the queue has a free slot, if all other requests
    /// were submitted before.
    fn admission_in_order(&mut self, from: Duration) -> Duration {
        while self.latest.peek().is_some_and(|&Reverse(done)| done <= from) {
            self.latest.pop();
        }
        match self.latest.peek() {
            Some(&Reverse(done)) if self.latest.len() >= self.queue_depth => done,
            _ => from,
        }
    }

    /// The same, if some requests were submitted at later times.
    fn admission(&self, from: Duration) -> Duration {
        let mut depth = 0;
        // Completions sort before admissions of the same time: a slot is free at once.
        let mut events = Vec::new();
        for &(admitted, done) in self.queue.iter().filter(|&&(_, done)| done > from) {
            events.push((done, false));
            match admitted > from {
                true => events.push((admitted, true)),
                false => depth += 1,
            }
        }
        if depth < self.queue_depth {
            return from;
        }
        events.sort_unstable();
        let mut events = events.into_iter().peekable();
        while let Some((time, admission)) = events.next() {
            depth = if admission { depth + 1 } else { depth - 1 };
            let settled = events.peek().is_none_or(|&(next, _)| next > time);
            if settled && depth < self.queue_depth {
                return time;
            }
        }
        from
    }
}

/// The busy intervals of a channel, disjoint and in order.
#[derive(Default)]
struct ChannelSchedule {
    busy: VecDeque<(Duration, Duration)>,
    /// No request starts before this time.
    closed: Duration,
}

impl ChannelSchedule {
    /// Takes the first gap at or after `from`, and returns its end.
    fn fit(&mut self, from: Duration, cost: Duration) -> Duration {
        let mut start = from.max(self.closed);
        let mut at = self.busy.partition_point(|&(_, end)| end <= start);
        while let Some(&(next, end)) = self.busy.get(at) {
            if start.saturating_add(cost) <= next {
                break;
            }
            start = start.max(end);
            at += 1;
        }
        let done = start.saturating_add(cost);
        if cost.is_zero() {
            return done;
        }
        let joins_before = at > 0 && self.busy[at - 1].1 == start;
        let joins_after = self.busy.get(at).is_some_and(|&(next, _)| next == done);
        match (joins_before, joins_after) {
            (true, true) => {
                self.busy[at - 1].1 = self.busy[at].1;
                self.busy.remove(at);
            }
            (true, false) => self.busy[at - 1].1 = done,
            (false, true) => self.busy[at].0 = start,
            (false, false) => self.busy.insert(at, (start, done)),
        }
        if self.busy.len() > MAX_REMEMBERED_REQUESTS
            && let Some((_, end)) = self.busy.pop_front()
        {
            self.closed = end;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_structures::SplitMix64;

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    fn schedule(channels: u32, queue_depth: u32) -> Schedule {
        Schedule::new(&Timing { channels, queue_depth, ..Timing::PAPER })
    }

    #[test]
    fn channels_work_in_parallel_and_each_is_serial() {
        let mut device = schedule(4, 128);
        let zero = Duration::ZERO;
        let done: Vec<_> =
            (0..8).map(|n| device.schedule(zero, zero, n % 4, micros(100))).collect();
        assert_eq!(done, [100, 100, 100, 100, 200, 200, 200, 200].map(micros));
    }

    #[test]
    fn queue_admits_up_to_its_depth() {
        let mut device = schedule(8, 2);
        let zero = Duration::ZERO;
        let done: Vec<_> = (0..6).map(|n| device.schedule(zero, zero, n, micros(100))).collect();
        assert_eq!(done, [100, 100, 200, 200, 300, 300].map(micros));
        assert_eq!(device.schedule(micros(300), zero, 7, micros(50)), micros(350));
        assert_eq!(
            device.schedule(micros(150), zero, 6, micros(50)),
            micros(350),
            "both are taken"
        );
    }

    #[test]
    fn request_from_an_earlier_time_takes_a_gap() {
        let mut device = schedule(1, 128);
        let zero = Duration::ZERO;
        assert_eq!(device.schedule(micros(500), zero, 0, micros(100)), micros(600));
        assert_eq!(device.schedule(micros(100), zero, 0, micros(100)), micros(200));
        assert_eq!(device.schedule(micros(100), zero, 0, micros(300)), micros(500));
        assert_eq!(device.schedule(micros(100), zero, 0, micros(1)), micros(601));
        assert_eq!(device.schedule(micros(0), micros(50), 0, micros(50)), micros(100));
    }

    /// Compares with the definition: requests of a channel do not overlap, and each is admitted at
    /// the first time with a free slot.
    #[test]
    fn random_schedules_respect_channels_and_queue_depth() {
        for seed in 0..60 {
            let mut random = SplitMix64::new(seed);
            let (channels, depth) = (1 + random.below(4) as u32, 1 + random.below(6) as usize);
            let mut device = schedule(channels, depth as u32);
            // Channel, admission, start and end of each request.
            let mut served: Vec<(u32, u64, u64, u64)> = Vec::new();
            let mut now = 0;
            // Few enough that no request is removed.
            for _ in 0..120 {
                now = if seed % 2 == 0 { random.below(3000) } else { now + random.below(40) };
                let channel = random.below(channels.into()) as u32;
                let cost = 1 + random.below(100);
                let under_way = |t| {
                    served.iter().filter(|&&(_, admitted, _, end)| admitted <= t && t < end).count()
                };
                let last = served.iter().map(|&(_, admitted, ..)| admitted).max().unwrap_or(0);
                // Requests submitted in order are admitted in order.
                let from = if seed % 2 == 0 { now } else { now.max(last) };
                let admitted = (from..).find(|&t| under_way(t) < depth).unwrap();
                let free = |begin| {
                    let clear = |&(c, _, b, e): &(u32, u64, u64, u64)| {
                        c != channel || begin + cost <= b || e <= begin
                    };
                    served.iter().all(clear)
                };
                let begin = (admitted..).find(|&t| free(t)).unwrap();
                let done = device.schedule(micros(now), Duration::ZERO, channel, micros(cost));
                assert_eq!(done, micros(begin + cost), "seed {seed}");
                served.push((channel, admitted, begin, begin + cost));
            }
        }
    }

    #[test]
    fn long_runs_and_backlogs_use_bounded_memory_and_time() {
        let mut device = schedule(4, 32);
        let mut random = SplitMix64::new(1);
        for n in 0..100_000 {
            let now = micros(n * 40 + random.below(400));
            let done = device.schedule(now, Duration::ZERO, random.below(4) as u32, micros(100));
            assert!(done >= now + micros(100));
        }
        assert!(device.queue.len() <= 4 * MAX_REMEMBERED_REQUESTS, "{}", device.queue.len());
        assert!(
            device.channels.iter().all(|channel| channel.busy.len() <= MAX_REMEMBERED_REQUESTS)
        );
        let mut device = schedule(4, 32);
        let zero = Duration::ZERO;
        let last = (0..100_000).map(|n| device.schedule(zero, zero, n % 4, micros(100))).max();
        assert_eq!(last, Some(micros(100 * 25_000)));
    }
}
