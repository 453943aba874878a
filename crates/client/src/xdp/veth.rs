//! A pair of connected virtual interfaces, for tests and measurements.
//!
//! ```text
//! namespace NAME-a                     namespace NAME-b
//! veth 10.77.0.1/24 ◀────────────────▶ veth 10.77.0.2/24
//! ```
//!
//! Each interface has its own network namespace, so the machine's configuration is unchanged.
//! Requires root and the program `ip`. The MTU is the maximum that AF_XDP can send.
//!
//! Invariant: both namespaces are gone when the [`VethPair`] is dropped.
//!
//! Source: veth(4), network_namespaces(7).

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Name of the interface in both namespaces.
pub const INTERFACE: &str = "veth";
/// Maximum IP packet: 64 KiB with the Ethernet header.
const MTU: &str = "65522";

/// A pair of interfaces in namespaces.
pub struct VethPair {
    name: String,
}

/// One end of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// 10.77.0.1
    A,
    /// 10.77.0.2
    B,
}

impl Side {
    /// Its IP address.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, if self == Side::A { 1 } else { 2 })
    }
}

impl VethPair {
    /// Creates a pair; `name` must be unused.
    ///
    /// # Errors
    /// Errors of `ip`: usually missing rights.
    pub fn new(name: &str) -> io::Result<Self> {
        let pair = VethPair { name: name.to_owned() };
        let (a, b) = (pair.namespace(Side::A), pair.namespace(Side::B));
        ip(&["netns", "add", &a])?;
        ip(&["netns", "add", &b])?;
        let link = ["-n", &a, "link", "add", INTERFACE, "mtu", MTU, "type", "veth"];
        ip(&[&link[..], &["peer", "name", INTERFACE, "mtu", MTU, "netns", &b]].concat())?;
        for side in [Side::A, Side::B] {
            let (namespace, address) = (pair.namespace(side), format!("{}/24", side.address()));
            ip(&["-n", &namespace, "address", "add", &address, "dev", INTERFACE])?;
            ip(&["-n", &namespace, "link", "set", INTERFACE, "up"])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        }
        Ok(pair)
    }

    /// Name of a side's namespace, for `ip netns`.
    pub fn namespace(&self, side: Side) -> String {
        format!("{}-{}", self.name, if side == Side::A { "a" } else { "b" })
    }

    /// Moves this thread to a side permanently; sockets that it opens afterwards belong to it.
    ///
    /// # Errors
    /// System errors.
    pub fn enter(&self, side: Side) -> io::Result<()> {
        let namespace = File::open(format!("/run/netns/{}", self.namespace(side)))?;
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        for side in [Side::A, Side::B] {
            // It may not exist.
            let _ = ip(&["netns", "delete", &self.namespace(side)]);
        }
    }
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let run = Command::new("ip").args(arguments).output()?;
    match run.status.success() {
        true => Ok(()),
        false => {
            let message = String::from_utf8_lossy(&run.stderr);
            Err(io::Error::other(format!("ip {}: {}", arguments.join(" "), message.trim())))
        }
    }
}
