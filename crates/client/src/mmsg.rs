//! Datagrams in bursts: many with one call of the system, and where the system can, many as one.
//!
//! [`Bursts::receive`] takes what has come, up to as many slots as there are; [`Bursts::send`] sends. A
//! call costs about a microsecond, and a way through the system's network as much again, so bursts
//! matter under load: a core that is busier finds more at once. Where the system has trains
//! ([`crate::segments`]) a burst to one address goes that way once.
//!
//! Invariant: every pointer that is given to the system lives in this function's frame or in what it
//! borrows, and the call does not keep it.
//!
//! Source: thesis, section 5.3.2, "Burst packet I/O"; Linux's recvmmsg(2), sendmmsg(2), udp(7).

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::address::Raw;
use crate::segments::{MAX_PADDING, MAX_SEGMENTS, Outgoing, Segments, Train};
use crate::slot::Slot;

/// The most messages of the system in a burst.
pub const MAX_BURST: usize = 32;

/// What stands behind packets that are shorter than others of their train.
static ZEROS: [u8; MAX_PADDING] = [0; MAX_PADDING];

/// Room for the system's word on a message: one number.
const CONTROL_WORDS: usize = 4;
type Control = [u64; CONTROL_WORDS];

/// A socket.
pub struct Bursts {
    socket: UdpSocket,
    segments: Segments,
    takes_trains: bool,
}

impl Bursts {
    /// A socket that waits so long for datagrams. Sends so many as one at most, if the system can, and
    /// takes in as one what came so; 1 for neither.
    ///
    /// # Errors
    /// What the socket says. That the system has no trains is none.
    pub fn new(socket: UdpSocket, patience: Duration, train: usize) -> io::Result<Self> {
        socket.set_read_timeout(Some(patience))?;
        let wants = train > 1;
        // No length for all datagrams, but a system without trains does not know the word.
        let sends_trains = wants && set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        let takes_trains = wants && set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        let segments = Segments::new(if sends_trains { train } else { 1 });
        Ok(Bursts { socket, segments, takes_trains })
    }

    /// Takes datagrams that have come into slots, from the first on; how many slots. Waits for the first
    /// if `waits`, as long as the socket's patience. 0 if none came.
    ///
    /// # Errors
    /// What the socket says; a timeout, an interruption and a refusal of something sent before are none.
    pub fn receive(&self, slots: &mut [Slot], waits: bool) -> io::Result<usize> {
        let count = slots.len().min(MAX_BURST);
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_BURST];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_BURST];
        let mut controls: [Control; MAX_BURST] = [[0; CONTROL_WORDS]; MAX_BURST];
        let each = slots.iter_mut().zip(&mut parts).zip(&mut messages).zip(&mut controls);
        for (((slot, part), message), control) in each {
            slot.raw = Raw::EMPTY;
            let (base, len) = (slot.buffer.as_mut_ptr().cast(), slot.buffer.len());
            let part = part.write(libc::iovec { iov_base: base, iov_len: len });
            let name = slot.raw.bytes.as_mut_ptr().cast();
            let mut header = header(name, 32, part, 1);
            if self.takes_trains {
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = size_of::<Control>();
            }
            message.write(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
        let flags = if waits { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: the first `count` messages are written, and point to parts, addresses, controls and
        // buffers that are borrowed mutably until after the call; lengths are of what is pointed to.
        let received = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr().cast(),
                count as libc::c_uint,
                flags,
                std::ptr::null_mut(),
            )
        };
        if received < 0 {
            let error = io::Error::last_os_error();
            return if is_transient(&error) { Ok(0) } else { Err(error) };
        }
        let received = (received as usize).min(count);
        for (slot, message) in slots.iter_mut().zip(&messages[..received]) {
            // SAFETY: this message was written above.
            let message = unsafe { message.assume_init_ref() };
            let is_whole = message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            let len = if is_whole { message.msg_len as usize } else { 0 };
            // SAFETY: the control of this message is borrowed mutably for the array, which lives.
            let segment = unsafe { gathered(&message.msg_hdr) };
            slot.set(len, segment);
        }
        Ok(received)
    }

    /// Sends datagrams, those to one address in their order; how many went. What the socket does not take
    /// for now is lost like any datagram.
    ///
    /// # Errors
    /// What the socket says of the first that it refuses.
    pub fn send(&mut self, packets: &mut [Outgoing<'_>]) -> io::Result<usize> {
        // So that those to one address are neighbours. Mostly they are.
        packets.sort_by_key(|packet| packet.to);
        let (mut rest, mut sent, mut alone) = (&*packets, 0, 0);
        while !rest.is_empty() {
            let mut trains = [Train::default(); MAX_BURST];
            let (mut count, mut riding) = (0, 0);
            while count < MAX_BURST && riding < rest.len().min(MAX_SEGMENTS) {
                let ahead = &rest[riding..rest.len().min(MAX_SEGMENTS)];
                trains[count] = match riding < alone {
                    true => Train { count: 1, segment: ahead[0].bytes.len() },
                    false => self.segments.next(ahead),
                };
                riding += trains[count].count;
                count += 1;
            }
            let gone = match self.send_trains(rest, &trains[..count]) {
                Ok(gone) => {
                    let gone = trains[..gone].iter().map(|train| train.count).sum();
                    sent += gone;
                    gone
                }
                Err(error) if is_transient(&error) => trains[0].count,
                Err(error) if trains[0].count > 1 => {
                    // This path takes no such trains; what is wrong besides shows without them.
                    let takes_none = error.raw_os_error() == Some(libc::EIO);
                    self.segments.refused(if takes_none { 0 } else { trains[0].segment });
                    alone = trains[0].count;
                    continue;
                }
                Err(error) => return Err(error),
            };
            rest = &rest[gone..];
            alone = alone.saturating_sub(gone);
        }
        Ok(sent)
    }

    /// Sends trains of the first of these packets; how many trains went.
    fn send_trains(&self, packets: &[Outgoing<'_>], trains: &[Train]) -> io::Result<usize> {
        let mut names = [Raw::EMPTY; MAX_BURST];
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; 2 * MAX_SEGMENTS];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_BURST];
        let mut controls: [Control; MAX_BURST] = [[0; CONTROL_WORDS]; MAX_BURST];
        let (mut packets, mut parts) = (packets.iter(), &mut parts[..]);
        for (at, train) in trains.iter().enumerate() {
            let mut used = 0;
            let mut last = 0;
            for packet in packets.by_ref().take(train.count) {
                if used == 0 {
                    names[at] = Raw::of(packet.to);
                } else if last < train.segment {
                    parts[used].write(part(&ZEROS[..train.segment - last]));
                    used += 1;
                }
                parts[used].write(part(packet.bytes));
                (used, last) = (used + 1, packet.bytes.len());
            }
            let (these, others) = std::mem::take(&mut parts).split_at_mut(used);
            parts = others;
            let name = names[at].bytes.as_mut_ptr().cast();
            let mut header = header(name, names[at].len, these.as_mut_ptr().cast(), used);
            if train.count > 1 {
                header.msg_control = controls[at].as_mut_ptr().cast();
                // SAFETY: it computes a length.
                header.msg_controllen = unsafe { libc::CMSG_SPACE(2) } as usize;
                // SAFETY: the control has room for two bytes of content, as its length says.
                unsafe { cut_into(&header, train.segment as u16) };
            }
            messages[at].write(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
        // SAFETY: the first messages, as many as there are trains, are written, and point to parts,
        // addresses and controls in this frame, to zeros that live for ever, and to packets that are
        // borrowed; sending does not write to them.
        let sent = unsafe {
            let messages = messages.as_mut_ptr().cast();
            libc::sendmmsg(self.socket.as_raw_fd(), messages, trains.len() as libc::c_uint, 0)
        };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok((sent as usize).min(trains.len()))
        }
    }
}

