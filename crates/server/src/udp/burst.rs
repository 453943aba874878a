//! From packets to requests to responses, without sockets.
//!
//! All requests of all packets of a burst go to the store as one burst, so that memory for later
//! ones is prefetched while the first are executed. The store copies each value directly into its
//! response packet: the rest of a response has a known size, so each position follows from the
//! previous responses.
//!
//! ```text
//! response packet   header │ response │ value │ response │ response │ value …
//!                            position of the first request; the next follows its value
//! ```
//!
//! Invariant: a packet is executed completely or dropped completely, without effect. The responses
//! to a packet fit in the size that its client has stated.
//!
//! Source: Lim, thesis, section 5.3.2, "Zero-copy processing": there the request's packet buffer
//! becomes the response's; here both are in user space and the system copies.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_client::coalesce;
use siltstone_client::gso::OutPacket;
use siltstone_client::wire::hello::{self, Welcome};
use siltstone_client::wire::request::{FIXED_BYTES, RequestRef};
use siltstone_client::wire::response::{self, Status};
use siltstone_client::wire::{HEADER_BYTES, Header, Kind, MAX_PACKET_BYTES, WireError, unverified};
use siltstone_mica::{Access, Answer, Outcome, Output, Request, Store};

use super::cookie::Cookies;
use super::forwarding::{ForwardQueue, ForwardedPacket};
use super::sessions::{PacketStatus, Sessions};
use crate::shared::Shared;

/// Size of a request with a key of eight bytes and no value, to size buffers.
const SMALL_REQUEST_BYTES: usize = FIXED_BYTES + 8;

/// A received packet, or the part of one forwarded by another port's thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingPacket<'a> {
    pub(crate) bytes: &'a [u8],
    /// Size of the datagram that it arrived in.
    pub(crate) shared: usize,
    pub(crate) sender: SocketAddr,
    /// Whether it was forwarded by another thread.
    pub(crate) is_forwarded: bool,
}

impl<'a> IncomingPacket<'a> {
    /// The packets of a datagram.
    pub(crate) fn of(datagram: &'a [u8], sender: SocketAddr) -> impl Iterator<Item = Self> {
        let shared = datagram.len();
        let packets = coalesce::packets(datagram);
        packets.map(move |bytes| IncomingPacket { bytes, shared, sender, is_forwarded: false })
    }
}

/// Response packets.
#[derive(Default)]
pub(crate) struct Responses {
    packets: Vec<Packet>,
    used: usize,
}

#[derive(Default)]
struct Packet {
    /// Buffer; longer than the packet, never shrinks.
    bytes: Vec<u8>,
    len: usize,
    /// Maximum length.
    max_bytes: usize,
    /// Maximum size of a datagram shared with other packets.
    max_datagram_bytes: usize,
    to: Option<SocketAddr>,
}

impl Responses {
    /// The packets with destination and padding limit: up to the size that a validated client has
    /// stated. A shared datagram is no longer than the received one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = OutPacket<'_>> {
        let all = self.packets[..self.used].iter();
        all.filter_map(|packet| {
            let bytes = &packet.bytes[..packet.len];
            Some(OutPacket {
                bytes,
                to: packet.to?,
                max_bytes: packet.max_bytes,
                max_datagram_bytes: packet.max_datagram_bytes,
            })
        })
    }

    fn clear(&mut self) {
        self.used = 0;
    }

    /// Begins a packet of up to `max_bytes` in response to `to`, and returns its index.
    fn begin(&mut self, to: &IncomingPacket<'_>, max_bytes: usize) -> usize {
        if self.used == self.packets.len() {
            self.packets.push(Packet::default());
        }
        let packet = &mut self.packets[self.used];
        if packet.bytes.len() < max_bytes {
            packet.bytes.resize(max_bytes, 0);
        }
        (packet.len, packet.max_bytes) = (HEADER_BYTES, max_bytes);
        (packet.to, packet.max_datagram_bytes) = (Some(to.sender), to.shared);
        self.used += 1;
        self.used - 1
    }

    fn push(&mut self, to: &IncomingPacket<'_>, bytes: &[u8]) -> &mut [u8] {
        let packet = self.begin(to, bytes.len());
        let packet = &mut self.packets[packet];
        packet.bytes[..bytes.len()].copy_from_slice(bytes);
        packet.len = bytes.len();
        &mut packet.bytes[..bytes.len()]
    }
}

