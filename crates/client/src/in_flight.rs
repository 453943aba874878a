//! Packets in flight and their retransmission.
//!
//! ```text
//! sequence   41     42         43     44       next: 45
//!            sent   answered   sent   sent     oldest_offset of 45: 4
//! ```
//!
//! Sequence numbers have no gaps. Each packet carries the distance to the oldest packet still in
//! flight, so the server can drop older responses and reject packets delayed in the network beyond
//! that. The server keeps [`MAX_REMEMBERED_PACKETS`] responses per client and port: no more packets
//! go to a port while an older one of it is unanswered, because its response would be dropped.
//!
//! A packet is retransmitted after a timeout, which doubles each time and follows the round-trip
//! time.
//!
//! Invariant: a retransmitted packet has the same requests and the same sequence number.
//!
//! Source: Lim, thesis, section 5.3.2; RFC 6298 for the timeout, with shorter bounds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::wire::{Header, MAX_PACKET_BYTES};

/// Bounds of the retransmission timeout.
const MIN_TIMEOUT: Duration = Duration::from_millis(4);
const MAX_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout before the first round-trip sample.
const INITIAL_TIMEOUT: Duration = Duration::from_millis(50);

/// Responses that a server keeps per client and port, which bounds how far a client may run ahead
/// of an unanswered packet.
pub const MAX_REMEMBERED_PACKETS: usize = 1024;

/// Retransmissions of a packet after which the client repeats the handshake.
const MAX_RETRANSMITS_BEFORE_HANDSHAKE: u16 = 4;

/// A packet in flight.
#[derive(Debug)]
pub struct InFlightPacket {
    /// Encoded packet.
    pub bytes: Vec<u8>,
    /// Index of the destination port.
    pub port: usize,
    /// Per request, its index in the call, until it is answered.
    pub items: Vec<Option<u32>>,
    unanswered: usize,
    header: Header,
    sent: Instant,
    timeout: Duration,
}

impl InFlightPacket {
    /// Maximum size of a datagram shared with other packets. A retransmitted packet goes alone,
    /// because the path may not carry long frames.
    pub fn max_datagram_bytes(&self) -> usize {
        if self.header.attempt == 0 { MAX_PACKET_BYTES } else { 0 }
    }

    /// Whether it holds a single request with the maximum response size.
    pub fn is_single_request(&self) -> bool {
        self.items.len() == 1 && usize::from(self.header.response_limit) == MAX_PACKET_BYTES
    }
}

/// Packets in flight, by sequence number.
#[derive(Debug)]
pub struct InFlight {
    /// Sequence number of the front of `queue`.
    first: u64,
    queue: VecDeque<InFlightPacket>,
    unanswered_by_port: Vec<usize>,
    /// Packets per port in `queue`, including answered ones.
    queued_by_port: Vec<usize>,
    timeout: Timeout,
    spare: Vec<(Vec<u8>, Vec<Option<u32>>)>,
}

/// Retransmission timeout.
#[derive(Debug, Default)]
struct Timeout {
    /// Smoothed round-trip time and its variation.
    srtt: Option<(Duration, Duration)>,
}

impl Timeout {
    fn record(&mut self, round_trip: Duration) {
        self.srtt = Some(match self.srtt {
            None => (round_trip, round_trip / 2),
            Some((smooth, variation)) => {
                let deviation = smooth.abs_diff(round_trip);
                ((smooth * 7 + round_trip) / 8, (variation * 3 + deviation) / 4)
            }
        });
    }

    fn get(&self) -> Duration {
        self.srtt.map_or(INITIAL_TIMEOUT, |(smooth, variation)| {
            (smooth + 4 * variation).clamp(MIN_TIMEOUT, MAX_TIMEOUT)
        })
    }
}

impl InFlight {
    /// An empty queue for a number of ports; `first` is the next sequence number.
    pub fn new(ports: usize, first: u64) -> Self {
        InFlight {
            first,
            queue: VecDeque::new(),
            unanswered_by_port: vec![0; ports],
            queued_by_port: vec![0; ports],
            timeout: Timeout::default(),
            spare: Vec::new(),
        }
    }

    /// Unanswered packets of a port.
    pub fn unanswered(&self, port: usize) -> usize {
        self.unanswered_by_port[port]
    }

