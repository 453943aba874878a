//! Three nodes with four groups: leaders are spread, a node is killed under clients, another one
//! joins, and one is removed.

use super::client::Connection;
use super::nodes::{Nodes, text, wait_for};
use super::under_load;

const GROUPS: usize = 4;

/// The node that leads each group, as one node sees it; 0 if none is known.
pub fn leaders(nodes: &Nodes, at: usize) -> Vec<u64> {
    let mut client = Connection::open(nodes.clients[at]).unwrap();
    let info = client.call(&["INFO", "replication"]).unwrap();
    let of_group = |group: usize| {
        let prefix = format!("raft_group{group}:leader=");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap();
        line.split(',').next().unwrap().parse().unwrap()
    };
    (0..GROUPS).map(of_group).collect()
}

#[test]
fn groups_spread_their_leaders_and_lose_no_acknowledged_write() {
    let mut nodes = Nodes::with_spare(3, 1, &["--groups".to_owned(), GROUPS.to_string()]);
    wait_for("leaders that are spread", || leaders(&nodes, 0) == [1, 2, 3, 1]);
    let clients = nodes.clients.clone();
    let (acknowledged, reads) = under_load(&clients, |load| {
        // The leader of group 1.
        nodes.kill(1);
        load.wait_for_writes();
        wait_for("other leaders", || {
            leaders(&nodes, 0).iter().all(|leader| [1, 3].contains(leader))
        });
        nodes.restart(1);
        wait_for("the balance", || leaders(&nodes, 0) == [1, 2, 3, 1]);
        load.wait_for_writes();
        // A node that joins is a member of all groups.
        nodes.restart(3);
        wait_for("the new node's votes", || {
            let status = text(&nodes.cluster("status", &[]));
            status.matches("4 of 4 voters answer").count() == GROUPS
        });
        load.wait_for_writes();
        let moved = nodes.cluster("move-leader", &["4", "--group", "2"]);
        assert_eq!(moved.status.code(), Some(0), "{}", text(&moved));
        load.wait_for_writes();
        // The dead node leaves all groups, as the first does.
        nodes.kill(0);
        wait_for("the removal of the dead node", || {
            let removed = nodes.cluster("remove", &["1"]);
            text(&removed).contains("its directory is as it was")
        });
        load.wait_for_writes();
    });
    println!("{acknowledged} increments acknowledged, 0 lost; {reads} reads, 0 stale");
    let check = nodes.cluster("check", &[]);
    let shown = text(&check);
    assert_eq!(check.status.code(), Some(0), "{shown}");
    assert_eq!(shown.matches(": 3 nodes have the same ").count(), GROUPS, "{shown}");
    wait_for("the named leader", || leaders(&nodes, 3)[2] == 4);
}

#[test]
fn commands_go_to_the_leader_of_their_group() {
    let nodes = Nodes::with_spare(3, 0, &["--groups".to_owned(), GROUPS.to_string()]);
    wait_for("leaders that are spread", || leaders(&nodes, 0) == [1, 2, 3, 1]);
    // Keys of the groups 0 to 3, and their slots.
    let keys = [("b", 3300), ("c", 7365), ("d", 11298), ("a", 15495)];
    for (group, (key, slot)) in keys.into_iter().enumerate() {
        let leader = [0, 1, 2, 0][group];
        for node in 0..3 {
            let mut client = Connection::open(nodes.clients[node]).unwrap();
            let expected = match node == leader {
                true => "+OK".to_owned(),
                false => format!("-MOVED {slot} {}", nodes.clients[leader]),
            };
            // A node may learn of the leader later than the first one.
            wait_for(&expected, || client.call(&["SET", key, "v"]).unwrap() == expected);
        }
    }
    // Each node has the keys of the groups that it leads.
    for (node, count) in [":2", ":1", ":1"].into_iter().enumerate() {
        let mut client = Connection::open(nodes.clients[node]).unwrap();
        assert_eq!(client.call(&["DBSIZE"]).as_deref(), Some(count));
    }
    let mut client = Connection::open(nodes.clients[2]).unwrap();
    let shown = client.call(&["CLUSTER", "NODES"]).unwrap();
    for (node, ranges) in ["0-4095 12288-16383", "4096-8191", "8192-12287"].iter().enumerate() {
        let line = shown.lines().find(|line| line.contains(&nodes.clients[node].to_string()));
        assert!(line.unwrap().ends_with(&format!("connected {ranges}")), "{shown}");
    }
    // After READONLY a follower answers reads, of its own copy.
    assert_eq!(client.call(&["READONLY"]).as_deref(), Some("+OK"));
    wait_for("the copy", || client.call(&["GET", "b"]).as_deref() == Some("v"));
    assert!(client.call(&["SET", "b", "w"]).unwrap().starts_with("-MOVED 3300 "));
}