impl AsFd for Bursts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets a number of the socket.
fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: the value is an int, as its length says, and lives until the call returns.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has a message cut into datagrams of so many bytes.
///
/// # Safety
/// The header's control must be all of it writable, aligned for its header, and have room for two bytes.
unsafe fn cut_into(header: &libc::msghdr, segment: u16) {
    // SAFETY: there is room for the control's header and for what it says, by this function's promise.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header);
        (*control).cmsg_level = libc::SOL_UDP;
        (*control).cmsg_type = libc::UDP_SEGMENT;
        (*control).cmsg_len = libc::CMSG_LEN(2) as usize;
        libc::CMSG_DATA(control).cast::<u16>().write_unaligned(segment);
    }
}

/// What the system says of the length of the datagrams in a message, if it gathered any.
///
/// # Safety
/// The header's control, as long as it says, must be readable and aligned for its header.
unsafe fn gathered(header: &libc::msghdr) -> Option<i32> {
    // SAFETY: null, or the first control, whole, which lies where the header says; nothing is read
    // behind the length that it gives itself.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header).as_ref()?;
        let is_length = control.cmsg_level == libc::SOL_UDP && control.cmsg_type == libc::UDP_GRO;
        let is_whole = control.cmsg_len >= libc::CMSG_LEN(4) as usize
            && header.msg_controllen >= libc::CMSG_LEN(4) as usize;
        let data = libc::CMSG_DATA(control).cast::<i32>();
        (is_length && is_whole).then(|| data.read_unaligned())
    }
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn header(
    name: *mut libc::c_void,
    name_len: libc::socklen_t,
    parts: *mut libc::iovec,
    count: usize,
) -> libc::msghdr {
    libc::msghdr {
        msg_name: name,
        msg_namelen: name_len,
        msg_iov: parts,
        msg_iovlen: count,
        msg_control: std::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    }
}

