//! Who has proved its address.
//!
//! A cookie is a keyed hash of the address that a hello came from and of the hour; it goes to that
//! address, so whoever sends it back receives what is sent there. The key is drawn by each server and
//! never leaves it. A cookie of the hour before still counts.
//!
//! Where there is a password, only a hello with it gets a cookie.
//!
//! Invariant: nothing is kept for a client before it has shown a cookie.
//!
//! Source: the idea is that of TCP's SYN cookies (D. J. Bernstein, 1996) and DTLS's (RFC 6347); the
//! hash is the standard library's SipHash-1-3 with 128 random bits of key.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use siltstone_engine::Timestamp;

const HOUR: u64 = 60 * 60 * 1000;

/// What makes cookies.
pub(crate) struct Cookies {
    key: RandomState,
    instance: u64,
}

impl Cookies {
    pub(crate) fn new() -> Self {
        Cookies { key: RandomState::new(), instance: RandomState::new().hash_one(0) }
    }

    /// A number that no other server has drawn.
    pub(super) fn instance(&self) -> u64 {
        self.instance
    }

    fn of_hour(&self, client: SocketAddr, hour: u64) -> u64 {
        // 0 is what a client has that has none.
        self.key.hash_one((client, hour)).max(1)
    }

    /// The cookie of a client.
    pub(crate) fn of(&self, client: SocketAddr, now: Timestamp) -> u64 {
        self.of_hour(client, now / HOUR)
    }

    /// Whether a cookie is the client's.
    #[inline]
    pub(super) fn is_of(&self, client: SocketAddr, now: Timestamp, cookie: u64) -> bool {
        let hour = now / HOUR;
        cookie == self.of_hour(client, hour) || cookie == self.of_hour(client, hour.wrapping_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_cookie_good_for_its_address_and_an_hour() {
        let (cookies, now) = (Cookies::new(), 1000 * HOUR + 5);
        let [here, there]: [SocketAddr; 2] =
            ["127.0.0.1:5", "127.0.0.1:6"].map(|address| address.parse().unwrap());
        let cookie = cookies.of(here, now);
        assert!(cookies.is_of(here, now, cookie) && cookies.is_of(here, now + HOUR, cookie));
        assert!(!cookies.is_of(here, now + 2 * HOUR, cookie));
        assert!(!cookies.is_of(there, now, cookie) && !cookies.is_of(here, now, 0));
        assert!(!Cookies::new().is_of(here, now, cookie));
    }
}
