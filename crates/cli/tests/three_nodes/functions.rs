//! Libraries of functions over three nodes: each node has them, also after a failover, a restart, a
//! join, and when a change was never committed.

use super::client::Connection;
use super::groups::leaders;
use super::nodes::{Nodes, wait_for};

fn library(name: &str, function: &str, text: &str) -> String {
    let register = format!("redis.register_function('{function}', function() return '{text}' end)");
    format!("#!lua name={name}\n{register}")
}

fn call(nodes: &Nodes, node: usize, words: &[&str]) -> Option<String> {
    Connection::open(nodes.clients[node]).unwrap().call(words)
}

/// The libraries of a node, with their code.
fn list(nodes: &Nodes, node: usize) -> String {
    call(nodes, node, &["FUNCTION", "LIST", "WITHCODE"]).unwrap()
}

/// Waits until all running nodes have this number of libraries, all the same, with this text.
fn wait_for_libraries(nodes: &Nodes, count: usize, text: &str) {
    wait_for("the libraries at all nodes", || {
        let lists: Vec<_> = nodes.running().iter().map(|node| list(nodes, *node)).collect();
        let has_all = lists[0].matches("library_name").count() == count && lists[0].contains(text);
        has_all && lists.iter().all(|list| *list == lists[0])
    });
}

#[test]
fn libraries_are_at_all_nodes_after_failover_restart_and_join() {
    let mut nodes = Nodes::with_spare(3, 1, &["--groups".to_owned(), "4".to_owned()]);
    for node in 0..3 {
        wait_for("leaders that are spread", || leaders(&nodes, node) == [1, 2, 3, 1]);
    }
    let one = library("lib", "f", "one");
    // At a node that does not lead the first group. It is in force there before the reply.
    assert_eq!(call(&nodes, 1, &["FUNCTION", "LOAD", &one]).as_deref(), Some("lib"));
    assert_eq!(call(&nodes, 1, &["FCALL", "f", "1", "c"]).as_deref(), Some("one"));
    let other = library("other", "g", "x");
    assert_eq!(call(&nodes, 0, &["FUNCTION", "LOAD", &other]).as_deref(), Some("other"));
    wait_for_libraries(&nodes, 2, "return 'one'");
    // At the leaders of the groups of the keys.
    for (node, key) in [(0, "b"), (1, "c"), (2, "d")] {
        assert_eq!(call(&nodes, node, &["FCALL", "f", "1", key]).as_deref(), Some("one"));
    }
    // The leader of the first group dies.
    nodes.kill(0);
    let mut leader = 0;
    wait_for("another leader of the first group", || {
        leader = leaders(&nodes, 1)[0] as usize;
        [2, 3].contains(&leader) && leaders(&nodes, 2)[0] as usize == leader
    });
    let leader = leader - 1;
    let two = library("lib", "f", "two");
    wait_for("a change at the new leader", || {
        let reply = call(&nodes, leader, &["FUNCTION", "LOAD", "REPLACE", &two]);
        reply.as_deref() == Some("lib")
    });
    let deleted = call(&nodes, leader, &["FUNCTION", "DELETE", "other"]);
    assert_eq!(deleted.as_deref(), Some("+OK"));
    wait_for_libraries(&nodes, 1, "return 'two'");
    assert_eq!(call(&nodes, 1, &["FCALL", "f", "1", "c"]).as_deref(), Some("two"));
    nodes.restart(0);
    wait_for_libraries(&nodes, 1, "return 'two'");
    // A node that joins gets them with the snapshot or the log.
    nodes.restart(3);
    wait_for_libraries(&nodes, 1, "return 'two'");
    // All of them restart.
    (0..4).for_each(|node| nodes.kill(node));
    (0..4).for_each(|node| nodes.restart(node));
    wait_for_libraries(&nodes, 1, "return 'two'");
    wait_for("the same tables", || nodes.cluster("check", &[]).status.code() == Some(0));
}

