//! Handshake packets.
//!
//! ```text
//! hello, 512 bytes    0 ····· 32              34
//!                     header  password's      password, then zeros
//!                             bytes u16
//!
//! welcome, at most    0 ····· 32     40         48      49         50          51      52         56     58
//! 512 bytes           header  seed   instance   access  direction  partitions  cas?    value's    ports  port u16
//!                             u64    u64        u8      u8         log2 u8     u8      limit u32  u16    × ports
//! ```
//!
//! The welcome's header carries the cookie for the address that the hello came from, and the
//! hello's random sequence number. A cookie is valid for at least an hour. When it has expired, or
//! the server was restarted, the server answers `unverified` and the client repeats the handshake.
//!
//! Access is 0 for EREW, 1 for CREW, 2 for CRCW. Direction is 0 if requests that only the owner of
//! a partition may execute must go to its port (partition p has port p modulo the number of ports),
//! 1 if any port takes any request.
//!
//! Source: Lim, thesis, section 5.3.2, "Client assistance": the client caches the operation mode
//! and the number of partitions from a directory of the server.

use siltstone_mica::Access;

use super::{HEADER_BYTES, Header, Kind, WireError, u16_at, u32_at, u64_at};

/// Size of a hello in bytes, and maximum size of a welcome.
pub const BYTES: usize = 512;
/// Maximum password length, in bytes.
pub const MAX_PASSWORD_BYTES: usize = BYTES - HEADER_BYTES - 2;
/// Maximum number of ports in a welcome.
pub const MAX_PORTS: usize = (BYTES - FIXED) / 2;
const FIXED: usize = 58;

/// Parameters of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// Seed of the key hash (XXH3-64).
    pub seed: u64,
    /// Random number per server start; a different one means a different table.
    pub instance: u64,
    /// Access mode of the partitions.
    pub access: Access,
    /// Whether any port takes any request.
    pub any_port: bool,
    /// Base-2 logarithm of the number of partitions.
    pub partition_bits: u8,
    /// Whether items have CAS versions.
    pub has_cas: bool,
    /// Maximum value size of the table, in bytes.
    pub max_value_bytes: u32,
    /// Ports by index.
    pub ports: Vec<u16>,
}

/// Encodes a hello. A password longer than [`MAX_PASSWORD_BYTES`] is truncated, which no server
/// accepts.
pub fn hello(sequence: u64, password: &[u8]) -> [u8; BYTES] {
    let mut packet = [0; BYTES];
    let password = &password[..password.len().min(MAX_PASSWORD_BYTES)];
    packet[32..34].copy_from_slice(&(password.len() as u16).to_le_bytes());
    packet[34..34 + password.len()].copy_from_slice(password);
    let response_limit = BYTES as u16;
    let kind = Kind::Hello;
    Header {
        kind,
        length: 0,
        count: 0,
        sequence,
        cookie: 0,
        oldest_offset: 0,
        response_limit,
        attempt: 0,
    }
    .write(&mut packet);
    packet
}

/// The password in a hello's body.
///
/// # Errors
/// If the hello is shorter than a welcome may be, or malformed.
pub fn password(body: &[u8]) -> Result<&[u8], WireError> {
    if body.len() < BYTES - HEADER_BYTES {
        return Err(WireError::Length);
    }
    body[2..].get(..usize::from(u16_at(body, 0))).ok_or(WireError::Body)
}

impl Welcome {
    /// Encodes the welcome, with the cookie, as the response to `sequence`.
    pub fn packet(&self, sequence: u64, cookie: u64) -> Vec<u8> {
        let ports = &self.ports[..self.ports.len().min(MAX_PORTS)];
        let mut packet = vec![0; FIXED];
        packet[32..40].copy_from_slice(&self.seed.to_le_bytes());
        packet[40..48].copy_from_slice(&self.instance.to_le_bytes());
        packet[48] = self.access as u8;
        packet[49] = u8::from(self.any_port);
        packet[50] = self.partition_bits;
        packet[51] = u8::from(self.has_cas);
        packet[52..56].copy_from_slice(&self.max_value_bytes.to_le_bytes());
        packet[56..58].copy_from_slice(&(ports.len() as u16).to_le_bytes());
        packet.extend(ports.iter().flat_map(|port| port.to_le_bytes()));
        let kind = Kind::Welcome;
        Header {
            kind,
            length: 0,
            count: 0,
            sequence,
            cookie,
            oldest_offset: 0,
            response_limit: 0,
            attempt: 0,
        }
        .write(&mut packet);
        packet
    }

    /// Decodes a welcome's body.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        const AT: usize = HEADER_BYTES;
        let (fixed, ports) = body.split_at_checked(FIXED - AT).ok_or(WireError::Body)?;
        let access = match fixed[48 - AT] {
            0 => Access::Erew,
            1 => Access::Crew,
            2 => Access::Crcw,
            other => return Err(WireError::Code(other)),
        };
        let partition_bits = fixed[50 - AT];
        let count = usize::from(u16_at(fixed, 56 - AT));
        if ports.len() != 2 * count || count == 0 || partition_bits > 16 {
            return Err(WireError::Body);
        }
        Ok(Welcome {
            seed: u64_at(fixed, 0),
            instance: u64_at(fixed, 40 - AT),
            access,
            any_port: fixed[49 - AT] != 0,
            partition_bits,
            has_cas: fixed[51 - AT] != 0,
            max_value_bytes: u32_at(fixed, 52 - AT),
            ports: ports.chunks_exact(2).map(|port| u16_at(port, 0)).collect(),
        })
    }
}
