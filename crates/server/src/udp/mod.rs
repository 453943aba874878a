//! A `mica` table over UDP: a port for each thread, requests in bursts, a thread for each port.
//!
//! ```text
//! recvmmsg ─▶ packets ─ cookie? ─ done before? ─▶ requests of all of them ─▶ Store::burst
//!    ▲                    │ no        │ yes                                      │ values go straight
//!    │                    ▼           ▼                                          ▼ into the packets
//!    └── sendmmsg ◀── stranger ── the same answers again ◀── memory ◀────── answers
//! ```
//!
//! Partition p belongs to port p modulo the number of ports. Under EREW a port's thread is the only
//! one that touches its partitions, unless RESP or memcached's clients use the table too; the lock of
//! a partition is then one that nobody else wants.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`port`] | a thread and its socket: receive, do, send |
//! | [`burst`] | packets to requests to answers, with no socket |
//! | [`sessions`] | what each client was answered, until it says that it has heard |
//! | [`cookie`] | who has proved its address |
//! | [`handover`] | software direction: requests that came to the wrong port |
//!
//! # What is promised
//! * A request is done once, however often its packet comes: a packet that comes again gets the first
//!   answer. If that was forgotten (its client had a thousand packets under way, or thousands of
//!   other clients came since), nothing is done and the client is told so.
//! * Whoever has not proved its address gets no more bytes than it sent ([`siltstone_client::wire`]).
//! * A keyhash is checked against its key, so no client can hide a key from others.
//! * Single operations are atomic with those of RESP's and memcached's clients
//!   ([`crate::store::locks`]).
//! * Bytes that are no packet are dropped and counted; they change nothing and hold no memory.
//!
//! Source: thesis, sections 5.3.1 and 5.3.2. Where it uses Intel's DPDK and the network card's Flow
//! Director to reach a core by the port's number, each core here has a socket bound to a port.

mod burst;
mod cookie;
mod handover;
pub(crate) mod port;
mod sessions;

pub(crate) use burst::{Answers, Desk, Incoming};
pub(crate) use cookie::Cookies;
pub(crate) use handover::Parcels;
pub(crate) use port::Ports;

use std::sync::atomic::AtomicU64;

/// What is counted, of all ports together.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    /// Packets of requests that were done.
    pub(crate) packets: AtomicU64,
    /// Requests in them.
    pub(crate) requests: AtomicU64,
    /// Datagrams that were no packets.
    pub(crate) malformed: AtomicU64,
    /// Packets without the right cookie, password or version.
    pub(crate) strangers: AtomicU64,
    /// Packets that came again.
    pub(crate) again: AtomicU64,
    /// Requests that were handed over to another port's thread.
    pub(crate) handed: AtomicU64,
}
