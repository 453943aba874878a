//! A replicated table of three server processes whose leader is killed again and again.
//!
//! Clients increment counters, one key each, and a writer and a reader share a register. Checked:
//! an acknowledged increment is never lost and none is applied twice, reads are never stale, and
//! the refusals after a kill end: within [`MAX_REFUSAL`] if several kills are asked for.
//!
//! `SILTSTONE_KILLS=20 cargo test -p siltstone-cli --test acknowledged_writes -- --nocapture` kills
//! the leader 20 times.

mod backups;
mod changes;
pub mod client;
mod cluster_clients;
mod created;
mod encrypted;
mod followers;
mod functions;
mod groups;
pub mod nodes;
mod older_copies;
mod pubsub;
mod refusals;
mod users;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use client::{Answer, ClusterClient};
use nodes::Nodes;

const COUNTERS: u64 = 3;
/// Of a group whose majority is healthy.
pub const MAX_REFUSAL: Duration = Duration::from_secs(3);

fn kills() -> u64 {
    std::env::var("SILTSTONE_KILLS").map_or(1, |text| text.parse().unwrap())
}

/// Increments a counter until the end. Returns the number of acknowledged increments.
fn increment(nodes: &[SocketAddr], key: &str, ends: &AtomicBool, last_ack: &AtomicU64) -> u64 {
    let mut client = ClusterClient::impatient(nodes);
    // Those whose outcome is unknown are applied now, later or never.
    let (mut value, mut unknown, mut acknowledged) = (0, 0, 0);
    loop {
        match client.call(&["INCR", key]) {
            Answer::Reply(reply) => {
                let found: u64 = reply[1..].parse().unwrap_or_else(|_| panic!("INCR: {reply}"));
                let allowed = value + 1..=value + 1 + unknown;
                assert!(allowed.contains(&found), "{key}: {found} is not in {allowed:?}");
                unknown -= found - value - 1;
                value = found;
                acknowledged += 1;
                last_ack.fetch_add(1, SeqCst);
                if ends.load(SeqCst) {
                    return acknowledged;
                }
            }
            // A test that has failed leaves no leader behind, perhaps.
            Answer::Refused if ends.load(SeqCst) => return acknowledged,
            Answer::Refused => {}
            Answer::Unknown => unknown += 1,
        }
    }
}

/// Writes ascending numbers to a register; `written` is the last acknowledged one.
fn write_register(nodes: &[SocketAddr], ends: &AtomicBool, written: &AtomicU64) {
    // What an impatient writer has given up could come after its next write.
    let mut client = ClusterClient::new(nodes);
    let mut next = 1;
    while !ends.load(SeqCst) {
        if let Answer::Reply(reply) = client.call(&["SET", "register", &next.to_string()]) {
            assert_eq!(reply, "+OK");
            written.store(next, SeqCst);
        }
        next += 1;
    }
}

/// Reads the register. Returns the number of answered reads.
fn read_register(nodes: &[SocketAddr], ends: &AtomicBool, written: &AtomicU64) -> u64 {
    let mut client = ClusterClient::new(nodes);
    let (mut last, mut reads) = (0, 0);
    while !ends.load(SeqCst) {
        let least = written.load(SeqCst).max(last);
        if let Answer::Reply(reply) = client.call(&["GET", "register"]) {
            let found = if reply == "$-1" { 0 } else { reply.parse().unwrap() };
            assert!(found >= least, "a stale read: {found}, after {least}");
            last = found;
            reads += 1;
        }
    }
    reads
}

/// What the clients have seen.
#[derive(Default)]
struct Load {
    ends: AtomicBool,
    acks: AtomicU64,
    written: AtomicU64,
}

impl Load {
    /// Waits until writes are acknowledged that were sent after this call.
    fn wait_for_writes(&self) {
        // Acknowledgements of before may be counted a moment later.
        let before = self.acks.load(SeqCst) + COUNTERS;
        nodes::wait_for("writes", || self.acks.load(SeqCst) > before);
    }
}

