//! Batched datagram I/O: many messages per system call (`recvmmsg`, `sendmmsg`), with GSO and GRO.
//!
//! [`BatchSocket::receive`] fills up to one buffer per message; [`BatchSocket::send`] sends. A
//! system call costs about a microsecond, and so does a pass through the network stack, so batching
//! matters under load: a busier core finds more messages at once. With GSO ([`crate::gso`]) a batch
//! to one address passes the stack once.
//!
//! Invariant: every pointer passed to the system points into the function's frame or what it
//! borrows, and the call does not keep it.
//!
//! Source: Lim, thesis, section 5.3.2, "Burst packet I/O"; Linux's recvmmsg(2), sendmmsg(2),
//! udp(7).

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::address::RawAddress;
use crate::gso::{GsoBatch, GsoBatcher, MAX_PADDING, MAX_SEGMENTS, OutPacket};
use crate::recv_buffer::RecvBuffer;

/// Maximum messages per system call.
pub const MAX_MESSAGES: usize = 32;

/// Padding after packets that are shorter than their batch's segment size.
static ZEROS: [u8; MAX_PADDING] = [0; MAX_PADDING];

/// Space for one control message with one number, in words.
const CONTROL_WORDS: usize = 4;
type Control = [u64; CONTROL_WORDS];

/// A UDP socket with batched I/O.
pub struct BatchSocket {
    socket: UdpSocket,
    batcher: GsoBatcher,
    has_gro: bool,
}

impl BatchSocket {
    /// Wraps a socket. `receive` blocks for up to `timeout`. Up to `max_segments` packets are sent
    /// as one GSO batch if the system supports it, and GRO is enabled; 1 disables both.
    ///
    /// # Errors
    /// If a socket option cannot be set. A missing GSO or GRO is not an error.
    pub fn new(socket: UdpSocket, timeout: Duration, max_segments: usize) -> io::Result<Self> {
        socket.set_read_timeout(Some(timeout))?;
        let wants = max_segments > 1;
        // Segment size 0 sets no default; the call fails on systems without GSO.
        let has_gso = wants && set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        let has_gro = wants && set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        let batcher = GsoBatcher::new(if has_gso { max_segments } else { 1 });
        Ok(BatchSocket { socket, batcher, has_gro })
    }

