//! Packet formats of the UDP protocol of `mica` tables.
//!
//! A UDP datagram holds one or more consecutive packets ([`crate::coalesce`]). Each begins with a
//! header of 32 bytes. All integers are little-endian.
//!
//! ```text
//! 0        2         3      4        6       8          16       24              28               30
//! "Sm"     version   kind   length   count   sequence   cookie   oldest_offset   response_limit   attempt
//! u8 ×2    u8 = 3    u8     u16      u16     u64        u64      u32             u16              u16
//! ```
//!
//! | field | meaning |
//! | --- | --- |
//! | length | bytes of the whole packet; another packet or zeros up to the end of the datagram may follow |
//! | count | number of requests or responses |
//! | sequence | the client's packet number; its response has the same |
//! | cookie | address validation token ([`hello`]) |
//! | oldest_offset | distance to the oldest packet in flight: anything older is complete |
//! | response_limit | maximum size of the response, header included |
//! | attempt | 0 at first, then 1, 2, …; the packet is otherwise unchanged |
//!
//! | kind | | from | body |
//! | --- | --- | --- | --- |
//! | 1 | hello | client | [`hello`]: the password, padded to 512 bytes |
//! | 2 | welcome | server | [`hello`]: cookie, hash seed, ports |
//! | 3 | requests | client | [`request`] × count |
//! | 4 | responses | server | [`response`] × count; the responses to a packet may come in several packets |
//! | 5 | unverified | server | none: wrong cookie, password or version |
//!
//! **Amplification.** A client that has not completed address validation gets no response larger
//! than its packet: a hello has 512 bytes, a welcome at most 512, and `unverified` is a bare
//! header. So the server cannot be used to flood a forged address.
//!
//! **Versions.** A server answers a packet of another version with `unverified` in its own version,
//! which the client reports. Fields are only added under a new version number. Version 2 allows
//! zeros after a packet, for equal segment sizes ([`crate::gso`]); version 3 allows several packets
//! per datagram.
//!
//! Integrity: UDP's checksum; there is no other.
//!
//! Source: Lim, thesis, section 5.3.2, and the batch packets of its prototype.

pub mod hello;
pub mod request;
pub mod response;

use std::fmt;

/// First bytes of every packet.
pub const MAGIC: [u8; 2] = *b"Sm";
/// Version that this module reads and writes.
pub const VERSION: u8 = 3;
/// Size of a packet header, in bytes.
pub const HEADER_BYTES: usize = 32;
/// Maximum packet size: the payload of a UDP datagram over IPv4.
pub const MAX_PACKET_BYTES: usize = 65_507;

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Handshake request of a client.
    Hello,
    /// Handshake response of a server.
    Welcome,
    /// Requests of a client.
    Requests,
    /// Responses of a server.
    Responses,
    /// The server has not validated the client's address.
    Unverified,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        [Kind::Hello, Kind::Welcome, Kind::Requests, Kind::Responses, Kind::Unverified]
            .into_iter()
            .find(|kind| kind.code() == code)
    }

    fn code(self) -> u8 {
        match self {
            Kind::Hello => 1,
            Kind::Welcome => 2,
            Kind::Requests => 3,
            Kind::Responses => 4,
            Kind::Unverified => 5,
        }
    }
}

/// Packet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Kind of the packet.
    pub kind: Kind,
    /// Bytes of the whole packet.
    pub length: u16,
    /// Number of requests or responses.
    pub count: u16,
    /// The client's packet number.
    pub sequence: u64,
    /// Address validation token.
    pub cookie: u64,
    /// Distance to the oldest packet in flight.
    pub oldest_offset: u32,
    /// Maximum size of the response, in bytes.
    pub response_limit: u16,
    /// Number of earlier transmissions.
    pub attempt: u16,
}

/// Why bytes are not a valid packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// Shorter than a header, or wrong magic number.
    NotAPacket,
    /// Packet of another version.
    Version(u8),
    /// Unknown kind.
    Kind(u8),
    /// The length field does not match the packet.
    Length,
    /// A request or response exceeds the packet, or surplus bytes follow.
    Body,
    /// Unknown operation, outcome or flag.
    Code(u8),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::NotAPacket => f.write_str("not a packet of this protocol"),
            WireError::Version(version) => {
                write!(f, "a packet of version {version}; this is version {VERSION}")
            }
            WireError::Kind(kind) => write!(f, "a packet of unknown kind {kind}"),
            WireError::Length => f.write_str("the length field does not match the packet"),
            WireError::Body => f.write_str("malformed packet body"),
            WireError::Code(code) => write!(f, "an unknown code {code}"),
        }
    }
}

