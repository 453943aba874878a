//! A replicated table of one node: every reply waits for a commit, in order, and commands see what
//! is not committed yet.
//!
//! `SILTSTONE_TEST_REPLICATED=1` runs the tests of `crate::support::TestServer` on such a table. Those
//! that need a second table, several workers or the engine in memory fail then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Client, TestServer, encode, eventually};
use siltstone_cluster::node::{NoPeers, Node, NodeOptions};
use siltstone_cluster::{GroupOptions, OpenTable};
use siltstone_runtime::Env;
use siltstone_server::ServerOptions;
use siltstone_vfs::Disk;

pub(crate) fn options() -> ServerOptions {
    ServerOptions { listen: "127.0.0.1:0".parse().unwrap(), ..ServerOptions::default() }
}

fn with_server(test: impl FnOnce(&TestServer)) {
    let dir = tempfile::tempdir().unwrap();
    test(&TestServer::replicated_in(&dir.path().join("node"), options()));
}

#[test]
fn acknowledged_writes_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("node");
    let server = TestServer::replicated_in(&dir, options());
    server.client().expect(&[
        ("SET k v", "+OK"),
        ("HSET h f 1 g 2", ":2"),
        ("RPUSH l a b", ":2"),
        ("SET gone x PX 1", "+OK"),
        ("DEL l", ":1"),
    ]);
    server.finish().unwrap();
    let server = TestServer::replicated_in(&dir, options());
    server.client().expect(&[
        ("GET k", "\"v\""),
        ("HGETALL h", "[\"f\", \"1\", \"g\", \"2\"]"),
        ("EXISTS l gone", ":0"),
        ("HSET h2 f 1", ":1"),
        ("HGETALL h", "[\"f\", \"1\", \"g\", \"2\"]"),
        ("DBSIZE", ":3"),
    ]);
    server.finish().unwrap();
}

#[test]
fn pipelined_commands_see_each_other_and_are_answered_in_order() {
    with_server(|server| {
        let mut client = server.client();
        const COUNT: usize = 2000;
        let mut bytes = Vec::new();
        for i in 0..COUNT {
            bytes.extend(encode(&[b"INCR", b"n"]));
            bytes.extend(encode(&[b"SET", format!("k{i}").as_bytes(), b"v"]));
            bytes.extend(encode(&[b"RPUSH", b"l", i.to_string().as_bytes()]));
            bytes.extend(encode(&[b"PING"]));
        }
        client.send_raw(&bytes);
        for i in 1..=COUNT {
            assert_eq!(client.read(), format!(":{i}"));
            assert_eq!(client.read(), "+OK");
            assert_eq!(client.read(), format!(":{i}"));
            assert_eq!(client.read(), "+PONG");
        }
        client.expect(&[("LLEN l", ":2000"), ("DBSIZE", ":2002"), ("LINDEX l -1", "\"1999\"")]);
    });
}

#[test]
fn concurrent_increments_lose_nothing() {
    with_server(|server| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut client = server.client();
                    let replies: Vec<i64> =
                        (0..200).map(|_| client.call("INCR n")[1..].parse().unwrap()).collect();
                    assert!(replies.is_sorted());
                });
            }
        });
        assert_eq!(server.client().call("GET n"), "\"1600\"");
    });
}

#[test]
fn transactions_watches_and_scripts_are_one_commit_each() {
    with_server(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        client.expect(&[
            ("SET a 1", "+OK"),
            ("WATCH a", "+OK"),
            ("MULTI", "+OK"),
            ("INCR a", "+QUEUED"),
            ("RPUSH l x", "+QUEUED"),
            ("EXEC", "[:2, :1]"),
            ("WATCH a", "+OK"),
        ]);
        assert_eq!(other.call("SET a 5"), "+OK");
        client.expect(&[("MULTI", "+OK"), ("INCR a", "+QUEUED"), ("EXEC", "nil")]);
        let script = b"redis.call('incrby', KEYS[1], 10) return redis.call('get', KEYS[1])";
        assert_eq!(client.call_bytes(&[b"EVAL", script, b"1", b"a"]), "\"15\"");
        let endless = b"while true do end";
        client.call("CONFIG SET busy-reply-threshold 20");
        let reply = client.call_bytes(&[b"EVAL", endless, b"0"]);
        assert!(reply.starts_with("-ERR the script ran for longer"), "{reply}");
        assert_eq!(other.call("GET a"), "\"15\"");
    });
}

