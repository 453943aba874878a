//! What is asked, where it goes, and what is waited for.
//!
//! ```text
//! requests ─ hash ─ the port of the partition ─ packets, so many at a time to a port ─▶ server
//!                                                   │ again, if it takes too long        │
//! answers to the caller ◀─ by the packet's number and the request's place in it ◀────────┘
//! ```
//!
//! A packet holds as many requests as its bytes allow, and as their answers may be expected to take.
//! A value that did not fit is asked for again, alone and with all the room there is.
//!
//! Source: thesis, section 5.3.2, "Client-Assisted Hardware Request Direction".

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use siltstone_engine::{MAX_KEY_BYTES, Timestamp};
use siltstone_mica::{Access, Action, Answer, Outcome, Request, Value};
use siltstone_structures::hash::hash64_seeded;

use crate::error::{ClientError, Result};
use crate::flights::Flights;
use crate::greet::greet;
use crate::link::Link;
use crate::mmsg::MAX_BURST;
use crate::options::ClientOptions;
use crate::segments::Outgoing;
use crate::slot::{SLOT_BYTES, Slot};
use crate::wire::answer::{self, Heard, Told};
use crate::wire::hello::{self, Welcome};
use crate::wire::request::{self, Asked};
use crate::wire::{HEADER_BYTES, Header, Kind, MAX_PACKET_BYTES};
use crate::xdp::{Interface, Queue};

/// How long the socket waits at a time: how late a packet may be found overdue.
const STEP: Duration = Duration::from_millis(2);

/// Answers that are heard before more is asked: with more, client and server wait for one another.
const AT_ONCE: usize = 8;

/// How long after a hello the next one is due, while packets stay without an answer.
const MEET_AGAIN: Duration = Duration::from_millis(500);

/// An answer, as the caller sees it.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// How it went.
    pub answer: Answer,
    /// The value, if one was found.
    pub value: &'a [u8],
}

/// What a client has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets sent again.
    pub again: u64,
    /// Packets that came and were none, or nobody's.
    pub ignored: u64,
    /// Hellos answered.
    pub welcomes: u64,
}

/// A client of one server. It has a socket of its own; for more threads make more clients.
pub struct Client {
    link: Link,
    server: SocketAddr,
    options: ClientOptions,
    welcome: Welcome,
    cookie: u64,
    flights: Flights,
    /// Bytes that a value has taken lately.
    expected_value: f64,
    turn: usize,
    /// When the server was last greeted.
    met: Instant,
    slots: Vec<Slot>,
    counters: Counters,
}

