//! Reads at followers: fields that expire, streams and their groups are as the leader has them, also
//! after a change of the leader; and what waits is sent to the leader.

use super::client::Connection;
use super::nodes::{Nodes, wait_for};

fn call(client: &mut Connection, line: &str) -> String {
    client.call(&line.split(' ').collect::<Vec<_>>()).unwrap()
}

/// A connection that may read at a follower.
fn reader(nodes: &Nodes, node: usize) -> Connection {
    let mut client = Connection::open(nodes.clients[node]).unwrap();
    assert_eq!(call(&mut client, "READONLY"), "+OK");
    client
}

const READS: [&str; 12] = [
    "HLEN h",
    "HGETALL h",
    "HPEXPIRETIME h FIELDS 5 a b c d e",
    "HRANDFIELD h 9",
    "EXISTS h gone k",
    "PEXPIRETIME k",
    "XRANGE s - +",
    "XREAD COUNT 9 STREAMS s 0",
    "XPENDING s g",
    "XPENDING s g - + 9 two",
    "XLEN s",
    "LRANGE l 0 -1",
];

/// What a node answers; members of HRANDFIELD in order.
fn answers(client: &mut Connection) -> Vec<String> {
    let answer = |read: &&str| {
        let reply = call(client, read);
        let mut words: Vec<_> = reply.split(',').collect();
        match read.starts_with("HRAND") {
            true => words.sort_unstable(),
            // The time since the delivery is that of the asked moment.
            false if read.starts_with("XPENDING s g -") => {
                words = words.chunks(4).flat_map(|entry| [entry[0], entry[1], entry[3]]).collect();
            }
            false => {}
        }
        words.join(",")
    };
    READS.iter().map(answer).collect()
}

/// Waits until all running nodes answer as the leader does.
fn wait_for_same(nodes: &Nodes, leader: usize) -> Vec<String> {
    let mut all = Vec::new();
    wait_for("the same answers at all nodes", || {
        all = nodes.running().iter().map(|node| answers(&mut reader(nodes, *node))).collect();
        all.iter().all(|answers| *answers == all[0])
    });
    let at_leader = answers(&mut Connection::open(nodes.clients[leader]).unwrap());
    assert_eq!(at_leader, all[0]);
    at_leader
}

#[test]
fn expiries_of_fields_and_streams_are_the_same_at_followers_and_after_a_failover() {
    let mut nodes = Nodes::start(3);
    let leader = nodes.leader();
    let mut client = Connection::open(nodes.clients[leader]).unwrap();
    for line in [
        "HSET h a 1 b 2 c 3 d 4 e 5",
        "HPEXPIRE h 60000 FIELDS 2 a b",
        "HPEXPIRE h 60000 FIELDS 1 c",
        "HSET gone f v",
        "HPEXPIRE gone 60000 FIELDS 1 f",
        "SET k v PX 60000",
        "XADD s * f one",
        "XADD s * f two",
        "XADD s MAXLEN 2 * f three",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g one COUNT 1 STREAMS s >",
        "XREADGROUP GROUP g two COUNT 1 STREAMS s >",
        "RPUSH l x y",
        "BLPOP l 1",
    ] {
        let reply = call(&mut client, line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
    }
    let before = wait_for_same(&nodes, leader);
    assert_eq!((&*before[0], &*before[4]), (":5", ":3"));
    // What writes or waits runs at the leader.
    let follower = (leader + 1) % 3;
    let moved = format!(" {}", nodes.clients[leader]);
    for line in [
        "HPEXPIRE h 1 FIELDS 1 c",
        "HPERSIST h FIELDS 1 c",
        "BLPOP l 1",
        "BLMOVE l l LEFT LEFT 1",
        "BZPOPMIN z 1",
        "XREAD BLOCK 1 STREAMS s $",
        "XREADGROUP GROUP g one STREAMS s >",
        "XADD s * f v",
    ] {
        let reply = call(&mut reader(&nodes, follower), line);
        assert!(reply.starts_with("-MOVED ") && reply.ends_with(&moved), "{line}: {reply}");
    }
    for line in ["HPEXPIRE h 300 FIELDS 2 a b", "HPEXPIRE gone 300 FIELDS 1 f", "SET k v PX 300"] {
        let reply = call(&mut client, line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
    }
    // The leader decides that they have expired; its answer waits until that is committed.
    wait_for("the expiry", || call(&mut client, "HLEN h") == ":3");
    wait_for("the others", || call(&mut client, "EXISTS gone k") == ":0");
    let after = wait_for_same(&nodes, leader);
    assert!(after[2].starts_with(":-2,:-2,:1") && after[2].ends_with(",:-1,:-1"), "{after:?}");
    assert_eq!((&*after[4], &*after[5]), (":1", ":-2"));
    // The next leader goes on with them.
    nodes.kill(leader);
    let next = nodes.leader();
    let mut client = Connection::open(nodes.clients[next]).unwrap();
    wait_for("the next leader", || call(&mut client, "HLEN h") == ":3");
    assert_eq!(wait_for_same(&nodes, next), after);
    for (line, expected) in [
        ("HSET h a again", ":1"),
        ("HTTL h FIELDS 1 a", ":-1"),
        ("HPERSIST h FIELDS 2 b c", ":-2,:1"),
        ("XACK s g 0-1", ":0"),
    ] {
        assert_eq!(call(&mut client, line), expected, "{line}");
    }
    let newest = call(&mut client, "XADD s * f four");
    assert!(after[6].split(',').all(|word| !word.contains('-') || *word < *newest), "{after:?}");
    nodes.restart(leader);
    let last = wait_for_same(&nodes, next);
    assert_eq!(last[0], ":4");
    wait_for("the same tables", || nodes.cluster("check", &[]).status.code() == Some(0));
}