#[test]
fn parked_command_is_answered_after_the_commit_of_the_push() {
    with_server(|server| {
        let (mut waiting, mut client) = (server.client(), server.client());
        waiting.send(&[b"BLPOP", b"l", b"0"]);
        eventually("the command is parked", || {
            client.call("INFO clients").contains("blocked_clients:1\r\n")
        });
        client.expect(&[("RPUSH l a b", ":2"), ("LRANGE l 0 -1", "[\"b\"]")]);
        assert_eq!(waiting.read(), "[\"l\", \"a\"]");
        waiting.expect(&[("BLPOP l 0", "[\"l\", \"b\"]"), ("BLPOP l 0.01", "nil")]);
        // A client that goes away takes nothing.
        waiting.send(&[b"BLPOP", b"l", b"0"]);
        eventually("the command is parked", || {
            client.call("INFO clients").contains("blocked_clients:1\r\n")
        });
        drop(waiting);
        eventually("the client is gone", || {
            client.call("INFO clients").contains("blocked_clients:0\r\n")
        });
        client.expect(&[("RPUSH l c", ":1"), ("LRANGE l 0 -1", "[\"c\"]")]);
    });
}

#[test]
fn clients_that_go_away_leave_nothing_behind() {
    with_server(|server| {
        for _ in 0..50 {
            let mut client = server.client();
            let mut bytes = Vec::new();
            for _ in 0..20 {
                bytes.extend(encode(&[b"INCR", b"n"]));
            }
            client.send_raw(&bytes);
        }
        let mut client = server.client();
        eventually("all are gone", || {
            client.call("INFO clients").contains("connected_clients:1\r\n")
        });
        let count: u64 = client.call("GET n").trim_matches('"').parse().unwrap();
        assert!(count <= 1000, "{count}");
        // Replies of a client without replies are not waited for, and its writes are.
        client.send(&[b"CLIENT", b"REPLY", b"OFF"]);
        client.send(&[b"SET", b"silent", b"v"]);
        let mut other = server.client();
        eventually("the write is there", || other.call("GET silent") == "\"v\"");
    });
}

#[test]
fn keys_expire_by_the_leaders_time() {
    with_server(|server| {
        let mut client = server.client();
        client.expect(&[
            ("SET a 1 PX 100000", "+OK"),
            ("HSET h f v", ":1"),
            ("PEXPIRE h 100000", ":1"),
            ("SET b 1", "+OK"),
            ("SCAN 0", "[\"0\", [\"a\", \"b\", \"h\"]]"),
            ("PEXPIRE h 60", ":1"),
            ("SET a 1 PX 60", "+OK"),
        ]);
        std::thread::sleep(Duration::from_millis(80));
        client.expect(&[
            ("SCAN 0", "[\"0\", [\"b\"]]"),
            ("GET a", "nil"),
            ("HGET h f", "nil"),
            ("DBSIZE", ":1"),
            ("PERSIST h", ":0"),
            ("HSET h g w", ":1"),
            ("HGETALL h", "[\"g\", \"w\"]"),
            ("SET a 2 PX 100000", "+OK"),
            ("PERSIST a", ":1"),
            ("TTL a", ":-1"),
        ]);
    });
}

#[test]
fn cluster_commands_describe_one_shard_with_all_slots() {
    with_server(|server| {
        let mut client = server.client();
        let id = format!("{:040x}", 1);
        client.expect(&[
            ("CLUSTER MYID", &format!("\"{id}\"")),
            ("CLUSTER MYSHARDID", &format!("\"{id}\"")),
            ("CLUSTER LINKS", "[]"),
            ("CLUSTER FAILOVER", "-ERR You should send CLUSTER FAILOVER to a replica"),
            ("CLUSTER FAILOVER NOW", "-ERR syntax error"),
            ("CLUSTER KEYSLOT foo", ":12182"),
            ("CLUSTER SLOTS", &format!("[[:0, :16383, [\"127.0.0.1\", :7001, \"{id}\", []]]]")),
            ("SET foo 1", "+OK"),
            ("CLUSTER COUNTKEYSINSLOT 12182", ":1"),
            ("CLUSTER COUNTKEYSINSLOT 16384", "-ERR Invalid slot"),
            ("CLUSTER GETKEYSINSLOT 12182 10", "[\"foo\"]"),
            ("CLUSTER GETKEYSINSLOT 12182 0", "[]"),
            ("CLUSTER GETKEYSINSLOT 12183 10", "[]"),
            ("CLUSTER GETKEYSINSLOT 12182 -1", "-ERR Invalid number of keys"),
            (&format!("CLUSTER REPLICAS {id}"), "[]"),
            ("CLUSTER REPLICAS x", "-ERR Unknown node x"),
            ("READONLY", "+OK"),
            ("READWRITE", "+OK"),
            ("WAIT 1 100", ":0"),
        ]);
        let nodes = client.call("CLUSTER NODES");
        assert!(nodes.contains(&format!("{id} 127.0.0.1:7001@0 myself,master - 0 0")), "{nodes}");
        assert!(nodes.contains(" connected 0-16383\n"), "{nodes}");
        let info = client.call("CLUSTER INFO");
        assert!(info.contains("cluster_state:ok\r\ncluster_slots_assigned:16384\r\n"), "{info}");
        assert!(client.call("INFO").contains("redis_mode:cluster\r\n"));
        assert!(client.call("INFO replication").contains("role:master\r\n"));
        assert!(client.call("ROLE").starts_with("[\"master\", :"));
        let shards = client.call("CLUSTER SHARDS");
        assert!(shards.starts_with("[[\"slots\", [:0, :16383], \"nodes\", [["), "{shards}");
    });
}

