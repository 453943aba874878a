//! The client: request routing, packing, retransmission and response handling.
//!
//! ```text
//! requests ─ hash ─ port of the partition ─ packets, up to `window` per port ──▶ server
//!                                                │ retransmitted after a timeout    │
//! replies to the caller ◀─ by sequence number and position in the packet ◀──────────┘
//! ```
//!
//! A packet takes as many requests as fit, including the expected size of their responses. A value
//! that did not fit in its response is requested again, alone and with the maximum response size.
//!
//! Source: Lim, thesis, section 5.3.2, "Client-Assisted Hardware Request Direction".

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use siltstone_engine::{MAX_KEY_BYTES, Timestamp};
use siltstone_mica::{Access, Action, Answer, Outcome, Request, Value};
use siltstone_structures::hash::hash64_seeded;

use crate::error::{ClientError, Result};
use crate::gso::OutPacket;
use crate::handshake::handshake;
use crate::in_flight::InFlight;
use crate::link::Link;
use crate::mmsg::MAX_MESSAGES;
use crate::options::ClientOptions;
use crate::recv_buffer::{RECV_BUFFER_BYTES, RecvBuffer};
use crate::wire::hello::{self, Welcome};
use crate::wire::request::{self, RequestRef};
use crate::wire::response::{self, ResponseRef, Status};
use crate::wire::{HEADER_BYTES, Header, Kind, MAX_PACKET_BYTES};
use crate::xdp::{Interface, Queue};

/// Blocking time of a receive, hence the precision of retransmission timeouts.
const POLL_TIMEOUT: Duration = Duration::from_millis(2);

/// Received packets after which the client sends more, so that the server is not idle meanwhile.
const PACKETS_BEFORE_REFILL: usize = 8;

/// Minimum time between two handshakes while packets stay unanswered.
const HANDSHAKE_RETRY: Duration = Duration::from_millis(500);

/// Response to one request.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// Outcome and metadata.
    pub answer: Answer,
    /// The value, if one was found.
    pub value: &'a [u8],
}

/// Counters of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Malformed packets, and packets of other senders.
    pub ignored: u64,
    /// Completed handshakes.
    pub handshakes: u64,
}

