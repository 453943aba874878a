//! A thread and its port: receive, do, send.
//!
//! With an interface named, thread n also takes the datagrams to its port that come on queue q + n of
//! it, past the kernel ([`siltstone_client::xdp`]): the card must send a port's datagrams to that
//! queue, as one with a single queue does for a single port.
//!
//! With client direction a thread sleeps in the call that receives; with software direction it
//! also waits for parcels from other threads.
//!
//! Source: thesis, section 5.3.2, "Burst packet I/O".

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use siltstone_client::link::Link;
use siltstone_client::mmsg::MAX_BURST;
use siltstone_client::slot::{SLOT_BYTES, Slot};
use siltstone_client::wire::Header;
use siltstone_client::xdp::{Interface, Queue};
use siltstone_engine::{Error, InvalidOption, Result};
use siltstone_mica::Store;
use socket2::{Domain, Protocol, Socket, Type};

use super::cookie::Cookies;
use super::handover::{Handed, Inbox, Parcels};
use super::{Answers, Desk, Incoming};
use crate::shared::Shared;

/// How long a stop may go unnoticed.
const PATIENCE: Duration = Duration::from_millis(50);
/// Packets that are done before their answers go: with more, client and server wait for one another.
const AT_ONCE: usize = 8;
/// Bytes that their answers may take, or the first of them alone: with more, the first wait long, and the
/// processor's caches hold them no more when they are sent.
const BYTES_AT_ONCE: usize = 64 << 10;
/// What the system is asked to hold for us; it may give less.
const BUFFER_BYTES: usize = 8 << 20;

/// The ports, before their threads run.
pub(crate) struct Ports {
    links: Vec<Link>,
    numbers: Arc<[u16]>,
    pub(crate) address: SocketAddr,
}

impl Ports {
    /// Binds one socket for each thread: to this port and those behind it, or to any free ones.
    /// With `xdp` an interface and the first of its queues, past the kernel too.
    pub(crate) fn bind(
        address: SocketAddr,
        count: usize,
        xdp: Option<&(String, u32)>,
        train: usize,
    ) -> Result<Self> {
        let mut sockets = Vec::new();
        for number in 0..count {
            let mut address = address;
            if address.port() != 0 {
                let port = usize::from(address.port()) + number;
                let port = u16::try_from(port).map_err(|_| {
                    Error::InvalidOptions(vec![InvalidOption {
                        option: "udp".to_owned(),
                        reason: format!(
                            "{count} ports are needed, one for each thread; from {} on there are \
                             fewer",
                            address.port()
                        ),
                    }])
                })?;
                address.set_port(port);
            }
            let socket =
                open(address).map_err(|error| Error::io("bind to", address.to_string(), &error))?;
            sockets.push(socket);
        }
        let address_of = |socket: &UdpSocket| {
            socket.local_addr().map_err(|error| Error::io("bind to", address.to_string(), &error))
        };
        let addresses = sockets.iter().map(address_of).collect::<Result<Vec<_>>>()?;
        let numbers: Arc<[u16]> = addresses.iter().map(SocketAddr::port).collect();
        let links = match xdp {
            None => {
                sockets.into_iter().map(|socket| Link::new(socket, None, PATIENCE, train)).collect()
            }
            Some((interface, queue)) => {
                past(interface, *queue, sockets, &addresses, &numbers, train)
            }
        };
        let links = links.map_err(|error| match xdp {
            None => Error::io("bind to", address.to_string(), &error),
            Some((interface, _)) => {
                Error::io("take packets past the kernel from", interface, &error)
            }
        })?;
        Ok(Ports { address: addresses[0], links, numbers })
    }

    /// The work of each thread.
    pub(crate) fn threads(
        self,
        shared: &Arc<Shared>,
        store: &Arc<Store>,
    ) -> io::Result<Vec<impl FnOnce() -> io::Result<()> + Send + 'static>> {
        let cookies = Arc::new(Cookies::new());
        let inboxes = self.links.iter().map(|_| Inbox::new()).collect::<io::Result<Vec<_>>>()?;
        let inboxes: Arc<[Inbox]> = inboxes.into();
        let threads = self.links.into_iter().enumerate().map(|(number, link)| {
            let (shared, store, inboxes) = (shared.clone(), store.clone(), inboxes.clone());
            let desk = Desk::new(shared, store, number, self.numbers.clone(), cookies.clone());
            move || Port { desk, link, inboxes }.run()
        });
        Ok(threads.collect())
    }
}

fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&address.into())?;
    // What does not fit is lost and sent again: less is slower, not wrong.
    let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(BUFFER_BYTES);
    Ok(socket.into())
}

