//! A network of namespaces on one bridge: one for each node, and one for the clients.
//!
//! ```text
//!   clients   bridge 10.77.0.254 ──┬── v0 ═ eth0 10.77.0.1   node 0
//!                                  ├── v1 ═ eth0 10.77.0.2   node 1
//!                                  └── …
//! ```
//!
//! The bridge is in the namespace of the clients, so the machine's own network stays as it is. The
//! names have the number of this process. Cuts are blackhole routes at the sender; an unplugged
//! node has its link down.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The namespaces; dropping it removes them.
pub struct Network {
    nodes: usize,
}

fn namespace(node: usize) -> String {
    format!("siltstone-{}-{node}", std::process::id())
}

fn hub() -> String {
    format!("siltstone-{}-hub", std::process::id())
}

fn ip_of(node: usize) -> String {
    format!("10.77.0.{}", node + 1)
}

/// Runs `ip`; returns whether it has succeeded.
fn try_ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

fn ip(words: &str) {
    assert!(try_ip(words), "ip {words}");
}

/// Why there can be no namespaces here, if so.
pub fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may make network namespaces");
    }
    if !try_ip("-V") {
        return Some("the program 'ip' is missing");
    }
    if !try_ip(&format!("netns add {}", hub())) {
        return Some("'ip netns add' fails");
    }
    ip(&format!("netns del {}", hub()));
    None
}

impl Network {
    /// Makes the namespaces, and moves this thread to that of the clients. The threads and
    /// processes that it starts begin there.
    pub fn create(nodes: usize) -> Self {
        let network = Network { nodes };
        let hub = hub();
        ip(&format!("netns add {hub}"));
        ip(&format!("-n {hub} link set lo up"));
        ip(&format!("-n {hub} link add bridge type bridge"));
        ip(&format!("-n {hub} addr add 10.77.0.254/24 dev bridge"));
        ip(&format!("-n {hub} link set bridge up"));
        for node in 0..nodes {
            let namespace = namespace(node);
            ip(&format!("netns add {namespace}"));
            ip(&format!("-n {namespace} link set lo up"));
            ip(&format!("-n {hub} link add v{node} type veth peer name eth0 netns {namespace}"));
            ip(&format!("-n {hub} link set v{node} master bridge up"));
            ip(&format!("-n {namespace} addr add {}/24 dev eth0", ip_of(node)));
            ip(&format!("-n {namespace} link set eth0 up"));
        }
        let file = File::open(format!("/var/run/netns/{hub}")).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        network
    }

    /// Where clients and other nodes reach a node.
    pub fn addresses(&self, node: usize) -> [SocketAddr; 2] {
        [7000, 17_000].map(|port| format!("{}:{port}", ip_of(node)).parse().unwrap())
    }

    /// What runs a program in the namespace of a node.
    pub fn wrapper(&self, node: usize) -> Vec<String> {
        ["ip", "netns", "exec", &namespace(node)].map(str::to_owned).to_vec()
    }

    /// Drops what `from` sends to `to`.
    pub fn cut(&self, from: usize, to: usize) {
        ip(&format!("-n {} route replace blackhole {}", namespace(from), ip_of(to)));
    }

    /// Drops what everyone sends to a node and what it sends, also to clients.
    pub fn unplug(&self, node: usize) {
        ip(&format!("-n {} link set v{node} down", hub()));
    }

    /// Undoes all cuts.
    pub fn heal(&self) {
        for node in 0..self.nodes {
            ip(&format!("-n {} link set v{node} up", hub()));
            for other in 0..self.nodes {
                // Most of these routes are not there.
                try_ip(&format!("-n {} route del blackhole {}", namespace(node), ip_of(other)));
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in (0..self.nodes).map(namespace).chain([hub()]) {
            try_ip(&format!("netns del {name}"));
        }
    }
}
