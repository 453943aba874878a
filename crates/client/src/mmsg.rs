//! Datagrams in bursts: many with one call of the system.
//!
//! [`receive`] takes what has come, up to as many as there are slots; [`send`] sends slots. A call
//! costs about a microsecond, and a datagram over loopback as much again, so bursts matter under
//! load: a core that is busier finds more at once.
//!
//! Invariant: every pointer that is given to the system lives in this function's frame or in the
//! slots that it borrows, and the call does not keep it.
//!
//! Source: thesis, section 5.3.2, "Burst packet I/O"; Linux's recvmmsg(2) and sendmmsg(2).

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

/// The most datagrams in a burst.
pub const MAX_BURST: usize = 32;

/// An address as the system has it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Raw {
    bytes: [u8; 32],
    len: libc::socklen_t,
}

impl Raw {
    const EMPTY: Raw = Raw { bytes: [0; 32], len: 0 };

    fn of(address: SocketAddr) -> Self {
        let mut raw = Raw::EMPTY;
        match address {
            SocketAddr::V4(v4) => {
                raw.bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                raw.bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
                raw.bytes[4..8].copy_from_slice(&v4.ip().octets());
                raw.len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(v6) => {
                raw.bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                raw.bytes[2..4].copy_from_slice(&v6.port().to_be_bytes());
                raw.bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
                raw.bytes[8..24].copy_from_slice(&v6.ip().octets());
                raw.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                raw.len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            }
        }
        raw
    }

    fn address(&self) -> Option<SocketAddr> {
        fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
            bytes[at..].first_chunk().copied().unwrap_or([0; N])
        }
        let bytes = &self.bytes;
        let port = u16::from_be_bytes(part(bytes, 2));
        match i32::from(u16::from_ne_bytes(part(bytes, 0))) {
            libc::AF_INET => {
                Some(SocketAddrV4::new(Ipv4Addr::from(part::<4>(bytes, 4)), port).into())
            }
            libc::AF_INET6 => {
                let flow = u32::from_ne_bytes(part(bytes, 4));
                let scope = u32::from_ne_bytes(part(bytes, 24));
                Some(
                    SocketAddrV6::new(Ipv6Addr::from(part::<16>(bytes, 8)), port, flow, scope)
                        .into(),
                )
            }
            _ => None,
        }
    }
}

/// Room for a datagram, and whose it is.
pub struct Slot {
    buffer: Box<[u8]>,
    len: usize,
    raw: Raw,
}

impl Slot {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Slot { buffer: vec![0; bytes].into(), len: 0, raw: Raw::EMPTY }
    }

    /// The datagram; empty if it did not fit, or its sender has no address.
    pub fn packet(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Puts a datagram in; one that does not fit is none.
    pub(crate) fn fill(&mut self, bytes: &[u8], sender: SocketAddr) {
        self.raw = Raw::of(sender);
        self.len = if bytes.len() <= self.buffer.len() { bytes.len() } else { 0 };
        self.buffer[..self.len].copy_from_slice(&bytes[..self.len]);
    }

    /// Whom it is from.
    pub fn sender(&self) -> Option<SocketAddr> {
        self.raw.address()
    }
}

/// Takes datagrams that have come into slots, from the first on; how many. Waits for the first if
/// `waits`, as long as the socket's timeout says. 0 if none came.
///
/// # Errors
/// What the socket says; a timeout, an interruption and a refusal of something sent before are none.
pub fn receive(socket: &UdpSocket, slots: &mut [Slot], waits: bool) -> io::Result<usize> {
    let count = slots.len().min(MAX_BURST);
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_BURST];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_BURST];
    for ((slot, part), message) in slots.iter_mut().zip(&mut parts).zip(&mut messages) {
        slot.raw = Raw::EMPTY;
        let (base, len) = (slot.buffer.as_mut_ptr().cast(), slot.buffer.len());
        part.write(libc::iovec { iov_base: base, iov_len: len });
        let name = slot.raw.bytes.as_mut_ptr().cast();
        message.write(header(name, 32, part.as_mut_ptr()));
    }
    let flags = if waits { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
    // SAFETY: the first `count` messages are written, and point to parts, addresses and buffers that
    // are borrowed mutably until after the call; lengths are those of what is pointed to.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr().cast(),
            count as libc::c_uint,
            flags,
            std::ptr::null_mut(),
        )
    };
    if received < 0 {
        let error = io::Error::last_os_error();
        return if is_passing(&error) { Ok(0) } else { Err(error) };
    }
    let received = (received as usize).min(count);
    for (slot, message) in slots.iter_mut().zip(&messages[..received]) {
        // SAFETY: this message was written above.
        let message = unsafe { message.assume_init_ref() };
        let is_whole = message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        slot.len = if is_whole { (message.msg_len as usize).min(slot.buffer.len()) } else { 0 };
    }
    Ok(received)
}

