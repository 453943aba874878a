//! Bundles: packets of one sender to one address that share a datagram.
//!
//! ```text
//! packets    │ 90 │ 100 │ 85 │                 one behind the other, each says how long it is
//! datagram   │ 90 │ 100 │ 85 │ zeros, or none │
//! ```
//!
//! What a frame costs on its way hardly depends on its length. So past the kernel, where nothing else
//! carries packets together ([`crate::segments`]), a frame takes as many as it has room for.
//!
//! Whether all of the way takes long frames only its ends can find out. A client learns it from losses: what
//! it sends again goes alone. A server needs not know: answers share a datagram that is no longer than those
//! that their requests came in.
//!
//! Source: RFC 9000 (QUIC), section 12.2, "Coalescing Packets".

use crate::segments::Outgoing;
use crate::wire::Header;

/// The packets of a datagram. What follows the last, if only zeros may, is left with it.
pub fn packets(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let end = Header::end(rest).filter(|end| Header::end(&rest[*end..]).is_some());
        let (packet, behind) = rest.split_at(end.unwrap_or(rest.len()));
        rest = behind;
        Some(packet).filter(|packet| !packet.is_empty())
    })
}

/// How many of these packets, from the first on, go in one datagram of so many bytes at most; at least 1, if
/// there are any.
pub(crate) fn first(packets: &[Outgoing<'_>], most_packets: usize, most_bytes: usize) -> usize {
    let Some(first) = packets.first() else { return 0 };
    let (mut bytes, mut most) = (0, most_bytes);
    let fits = |packet: &&Outgoing<'_>| {
        bytes += packet.bytes.len();
        most = most.min(packet.shares);
        packet.to == first.to && bytes <= most
    };
    packets.iter().take(most_packets).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{HEADER_BYTES, MAX_PACKET_BYTES, stranger};
    use proptest::prelude::*;
    use std::net::SocketAddr;

    /// A packet with a body of so many bytes.
    fn packet(number: u64, body: usize) -> Vec<u8> {
        let mut packet = stranger(number).to_vec();
        let (header, _) = Header::parse(&packet).unwrap();
        packet.resize(HEADER_BYTES + body, 0x53);
        header.write(&mut packet);
        packet
    }

    proptest! {
        #[test]
        fn do_packets_come_back_from_their_datagram(
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

        /// Every byte is in one part, and there are no more parts than could be packets.
        #[test]
        fn are_any_bytes_cut_in_parts(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            heads in proptest::collection::vec((any::<prop::sample::Index>(), 0u16..100), 0..9),
        ) {
            for (at, length) in heads {
                let Some(at) = bytes.len().checked_sub(6).map(|most| at.index(most + 1)) else { break };
                bytes[at..at + 4].copy_from_slice(&stranger(0)[..4]);
                bytes[at + 4..at + 6].copy_from_slice(&length.to_le_bytes());
            }
            let parts: Vec<_> = packets(&bytes).collect();
            prop_assert_eq!(parts.concat(), &bytes[..]);
            prop_assert!(parts.len() <= bytes.len() / HEADER_BYTES + 1);
        }
    }

    #[test]
    fn is_a_packet_behind_which_something_else_comes_none() {
        let one = packet(1, 40);
        for behind in
            [&b"x"[..], &b"Sm"[..], &packet(2, 5)[..36], &[&[0], &packet(2, 5)[..]].concat()]
        {
            let datagram = [&one[..], behind].concat();
            let parsed: Vec<_> = packets(&datagram).map(Header::parse).collect();
            assert_eq!(parsed.len(), 1, "{}", behind.escape_ascii());
            assert!(parsed[0].is_err());
        }
        // Shorter than a header, or of no length: what follows is not taken for another.
        for length in [0u8, 6, 31] {
            let mut short = one[..6.max(length.into())].to_vec();
            short[4..6].copy_from_slice(&[length, 0]);
            assert_eq!(packets(&[short, one.clone()].concat()).count(), 1, "{length} bytes");
        }
        // Of another version: where its length stands is not known here.
        let mut other = one.clone();
        other[2] ^= 1;
        assert_eq!(packets(&[&other[..], &one].concat()).count(), 1);
        assert_eq!(packets(&[&one[..], &other].concat()).count(), 1);
        assert_eq!(packets(b"").count(), 0);
        assert_eq!(packets(&[0; 100]).count(), 1);
    }

    #[test]
    fn do_packets_share_a_datagram_that_may() {
        let to = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let bytes = [0; 100];
        let out = |len: usize, port: u16, shares: usize| Outgoing {
            bytes: &bytes[..len],
            to: to(port),
            most: len,
            shares,
        };
        let all = MAX_PACKET_BYTES;
        let same = [out(40, 1, all), out(40, 1, all), out(20, 1, all), out(1, 1, all)];
        assert_eq!(first(&same, 64, 1000), 4);
        assert_eq!(first(&same, 64, 100), 3);
        assert_eq!(first(&same, 64, 99), 2);
        assert_eq!(first(&same, 2, 1000), 2);
        // Too long for any datagram, or not to be sent with others: it goes alone.
        assert_eq!(first(&same, 64, 39), 1);
        assert_eq!(first(&[out(40, 1, 40), out(40, 1, all)], 64, 1000), 1);
        assert_eq!(first(&[out(40, 1, all), out(40, 1, 40)], 64, 1000), 1);
        assert_eq!(first(&[out(40, 1, 79), out(40, 1, all)], 64, 1000), 1);
        assert_eq!(first(&[out(40, 1, 80), out(40, 1, all)], 64, 1000), 2);
        assert_eq!(first(&[out(40, 1, all), out(40, 2, all)], 64, 1000), 1);
        assert_eq!(first(&[], 64, 1000), 0);
    }
}
