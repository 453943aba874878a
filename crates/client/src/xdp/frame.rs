//! A datagram in an Ethernet frame.
//!
//! ```text
//! 0             6             12      14                                  34                        42
//! destination   source        0x0800  IPv4 without options, 20 bytes      UDP, 8 bytes              payload
//! 6 bytes       6 bytes
//!
//! IPv4  0x45  service  length u16  id u16  flags · fragment u16  ttl  17  checksum u16  from u32  to u32
//! UDP   from u16  to u16  length u16  checksum u16                                     all big-endian
//! ```
//!
//! Frames come from anyone and are unchecked by the system. So everything that the system would
//! check is checked here: lengths, both checksums, that it is not a fragment, and that the sender
//! can be answered.
//!
//! A frame that never leaves the machine may have its checksum left to (absent) hardware: it is
//! then the sum of the pseudo-header alone, which is accepted. As in UDP, 0 means no checksum.
//!
//! Source: RFC 791, RFC 768, RFC 1071.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Total size of the three headers, in bytes.
pub const HEADERS_BYTES: usize = ETHERNET_BYTES + IP_UDP_BYTES;
const ETHERNET_BYTES: usize = 14;
/// Size of the two headers that count for an interface's MTU.
const IP_UDP_BYTES: usize = 28;
const IP_BYTES: usize = 20;
const UDP: u8 = 17;

/// Maximum frame size for an MTU.
pub(super) fn bytes(mtu: usize) -> usize {
    ETHERNET_BYTES + mtu
}

/// An Ethernet address.
pub type Hardware = [u8; 6];

/// Source or destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Hardware address.
    pub hardware: Hardware,
    /// IPv4 address and port.
    pub address: SocketAddrV4,
}

/// A decoded datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Sender.
    pub from: Endpoint,
    /// Payload.
    pub payload: &'a [u8],
}

/// Decodes the datagram of a frame to `here`; `None` if it is invalid or for another receiver.
pub fn parse(frame: &[u8], here: Endpoint) -> Option<Datagram<'_>> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET_BYTES)?;
    let source: Hardware = *ethernet[6..].first_chunk()?;
    if ethernet[..6] != here.hardware || ethernet[12..] != [8, 0] || source[0] & 1 != 0 {
        return None;
    }
    let length = usize::from(u16_at(packet, 2)?);
    // A short frame is padded after its packet.
    let packet = packet.get(..length).filter(|packet| packet.len() >= IP_UDP_BYTES)?;
    let (ip, udp) = packet.split_at(IP_BYTES);
    let is_fragment = u16_at(ip, 6)? & 0x3fff != 0;
    if ip[0] != 0x45 || is_fragment || ip[8] == 0 || ip[9] != UDP || fold(sum(ip)) != 0xffff {
        return None;
    }
    let [from, to] =
        [12, 16].map(|at| Ipv4Addr::from([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]));
    let can_be_answered = !from.is_unspecified() && !from.is_multicast() && !from.is_broadcast();
    let (from_port, to_port) = (u16_at(udp, 0)?, u16_at(udp, 2)?);
    let is_here = SocketAddrV4::new(to, to_port) == here.address;
    if !can_be_answered || from_port == 0 || !is_here || usize::from(u16_at(udp, 4)?) != udp.len() {
        return None;
    }
    let (checksum, pseudo) = (u16_at(udp, 6)?, pseudo_sum(ip, udp.len()));
    let is_valid = checksum == 0
        || fold(pseudo + sum(udp)) == 0xffff
        // Checksum offload by a sender on this machine.
        || checksum == fold(pseudo);
    let from = Endpoint { hardware: source, address: SocketAddrV4::new(from, from_port) };
    is_valid.then_some(Datagram { from, payload: &udp[8..] })
}

