//! A port and its thread: receive, process, send.
//!
//! With an interface configured, thread n also takes the datagrams to its port that arrive on queue
//! q + n of it, bypassing the kernel ([`siltstone_client::xdp`]). The card must steer a port's
//! datagrams to that queue, which is the case with a single queue and port.
//!
//! With client direction a thread blocks in the receiving call; with software direction it also
//! waits for packets forwarded by other threads.
//!
//! Source: Lim, thesis, section 5.3.2, "Burst packet I/O".

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use siltstone_client::link::Link;
use siltstone_client::mmsg::MAX_MESSAGES;
use siltstone_client::recv_buffer::{RECV_BUFFER_BYTES, RecvBuffer};
use siltstone_client::wire::Header;
use siltstone_client::xdp::{Interface, Queue};
use siltstone_engine::{Error, Result};
use siltstone_mica::Store;
use socket2::{Domain, Protocol, Socket, Type};

use super::cookie::Cookies;
use super::forwarding::{ForwardQueue, ForwardedPacket, Inbox};
use super::{BurstProcessor, IncomingPacket, Responses};
use crate::shared::Shared;

/// Maximum delay until a stop is noticed.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Packets processed before their responses are sent, so that the client is not idle meanwhile.
const MAX_BURST_PACKETS: usize = 8;
/// Bytes of responses after which they are sent. More would delay the first ones and evict them
/// from the CPU caches before they are sent.
const MAX_BURST_RESPONSE_BYTES: usize = 64 << 10;
/// Requested size of the socket buffers; the system may give less.
const BUFFER_BYTES: usize = 8 << 20;

/// The ports before their threads run.
pub(crate) struct Ports {
    links: Vec<Link>,
    numbers: Arc<[u16]>,
    pub(crate) address: SocketAddr,
}

impl Ports {
    /// Binds one socket per thread: to this port and the following ones, or to any free ones. `xdp`
    /// is an interface and the first of its queues, for kernel bypass.
    pub(crate) fn bind(
        address: SocketAddr,
        count: usize,
        xdp: Option<&(String, u32)>,
        max_segments: usize,
    ) -> Result<Self> {
        let mut sockets = Vec::new();
        for number in 0..count {
            let mut address = address;
            if address.port() != 0 {
                let port = usize::from(address.port()) + number;
                let port = u16::try_from(port).map_err(|_| {
                    let reason = format!(
                        "{count} ports are needed, one per thread; from {} on there are fewer",
                        address.port()
                    );
                    Error::invalid_option("udp", reason)
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
            None => sockets
                .into_iter()
                .map(|socket| Link::new(socket, None, STOP_POLL_INTERVAL, max_segments))
                .collect(),
            Some((interface, queue)) => {
                bind_xdp(interface, *queue, sockets, &addresses, &numbers, max_segments)
            }
        };
        let links = links.map_err(|error| match xdp {
            None => Error::io("bind to", address.to_string(), &error),
            Some((interface, _)) => Error::io("open AF_XDP queues of", interface, &error),
        })?;
        Ok(Ports { address: addresses[0], links, numbers })
    }

    /// The body of each thread.
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
            let processor =
                BurstProcessor::new(shared, store, number, self.numbers.clone(), cookies.clone());
            move || Port { processor, link, inboxes }.run()
        });
        Ok(threads.collect())
    }
}

fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&address.into())?;
    // Excess datagrams are lost and retransmitted: a smaller buffer is only slower.
    let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(BUFFER_BYTES);
    Ok(socket.into())
}

/// Ports with an AF_XDP queue each.
fn bind_xdp(
    interface: &str,
    first_queue: u32,
    sockets: Vec<UdpSocket>,
    addresses: &[SocketAddr],
    ports: &[u16],
    max_segments: usize,
) -> io::Result<Vec<Link>> {
    let wants_ipv4 = || io::Error::new(io::ErrorKind::InvalidInput, "an IPv4 address is required");
    let mut opened = None;
    let mut links = Vec::new();
    for ((queue, socket), address) in (first_queue..).zip(sockets).zip(addresses) {
        let SocketAddr::V4(here) = *address else { return Err(wants_ipv4()) };
        if opened.is_none() {
            opened = Some(Interface::take(interface, *here.ip(), ports)?);
        }
        let queue = opened.as_ref().map(|opened| Queue::open(opened, queue, here)).transpose()?;
        links.push(Link::new(socket, queue, STOP_POLL_INTERVAL, max_segments)?);
    }
    Ok(links)
}