/// Ports whose datagrams come past the kernel, on a queue each.
fn past(
    interface: &str,
    first_queue: u32,
    sockets: Vec<UdpSocket>,
    addresses: &[SocketAddr],
    ports: &[u16],
    train: usize,
) -> io::Result<Vec<Link>> {
    let wants_ipv4 = || io::Error::new(io::ErrorKind::InvalidInput, "it takes an IPv4 address");
    let mut taken = None;
    let mut links = Vec::new();
    for ((queue, socket), address) in (first_queue..).zip(sockets).zip(addresses) {
        let SocketAddr::V4(here) = *address else { return Err(wants_ipv4()) };
        if taken.is_none() {
            taken = Some(Interface::take(interface, *here.ip(), ports)?);
        }
        let queue = taken.as_ref().map(|taken| Queue::open(taken, queue, here)).transpose()?;
        links.push(Link::new(socket, queue, PATIENCE, train)?);
    }
    Ok(links)
}

struct Port {
    desk: Desk,
    link: Link,
    inboxes: Arc<[Inbox]>,
}

impl Port {
    fn run(mut self) -> io::Result<()> {
        let shared = self.desk.shared.clone();
        let mut slots: Vec<_> = (0..MAX_BURST).map(|_| Slot::new(SLOT_BYTES)).collect();
        let (mut answers, mut parcels) = (Answers::default(), Parcels::default());
        let (mut handed, mut by_port): (Vec<Handed>, Vec<Vec<Handed>>) = Default::default();
        by_port.resize_with(self.inboxes.len(), Vec::new);
        let waits_here = !self.desk.any_port;
        while !shared.stop.is_stopping() {
            let count = self.link.receive(&mut slots, waits_here)?;
            self.inboxes[self.desk.number].take(&mut handed);
            if count == 0 && handed.is_empty() {
                if !waits_here {
                    self.inboxes[self.desk.number].sleep(&self.link, PATIENCE)?;
                }
                continue;
            }
            let received = slots[..count]
                .iter()
                .filter_map(|slot| Some((slot.sender()?, slot)))
                .flat_map(|(sender, slot)| slot.datagrams().map(move |bytes| (sender, bytes)))
                .flat_map(|(sender, datagram)| Incoming::of(datagram, sender));
            let incoming: Vec<_> = received.chain(handed.iter().map(Incoming::from)).collect();
            let bytes = incoming.iter().map(|incoming| incoming.bytes.len() as u64).sum();
            shared.metrics.bytes_in.fetch_add(bytes, Relaxed);
            let mut rest = &incoming[..];
            while !rest.is_empty() {
                let (burst, behind) = rest.split_at(at_once(rest));
                rest = behind;
                self.desk.serve(burst, &mut answers, &mut parcels);
                let mut outgoing: Vec<_> = answers.iter().collect();
                let bytes = outgoing.iter().map(|packet| packet.bytes.len() as u64).sum();
                shared.metrics.bytes_out.fetch_add(bytes, Relaxed);
                // A socket that refuses one packet will take the next; the client sends again.
                let _ = self.link.send(&mut outgoing);
            }
            for (port, parcel) in parcels.take() {
                by_port[port].push(parcel);
            }
            for (parcels, inbox) in by_port.iter_mut().zip(self.inboxes.iter()) {
                if !parcels.is_empty() {
                    let put = inbox.put(parcels);
                    shared.udp.handed.fetch_add(put as u64, Relaxed);
                }
            }
        }
        Ok(())
    }
}

/// How many of these packets are done before their answers go; at least 1, if there are any.
fn at_once(packets: &[Incoming<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |packet: &&Incoming<'_>| {
        bytes += Header::room(packet.bytes);
        bytes <= BYTES_AT_ONCE
    };
    packets.iter().take(AT_ONCE).take_while(fits).count().max(packets.len().min(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_client::wire::{HEADER_BYTES, Kind};

    #[test]
    fn are_answers_sent_before_they_are_many_bytes() {
        let packet = |room| {
            let mut bytes = vec![0; HEADER_BYTES];
            let (kind, length, count) = (Kind::Requests, 0, 1);
            let (sequence, cookie, behind, attempt) = (1, 2, 3, 0);
            Header { kind, length, count, sequence, cookie, behind, room, attempt }
                .write(&mut bytes);
            bytes
        };
        let count = |rooms: &[u16]| {
            let packets: Vec<_> = rooms.iter().map(|room| packet(*room)).collect();
            let sender = ([127, 0, 0, 1], 1).into();
            let incoming: Vec<_> =
                packets.iter().flat_map(|bytes| Incoming::of(bytes, sender)).collect();
            at_once(&incoming)
        };
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[1400; 20]), 8);
        assert_eq!(count(&[8192; 20]), 8);
        assert_eq!(count(&[8193; 20]), 7);
        assert_eq!(count(&[40_000, 25_536, 1]), 2);
        assert_eq!(count(&[65_507, 65_507]), 1);
        // What is no packet has no answer.
        let sender = ([127, 0, 0, 1], 1).into();
        assert_eq!(at_once(&[Incoming::of(b"x", sender).next().unwrap()]), 1);
    }
}
