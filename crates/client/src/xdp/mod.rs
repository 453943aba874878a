//! Past the kernel's network: datagrams of some ports by AF_XDP, from and to an interface's queue.
//!
//! ```text
//! interface ─ queue ─ program ── for our ports ──▶ rings ─ frame ─▶ datagram
//!                        └────── all else ───────▶ the kernel: sockets, ARP, fragments
//! ```
//!
//! | module | one idea |
//! | --- | --- |
//! | [`program`] | what chooses, on the interface |
//! | `rings` | frames that are shared with the kernel |
//! | `let_go` | waiting for who had the interface before |
//! | [`frame`] | a datagram in an Ethernet frame |
//! | [`veth`] | two interfaces that are each other's wire, to test and to measure with |
//!
//! Who has a link-layer address is not asked here: an answer goes to the address that frames of its
//! receiver came from last. What has none yet, or does not fit in a frame, goes by a socket
//! ([`crate::link`]); the kernel resolves addresses and makes fragments.
//!
//! Invariant: memory is bounded: a fixed table of neighbours, fixed rings.
//!
//! Source: thesis, section 5.3.2, which uses Intel's DPDK in this place.

pub mod frame;
mod let_go;
pub mod program;
mod rings;
pub mod veth;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use crate::segments::Outgoing;
use crate::slot::Slot;
use frame::{End, HEADERS_BYTES, Hardware};
use program::Program;
use rings::Rings;

/// Neighbours that are remembered.
const NEIGHBOURS: usize = 1024;

/// An interface with a program on it.
pub struct Interface {
    number: u32,
    hardware: Hardware,
    /// Bytes of the largest frame that it carries.
    frame_bytes: usize,
    program: Program,
}

impl Interface {
    /// Takes the datagrams to some ports of an address from an interface, as soon as queues are opened.
    ///
    /// # Errors
    /// What the system says, and of which step. It takes the rights of `CAP_NET_ADMIN`, `CAP_NET_RAW`
    /// and `CAP_BPF`.
    pub fn take(name: &str, address: Ipv4Addr, ports: &[u16]) -> io::Result<Arc<Self>> {
        let failed = |step: &'static str| {
            move |error: io::Error| {
                io::Error::new(error.kind(), format!("{step} of the interface: {error}"))
            }
        };
        if ports.is_empty() || ports.len() > program::MAX_PORTS {
            let text = format!("{} ports; 1 to {} can be taken", ports.len(), program::MAX_PORTS);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let number = asked(&socket, name, libc::SIOCGIFINDEX).map_err(failed("the number"))?;
        let number = u32::from_ne_bytes([number[0], number[1], number[2], number[3]]);
        let hardware = asked(&socket, name, libc::SIOCGIFHWADDR).map_err(failed("the address"))?;
        // Behind the family of the address.
        let hardware = *hardware[2..].first_chunk().unwrap_or(&[0; 6]);
        let mtu = asked(&socket, name, libc::SIOCGIFMTU).map_err(failed("the MTU"))?;
        let mtu = u32::from_ne_bytes([mtu[0], mtu[1], mtu[2], mtu[3]]) as usize;
        let program = Program::attach(number, address, ports).map_err(failed("an XDP program"))?;
        Ok(Arc::new(Interface { number, hardware, frame_bytes: frame::bytes(mtu), program }))
    }
}

/// What the system says of an interface, as the bytes of its answer.
fn asked(socket: &UdpSocket, name: &str, what: libc::Ioctl) -> io::Result<[u8; 24]> {
    #[repr(C, align(8))]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        answer: [u8; 24],
    }
    let mut request = Request { name: [0; libc::IFNAMSIZ], answer: [0; 24] };
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no name of an interface"));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the request is of the size and layout that these calls read and write (`struct ifreq`),
    // and lives until the call returns.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) };
    if done != 0 { Err(io::Error::last_os_error()) } else { Ok(request.answer) }
}

/// A queue of an interface, for one address and port.
pub struct Queue {
    /// Its program sends the frames here as long as it lives.
    _interface: Arc<Interface>,
    rings: Rings,
    here: End,
    neighbours: Neighbours,
}