#[test]
fn operators_commands_need_the_right_and_refuse_by_name() {
    with_server(|server| {
        let mut client = server.client();
        client.expect(&[
            ("ACL SETUSER watcher on nopass +@all -@admin", "+OK"),
            ("CLUSTER REMOVE-NODE 9", ":0"),
            ("CLUSTER MOVE-LEADER 1", "+OK"),
            ("CLUSTER MOVE-LEADER 9", "-ERR node 9 is no voter of the group"),
            ("CLUSTER REMOVE-NODE x", "-ERR value is not an integer or out of range"),
            ("CLUSTER REMOVE-NODE 1 NOW", "-ERR syntax error"),
            ("CLUSTER CHECK RESULT 5", "nil"),
        ]);
        for command in ["CLUSTER REMOVE-NODE 1", "CLUSTER REMOVE-NODE 1 FORCE"] {
            let reply = client.call(command);
            assert!(reply.starts_with("-ERR node 1 leads; move the leadership"), "{reply}");
        }
        let reply = client.call("CLUSTER ADD-NODE 00000000000000aa 10.0.0.2:7002");
        assert!(reply.contains("without certificates nodes neither encrypt"), "{reply}");
        let reply = client.call("CLUSTER ADD-NODE 00000000000000aa 127.0.0.1:7001@7");
        assert!(reply.starts_with("-ERR node 1 has the address 127.0.0.1:7001@0"), "{reply}");
        // It is added, does not exist, and is removed.
        let mut reply = String::new();
        eventually("the node is added", || {
            reply = client.call("CLUSTER ADD-NODE 00000000000000aa 127.0.0.1:7002@1");
            reply != "+WAIT"
        });
        assert!(reply.starts_with("[:1, :2, "), "{reply}");
        assert_eq!(client.call("CLUSTER ADD-NODE 00000000000000aa 127.0.0.1:7002@1"), reply);
        assert!(client.call("CLUSTER STATUS").contains("voters:1\r\nlearners:2\r\n"));
        // It receives the table, and clients must not read there yet.
        assert!(!client.call("CLUSTER SLOTS").contains(":7002"));
        assert!(client.call("CLUSTER SHARDS").contains("\"loading\""));
        assert_eq!(client.call("CLUSTER REMOVE-NODE 2"), ":1");
        eventually("the node is removed", || client.call("CLUSTER REMOVE-NODE 2") == ":0");
        eventually("the next one has a new number", || {
            let reply = client.call("CLUSTER ADD-NODE 00000000000000ab 127.0.0.1:7002@1");
            assert!(!reply.starts_with("[:1, :2, "), "{reply}");
            reply.starts_with("[:1, :3, ")
        });
        let id = client.call("CLUSTER CHECK START");
        eventually("checksums", || {
            let reply = client.call(&format!("CLUSTER CHECK RESULT {}", id.trim_matches('"')));
            reply.starts_with("\"0 ")
        });
        let mut watcher = server.client();
        watcher.expect(&[("AUTH watcher x", "+OK"), ("CLUSTER KEYSLOT foo", ":12182")]);
        assert!(watcher.call("CLUSTER STATUS").contains("role:leader"));
        for command in ["ADD-NODE 1 127.0.0.1:1", "REMOVE-NODE 3", "MOVE-LEADER 1", "CHECK START"] {
            let reply = watcher.call(&format!("CLUSTER {command}"));
            assert!(reply.starts_with("-NOPERM "), "{command}: {reply}");
        }
    });
}

#[test]
fn node_that_has_not_received_the_table_answers_no_reads() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("node");
    // As it is before its first snapshot.
    let open: OpenTable =
        Arc::new(|vfs| siltstone::engines::open("lsm", vfs, &Env::system(1), &BTreeMap::new()));
    let options_of_node = NodeOptions::new(GroupOptions::new(1, 1, 1));
    let (vfs, network) = (Arc::new(Disk::create(&dir).unwrap()), Arc::new(NoPeers::default()));
    let node = Node::create(options_of_node, vfs, open, network, &[]).unwrap();
    node.shutdown().unwrap();
    let server = TestServer::replicated_node(&dir, options(), None);
    let mut client = server.client();
    assert!(client.call("CLUSTER STATUS").contains("role:outsider"));
    assert_eq!(client.call("READONLY"), "+OK");
    for command in ["GET k", "SCAN 0"] {
        let reply = client.call(command);
        assert!(reply.starts_with("-CLUSTERDOWN "), "{command}: {reply}");
    }
    server.finish().unwrap();
}

