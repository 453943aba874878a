//! Packets that a port processes: received ones, and those that another port's thread forwarded.

use std::net::SocketAddr;

use siltstone_client::coalesce;

use super::forwarding::ForwardedPacket;

/// A received packet, or the part of one forwarded by another port's thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingPacket<'a> {
    pub(crate) bytes: &'a [u8],
    /// Size of the datagram that it arrived in.
    pub(crate) shared: usize,
    pub(crate) sender: SocketAddr,
    /// Whether it was forwarded by another thread.
    pub(crate) is_forwarded: bool,
}

impl<'a> IncomingPacket<'a> {
    /// The packets of a datagram.
    pub(crate) fn of(datagram: &'a [u8], sender: SocketAddr) -> impl Iterator<Item = Self> {
        let shared = datagram.len();
        let packets = coalesce::packets(datagram);
        packets.map(move |bytes| IncomingPacket { bytes, shared, sender, is_forwarded: false })
    }
}

/// A forwarded packet.
impl<'a> From<&'a ForwardedPacket> for IncomingPacket<'a> {
    fn from(forwarded: &'a ForwardedPacket) -> Self {
        let bytes = &forwarded.packet[..];
        IncomingPacket { bytes, shared: bytes.len(), sender: forwarded.sender, is_forwarded: true }
    }
}