/// Sends datagrams to addresses; how many went. Fewer if the socket takes no more for now: like any
/// datagram, the rest is lost.
///
/// # Errors
/// What the socket says of the first that it did not take.
pub fn send<'p>(
    socket: &UdpSocket,
    packets: impl Iterator<Item = (&'p [u8], SocketAddr)>,
) -> io::Result<usize> {
    let mut packets = packets.fuse();
    let mut sent = 0;
    loop {
        let mut names = [Raw::EMPTY; MAX_BURST];
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_BURST];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_BURST];
        let mut count = 0;
        for (bytes, address) in packets.by_ref().take(MAX_BURST) {
            names[count] = Raw::of(address);
            let base = bytes.as_ptr().cast_mut().cast();
            parts[count].write(libc::iovec { iov_base: base, iov_len: bytes.len() });
            let name = names[count].bytes.as_mut_ptr().cast();
            messages[count].write(header(name, names[count].len, parts[count].as_mut_ptr()));
            count += 1;
        }
        if count == 0 {
            return Ok(sent);
        }
        // SAFETY: the first `count` messages are written, and point to parts and addresses in this
        // frame and to packets that are borrowed; sending does not write to them.
        let done = unsafe {
            let messages = messages.as_mut_ptr().cast();
            libc::sendmmsg(socket.as_raw_fd(), messages, count as libc::c_uint, 0)
        };
        match done {
            0.. => sent += done as usize,
            _ => {
                let error = io::Error::last_os_error();
                if !is_passing(&error) {
                    return Err(error);
                }
            }
        }
    }
}

fn header(
    name: *mut libc::c_void,
    name_len: libc::socklen_t,
    part: *mut libc::iovec,
) -> libc::mmsghdr {
    libc::mmsghdr {
        msg_hdr: libc::msghdr {
            msg_name: name,
            msg_namelen: name_len,
            msg_iov: part,
            msg_iovlen: 1,
            msg_control: std::ptr::null_mut(),
            msg_controllen: 0,
            msg_flags: 0,
        },
        msg_len: 0,
    }
}

/// Nothing came, the socket is full, or somebody to whom something was sent before is not there.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock | ConnectionRefused)
        || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_a_burst_arrive_whole_and_from_whom_it_is() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (Ok(here), Ok(there)) = (UdpSocket::bind(address), UdpSocket::bind(address)) else {
                println!("skipped: {address} is not to be had");
                continue;
            };
            let to = there.local_addr().unwrap();
            let packets: Vec<Vec<u8>> = (0..50).map(|len| vec![len as u8; len]).collect();
            let sent = send(&here, packets.iter().map(|packet| (&packet[..], to))).unwrap();
            assert_eq!(sent, 50);
            let mut slots: Vec<_> = (0..40).map(|_| Slot::new(45)).collect();
            let mut seen = 0;
            while seen < 50 {
                let count = receive(&there, &mut slots, true).unwrap();
                assert!((1..=MAX_BURST).contains(&count));
                for slot in &slots[..count] {
                    // What does not fit is no packet, and never a part of one.
                    let expected = if seen <= 45 { &packets[seen][..] } else { &[] };
                    assert_eq!(slot.packet(), expected);
                    assert_eq!(slot.sender(), Some(here.local_addr().unwrap()));
                    seen += 1;
                }
            }
            assert_eq!(receive(&there, &mut slots, false).unwrap(), 0);
        }
    }
}
