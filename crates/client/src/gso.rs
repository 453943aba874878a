//! UDP segmentation offload (GSO/GRO): several datagrams to one address per message.
//!
//! ```text
//! packets   │ 90 │ 100 │ 85 │ 40 │          one sendmsg, UDP_SEGMENT = 100
//! batch     │ 90 ░│ 100 │ 85 ░░│ 40 │       equal segments, the last may be shorter
//! ```
//!
//! A batch traverses the network stack once and is segmented by the card, by the receiver's system,
//! or not at all: a receiver with `UDP_GRO` gets its bytes in one message. On the wire the
//! datagrams are ordinary, except for zeros after packets that were shorter than the segment size
//! ([`crate::wire`] allows them). A packet states up to which length it may be padded.
//!
//! Supported segment sizes are learned per socket. If the system rejects a batch because its
//! segments do not fit the path's MTU, its packets go as single datagrams, and so do larger ones
//! for a while.
//!
//! Source: W. de Bruijn and E. Dumazet, "Optimizing UDP for content delivery: GSO, pacing and
//! zerocopy", Linux Plumbers Conference 2018; Linux's udp(7).

use std::net::SocketAddr;

/// Maximum datagrams per batch, supported by every system with GSO.
pub(crate) const MAX_SEGMENTS: usize = 64;
/// Maximum bytes per batch; with all headers it fits one IP packet.
const MAX_BYTES: usize = 65_000;
/// Maximum padding per packet.
pub(crate) const MAX_PADDING: usize = 512;
/// Batches after which larger segments are tried again.
const RETRY_AFTER_BATCHES: u32 = 4096;

/// A packet to send.
#[derive(Debug, Clone, Copy)]
pub struct OutPacket<'p> {
    /// Encoded packet.
    pub bytes: &'p [u8],
    /// Destination.
    pub to: SocketAddr,
    /// Length up to which it may be padded with zeros.
    pub max_bytes: usize,
    /// Maximum size of a datagram that it may share with others.
    pub max_datagram_bytes: usize,
}

impl<'p> OutPacket<'p> {
    /// A packet without padding, in its own datagram.
    pub fn exact(bytes: &'p [u8], to: SocketAddr) -> Self {
        OutPacket { bytes, to, max_bytes: bytes.len(), max_datagram_bytes: 0 }
    }
}

/// A batch of leading packets: their number, and the segment size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GsoBatch {
    pub(crate) count: usize,
    pub(crate) segment: usize,
}

/// Forms batches for one socket.
#[derive(Debug, Clone)]
pub(crate) struct GsoBatcher {
    /// Maximum packets per batch; 1 if the system has no GSO.
    max_segments: usize,
    /// Largest segment size to try.
    max_segment: usize,
    batch_count: u32,
}

impl GsoBatcher {
    /// Batches of up to `max_segments` packets.
    pub(crate) fn new(max_segments: usize) -> Self {
        GsoBatcher {
            max_segments: max_segments.clamp(1, MAX_SEGMENTS),
            max_segment: MAX_BYTES,
            batch_count: 0,
        }
    }

    /// Whether every packet goes alone.
    #[cfg(test)]
    pub(crate) fn is_off(&self) -> bool {
        self.max_segments == 1
    }