impl std::error::Error for WireError {}

impl Header {
    /// End of the packet at the start of `bytes`, if it is complete.
    pub fn end(bytes: &[u8]) -> Option<usize> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let length = usize::from(u16_at(header, 4));
        let is_packet = header[..2] == MAGIC && header[2] == VERSION;
        (is_packet && (HEADER_BYTES..=bytes.len()).contains(&length)).then_some(length)
    }

    /// Maximum response size that a packet states, in bytes; 0 if it is shorter than a header.
    pub fn response_limit(packet: &[u8]) -> usize {
        packet.first_chunk::<HEADER_BYTES>().map_or(0, |bytes| u16_at(bytes, 28).into())
    }

    /// Decodes the header of a packet, and returns it with the body.
    ///
    /// # Errors
    /// If the header is invalid; the body is not checked.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (bytes, body) =
            packet.split_first_chunk::<HEADER_BYTES>().ok_or(WireError::NotAPacket)?;
        if bytes[..2] != MAGIC {
            return Err(WireError::NotAPacket);
        }
        if bytes[2] != VERSION {
            return Err(WireError::Version(bytes[2]));
        }
        let kind = Kind::of(bytes[3]).ok_or(WireError::Kind(bytes[3]))?;
        let header = Header {
            kind,
            length: u16_at(bytes, 4),
            count: u16_at(bytes, 6),
            sequence: u64_at(bytes, 8),
            cookie: u64_at(bytes, 16),
            oldest_offset: u32_at(bytes, 24),
            response_limit: u16_at(bytes, 28),
            attempt: u16_at(bytes, 30),
        };
        let length = usize::from(header.length).checked_sub(HEADER_BYTES);
        let parts = length.and_then(|length| body.split_at_checked(length));
        match parts {
            Some((body, zeros)) if zeros.iter().all(|byte| *byte == 0) => Ok((header, body)),
            _ => Err(WireError::Length),
        }
    }

    /// Writes the header over the first bytes of a packet; the length is that of `packet`.
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
        bytes[24..28].copy_from_slice(&self.oldest_offset.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.response_limit.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.attempt.to_le_bytes());
    }
}

/// Response to a client whose address is not validated: a bare header.
pub fn unverified(sequence: u64) -> [u8; HEADER_BYTES] {
    let mut packet = [0; HEADER_BYTES];
    let kind = Kind::Unverified;
    Header {
        kind,
        length: 0,
        count: 0,
        sequence,
        cookie: 0,
        oldest_offset: 0,
        response_limit: 0,
        attempt: 0,
    }
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

/// Splits `count` bytes off the front.
#[inline]
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], WireError> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(WireError::Body)?;
    *bytes = rest;
    Ok(taken)
}

#[inline]
fn take_u64(bytes: &mut &[u8]) -> Result<u64, WireError> {
    Ok(u64_at(take(bytes, 8)?, 0))
}

#[inline]
fn take_u32(bytes: &mut &[u8]) -> Result<u32, WireError> {
    Ok(u32_at(take(bytes, 4)?, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zeros_may_follow_a_packet() {
        let mut packet = unverified(7).to_vec();
        packet.extend_from_slice(b"body");
        let mut header = Header::parse(&unverified(7)).unwrap().0;
        header.write(&mut packet);
        header.length = 36;
        assert_eq!(Header::parse(&packet), Ok((header, &b"body"[..])));
        assert_eq!(Header::parse(&packet[..35]), Err(WireError::Length));
        packet.extend_from_slice(&[0; 100]);
        assert_eq!(Header::parse(&packet), Ok((header, &b"body"[..])));
        for at in [36, 100, 135] {
            packet[at] = 1;
            assert_eq!(Header::parse(&packet), Err(WireError::Length));
            packet[at] = 0;
        }
        for wrong in [0u16, 1, 31, 137, u16::MAX] {
            packet[4..6].copy_from_slice(&wrong.to_le_bytes());
            assert_eq!(Header::parse(&packet), Err(WireError::Length), "{wrong}");
        }
    }
}
