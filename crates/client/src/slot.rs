//! Room for what a socket gives at once: a datagram, or several that came as one.
//!
//! ```text
//! bytes   │ datagram │ datagram │ datagram │ last │
//!         └ segment ─┴ segment ─┴ segment ─┴ ≤ ───┘
//! ```
//!
//! Where the system gathers datagrams ([`crate::segments`]) all but the last have one length, which it
//! tells beside the bytes. That length is checked like anything that comes from outside. Each datagram may
//! hold several packets ([`crate::bundle`]).
//!
//! Past the kernel a slot takes in a whole frame, of which the datagram is a part.
//!
//! Source: Linux's udp(7), `UDP_GRO`.

use std::net::SocketAddr;
use std::ops::Range;

use crate::address::Raw;
use crate::bundle;

/// Bytes that are enough for whatever a socket gives at once.
pub const SLOT_BYTES: usize = 1 << 16;

/// Room for datagrams of one sender, and whose they are.
pub struct Slot {
    pub(crate) buffer: Box<[u8]>,
    start: usize,
    len: usize,
    /// Bytes of each datagram but the last; at least 1.
    segment: usize,
    pub(crate) raw: Raw,
}

impl Slot {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Slot { buffer: vec![0; bytes].into(), start: 0, len: 0, segment: 1, raw: Raw::EMPTY }
    }

    /// The datagrams. None if they did not fit, or were empty.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.buffer[self.start..self.start + self.len].chunks(self.segment)
    }

    /// The packets of all datagrams.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.datagrams().flat_map(bundle::packets)
    }

    /// Notes that it holds one datagram of a sender, which lies there in the buffer. One that does not fit is
    /// none.
    pub(crate) fn keep(&mut self, place: Range<usize>, sender: SocketAddr) {
        self.raw = Raw::of(sender);
        let place = if place.end <= self.buffer.len() { place } else { 0..0 };
        (self.start, self.len, self.segment) = (place.start, place.len(), place.len().max(1));
    }

    /// Notes how many bytes are in it, and what the system says to be the length of each datagram.
    pub(crate) fn set(&mut self, len: usize, segment: Option<i32>) {
        self.start = 0;
        self.len = len.min(self.buffer.len());
        let told = segment.and_then(|bytes| usize::try_from(bytes).ok());
        // What cannot be is one datagram, which is dropped for its length further up.
        self.segment =
            told.filter(|bytes| (1..=self.len).contains(bytes)).unwrap_or(self.len).max(1);
    }

    /// Whom they are from.
    pub fn sender(&self) -> Option<SocketAddr> {
        self.raw.address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_lengths_that_cannot_be_no_lengths() {
        let mut slot = Slot::new(10);
        let lens = |slot: &Slot| slot.datagrams().map(<[u8]>::len).collect::<Vec<_>>();
        assert!(lens(&slot).is_empty());
        for (len, told, expected) in [
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
            slot.set(len, told);
            assert_eq!(lens(&slot), expected, "{len} {told:?}");
        }
        slot.buffer[3..].fill(7);
        slot.keep(3..10, ([127, 0, 0, 1], 5).into());
        assert_eq!(slot.datagrams().collect::<Vec<_>>(), [&[7; 7]]);
        slot.keep(3..11, ([127, 0, 0, 1], 5).into());
        assert!(lens(&slot).is_empty());
        slot.keep(3..10, ([127, 0, 0, 1], 5).into());
        slot.set(4, Some(4));
        assert_eq!(slot.datagrams().collect::<Vec<_>>(), [&[0, 0, 0, 7]]);
    }
}