struct Port {
    processor: BurstProcessor,
    link: Link,
    inboxes: Arc<[Inbox]>,
}

impl Port {
    fn run(mut self) -> io::Result<()> {
        let shared = self.processor.shared.clone();
        let mut buffers: Vec<_> =
            (0..MAX_MESSAGES).map(|_| RecvBuffer::new(RECV_BUFFER_BYTES)).collect();
        let (mut responses, mut forwards) = (Responses::default(), ForwardQueue::default());
        let (mut forwarded, mut by_port): (Vec<ForwardedPacket>, Vec<Vec<ForwardedPacket>>) =
            Default::default();
        by_port.resize_with(self.inboxes.len(), Vec::new);
        let blocks_in_receive = !self.processor.any_port;
        while !shared.stop.is_stopping() {
            let count = self.link.receive(&mut buffers, blocks_in_receive)?;
            self.inboxes[self.processor.number].take(&mut forwarded);
            if count == 0 && forwarded.is_empty() {
                if !blocks_in_receive {
                    self.inboxes[self.processor.number].wait(&self.link, STOP_POLL_INTERVAL)?;
                }
                continue;
            }
            let received = buffers[..count]
                .iter()
                .filter_map(|buffer| Some((buffer.sender()?, buffer)))
                .flat_map(|(sender, buffer)| buffer.datagrams().map(move |bytes| (sender, bytes)))
                .flat_map(|(sender, datagram)| IncomingPacket::of(datagram, sender));
            let incoming: Vec<_> =
                received.chain(forwarded.iter().map(IncomingPacket::from)).collect();
            let bytes = incoming.iter().map(|incoming| incoming.bytes.len() as u64).sum();
            shared.metrics.bytes_in.fetch_add(bytes, Relaxed);
            let mut rest = &incoming[..];
            while !rest.is_empty() {
                let (burst, remaining) = rest.split_at(burst_len(rest));
                rest = remaining;
                self.processor.serve(burst, &mut responses, &mut forwards);
                let mut outgoing: Vec<_> = responses.iter().collect();
                let bytes = outgoing.iter().map(|packet| packet.bytes.len() as u64).sum();
                shared.metrics.bytes_out.fetch_add(bytes, Relaxed);
                // An error of one packet does not affect the next; the client retransmits.
                let _ = self.link.send(&mut outgoing);
            }
            for (port, packet) in forwards.take() {
                by_port[port].push(packet);
            }
            for (forwards, inbox) in by_port.iter_mut().zip(self.inboxes.iter()) {
                if !forwards.is_empty() {
                    let put = inbox.push(forwards);
                    shared.udp.forwarded.fetch_add(put as u64, Relaxed);
                }
            }
        }
        Ok(())
    }
}

/// Number of packets to process before responses are sent; at least 1 if there are any.
fn burst_len(packets: &[IncomingPacket<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |packet: &&IncomingPacket<'_>| {
        bytes += Header::response_limit(packet.bytes);
        bytes <= MAX_BURST_RESPONSE_BYTES
    };
    packets.iter().take(MAX_BURST_PACKETS).take_while(fits).count().max(packets.len().min(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_client::wire::{HEADER_BYTES, Kind};

    #[test]
    fn bursts_are_limited_by_response_bytes() {
        let packet = |response_limit| {
            let mut bytes = vec![0; HEADER_BYTES];
            let (kind, length, count) = (Kind::Requests, 0, 1);
            let (sequence, cookie, oldest_offset, attempt) = (1, 2, 3, 0);
            Header {
                kind,
                length,
                count,
                sequence,
                cookie,
                oldest_offset,
                response_limit,
                attempt,
            }
            .write(&mut bytes);
            bytes
        };
        let count = |limits: &[u16]| {
            let packets: Vec<_> = limits.iter().map(|limit| packet(*limit)).collect();
            let sender = ([127, 0, 0, 1], 1).into();
            let incoming: Vec<_> =
                packets.iter().flat_map(|bytes| IncomingPacket::of(bytes, sender)).collect();
            burst_len(&incoming)
        };
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[1400; 20]), 8);
        assert_eq!(count(&[8192; 20]), 8);
        assert_eq!(count(&[8193; 20]), 7);
        assert_eq!(count(&[40_000, 25_536, 1]), 2);
        assert_eq!(count(&[65_507, 65_507]), 1);
        // A malformed packet has no response.
        let sender = ([127, 0, 0, 1], 1).into();
        assert_eq!(burst_len(&[IncomingPacket::of(b"x", sender).next().unwrap()]), 1);
    }
}
