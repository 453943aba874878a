//! Coalescing: several packets of one sender to one address in one datagram.
//!
//! ```text
//! packets    │ 90 │ 100 │ 85 │                 consecutive, each with its length in the header
//! datagram   │ 90 │ 100 │ 85 │ zeros, or none │
//! ```
//!
//! The cost of a frame hardly depends on its length. With kernel bypass, where segmentation offload
//! ([`crate::gso`]) does not exist, a frame takes as many packets as fit.
//!
//! Whether every hop carries long frames is unknown. A client learns it from losses: retransmitted
//! packets go alone. A server puts responses in datagrams that are no longer than those of their
//! requests.
//!
//! Source: RFC 9000 (QUIC), section 12.2, "Coalescing Packets".

use crate::gso::OutPacket;
use crate::wire::Header;

/// Splits a datagram into packets. Bytes after the last packet, if any, stay with it.
pub fn packets(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let end = Header::end(rest).filter(|end| Header::end(&rest[*end..]).is_some());
        let (packet, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        Some(packet).filter(|packet| !packet.is_empty())
    })
}

/// Number of leading packets that go in one datagram of up to `max_bytes`; at least 1 if there are
/// any.
pub(crate) fn packets_per_datagram(
    packets: &[OutPacket<'_>],
    max_packets: usize,
    max_bytes: usize,
) -> usize {
    let Some(first) = packets.first() else { return 0 };
    let (mut bytes, mut limit) = (0, max_bytes);
    let fits = |packet: &&OutPacket<'_>| {
        bytes += packet.bytes.len();
        limit = limit.min(packet.max_datagram_bytes);
        packet.to == first.to && bytes <= limit
    };
    packets.iter().take(max_packets).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{HEADER_BYTES, MAX_PACKET_BYTES, unverified};
    use proptest::prelude::*;
    use std::net::SocketAddr;

    /// A packet with a body of `body` bytes.
    fn packet(number: u64, body: usize) -> Vec<u8> {
        let mut packet = unverified(number).to_vec();
        let (header, _) = Header::parse(&packet).unwrap();
        packet.resize(HEADER_BYTES + body, 0x53);
        header.write(&mut packet);
        packet
    }

    proptest! {
        #[test]
        fn packets_round_trip_through_a_datagram(
            bodies in proptest::collection::vec(0usize..200, 0..9),
            zeros in 0usize..100,
        ) {
            let all: Vec<_> =
                bodies.iter().enumerate().map(|(at, body)| packet(at as u64, *body)).collect();
            let mut datagram = all.concat();
            if !all.is_empty() {
                datagram.resize(datagram.len() + zeros, 0);
            }
            let read: Vec<_> = packets(&datagram).map(|packet| Header::parse(packet).unwrap().0).collect();
            prop_assert_eq!(read.len(), all.len());
            for (at, (header, packet)) in read.iter().zip(&all).enumerate() {
                prop_assert_eq!((header.sequence, usize::from(header.length)), (at as u64, packet.len()));
            }
        }

        /// Every byte is in one part, and there are no more parts than packets fit.
        #[test]
        fn arbitrary_bytes_are_split_completely(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            heads in proptest::collection::vec((any::<prop::sample::Index>(), 0u16..100), 0..9),
        ) {
            for (at, length) in heads {
                let Some(at) = bytes.len().checked_sub(6).map(|most| at.index(most + 1)) else { break };
                bytes[at..at + 4].copy_from_slice(&unverified(0)[..4]);
                bytes[at + 4..at + 6].copy_from_slice(&length.to_le_bytes());
            }
            let parts: Vec<_> = packets(&bytes).collect();
            prop_assert_eq!(parts.concat(), &bytes[..]);
            prop_assert!(parts.len() <= bytes.len() / HEADER_BYTES + 1);
        }
    }

    #[test]
    fn packet_followed_by_garbage_is_rejected() {
        let one = packet(1, 40);
        for suffix in
            [&b"x"[..], &b"Sm"[..], &packet(2, 5)[..36], &[&[0], &packet(2, 5)[..]].concat()]
        {
            let datagram = [&one[..], suffix].concat();
            let parsed: Vec<_> = packets(&datagram).map(Header::parse).collect();
            assert_eq!(parsed.len(), 1, "{}", suffix.escape_ascii());
            assert!(parsed[0].is_err());
        }
        // Shorter than a header, or of length 0: the rest is not taken for another packet.
        for length in [0u8, 6, 31] {
            let mut short = one[..6.max(length.into())].to_vec();
            short[4..6].copy_from_slice(&[length, 0]);
            assert_eq!(packets(&[short, one.clone()].concat()).count(), 1, "{length} bytes");
        }
        // Of another version: the position of its length is unknown.
        let mut other = one.clone();
        other[2] ^= 1;
        assert_eq!(packets(&[&other[..], &one].concat()).count(), 1);
        assert_eq!(packets(&[&one[..], &other].concat()).count(), 1);
        assert_eq!(packets(b"").count(), 0);
        assert_eq!(packets(&[0; 100]).count(), 1);
    }

    #[test]
    fn compatible_packets_share_a_datagram() {
        let to = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let bytes = [0; 100];
        let out = |len: usize, port: u16, max_datagram_bytes: usize| OutPacket {
            bytes: &bytes[..len],
            to: to(port),
            max_bytes: len,
            max_datagram_bytes,
        };
        let all = MAX_PACKET_BYTES;
        let same = [out(40, 1, all), out(40, 1, all), out(20, 1, all), out(1, 1, all)];
        assert_eq!(packets_per_datagram(&same, 64, 1000), 4);
        assert_eq!(packets_per_datagram(&same, 64, 100), 3);
        assert_eq!(packets_per_datagram(&same, 64, 99), 2);
        assert_eq!(packets_per_datagram(&same, 2, 1000), 2);
        // Too long for any datagram, or must not share one.
        assert_eq!(packets_per_datagram(&same, 64, 39), 1);
        assert_eq!(packets_per_datagram(&[out(40, 1, 40), out(40, 1, all)], 64, 1000), 1);
        assert_eq!(packets_per_datagram(&[out(40, 1, all), out(40, 1, 40)], 64, 1000), 1);
        assert_eq!(packets_per_datagram(&[out(40, 1, 79), out(40, 1, all)], 64, 1000), 1);
        assert_eq!(packets_per_datagram(&[out(40, 1, 80), out(40, 1, all)], 64, 1000), 2);
        assert_eq!(packets_per_datagram(&[out(40, 1, all), out(40, 2, all)], 64, 1000), 1);
        assert_eq!(packets_per_datagram(&[], 64, 1000), 0);
    }
}
