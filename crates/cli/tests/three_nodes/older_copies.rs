//! A node whose directory was replaced by an older copy of itself is refused, whether the copy was
//! made of a stopped node or of a running one; and the way out works.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::client::{Answer, ClusterClient};
use super::nodes::{Nodes, succeeds, text, wait_for};

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn copy_of(nodes: &Nodes, node: usize) -> PathBuf {
    let copied = nodes.dir(node).with_extension("copy");
    copy(nodes.dir(node), &copied);
    copied
}

fn write(nodes: &Nodes, value: &str) {
    let mut client = ClusterClient::new(&nodes.clients);
    let set = ["SET", "k", value];
    wait_for("a write", || matches!(client.call(&set), Answer::Reply(reply) if reply == "+OK"));
}

/// Writes something that has a majority by this node only.
fn write_by(nodes: &mut Nodes, node: usize, value: &str) {
    let leader = nodes.leader();
    let third = (0..3).find(|other| ![leader, node].contains(other)).unwrap();
    nodes.kill(third);
    write(nodes, value);
    nodes.restart(third);
    nodes.number(third);
}

/// Puts the copy back and starts the node, which ends with what it has forgotten.
fn is_refused(nodes: &mut Nodes, node: usize, copied: &Path, forgotten: &str) {
    nodes.kill(node);
    std::fs::remove_dir_all(nodes.dir(node)).unwrap();
    copy(copied, nodes.dir(node));
    std::fs::remove_dir_all(copied).unwrap();
    let number = node + 1;
    nodes.restart(node);
    let expected = [
        format!("an older copy of that of node {number}, which has forgotten {forgotten}"),
        "delete its directory, and let it join again under a new node id: 'siltstone cluster \
         remove ADDRESS NODE', then 'siltstone cluster join DIR ADDRESS"
            .to_owned(),
    ];
    let is_told = |text: &str| {
        let mut lines = text.lines().filter(|line| expected.iter().all(|part| line.contains(part)));
        lines.any(|line| line.contains(nodes.dir(node).to_str().unwrap()))
    };
    wait_for("the end of the older copy", || is_told(&nodes.log(node)));
    let shown = text(&nodes.cluster("status", &[]));
    assert!(shown.contains(&format!("node {number}")), "{shown}");
    // It is refused from then on, also if nobody is there who knows.
    nodes.kill(node);
    let again = nodes.command(node).output().unwrap();
    let errors = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success(), "{errors}");
    assert!(errors.contains("another node knows that it is an older copy"), "{errors}");
}

#[test]
fn older_copy_of_a_directory_is_refused_and_the_node_joins_again() {
    let mut nodes = Nodes::start(3);
    let node = (nodes.leader() + 1) % 3;
    write(&nodes, "0");
    // A copy of a stopped node.
    nodes.kill(node);
    let copied = copy_of(&nodes, node);
    nodes.restart(node);
    nodes.number(node);
    write_by(&mut nodes, node, "1");
    is_refused(&mut nodes, node, &copied, "its start 1");
    // The way out.
    let number = (node + 1).to_string();
    wait_for("the removal", || {
        text(&nodes.cluster("remove", &[&number])).contains("its directory is as it was")
    });
    nodes.forget(node);
    nodes.restart(node);
    wait_for("the vote of the new node", || {
        text(&nodes.cluster("status", &[])).contains("of 3 voters answer, 1 more node may fail")
    });
    let check = succeeds(&nodes.cluster("check", &[]));
    assert!(check.starts_with("3 nodes have the same "), "{check}");
    // A copy of a running node.
    let node = (0..3).find(|other| ![node, nodes.leader()].contains(other)).unwrap();
    nodes.signal(node, Signal::STOP);
    let copied = copy_of(&nodes, node);
    nodes.signal(node, Signal::CONT);
    write_by(&mut nodes, node, "2");
    is_refused(&mut nodes, node, &copied, "that it had ");
    let mut client = ClusterClient::new(&nodes.clients);
    wait_for(
        "the acknowledged write",
        || matches!(client.call(&["GET", "k"]), Answer::Reply(reply) if reply == "2"),
    );
}