/// Encodes a datagram, given in parts, as a frame, and returns its size. `None` if it does not fit.
pub fn write<'p>(
    frame: &mut [u8],
    from: Endpoint,
    to: Endpoint,
    payload: impl Iterator<Item = &'p [u8]> + Clone,
) -> Option<usize> {
    let length = HEADERS_BYTES + payload.clone().map(<[u8]>::len).sum::<usize>();
    let ip_length = u16::try_from(length - ETHERNET_BYTES).ok()?;
    let (ethernet, packet) = frame.get_mut(..length)?.split_at_mut(ETHERNET_BYTES);
    ethernet[..6].copy_from_slice(&to.hardware);
    ethernet[6..12].copy_from_slice(&from.hardware);
    ethernet[12..].copy_from_slice(&[8, 0]);
    let (ip, udp) = packet.split_at_mut(IP_BYTES);
    ip[..2].copy_from_slice(&[0x45, 0]);
    ip[2..4].copy_from_slice(&ip_length.to_be_bytes());
    // No identification, since it is never fragmented ("don't fragment" is set).
    ip[4..12].copy_from_slice(&[0, 0, 0x40, 0, 64, UDP, 0, 0]);
    ip[12..16].copy_from_slice(&from.address.ip().octets());
    ip[16..].copy_from_slice(&to.address.ip().octets());
    let checksum = !fold(sum(ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    udp[..2].copy_from_slice(&from.address.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.address.port().to_be_bytes());
    udp[4..6].copy_from_slice(&(ip_length - IP_BYTES as u16).to_be_bytes());
    udp[6..8].copy_from_slice(&[0, 0]);
    let mut rest = &mut udp[8..];
    for part in payload {
        let (target, after) = rest.split_at_mut(part.len());
        target.copy_from_slice(part);
        rest = after;
    }
    let checksum = !fold(pseudo_sum(ip, udp.len()) + sum(udp));
    // 0 would mean that there is no checksum.
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    Some(length)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Ones' complement sum of 16-bit words, not folded. An odd byte is followed by a zero.
fn sum(bytes: &[u8]) -> u64 {
    // Ones' complement sums may use wider words, and swapped bytes if the result is swapped.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_ne_bytes(last));
    u64::from(u16::from_be(fold(sum)))
}

/// Sum of the UDP pseudo-header: addresses, protocol and length.
fn pseudo_sum(ip: &[u8], udp_length: usize) -> u64 {
    sum(&ip[12..20]) + u64::from(UDP) + udp_length as u64
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn end(last: u8, port: u16) -> Endpoint {
        let address = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, last), port);
        Endpoint { hardware: [2, 0, 0, 0, 0, last], address }
    }

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADERS_BYTES + payload.len()];
        // In two parts, the first of odd length.
        let parts = payload.split_at((payload.len() / 2) | usize::from(!payload.is_empty()));
        let length = write(&mut frame, end(1, 1000), end(2, 2000), [parts.0, parts.1].into_iter());
        assert_eq!(length, Some(frame.len()));
        frame
    }

    /// From RFC 1071, section 3: the words 0001 f203 f4f5 f6f7 sum up to ddf2.
    #[test]
    fn checksum_matches_the_rfc_example() {
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
        assert_eq!(fold(sum(&[0x12])), 0x1200);
    }

    proptest! {
        #[test]
        fn datagram_round_trips_through_a_frame(
            payload in proptest::collection::vec(any::<u8>(), 0..20_000),
            padding in 0usize..40,
        ) {
            let mut frame = framed(&payload);
            frame.resize(frame.len() + padding, 0xaa);
            let read = parse(&frame, end(2, 2000));
            prop_assert_eq!(read, Some(Datagram { from: end(1, 1000), payload: &payload }));
            prop_assert_eq!(parse(&frame, end(2, 2001)), None);
            prop_assert_eq!(parse(&frame, end(3, 2000)), None);
            prop_assert_eq!(write(&mut [0; HEADERS_BYTES], end(1, 1), end(2, 2), [&b"x"[..]].into_iter()), None);
        }

        /// Everything but the source hardware address is covered by a check. A flipped bit of the
        /// checksum itself may make it one that says "none", or that of a sender with offload.
        #[test]
        fn flipped_bit_is_detected(
            payload in proptest::collection::vec(any::<u8>(), 1..200),
            at: prop::sample::Index,
            bit in 0u8..8,
        ) {
            let mut frame = framed(&payload);
            let at = at.index(frame.len());
            prop_assume!(!(6..12).contains(&at));
            frame[at] ^= 1 << bit;
            let (ip, udp) = frame[ETHERNET_BYTES..].split_at(IP_BYTES);
            let checksum = u16_at(udp, 6).unwrap();
            prop_assume!(checksum != 0 && checksum != fold(pseudo_sum(ip, udp.len())));
            prop_assert_eq!(parse(&frame, end(2, 2000)), None);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(mut frame in proptest::collection::vec(any::<u8>(), 0..80)) {
            for (to, from) in frame.iter_mut().zip([2, 0, 0, 0, 0, 2, 0, 1, 1, 1, 1, 1, 8, 0, 0x45]) {
                *to = from;
            }
            parse(&frame, end(2, 2000));
        }
    }

    #[test]
    fn foreign_fragmented_and_truncated_frames_are_ignored() {
        let frame = framed(b"hello");
        let here = end(2, 2000);
        assert!(parse(&frame, here).is_some());
        for len in 0..frame.len() {
            assert_eq!(parse(&frame[..len], here), None, "{len} bytes");
        }
        // Fixes the header checksum after a change, so that the check after it is reached.
        let changed = |at: usize, value: u8| {
            let mut frame = frame.clone();
            frame[at] = value;
            frame[24..26].fill(0);
            let checksum = !fold(sum(&frame[14..34]));
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            frame
        };
        assert!(parse(&changed(22, 9), here).is_some(), "another time to live");
        for (at, value, what) in [
            (14, 0x46, "options"),
            (20, 0x20, "more fragments"),
            (21, 1, "a later fragment"),
            (22, 0, "no time to live"),
            (23, 6, "TCP"),
            (26, 224, "from many"),
            (17, 20, "shorter than its headers"),
            (17, 32, "shorter than its datagram"),
        ] {
            assert_eq!(parse(&changed(at, value), here), None, "{what}");
        }
        // No checksum, and an offloaded one.
        let mut frame = frame.clone();
        frame[40..42].fill(0);
        assert!(parse(&frame, here).is_some());
        let partial = fold(pseudo_sum(&frame[14..34], 13));
        frame[40..42].copy_from_slice(&partial.to_be_bytes());
        assert!(parse(&frame, here).is_some());
        frame[40..42].copy_from_slice(&(partial ^ 1).to_be_bytes());
        assert_eq!(parse(&frame, here), None);
    }
}
