//! Nodes that stop and go on, join, lead and leave, over TLS, under clients.
//!
//! `SILTSTONE_CHANGES=20 cargo test -p siltstone-cli --test acknowledged_writes -- --nocapture`
//! runs 20 rounds, in each of which the group gets a new node for its oldest one.

use rustix::process::Signal;

use super::client::Connection;
use super::nodes::{Nodes, succeeds, text, tls, wait_for};
use super::under_load;

fn rounds() -> usize {
    std::env::var("SILTSTONE_CHANGES").map_or(1, |text| text.parse().unwrap())
}

#[test]
fn stopped_joined_moved_and_removed_nodes_lose_no_acknowledged_write() {
    let mut nodes = Nodes::with_spare(3, rounds(), &tls());
    let follower = (nodes.leader() + 1) % 3;
    takes_over(&nodes, follower);
    let clients = nodes.clients.clone();
    let (acknowledged, reads) = under_load(&clients, |load| {
        for round in 0..rounds() {
            // A leader that is stopped and goes on is not the leader any more. The
            // reader waits for its answer all the time, which must not be a stale one.
            let leader = nodes.leader();
            nodes.signal(leader, Signal::STOP);
            load.wait_for_writes();
            nodes.signal(leader, Signal::CONT);
            load.wait_for_writes();
            // A new node joins, and votes.
            let (new, old) = (3 + round, round);
            nodes.restart(new);
            let number = nodes.number(new);
            wait_for("the vote of the new node", || {
                let status = text(&nodes.cluster("status", &[]));
                status.contains("of 4 voters answer, 1 more node may fail")
            });
            load.wait_for_writes();
            // It leads, is killed and comes back.
            succeeds(&nodes.cluster("move-leader", &[&number]));
            load.wait_for_writes();
            nodes.kill(new);
            load.wait_for_writes();
            nodes.restart(new);
            assert_eq!(nodes.number(new), number);
            // The oldest node is dead and removed.
            let number = nodes.number(old);
            nodes.kill(old);
            load.wait_for_writes();
            // A leader that has just begun has heard of too few nodes yet.
            wait_for("the removal of the dead node", || {
                let removed = nodes.cluster("remove", &[&number]);
                let is_early = text(&removed).contains("no majority, so it would stop serving");
                !is_early && succeeds(&removed).contains("its directory is as it was")
            });
            load.wait_for_writes();
        }
    });
    println!(
        "{acknowledged} increments acknowledged, 0 lost; {reads} reads, 0 stale; {} rounds",
        rounds()
    );
    let check = succeeds(&nodes.cluster("check", &[]));
    assert!(check.starts_with("3 nodes have the same "), "{check}");
    removal_of_the_majority_is_refused(&mut nodes);
}

/// A follower takes over as Redis's does.
fn takes_over(nodes: &Nodes, follower: usize) {
    let mut client = Connection::open(nodes.clients[follower]).unwrap();
    let refused = client.call(&["CLUSTER", "FAILOVER", "TAKEOVER"]).unwrap();
    assert!(refused.starts_with("-ERR TAKEOVER is refused"), "{refused}");
    wait_for("the follower to lead", || {
        let reply = client.call(&["CLUSTER", "FAILOVER"]).unwrap();
        reply == "-ERR You should send CLUSTER FAILOVER to a replica"
    });
}

fn removal_of_the_majority_is_refused(nodes: &mut Nodes) {
    let leader = nodes.leader();
    let others: Vec<_> = nodes.running().into_iter().filter(|node| *node != leader).collect();
    let number = nodes.number(others[1]);
    nodes.kill(others[0]);
    // Until the leader knows that a node is dead, it could do without another one.
    let mut client = super::client::Connection::open(nodes.clients[leader]).unwrap();
    wait_for("the dead node is noticed", || {
        client.call(&["CLUSTER", "STATUS"]).unwrap().contains("alive=0")
    });
    let refused = nodes.cluster("remove", &[&number]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("no majority, so it would stop serving"), "{}", text(&refused));
    let status = nodes.cluster("status", &[]);
    assert_eq!(status.status.code(), Some(1));
    assert!(text(&status).contains("2 of 3 voters answer, no further node may fail"));
}
