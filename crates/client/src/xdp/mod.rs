//! Kernel bypass: datagrams of some ports from and to a queue of an interface, by AF_XDP.
//!
//! ```text
//! interface ─ queue ─ program ── our ports ──────▶ rings ─ frame ─▶ datagram
//!                        └────── everything else ▶ the kernel: sockets, ARP, fragments
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`program`] | the XDP program that selects frames |
//! | `rings` | frame memory shared with the kernel |
//! | `retry_busy` | waiting for a previous owner to release an interface |
//! | [`frame`] | Ethernet, IPv4 and UDP headers |
//! | [`veth`] | a pair of virtual interfaces, for tests and measurements |
//!
//! There is no ARP here: a response goes to the hardware address from which its receiver's last
//! frame came. A packet to an unknown neighbour, or one that does not fit in a frame, is sent by a
//! socket ([`crate::link`]); the kernel resolves addresses and fragments.
//!
//! Invariant: memory is bounded: a fixed table of neighbours, fixed rings.
//!
//! Source: Lim, thesis, section 5.3.2, which uses Intel's DPDK.

pub mod frame;
pub mod program;
mod retry_busy;
mod rings;
pub mod veth;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use crate::gso::OutPacket;
use crate::recv_buffer::RecvBuffer;
use frame::{Endpoint, HEADERS_BYTES, Hardware};
use program::Program;
use rings::Rings;

/// Size of the neighbour table.
const NEIGHBOURS: usize = 1024;

/// An interface with an XDP program attached.
pub struct Interface {
    number: u32,
    hardware: Hardware,
    /// Maximum frame size, in bytes.
    frame_bytes: usize,
    program: Program,
}

impl Interface {
    /// Redirects datagrams to `ports` of `address` from the interface, as soon as queues are
    /// opened.
    ///
    /// # Errors
    /// System errors, with the step that failed. Requires `CAP_NET_ADMIN`, `CAP_NET_RAW` and
    /// `CAP_BPF`.
    pub fn take(name: &str, address: Ipv4Addr, ports: &[u16]) -> io::Result<Arc<Self>> {
        let failed = |step: &'static str| {
            move |error: io::Error| {
                io::Error::new(error.kind(), format!("{step} of the interface: {error}"))
            }
        };
        if ports.is_empty() || ports.len() > program::MAX_PORTS {
            let text = format!("{} ports; 1 to {} are supported", ports.len(), program::MAX_PORTS);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let number = query(&socket, name, libc::SIOCGIFINDEX).map_err(failed("the number"))?;
        let number = u32::from_ne_bytes([number[0], number[1], number[2], number[3]]);
        let hardware = query(&socket, name, libc::SIOCGIFHWADDR).map_err(failed("the address"))?;
        // After the address family.
        let hardware = *hardware[2..].first_chunk().unwrap_or(&[0; 6]);
        let mtu = query(&socket, name, libc::SIOCGIFMTU).map_err(failed("the MTU"))?;
        let mtu = u32::from_ne_bytes([mtu[0], mtu[1], mtu[2], mtu[3]]) as usize;
        let program = Program::attach(number, address, ports).map_err(failed("an XDP program"))?;
        Ok(Arc::new(Interface { number, hardware, frame_bytes: frame::bytes(mtu), program }))
    }
}

/// Queries an interface with `ioctl`, and returns the raw result.
fn query(socket: &UdpSocket, name: &str, what: libc::Ioctl) -> io::Result<[u8; 24]> {
    #[repr(C, align(8))]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        answer: [u8; 24],
    }
    let mut request = Request { name: [0; libc::IFNAMSIZ], answer: [0; 24] };
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of an interface"));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the request has the size and layout that these calls read and write (`struct ifreq`),
    // and lives until the call returns.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) };
    if done != 0 { Err(io::Error::last_os_error()) } else { Ok(request.answer) }
}

/// A queue of an interface, for one address and port.
pub struct Queue {
    /// Keeps the program attached.
    _interface: Arc<Interface>,
    rings: Rings,
    here: Endpoint,
    neighbours: Neighbours,
}

