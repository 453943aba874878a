//! Packets to requests to answers, with no socket.
//!
//! All requests of all packets of a burst go to the store as one burst, so what later ones need is on
//! its way from memory while the first are done. The store copies each value to where it belongs in
//! its packet of answers: since an answer's other bytes are known from its request, every answer's
//! place follows from those before it.
//!
//! ```text
//! packet of answers   header │ answer │ value │ answer │ answer │ value …
//!                              place of the first of its requests; the next behind its value
//! ```
//!
//! Invariant: a packet is done whole or dropped whole; what is dropped has changed nothing. The
//! answers to a packet fit in the room that its client has named.
//!
//! Source: thesis, section 5.3.2, "Zero-copy processing": there a request's packet becomes its
//! answer's; here both lie in user space and the system copies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_client::bundle;
use siltstone_client::segments::Outgoing;
use siltstone_client::wire::answer::{self, Told};
use siltstone_client::wire::hello::{self, Welcome};
use siltstone_client::wire::request::{Asked, FIXED_BYTES};
use siltstone_client::wire::{HEADER_BYTES, Header, Kind, MAX_PACKET_BYTES, Mistake, stranger};
use siltstone_mica::{Access, Answer, Outcome, Output, Request, Store};

use super::cookie::Cookies;
use super::handover::{Handed, Parcels};
use super::sessions::{Seen, Sessions};
use crate::command::is_same;
use crate::shared::Shared;

/// Bytes of a request with a key of eight bytes and no value: with smaller ones room has to grow.
const SMALL_REQUEST: usize = FIXED_BYTES + 8;

/// A packet that has come, or a part of one that another port's thread has handed over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) bytes: &'a [u8],
    /// Bytes of the datagram that it came in, with others.
    pub(crate) shared: usize,
    pub(crate) sender: SocketAddr,
    /// Whether another thread has looked at it before.
    pub(crate) is_handed: bool,
}

impl<'a> Incoming<'a> {
    /// The packets of a datagram.
    pub(crate) fn of(datagram: &'a [u8], sender: SocketAddr) -> impl Iterator<Item = Self> {
        let shared = datagram.len();
        let packets = bundle::packets(datagram);
        packets.map(move |bytes| Incoming { bytes, shared, sender, is_handed: false })
    }
}

/// What is to be sent.
#[derive(Default)]
pub(crate) struct Answers {
    packets: Vec<Packet>,
    used: usize,
}

#[derive(Default)]
struct Packet {
    /// Longer than the packet, and never shorter than before.
    bytes: Vec<u8>,
    len: usize,
    /// The most that it may be.
    room: usize,
    /// Bytes of a datagram that it may share with others.
    shares: usize,
    to: Option<SocketAddr>,
}

impl Answers {
    /// The packets, where they go, and to which length zeros may make them longer: never beyond the room
    /// that a proven client has named. What they share with others is no longer than what has come.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Outgoing<'_>> {
        let all = self.packets[..self.used].iter();
        all.filter_map(|packet| {
            let bytes = &packet.bytes[..packet.len];
            Some(Outgoing { bytes, to: packet.to?, most: packet.room, shares: packet.shares })
        })
    }

    fn clear(&mut self) {
        self.used = 0;
    }

    /// A packet of so many bytes at most, which answers this one; its number.
    fn begin(&mut self, to: &Incoming<'_>, room: usize) -> usize {
        if self.used == self.packets.len() {
            self.packets.push(Packet::default());
        }
        let packet = &mut self.packets[self.used];
        if packet.bytes.len() < room {
            packet.bytes.resize(room, 0);
        }
        (packet.len, packet.room) = (HEADER_BYTES, room);
        (packet.to, packet.shares) = (Some(to.sender), to.shared);
        self.used += 1;
        self.used - 1
    }

    fn whole(&mut self, to: &Incoming<'_>, bytes: &[u8]) -> &mut [u8] {
        let packet = self.begin(to, bytes.len());
        let packet = &mut self.packets[packet];
        packet.bytes[..bytes.len()].copy_from_slice(bytes);
        packet.len = bytes.len();
        &mut packet.bytes[..bytes.len()]
    }
}

/// A request's answer, before it is written.
struct Plan {
    packet: usize,
    opaque: u16,
    has_number: bool,
    wants_meta: bool,
    /// Where it begins, once that is known.
    start: usize,
    /// What it is answered without asking the store.
    told: Option<Told>,
}

impl Plan {
    fn bytes(&self) -> usize {
        answer::bytes_of(self.has_number, self.wants_meta)
    }
}

/// A packet of answers under way.
struct Open {
    packet: usize,
    header: Header,
    sender: SocketAddr,
    room: usize,
    /// Bytes of the answers that have no place yet, without values.
    rest: usize,
    is_kept: bool,
}

