//! A `mica` table over UDP: one thread and port per group of partitions, requests in bursts.
//!
//! ```text
//! recvmmsg ─▶ packets ─ cookie? ─ duplicate? ─▶ requests of all packets ─▶ Store::burst
//!    ▲                    │ no        │ yes                                   │ values are copied
//!    │                    ▼           ▼                                       ▼ into the packets
//!    └─ sendmmsg ◀── unverified ── cached response ◀── cache ◀───────── responses
//! ```
//!
//! Partition p belongs to port p modulo the number of ports. Under EREW a port's thread is the only
//! one that uses its partitions, unless Redis or memcached clients use the table too; the
//! partition's lock is then uncontended.
//!
//! | module | contents |
//! | --- | --- |
//! | [`port`] | a thread and its socket: receive, process, send |
//! | [`burst`] | from packets to requests to responses, without sockets |
//! | [`incoming`] | received and forwarded packets |
//! | [`responses`] | response packets: buffers and positions |
//! | [`sessions`] | response cache per client, for duplicates |
//! | [`cookie`] | address validation |
//! | [`forwarding`] | forwarding of requests between ports |
//!
//! # Guarantees
//! - A request is executed once, however often its packet arrives: a duplicate gets the first
//!   response. If that was evicted (its client had a thousand packets in flight, or thousands of
//!   other clients were served since), nothing is executed, and the response says so.
//! - A client that has not completed address validation gets no more bytes than it sent
//!   ([`siltstone_client::wire`]).
//! - A key hash is checked against its key, so no client can hide a key from others.
//! - Single operations are atomic with those of Redis and memcached clients
//!   ([`crate::store::locks`]).
//! - Malformed datagrams are dropped and counted; they change nothing and use no memory.
//!
//! Source: Lim, thesis, sections 5.3.1 and 5.3.2. It uses Intel's DPDK and the network card's Flow
//! Director to reach a core by port number; here each core has a socket bound to a port.

mod burst;
mod cookie;
mod forwarding;
mod incoming;
pub(crate) mod port;
mod responses;
mod sessions;

pub(crate) use burst::BurstProcessor;
pub(crate) use cookie::Cookies;
pub(crate) use forwarding::ForwardQueue;
pub(crate) use incoming::IncomingPacket;
pub(crate) use port::Ports;
pub(crate) use responses::Responses;

use std::sync::atomic::AtomicU64;

/// Counters of all ports.
#[derive(Debug, Default)]
pub(crate) struct UdpCounters {
    /// Packets of requests executed.
    pub(crate) packets: AtomicU64,
    /// Requests in them.
    pub(crate) requests: AtomicU64,
    /// Malformed datagrams.
    pub(crate) malformed: AtomicU64,
    /// Packets without a valid cookie, password or version.
    pub(crate) unverified: AtomicU64,
    /// Duplicate packets.
    pub(crate) duplicates: AtomicU64,
    /// Requests forwarded to another port's thread.
    pub(crate) forwarded: AtomicU64,
}