/// Client of one server, with its own socket. Use one client per thread.
pub struct Client {
    link: Link,
    server: SocketAddr,
    options: ClientOptions,
    welcome: Welcome,
    cookie: u64,
    in_flight: InFlight,
    /// Moving average of the value size, in bytes.
    expected_value: f64,
    round_robin: usize,
    /// Time of the last handshake.
    last_handshake: Instant,
    buffers: Vec<RecvBuffer>,
    counters: ClientCounters,
}

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the server refuses, [`ClientError::Deadline`] if it does not
    /// respond.
    pub fn connect(server: impl ToSocketAddrs, options: ClientOptions) -> Result<Self> {
        let server = server.to_socket_addrs()?.next().ok_or(ClientError::NoAddress)?;
        let mut options = ClientOptions {
            packet_bytes: options.packet_bytes.clamp(hello::BYTES, MAX_PACKET_BYTES),
            answer_bytes: options.answer_bytes.clamp(hello::BYTES, MAX_PACKET_BYTES),
            batch: options.batch.clamp(1, 2048),
            window: options.window.clamp(1, 1024),
            ..options
        };
        let mut link = open(server, &options)?;
        if let Some(bytes) = link.payload_bytes() {
            options.packet_bytes = options.packet_bytes.min(bytes);
            options.answer_bytes = options.answer_bytes.min(bytes);
        }
        let mut buffers: Vec<_> =
            (0..MAX_MESSAGES).map(|_| RecvBuffer::new(RECV_BUFFER_BYTES)).collect();
        let deadline = Instant::now() + options.deadline;
        let (welcome, cookie) = handshake(&mut link, server, &options, deadline, &mut buffers)?;
        // A random start makes sequence numbers unpredictable.
        let first = RandomState::new().hash_one(1) >> 1;
        Ok(Client {
            in_flight: InFlight::new(welcome.ports.len(), first),
            link,
            server,
            options,
            welcome,
            cookie,
            expected_value: 0.0,
            round_robin: 0,
            last_handshake: Instant::now(),
            buffers,
            counters: ClientCounters { handshakes: 1, ..ClientCounters::default() },
        })
    }

    /// The server's parameters, from the last handshake.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Counters since the client was created.
    pub fn counters(&self) -> ClientCounters {
        self.counters
    }

    /// Returns the value of a key, if there is one.
    ///
    /// # Errors
    /// [`ClientError::ValueTooLarge`] if no packet is large enough for the value; as
    /// [`execute`](Self::execute).
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Ok(None);
        self.execute(&[(key, Action::Get)], |_, reply| {
            value = match reply.answer.outcome {
                Outcome::Found => Ok(Some(reply.value.to_vec())),
                Outcome::NoRoom => Err(ClientError::ValueTooLarge),
                _ => Ok(None),
            };
        })?;
        value
    }

    /// Stores a value. Returns [`Outcome::Stored`], or why it was not stored.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Outcome> {
        let value = Value { bytes: value, ..Value::default() };
        Ok(self.execute_one(key, Action::Put(value))?.outcome)
    }

    /// Stores a value that expires at `at`, in milliseconds since 1970 by the server's clock.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn put_until(&mut self, key: &[u8], value: &[u8], at: Timestamp) -> Result<Outcome> {
        let value = Value { bytes: value, expires_at: Some(at), ..Value::default() };
        Ok(self.execute_one(key, Action::Put(value))?.outcome)
    }

    /// Removes a key. Returns [`Outcome::Deleted`] or [`Outcome::Missing`].
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn delete(&mut self, key: &[u8]) -> Result<Outcome> {
        Ok(self.execute_one(key, Action::Delete(None))?.outcome)
    }

    /// Executes one operation; the value of a lookup is dropped.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn execute_one(&mut self, key: &[u8], action: Action<'_>) -> Result<Answer> {
        let mut answer = Answer::default();
        self.execute(&[(key, action)], |_, reply| answer = reply.answer)?;
        Ok(answer)
    }

    /// Executes operations in any order, and calls `on_reply` once per operation, in any order,
    /// with its index. Operations that depend on each other need separate calls. Lookups return the
    /// flags, expiry and CAS version of an item only with
    /// [`execute_with_meta`](Self::execute_with_meta).
    ///
    /// # Errors
    /// [`ClientError::TooLarge`] before anything is sent; otherwise why responses are missing.
    pub fn execute(
        &mut self,
        requests: &[(&[u8], Action<'_>)],
        on_reply: impl FnMut(usize, Reply<'_>),
    ) -> Result<()> {
        self.execute_requests(requests, false, on_reply)
    }

    /// As [`execute`](Self::execute), and lookups return the item's metadata.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn execute_with_meta(
        &mut self,
        requests: &[(&[u8], Action<'_>)],
        on_reply: impl FnMut(usize, Reply<'_>),
    ) -> Result<()> {
        self.execute_requests(requests, true, on_reply)
    }

    fn execute_requests(
        &mut self,
        requests: &[(&[u8], Action<'_>)],
        wants_meta: bool,
        mut on_reply: impl FnMut(usize, Reply<'_>),
    ) -> Result<()> {
        for (key, action) in requests {
            let bytes = HEADER_BYTES + request::bytes_of(key, action);
            if key.len() >= MAX_KEY_BYTES || bytes > MAX_PACKET_BYTES {
                return Err(ClientError::TooLarge { bytes });
            }
        }
        let mut call = Call {
            requests,
            wants_meta,
            queues: vec![Vec::new(); self.welcome.ports.len()],
            next_request: vec![0; self.welcome.ports.len()],
            single: Vec::new(),
            unanswered: requests.len(),
        };
        for (index, request) in requests.iter().enumerate() {
            call.queues[self.port_of(request)].push(index as u32);
        }
        let outcome = self.exchange(&mut call, &mut on_reply);
        if outcome.is_err() {
            self.in_flight.abandon();
        }
        match outcome {
            // A failed handshake does not know the number of requests.
            Err(ClientError::Deadline { .. }) => {
                Err(ClientError::Deadline { unanswered: call.unanswered })
            }
            outcome => outcome,
        }
    }

    /// Index of the port that serves a request.
    fn port_of(&mut self, (key, action): &(&[u8], Action<'_>)) -> usize {
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
    fn exchange(
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
            while self.in_flight.unanswered(port) < self.options.window
                && self.in_flight.has_room(port)
                && let Some(sequence) = self.pack(call, port, now)
            {
                sequences.push(sequence);
            }
        }
        while let Some(index) = call.single.pop() {
            let port = self.port_of(&call.requests[index as usize]);
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

/// Opens a local port from which the server can be reached.
fn open(server: SocketAddr, options: &ClientOptions) -> Result<Link> {
    let local: SocketAddr = match (server.is_ipv4(), server.ip().is_loopback()) {
        // Only local processes can send to it.
        (true, true) => ([127, 0, 0, 1], 0).into(),
        (true, false) => ([0, 0, 0, 0], 0).into(),
        (false, true) => (std::net::Ipv6Addr::LOCALHOST, 0).into(),
        (false, false) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // So that client and server work at the same time.
    let max_batch = options.gso_segments.min(options.window.div_ceil(2));
    let Some((interface, number)) = &options.xdp else {
        return Ok(Link::new(UdpSocket::bind(local)?, None, POLL_TIMEOUT, max_batch)?);
    };
    // The local address from which the server is reached.
    let probe = UdpSocket::bind(local)?;
    probe.connect(server)?;
    let socket = UdpSocket::bind((probe.local_addr()?.ip(), 0))?;
    let SocketAddr::V4(here) = socket.local_addr()? else { return Err(ClientError::NoAddress) };
    let interface = Interface::take(interface, *here.ip(), &[here.port()])?;
    let queue = Queue::open(&interface, *number, here)?;
    Ok(Link::new(socket, Some(queue), POLL_TIMEOUT, max_batch)?)
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

/// State of one call.
struct Call<'c, 'a> {
    requests: &'c [(&'a [u8], Action<'a>)],
    wants_meta: bool,
    /// Indices of requests per port, and how many of each queue were sent.
    queues: Vec<Vec<u32>>,
    next_request: Vec<usize>,
    /// Requests to send alone, with the maximum response size.
    single: Vec<u32>,
    unanswered: usize,
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

#[cfg(test)]
mod tests {
    use super::*;

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
