//! What a cluster says of a node that has lost its disk or is of another cluster, and of a majority
//! that is gone: each time with the way out.

use super::client::Connection;
use super::nodes::{Nodes, wait_for};

fn status(nodes: &Nodes) -> (Option<i32>, String) {
    let output = nodes.cluster("status", &[]);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn lost_disk_other_cluster_and_lost_majority_are_refused_with_the_way_out() {
    let mut nodes = Nodes::start(3);
    nodes.leader();
    // The disk of node 3 is lost, and somebody starts it on an empty one.
    nodes.kill(2);
    std::fs::remove_dir_all(nodes.dir(2)).unwrap();
    nodes.restart(2);
    // The others see the new directory, or the node sees what its leader counts on.
    let ways_out = [
        "refuses node 3: it runs on another directory than before; remove it, and let it join in \
         an empty directory",
        "remove the node from its group, delete its directory, and let it join again under a new",
    ];
    wait_for("the refusal of the emptied node", || {
        let (_, shown) = status(&nodes);
        ways_out.iter().any(|way_out| shown.contains(way_out))
    });
    wait_for("the end of the emptied node", || {
        let log = nodes.log(2);
        let mut lines = log.lines().filter(|line| line.contains("this one was created again"));
        lines.any(|line| line.contains("let it join again under a new node id"))
    });
    // The same of another cluster.
    nodes.kill(2);
    std::fs::remove_dir_all(nodes.dir(2)).unwrap();
    nodes.cluster_id += 1;
    nodes.restart(2);
    wait_for("the refusal of another cluster at both sides", || {
        let is_told = |node: usize, other: usize| {
            let log = nodes.log(node);
            let mut lines = log.lines().filter(|line| line.contains("belongs to cluster"));
            lines
                .any(|line| line.contains(&format!("node {other} ")) && line.contains("check addr"))
        };
        is_told(0, 3) && is_told(2, 1)
    });
    // The majority is gone.
    nodes.kill(2);
    nodes.kill(1);
    let expected =
        "has no leader: 1 of 3 voters answer, and a majority is needed; start the others";
    wait_for("the loss of the majority", || {
        let (code, shown) = status(&nodes);
        assert!(code == Some(1) || !shown.contains(expected));
        shown.contains(expected)
    });
    // Until it misses the dead leader, the node redirects to it, or takes itself for the leader.
    let mut reply = String::new();
    wait_for("a refusal", || {
        let mut client = Connection::open(nodes.clients[0]).unwrap();
        reply = client.call(&["SET", "k", "v"]).unwrap_or_default();
        reply.starts_with("-CLUSTERDOWN no leader is known: ")
    });
    assert!(reply.ends_with("'siltstone cluster status' shows who is missing"), "{reply}");
}