#[test]
fn change_that_is_sent_to_each_node_succeeds_at_each_and_once() {
    let nodes = Nodes::with_spare(3, 0, &["--groups".to_owned(), "4".to_owned()]);
    for node in 0..3 {
        wait_for("leaders that are spread", || leaders(&nodes, node) == [1, 2, 3, 1]);
    }
    let function =
        |node, words: &[&str]| call(&nodes, node, &[&["FUNCTION"][..], words].concat()).unwrap();
    let (one, two) = (library("lib", "f", "one"), library("lib", "f", "two"));
    for node in [2, 0, 1] {
        assert_eq!(function(node, &["LOAD", &one]), "lib");
    }
    for node in 0..3 {
        let refused = function(node, &["LOAD", &two]);
        assert_eq!(refused, "-ERR Library 'lib' already exists");
        let taken = function(node, &["LOAD", &library("other", "f", "x")]);
        assert_eq!(taken, "-ERR Function f already exists");
        let refused = function(node, &["LOAD", "REPLACE", "#!lua name=lib\nerror('x')"]);
        assert!(refused.starts_with("-ERR Error"), "{refused}");
        assert_eq!(function(node, &["DELETE", "none"]), "-ERR Library not found");
        assert_eq!(function(node, &["LOAD", "REPLACE", &two]), "lib");
        assert_eq!(function(node, &["LOAD", "REPLACE", &one]), "lib");
    }
    for node in 0..3 {
        assert_eq!(function(node, &["DELETE", "LIB"]), "+OK");
        assert_eq!(function(node, &["DELETE", "lib"]), "-ERR Library not found");
    }
    // At the same time, and for libraries of several calls.
    for name in ["a", "b"] {
        assert_eq!(function(1, &["LOAD", &library(name, name, "x")]), name);
    }
    std::thread::scope(|scope| {
        for node in 0..3 {
            let function = &function;
            scope.spawn(move || {
                for name in ["a", "b"] {
                    assert_eq!(function(node, &["DELETE", name]), "+OK", "{node} {name}");
                }
                for name in ["a", "b"] {
                    assert_eq!(function(node, &["DELETE", name]), "-ERR Library not found");
                }
            });
        }
    });
    // What was flushed was removed at all nodes; a removal before the library came back counts no
    // more.
    assert_eq!(function(0, &["LOAD", &one]), "lib");
    (0..3).for_each(|node| assert_eq!(function(node, &["FLUSH"]), "+OK"));
    (0..3).for_each(|node| {
        assert_eq!(function(node, &["DELETE", "lib"]), "-ERR Library not found");
    });
    assert_eq!(function(0, &["LOAD", &one]), "lib");
    assert_eq!(function(0, &["DELETE", "lib"]), "+OK");
    assert_eq!(function(0, &["LOAD", &one]), "lib");
    assert_eq!(function(1, &["DELETE", "lib"]), "+OK");
    wait_for_libraries(&nodes, 0, "");
    let mut client = Connection::open(nodes.clients[1]).unwrap();
    assert_eq!(client.call(&["MULTI"]).as_deref(), Some("+OK"));
    let refused = client.call(&["FUNCTION", "FLUSH"]).unwrap();
    assert!(refused.contains("call FUNCTION outside of MULTI"), "{refused}");
}

#[test]
fn change_without_a_majority_is_at_all_nodes_or_at_none() {
    let mut nodes = Nodes::start(3);
    let leader = nodes.leader();
    let library = |name: &str| library(name, name, "x");
    let first = call(&nodes, leader, &["FUNCTION", "LOAD", &library("a")]);
    assert_eq!(first.as_deref(), Some("a"));
    wait_for_libraries(&nodes, 1, "name=a");
    let others: Vec<_> = (0..3).filter(|node| *node != leader).collect();
    others.iter().for_each(|node| nodes.kill(*node));
    // Its outcome is unknown, or it is refused.
    let second = call(&nodes, leader, &["FUNCTION", "LOAD", &library("b")]);
    assert!(second.as_deref().is_none_or(|reply| reply.starts_with('-')), "{second:?}");
    // What is not committed is not in force.
    wait_for("the end of the change", || {
        let list = call(&nodes, leader, &["FUNCTION", "LIST"]);
        list.is_some_and(|list| list.matches("library_name").count() == 1)
    });
    others.iter().for_each(|node| nodes.restart(*node));
    wait_for("a change with a majority", || {
        let load = ["FUNCTION", "LOAD", "REPLACE", &library("c")];
        call(&nodes, nodes.leader(), &load).as_deref() == Some("c")
    });
    wait_for("the same libraries at all nodes", || {
        let lists: Vec<_> = (0..3).map(|node| list(&nodes, node)).collect();
        lists[0].contains("name=c") && lists.iter().all(|list| *list == lists[0])
    });
}