/// Runs something under clients. Returns the acknowledged increments and the answered reads.
fn under_load(clients: &[SocketAddr], run: impl FnOnce(&Load)) -> (u64, u64) {
    let load = Load::default();
    std::thread::scope(|scope| {
        let Load { ends, acks, written } = &load;
        // A failed assertion below must not leave the threads running.
        let _end = nodes::SetOnDrop(ends);
        let counters: Vec<_> = (0..COUNTERS)
            .map(|c| scope.spawn(move || increment(clients, &format!("counter:{c}"), ends, acks)))
            .collect();
        scope.spawn(|| write_register(clients, ends, written));
        let reader = scope.spawn(|| read_register(clients, ends, written));
        nodes::wait_for("writes", || acks.load(SeqCst) > 20);
        run(&load);
        ends.store(true, SeqCst);
        let acknowledged: u64 = counters.into_iter().map(|c| c.join().unwrap()).sum();
        (acknowledged, reader.join().unwrap())
    })
}

#[test]
fn killed_leader_loses_no_acknowledged_write_and_reads_stay_fresh() {
    let mut nodes = Nodes::start(3);
    nodes.leader();
    let clients = nodes.clients.clone();
    let mut refusals = Vec::new();
    let (acknowledged, reads) = under_load(&clients, |load| {
        for _ in 0..kills() {
            let leader = nodes.leader();
            nodes.kill(leader);
            let killed = Instant::now();
            load.wait_for_writes();
            refusals.push(killed.elapsed());
            nodes.restart(leader);
            load.wait_for_writes();
        }
    });
    let longest = refusals.iter().max().unwrap();
    println!(
        "{acknowledged} increments acknowledged, 0 lost; {reads} reads, 0 stale; leader killed {} \
         times, refusals up to {longest:?}",
        refusals.len()
    );
    // A single kill runs beside other tests, which delay it by as much as they like.
    assert!(kills() == 1 || *longest < MAX_REFUSAL, "{refusals:?}");
    follower_redirects_and_serves_stale_reads(&nodes);
    minority_neither_writes_nor_reads(&mut nodes);
}

fn follower_redirects_and_serves_stale_reads(nodes: &Nodes) {
    let leader = nodes.leader();
    let follower = (leader + 1) % nodes.clients.len();
    let mut client = client::Connection::open(nodes.clients[follower]).unwrap();
    let mut is_moved = |words: &[&str]| {
        // A node that has just started knows no leader yet.
        nodes::wait_for("a redirection", || {
            let reply = client.call(words).unwrap();
            assert!(reply.starts_with("-MOVED 12182 127.0.0.1:") || is_down(&reply), "{reply}");
            !is_down(&reply)
        });
    };
    for command in [&["SET", "foo", "1"][..], &["GET", "foo"], &["BLPOP", "foo", "0"]] {
        is_moved(command);
    }
    let mut leading = ClusterClient::new(&nodes.clients);
    let set = ["SET", "foo", "fresh"];
    nodes::wait_for("a write", || matches!(leading.call(&set), Answer::Reply(_)));
    let mut reader = client::Connection::open(nodes.clients[follower]).unwrap();
    assert_eq!(reader.call(&["READONLY"]).as_deref(), Some("+OK"));
    nodes::wait_for("the follower's copy", || reader.call(&["GET", "foo"]).unwrap() == "fresh");
    assert!(reader.call(&["SET", "foo", "1"]).unwrap().starts_with("-MOVED 12182 "));
    assert_eq!(reader.call(&["READWRITE"]).as_deref(), Some("+OK"));
    assert!(reader.call(&["GET", "foo"]).unwrap().starts_with("-MOVED 12182 "));
}

fn is_down(reply: &str) -> bool {
    reply.starts_with("-CLUSTERDOWN ")
}

fn minority_neither_writes_nor_reads(nodes: &mut Nodes) {
    let leader = nodes.leader();
    let mut waiting = client::Connection::open(nodes.clients[leader]).unwrap();
    let mut client = client::Connection::open(nodes.clients[leader]).unwrap();
    for other in (0..nodes.clients.len()).filter(|node| *node != leader) {
        nodes.kill(other);
    }
    // If the node still takes itself for the leader, the outcome is unknown: no answer.
    let reply = waiting.call(&["SET", "foo", "lost?"]);
    assert!(reply.as_deref().is_none_or(|reply| reply.starts_with('-')), "{reply:?}");
    nodes::wait_for("the leader gives up", || {
        let reply = client.call(&["GET", "foo"]);
        if reply.is_none() {
            client.reconnect().unwrap();
        }
        reply.is_some_and(|reply| {
            assert!(reply.starts_with('-'), "a read without a majority: {reply}");
            is_down(&reply)
        })
    });
    assert!(is_down(&client.call(&["SET", "foo", "1"]).unwrap()));
    assert_eq!(client.call(&["PING"]).as_deref(), Some("+PONG"));
    assert!(client.call(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:fail"));
}