#[test]
fn commands_that_a_replicated_table_lacks_are_refused_by_name() {
    with_server(|server| {
        let mut client = server.client();
        client.expect(&[
            ("SET k v", "+OK"),
            ("SWAPDB 0 1", "-ERR SWAPDB is not allowed in cluster mode"),
            ("SELECT 1", "-ERR SELECT is not allowed in cluster mode"),
            ("SELECT 0", "+OK"),
            ("FAILOVER", "-ERR FAILOVER not allowed in cluster mode; use CLUSTER MOVE-LEADER"),
            ("REPLICAOF NO ONE", "-ERR REPLICAOF not allowed in cluster mode."),
        ]);
        // They say what to do instead, also in a transaction and in a script.
        for (command, instead) in [
            ("GETAT k -1s", "use a table of the engine skimpy on a single server"),
            ("MIGRATE localhost 1 k 0 1", "move keys with DUMP, RESTORE and DEL"),
        ] {
            let name = command.split(' ').next().unwrap();
            let text = format!("ERR {name} is not there for a replicated table yet: {instead}");
            assert_eq!(client.call(command), format!("-{text}"), "{command}");
            client.call("MULTI");
            assert_ne!(client.call(command), "+QUEUED", "{command}");
            assert!(client.call("EXEC").starts_with("-EXECABORT"), "{command}");
        }
        client.expect(&[("GET k", "\"v\""), ("ASKING", "+OK"), ("READONLY", "+OK")]);
        client.expect(&[("READWRITE", "+OK")]);
        let large = vec![b'x'; 5 << 20];
        let reply = client.call_bytes(&[b"SET", b"large", &large]);
        assert!(reply.starts_with("-ERR "), "{reply}");
        assert_eq!(client.call("EXISTS large"), ":0");
    });
}

#[test]
fn flushed_table_is_empty_at_once_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("node");
    let server = TestServer::replicated_in(&dir, options());
    let mut client = server.client();
    client.expect(&[
        ("SET a 1", "+OK"),
        ("HSET h f 1", ":1"),
        ("FLUSHALL ASYNC", "+OK"),
        ("DBSIZE", ":0"),
        ("HSET h g 2", ":1"),
        ("HGETALL h", "[\"g\", \"2\"]"),
    ]);
    // In one proposal with what is before and behind it.
    let mut bytes = Vec::new();
    for command in ["SET b 1", "FLUSHDB", "SET c 2", "GET b", "KEYS *", "DEL c", "RPUSH l x"] {
        bytes.extend(encode(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>()));
    }
    client.send_raw(&bytes);
    for reply in ["+OK", "+OK", "+OK", "nil", "[\"c\"]", ":1", ":1"] {
        assert_eq!(client.read(), reply);
    }
    client.expect(&[
        ("MULTI", "+OK"),
        ("SET d 1", "+QUEUED"),
        ("FLUSHALL", "+QUEUED"),
        ("RPUSH m y", "+QUEUED"),
        ("EXEC", "[+OK, +OK, :1]"),
        ("KEYS *", "[\"m\"]"),
    ]);
    assert_eq!(client.call_bytes(&[b"EVAL", b"return redis.call('flushdb')", b"0"]), "+OK");
    client.expect(&[("DBSIZE", ":0"), ("SET e 1", "+OK")]);
    server.finish().unwrap();
    let server = TestServer::replicated_in(&dir, options());
    server.client().expect(&[("KEYS *", "[\"e\"]"), ("FLUSHALL", "+OK"), ("EXISTS e", ":0")]);
    server.finish().unwrap();
}

/// Large writes of many clients: the uncommitted ones are bounded, and all are there in the end.
#[test]
fn large_writes_wait_for_their_turn() {
    with_server(|server| {
        let value = vec![b'x'; 1 << 20];
        let began = Instant::now();
        std::thread::scope(|scope| {
            for client in 0..4 {
                let value = &value;
                scope.spawn(move || {
                    let mut connection: Client = server.client();
                    for i in 0..5 {
                        let key = format!("{client}:{i}");
                        connection.send(&[b"SET", key.as_bytes(), value]);
                    }
                    for _ in 0..5 {
                        assert_eq!(connection.read(), "+OK");
                    }
                });
            }
        });
        println!("20 MiB in {:?}", began.elapsed());
        assert_eq!(server.client().call("DBSIZE"), ":20");
    });
}
