//! Publish and subscribe over three nodes: messages reach the subscribers at each node, and channels
//! of shards follow the leaders of their slots.

use super::client::Connection;
use super::groups::leaders;
use super::nodes::{Nodes, tls, wait_for};

fn connection(nodes: &Nodes, node: usize) -> Connection {
    Connection::open(nodes.clients[node]).unwrap()
}

/// Waits until the node is connected to all others.
fn wait_for_links(nodes: &Nodes, node: usize) {
    let others = nodes.running().len() - 1;
    wait_for("links to the other nodes", || {
        let links = connection(nodes, node).call(&["CLUSTER", "LINKS"]).unwrap();
        links.matches("direction,to").count() == others
    });
}

/// A subscriber at each node, by name and by pattern.
fn subscribers(nodes: &Nodes, node: usize) -> [Connection; 2] {
    let [mut by_name, mut by_pattern] = [connection(nodes, node), connection(nodes, node)];
    assert_eq!(by_name.call(&["SUBSCRIBE", "news"]).as_deref(), Some("subscribe,news,:1"));
    assert_eq!(by_pattern.call(&["PSUBSCRIBE", "n*"]).as_deref(), Some("psubscribe,n*,:1"));
    [by_name, by_pattern]
}

fn receive(subscribers: &mut [Connection; 2], text: &str) {
    let [by_name, by_pattern] = subscribers;
    assert_eq!(by_name.reply(), Some(format!("message,news,{text}")));
    assert_eq!(by_pattern.reply(), Some(format!("pmessage,n*,news,{text}")));
}

fn count(nodes: &Nodes, node: usize, section: &[&str], field: &str) -> u64 {
    let info = connection(nodes, node).call(section).unwrap();
    let value = info.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    value.unwrap().parse().unwrap()
}

#[test]
fn messages_reach_subscribers_at_all_nodes() {
    const COUNT: usize = 50;
    let mut nodes = Nodes::with_spare(3, 0, &tls());
    let leader = nodes.leader();
    (0..3).for_each(|node| wait_for_links(&nodes, node));
    let mut all: Vec<_> = (0..3).map(|node| subscribers(&nodes, node)).collect();
    for publisher in 0..3 {
        let mut client = connection(&nodes, publisher);
        for number in 0..COUNT {
            // The receivers here are counted.
            let text = format!("{number} of {publisher}");
            assert_eq!(client.call(&["PUBLISH", "news", &text]).as_deref(), Some(":2"));
            assert_eq!(client.call(&["PUBLISH", "weather", "rain"]).as_deref(), Some(":0"));
        }
        for number in 0..COUNT {
            let text = format!("{number} of {publisher}");
            all.iter_mut().for_each(|subscribers| receive(subscribers, &text));
        }
    }
    let info = &["CLUSTER", "INFO"];
    let each = 4 * COUNT as u64;
    for field in ["sent", "received"] {
        let field = format!("cluster_stats_messages_publish_{field}");
        wait_for(&field, || (0..3).all(|node| count(&nodes, node, info, &field) == each));
    }
    // A script and a transaction publish at all nodes, too.
    let mut client = connection(&nodes, leader);
    let script = "return redis.call('publish', 'news', 'by script')";
    assert_eq!(client.call(&["EVAL", script, "0"]).as_deref(), Some(":2"));
    for (words, reply) in
        [(&["MULTI"][..], "+OK"), (&["PUBLISH", "news", "by exec"], "+QUEUED"), (&["EXEC"], ":2")]
    {
        assert_eq!(client.call(words).as_deref(), Some(reply));
    }
    for subscribers in &mut all {
        receive(subscribers, "by script");
        receive(subscribers, "by exec");
    }
    // A dead node keeps nobody from publishing, and is counted.
    let dead = (leader + 1) % 3;
    nodes.kill(dead);
    let stats = &["INFO", "stats"];
    wait_for("a dropped message", || {
        client.call(&["PUBLISH", "weather", "storm"]).unwrap();
        count(&nodes, leader, stats, "pubsub_dropped_between_nodes") > 0
    });
    assert_eq!(client.call(&["PUBLISH", "news", "still"]).as_deref(), Some(":2"));
    for node in [leader, (leader + 2) % 3] {
        receive(&mut all[node], "still");
    }
    nodes.restart(dead);
    all[dead] = subscribers(&nodes, dead);
    wait_for_links(&nodes, leader);
    assert_eq!(client.call(&["PUBLISH", "news", "again"]).as_deref(), Some(":2"));
    all.iter_mut().for_each(|subscribers| receive(subscribers, "again"));
}