/// A response before it is written.
struct ResponsePlan {
    packet: usize,
    opaque: u16,
    has_number: bool,
    wants_meta: bool,
    /// Its position, once known.
    start: usize,
    /// Its status, if the store is not asked.
    status: Option<Status>,
}

impl ResponsePlan {
    fn bytes(&self) -> usize {
        response::bytes_of(self.has_number, self.wants_meta)
    }
}

/// A response packet in progress.
struct OpenResponse {
    packet: usize,
    header: Header,
    sender: SocketAddr,
    max_bytes: usize,
    /// Bytes of responses without a position so far, excluding values.
    rest: usize,
    is_cached: bool,
}

/// Assigns positions to responses while the store produces values.
struct ResponseLayout<'a> {
    plans: &'a mut [ResponsePlan],
    /// Index of the planned response per request of the store.
    plan_of_request: &'a [usize],
    packets: &'a mut [Packet],
    open: &'a mut [OpenResponse],
    /// Responses before this one have a position.
    next: usize,
}

impl ResponseLayout<'_> {
    /// Assigns positions up to and including `plan`.
    fn layout_up_to(&mut self, plan: usize) {
        while self.next <= plan {
            let plan = &mut self.plans[self.next];
            let open = &mut self.open[plan.packet];
            let packet = &mut self.packets[open.packet];
            plan.start = packet.len;
            packet.len += plan.bytes();
            open.rest -= plan.bytes();
            self.next += 1;
        }
    }
}

impl Output for ResponseLayout<'_> {
    #[inline]
    fn room(&mut self, request: usize, len: usize) -> Option<&mut [u8]> {
        let at = self.plan_of_request[request];
        self.layout_up_to(at);
        let (plan, open) = (&self.plans[at], &self.open[self.plans[at].packet]);
        let packet = &mut self.packets[open.packet];
        // The store may call again for the same request, which is the last one positioned in its
        // packet.
        let start = plan.start + plan.bytes();
        packet.len = start;
        if start + len + open.rest > open.max_bytes {
            return None;
        }
        packet.len = start + len;
        Some(&mut packet.bytes[start..start + len])
    }
}

/// Processes the bursts of one port.
pub(crate) struct BurstProcessor {
    pub(super) shared: Arc<Shared>,
    pub(super) table: usize,
    pub(super) store: Arc<Store>,
    pub(super) number: usize,
    pub(super) ports: Arc<[u16]>,
    pub(super) any_port: bool,
    pub(super) cookies: Arc<Cookies>,
    pub(super) sessions: Sessions,
}

impl BurstProcessor {
    /// The processor of a port, by its index.
    pub(crate) fn new(
        shared: Arc<Shared>,
        store: Arc<Store>,
        number: usize,
        ports: Arc<[u16]>,
        cookies: Arc<Cookies>,
    ) -> Self {
        let (table, any_port) = (shared.udp_table, shared.options.udp_any_port);
        let sessions = Sessions::default();
        BurstProcessor { shared, table, store, number, ports, any_port, cookies, sessions }
    }

    /// Sets whether to take requests for any port.
    pub(crate) fn set_any_port(&mut self, any: bool) {
        self.any_port = any;
    }

