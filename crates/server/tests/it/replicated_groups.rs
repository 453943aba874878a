//! A node with four groups: which keys commands may have together, and what they see of the others.
//!
//! The keys b, c, d and a have slots of the groups 0, 1, 2 and 3.

use siltstone_server::{ClusterOptions, Server};

use crate::replicated::options;
use crate::support::{Client, TestServer, encode, eventually};

const CROSS_SLOT: &str = "-CROSSSLOT Keys in request don't hash to the same slot";

fn with_groups(test: impl FnOnce(&TestServer)) {
    let dir = tempfile::tempdir().unwrap();
    test(&TestServer::replicated_groups(&dir.path().join("node"), options(), Some(4)));
}

#[test]
fn commands_transactions_and_scripts_of_several_slots_are_refused() {
    with_groups(|server| {
        let mut client = server.client();
        client.expect(&[
            ("MSET a 1 b 2", CROSS_SLOT),
            ("DEL {x}1 {y}1", CROSS_SLOT),
            ("MSET {a}1 1 {a}2 2", "+OK"),
            ("MGET {a}1 {a}2", "[\"1\", \"2\"]"),
            ("RENAME a b", CROSS_SLOT),
            ("WATCH a b", CROSS_SLOT),
            // A transaction has one slot.
            ("MULTI", "+OK"),
            ("SET a 5", "+QUEUED"),
            ("PING", "+QUEUED"),
            ("INCR {a}1", "+QUEUED"),
            ("EXEC", "[+OK, +PONG, :2]"),
            ("MULTI", "+OK"),
            ("SET a 6", "+QUEUED"),
            ("SET b 6", CROSS_SLOT),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("GET a", "\"5\""),
            // It is that of the watched keys.
            ("WATCH a", "+OK"),
            ("WATCH b", CROSS_SLOT),
            ("GET b", "nil"),
            ("MULTI", "+OK"),
            ("SET b 1", CROSS_SLOT),
            ("DISCARD", "+OK"),
            ("MULTI", "+OK"),
            ("EXEC", "[]"),
        ]);
        let mut other = server.client();
        client.expect(&[("WATCH a", "+OK"), ("MULTI", "+OK"), ("INCR a", "+QUEUED")]);
        assert_eq!(other.call("SET a 8"), "+OK");
        client.expect(&[("EXEC", "nil"), ("MULTI", "+OK")]);
        let reply = client.call("DBSIZE");
        assert!(reply.starts_with("-ERR DBSIZE sees keys of several slots"), "{reply}");
        assert_eq!(client.call("DISCARD"), "+OK");
        let get_and_set = b"redis.call('set', KEYS[2], redis.call('get', KEYS[1])) return 1";
        let keys: [&[u8]; 2] = [b"{a}1", b"{a}3"];
        let call = [b"EVAL", &get_and_set[..], b"2", keys[0], keys[1]];
        assert_eq!(client.call_bytes(&call), ":1");
        assert_eq!(client.call("GET {a}3"), "\"2\"");
        assert_eq!(client.call_bytes(&[b"EVAL", get_and_set, b"2", b"a", b"b"]), CROSS_SLOT);
        for (script, keys) in [
            (&b"return redis.call('get', 'b')"[..], "1"),
            (b"return redis.call('get', 'a')", "0"),
            (b"return redis.call('dbsize')", "1"),
        ] {
            let reply = client.call_bytes(&[b"EVAL", script, keys.as_bytes(), b"a"]);
            assert!(reply.starts_with("-ERR ") && reply.contains("slot"), "{reply}");
        }
        assert_eq!(client.call_bytes(&[b"EVAL", b"return 7", b"0"]), ":7");
        client.expect(&[("RPUSH l 1 2", ":2"), ("SORT l", "[\"1\", \"2\"]")]);
        let reply = client.call("SORT l BY w_*");
        assert!(reply.starts_with("-ERR BY option of SORT denied in cluster mode"), "{reply}");
        // All groups are SELECT 0.
        client.expect(&[
            ("SELECT 0", "+OK"),
            ("SELECT 1", "-ERR SELECT is not allowed in cluster mode"),
            ("MOVE a 0", "-ERR source and destination objects are the same"),
            ("COPY a {a}4 DB 0", ":1"),
            ("COPY a {a}4 DB 1", "-ERR DB index is out of range"),
            ("GET {a}4", "\"8\""),
        ]);
    });
}

