//! Packets under way, and when to send them again.
//!
//! ```text
//! sequence   41      42     43      44       next: 45
//!            waits   done   waits   waits    behind, of 45: 4
//! ```
//!
//! Packets are numbered without gaps. What is older than the oldest that waits is done; each packet
//! tells the server how far back that is, so the server can forget its answers, and refuses a packet
//! that strayed in the network until it was done with. It remembers [`MAX_KEPT`] of them: no more go to a port while
//! an older one of its packets waits, or that one could not be answered any more.
//!
//! A packet is sent again when it has waited a timeout, which doubles each time. The timeout follows
//! the round trips as TCP's does.
//!
//! Invariant: a packet that is sent again has the same requests under the same number.
//!
//! Source: thesis, section 5.3.2; timeouts by RFC 6298 with shorter bounds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::wire::{Header, MAX_PACKET_BYTES};

/// Bounds of the timeout.
const SHORTEST: Duration = Duration::from_millis(4);
const LONGEST: Duration = Duration::from_millis(500);
/// The timeout before any round trip was seen.
const FIRST: Duration = Duration::from_millis(50);

/// Packets of a client that a server remembers at a port, so how far the others may be ahead of one that waits.
pub const MAX_KEPT: usize = 1024;

/// How often a packet is sent again before its client asks whether the ports are still the same.
const STUBBORN: u16 = 4;

/// A packet under way.
#[derive(Debug)]
pub struct Flight {
    /// Its bytes.
    pub packet: Vec<u8>,
    /// The number of the port that it goes to.
    pub port: usize,
    /// Which request of the caller each of the packet's is, until it is answered.
    pub items: Vec<Option<u32>>,
    open: usize,
    header: Header,
    sent: Instant,
    waits: Duration,
}

impl Flight {
    /// Bytes of a datagram that it may share with others: it goes alone once it seems to be lost, for the way
    /// may not take long ones.
    pub fn shares(&self) -> usize {
        if self.header.attempt == 0 { MAX_PACKET_BYTES } else { 0 }
    }

    /// Whether it is one request with all the room for its answer that there can be.
    pub fn is_alone(&self) -> bool {
        self.items.len() == 1 && usize::from(self.header.room) == MAX_PACKET_BYTES
    }
}

/// All packets under way, by number.
#[derive(Debug)]
pub struct Flights {
    /// The number of the first of `queue`.
    first: u64,
    queue: VecDeque<Flight>,
    by_port: Vec<usize>,
    /// Packets of each port in `queue`, those that are answered among them.
    queued: Vec<usize>,
    timeout: Timeout,
    spare: Vec<(Vec<u8>, Vec<Option<u32>>)>,
}

/// The time after which a packet is taken for lost.
#[derive(Debug, Default)]
struct Timeout {
    /// Smoothed round trip and its variation, once there is any.
    seen: Option<(Duration, Duration)>,
}

impl Timeout {
    fn note(&mut self, trip: Duration) {
        self.seen = Some(match self.seen {
            None => (trip, trip / 2),
            Some((smooth, variation)) => {
                let apart = smooth.abs_diff(trip);
                ((smooth * 7 + trip) / 8, (variation * 3 + apart) / 4)
            }
        });
    }

    fn get(&self) -> Duration {
        self.seen
            .map_or(FIRST, |(smooth, variation)| (smooth + 4 * variation).clamp(SHORTEST, LONGEST))
    }
}

impl Flights {
    /// None, to so many ports; the first packet will have this number.
    pub fn new(ports: usize, first: u64) -> Self {
        Flights {
            first,
            queue: VecDeque::new(),
            by_port: vec![0; ports],
            queued: vec![0; ports],
            timeout: Timeout::default(),
            spare: Vec::new(),
        }
    }

    /// Packets to a port that are not answered.
    pub fn waiting(&self, port: usize) -> usize {
        self.by_port[port]
    }

