//! Response packets: their buffers, and the positions of responses in them.
//!
//! ```text
//! packet   header │ response │ value │ response │ response │ value …
//!                   position of the first request; the next follows its value
//! ```
//!
//! The store copies each value directly into its response packet: the rest of a response has a
//! known size, so each position follows from the previous responses. [`ResponseLayout`] assigns
//! positions while the store produces values; [`super::burst`] writes everything else afterwards.
//!
//! Invariant: the responses to a packet fit in the size that its client has stated.
//!
//! Source: Lim, thesis, section 5.3.2, "Zero-copy processing": there the request's packet buffer
//! becomes the response's; here both are in user space and the system copies.

use std::net::SocketAddr;

use siltstone_client::gso::OutPacket;
use siltstone_client::wire::response::{self, Status};
use siltstone_client::wire::{HEADER_BYTES, Header};
use siltstone_mica::Output;

use super::incoming::IncomingPacket;

/// Response packets.
#[derive(Default)]
pub(crate) struct Responses {
    pub(super) packets: Vec<Packet>,
    used: usize,
}

/// A response packet.
#[derive(Default)]
pub(super) struct Packet {
    /// Buffer; longer than the packet, never shrinks.
    pub(super) bytes: Vec<u8>,
    pub(super) len: usize,
    /// Maximum length.
    max_bytes: usize,
    /// Maximum size of a datagram shared with other packets.
    max_datagram_bytes: usize,
    to: Option<SocketAddr>,
}

impl Responses {
    /// The packets with destination and padding limit: up to the size that a validated client has
    /// stated. A shared datagram is no longer than the received one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = OutPacket<'_>> {
        let all = self.packets[..self.used].iter();
        all.filter_map(|packet| {
            let bytes = &packet.bytes[..packet.len];
            Some(OutPacket {
                bytes,
                to: packet.to?,
                max_bytes: packet.max_bytes,
                max_datagram_bytes: packet.max_datagram_bytes,
            })
        })
    }

    /// Drops the packets; keeps their buffers.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Begins a packet of up to `max_bytes` in response to `to`, and returns its index.
    pub(super) fn begin(&mut self, to: &IncomingPacket<'_>, max_bytes: usize) -> usize {
        if self.used == self.packets.len() {
            self.packets.push(Packet::default());
        }
        let packet = &mut self.packets[self.used];
        if packet.bytes.len() < max_bytes {
            packet.bytes.resize(max_bytes, 0);
        }
        (packet.len, packet.max_bytes) = (HEADER_BYTES, max_bytes);
        (packet.to, packet.max_datagram_bytes) = (Some(to.sender), to.shared);
        self.used += 1;
        self.used - 1
    }

    /// Adds a packet with these bytes in response to `to`, and returns its bytes.
    pub(super) fn push(&mut self, to: &IncomingPacket<'_>, bytes: &[u8]) -> &mut [u8] {
        let packet = self.begin(to, bytes.len());
        let packet = &mut self.packets[packet];
        packet.bytes[..bytes.len()].copy_from_slice(bytes);
        packet.len = bytes.len();
        &mut packet.bytes[..bytes.len()]
    }
}

/// A response before it is written.
pub(super) struct ResponsePlan {
    /// Index of its packet among the open ones.
    pub(super) packet: usize,
    pub(super) opaque: u16,
    pub(super) has_number: bool,
    pub(super) wants_meta: bool,
    /// Its position, once known.
    pub(super) start: usize,
    /// Its status, if the store is not asked.
    pub(super) status: Option<Status>,
}

impl ResponsePlan {
    /// Size without the value.
    pub(super) fn bytes(&self) -> usize {
        response::bytes_of(self.has_number, self.wants_meta)
    }
}

/// A response packet in progress.
pub(super) struct OpenResponse {
    /// Index of the packet in [`Responses`].
    pub(super) packet: usize,
    pub(super) header: Header,
    pub(super) sender: SocketAddr,
    pub(super) max_bytes: usize,
    /// Bytes of responses without a position so far, excluding values.
    pub(super) rest: usize,
    /// Whether it is kept for duplicates of the request packet.
    pub(super) is_cached: bool,
}

/// Assigns positions to responses while the store produces values.
pub(super) struct ResponseLayout<'a> {
    pub(super) plans: &'a mut [ResponsePlan],
    /// Index of the planned response per request of the store.
    pub(super) plan_of_request: &'a [usize],
    pub(super) packets: &'a mut [Packet],
    pub(super) open: &'a mut [OpenResponse],
    /// Responses before this one have a position.
    pub(super) next: usize,
}

impl ResponseLayout<'_> {
    /// Assigns positions up to and including `plan`.
    pub(super) fn layout_up_to(&mut self, plan: usize) {
        while self.next <= plan {
            let plan = &mut self.plans[self.next];
            let open = &mut self.open[plan.packet];
            let packet = &mut self.packets[open.packet];
            plan.start = packet.len;
            packet.len += plan.bytes();
            open.rest -= plan.bytes();
            self.next += 1;
        }
    }
}

impl Output for ResponseLayout<'_> {
    #[inline]
    fn room(&mut self, request: usize, len: usize) -> Option<&mut [u8]> {
        let at = self.plan_of_request[request];
        self.layout_up_to(at);
        let (plan, open) = (&self.plans[at], &self.open[self.plans[at].packet]);
        let packet = &mut self.packets[open.packet];
        // The store may call again for the same request, which is the last one positioned in its
        // packet.
        let start = plan.start + plan.bytes();
        packet.len = start;
        if start + len + open.rest > open.max_bytes {
            return None;
        }
        packet.len = start + len;
        Some(&mut packet.bytes[start..start + len])
    }
}
