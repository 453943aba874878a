//! Address validation by cookies.
//!
//! A cookie is a keyed hash of the address that a hello came from, of the hour, and of the number
//! of changes of the user `default`. It is sent to that address, so a client that returns it
//! receives what is sent there. The key is random per server and never leaves it. The previous
//! hour's cookie is still valid.
//!
//! If the user `default` has a password, only a hello with the password gets a cookie. A change of
//! that user makes all cookies invalid.
//!
//! Invariant: no state is kept for a client before it has returned a valid cookie.
//!
//! Source: the idea of TCP's SYN cookies (D. J. Bernstein, 1996) and DTLS (RFC 6347). The hash is
//! the standard library's SipHash-1-3 with a random 128-bit key.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use siltstone_engine::Timestamp;

const HOUR_MS: u64 = 60 * 60 * 1000;

/// Generates and checks cookies.
pub(crate) struct Cookies {
    key: RandomState,
    instance: u64,
}

impl Cookies {
    pub(crate) fn new() -> Self {
        Cookies { key: RandomState::new(), instance: RandomState::new().hash_one(0) }
    }

    /// Random number of this server instance.
    pub(super) fn instance(&self) -> u64 {
        self.instance
    }

    fn of_hour(&self, client: SocketAddr, hour: u64, changes: u64) -> u64 {
        // 0 is the cookie of a client without one.
        self.key.hash_one((client, hour, changes)).max(1)
    }

    /// The cookie of a client after this number of changes of the user `default`.
    pub(crate) fn cookie_for(&self, client: SocketAddr, now: Timestamp, changes: u64) -> u64 {
        self.of_hour(client, now / HOUR_MS, changes)
    }

    /// Whether a cookie is valid for the client.
    #[inline]
    pub(super) fn is_valid(
        &self,
        client: SocketAddr,
        now: Timestamp,
        changes: u64,
        cookie: u64,
    ) -> bool {
        let hour = now / HOUR_MS;
        cookie == self.of_hour(client, hour, changes)
            || cookie == self.of_hour(client, hour.wrapping_sub(1), changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_valid_for_its_address_and_an_hour() {
        let (cookies, now) = (Cookies::new(), 1000 * HOUR_MS + 5);
        let [here, there]: [SocketAddr; 2] =
            ["127.0.0.1:5", "127.0.0.1:6"].map(|address| address.parse().unwrap());
        let cookie = cookies.cookie_for(here, now, 0);
        assert!(
            cookies.is_valid(here, now, 0, cookie)
                && cookies.is_valid(here, now + HOUR_MS, 0, cookie)
        );
        assert!(!cookies.is_valid(here, now + 2 * HOUR_MS, 0, cookie));
        assert!(!cookies.is_valid(there, now, 0, cookie) && !cookies.is_valid(here, now, 0, 0));
        assert!(!cookies.is_valid(here, now, 1, cookie), "the user has changed");
        assert!(!Cookies::new().is_valid(here, now, 0, cookie));
    }
}