    /// Whether another packet to a port can be launched before an older one is answered.
    pub fn has_room(&self, port: usize) -> bool {
        self.queued[port] < MAX_KEPT
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Buffers for a packet and its items, empty.
    pub fn buffers(&mut self) -> (Vec<u8>, Vec<Option<u32>>) {
        self.spare.pop().unwrap_or_default()
    }

    /// Numbers a packet that is about to be sent, and writes its header; its number.
    pub fn launch(
        &mut self,
        mut packet: Vec<u8>,
        items: Vec<Option<u32>>,
        port: usize,
        mut header: Header,
        now: Instant,
    ) -> u64 {
        header.sequence = self.first + self.queue.len() as u64;
        header.behind = self.queue.len() as u32;
        header.write(&mut packet);
        self.by_port[port] += 1;
        self.queued[port] += 1;
        let (open, waits) = (items.len(), self.timeout.get());
        self.queue.push_back(Flight { packet, port, items, open, header, sent: now, waits });
        header.sequence
    }

    /// The packet with this number, if it waits.
    pub fn get(&mut self, sequence: u64) -> Option<&mut Flight> {
        let at = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.queue.get_mut(at).filter(|flight| flight.open > 0)
    }

    /// Notes that some of a packet's requests were answered: which those are, one after the other, by
    /// what `items` has at `opaque`. The request of the caller, unless it had its answer before.
    pub fn answer(&mut self, sequence: u64, opaque: u16) -> Option<u32> {
        let flight = self.get(sequence)?;
        let item = flight.items.get_mut(usize::from(opaque))?.take()?;
        flight.open -= 1;
        if flight.open == 0 {
            self.land(sequence);
        }
        Some(item)
    }

    /// Ends a packet whose requests are all answered.
    fn land(&mut self, sequence: u64) {
        let Some(flight) = self.queue.get((sequence - self.first) as usize) else { return };
        self.by_port[flight.port] -= 1;
        if flight.header.attempt == 0 {
            // Of a packet that went twice nobody knows which one was answered.
            self.timeout.note(flight.sent.elapsed());
        }
        while self.queue.front().is_some_and(|flight| flight.open == 0) {
            let Some(mut flight) = self.queue.pop_front() else { break };
            self.first += 1;
            self.queued[flight.port] -= 1;
            flight.packet.clear();
            flight.items.clear();
            self.spare.push((flight.packet, flight.items));
        }
    }

    /// Makes packets ready to be sent again that have waited too long, or all of them: their numbers.
    pub fn overdue(&mut self, now: Instant, all: bool) -> Vec<u64> {
        let mut due = Vec::new();
        let waiting = self.queue.iter_mut().enumerate().filter(|(_, flight)| flight.open > 0);
        for (at, flight) in waiting {
            if all || now.saturating_duration_since(flight.sent) >= flight.waits {
                flight.header.attempt = flight.header.attempt.saturating_add(1);
                flight.header.write(&mut flight.packet);
                flight.sent = now;
                flight.waits = (flight.waits * 2).min(LONGEST);
                due.push(self.first + at as u64);
            }
        }
        due
    }

    /// Whether a packet was sent so often that its port may not be there any more.
    pub fn is_stuck(&self) -> bool {
        self.queue.iter().any(|flight| flight.open > 0 && flight.header.attempt >= STUBBORN)
    }

    /// Gives all packets another cookie.
    pub fn use_cookie(&mut self, cookie: u64) {
        for flight in &mut self.queue {
            flight.header.cookie = cookie;
        }
    }

    /// Forgets all packets: what was in them and has no answer. Their numbers are not used again.
    pub fn abandon(&mut self) -> Vec<u32> {
        self.first += self.queue.len() as u64;
        self.by_port.fill(0);
        self.queued.fill(0);
        self.queue.drain(..).flat_map(|flight| flight.items.into_iter().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{HEADER_BYTES, Kind};

    fn launch(flights: &mut Flights, count: u32, now: Instant) -> u64 {
        let header = Header {
            kind: Kind::Requests,
            length: 0,
            count: count as u16,
            sequence: 0,
            cookie: 5,
            behind: 0,
            room: 100,
            attempt: 0,
        };
        let items = (0..count).map(Some).collect();
        flights.launch(vec![0; HEADER_BYTES], items, 0, header, now)
    }

    fn header(flights: &mut Flights, sequence: u64) -> Header {
        Header::parse(&flights.get(sequence).unwrap().packet).unwrap().0
    }

    #[test]
    fn does_each_packet_say_how_far_back_others_wait() {
        let (now, mut flights) = (Instant::now(), Flights::new(1, 100));
        let numbers = [2, 1, 1].map(|count| launch(&mut flights, count, now));
        assert_eq!(numbers, [100, 101, 102]);
        assert_eq!(header(&mut flights, 102).behind, 2);
        // Answered out of order, and twice.
        assert_eq!(flights.answer(101, 0), Some(0));
        assert_eq!(flights.answer(101, 0), None);
        assert_eq!(flights.answer(100, 1), Some(1));
        assert_eq!(
            (flights.answer(100, 9), flights.answer(99, 0), flights.answer(200, 0)),
            (None, None, None)
        );
        let behind = |number: u64, flights: &mut Flights| header(flights, number).behind;
        let next = launch(&mut flights, 1, now);
        assert_eq!((next, behind(next, &mut flights)), (103, 3));
        assert_eq!(flights.answer(100, 0), Some(0));
        let next = launch(&mut flights, 1, now);
        // 102 is the oldest that waits.
        assert_eq!((next, behind(next, &mut flights)), (104, 2));
        assert_eq!(flights.waiting(0), 3);
        assert_eq!(flights.abandon().len(), 3);
        assert_eq!(launch(&mut flights, 1, now), 105);
    }

    #[test]
    fn do_packets_wait_for_one_that_the_server_would_forget() {
        let (now, mut flights) = (Instant::now(), Flights::new(2, 100));
        let first = launch(&mut flights, 1, now);
        for _ in 1..MAX_KEPT {
            assert!(flights.has_room(0));
            let number = launch(&mut flights, 1, now);
            assert_eq!(flights.answer(number, 0), Some(0));
        }
        assert_eq!(flights.waiting(0), 1);
        assert!(!flights.has_room(0) && flights.has_room(1));
        assert_eq!(flights.answer(first, 0), Some(0));
        assert!(flights.has_room(0));
        for _ in 0..MAX_KEPT {
            launch(&mut flights, 1, now);
        }
        assert!(!flights.has_room(0));
        flights.abandon();
        assert!(flights.has_room(0));
    }

    #[test]
    fn is_a_packet_sent_again_later_and_later() {
        let (now, mut flights) = (Instant::now(), Flights::new(1, 0));
        launch(&mut flights, 1, now);
        assert!(flights.overdue(now + FIRST / 2, false).is_empty());
        assert_eq!(flights.get(0).unwrap().shares(), MAX_PACKET_BYTES);
        assert_eq!(flights.overdue(now + FIRST, false), [0]);
        assert_eq!(header(&mut flights, 0).attempt, 1);
        assert_eq!(flights.get(0).unwrap().shares(), 0, "it may be the others that were too much");
        assert!(flights.overdue(now + FIRST * 2, false).is_empty());
        assert_eq!(flights.overdue(now + FIRST * 3, false), [0]);
        flights.use_cookie(9);
        assert_eq!(flights.overdue(now, true), [0]);
        assert_eq!((header(&mut flights, 0).attempt, header(&mut flights, 0).cookie), (3, 9));
        assert!(!flights.is_stuck());
        flights.overdue(now, true);
        assert!(flights.is_stuck());
    }
}
