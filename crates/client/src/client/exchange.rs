//! The exchange of packets for one call: packing, windows, retransmission and responses.
//!
//! ```text
//! queue per port ─ pack ─▶ packets, up to `window` in flight per port ──▶ server
//!       ▲                        │ retransmitted after a timeout            │
//!       └─ alone, if the value   └─ new cookie, ports: handshake            │
//!          did not fit   ◀───────── responses, by position in the packet ◀──┘
//! ```
//!
//! Invariant: the caller gets one reply per request, whichever packets arrive and how often.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use siltstone_mica::{Access, Action, Outcome, Request};
use siltstone_structures::hash::hash64_seeded;

use super::{Client, POLL_TIMEOUT, Reply};
use crate::error::{ClientError, Result};
use crate::gso::OutPacket;
use crate::handshake::handshake;
use crate::in_flight::InFlight;
use crate::wire::request::{self, RequestRef};
use crate::wire::response::{self, ResponseRef, Status};
use crate::wire::{HEADER_BYTES, Header, Kind, MAX_PACKET_BYTES};

/// Received packets after which the client sends more, so that the server is not idle meanwhile.
const PACKETS_BEFORE_REFILL: usize = 8;

/// Minimum time between two handshakes while packets stay unanswered.
const HANDSHAKE_RETRY: Duration = Duration::from_millis(500);

/// State of one call.
pub(super) struct Call<'c, 'a> {
    pub(super) requests: &'c [(&'a [u8], Action<'a>)],
    pub(super) wants_meta: bool,
    /// Indices of requests per port, and how many of each queue were sent.
    pub(super) queues: Vec<Vec<u32>>,
    pub(super) next_request: Vec<usize>,
    /// Requests to send alone, with the maximum response size.
    pub(super) single: Vec<u32>,
    pub(super) unanswered: usize,
}

impl Call<'_, '_> {
    fn write(&self, index: u32, opaque: u16, seed: u64, packet: &mut Vec<u8>) {
        let (key, action) = self.requests[index as usize];
        let request = Request { hash: hash64_seeded(key, seed), key, action };
        RequestRef { request, opaque, wants_meta: self.wants_meta }.write(packet);
    }

    fn retry_single(&mut self, index: u32) {
        self.single.push(index);
    }
}