/// Finds the places of answers while the store gives values.
struct Places<'a> {
    plans: &'a mut [Plan],
    /// The plan of each of the store's requests.
    asked: &'a [usize],
    packets: &'a mut [Packet],
    open: &'a mut [Open],
    /// Plans before this one have a place.
    next: usize,
}

impl Places<'_> {
    /// Gives places to all plans before this one, and to it.
    fn reach(&mut self, plan: usize) {
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

impl Output for Places<'_> {
    #[inline]
    fn room(&mut self, request: usize, len: usize) -> Option<&mut [u8]> {
        let at = self.asked[request];
        self.reach(at);
        let (plan, open) = (&self.plans[at], &self.open[self.plans[at].packet]);
        let packet = &mut self.packets[open.packet];
        // The same request may ask again; it is the last one of its packet that has a place.
        let start = plan.start + plan.bytes();
        packet.len = start;
        if start + len + open.rest > open.room {
            return None;
        }
        packet.len = start + len;
        Some(&mut packet.bytes[start..start + len])
    }
}

/// What a port's thread works with.
pub(crate) struct Desk {
    pub(super) shared: Arc<Shared>,
    pub(super) table: usize,
    pub(super) store: Arc<Store>,
    pub(super) number: usize,
    pub(super) ports: Arc<[u16]>,
    pub(super) any_port: bool,
    pub(super) cookies: Arc<Cookies>,
    pub(super) sessions: Sessions,
}

impl Desk {
    /// The desk of a port, by its number.
    pub(crate) fn new(
        shared: Arc<Shared>,
        store: Arc<Store>,
        number: usize,
        ports: Arc<[u16]>,
        cookies: Arc<Cookies>,
    ) -> Self {
        let (table, any_port) = (shared.udp_table, shared.options.udp_any_port);
        let sessions = Sessions::default();
        Desk { shared, table, store, number, ports, any_port, cookies, sessions }
    }

    /// Whether to take requests for any port.
    pub(crate) fn take_any(&mut self, any: bool) {
        self.any_port = any;
    }

    /// Does the requests of packets; leaves answers, and parcels for other ports.
    pub(crate) fn serve(
        &mut self,
        incoming: &[Incoming<'_>],
        answers: &mut Answers,
        parcels: &mut Parcels,
    ) {
        answers.clear();
        let bytes: usize = incoming.iter().map(|incoming| incoming.bytes.len()).sum();
        let mut work = Work::with_room(bytes / SMALL_REQUEST);
        for incoming in incoming {
            if let Err(mistake) = self.take_in(incoming, answers, parcels, &mut work) {
                let tallies = &self.shared.udp;
                match mistake {
                    Mistake::Version(_) => {
                        // It is at least a header long.
                        tallies.strangers.fetch_add(1, Relaxed);
                        answers.whole(incoming, &stranger(0));
                    }
                    _ => drop(tallies.malformed.fetch_add(1, Relaxed)),
                }
            }
        }
        self.run(work, answers);
    }

    /// Reads one packet.
    fn take_in<'a>(
        &mut self,
        incoming: &Incoming<'a>,
        answers: &mut Answers,
        parcels: &mut Parcels,
        work: &mut Work<'a>,
    ) -> Result<(), Mistake> {
        let (header, body) = Header::parse(incoming.bytes)?;
        let (sender, now) = (incoming.sender, self.shared.options.clock.now());
        match header.kind {
            Kind::Hello => {
                let given = hello::password(body)?;
                let answer = match self.shared.options.password.as_deref() {
                    Some(password) if !is_same(password.as_bytes(), given) => {
                        self.shared.metrics.rejected_passwords.fetch_add(1, Relaxed);
                        stranger(header.sequence).to_vec()
                    }
                    _ => self.welcome().packet(header.sequence, self.cookies.of(sender, now)),
                };
                // No more than what came, whoever sent it.
                debug_assert!(answer.len() <= incoming.bytes.len());
                answers.whole(incoming, &answer);
                Ok(())
            }
            Kind::Requests
                if incoming.is_handed || self.cookies.is_of(sender, now, header.cookie) =>
            {
                self.take_requests(incoming, header, body, answers, parcels, work)
            }
            Kind::Requests => {
                self.shared.udp.strangers.fetch_add(1, Relaxed);
                answers.whole(incoming, &stranger(header.sequence));
                Ok(())
            }
            // A client has no business to send these.
            Kind::Welcome | Kind::Answers | Kind::Stranger => Err(Mistake::NotOurs),
        }
    }