    /// Whether another packet may be sent to a port before its oldest unanswered one is answered.
    pub fn has_room(&self, port: usize) -> bool {
        self.queued_by_port[port] < MAX_REMEMBERED_PACKETS
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Empty buffers for a packet and its items, recycled.
    pub fn buffers(&mut self) -> (Vec<u8>, Vec<Option<u32>>) {
        self.spare.pop().unwrap_or_default()
    }

    /// Assigns the sequence number of a packet about to be sent, writes its header, and returns the
    /// number.
    pub fn push(
        &mut self,
        mut bytes: Vec<u8>,
        items: Vec<Option<u32>>,
        port: usize,
        mut header: Header,
        now: Instant,
    ) -> u64 {
        header.sequence = self.first + self.queue.len() as u64;
        header.oldest_offset = self.queue.len() as u32;
        header.write(&mut bytes);
        self.unanswered_by_port[port] += 1;
        self.queued_by_port[port] += 1;
        let (unanswered, timeout) = (items.len(), self.timeout.get());
        self.queue.push_back(InFlightPacket {
            bytes,
            port,
            items,
            unanswered,
            header,
            sent: now,
            timeout,
        });
        header.sequence
    }

    /// The packet with this number, if it is unanswered.
    pub fn get(&mut self, sequence: u64) -> Option<&mut InFlightPacket> {
        let at = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.queue.get_mut(at).filter(|packet| packet.unanswered > 0)
    }

    /// Records the response to one request of a packet. Returns the request's index, unless it was
    /// answered before.
    pub fn answer(&mut self, sequence: u64, opaque: u16) -> Option<u32> {
        let packet = self.get(sequence)?;
        let item = packet.items.get_mut(usize::from(opaque))?.take()?;
        packet.unanswered -= 1;
        if packet.unanswered == 0 {
            self.complete(sequence);
        }
        Some(item)
    }

    /// Completes a packet whose requests are all answered.
    fn complete(&mut self, sequence: u64) {
        let Some(packet) = self.queue.get((sequence - self.first) as usize) else { return };
        self.unanswered_by_port[packet.port] -= 1;
        if packet.header.attempt == 0 {
            // The response to a retransmitted packet is ambiguous (Karn's algorithm).
            self.timeout.record(packet.sent.elapsed());
        }
        while self.queue.front().is_some_and(|packet| packet.unanswered == 0) {
            let Some(mut packet) = self.queue.pop_front() else { break };
            self.first += 1;
            self.queued_by_port[packet.port] -= 1;
            packet.bytes.clear();
            packet.items.clear();
            self.spare.push((packet.bytes, packet.items));
        }
    }

    /// Prepares overdue packets, or all, for retransmission, and returns their numbers.
    pub fn overdue(&mut self, now: Instant, all: bool) -> Vec<u64> {
        let mut due = Vec::new();
        let unanswered =
            self.queue.iter_mut().enumerate().filter(|(_, packet)| packet.unanswered > 0);
        for (at, packet) in unanswered {
            if all || now.saturating_duration_since(packet.sent) >= packet.timeout {
                packet.header.attempt = packet.header.attempt.saturating_add(1);
                packet.header.write(&mut packet.bytes);
                packet.sent = now;
                packet.timeout = (packet.timeout * 2).min(MAX_TIMEOUT);
                due.push(self.first + at as u64);
            }
        }
        due
    }

    /// Whether a packet was retransmitted so often that its port may be gone.
    pub fn is_stalled(&self) -> bool {
        self.queue.iter().any(|packet| {
            packet.unanswered > 0 && packet.header.attempt >= MAX_RETRANSMITS_BEFORE_HANDSHAKE
        })
    }

    /// Sets the cookie of all packets.
    pub fn use_cookie(&mut self, cookie: u64) {
        for packet in &mut self.queue {
            packet.header.cookie = cookie;
        }
    }

    /// Drops all packets, and returns the indices of their unanswered requests. Their numbers are
    /// not reused.
    pub fn abandon(&mut self) -> Vec<u32> {
        self.first += self.queue.len() as u64;
        self.unanswered_by_port.fill(0);
        self.queued_by_port.fill(0);
        self.queue.drain(..).flat_map(|packet| packet.items.into_iter().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{HEADER_BYTES, Kind};

    fn push(in_flight: &mut InFlight, count: u32, now: Instant) -> u64 {
        let header = Header {
            kind: Kind::Requests,
            length: 0,
            count: count as u16,
            sequence: 0,
            cookie: 5,
            oldest_offset: 0,
            response_limit: 100,
            attempt: 0,
        };
        let items = (0..count).map(Some).collect();
        in_flight.push(vec![0; HEADER_BYTES], items, 0, header, now)
    }

    fn header(in_flight: &mut InFlight, sequence: u64) -> Header {
        Header::parse(&in_flight.get(sequence).unwrap().bytes).unwrap().0
    }

    #[test]
    fn packets_carry_the_offset_of_the_oldest_in_flight() {
        let (now, mut in_flight) = (Instant::now(), InFlight::new(1, 100));
        let numbers = [2, 1, 1].map(|count| push(&mut in_flight, count, now));
        assert_eq!(numbers, [100, 101, 102]);
        assert_eq!(header(&mut in_flight, 102).oldest_offset, 2);
        // Out of order, and twice.
        assert_eq!(in_flight.answer(101, 0), Some(0));
        assert_eq!(in_flight.answer(101, 0), None);
        assert_eq!(in_flight.answer(100, 1), Some(1));
        assert_eq!(
            (in_flight.answer(100, 9), in_flight.answer(99, 0), in_flight.answer(200, 0)),
            (None, None, None)
        );
        let offset =
            |number: u64, in_flight: &mut InFlight| header(in_flight, number).oldest_offset;
        let next = push(&mut in_flight, 1, now);
        assert_eq!((next, offset(next, &mut in_flight)), (103, 3));
        assert_eq!(in_flight.answer(100, 0), Some(0));
        let next = push(&mut in_flight, 1, now);
        // 102 is the oldest in flight.
        assert_eq!((next, offset(next, &mut in_flight)), (104, 2));
        assert_eq!(in_flight.unanswered(0), 3);
        assert_eq!(in_flight.abandon().len(), 3);
        assert_eq!(push(&mut in_flight, 1, now), 105);
    }

    #[test]
    fn packets_wait_for_an_unanswered_one_at_the_memory_limit_of_the_server() {
        let (now, mut in_flight) = (Instant::now(), InFlight::new(2, 100));
        let first = push(&mut in_flight, 1, now);
        for _ in 1..MAX_REMEMBERED_PACKETS {
            assert!(in_flight.has_room(0));
            let number = push(&mut in_flight, 1, now);
            assert_eq!(in_flight.answer(number, 0), Some(0));
        }
        assert_eq!(in_flight.unanswered(0), 1);
        assert!(!in_flight.has_room(0) && in_flight.has_room(1));
        assert_eq!(in_flight.answer(first, 0), Some(0));
        assert!(in_flight.has_room(0));
        for _ in 0..MAX_REMEMBERED_PACKETS {
            push(&mut in_flight, 1, now);
        }
        assert!(!in_flight.has_room(0));
        in_flight.abandon();
        assert!(in_flight.has_room(0));
    }

    #[test]
    fn retransmission_timeout_doubles() {
        let (now, mut in_flight) = (Instant::now(), InFlight::new(1, 0));
        push(&mut in_flight, 1, now);
        assert!(in_flight.overdue(now + INITIAL_TIMEOUT / 2, false).is_empty());
        assert_eq!(in_flight.get(0).unwrap().max_datagram_bytes(), MAX_PACKET_BYTES);
        assert_eq!(in_flight.overdue(now + INITIAL_TIMEOUT, false), [0]);
        assert_eq!(header(&mut in_flight, 0).attempt, 1);
        assert_eq!(
            in_flight.get(0).unwrap().max_datagram_bytes(),
            0,
            "a long datagram may have been the cause"
        );
        assert!(in_flight.overdue(now + INITIAL_TIMEOUT * 2, false).is_empty());
        assert_eq!(in_flight.overdue(now + INITIAL_TIMEOUT * 3, false), [0]);
        in_flight.use_cookie(9);
        assert_eq!(in_flight.overdue(now, true), [0]);
        assert_eq!((header(&mut in_flight, 0).attempt, header(&mut in_flight, 0).cookie), (3, 9));
        assert!(!in_flight.is_stalled());
        in_flight.overdue(now, true);
        assert!(in_flight.is_stalled());
    }
}
