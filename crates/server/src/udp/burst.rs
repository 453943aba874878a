//! From packets to requests to responses, without sockets.
//!
//! All requests of all packets of a burst go to the store as one burst, so that memory for later
//! ones is prefetched while the first are executed. The store copies values directly into the
//! response packets ([`super::responses`]).
//!
//! Invariant: a packet is executed completely or dropped completely, without effect.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_client::wire::hello::{self, Welcome};
use siltstone_client::wire::request::{FIXED_BYTES, RequestRef};
use siltstone_client::wire::response::{self, Status};
use siltstone_client::wire::{HEADER_BYTES, Header, Kind, MAX_PACKET_BYTES, WireError, unverified};
use siltstone_mica::{Access, Answer, Outcome, Request, Store};

use super::cookie::Cookies;
use super::forwarding::ForwardQueue;
use super::incoming::IncomingPacket;
use super::responses::{OpenResponse, ResponseLayout, ResponsePlan, Responses};
use super::sessions::{PacketStatus, Sessions};
use crate::shared::Shared;

/// Size of a request with a key of eight bytes and no value, to size buffers.
const SMALL_REQUEST_BYTES: usize = FIXED_BYTES + 8;

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
