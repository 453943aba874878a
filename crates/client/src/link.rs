//! A UDP port: a socket and, optionally, an AF_XDP queue that bypasses the kernel's network stack.
//!
//! ```text
//! receive   poll queue or socket without blocking ─▶ then block on both
//! send      queue, packets coalesced in frames ── too large, or unknown neighbour ──▶ socket
//! ```
//!
//! With a queue, most datagrams arrive through it. Fragments and datagrams of other interfaces
//! still arrive at the socket, so it is polled once per 64 receives, and both wake a blocked
//! thread. Whether a thread polls before it blocks is decided by `AdaptivePoller`.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::adaptive_poll::AdaptivePoller;
use crate::coalesce;
use crate::gso::OutPacket;
use crate::mmsg::{BatchSocket, MAX_MESSAGES};
use crate::recv_buffer::RecvBuffer;
use crate::xdp::Queue;

/// Receives per poll of the socket, where there is a queue.
const RECEIVES_PER_SOCKET_POLL: u32 = 64;
/// Polls of the queue between two reads of the clock.
const POLLS_PER_CLOCK_READ: usize = 32;

/// A UDP port.
pub struct Link {
    socket: BatchSocket,
    queue: Option<Box<Queue>>,
    /// Maximum time to block for a datagram.
    timeout: Duration,
    /// Maximum packets per GSO batch or per frame.
    max_batch: usize,
    receives: u32,
    poller: AdaptivePoller,
}

impl Link {
    /// A port whose `receive` blocks for up to `timeout`. Up to `max_batch` packets to one address
    /// are sent together: by the socket as one GSO batch, by the queue in one frame. 1 disables
    /// this, and GRO.
    ///
    /// # Errors
    /// If a socket option cannot be set.
    pub fn new(
        socket: UdpSocket,
        queue: Option<Queue>,
        timeout: Duration,
        max_batch: usize,
    ) -> io::Result<Self> {
        let socket = BatchSocket::new(socket, timeout, max_batch)?;
        let queue = queue.map(Box::new);
        Ok(Link { socket, queue, timeout, max_batch, receives: 0, poller: AdaptivePoller::new() })
    }

    /// Maximum payload of a datagram that bypasses the kernel, if there is a queue.
    pub fn payload_bytes(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.payload_bytes())
    }

    /// File descriptors that become readable when datagrams arrive.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.socket.as_fd()].into_iter().chain(self.queue.as_ref().map(|queue| queue.as_fd()))
    }

    /// As [`BatchSocket::receive`].
    ///
    /// # Errors
    /// As [`BatchSocket::receive`].
    pub fn receive(&mut self, buffers: &mut [RecvBuffer], waits: bool) -> io::Result<usize> {
        let polls = waits && self.poller.begin(Instant::now());
        let Some(queue) = &mut self.queue else {
            if !polls {
                return self.socket.receive(buffers, waits);
            }
            loop {
                let count = self.socket.receive(buffers, false)?;
                if count > 0 {
                    return Ok(count);
                }
                if !self.poller.should_poll(Instant::now()) {
                    return self.socket.receive(buffers, true);
                }
                // The sender may need this core.
                std::thread::yield_now();
                self.poller.record_yield(Instant::now());
            }
        };
        let buffers = &mut buffers[..MAX_MESSAGES];
        self.receives = self.receives.wrapping_add(1);
        if self.receives.is_multiple_of(RECEIVES_PER_SOCKET_POLL) {
            let count = self.socket.receive(buffers, false)?;
            if count > 0 {
                return Ok(count);
            }
        }
        loop {
            for _ in 0..POLLS_PER_CLOCK_READ {
                let count = queue.receive(buffers);
                if count > 0 {
                    return Ok(count);
                }
                std::hint::spin_loop();
            }
            if !polls || !self.poller.should_poll(Instant::now()) {
                break;
            }
        }
        if waits {
            wait_readable(&[self.socket.as_fd(), queue.as_fd()], self.timeout)?;
        }
        match queue.receive(buffers) {
            0 => self.socket.receive(buffers, false),
            count => Ok(count),
        }
    }

    /// As [`BatchSocket::send`].
    ///
    /// # Errors
    /// As [`BatchSocket::send`].
    pub fn send(&mut self, packets: &mut [OutPacket<'_>]) -> io::Result<usize> {
        let Some(queue) = &mut self.queue else { return self.socket.send(packets) };
        let (mut rest, mut others) = (&packets[..], Vec::new());
        while !rest.is_empty() {
            let count = coalesce::packets_per_datagram(rest, self.max_batch, queue.payload_bytes());
            let (together, remaining) = rest.split_at(count);
            if !queue.send(together) {
                others.extend_from_slice(together);
            }
            rest = remaining;
        }
        queue.flush()?;
        Ok(packets.len() - others.len() + self.socket.send(&mut others)?)
    }
}

/// Blocks until one of `fds` is readable, for up to `timeout`.
///
/// # Errors
/// System errors; an interruption is not one.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<()> {
    let mut fds: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout =
        Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    match poll(&mut fds, Some(&timeout)) {
        Err(rustix::io::Errno::INTR) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
