//! Software direction: requests that came to the wrong port.
//!
//! By default a client sends each request to its partition's port, and one at the wrong port is
//! refused. With `--udp-direction any` a server takes them anywhere and its threads hand each over
//! to its owner, as a packet of the same number that has only the owner's requests. That is how a
//! server must do that has simple clients, and what the thesis compares with (table 5.1).
//!
//! ```text
//! thread of port 0 ── packet: 3 requests of its own, 2 of port 1's ──▶ does 3, answers 3
//!                                   └─ parcel of 2 ─▶ inbox of port 1 ─▶ does 2, answers 2
//! ```
//!
//! Invariant: an inbox has a limit; what is beyond it is dropped as a network drops, and the client
//! sends it again.
//!
//! Source: thesis, section 5.4.5, "Network stack": there DPDK's queues between cores.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use siltstone_client::link::{self, Link};
use siltstone_client::wire::{HEADER_BYTES, Header};

/// Parcels that may wait for a thread.
const MAX_WAITING: usize = 1024;

/// A packet of requests that another thread has taken in.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(super) packet: Vec<u8>,
    pub(super) sender: SocketAddr,
}

/// What is to be handed over after a burst, by port.
#[derive(Default)]
pub(crate) struct Parcels {
    /// Those of the packet that is being read.
    open: Vec<(usize, Header, Handed)>,
    header: Option<(Header, SocketAddr)>,
    ready: Vec<(usize, Handed)>,
}

impl Parcels {
    /// Begins with a packet.
    pub(super) fn begin(&mut self, header: Header, sender: SocketAddr) {
        self.open.clear();
        self.header = Some((header, sender));
    }

    /// Adds a request, as it stands in its packet, to the parcel for a port.
    pub(super) fn add(&mut self, port: usize, request: &[u8]) {
        let at = self.open.iter().position(|(to, ..)| *to == port).unwrap_or_else(|| {
            if let Some((header, sender)) = self.header {
                let packet = vec![0; HEADER_BYTES];
                let header = Header { count: 0, ..header };
                self.open.push((port, header, Handed { packet, sender }));
            }
            self.open.len() - 1
        });
        let (_, header, handed) = &mut self.open[at];
        header.count += 1;
        handed.packet.extend_from_slice(request);
    }

    /// Forgets the parcels of a packet that turned out to be none.
    pub(super) fn drop_last(&mut self) {
        self.open.clear();
    }

    /// Makes the parcels of a packet ready.
    pub(super) fn finish(&mut self) {
        for (port, header, mut handed) in self.open.drain(..) {
            header.write(&mut handed.packet);
            self.ready.push((port, handed));
        }
    }

    /// What is ready, by port.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (usize, Handed)> {
        self.ready.drain(..)
    }
}

/// Where a thread gets parcels.
pub(super) struct Inbox {
    waiting: Mutex<Vec<Handed>>,
    /// The thread sleeps, or is about to.
    sleeps: AtomicBool,
    bell: OwnedFd,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Inbox { waiting: Mutex::default(), sleeps: AtomicBool::new(false), bell })
    }

    /// Puts parcels in, as far as there is room; how many.
    pub(super) fn put(&self, parcels: &mut Vec<Handed>) -> usize {
        let mut waiting = self.waiting.lock();
        let count = parcels.len().min(MAX_WAITING.saturating_sub(waiting.len()));
        waiting.extend(parcels.drain(..count));
        drop(waiting);
        parcels.clear();
        if self.sleeps.swap(false, SeqCst) {
            // A bell that cannot be rung is ringing.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
        count
    }

    /// Takes all parcels out.
    pub(super) fn take(&self, into: &mut Vec<Handed>) {
        into.clear();
        std::mem::swap(into, &mut self.waiting.lock());
    }

    /// Sleeps until a packet or a parcel comes, or for so long.
    pub(super) fn sleep(&self, link: &Link, most: Duration) -> io::Result<()> {
        self.sleeps.store(true, SeqCst);
        if !self.waiting.lock().is_empty() {
            self.sleeps.store(false, SeqCst);
            return Ok(());
        }
        let fds: Vec<_> = link.fds().chain([self.bell.as_fd()]).collect();
        link::sleep(&fds, most)?;
        self.sleeps.store(false, SeqCst);
        // Silent again; it may not have rung.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        Ok(())
    }
}