    /// Receives messages into the leading buffers, and returns their number. If `waits`, blocks for
    /// the first one up to the timeout. Returns 0 if none arrived.
    ///
    /// # Errors
    /// Socket errors. A timeout, an interruption and a refusal of an earlier send are not errors.
    pub fn receive(&self, buffers: &mut [RecvBuffer], waits: bool) -> io::Result<usize> {
        let count = buffers.len().min(MAX_MESSAGES);
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_MESSAGES];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_MESSAGES];
        let mut controls: [Control; MAX_MESSAGES] = [[0; CONTROL_WORDS]; MAX_MESSAGES];
        let each = buffers.iter_mut().zip(&mut parts).zip(&mut messages).zip(&mut controls);
        for (((buffer, part), message), control) in each {
            buffer.address = RawAddress::EMPTY;
            let (base, len) = (buffer.bytes.as_mut_ptr().cast(), buffer.bytes.len());
            let part = part.write(libc::iovec { iov_base: base, iov_len: len });
            let name = buffer.address.bytes.as_mut_ptr().cast();
            let mut header = header(name, 32, part, 1);
            if self.has_gro {
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = size_of::<Control>();
            }
            message.write(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
        let flags = if waits { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: the first `count` messages are initialized, and point to parts, addresses,
        // controls and buffers that are borrowed mutably until after the call; each length is that
        // of its target.
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
        for (buffer, message) in buffers.iter_mut().zip(&messages[..received]) {
            // SAFETY: this message was initialized above.
            let message = unsafe { message.assume_init_ref() };
            let is_whole = message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            let len = if is_whole { message.msg_len as usize } else { 0 };
            // SAFETY: the control of this message is borrowed mutably for the array, which is
            // alive.
            let segment = unsafe { gro_segment_size(&message.msg_hdr) };
            buffer.set(len, segment);
        }
        Ok(received)
    }

    /// Sends packets, in order per destination, and returns how many were sent. Packets that do not
    /// fit the socket's buffer are dropped, like any datagram in the network.
    ///
    /// # Errors
    /// The error of the first packet that the socket rejects. The others are sent.
    pub fn send(&mut self, packets: &mut [OutPacket<'_>]) -> io::Result<usize> {
        // Groups packets by destination; they mostly are already.
        packets.sort_by_key(|packet| packet.to);
        let (mut rest, mut sent, mut alone) = (&*packets, 0, 0);
        let mut failed = None;
        while !rest.is_empty() {
            let mut batches = [GsoBatch::default(); MAX_MESSAGES];
            let (mut count, mut batched) = (0, 0);
            while count < MAX_MESSAGES && batched < rest.len().min(MAX_SEGMENTS) {
                let ahead = &rest[batched..rest.len().min(MAX_SEGMENTS)];
                batches[count] = match batched < alone {
                    true => GsoBatch { count: 1, segment: ahead[0].bytes.len() },
                    false => self.batcher.next(ahead),
                };
                batched += batches[count].count;
                count += 1;
            }
            let gone = match self.send_batches(rest, &batches[..count]) {
                Ok(gone) => {
                    let gone = batches[..gone].iter().map(|batch| batch.count).sum();
                    sent += gone;
                    gone
                }
                Err(error) if is_transient(&error) => batches[0].count,
                Err(error) if batches[0].count > 1 => {
                    // The path does not take this batch, or not this destination, which shows again
                    // with single datagrams.
                    match error.raw_os_error() {
                        Some(libc::EIO) => self.batcher.rejected(0),
                        Some(libc::EINVAL | libc::EMSGSIZE) => {
                            self.batcher.rejected(batches[0].segment);
                        }
                        _ => {}
                    }
                    alone = batches[0].count;
                    continue;
                }
                Err(error) => {
                    failed.get_or_insert(error);
                    batches[0].count
                }
            };
            rest = &rest[gone..];
            alone = alone.saturating_sub(gone);
        }
        failed.map_or(Ok(sent), Err)
    }

    /// Sends the leading packets in these batches, and returns the number of batches sent.
    fn send_batches(&self, packets: &[OutPacket<'_>], batches: &[GsoBatch]) -> io::Result<usize> {
        let mut names = [RawAddress::EMPTY; MAX_MESSAGES];
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; 2 * MAX_SEGMENTS];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_MESSAGES];
        let mut controls: [Control; MAX_MESSAGES] = [[0; CONTROL_WORDS]; MAX_MESSAGES];
        let (mut packets, mut parts) = (packets.iter(), &mut parts[..]);
        for (at, batch) in batches.iter().enumerate() {
            let mut used = 0;
            let mut last = 0;
            for packet in packets.by_ref().take(batch.count) {
                if used == 0 {
                    names[at] = RawAddress::new(packet.to);
                } else if last < batch.segment {
                    parts[used].write(part(&ZEROS[..batch.segment - last]));
                    used += 1;
                }
                parts[used].write(part(packet.bytes));
                (used, last) = (used + 1, packet.bytes.len());
            }
            let (these, others) = std::mem::take(&mut parts).split_at_mut(used);
            parts = others;
            let name = names[at].bytes.as_mut_ptr().cast();
            let mut header = header(name, names[at].len, these.as_mut_ptr().cast(), used);
            if batch.count > 1 {
                header.msg_control = controls[at].as_mut_ptr().cast();
                // SAFETY: computes a length.
                header.msg_controllen = unsafe { libc::CMSG_SPACE(2) } as usize;
                // SAFETY: the control has space for two bytes of content, as its length states.
                unsafe { set_segment_size(&header, batch.segment as u16) };
            }
            messages[at].write(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
        // SAFETY: the first `batches.len()` messages are initialized, and point to parts, addresses
        // and controls in this frame, to static zeros, and to packets that are borrowed; sending
        // does not write to them.
        let sent = unsafe {
            let messages = messages.as_mut_ptr().cast();
            libc::sendmmsg(self.socket.as_raw_fd(), messages, batches.len() as libc::c_uint, 0)
        };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok((sent as usize).min(batches.len()))
        }
    }
}

impl AsFd for BatchSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets an integer option of the socket.
fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: the value is an int, as its length states, and lives until the call returns.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets the segment size of a message.
///
/// # Safety
/// The header's control must be writable, aligned for its header, and have space for two bytes.
unsafe fn set_segment_size(header: &libc::msghdr, segment: u16) {
    // SAFETY: there is space for the control's header and its content, by this function's contract.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header);
        (*control).cmsg_level = libc::SOL_UDP;
        (*control).cmsg_type = libc::UDP_SEGMENT;
        (*control).cmsg_len = libc::CMSG_LEN(2) as usize;
        libc::CMSG_DATA(control).cast::<u16>().write_unaligned(segment);
    }
}

/// Segment size of a message merged by GRO, if the system reports one.
///
/// # Safety
/// The header's control must be readable for its stated length, and aligned for its header.
unsafe fn gro_segment_size(header: &libc::msghdr) -> Option<i32> {
    // SAFETY: null, or the first control message, complete, at the position that the header states;
    // nothing is read beyond the length in its own header.
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

/// Nothing arrived, the buffer is full, or an earlier destination is unreachable.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock | ConnectionRefused)
        || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Sends packets of these lengths between two sockets, with these maximum batch sizes at sender
    /// and receiver, and returns the number of buffers that they arrived in.
    fn transfer(address: &str, batches: [usize; 2], lens: &[usize], grows: usize) -> Option<usize> {
        let (Ok(here), Ok(there)) = (UdpSocket::bind(address), UdpSocket::bind(address)) else {
            println!("skipped: {address} is not available");
            return None;
        };
        let (from, to) = (here.local_addr().unwrap(), there.local_addr().unwrap());
        let mut here = BatchSocket::new(here, TIMEOUT, batches[0]).unwrap();
        let there = BatchSocket::new(there, TIMEOUT, batches[1]).unwrap();
        let packets: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(at, len)| vec![at as u8 + 1; *len]).collect();
        let mut outgoing: Vec<_> = packets
            .iter()
            .map(|bytes| OutPacket {
                bytes,
                to,
                max_bytes: bytes.len() + grows,
                max_datagram_bytes: 0,
            })
            .collect();
        assert_eq!(here.send(&mut outgoing).unwrap(), packets.len());
        let mut buffers: Vec<_> =
            (0..40).map(|_| RecvBuffer::new(crate::recv_buffer::RECV_BUFFER_BYTES)).collect();
        let (mut seen, mut used) = (0, 0);
        while seen < packets.len() {
            let count = there.receive(&mut buffers, true).unwrap();
            assert!((1..=MAX_MESSAGES).contains(&count));
            used += count;
            for buffer in &buffers[..count] {
                assert_eq!(buffer.sender(), Some(from));
                for packet in buffer.packets() {
                    let (bytes, zeros) = packet.split_at(packets[seen].len());
                    assert_eq!(bytes, packets[seen]);
                    assert!(zeros.len() <= grows && zeros.iter().all(|byte| *byte == 0));
                    seen += 1;
                }
            }
        }
        assert_eq!(there.receive(&mut buffers, false).unwrap(), 0);
        Some(used)
    }

    #[test]
    fn packets_arrive_complete_with_their_sender() {
        let lens: Vec<usize> = (0..40).map(|at| 900 + at * 37 % 100).collect();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            for (batches, grows) in [([1, 1], 0), ([64, 64], 100), ([64, 64], 0), ([1, 64], 100)] {
                let used = transfer(address, batches, &lens, grows);
                // Single datagrams stay single on this interface.
                assert!(used.is_none_or(|used| batches[0] > 1 || used == lens.len()));
            }
            // Without GRO the datagrams of a batch arrive one by one.
            assert!(transfer(address, [64, 1], &lens, 100).is_none_or(|used| used == lens.len()));
        }
    }

    #[test]
    fn gso_batch_arrives_in_one_buffer() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let batching = BatchSocket::new(probe, TIMEOUT, 2).unwrap();
        if batching.batcher.is_off() || !batching.has_gro {
            println!("skipped: this system has no GSO");
            return;
        }
        assert_eq!(transfer("127.0.0.1:0", [64, 64], &[1000; 40], 0), Some(1));
        assert_eq!(transfer("127.0.0.1:0", [16, 64], &[1000; 40], 0), Some(3));
        assert_eq!(transfer("127.0.0.1:0", [64, 64], &[950, 1000, 990, 400], 50), Some(1));
        // The largest datagram, and the largest batches.
        assert_eq!(transfer("127.0.0.1:0", [64, 64], &[65_507, 65_507], 0), Some(2));
        assert_eq!(transfer("127.0.0.1:0", [64, 64], &[32_500, 32_500, 1], 0), Some(2));
    }

    #[test]
    fn rejected_gso_batch_is_sent_as_single_datagrams() {
        let [here, there] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        // A socket without checksums has no GSO, which shows only when a batch is sent.
        set(&here, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let to = there.local_addr().unwrap();
        let mut here = BatchSocket::new(here, TIMEOUT, 8).unwrap();
        let there = BatchSocket::new(there, TIMEOUT, 1).unwrap();
        let bytes: Vec<u8> = (0..40).collect();
        let packet = |at: usize| OutPacket {
            bytes: &bytes[..at + 1],
            to,
            max_bytes: 100,
            max_datagram_bytes: 0,
        };
        assert_eq!(here.send(&mut std::array::from_fn::<_, 30, _>(packet)).unwrap(), 30);
        let mut buffers = [RecvBuffer::new(100)];
        for at in 0..30 {
            assert_eq!(there.receive(&mut buffers, true).unwrap(), 1);
            assert_eq!(buffers[0].packets().collect::<Vec<_>>(), [&bytes[..at + 1]]);
        }
    }

    /// A server sends the responses to several clients together, and one may have a forged address.
    #[test]
    fn packets_behind_one_that_the_socket_rejects_are_sent() {
        let [here, there] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let (nobody, to) = ("127.0.0.1:0".parse().unwrap(), there.local_addr().unwrap());
        for max_segments in [1, 8] {
            let here = here.try_clone().unwrap();
            let mut here = BatchSocket::new(here, TIMEOUT, max_segments).unwrap();
            let packets = [(&[1; 40][..], nobody), (&[2; 40], nobody), (&[3; 41], to)];
            let mut packets = packets.map(|(bytes, to)| OutPacket::exact(bytes, to));
            assert!(here.send(&mut packets).is_err());
            let there = BatchSocket::new(there.try_clone().unwrap(), TIMEOUT, 1).unwrap();
            let mut buffers = [RecvBuffer::new(100)];
            assert_eq!(there.receive(&mut buffers, true).unwrap(), 1);
            assert_eq!(buffers[0].packets().collect::<Vec<_>>(), [&[3; 41]]);
        }
    }

    #[test]
    fn oversized_datagram_is_dropped() {
        let sockets = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = sockets[1].local_addr().unwrap();
        let [mut here, there] = sockets.map(|socket| BatchSocket::new(socket, TIMEOUT, 1).unwrap());
        let packets = [&[1; 45][..], &[2; 46], &[3; 44]];
        here.send(&mut packets.map(|bytes| OutPacket::exact(bytes, to))).unwrap();
        let mut buffers: Vec<_> = (0..3).map(|_| RecvBuffer::new(45)).collect();
        let mut seen = Vec::new();
        for _ in 0..3 {
            assert_eq!(there.receive(&mut buffers[..1], true).unwrap(), 1);
            seen.push(buffers[0].packets().map(<[u8]>::len).collect::<Vec<_>>());
        }
        assert_eq!(seen, [vec![45], vec![], vec![44]]);
    }
}