#[test]
fn channels_of_shards_are_at_the_leader_of_their_slot() {
    let nodes = Nodes::with_spare(3, 0, &["--groups".to_owned(), "4".to_owned()]);
    for node in 0..3 {
        wait_for("leaders that are spread", || leaders(&nodes, node) == [1, 2, 3, 1]);
    }
    // Channels of the groups 0 to 3, with their slots.
    for (channel, slot, leader) in
        [("b", 3300, 0), ("c", 7365, 1), ("d", 11298, 2), ("a", 15495, 0)]
    {
        for node in (0..3).filter(|node| *node != leader) {
            let mut client = connection(&nodes, node);
            let moved = format!("-MOVED {slot} {}", nodes.clients[leader]);
            assert_eq!(client.call(&["SSUBSCRIBE", channel]), Some(moved.clone()));
            assert_eq!(client.call(&["SPUBLISH", channel, "hi"]), Some(moved));
        }
        let (mut subscriber, mut client) = (connection(&nodes, leader), connection(&nodes, leader));
        let reply = subscriber.call(&["SSUBSCRIBE", channel]);
        assert_eq!(reply, Some(format!("ssubscribe,{channel},:1")));
        assert_eq!(client.call(&["SPUBLISH", channel, "hi"]).as_deref(), Some(":1"));
        assert_eq!(subscriber.reply(), Some(format!("smessage,{channel},hi")));
        assert_eq!(client.call(&["PUBSUB", "SHARDCHANNELS"]).as_deref(), Some(channel));
        let reply = subscriber.call(&["SUNSUBSCRIBE"]);
        assert_eq!(reply, Some(format!("sunsubscribe,{channel},:0")));
        assert_eq!(client.call(&["PUBSUB", "SHARDCHANNELS"]).as_deref(), Some(""));
    }
    let mut client = connection(&nodes, 0);
    for words in [&["SSUBSCRIBE", "a", "b"][..], &["EVAL", SCRIPT, "1", "b"]] {
        let reply = client.call(words).unwrap();
        assert!(reply.starts_with("-CROSSSLOT") || reply.contains("same slot"), "{reply}");
    }
    assert_eq!(client.call(&["EVAL", SCRIPT, "1", "a"]).as_deref(), Some(":0"));
    // In a transaction they have the slot of its keys.
    assert_eq!(client.call(&["MULTI"]).as_deref(), Some("+OK"));
    assert_eq!(client.call(&["SPUBLISH", "a", "x"]).as_deref(), Some("+QUEUED"));
    assert!(client.call(&["SET", "b", "1"]).unwrap().starts_with("-CROSSSLOT"));
    assert!(client.call(&["EXEC"]).unwrap().starts_with("-EXECABORT"));
    // When the leader of a slot moves away, its subscriptions end, and others stay.
    let mut subscriber = connection(&nodes, 0);
    for (channel, count) in [("b", 1), ("a", 2), ("{a}2", 3)] {
        let reply = subscriber.call(&["SSUBSCRIBE", channel]);
        assert_eq!(reply, Some(format!("ssubscribe,{channel},:{count}")));
    }
    assert_eq!(client.call(&["SPUBLISH", "a", "last"]).as_deref(), Some(":1"));
    let moved = nodes.cluster("move-leader", &["2", "--group", "3"]);
    assert_eq!(moved.status.code(), Some(0), "{moved:?}");
    for expected in ["smessage,a,last", "sunsubscribe,a,:2", "sunsubscribe,{a}2,:1"] {
        assert_eq!(subscriber.reply().as_deref(), Some(expected));
    }
    assert_eq!(client.call(&["SPUBLISH", "b", "on"]).as_deref(), Some(":1"));
    assert_eq!(subscriber.reply().as_deref(), Some("smessage,b,on"));
    let mut subscriber = connection(&nodes, 1);
    wait_for("the new leader", || {
        subscriber.call(&["SSUBSCRIBE", "a"]).as_deref() == Some("ssubscribe,a,:1")
    });
    assert_eq!(connection(&nodes, 1).call(&["SPUBLISH", "a", "new"]).as_deref(), Some(":1"));
    assert_eq!(subscriber.reply().as_deref(), Some("smessage,a,new"));
}

const SCRIPT: &str = "return redis.call('spublish', 'a', 'x')";
