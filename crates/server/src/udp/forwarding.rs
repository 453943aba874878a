//! Request forwarding between ports ("software direction").
//!
//! By default a client sends each request to its partition's port, and a request at the wrong port
//! is rejected. With `--udp-direction any` every port takes every request, and its thread forwards
//! each to its owner, in a packet of the same number with only the owner's requests. Simple clients
//! need this; the thesis compares both (table 5.1).
//!
//! ```text
//! thread of port 0 ── packet: 3 requests of port 0, 2 of port 1 ──▶ executes and answers 3
//!                                   └─ forwards 2 ─▶ inbox of port 1 ─▶ executes and answers 2
//! ```
//!
//! Invariant: an inbox is bounded; excess packets are dropped as by a network, and retransmitted by
//! the client.
//!
//! Source: Lim, thesis, section 5.4.5, "Network stack", which uses DPDK's queues between cores.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use siltstone_client::link::{self, Link};
use siltstone_client::wire::{HEADER_BYTES, Header};

/// Maximum forwarded packets waiting for a thread.
const MAX_QUEUED_PACKETS: usize = 1024;

/// A packet of requests forwarded by another thread.
#[derive(Debug)]
pub(crate) struct ForwardedPacket {
    pub(super) packet: Vec<u8>,
    pub(super) sender: SocketAddr,
}

/// Requests to forward after a burst, by port.
#[derive(Default)]
pub(crate) struct ForwardQueue {
    /// The parts to forward of the packet being read, by port.
    open: Vec<(usize, Header, ForwardedPacket)>,
    header: Option<(Header, SocketAddr)>,
    ready: Vec<(usize, ForwardedPacket)>,
}

impl ForwardQueue {
    /// Begins a packet.
    pub(super) fn begin(&mut self, header: Header, sender: SocketAddr) {
        self.open.clear();
        self.header = Some((header, sender));
    }

    /// Adds an encoded request for a port.
    pub(super) fn add(&mut self, port: usize, request: &[u8]) {
        let at = self.open.iter().position(|(to, ..)| *to == port).unwrap_or_else(|| {
            if let Some((header, sender)) = self.header {
                let packet = vec![0; HEADER_BYTES];
                let header = Header { count: 0, ..header };
                self.open.push((port, header, ForwardedPacket { packet, sender }));
            }
            self.open.len() - 1
        });
        let (_, header, forwarded) = &mut self.open[at];
        header.count += 1;
        forwarded.packet.extend_from_slice(request);
    }

    /// Discards the requests of a packet that turned out malformed.
    pub(super) fn discard_open(&mut self) {
        self.open.clear();
    }

    /// Completes the forwarded packets of a packet.
    pub(super) fn finish(&mut self) {
        for (port, header, mut forwarded) in self.open.drain(..) {
            header.write(&mut forwarded.packet);
            self.ready.push((port, forwarded));
        }
    }

    /// Takes the completed packets with their ports.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (usize, ForwardedPacket)> {
        self.ready.drain(..)
    }
}

/// Inbox of a thread for forwarded packets.
pub(super) struct Inbox {
    waiting: Mutex<Vec<ForwardedPacket>>,
    /// The thread is blocked, or about to block.
    is_blocked: AtomicBool,
    wakeup: OwnedFd,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Inbox { waiting: Mutex::default(), is_blocked: AtomicBool::new(false), wakeup })
    }

    /// Adds packets up to the limit, and returns their number.
    pub(super) fn push(&self, forwards: &mut Vec<ForwardedPacket>) -> usize {
        let mut waiting = self.waiting.lock();
        let count = forwards.len().min(MAX_QUEUED_PACKETS.saturating_sub(waiting.len()));
        waiting.extend(forwards.drain(..count));
        drop(waiting);
        forwards.clear();
        if self.is_blocked.swap(false, SeqCst) {
            // If the write fails, the counter is already non-zero.
            let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
        }
        count
    }

    /// Takes all packets.
    pub(super) fn take(&self, into: &mut Vec<ForwardedPacket>) {
        into.clear();
        std::mem::swap(into, &mut self.waiting.lock());
    }

    /// Blocks until a packet arrives, for up to `timeout`.
    pub(super) fn wait(&self, link: &Link, timeout: Duration) -> io::Result<()> {
        self.is_blocked.store(true, SeqCst);
        if !self.waiting.lock().is_empty() {
            self.is_blocked.store(false, SeqCst);
            return Ok(());
        }
        let fds: Vec<_> = link.fds().chain([self.wakeup.as_fd()]).collect();
        link::wait_readable(&fds, timeout)?;
        self.is_blocked.store(false, SeqCst);
        // Resets the counter, which may be zero.
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        Ok(())
    }
}