    /// Executes the requests of packets; produces responses, and packets to forward.
    pub(crate) fn serve(
        &mut self,
        incoming: &[IncomingPacket<'_>],
        responses: &mut Responses,
        forwards: &mut ForwardQueue,
    ) {
        responses.clear();
        let bytes: usize = incoming.iter().map(|incoming| incoming.bytes.len()).sum();
        let mut work = BurstRequests::with_capacity(bytes / SMALL_REQUEST_BYTES);
        for incoming in incoming {
            if let Err(error) = self.read_packet(incoming, responses, forwards, &mut work) {
                let counters = &self.shared.udp;
                match error {
                    WireError::Version(_) => {
                        // A versioned packet has at least a header.
                        counters.unverified.fetch_add(1, Relaxed);
                        responses.push(incoming, &unverified(0));
                    }
                    _ => drop(counters.malformed.fetch_add(1, Relaxed)),
                }
            }
        }
        self.run(work, responses);
    }

    /// Reads one packet.
    fn read_packet<'a>(
        &mut self,
        incoming: &IncomingPacket<'a>,
        responses: &mut Responses,
        forwards: &mut ForwardQueue,
        work: &mut BurstRequests<'a>,
    ) -> Result<(), WireError> {
        let (header, body) = Header::parse(incoming.bytes)?;
        let (sender, now) = (incoming.sender, self.shared.options.clock.now());
        let changes = self.shared.acl.default_changes();
        match header.kind {
            Kind::Hello => {
                let given = hello::password(body)?;
                let user = self.shared.acl.default_user();
                let response = if user.is_unrestricted() && user.accepts(given) {
                    let cookie = self.cookies.cookie_for(sender, now, changes);
                    self.welcome().packet(header.sequence, cookie)
                } else {
                    self.shared.metrics.rejected_passwords.fetch_add(1, Relaxed);
                    unverified(header.sequence).to_vec()
                };
                // The response is no longer than the packet, whoever sent it.
                debug_assert!(response.len() <= incoming.bytes.len());
                responses.push(incoming, &response);
                Ok(())
            }
            Kind::Requests
                if incoming.is_forwarded
                    || self.cookies.is_valid(sender, now, changes, header.cookie) =>
            {
                self.read_requests(incoming, header, body, responses, forwards, work)
            }
            Kind::Requests => {
                self.shared.udp.unverified.fetch_add(1, Relaxed);
                responses.push(incoming, &unverified(header.sequence));
                Ok(())
            }
            // Not valid from a client.
            Kind::Welcome | Kind::Responses | Kind::Unverified => Err(WireError::NotAPacket),
        }
    }

    fn welcome(&self) -> Welcome {
        Welcome {
            seed: self.store.hash_seed(),
            instance: self.cookies.instance(),
            access: self.store.access(),
            any_port: self.any_port,
            partition_bits: self.store.partitions().trailing_zeros() as u8,
            has_cas: self.store.has_cas(),
            max_value_bytes: self.store.max_value_bytes() as u32,
            ports: self.ports.to_vec(),
        }
    }

