//! A UDP client that builds each packet itself.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use siltstone_client::wire::request::RequestRef;
use siltstone_client::wire::{HEADER_BYTES, Header, Kind};
use siltstone_mica::Request;

pub(crate) fn bound_socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Sends a packet and returns the response.
pub(crate) fn ask(socket: &UdpSocket, server: SocketAddr, packet: &[u8]) -> Vec<u8> {
    response_within(socket, server, packet, Duration::from_secs(60)).expect("a response")
}

/// Whether no response to a packet arrives within half a second.
pub(crate) fn is_ignored(socket: &UdpSocket, server: SocketAddr, packet: &[u8]) -> bool {
    response_within(socket, server, packet, Duration::from_millis(500)).is_none()
}

fn response_within(
    socket: &UdpSocket,
    server: SocketAddr,
    packet: &[u8],
    timeout: Duration,
) -> Option<Vec<u8>> {
    socket.set_read_timeout(Some(timeout)).unwrap();
    socket.send_to(packet, server).unwrap();
    let mut buffer = [0; 65_536];
    let count = socket.recv(&mut buffer).ok()?;
    Some(buffer[..count].to_vec())
}

/// A packet with one request, whose opaque number is 3.
pub(crate) fn packet(cookie: u64, sequence: u64, attempt: u16, request: Request<'_>) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES];
    RequestRef { request, opaque: 3, wants_meta: false }.write(&mut packet);
    let header = Header {
        kind: Kind::Requests,
        length: 0,
        count: 1,
        sequence,
        cookie,
        oldest_offset: 0,
        response_limit: 1400,
        attempt,
    };
    header.write(&mut packet);
    packet
}