/// Nothing came, the socket is full, or somebody to whom something was sent before is not there.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock | ConnectionRefused)
        || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Sends packets of these lengths from one socket to another, with so long trains at both ends; how
    /// many slots they came in.
    fn travel(address: &str, trains: [usize; 2], lens: &[usize], grows: usize) -> Option<usize> {
        let (Ok(here), Ok(there)) = (UdpSocket::bind(address), UdpSocket::bind(address)) else {
            println!("skipped: {address} is not to be had");
            return None;
        };
        let (from, to) = (here.local_addr().unwrap(), there.local_addr().unwrap());
        let mut here = Bursts::new(here, PATIENCE, trains[0]).unwrap();
        let there = Bursts::new(there, PATIENCE, trains[1]).unwrap();
        let packets: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(at, len)| vec![at as u8 + 1; *len]).collect();
        let mut outgoing: Vec<_> = packets
            .iter()
            .map(|bytes| Outgoing { bytes, to, most: bytes.len() + grows, shares: 0 })
            .collect();
        assert_eq!(here.send(&mut outgoing).unwrap(), packets.len());
        let mut slots: Vec<_> = (0..40).map(|_| Slot::new(crate::slot::SLOT_BYTES)).collect();
        let (mut seen, mut used) = (0, 0);
        while seen < packets.len() {
            let count = there.receive(&mut slots, true).unwrap();
            assert!((1..=MAX_BURST).contains(&count));
            used += count;
            for slot in &slots[..count] {
                assert_eq!(slot.sender(), Some(from));
                for packet in slot.packets() {
                    let (bytes, zeros) = packet.split_at(packets[seen].len());
                    assert_eq!(bytes, packets[seen]);
                    assert!(zeros.len() <= grows && zeros.iter().all(|byte| *byte == 0));
                    seen += 1;
                }
            }
        }
        assert_eq!(there.receive(&mut slots, false).unwrap(), 0);
        Some(used)
    }

    #[test]
    fn does_a_burst_arrive_whole_and_from_whom_it_is() {
        let lens: Vec<usize> = (0..40).map(|at| 900 + at * 37 % 100).collect();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            for (trains, grows) in [([1, 1], 0), ([64, 64], 100), ([64, 64], 0), ([1, 64], 100)] {
                let used = travel(address, trains, &lens, grows);
                // Single datagrams over this interface stay single.
                assert!(used.is_none_or(|used| trains[0] > 1 || used == lens.len()));
            }
            // Who does not ask for trains gets their datagrams one by one.
            assert!(travel(address, [64, 1], &lens, 100).is_none_or(|used| used == lens.len()));
        }
    }

    #[test]
    fn does_a_train_arrive_as_one_where_the_system_has_them() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let has_trains = Bursts::new(probe, PATIENCE, 2).unwrap();
        if has_trains.segments.is_off() || !has_trains.takes_trains {
            println!("skipped: this system has no trains");
            return;
        }
        assert_eq!(travel("127.0.0.1:0", [64, 64], &[1000; 40], 0), Some(1));
        assert_eq!(travel("127.0.0.1:0", [16, 64], &[1000; 40], 0), Some(3));
        assert_eq!(travel("127.0.0.1:0", [64, 64], &[950, 1000, 990, 400], 50), Some(1));
        // The largest there is, and the largest trains.
        assert_eq!(travel("127.0.0.1:0", [64, 64], &[65_507, 65_507], 0), Some(2));
        assert_eq!(travel("127.0.0.1:0", [64, 64], &[32_500, 32_500, 1], 0), Some(2));
    }

    #[test]
    fn is_a_train_that_the_system_refuses_sent_one_by_one() {
        let [here, there] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        // Without a checksum there are no trains, which shows only when one is sent.
        set(&here, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let to = there.local_addr().unwrap();
        let mut here = Bursts::new(here, PATIENCE, 8).unwrap();
        let there = Bursts::new(there, PATIENCE, 1).unwrap();
        let bytes: Vec<u8> = (0..40).collect();
        let packet = |at: usize| Outgoing { bytes: &bytes[..at + 1], to, most: 100, shares: 0 };
        assert_eq!(here.send(&mut std::array::from_fn::<_, 30, _>(packet)).unwrap(), 30);
        let mut slots = [Slot::new(100)];
        for at in 0..30 {
            assert_eq!(there.receive(&mut slots, true).unwrap(), 1);
            assert_eq!(slots[0].packets().collect::<Vec<_>>(), [&bytes[..at + 1]]);
        }
    }

    #[test]
    fn is_a_datagram_that_does_not_fit_none() {
        let sockets = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = sockets[1].local_addr().unwrap();
        let [mut here, there] = sockets.map(|socket| Bursts::new(socket, PATIENCE, 1).unwrap());
        let packets = [&[1; 45][..], &[2; 46], &[3; 44]];
        here.send(&mut packets.map(|bytes| Outgoing::exact(bytes, to))).unwrap();
        let mut slots: Vec<_> = (0..3).map(|_| Slot::new(45)).collect();
        let mut seen = Vec::new();
        for _ in 0..3 {
            assert_eq!(there.receive(&mut slots[..1], true).unwrap(), 1);
            seen.push(slots[0].packets().map(<[u8]>::len).collect::<Vec<_>>());
        }
        assert_eq!(seen, [vec![45], vec![], vec![44]]);
    }
}