    fn read_requests<'a>(
        &mut self,
        incoming: &IncomingPacket<'a>,
        header: Header,
        body: &'a [u8],
        responses: &mut Responses,
        forwards: &mut ForwardQueue,
        work: &mut BurstRequests<'a>,
    ) -> Result<(), WireError> {
        let sender = incoming.sender;
        let max_bytes = usize::from(header.response_limit).min(MAX_PACKET_BYTES);
        let (first_plan, first_request) = (work.plans.len(), work.requests.len());
        let (mut rest, mut is_cached) = (0, false);
        forwards.begin(header, sender);
        let mut read = || -> Result<(), WireError> {
            let mut bytes = body;
            for _ in 0..header.count {
                let before = bytes;
                let decoded = RequestRef::take(&mut bytes)?;
                let status = match self.owner_of(&decoded.request) {
                    Owner::Here => None,
                    Owner::Elsewhere => Some(Status::Outcome(Outcome::WrongPartition)),
                    Owner::Port(port) => {
                        forwards.add(port, &before[..before.len() - bytes.len()]);
                        continue;
                    }
                };
                if status.is_none() {
                    is_cached |= decoded.request.action.is_write();
                    work.plan_of_request.push(work.plans.len());
                    work.requests.push(decoded.request);
                }
                let plan = ResponsePlan {
                    packet: work.open.len(),
                    opaque: decoded.opaque,
                    has_number: decoded.has_number(),
                    wants_meta: decoded.wants_meta,
                    start: 0,
                    status,
                };
                rest += plan.bytes();
                work.plans.push(plan);
            }
            // No surplus bytes, at least one request, and the responses fit.
            let is_whole = bytes.is_empty() && header.count > 0 && HEADER_BYTES + rest <= max_bytes;
            if is_whole { Ok(()) } else { Err(WireError::Body) }
        };
        let discard = |work: &mut BurstRequests<'a>| {
            work.plans.truncate(first_plan);
            work.requests.truncate(first_request);
            work.plan_of_request.truncate(first_request);
        };
        if let Err(error) = read() {
            discard(work);
            forwards.discard_open();
            return Err(error);
        }
        forwards.finish();
        if work.plans.len() == first_plan {
            // Everything is forwarded; the other threads detect duplicates.
            return Ok(());
        }
        let is_same =
            |open: &OpenResponse| open.sender == sender && open.header.sequence == header.sequence;
        if work.open.iter().any(is_same) {
            // Duplicate within the burst: the first is about to be executed.
            self.shared.udp.duplicates.fetch_add(1, Relaxed);
            discard(work);
            return Ok(());
        }
        let seen =
            self.sessions.classify(sender, header.sequence, header.oldest_offset, header.attempt);
        match seen {
            PacketStatus::New => {}
            PacketStatus::Duplicate(packet) => {
                self.shared.udp.duplicates.fetch_add(1, Relaxed);
                // A client that states a smaller limit than before gets nothing.
                if packet.len() <= max_bytes {
                    let repeated = responses.push(incoming, packet);
                    // The client may have a new cookie, and would reject the old one.
                    if let Ok((cached, _)) = Header::parse(packet) {
                        Header { cookie: header.cookie, ..cached }.write(repeated);
                    }
                }
                discard(work);
                return Ok(());
            }
            PacketStatus::Delayed => {
                self.shared.udp.duplicates.fetch_add(1, Relaxed);
                discard(work);
                return Ok(());
            }
            PacketStatus::Forgotten => work.mark_writes_forgotten(first_request),
        }
        let packet = responses.begin(incoming, max_bytes);
        work.open.push(OpenResponse { packet, header, sender, max_bytes, rest, is_cached });
        Ok(())
    }

    /// Owner of a request.
    #[inline]
    fn owner_of(&self, request: &Request<'_>) -> Owner {
        // The client's hash selects the port; the store's hash is authoritative.
        if self.store.hash(request.key) != request.hash {
            return Owner::Elsewhere;
        }
        let owner = self.store.partition_of(request.hash) % self.ports.len();
        let is_shared = match self.store.access() {
            Access::Erew => false,
            Access::Crew => !request.action.is_write(),
            Access::Crcw => true,
        };
        match owner == self.number || is_shared {
            true => Owner::Here,
            false if self.any_port => Owner::Port(owner),
            false => Owner::Elsewhere,
        }
    }

    /// Executes the requests read, and writes the responses.
    fn run(&mut self, mut work: BurstRequests<'_>, responses: &mut Responses) {
        if work.open.is_empty() {
            return;
        }
        let database = &self.shared.databases[self.table];
        let mut outcomes = vec![Answer::default(); work.requests.len()];
        let mut layout = ResponseLayout {
            plans: &mut work.plans,
            plan_of_request: &work.plan_of_request,
            packets: &mut responses.packets,
            open: &mut work.open,
            next: 0,
        };
        {
            let writes = || work.requests.iter().filter(|r| r.action.is_write()).map(|r| r.key);
            let (mut batch, mut guard) = (None, None);
            if writes().next().is_some() {
                batch = database.locks.shared_batch(self.number);
                if batch.is_none() {
                    guard = Some(database.locks.many(writes()));
                }
                database.watches.touch(writes());
            }
            // The exclusive owner of a partition declares it: its reads then count for eviction.
            let is_owner =
                self.store.partitions() == self.ports.len() && self.store.access() == Access::Erew;
            match is_owner {
                true => {
                    self.store.burst_to(self.number, &work.requests, &mut outcomes, &mut layout);
                }
                false => self.store.burst(&work.requests, &mut outcomes, &mut layout),
            }
            if writes().next().is_some() {
                // Expiries over this protocol are not published when they pass.
                database.record_change(writes().map(|key| (Cow::Borrowed(key), None)));
            }
            drop((batch, guard));
        }
        if let Some(last) = layout.plans.len().checked_sub(1) {
            layout.layout_up_to(last);
        }
        self.write(&work, &outcomes, responses);
    }

    /// Writes everything but the values.
    fn write(&mut self, work: &BurstRequests<'_>, outcomes: &[Answer], responses: &mut Responses) {
        let mut outcomes = outcomes.iter();
        for (at, plan) in work.plans.iter().enumerate() {
            let open = &work.open[plan.packet];
            let packet = &mut responses.packets[open.packet];
            let end = match work.plans.get(at + 1).filter(|next| next.packet == plan.packet) {
                Some(next) => next.start,
                None => packet.len,
            };
            let (status, outcome) = match plan.status {
                Some(status) => (status, Answer::default()),
                None => {
                    let outcome = outcomes.next().copied().unwrap_or_default();
                    (Status::Outcome(outcome.outcome), outcome)
                }
            };
            let number = plan.has_number.then_some(outcome.number);
            let meta = plan.wants_meta.then_some(outcome.meta);
            let value_len = end - plan.start - plan.bytes();
            let target = &mut packet.bytes[plan.start..end];
            response::write(target, status, plan.opaque, value_len, number, meta);
        }
        let mut firsts = work.plans.iter().peekable();
        for (at, open) in work.open.iter().enumerate() {
            let mut count = 0u16;
            while firsts.next_if(|plan| plan.packet == at).is_some() {
                count += 1;
            }
            let packet = &mut responses.packets[open.packet];
            let header = Header { kind: Kind::Responses, count, oldest_offset: 0, ..open.header };
            header.write(&mut packet.bytes[..packet.len]);
            if open.is_cached {
                let bytes = &packet.bytes[..packet.len];
                self.sessions.cache(open.sender, open.header.sequence, bytes);
            }
        }
        let counters = &self.shared.udp;
        counters.packets.fetch_add(work.open.len() as u64, Relaxed);
        counters.requests.fetch_add(work.plans.len() as u64, Relaxed);
    }

    /// Bytes of cached responses.
    pub(crate) fn cached_bytes(&self) -> usize {
        self.sessions.bytes()
    }
}

