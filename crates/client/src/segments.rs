//! Trains: datagrams to one address that the system carries as one.
//!
//! ```text
//! packets   │ 90 │ 100 │ 85 │ 40 │          one sendmsg, UDP_SEGMENT = 100
//! train     │ 90 ░│ 100 │ 85 ░░│ 40 │       all of one length, the last may be shorter
//! ```
//!
//! A train goes through the system's network once, and is cut into datagrams by the card, or by the
//! receiver's system, or never: a receiver that asks for it (`UDP_GRO`) gets the bytes at once. On
//! the wire nothing differs, but for zeros behind packets that were shorter ([`crate::wire`] allows
//! them). A packet says up to which length it may grow.
//!
//! Which paths take trains, of which lengths, is learned: one whose segments don't fit the path's frames
//! is refused by the system, goes as single datagrams, and so do longer ones for a while.
//!
//! Source: W. de Bruijn and E. Dumazet, "Optimizing UDP for content delivery: GSO, pacing and zerocopy",
//! Linux Plumbers Conference 2018; Linux's udp(7).

use std::net::SocketAddr;

/// The most datagrams in a train: what any system with trains takes.
pub(crate) const MAX_SEGMENTS: usize = 64;
/// The most bytes in a train: with all headers it is no longer than what the system hands on whole.
const MAX_BYTES: usize = 65_000;
/// The most zeros behind a packet.
pub(crate) const MAX_PADDING: usize = 512;
/// After so many trains longer segments are tried again.
const TRY_AGAIN: u32 = 4096;

/// A datagram to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'p> {
    /// Its bytes.
    pub bytes: &'p [u8],
    /// Where it goes.
    pub to: SocketAddr,
    /// The length to which zeros may make it longer.
    pub most: usize,
    /// Bytes of a datagram that it may share with others.
    pub shares: usize,
}

impl<'p> Outgoing<'p> {
    /// A datagram that stays as long as it is, by itself.
    pub fn exact(bytes: &'p [u8], to: SocketAddr) -> Self {
        Outgoing { bytes, to, most: bytes.len(), shares: 0 }
    }
}

/// The first packets of some: how many go together, and the length of each but the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Train {
    pub(crate) count: usize,
    pub(crate) segment: usize,
}

/// What is known of trains on a socket.
#[derive(Debug, Clone)]
pub(crate) struct Segments {
    /// The most packets in a train; 1 if the system has none.
    most: usize,
    /// Segments that are longer go alone.
    limit: usize,
    turn: u32,
}

impl Segments {
    /// Trains of so many packets at most.
    pub(crate) fn new(most: usize) -> Self {
        Segments { most: most.clamp(1, MAX_SEGMENTS), limit: MAX_BYTES, turn: 0 }
    }

    /// Whether all packets go alone.
    #[cfg(test)]
    pub(crate) fn is_off(&self) -> bool {
        self.most == 1
    }

    /// The train that the first of these packets begins.
    pub(crate) fn next(&mut self, packets: &[Outgoing<'_>]) -> Train {
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(TRY_AGAIN) {
            self.limit = MAX_BYTES;
        }
        let Some(first) = packets.first() else { return Train { count: 0, segment: 0 } };
        let mut train = Train { count: 1, segment: first.bytes.len() };
        // Of the packets so far: their bytes, the length to which all may grow, the shortest.
        let (mut bytes, mut most, mut shortest) =
            (first.bytes.len(), first.most, first.bytes.len());
        for packet in packets.iter().take(self.most).skip(1) {
            let len = packet.bytes.len();
            let segment = train.segment.max(len);
            let zeros = segment * train.count - bytes;
            let is_dense = zeros <= segment * train.count / 8 && segment - shortest <= MAX_PADDING;
            let fits = segment <= self.limit && segment * (train.count + 1) <= MAX_BYTES;
            if packet.to != first.to || segment > most || !is_dense || !fits {
                break;
            }
            train = Train { count: train.count + 1, segment };
            (bytes, most, shortest) = (bytes + len, most.min(packet.most), shortest.min(len));
        }
        train
    }

    /// Notes that the system has refused a train of such segments.
    pub(crate) fn refused(&mut self, segment: usize) {
        self.limit = self.limit.min(segment.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    /// The trains of packets with these lengths, places and lengths to grow to.
    fn trains(segments: &mut Segments, packets: &[(usize, u16, usize)]) -> Vec<(usize, usize)> {
        let bytes = [1; MAX_BYTES];
        let packets: Vec<_> = packets
            .iter()
            .map(|&(len, port, most)| Outgoing {
                bytes: &bytes[..len],
                to: to(port),
                most,
                shares: 0,
            })
            .collect();
        let (mut rest, mut trains) = (&packets[..], Vec::new());
        while !rest.is_empty() {
            let train = segments.next(rest);
            trains.push((train.count, train.segment));
            rest = &rest[train.count..];
        }
        trains
    }

    #[test]
    fn do_packets_ride_together_that_may() {
        let mut segments = Segments::new(4);
        let mut all = |packets: &[_]| trains(&mut segments, packets);
        assert_eq!(all(&[(100, 1, 100); 9]), [(4, 100), (4, 100), (1, 100)]);
        // The last may be shorter, and one that must not grow ends its train.
        assert_eq!(all(&[(100, 1, 100), (40, 1, 40), (100, 1, 100)]), [(2, 100), (1, 100)]);
        assert_eq!(
            all(&[(96, 1, 100), (100, 1, 100), (97, 1, 99), (98, 1, 100)]),
            [(3, 100), (1, 98)]
        );
        assert_eq!(all(&[(96, 1, 98), (100, 1, 100)]), [(1, 96), (1, 100)]);
        // Others' packets, many zeros, and too many bytes don't.
        assert_eq!(all(&[(100, 1, 100), (100, 2, 100)]), [(1, 100), (1, 100)]);
        assert_eq!(all(&[(40, 1, 100), (100, 1, 100)]), [(1, 40), (1, 100)]);
        assert_eq!(all(&[(9000, 1, 10_000), (9513, 1, 10_000)]), [(1, 9000), (1, 9513)]);
        assert_eq!(all(&[(32_501, 1, 40_000); 2]), [(1, 32_501); 2]);
        assert_eq!(all(&[(32_500, 1, 40_000); 2]), [(2, 32_500)]);
        assert_eq!(trains(&mut Segments::new(1), &[(100, 1, 100); 2]), [(1, 100); 2]);
    }

    #[test]
    fn is_a_length_that_was_refused_tried_again_after_a_while() {
        let mut segments = Segments::new(64);
        segments.refused(1500);
        assert_eq!(trains(&mut segments, &[(1500, 1, 1500); 2]), [(1, 1500); 2]);
        assert_eq!(trains(&mut segments, &[(1499, 1, 1499); 2]), [(2, 1499)]);
        segments.refused(2000);
        assert_eq!(trains(&mut segments, &[(1500, 1, 1500); 2]), [(1, 1500); 2]);
        let later = (0..TRY_AGAIN).map(|_| trains(&mut segments, &[(1500, 1, 1500); 2]).len());
        assert_eq!(later.min(), Some(1));
    }
}
