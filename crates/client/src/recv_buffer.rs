//! Receive buffers: one datagram, or several merged by GRO.
//!
//! ```text
//! bytes   │ datagram │ datagram │ datagram │ last │
//!         └ segment ─┴ segment ─┴ segment ─┴ ≤ ───┘
//! ```
//!
//! The system merges datagrams of equal length, except the last ([`crate::gso`]), and reports that
//! length beside the bytes. The reported length is validated. Each datagram may hold several
//! packets ([`crate::coalesce`]).
//!
//! With kernel bypass a buffer receives a whole frame, of which the datagram is a part.
//!
//! Source: Linux's udp(7), `UDP_GRO`.

use std::net::SocketAddr;
use std::ops::Range;

use crate::address::RawAddress;
use crate::coalesce;

/// Size of a buffer that holds any message of a socket.
pub const RECV_BUFFER_BYTES: usize = 1 << 16;

/// Buffer for the datagrams of one sender, and its address.
pub struct RecvBuffer {
    pub(crate) bytes: Box<[u8]>,
    start: usize,
    len: usize,
    /// Bytes per datagram, except the last; at least 1.
    segment: usize,
    pub(crate) address: RawAddress,
}

impl RecvBuffer {
    /// A buffer of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        RecvBuffer {
            bytes: vec![0; bytes].into(),
            start: 0,
            len: 0,
            segment: 1,
            address: RawAddress::EMPTY,
        }
    }

    /// Datagrams received. Empty if they did not fit or were empty.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes[self.start..self.start + self.len].chunks(self.segment)
    }

    /// Packets of all datagrams.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.datagrams().flat_map(coalesce::packets)
    }

    /// Records one datagram of `sender` at `range`. A datagram that does not fit is dropped.
    pub(crate) fn set_datagram(&mut self, range: Range<usize>, sender: SocketAddr) {
        self.address = RawAddress::new(sender);
        let range = if range.end <= self.bytes.len() { range } else { 0..0 };
        (self.start, self.len, self.segment) = (range.start, range.len(), range.len().max(1));
    }

    /// Records the received length, and the length per datagram that the system reported.
    pub(crate) fn set(&mut self, len: usize, segment: Option<i32>) {
        self.start = 0;
        self.len = len.min(self.bytes.len());
        let reported = segment.and_then(|bytes| usize::try_from(bytes).ok());
        // With an invalid segment length the message is one datagram, which is dropped later for
        // its length.
        self.segment =
            reported.filter(|bytes| (1..=self.len).contains(bytes)).unwrap_or(self.len).max(1);
    }

    /// Address of the sender. One with port 0 is forged, and can get no response.
    pub fn sender(&self) -> Option<SocketAddr> {
        self.address.to_std().filter(|sender| sender.port() != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_segment_lengths_are_ignored() {
        let mut buffer = RecvBuffer::new(10);
        let lens = |buffer: &RecvBuffer| buffer.datagrams().map(<[u8]>::len).collect::<Vec<_>>();
        assert!(lens(&buffer).is_empty());
        for (len, reported, expected) in [
            (10, Some(4), &[4, 4, 2][..]),
            (8, Some(4), &[4, 4]),
            (8, Some(8), &[8]),
            (8, None, &[8]),
            (8, Some(9), &[8]),
            (8, Some(0), &[8]),
            (8, Some(-1), &[8]),
            (8, Some(i32::MIN), &[8]),
            (3, Some(1), &[1, 1, 1]),
            (0, Some(4), &[]),
            (0, None, &[]),
            (usize::MAX, Some(i32::MAX), &[10]),
        ] {
            buffer.set(len, reported);
            assert_eq!(lens(&buffer), expected, "{len} {reported:?}");
        }
        buffer.bytes[3..].fill(7);
        buffer.set_datagram(3..10, ([127, 0, 0, 1], 5).into());
        assert_eq!(buffer.datagrams().collect::<Vec<_>>(), [&[7; 7]]);
        assert_eq!(buffer.sender(), Some(([127, 0, 0, 1], 5).into()));
        buffer.set_datagram(3..10, ([127, 0, 0, 1], 0).into());
        assert_eq!(buffer.sender(), None);
        buffer.set_datagram(3..11, ([127, 0, 0, 1], 5).into());
        assert!(lens(&buffer).is_empty());
        buffer.set_datagram(3..10, ([127, 0, 0, 1], 5).into());
        buffer.set(4, Some(4));
        assert_eq!(buffer.datagrams().collect::<Vec<_>>(), [&[0, 0, 0, 7]]);
    }
}