impl Client {
    /// Index of the port that serves a request.
    pub(super) fn port_of(&mut self, (key, action): &(&[u8], Action<'_>)) -> usize {
        let ports = self.welcome.ports.len();
        let is_shared = match self.welcome.access {
            Access::Erew => false,
            Access::Crew => !action.is_write(),
            Access::Crcw => true,
        };
        if ports == 1 {
            return 0;
        }
        if self.welcome.any_port || is_shared {
            // Round robin, one packet's worth at a time.
            self.round_robin = self.round_robin.wrapping_add(1);
            return self.round_robin / self.options.batch % ports;
        }
        let hash = hash64_seeded(key, self.welcome.seed);
        // Two shifts, because a shift by 64 overflows.
        (hash >> 1 >> (63 - u32::from(self.welcome.partition_bits))) as usize % ports
    }

    /// Sends and receives until every request has a response.
    pub(super) fn exchange(
        &mut self,
        call: &mut Call<'_, '_>,
        on_reply: &mut impl FnMut(usize, Reply<'_>),
    ) -> Result<()> {
        let deadline = Instant::now() + self.options.deadline;
        let mut next_check = Instant::now() + POLL_TIMEOUT;
        while call.unanswered > 0 {
            self.send_ready(call)?;
            let count = self.link.receive(&mut self.buffers, true)?;
            // Moves the buffers out, so that values can be passed to the caller without a copy.
            let buffers = std::mem::take(&mut self.buffers);
            let mut received = Ok(Followup::None);
            let mut since_refill = 0;
            for buffer in &buffers[..count] {
                for packet in buffer.packets() {
                    since_refill += 1;
                    received = combine(
                        received,
                        self.handle_packet(buffer.sender(), packet, call, on_reply),
                    );
                }
                // Keeps the server busy while the remaining responses are processed.
                if since_refill >= PACKETS_BEFORE_REFILL {
                    since_refill = 0;
                    received = combine(received, self.send_ready(call).map(|()| Followup::None));
                }
            }
            self.buffers = buffers;
            if received? == Followup::Handshake {
                self.redo_handshake(deadline)?;
            }
            let now = Instant::now();
            if count == 0 || now >= next_check {
                next_check = now + POLL_TIMEOUT;
                if now >= deadline {
                    return Err(ClientError::Deadline { unanswered: call.unanswered });
                }
                let overdue = self.in_flight.overdue(now, false);
                self.counters.retransmitted += overdue.len() as u64;
                self.send(&overdue)?;
                if self.in_flight.is_stalled() && now >= self.last_handshake + HANDSHAKE_RETRY {
                    // A restarted server may have other ports.
                    self.redo_handshake(deadline)?;
                }
            }
        }
        Ok(())
    }

    /// Sends as many packets as the windows allow.
    fn send_ready(&mut self, call: &mut Call<'_, '_>) -> Result<()> {
        let (mut sequences, now) = (Vec::new(), Instant::now());
        for port in 0..self.welcome.ports.len() {
            while self.may_send(port)
                && let Some(sequence) = self.pack(call, port, now)
            {
                sequences.push(sequence);
            }
        }
        while let Some(&index) = call.single.last() {
            let port = self.port_of(&call.requests[index as usize]);
            if !self.may_send(port) {
                break;
            }
            call.single.pop();
            let (mut packet, mut items) = self.in_flight.buffers();
            packet.resize(HEADER_BYTES, 0);
            call.write(index, 0, self.welcome.seed, &mut packet);
            items.push(Some(index));
            let header = self.header(1, MAX_PACKET_BYTES);
            sequences.push(self.in_flight.push(packet, items, port, header, now));
        }
        self.counters.packets += sequences.len() as u64;
        self.send(&sequences)
    }

    /// Whether the window of a port allows another packet.
    fn may_send(&self, port: usize) -> bool {
        self.in_flight.unanswered(port) < self.options.window && self.in_flight.has_room(port)
    }

    fn header(&self, count: usize, response_limit: usize) -> Header {
        Header {
            kind: Kind::Requests,
            length: 0,
            count: count as u16,
            sequence: 0,
            cookie: self.cookie,
            oldest_offset: 0,
            response_limit: response_limit as u16,
            attempt: 0,
        }
    }

    /// Packs requests waiting for a port into a packet, and returns its sequence number.
    fn pack(&mut self, call: &mut Call<'_, '_>, port: usize, now: Instant) -> Option<u64> {
        call.queues[port].get(call.next_request[port])?;
        let (mut packet, mut items) = self.in_flight.buffers();
        packet.resize(HEADER_BYTES, 0);
        let mut answers = HEADER_BYTES as f64;
        while let Some(&index) = call.queues[port].get(call.next_request[port]) {
            let (key, action) = &call.requests[index as usize];
            let value = if action.is_write() { 0.0 } else { self.expected_value };
            answers += response::bytes_of(true, call.wants_meta) as f64 + value;
            let bytes = packet.len() + request::bytes_of(key, action);
            let is_full = bytes > self.options.packet_bytes
                || answers > self.options.answer_bytes as f64
                || items.len() >= self.options.batch;
            if is_full && !items.is_empty() {
                break;
            }
            call.write(index, items.len() as u16, self.welcome.seed, &mut packet);
            items.push(Some(index));
            call.next_request[port] += 1;
        }
        let header = self.header(items.len(), self.options.answer_bytes);
        Some(self.in_flight.push(packet, items, port, header, now))
    }

    fn send(&mut self, sequences: &[u64]) -> Result<()> {
        let mut packets = Vec::with_capacity(sequences.len());
        for sequence in sequences {
            if let Some(packet) = self.in_flight.get(*sequence) {
                packets.push((*sequence, self.welcome.ports[packet.port]));
            }
        }
        let (in_flight, server) = (&mut self.in_flight, self.server);
        // All packets lie in one queue, so their buffers are moved out while they are sent.
        let in_use: Vec<(Vec<u8>, SocketAddr, usize)> = packets
            .iter()
            .filter_map(|(sequence, port)| {
                let packet = in_flight.get(*sequence)?;
                let mut address = server;
                address.set_port(*port);
                Some((std::mem::take(&mut packet.bytes), address, packet.max_datagram_bytes()))
            })
            .collect();
        let max_bytes = self.options.packet_bytes;
        let mut outgoing: Vec<_> = in_use
            .iter()
            .map(|(bytes, to, max_datagram_bytes)| OutPacket {
                bytes,
                to: *to,
                max_bytes: bytes.len().max(max_bytes),
                max_datagram_bytes: *max_datagram_bytes,
            })
            .collect();
        let sent = self.link.send(&mut outgoing);
        for ((sequence, _), (bytes, ..)) in packets.iter().zip(in_use) {
            if let Some(packet) = in_flight.get(*sequence) {
                packet.bytes = bytes;
            }
        }
        sent?;
        Ok(())
    }

    /// Processes one packet.
    fn handle_packet(
        &mut self,
        sender: Option<SocketAddr>,
        packet: &[u8],
        call: &mut Call<'_, '_>,
        on_reply: &mut impl FnMut(usize, Reply<'_>),
    ) -> Result<Followup> {
        let is_from_server = sender.is_some_and(|sender| {
            sender.ip() == self.server.ip() && self.welcome.ports.contains(&sender.port())
        });
        let parsed = Header::parse(packet).ok().filter(|_| is_from_server);
        let Some((header, mut body)) = parsed else {
            self.counters.ignored += 1;
            return Ok(Followup::None);
        };
        match header.kind {
            Kind::Responses if header.cookie == self.cookie => {}
            // A response to a hello, or to a packet in flight.
            Kind::Unverified if self.in_flight.get(header.sequence).is_some() => {
                return Ok(Followup::Handshake);
            }
            _ => {
                self.counters.ignored += 1;
                return Ok(Followup::None);
            }
        }
        let mut followup = Followup::None;
        for _ in 0..header.count {
            let Ok(received) = ResponseRef::take(&mut body) else {
                self.counters.ignored += 1;
                break;
            };
            let was_single =
                self.in_flight.get(header.sequence).is_some_and(|f| f.is_single_request());
            let Some(index) = self.in_flight.answer(header.sequence, received.opaque) else {
                continue;
            };
            match received.status {
                Status::Forgotten => return Err(ClientError::Forgotten),
                Status::Outcome(Outcome::NoRoom) if !was_single => {
                    call.retry_single(index);
                    continue;
                }
                Status::Outcome(Outcome::WrongPartition) => {
                    // Nothing has changed; the request is sent again after the handshake.
                    call.retry_single(index);
                    followup = Followup::Handshake;
                    continue;
                }
                Status::Outcome(_) => {}
            }
            let Some(answer) = received.answer() else { continue };
            if answer.outcome == Outcome::Found {
                self.expected_value += (received.value.len() as f64 - self.expected_value) / 16.0;
            }
            call.unanswered -= 1;
            on_reply(index as usize, Reply { answer, value: received.value });
        }
        Ok(followup)
    }

    /// Repeats the handshake, and retransmits everything in flight.
    fn redo_handshake(&mut self, deadline: Instant) -> Result<()> {
        let (welcome, cookie) =
            handshake(&mut self.link, self.server, &self.options, deadline, &mut self.buffers)?;
        self.counters.handshakes += 1;
        let is_restarted = welcome.instance != self.welcome.instance;
        if is_restarted {
            let first = RandomState::new().hash_one(2) >> 1;
            self.in_flight = InFlight::new(welcome.ports.len(), first);
        }
        (self.welcome, self.cookie, self.last_handshake) = (welcome, cookie, Instant::now());
        if is_restarted {
            return Err(ClientError::Restarted);
        }
        self.in_flight.use_cookie(cookie);
        let all = self.in_flight.overdue(Instant::now(), true);
        self.counters.retransmitted += all.len() as u64;
        self.send(&all)
    }
}

/// Action after a received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Followup {
    None,
    Handshake,
}

/// Combines the results of two packets: the first error, else whether a handshake is needed.
fn combine(first: Result<Followup>, then: Result<Followup>) -> Result<Followup> {
    match first? {
        Followup::None => then,
        Followup::Handshake => then.map(|_| Followup::Handshake),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::UdpSocket;

    use super::*;
    use crate::options::ClientOptions;
    use crate::wire::hello::Welcome;

    /// Answers each request of a packet that no response has room for its value, and leaves those
    /// that come alone unanswered. Returns the number of these, at the end.
    fn serve_without_room(socket: &UdpSocket) -> usize {
        let (mut alone, mut buffer) = (BTreeSet::new(), vec![0; MAX_PACKET_BYTES]);
        let welcome = Welcome {
            seed: 1,
            instance: 2,
            access: Access::Erew,
            any_port: false,
            partition_bits: 0,
            has_cas: false,
            max_value_bytes: 1 << 20,
            ports: vec![socket.local_addr().unwrap().port()],
        };
        loop {
            let (count, sender) = socket.recv_from(&mut buffer).unwrap();
            let Ok((header, mut body)) = Header::parse(&buffer[..count]) else {
                return alone.len();
            };
            let answer = match header.kind {
                Kind::Hello => welcome.packet(header.sequence, 7),
                _ if usize::from(header.response_limit) == MAX_PACKET_BYTES => {
                    alone.insert(header.sequence);
                    continue;
                }
                _ => {
                    let mut answer = vec![0; HEADER_BYTES];
                    for _ in 0..header.count {
                        let opaque = RequestRef::take(&mut body).unwrap().opaque;
                        let (at, status) = (answer.len(), Status::Outcome(Outcome::NoRoom));
                        answer.resize(at + response::bytes_of(false, false), 0);
                        response::write(&mut answer[at..], status, opaque, 0, None, None);
                    }
                    Header { kind: Kind::Responses, oldest_offset: 0, ..header }.write(&mut answer);
                    answer
                }
            };
            socket.send_to(&answer, sender).unwrap();
        }
    }

    /// Their responses are the largest. All at the same time would overflow the socket's buffer.
    #[test]
    fn requests_that_are_sent_alone_keep_to_the_window() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = socket.local_addr().unwrap();
        let serving = std::thread::spawn(move || serve_without_room(&socket));
        let deadline = Duration::from_secs(1);
        let options = ClientOptions { window: 2, batch: 8, deadline, ..ClientOptions::default() };
        let mut client = Client::connect(server, options).unwrap();
        let requests = [(&b"key"[..], Action::Get); 64];
        let outcome = client.execute(&requests, |_, _| panic!("no value has room"));
        assert!(matches!(outcome, Err(ClientError::Deadline { .. })), "{outcome:?}");
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"end", server).unwrap();
        let alone = serving.join().unwrap();
        assert!((1..=2).contains(&alone), "{alone} at the same time");
    }

    /// A forgotten response is lost for good, whatever the next packet holds.
    #[test]
    fn first_error_is_reported_whatever_follows() {
        let forgotten = || Err(ClientError::Forgotten);
        for other in [Ok(Followup::None), Ok(Followup::Handshake), Err(ClientError::NoAddress)] {
            assert!(matches!(combine(forgotten(), other), Err(ClientError::Forgotten)));
        }
        for other in [Followup::None, Followup::Handshake] {
            assert!(matches!(combine(Ok(other), forgotten()), Err(ClientError::Forgotten)));
            assert_eq!(combine(Ok(other), Ok(Followup::None)).unwrap(), other);
            assert_eq!(combine(Ok(Followup::Handshake), Ok(other)).unwrap(), Followup::Handshake);
        }
    }
}