    fn welcome(&self) -> Welcome {
        Welcome {
            seed: self.store.hash_seed(),
            instance: self.cookies.instance(),
            access: self.store.access(),
            any_port: self.any_port,
            partition_bits: self.store.partitions().trailing_zeros() as u8,
            keeps_stamps: self.store.keeps_stamps(),
            max_value_bytes: self.store.max_value_bytes() as u32,
            ports: self.ports.to_vec(),
        }
    }

    fn take_requests<'a>(
        &mut self,
        incoming: &Incoming<'a>,
        header: Header,
        body: &'a [u8],
        answers: &mut Answers,
        parcels: &mut Parcels,
        work: &mut Work<'a>,
    ) -> Result<(), Mistake> {
        let sender = incoming.sender;
        let room = usize::from(header.room).min(MAX_PACKET_BYTES);
        let (first_plan, first_request) = (work.plans.len(), work.requests.len());
        let (mut rest, mut is_kept) = (0, false);
        parcels.begin(header, sender);
        let mut read = || -> Result<(), Mistake> {
            let mut bytes = body;
            for _ in 0..header.count {
                let before = bytes;
                let asked = Asked::take(&mut bytes)?;
                let told = match self.owner_of(&asked.request) {
                    Owner::Here => None,
                    Owner::Elsewhere => Some(Told::Outcome(Outcome::Elsewhere)),
                    Owner::Port(port) => {
                        parcels.add(port, &before[..before.len() - bytes.len()]);
                        continue;
                    }
                };
                if told.is_none() {
                    is_kept |= asked.request.action.is_write();
                    work.asked.push(work.plans.len());
                    work.requests.push(asked.request);
                }
                let plan = Plan {
                    packet: work.open.len(),
                    opaque: asked.opaque,
                    has_number: asked.has_number(),
                    wants_meta: asked.wants_meta,
                    start: 0,
                    told,
                };
                rest += plan.bytes();
                work.plans.push(plan);
            }
            // Nothing may follow, something must have been there, and the answers must have room.
            let is_whole = bytes.is_empty() && header.count > 0 && HEADER_BYTES + rest <= room;
            if is_whole { Ok(()) } else { Err(Mistake::Body) }
        };
        let drop_it = |work: &mut Work<'a>| {
            work.plans.truncate(first_plan);
            work.requests.truncate(first_request);
            work.asked.truncate(first_request);
        };
        if let Err(mistake) = read() {
            drop_it(work);
            parcels.drop_last();
            return Err(mistake);
        }
        parcels.finish();
        if work.plans.len() == first_plan {
            // All of it goes to other ports, whose threads know what of it was done before.
            return Ok(());
        }
        let is_same =
            |open: &Open| open.sender == sender && open.header.sequence == header.sequence;
        if work.open.iter().any(is_same) {
            // Twice in one burst: the first of them is about to be done.
            self.shared.udp.again.fetch_add(1, Relaxed);
            drop_it(work);
            return Ok(());
        }
        let seen = self.sessions.see(sender, header.sequence, header.behind, header.attempt);
        match seen {
            Seen::New => {}
            Seen::Again(packet) => {
                self.shared.udp.again.fetch_add(1, Relaxed);
                // A client that names less room than it did before gets nothing.
                if packet.len() <= room {
                    let again = answers.whole(incoming, packet);
                    // It may have another cookie by now, and would not take the old one for the server's.
                    if let Ok((kept, _)) = Header::parse(packet) {
                        Header { cookie: header.cookie, ..kept }.write(again);
                    }
                }
                drop_it(work);
                return Ok(());
            }
            Seen::Stray => {
                self.shared.udp.again.fetch_add(1, Relaxed);
                drop_it(work);
                return Ok(());
            }
            Seen::Forgotten => work.forget_writes(first_request),
        }
        let packet = answers.begin(incoming, room);
        work.open.push(Open { packet, header, sender, room, rest, is_kept });
        Ok(())
    }

    /// Whose request it is.
    #[inline]
    fn owner_of(&self, request: &Request<'_>) -> Owner {
        // The client's hash is what directs; the store's own is what counts.
        if self.store.hash(request.key) != request.hash {
            return Owner::Elsewhere;
        }
        let owner = self.store.partition_of(request.hash) % self.ports.len();
        let anyone_may = match self.store.access() {
            Access::Erew => false,
            Access::Crew => !request.action.is_write(),
            Access::Crcw => true,
        };
        match owner == self.number || anyone_may {
            true => Owner::Here,
            false if self.any_port => Owner::Port(owner),
            false => Owner::Elsewhere,
        }
    }

    /// Does what was read, and writes the answers.
    fn run(&mut self, mut work: Work<'_>, answers: &mut Answers) {
        if work.open.is_empty() {
            return;
        }
        let database = &self.shared.databases[self.table];
        let mut outcomes = vec![Answer::default(); work.requests.len()];
        let mut places = Places {
            plans: &mut work.plans,
            asked: &work.asked,
            packets: &mut answers.packets,
            open: &mut work.open,
            next: 0,
        };
        {
            let writes = || work.requests.iter().filter(|r| r.action.is_write()).map(|r| r.key);
            let (mut visit, mut guard) = (None, None);
            if writes().next().is_some() {
                visit = database.locks.visit(self.number);
                if visit.is_none() {
                    guard = Some(database.locks.many(writes()));
                }
                database.watches.touch(writes());
            }
            // Who serves one partition and nothing else says so: its reads count for eviction.
            let is_owner =
                self.store.partitions() == self.ports.len() && self.store.access() == Access::Erew;
            match is_owner {
                true => {
                    self.store.burst_to(self.number, &work.requests, &mut outcomes, &mut places);
                }
                false => self.store.burst(&work.requests, &mut outcomes, &mut places),
            }
            drop((visit, guard));
        }
        if let Some(last) = places.plans.len().checked_sub(1) {
            places.reach(last);
        }
        self.write(&work, &outcomes, answers);
    }

    /// Writes everything but the values.
    fn write(&mut self, work: &Work<'_>, outcomes: &[Answer], answers: &mut Answers) {
        let mut outcomes = outcomes.iter();
        for (at, plan) in work.plans.iter().enumerate() {
            let open = &work.open[plan.packet];
            let packet = &mut answers.packets[open.packet];
            let end = match work.plans.get(at + 1).filter(|next| next.packet == plan.packet) {
                Some(next) => next.start,
                None => packet.len,
            };
            let (told, outcome) = match plan.told {
                Some(told) => (told, Answer::default()),
                None => {
                    let outcome = outcomes.next().copied().unwrap_or_default();
                    (Told::Outcome(outcome.outcome), outcome)
                }
            };
            let number = plan.has_number.then_some(outcome.number);
            let meta = plan.wants_meta.then_some(outcome.meta);
            let value_len = end - plan.start - plan.bytes();
            let place = &mut packet.bytes[plan.start..end];
            answer::write(place, told, plan.opaque, value_len, number, meta);
        }
        let mut firsts = work.plans.iter().peekable();
        for (at, open) in work.open.iter().enumerate() {
            let mut count = 0u16;
            while firsts.next_if(|plan| plan.packet == at).is_some() {
                count += 1;
            }
            let packet = &mut answers.packets[open.packet];
            let header = Header { kind: Kind::Answers, count, behind: 0, ..open.header };
            header.write(&mut packet.bytes[..packet.len]);
            if open.is_kept {
                let bytes = &packet.bytes[..packet.len];
                self.sessions.keep(open.sender, open.header.sequence, bytes);
            }
        }
        let tallies = &self.shared.udp;
        tallies.packets.fetch_add(work.open.len() as u64, Relaxed);
        tallies.requests.fetch_add(work.plans.len() as u64, Relaxed);
    }

    /// Bytes that are kept for clients.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.sessions.bytes()
    }
}