impl Client {
    /// Meets a server.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if it refuses, [`ClientError::Deadline`] if it does not answer.
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
        let mut slots: Vec<_> = (0..MAX_BURST).map(|_| Slot::new(SLOT_BYTES)).collect();
        let deadline = Instant::now() + options.deadline;
        let (welcome, cookie) = greet(&mut link, server, &options, deadline, &mut slots)?;
        // Numbers begin anywhere, so that nobody can guess them.
        let first = RandomState::new().hash_one(1) >> 1;
        Ok(Client {
            flights: Flights::new(welcome.ports.len(), first),
            link,
            server,
            options,
            welcome,
            cookie,
            expected_value: 0.0,
            turn: 0,
            met: Instant::now(),
            slots,
            counters: Counters { welcomes: 1, ..Counters::default() },
        })
    }

    /// What the server told of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.ask(&[(key, Action::Get)], |_, reply| {
            value = (reply.answer.outcome == Outcome::Found).then(|| reply.value.to_vec());
        })?;
        Ok(value)
    }

    /// Stores a value: [`Outcome::Stored`], or why it is not.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Outcome> {
        let value = Value { bytes: value, ..Value::default() };
        Ok(self.one(key, Action::Put(value))?.outcome)
    }

    /// Stores a value until a moment, in milliseconds since 1970 by the server's clock.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn put_until(&mut self, key: &[u8], value: &[u8], at: Timestamp) -> Result<Outcome> {
        let value = Value { bytes: value, expires_at: Some(at), ..Value::default() };
        Ok(self.one(key, Action::Put(value))?.outcome)
    }

    /// Removes a key: [`Outcome::Deleted`] or [`Outcome::Missing`].
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn delete(&mut self, key: &[u8]) -> Result<Outcome> {
        Ok(self.one(key, Action::Delete(None))?.outcome)
    }

    /// Does one operation of any kind, and drops the value of a look-up.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn one(&mut self, key: &[u8], action: Action<'_>) -> Result<Answer> {
        let mut answer = Answer::default();
        self.ask(&[(key, action)], |_, reply| answer = reply.answer)?;
        Ok(answer)
    }

    /// Does many operations: `hear` is called once for each, in any order, with its place among them.
    /// They are done in any order: whoever needs one to be done before another makes two calls.
    /// Look-ups tell the flags, expiry and stamp of an item only when they are asked for with
    /// [`ask_with_meta`](Self::ask_with_meta).
    ///
    /// # Errors
    /// [`ClientError::TooLarge`] before anything is sent; else what has prevented the answers that
    /// are missing.
    pub fn ask(
        &mut self,
        asks: &[(&[u8], Action<'_>)],
        hear: impl FnMut(usize, Reply<'_>),
    ) -> Result<()> {
        self.ask_all(asks, false, hear)
    }

    /// As [`ask`](Self::ask), and answers tell what is stored beside the value.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_with_meta(
        &mut self,
        asks: &[(&[u8], Action<'_>)],
        hear: impl FnMut(usize, Reply<'_>),
    ) -> Result<()> {
        self.ask_all(asks, true, hear)
    }

    fn ask_all(
        &mut self,
        asks: &[(&[u8], Action<'_>)],
        wants_meta: bool,
        mut hear: impl FnMut(usize, Reply<'_>),
    ) -> Result<()> {
        for (key, action) in asks {
            let bytes = HEADER_BYTES + request::bytes_of(key, action);
            if key.is_empty() || key.len() >= MAX_KEY_BYTES || bytes > MAX_PACKET_BYTES {
                return Err(ClientError::TooLarge { bytes });
            }
        }
        let mut call = Call {
            asks,
            wants_meta,
            queues: vec![Vec::new(); self.welcome.ports.len()],
            heads: vec![0; self.welcome.ports.len()],
            alone: Vec::new(),
            open: asks.len(),
        };
        for (place, ask) in asks.iter().enumerate() {
            call.queues[self.port_of(ask)].push(place as u32);
        }
        let outcome = self.exchange(&mut call, &mut hear);
        if outcome.is_err() {
            self.flights.abandon();
        }
        match outcome {
            // Whoever looked for the server when time was over knows nothing of the requests.
            Err(ClientError::Deadline { .. }) => {
                Err(ClientError::Deadline { unanswered: call.open })
            }
            outcome => outcome,
        }
    }

    /// The number of the port that a request goes to.
    fn port_of(&mut self, (key, action): &(&[u8], Action<'_>)) -> usize {
        let ports = self.welcome.ports.len();
        let anyone_may = match self.welcome.access {
            Access::Erew => false,
            Access::Crew => !action.is_write(),
            Access::Crcw => true,
        };
        if ports == 1 {
            return 0;
        }
        if self.welcome.any_port || anyone_may {
            // In turn, a packet's worth at a time.
            self.turn = self.turn.wrapping_add(1);
            return self.turn / self.options.batch % ports;
        }
        let hash = hash64_seeded(key, self.welcome.seed);
        // Two shifts, because one by 64 would be none.
        (hash >> 1 >> (63 - u32::from(self.welcome.partition_bits))) as usize % ports
    }

    /// Sends and receives until everything is answered.
    fn exchange(
        &mut self,
        call: &mut Call<'_, '_>,
        hear: &mut impl FnMut(usize, Reply<'_>),
    ) -> Result<()> {
        let deadline = Instant::now() + self.options.deadline;
        let mut next_check = Instant::now() + STEP;
        while call.open > 0 {
            self.launch(call)?;
            let count = self.link.receive(&mut self.slots, true)?;
            // The slots are lent to the loop, so that answers can go to the caller uncopied.
            let slots = std::mem::take(&mut self.slots);
            let mut heard = Ok(Heeded::Nothing);
            let mut unsent = 0;
            for slot in &slots[..count] {
                for packet in slot.packets() {
                    unsent += 1;
                    heard = joined(heard, self.heed(slot.sender(), packet, call, hear));
                }
                // The server has work again while the other answers are heard.
                if unsent >= AT_ONCE {
                    unsent = 0;
                    heard = joined(heard, self.launch(call).map(|()| Heeded::Nothing));
                }
            }
            self.slots = slots;
            if heard? == Heeded::MeetAgain {
                self.meet_again(deadline)?;
            }
            let now = Instant::now();
            if count == 0 || now >= next_check {
                next_check = now + STEP;
                if now >= deadline {
                    return Err(ClientError::Deadline { unanswered: call.open });
                }
                let overdue = self.flights.overdue(now, false);
                self.counters.again += overdue.len() as u64;
                self.send(&overdue)?;
                if self.flights.is_stuck() && now >= self.met + MEET_AGAIN {
                    // A server that was started anew may have other ports.
                    self.meet_again(deadline)?;
                }
            }
        }
        Ok(())
    }

    /// Sends as many packets as may wait.
    fn launch(&mut self, call: &mut Call<'_, '_>) -> Result<()> {
        let (mut launched, now) = (Vec::new(), Instant::now());
        for port in 0..self.welcome.ports.len() {
            while self.flights.waiting(port) < self.options.window
                && self.flights.has_room(port)
                && let Some(sequence) = self.pack(call, port, now)
            {
                launched.push(sequence);
            }
        }
        while let Some(place) = call.alone.pop() {
            let port = self.port_of(&call.asks[place as usize]);
            let (mut packet, mut items) = self.flights.buffers();
            packet.resize(HEADER_BYTES, 0);
            call.write(place, 0, self.welcome.seed, &mut packet);
            items.push(Some(place));
            let header = self.header(1, MAX_PACKET_BYTES);
            launched.push(self.flights.launch(packet, items, port, header, now));
        }
        self.counters.packets += launched.len() as u64;
        self.send(&launched)
    }

    fn header(&self, count: usize, room: usize) -> Header {
        Header {
            kind: Kind::Requests,
            length: 0,
            count: count as u16,
            sequence: 0,
            cookie: self.cookie,
            behind: 0,
            room: room as u16,
            attempt: 0,
        }
    }

    /// Packs what waits for a port into a packet; its number.
    fn pack(&mut self, call: &mut Call<'_, '_>, port: usize, now: Instant) -> Option<u64> {
        call.queues[port].get(call.heads[port])?;
        let (mut packet, mut items) = self.flights.buffers();
        packet.resize(HEADER_BYTES, 0);
        let mut answers = HEADER_BYTES as f64;
        while let Some(&place) = call.queues[port].get(call.heads[port]) {
            let (key, action) = &call.asks[place as usize];
            let value = if action.is_write() { 0.0 } else { self.expected_value };
            answers += answer::bytes_of(true, call.wants_meta) as f64 + value;
            let bytes = packet.len() + request::bytes_of(key, action);
            let is_full = bytes > self.options.packet_bytes
                || answers > self.options.answer_bytes as f64
                || items.len() >= self.options.batch;
            if is_full && !items.is_empty() {
                break;
            }
            call.write(place, items.len() as u16, self.welcome.seed, &mut packet);
            items.push(Some(place));
            call.heads[port] += 1;
        }
        let header = self.header(items.len(), self.options.answer_bytes);
        Some(self.flights.launch(packet, items, port, header, now))
    }

    fn send(&mut self, sequences: &[u64]) -> Result<()> {
        let mut packets = Vec::with_capacity(sequences.len());
        for sequence in sequences {
            if let Some(flight) = self.flights.get(*sequence) {
                packets.push((*sequence, self.welcome.ports[flight.port]));
            }
        }
        let (flights, server) = (&mut self.flights, self.server);
        // A packet at a time is lent, since they lie in one queue.
        let lent: Vec<(Vec<u8>, SocketAddr, usize)> = packets
            .iter()
            .filter_map(|(sequence, port)| {
                let flight = flights.get(*sequence)?;
                let mut address = server;
                address.set_port(*port);
                Some((std::mem::take(&mut flight.packet), address, flight.shares()))
            })
            .collect();
        let most = self.options.packet_bytes;
        let mut outgoing: Vec<_> = lent
            .iter()
            .map(|(bytes, to, shares)| Outgoing {
                bytes,
                to: *to,
                most: bytes.len().max(most),
                shares: *shares,
            })
            .collect();
        let sent = self.link.send(&mut outgoing);
        for ((sequence, _), (packet, ..)) in packets.iter().zip(lent) {
            if let Some(flight) = flights.get(*sequence) {
                flight.packet = packet;
            }
        }
        sent?;
        Ok(())
    }

    /// Takes in one packet.
    fn heed(
        &mut self,
        sender: Option<SocketAddr>,
        packet: &[u8],
        call: &mut Call<'_, '_>,
        hear: &mut impl FnMut(usize, Reply<'_>),
    ) -> Result<Heeded> {
        let is_from_server = sender.is_some_and(|sender| {
            sender.ip() == self.server.ip() && self.welcome.ports.contains(&sender.port())
        });
        let parsed = Header::parse(packet).ok().filter(|_| is_from_server);
        let Some((header, mut body)) = parsed else {
            self.counters.ignored += 1;
            return Ok(Heeded::Nothing);
        };
        match header.kind {
            Kind::Answers if header.cookie == self.cookie => {}
            // Only a hello can be answered so, or a packet that waits.
            Kind::Stranger if self.flights.get(header.sequence).is_some() => {
                return Ok(Heeded::MeetAgain);
            }
            _ => {
                self.counters.ignored += 1;
                return Ok(Heeded::Nothing);
            }
        }
        let mut heeded = Heeded::Nothing;
        for _ in 0..header.count {
            let Ok(heard) = Heard::take(&mut body) else {
                self.counters.ignored += 1;
                break;
            };
            let was_alone = self.flights.get(header.sequence).is_some_and(|f| f.is_alone());
            let Some(place) = self.flights.answer(header.sequence, heard.opaque) else { continue };
            match heard.told {
                Told::Forgotten => return Err(ClientError::Forgotten),
                Told::Outcome(Outcome::NoRoom) if !was_alone => {
                    call.ask_alone(place);
                    continue;
                }
                Told::Outcome(Outcome::Elsewhere) => {
                    // Nothing has changed: it is asked once more when the ports are known anew.
                    call.ask_alone(place);
                    heeded = Heeded::MeetAgain;
                    continue;
                }
                Told::Outcome(_) => {}
            }
            let Some(answer) = heard.answer() else { continue };
            if answer.outcome == Outcome::Found {
                self.expected_value += (heard.value.len() as f64 - self.expected_value) / 16.0;
            }
            call.open -= 1;
            hear(place as usize, Reply { answer, value: heard.value });
        }
        Ok(heeded)
    }

    /// Learns anew where to send, and sends what waits again.
    fn meet_again(&mut self, deadline: Instant) -> Result<()> {
        let met = greet(&mut self.link, self.server, &self.options, deadline, &mut self.slots);
        let (welcome, cookie) = met?;
        self.counters.welcomes += 1;
        let is_another = welcome.instance != self.welcome.instance;
        if is_another {
            let first = RandomState::new().hash_one(2) >> 1;
            self.flights = Flights::new(welcome.ports.len(), first);
        }
        (self.welcome, self.cookie, self.met) = (welcome, cookie, Instant::now());
        if is_another {
            return Err(ClientError::Restarted);
        }
        self.flights.use_cookie(cookie);
        let all = self.flights.overdue(Instant::now(), true);
        self.counters.again += all.len() as u64;
        self.send(&all)
    }
}

/// A port to reach a server from.
fn open(server: SocketAddr, options: &ClientOptions) -> Result<Link> {
    let anywhere: SocketAddr = match (server.is_ipv4(), server.ip().is_loopback()) {
        // So that nobody else can send to it.
        (true, true) => ([127, 0, 0, 1], 0).into(),
        (true, false) => ([0, 0, 0, 0], 0).into(),
        (false, true) => (std::net::Ipv6Addr::LOCALHOST, 0).into(),
        (false, false) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // So that both ends have work.
    let train = options.train.min(options.window.div_ceil(2));
    let Some((interface, number)) = &options.xdp else {
        return Ok(Link::new(UdpSocket::bind(anywhere)?, None, STEP, train)?);
    };
    // Our address is that from which the server is reached.
    let probe = UdpSocket::bind(anywhere)?;
    probe.connect(server)?;
    let socket = UdpSocket::bind((probe.local_addr()?.ip(), 0))?;
    let SocketAddr::V4(here) = socket.local_addr()? else { return Err(ClientError::NoAddress) };
    let interface = Interface::take(interface, *here.ip(), &[here.port()])?;
    let queue = Queue::open(&interface, *number, here)?;
    Ok(Link::new(socket, Some(queue), STEP, train)?)
}

/// What a packet asks the client to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heeded {
    Nothing,
    MeetAgain,
}

/// What counts of two packets: the first error, else that the server is to be met again.
fn joined(first: Result<Heeded>, then: Result<Heeded>) -> Result<Heeded> {
    match first? {
        Heeded::Nothing => then,
        Heeded::MeetAgain => then.map(|_| Heeded::MeetAgain),
    }
}

/// What is under way in a call.
struct Call<'c, 'a> {
    asks: &'c [(&'a [u8], Action<'a>)],
    wants_meta: bool,
    /// Requests by port, and how many of each have gone.
    queues: Vec<Vec<u32>>,
    heads: Vec<usize>,
    /// Requests that are to go alone, with all the room there is.
    alone: Vec<u32>,
    open: usize,
}

impl Call<'_, '_> {
    fn write(&self, place: u32, opaque: u16, seed: u64, packet: &mut Vec<u8>) {
        let (key, action) = self.asks[place as usize];
        let request = Request { hash: hash64_seeded(key, seed), key, action };
        Asked { request, opaque, wants_meta: self.wants_meta }.write(packet);
    }

    fn ask_alone(&mut self, place: u32) {
        self.alone.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer that the server has forgotten is gone for good: a packet behind it does not mend that.
    #[test]
    fn an_error_is_told_whatever_is_heard_after_it() {
        let forgotten = || Err(ClientError::Forgotten);
        for other in [Ok(Heeded::Nothing), Ok(Heeded::MeetAgain), Err(ClientError::NoAddress)] {
            assert!(matches!(joined(forgotten(), other), Err(ClientError::Forgotten)));
        }
        for other in [Heeded::Nothing, Heeded::MeetAgain] {
            assert!(matches!(joined(Ok(other), forgotten()), Err(ClientError::Forgotten)));
            assert_eq!(joined(Ok(other), Ok(Heeded::Nothing)).unwrap(), other);
            assert_eq!(joined(Ok(Heeded::MeetAgain), Ok(other)).unwrap(), Heeded::MeetAgain);
        }
    }
}
