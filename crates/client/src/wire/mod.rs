//! The packets that a client and a mica table's server exchange, byte by byte.
//!
//! A UDP datagram holds a packet or several, one behind the other ([`crate::bundle`]), and each begins with
//! the same 32 bytes. All integers are little-endian.
//!
//! ```text
//! 0        2         3       4          6         8              16           24          28       30
//! "Sm"     version   kind    length     count     sequence       cookie       behind      room     attempt
//! u8 ×2    u8 = 3    u8      u16        u16       u64            u64          u32         u16      u16
//! ```
//!
//! | field | what it says |
//! | --- | --- |
//! | length | bytes of the whole packet; another may follow, or zeros to the datagram's end, and nothing else |
//! | count | requests, or answers, that follow |
//! | sequence | the client's number of this packet; its answer has the same |
//! | cookie | proves that the client receives what is sent to its address ([`hello`]) |
//! | behind | how many numbers before this one the client may still wait for: what is older is done |
//! | room | bytes that the answer may have, this header included |
//! | attempt | 0 at first, then 1, 2, …: the packet is otherwise the same |
//!
//! | kind | | from | body |
//! | --- | --- | --- | --- |
//! | 1 | hello | client | [`hello`]: the password, and zeros up to 512 bytes |
//! | 2 | welcome | server | [`hello`]: cookie, seed of the hash, ports |
//! | 3 | requests | client | [`request`] × count |
//! | 4 | answers | server | [`answer`] × count; a packet's answers may come in several packets |
//! | 5 | stranger | server | none: the cookie, the password or the version is not right |
//!
//! **Amplification.** Who has not proved by a cookie that it receives what is sent to its address
//! gets nothing that is larger than what it sent: a hello has 512 bytes and a welcome 512 at most, a
//! stranger's answer is a bare header. So a forged address cannot be flooded through a server.
//!
//! **Versions.** A server answers a packet of another version with `stranger` in its own, so a client
//! can say what it met. Fields are only ever added behind a new version number. Version 2 allows zeros
//! behind a packet, so that packets of one length can travel together ([`crate::segments`]); version 3 allows
//! packets.
//!
//! UDP's own checksum covers all of it; there is none besides.
//!
//! Source: thesis, section 5.3.2, and the prototype's batch packets; cookies, lengths, versions,
//! `behind` and `attempt` are ours.

pub mod answer;
pub mod hello;
pub mod request;

use std::fmt;

/// The first bytes of every packet.
pub const MAGIC: [u8; 2] = *b"Sm";
/// The version that this module reads and writes.
pub const VERSION: u8 = 3;
/// Bytes of a packet's header.
pub const HEADER_BYTES: usize = 32;
/// The largest packet: what a UDP datagram over IPv4 can carry.
pub const MAX_PACKET_BYTES: usize = 65_507;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A client says who it is.
    Hello,
    /// A server tells what a client must know.
    Welcome,
    /// What a client asks.
    Requests,
    /// What a server answers.
    Answers,
    /// A server does not know the client.
    Stranger,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        [Kind::Hello, Kind::Welcome, Kind::Requests, Kind::Answers, Kind::Stranger]
            .into_iter()
            .find(|kind| kind.code() == code)
    }

    fn code(self) -> u8 {
        match self {
            Kind::Hello => 1,
            Kind::Welcome => 2,
            Kind::Requests => 3,
            Kind::Answers => 4,
            Kind::Stranger => 5,
        }
    }
}

/// What every packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the packet is.
    pub kind: Kind,
    /// Bytes of the whole packet.
    pub length: u16,
    /// Requests or answers.
    pub count: u16,
    /// The client's number of the packet.
    pub sequence: u64,
    /// The proof of the client's address.
    pub cookie: u64,
    /// How many numbers before this one may still be waited for.
    pub behind: u32,
    /// Bytes that the answer may have.
    pub room: u16,
    /// How often the packet was sent before.
    pub attempt: u16,
}

/// Why bytes are no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Fewer bytes than a header, or other first bytes.
    NotOurs,
    /// A packet of another version.
    Version(u8),
    /// An unknown kind.
    Kind(u8),
    /// The packet says that it has another length.
    Length,
    /// A request or answer goes on beyond the packet, or more bytes follow than there should.
    Body,
    /// An unknown operation or outcome, or an unknown mark on it.
    Code(u8),
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mistake::NotOurs => f.write_str("no packet of this protocol"),
            Mistake::Version(version) => {
                write!(f, "a packet of version {version}; this is version {VERSION}")
            }
            Mistake::Kind(kind) => write!(f, "a packet of unknown kind {kind}"),
            Mistake::Length => f.write_str("a packet of another length than it says"),
            Mistake::Body => f.write_str("a packet whose parts do not fit"),
            Mistake::Code(code) => write!(f, "an unknown code {code}"),
        }
    }
}

