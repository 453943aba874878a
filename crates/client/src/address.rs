//! `sockaddr_in` and `sockaddr_in6`, byte by byte.
//!
//! ```text
//! IPv4   family 2 │ port 2 │ address 4 │ zeros
//! IPv6   family 2 │ port 2 │ flow 4 │ address 16 │ scope 4
//! ```
//!
//! Ports and addresses are big-endian, everything else is in native order.
//!
//! Source: Linux's ip(7) and ipv6(7).

use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address as the system represents it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct RawAddress {
    pub(crate) bytes: [u8; 32],
    pub(crate) len: libc::socklen_t,
}

impl RawAddress {
    pub(crate) const EMPTY: RawAddress = RawAddress { bytes: [0; 32], len: 0 };

    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut raw = RawAddress::EMPTY;
        match address {
            SocketAddr::V4(v4) => {
                raw.bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                raw.bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
                raw.bytes[4..8].copy_from_slice(&v4.ip().octets());
                raw.len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(v6) => {
                raw.bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                raw.bytes[2..4].copy_from_slice(&v6.port().to_be_bytes());
                raw.bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
                raw.bytes[8..24].copy_from_slice(&v6.ip().octets());
                raw.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                raw.len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            }
        }
        raw
    }

    pub(crate) fn to_std(self) -> Option<SocketAddr> {
        fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
            bytes[at..].first_chunk().copied().unwrap_or([0; N])
        }
        let bytes = &self.bytes;
        let port = u16::from_be_bytes(part(bytes, 2));
        match i32::from(u16::from_ne_bytes(part(bytes, 0))) {
            libc::AF_INET => {
                Some(SocketAddrV4::new(Ipv4Addr::from(part::<4>(bytes, 4)), port).into())
            }
            libc::AF_INET6 => {
                let flow = u32::from_ne_bytes(part(bytes, 4));
                let scope = u32::from_ne_bytes(part(bytes, 24));
                Some(
                    SocketAddrV6::new(Ipv6Addr::from(part::<16>(bytes, 8)), port, flow, scope)
                        .into(),
                )
            }
            _ => None,
        }
    }
}