    /// The batch that begins with the first of these packets.
    pub(crate) fn next(&mut self, packets: &[OutPacket<'_>]) -> GsoBatch {
        self.batch_count = self.batch_count.wrapping_add(1);
        if self.batch_count.is_multiple_of(RETRY_AFTER_BATCHES) {
            self.max_segment = MAX_BYTES;
        }
        let Some(first) = packets.first() else { return GsoBatch { count: 0, segment: 0 } };
        let mut batch = GsoBatch { count: 1, segment: first.bytes.len() };
        // Of the packets so far: total bytes, common maximum length, shortest length.
        let (mut bytes, mut max_bytes, mut shortest) =
            (first.bytes.len(), first.max_bytes, first.bytes.len());
        for packet in packets.iter().take(self.max_segments).skip(1) {
            let len = packet.bytes.len();
            let segment = batch.segment.max(len);
            let zeros = segment * batch.count - bytes;
            let is_dense = zeros <= segment * batch.count / 8 && segment - shortest <= MAX_PADDING;
            let fits = segment <= self.max_segment && segment * (batch.count + 1) <= MAX_BYTES;
            if packet.to != first.to || segment > max_bytes || !is_dense || !fits {
                break;
            }
            batch = GsoBatch { count: batch.count + 1, segment };
            (bytes, max_bytes, shortest) =
                (bytes + len, max_bytes.min(packet.max_bytes), shortest.min(len));
        }
        batch
    }

    /// Records that the system rejected a batch of this segment size.
    pub(crate) fn rejected(&mut self, segment: usize) {
        self.max_segment = self.max_segment.min(segment.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    /// Batches of packets with these lengths, ports and maximum lengths.
    fn batches(batcher: &mut GsoBatcher, packets: &[(usize, u16, usize)]) -> Vec<(usize, usize)> {
        let bytes = [1; MAX_BYTES];
        let packets: Vec<_> = packets
            .iter()
            .map(|&(len, port, most)| OutPacket {
                bytes: &bytes[..len],
                to: to(port),
                max_bytes: most,
                max_datagram_bytes: 0,
            })
            .collect();
        let (mut rest, mut batches) = (&packets[..], Vec::new());
        while !rest.is_empty() {
            let batch = batcher.next(rest);
            batches.push((batch.count, batch.segment));
            rest = &rest[batch.count..];
        }
        batches
    }

    #[test]
    fn compatible_packets_form_batches() {
        let mut batcher = GsoBatcher::new(4);
        let mut all = |packets: &[_]| batches(&mut batcher, packets);
        assert_eq!(all(&[(100, 1, 100); 9]), [(4, 100), (4, 100), (1, 100)]);
        // The last may be shorter, and a packet that must not be padded ends its batch.
        assert_eq!(all(&[(100, 1, 100), (40, 1, 40), (100, 1, 100)]), [(2, 100), (1, 100)]);
        assert_eq!(
            all(&[(96, 1, 100), (100, 1, 100), (97, 1, 99), (98, 1, 100)]),
            [(3, 100), (1, 98)]
        );
        assert_eq!(all(&[(96, 1, 98), (100, 1, 100)]), [(1, 96), (1, 100)]);
        // Another destination, too much padding, or too many bytes.
        assert_eq!(all(&[(100, 1, 100), (100, 2, 100)]), [(1, 100), (1, 100)]);
        assert_eq!(all(&[(40, 1, 100), (100, 1, 100)]), [(1, 40), (1, 100)]);
        assert_eq!(all(&[(9000, 1, 10_000), (9513, 1, 10_000)]), [(1, 9000), (1, 9513)]);
        assert_eq!(all(&[(32_501, 1, 40_000); 2]), [(1, 32_501); 2]);
        assert_eq!(all(&[(32_500, 1, 40_000); 2]), [(2, 32_500)]);
        assert_eq!(batches(&mut GsoBatcher::new(1), &[(100, 1, 100); 2]), [(1, 100); 2]);
    }

    #[test]
    fn rejected_segment_size_is_retried_later() {
        let mut batcher = GsoBatcher::new(64);
        batcher.rejected(1500);
        assert_eq!(batches(&mut batcher, &[(1500, 1, 1500); 2]), [(1, 1500); 2]);
        assert_eq!(batches(&mut batcher, &[(1499, 1, 1499); 2]), [(2, 1499)]);
        batcher.rejected(2000);
        assert_eq!(batches(&mut batcher, &[(1500, 1, 1500); 2]), [(1, 1500); 2]);
        let later =
            (0..RETRY_AFTER_BATCHES).map(|_| batches(&mut batcher, &[(1500, 1, 1500); 2]).len());
        assert_eq!(later.min(), Some(1));
    }
}