impl std::error::Error for Mistake {}

impl Header {
    /// Where the packet ends that these bytes begin with, if they are long enough for one.
    pub fn end(bytes: &[u8]) -> Option<usize> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let length = usize::from(u16_at(header, 4));
        let is_ours = header[..2] == MAGIC && header[2] == VERSION;
        (is_ours && (HEADER_BYTES..=bytes.len()).contains(&length)).then_some(length)
    }

    /// Bytes that the answer to a packet may have, as it says; 0 if it is too short for one.
    pub fn room(packet: &[u8]) -> usize {
        packet.first_chunk::<HEADER_BYTES>().map_or(0, |bytes| u16_at(bytes, 28).into())
    }

    /// Reads the header of a packet, and what follows it.
    ///
    /// # Errors
    /// What is wrong with it; nothing more than the header was looked at.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Mistake> {
        let (bytes, body) = packet.split_first_chunk::<HEADER_BYTES>().ok_or(Mistake::NotOurs)?;
        if bytes[..2] != MAGIC {
            return Err(Mistake::NotOurs);
        }
        if bytes[2] != VERSION {
            return Err(Mistake::Version(bytes[2]));
        }
        let kind = Kind::of(bytes[3]).ok_or(Mistake::Kind(bytes[3]))?;
        let header = Header {
            kind,
            length: u16_at(bytes, 4),
            count: u16_at(bytes, 6),
            sequence: u64_at(bytes, 8),
            cookie: u64_at(bytes, 16),
            behind: u32_at(bytes, 24),
            room: u16_at(bytes, 28),
            attempt: u16_at(bytes, 30),
        };
        let length = usize::from(header.length).checked_sub(HEADER_BYTES);
        let parts = length.and_then(|length| body.split_at_checked(length));
        match parts {
            Some((body, zeros)) if zeros.iter().all(|byte| *byte == 0) => Ok((header, body)),
            _ => Err(Mistake::Length),
        }
    }

    /// Writes the header over the first bytes of a packet, whose length it takes from there.
    ///
    /// # Panics
    /// If the packet is shorter than a header or longer than [`MAX_PACKET_BYTES`].
    pub fn write(&self, packet: &mut [u8]) {
        assert!(packet.len() <= MAX_PACKET_BYTES, "a packet of {} bytes", packet.len());
        let length = packet.len() as u16;
        let bytes = &mut packet[..HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = VERSION;
        bytes[3] = self.kind.code();
        bytes[4..6].copy_from_slice(&length.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.cookie.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.behind.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.room.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.attempt.to_le_bytes());
    }
}

/// The bare answer to somebody unknown: no longer than any packet is.
pub fn stranger(sequence: u64) -> [u8; HEADER_BYTES] {
    let mut packet = [0; HEADER_BYTES];
    let kind = Kind::Stranger;
    Header { kind, length: 0, count: 0, sequence, cookie: 0, behind: 0, room: 0, attempt: 0 }
        .write(&mut packet);
    packet
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes[at..].first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Takes so many bytes off the front.
#[inline]
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Mistake> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(Mistake::Body)?;
    *bytes = rest;
    Ok(taken)
}

#[inline]
fn take_u64(bytes: &mut &[u8]) -> Result<u64, Mistake> {
    Ok(u64_at(take(bytes, 8)?, 0))
}

#[inline]
fn take_u32(bytes: &mut &[u8]) -> Result<u32, Mistake> {
    Ok(u32_at(take(bytes, 4)?, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn may_nothing_but_zeros_follow_a_packet() {
        let mut packet = stranger(7).to_vec();
        packet.extend_from_slice(b"body");
        let mut header = Header::parse(&stranger(7)).unwrap().0;
        header.write(&mut packet);
        header.length = 36;
        assert_eq!(Header::parse(&packet), Ok((header, &b"body"[..])));
        assert_eq!(Header::parse(&packet[..35]), Err(Mistake::Length));
        packet.extend_from_slice(&[0; 100]);
        assert_eq!(Header::parse(&packet), Ok((header, &b"body"[..])));
        for at in [36, 100, 135] {
            packet[at] = 1;
            assert_eq!(Header::parse(&packet), Err(Mistake::Length));
            packet[at] = 0;
        }
        for wrong in [0u16, 1, 31, 137, u16::MAX] {
            packet[4..6].copy_from_slice(&wrong.to_le_bytes());
            assert_eq!(Header::parse(&packet), Err(Mistake::Length), "{wrong}");
        }
    }
}