impl Queue {
    /// Opens a queue.
    ///
    /// # Errors
    /// If the queue does not exist, or is in use.
    pub fn open(interface: &Arc<Interface>, queue: u32, here: SocketAddrV4) -> io::Result<Self> {
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("queue {queue} of the interface: {error}"))
        };
        let (frame_bytes, multi_buffer) =
            (interface.frame_bytes, interface.program.is_multi_buffer());
        let rings =
            Rings::open(interface.number, queue, frame_bytes, multi_buffer).map_err(failed)?;
        interface.program.redirect(queue, rings.as_fd()).map_err(failed)?;
        let here = Endpoint { hardware: interface.hardware, address: here };
        let neighbours = Neighbours::default();
        Ok(Queue { _interface: interface.clone(), rings, here, neighbours })
    }

    /// Maximum payload of a datagram, in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.rings.frame_bytes().saturating_sub(HEADERS_BYTES)
    }

    /// Receives datagrams into the leading buffers, and returns their number.
    pub(crate) fn receive(&mut self, buffers: &mut [RecvBuffer]) -> usize {
        let (here, neighbours) = (self.here, &mut self.neighbours);
        let (mut count, mut len) = (0, 0);
        self.rings.receive(buffers.len(), |part, is_last| {
            let buffer = &mut buffers[count];
            if let Some(place) = buffer.bytes.get_mut(len..len + part.len()) {
                place.copy_from_slice(part);
            }
            len += part.len();
            if !is_last {
                return;
            }
            let frame = buffer.bytes.get(..std::mem::take(&mut len));
            let Some(datagram) = frame.and_then(|frame| frame::parse(frame, here)) else { return };
            let (from, end) = (datagram.from, HEADERS_BYTES + datagram.payload.len());
            neighbours.record(from);
            buffer.set_datagram(HEADERS_BYTES..end, from.address.into());
            count += 1;
        });
        count
    }

    /// Queues packets to one address as one datagram, sent by the next [`flush`](Self::flush).
    /// Returns false if they must go by a socket: too large, unknown neighbour, or no free frame.
    pub(crate) fn send(&mut self, packets: &[OutPacket<'_>]) -> bool {
        let Some(SocketAddr::V4(address)) = packets.first().map(|packet| packet.to) else {
            return false;
        };
        let Some(hardware) = self.neighbours.find(*address.ip()) else { return false };
        let (from, to) = (self.here, Endpoint { hardware, address });
        let bytes = packets.iter().map(|packet| packet.bytes);
        self.rings.send(|frame| frame::write(frame, from, to, bytes))
    }

    /// Sends queued frames.
    ///
    /// # Errors
    /// Socket errors.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.rings.flush()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }
}

/// Hardware addresses of recent senders; colliding entries replace each other.
struct Neighbours(Box<[Option<(Ipv4Addr, Hardware)>]>);

impl Default for Neighbours {
    fn default() -> Self {
        Neighbours(vec![None; NEIGHBOURS].into())
    }
}

impl Neighbours {
    fn slot_of(address: Ipv4Addr) -> usize {
        // Fibonacci hashing: nearby addresses differ in their last bits.
        (address.to_bits().wrapping_mul(0x9e37_79b9) >> 22) as usize % NEIGHBOURS
    }

    fn record(&mut self, end: Endpoint) {
        let address = *end.address.ip();
        self.0[Self::slot_of(address)] = Some((address, end.hardware));
    }

    fn find(&self, address: Ipv4Addr) -> Option<Hardware> {
        self.0[Self::slot_of(address)].filter(|(known, _)| *known == address).map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbour_table_keeps_the_last_address_in_bounded_memory() {
        let mut neighbours = Neighbours::default();
        let end = |address: u32, last: u8| Endpoint {
            hardware: [2, 0, 0, 0, 0, last],
            address: SocketAddrV4::new(Ipv4Addr::from_bits(address), 5),
        };
        for address in 0..10_000u32 {
            neighbours.record(end(address, address as u8));
            assert_eq!(neighbours.find(Ipv4Addr::from_bits(address)).unwrap()[5], address as u8);
        }
        neighbours.record(end(9999, 7));
        assert_eq!(neighbours.find(Ipv4Addr::from_bits(9999)).unwrap()[5], 7);
        assert_eq!(neighbours.find(Ipv4Addr::from_bits(20_000)), None);
        assert_eq!(neighbours.0.len(), NEIGHBOURS);
    }

    #[test]
    fn missing_interface_is_rejected_by_name() {
        let error = Interface::take("no-such-one", Ipv4Addr::LOCALHOST, &[1]).err().unwrap();
        assert!(error.to_string().starts_with("the number of the interface"), "{error}");
        assert!(Interface::take(&"x".repeat(40), Ipv4Addr::LOCALHOST, &[1]).is_err());
        assert!(Interface::take("lo", Ipv4Addr::LOCALHOST, &[]).is_err());
    }
}