#[test]
fn keyless_commands_see_all_groups_that_the_node_leads() {
    with_groups(|server| {
        let mut client = server.client();
        assert_eq!(client.call("RANDOMKEY"), "nil");
        let names: Vec<String> = (0..200).map(|i| format!("k{i}")).collect();
        for name in &names {
            assert_eq!(client.call(&format!("SET {name} v")), "+OK");
        }
        assert_eq!(client.call("DBSIZE"), ":200");
        let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
        loop {
            let reply = client.call(&format!("SCAN {cursor} COUNT 7"));
            let (next, keys) = reply.trim_start_matches('[').split_once(", ").unwrap();
            seen.extend(
                keys.split(['[', ']', ',', ' ', '"'])
                    .filter(|key| !key.is_empty())
                    .map(str::to_owned),
            );
            cursor = next.trim_matches('"').to_owned();
            if cursor == "0" {
                break;
            }
        }
        seen.sort();
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!(seen, sorted);
        let keys = client.call("KEYS k1?");
        assert_eq!(keys.matches("\"k1").count(), 10, "{keys}");
        let drawn = client.call("RANDOMKEY");
        assert!(names.contains(&drawn.trim_matches('"').to_owned()), "{drawn}");
        assert!(client.call("INFO keyspace").contains("db0:keys=200,"));
        client.expect(&[
            ("CLUSTER COUNTKEYSINSLOT 449", ":1"),
            ("CLUSTER COUNTKEYSINSLOT 448", ":0"),
            ("WAIT 0 0", ":0"),
        ]);
        let slots = client.call("CLUSTER SLOTS");
        for range in [":0, :4095", ":4096, :8191", ":8192, :12287", ":12288, :16383"] {
            assert!(slots.contains(range), "{slots}");
        }
        assert!(client.call("CLUSTER NODES").contains(" connected 0-16383\n"));
        let info = client.call("CLUSTER INFO");
        assert!(info.contains("cluster_state:ok\r\ncluster_slots_assigned:16384\r\n"), "{info}");
        assert!(client.call("INFO replication").contains("raft_groups:4\r\nraft_group0:leader=1,"));
        assert_eq!(client.call("CLUSTER SHARDS").matches("\"slots\"").count(), 4);
        let status = client.call("CLUSTER STATUS 3");
        assert!(status.contains("groups:4\r\nindex:3\r\n") && status.contains("role:leader"));
        assert_eq!(client.call("CLUSTER STATUS 4"), "-ERR there is no group 4; there are 4");
        assert_eq!(client.call("CLUSTER MOVE-LEADER 1 2"), "+OK");
        assert_eq!(client.call("MULTI"), "+OK");
        let reply = client.call("FLUSHALL");
        assert!(reply.starts_with("-ERR FLUSHALL sees keys of several slots"), "{reply}");
        client.expect(&[("DISCARD", "+OK"), ("FLUSHALL", "+OK"), ("DBSIZE", ":0")]);
    });
}

#[test]
fn pipelined_replies_over_groups_stay_in_order() {
    with_groups(|server| {
        std::thread::scope(|scope| {
            for number in 0..3 {
                scope.spawn(move || {
                    const ROUNDS: usize = 300;
                    let mut client: Client = server.client();
                    let mut bytes = Vec::new();
                    for round in 0..ROUNDS {
                        let value = round.to_string();
                        for key in ["a", "b", "c", "d"] {
                            let name = format!("{number}{{{key}}}");
                            bytes.extend(encode(&[b"SET", name.as_bytes(), value.as_bytes()]));
                            bytes.extend(encode(&[b"INCR", format!("{name}n").as_bytes()]));
                            bytes.extend(encode(&[b"GET", name.as_bytes()]));
                        }
                        bytes.extend(encode(&[b"PING"]));
                    }
                    client.send_raw(&bytes);
                    for round in 0..ROUNDS {
                        for _ in 0..4 {
                            assert_eq!(client.read(), "+OK");
                            assert_eq!(client.read(), format!(":{}", round + 1));
                            assert_eq!(client.read(), format!("\"{round}\""));
                        }
                        assert_eq!(client.read(), "+PONG");
                    }
                });
            }
        });
    });
}

#[test]
fn parked_commands_wait_in_their_group() {
    with_groups(|server| {
        let (mut one, mut two, mut client) = (server.client(), server.client(), server.client());
        one.send(&[b"BLPOP", b"a", b"0"]);
        two.send(&[b"BLPOP", b"b", b"0"]);
        eventually("both are parked", || {
            client.call("INFO clients").contains("blocked_clients:2\r\n")
        });
        client.expect(&[("BLPOP a b 0", CROSS_SLOT), ("RPUSH b x", ":1"), ("RPUSH a y", ":1")]);
        assert_eq!(two.read(), "[\"b\", \"x\"]");
        assert_eq!(one.read(), "[\"a\", \"y\"]");
        one.expect(&[("BLPOP c 0.01", "nil")]);
    });
}

#[test]
fn groups_are_there_after_a_restart_and_their_number_is_fixed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("node");
    let server = TestServer::replicated_groups(&dir, options(), Some(4));
    for key in ["a", "b", "c", "d"] {
        let commands = [format!("SET {key} {key}"), format!("HSET h{{{key}}} f {key}")];
        assert_eq!(server.client().call(&commands[0]), "+OK");
        assert_eq!(server.client().call(&commands[1]), ":1");
    }
    server.finish().unwrap();
    let members = vec!["1=127.0.0.1:7001@0".parse().unwrap()];
    let mut cluster = ClusterOptions::new(1, 1, members, dir.clone());
    cluster.groups = Some(2);
    let refused = Server::bind_replicated(&cluster, options()).err().unwrap().to_string();
    assert!(refused.contains("this one has 4, not 2"), "{refused}");
    // Without a number it is that of the directory.
    let server = TestServer::replicated_in(&dir, options());
    for key in ["a", "b", "c", "d"] {
        assert_eq!(server.client().call(&format!("GET {key}")), format!("\"{key}\""));
        assert_eq!(server.client().call(&format!("HGET h{{{key}}} f")), format!("\"{key}\""));
    }
    assert_eq!(server.client().call("DBSIZE"), ":8");
    server.finish().unwrap();
    // One group has its files in the directory itself.
    let dir = dir.with_extension("one");
    TestServer::replicated_in(&dir, options()).finish().unwrap();
    cluster.dir = dir;
    let refused = Server::bind_replicated(&cluster, options()).err().unwrap().to_string();
    assert!(refused.contains("this one has 1, not 2"), "{refused}");
}