impl Queue {
    /// Opens a queue.
    ///
    /// # Errors
    /// If it is not there, or another's.
    pub fn open(interface: &Arc<Interface>, queue: u32, here: SocketAddrV4) -> io::Result<Self> {
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("queue {queue} of the interface: {error}"))
        };
        let (frame_bytes, in_pieces) = (interface.frame_bytes, interface.program.takes_pieces());
        let rings = Rings::open(interface.number, queue, frame_bytes, in_pieces).map_err(failed)?;
        interface.program.direct(queue, rings.as_fd()).map_err(failed)?;
        let here = End { hardware: interface.hardware, address: here };
        let neighbours = Neighbours::default();
        Ok(Queue { _interface: interface.clone(), rings, here, neighbours })
    }

    /// Bytes of the largest datagram that goes in a frame.
    pub fn payload_bytes(&self) -> usize {
        self.rings.frame_bytes().saturating_sub(HEADERS_BYTES)
    }

    /// Takes datagrams that have come into slots, from the first on; how many.
    pub(crate) fn receive(&mut self, slots: &mut [Slot]) -> usize {
        let (here, neighbours) = (self.here, &mut self.neighbours);
        let (mut count, mut len) = (0, 0);
        self.rings.receive(slots.len(), |piece, is_last| {
            let slot = &mut slots[count];
            if let Some(place) = slot.buffer.get_mut(len..len + piece.len()) {
                place.copy_from_slice(piece);
            }
            len += piece.len();
            if !is_last {
                return;
            }
            let frame = slot.buffer.get(..std::mem::take(&mut len));
            let Some(datagram) = frame.and_then(|frame| frame::parse(frame, here)) else { return };
            let (from, end) = (datagram.from, HEADERS_BYTES + datagram.payload.len());
            neighbours.note(from);
            slot.keep(HEADERS_BYTES..end, from.address.into());
            count += 1;
        });
        count
    }

    /// Takes packets to one address to be sent as one datagram with the next [`flush`](Self::flush). False
    /// if they must go by a socket: they are too large, their receiver is none that was heard of, or all
    /// frames are under way.
    pub(crate) fn send(&mut self, packets: &[Outgoing<'_>]) -> bool {
        let Some(SocketAddr::V4(address)) = packets.first().map(|packet| packet.to) else {
            return false;
        };
        let Some(hardware) = self.neighbours.find(*address.ip()) else { return false };
        let (from, to) = (self.here, End { hardware, address });
        let bytes = packets.iter().map(|packet| packet.bytes);
        self.rings.send(|frame| frame::write(frame, from, to, bytes))
    }

    /// Sends what was taken.
    ///
    /// # Errors
    /// What the socket says.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.rings.flush()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }
}

/// Where frames of addresses came from last. Of addresses that share a place the last is known.
struct Neighbours(Box<[Option<(Ipv4Addr, Hardware)>]>);

impl Default for Neighbours {
    fn default() -> Self {
        Neighbours(vec![None; NEIGHBOURS].into())
    }
}

impl Neighbours {
    fn place(address: Ipv4Addr) -> usize {
        // Fibonacci hashing: neighbours differ in their last bits.
        (address.to_bits().wrapping_mul(0x9e37_79b9) >> 22) as usize % NEIGHBOURS
    }

    fn note(&mut self, end: End) {
        let address = *end.address.ip();
        self.0[Self::place(address)] = Some((address, end.hardware));
    }

    fn find(&self, address: Ipv4Addr) -> Option<Hardware> {
        self.0[Self::place(address)].filter(|(known, _)| *known == address).map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_neighbour_found_where_it_was_heard_last_and_memory_bounded() {
        let mut neighbours = Neighbours::default();
        let end = |address: u32, last: u8| End {
            hardware: [2, 0, 0, 0, 0, last],
            address: SocketAddrV4::new(Ipv4Addr::from_bits(address), 5),
        };
        for address in 0..10_000u32 {
            neighbours.note(end(address, address as u8));
            assert_eq!(neighbours.find(Ipv4Addr::from_bits(address)).unwrap()[5], address as u8);
        }
        neighbours.note(end(9999, 7));
        assert_eq!(neighbours.find(Ipv4Addr::from_bits(9999)).unwrap()[5], 7);
        assert_eq!(neighbours.find(Ipv4Addr::from_bits(20_000)), None);
        assert_eq!(neighbours.0.len(), NEIGHBOURS);
    }

    #[test]
    fn is_an_interface_that_is_not_there_refused_by_name() {
        let error = Interface::take("no-such-one", Ipv4Addr::LOCALHOST, &[1]).err().unwrap();
        assert!(error.to_string().starts_with("the number of the interface"), "{error}");
        assert!(Interface::take(&"x".repeat(40), Ipv4Addr::LOCALHOST, &[1]).is_err());
        assert!(Interface::take("lo", Ipv4Addr::LOCALHOST, &[]).is_err());
    }
}