/// Whose a request is.
enum Owner {
    Here,
    /// Another port's, to whose thread it can be handed over.
    Port(usize),
    /// Another port's, or nobody's.
    Elsewhere,
}

/// The requests of a burst.
struct Work<'a> {
    plans: Vec<Plan>,
    requests: Vec<Request<'a>>,
    /// The plan of each request.
    asked: Vec<usize>,
    open: Vec<Open>,
}

impl Work<'_> {
    /// No requests yet, and room for so many.
    fn with_room(requests: usize) -> Self {
        Work {
            plans: Vec::with_capacity(requests),
            requests: Vec::with_capacity(requests),
            asked: Vec::with_capacity(requests),
            open: Vec::new(),
        }
    }

    /// Answers the writes from these on that they are forgotten, instead of doing them.
    fn forget_writes(&mut self, first_request: usize) {
        let mut kept = first_request;
        for at in first_request..self.requests.len() {
            if self.requests[at].action.is_write() {
                self.plans[self.asked[at]].told = Some(Told::Forgotten);
            } else {
                self.requests.swap(kept, at);
                self.asked.swap(kept, at);
                kept += 1;
            }
        }
        self.requests.truncate(kept);
        self.asked.truncate(kept);
    }
}

/// What another thread has handed over, as packets of this one.
impl<'a> From<&'a Handed> for Incoming<'a> {
    fn from(handed: &'a Handed) -> Self {
        let bytes = &handed.packet[..];
        Incoming { bytes, shared: bytes.len(), sender: handed.sender, is_handed: true }
    }
}