/// Owner of a request.
enum Owner {
    Here,
    /// Another port, whose thread can execute it.
    Port(usize),
    /// Another port, or an invalid hash.
    Elsewhere,
}

/// Requests of a burst.
struct BurstRequests<'a> {
    plans: Vec<ResponsePlan>,
    requests: Vec<Request<'a>>,
    /// Index of the planned response per request.
    plan_of_request: Vec<usize>,
    open: Vec<OpenResponse>,
}

impl BurstRequests<'_> {
    /// An empty burst with capacity for `requests`.
    fn with_capacity(requests: usize) -> Self {
        BurstRequests {
            plans: Vec::with_capacity(requests),
            requests: Vec::with_capacity(requests),
            plan_of_request: Vec::with_capacity(requests),
            open: Vec::new(),
        }
    }

    /// Answers the writes from this one on as forgotten, instead of executing them.
    fn mark_writes_forgotten(&mut self, first_request: usize) {
        let mut reads_end = first_request;
        for at in first_request..self.requests.len() {
            if self.requests[at].action.is_write() {
                self.plans[self.plan_of_request[at]].status = Some(Status::Forgotten);
            } else {
                self.requests.swap(reads_end, at);
                self.plan_of_request.swap(reads_end, at);
                reads_end += 1;
            }
        }
        self.requests.truncate(reads_end);
        self.plan_of_request.truncate(reads_end);
    }
}

/// A forwarded packet.
impl<'a> From<&'a ForwardedPacket> for IncomingPacket<'a> {
    fn from(forwarded: &'a ForwardedPacket) -> Self {
        let bytes = &forwarded.packet[..];
        IncomingPacket { bytes, shared: bytes.len(), sender: forwarded.sender, is_forwarded: true }
    }
}
