//! The client: connecting, and calls of one or many requests.
//!
//! ```text
//! requests ─ hash ─ port of the partition ─ packets, up to `window` per port ──▶ server
//!                                                │ retransmitted after a timeout    │
//! replies to the caller ◀─ by sequence number and position in the packet ◀──────────┘
//! ```
//!
//! This file has the API, and `exchange` sends and receives the packets of a call.
//!
//! A packet takes as many requests as fit, including the expected size of their responses. A value
//! that did not fit in its response is requested again, alone and with the maximum response size.
//!
//! Source: Lim, thesis, section 5.3.2, "Client-Assisted Hardware Request Direction".

mod exchange;

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use siltstone_engine::{MAX_KEY_BYTES, Timestamp};
use siltstone_mica::{Action, Answer, Outcome, Value};

use crate::error::{ClientError, Result};
use crate::handshake::handshake;
use crate::in_flight::InFlight;
use crate::link::Link;
use crate::mmsg::MAX_MESSAGES;
use crate::options::ClientOptions;
use crate::recv_buffer::{RECV_BUFFER_BYTES, RecvBuffer};
use crate::wire::hello::{self, Welcome};
use crate::wire::request;
use crate::wire::{HEADER_BYTES, MAX_PACKET_BYTES};
use crate::xdp::{Interface, Queue};
use exchange::Call;

/// Blocking time of a receive, hence the precision of retransmission timeouts.
const POLL_TIMEOUT: Duration = Duration::from_millis(2);

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
