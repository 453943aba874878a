//! A UDP port: its socket, and a queue past the kernel where there is one.
//!
//! ```text
//! receive   queue or socket, for so long without sleeping ─ then all there is, asleep
//! send      queue, many packets in a frame ── too large, or to somebody unheard ──▶ socket
//! ```
//!
//! With a queue most datagrams come by it. Some come by the socket still (fragments, other interfaces),
//! so it is looked at now and then, and both wake a thread that sleeps. Before it sleeps a thread looks
//! for a while (`looks`), without a queue at its socket.
//!
//! Source: ours.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::bundle;
use crate::looks::Looks;
use crate::mmsg::{Bursts, MAX_BURST};
use crate::segments::Outgoing;
use crate::slot::Slot;
use crate::xdp::Queue;

/// The socket is looked at once in so many times that the queue has something.
const SOCKET_TURN: u32 = 64;
/// How often the queue is looked at between two looks at the clock.
const LOOKS: usize = 32;

/// A UDP port.
pub struct Link {
    socket: Bursts,
    queue: Option<Box<Queue>>,
    /// How long to sleep for a datagram.
    patience: Duration,
    /// The most packets that go together.
    train: usize,
    turn: u32,
    looks: Looks,
}

impl Link {
    /// A port; receiving waits for so long. So many packets go together at most: the socket sends their
    /// datagrams as one, and takes in as one what came so; the queue sends them in one frame. 1 for none.
    ///
    /// # Errors
    /// What the socket says.
    pub fn new(
        socket: UdpSocket,
        queue: Option<Queue>,
        patience: Duration,
        train: usize,
    ) -> io::Result<Self> {
        let socket = Bursts::new(socket, patience, train)?;
        let queue = queue.map(Box::new);
        Ok(Link { socket, queue, patience, train, turn: 0, looks: Looks::new() })
    }

    /// Bytes of the largest datagram that goes past the kernel, if any does.
    pub fn payload_bytes(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.payload_bytes())
    }

    /// What wakes a thread that waits for datagrams.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.socket.as_fd()].into_iter().chain(self.queue.as_ref().map(|queue| queue.as_fd()))
    }

    /// As [`Bursts::receive`].
    ///
    /// # Errors
    /// As [`Bursts::receive`].
    pub fn receive(&mut self, slots: &mut [Slot], waits: bool) -> io::Result<usize> {
        let looks = waits && self.looks.begin(Instant::now());
        let Some(queue) = &mut self.queue else {
            if !looks {
                return self.socket.receive(slots, waits);
            }
            loop {
                let count = self.socket.receive(slots, false)?;
                if count > 0 {
                    return Ok(count);
                }
                if !self.looks.goes_on(Instant::now()) {
                    return self.socket.receive(slots, true);
                }
                // Whoever is to send may need this core.
                std::thread::yield_now();
                self.looks.came_back(Instant::now());
            }
        };
        let slots = &mut slots[..MAX_BURST];
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(SOCKET_TURN) {
            let count = self.socket.receive(slots, false)?;
            if count > 0 {
                return Ok(count);
            }
        }
        loop {
            for _ in 0..LOOKS {
                let count = queue.receive(slots);
                if count > 0 {
                    return Ok(count);
                }
                std::hint::spin_loop();
            }
            if !looks || !self.looks.goes_on(Instant::now()) {
                break;
            }
        }
        if waits {
            sleep(&[self.socket.as_fd(), queue.as_fd()], self.patience)?;
        }
        match queue.receive(slots) {
            0 => self.socket.receive(slots, false),
            count => Ok(count),
        }
    }

    /// As [`Bursts::send`].
    ///
    /// # Errors
    /// As [`Bursts::send`].
    pub fn send(&mut self, packets: &mut [Outgoing<'_>]) -> io::Result<usize> {
        let Some(queue) = &mut self.queue else { return self.socket.send(packets) };
        let (mut rest, mut others) = (&packets[..], Vec::new());
        while !rest.is_empty() {
            let count = bundle::first(rest, self.train, queue.payload_bytes());
            let (together, behind) = rest.split_at(count);
            if !queue.send(together) {
                others.extend_from_slice(together);
            }
            rest = behind;
        }
        queue.flush()?;
        Ok(packets.len() - others.len() + self.socket.send(&mut others)?)
    }
}

/// Sleeps until one of these can be read, or for so long.
///
/// # Errors
/// What the system says; an interruption is none.
pub fn sleep(fds: &[BorrowedFd<'_>], most: Duration) -> io::Result<()> {
    let mut fds: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    match poll(&mut fds, Some(&timeout)) {
        Err(rustix::io::Errno::INTR) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
