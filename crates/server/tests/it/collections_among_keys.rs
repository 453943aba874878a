//! Collections in a table with other keys: what the other commands and memcached clients see of
//! them, transactions, restarts, scans, and tables that cannot have them.

use crate::redis_collections::{WRONG_TYPE, serve, with_client};
use crate::support::TestServer;
use siltstone::{Db, DbOptions};
use tempfile::TempDir;

#[test]
fn other_commands_see_collections_as_keys_of_their_type() {
    with_client(|client| {
        client.expect(&[
            ("HSET h a 1", ":1"),
            ("RPUSH l a", ":1"),
            ("SADD s 1", ":1"),
            ("ZADD z 1 a", ":1"),
            ("SET t v", "+OK"),
            ("TYPE h", "+hash"),
            ("TYPE l", "+list"),
            ("TYPE s", "+set"),
            ("TYPE z", "+zset"),
            ("TYPE t", "+string"),
            ("DBSIZE", ":5"),
            ("KEYS *", "[\"h\", \"l\", \"s\", \"t\", \"z\"]"),
            ("SCAN 0", "[\"0\", [\"h\", \"l\", \"s\", \"t\", \"z\"]]"),
            ("SCAN 0 TYPE zset", "[\"0\", [\"z\"]]"),
            ("SCAN 0 TYPE STRING", "[\"0\", [\"t\"]]"),
            ("EXISTS h l s z t x", ":5"),
            ("OBJECT ENCODING h", "\"listpack\""),
            ("OBJECT ENCODING s", "\"intset\""),
            ("SADD s x", ":1"),
            ("OBJECT ENCODING s", "\"listpack\""),
            ("GET h", WRONG_TYPE),
            ("APPEND h x", WRONG_TYPE),
            ("INCR l", WRONG_TYPE),
            ("STRLEN l", WRONG_TYPE),
            ("GETRANGE s 0 1", WRONG_TYPE),
            ("SETRANGE s 0 x", WRONG_TYPE),
            ("GETDEL z", WRONG_TYPE),
            ("GETEX z", WRONG_TYPE),
            ("GETSET z x", WRONG_TYPE),
            ("SET z x GET", WRONG_TYPE),
            ("MGET t h", "[\"v\", nil]"),
            ("LPUSH h a", WRONG_TYPE),
            ("HSET l a b", WRONG_TYPE),
            ("SADD z a", WRONG_TYPE),
            ("ZADD s 1 a", WRONG_TYPE),
            ("HGET t a", WRONG_TYPE),
            ("ZUNION 2 z s", "[\"1\", \"a\", \"x\"]"),
            ("ZUNION 2 z h", WRONG_TYPE),
            ("LMOVE l h LEFT RIGHT", WRONG_TYPE),
            ("LRANGE l 0 -1", "[\"a\"]"),
            ("SETNX h x", ":0"),
            ("SET h x NX", "nil"),
            ("EXPIRE h 100", ":1"),
            ("TTL h", ":100"),
            ("HSET h b 2", ":1"),
            ("TTL h", ":100"),
            ("PERSIST h", ":1"),
            ("TTL h", ":-1"),
            ("RENAME h g", "+OK"),
            ("HMGET g a b", "[\"1\", \"2\"]"),
            ("RENAMENX g l", ":0"),
            ("COPY g h", ":1"),
            ("COPY g l", ":0"),
            ("COPY g t REPLACE", ":1"),
            ("HDEL g a b", ":2"),
            ("HGET t a", "\"1\""),
            ("COPY t t2 DB 1", ":1"),
            ("EXPIRE h -1", ":1"),
            ("EXISTS h", ":0"),
            ("SET l v", "+OK"),
            ("GET l", "\"v\""),
            ("DEL l s z z", ":3"),
            ("UNLINK t", ":1"),
            ("DBSIZE", ":0"),
            ("RANDOMKEY", "nil"),
            ("SELECT 1", "+OK"),
            ("HGET t2 b", "\"2\""),
        ]);
    });
}

#[test]
fn keys_under_the_reserved_prefix_are_keys_like_others() {
    with_client(|client| {
        let keys: [&[u8]; 4] = [b"\xff\xc0", b"\xff\xc0\x00", b"\xff\xc0\x01x", b"\xff\xc0\x03"];
        client.expect(&[("HSET h a 1", ":1")]);
        for key in keys {
            assert_eq!(client.call_bytes(&[b"SET", key, b"v"]), "+OK");
            assert_eq!(client.call_bytes(&[b"GET", key]), "\"v\"");
            assert_eq!(client.call_bytes(&[b"SADD", key, b"m"]), WRONG_TYPE);
        }
        assert_eq!(client.call("DBSIZE"), ":5");
        for key in keys {
            assert_eq!(client.call_bytes(&[b"DEL", key]), ":1");
            assert_eq!(client.call_bytes(&[b"SADD", key, b"m"]), ":1");
            assert_eq!(client.call_bytes(&[b"SMEMBERS", key]), "[\"m\"]");
        }
        client.expect(&[("DBSIZE", ":5"), ("HGETALL h", "[\"a\", \"1\"]")]);
        client.expect(&[("FLUSHALL", "+OK"), ("DBSIZE", ":0"), ("SADD s a", ":1")]);
    });
}

#[test]
fn transactions_see_their_own_changes_of_collections() {
    with_client(|client| {
        client.expect(&[
            ("RPUSH l a b", ":2"),
            ("MULTI", "+OK"),
            ("LPOP l", "+QUEUED"),
            ("RPUSH l c", "+QUEUED"),
            ("LRANGE l 0 -1", "+QUEUED"),
            ("ZADD z 2 b 1 a", "+QUEUED"),
            ("ZRANGE z 0 -1", "+QUEUED"),
            ("ZADD l 1 x", "+QUEUED"),
            ("DEL l", "+QUEUED"),
            ("SADD l m", "+QUEUED"),
            ("KEYS *", "+QUEUED"),
            ("LMPOP 1 k LEFT", "+QUEUED"),
            (
                "EXEC",
                &format!(
                    "[\"a\", :2, [\"b\", \"c\"], :2, [\"a\", \"b\"], {WRONG_TYPE}, :1, :1, [\"l\", \"z\"], nil]"
                ),
            ),
            ("SMEMBERS l", "[\"m\"]"),
            ("MULTI", "+OK"),
            ("FLUSHALL", "+QUEUED"),
            ("ZCARD z", "+QUEUED"),
            ("ZADD z 5 e", "+QUEUED"),
            ("EXEC", "[+OK, :0, :1]"),
            ("KEYS *", "[\"z\"]"),
            ("ZRANGE z 0 -1", "[\"e\"]"),
        ]);
    });
}

#[test]
fn change_of_an_element_changes_a_watched_key() {
    let dir = TempDir::new().unwrap();
    let (db, server) = serve(&dir);
    let (mut client, mut other) = (server.client(), server.client());
    client.expect(&[
        ("HSET h a 1", ":1"),
        ("WATCH h", "+OK"),
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
    ]);
    other.expect(&[("HSET h a 2", ":0")]);
    client.expect(&[("EXEC", "nil")]);
    client.expect(&[("WATCH h", "+OK"), ("MULTI", "+OK"), ("HGET h a", "+QUEUED")]);
    other.expect(&[("HGETALL h", "[\"a\", \"2\"]")]);
    client.expect(&[("EXEC", "[\"2\"]")]);
    drop(server);
    db.close().unwrap();
}

#[test]
fn collections_survive_a_restart() {
    let dir = TempDir::new().unwrap();
    for round in 0..3 {
        let (db, server) = serve(&dir);
        let mut client = server.client();
        let elements: Vec<_> = (0..round).map(|n| format!("\"{n}\"")).collect();
        assert_eq!(client.call("LRANGE l 0 -1"), format!("[{}]", elements.join(", ")));
        assert_eq!(client.call(&format!("RPUSH l {round}")), format!(":{}", round + 1));
        client.call("DEL s");
        assert_eq!(client.call(&format!("SADD s {round}")), ":1");
        assert_eq!(client.call("SMEMBERS s"), format!("[\"{round}\"]"));
        server.finish().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn scan_of_a_large_collection_returns_every_element() {
    with_client(|client| {
        for n in 0..600 {
            client.call(&format!("SADD s member{n}"));
            client.call(&format!("ZADD z {n} member{n}"));
            client.call(&format!("HSET h member{n} {n}"));
        }
        let scans = [
            ("SSCAN s", "", 1),
            ("ZSCAN z", "", 2),
            ("HSCAN h", "", 2),
            ("HSCAN h", " NOVALUES", 1),
        ];
        for (command, option, words) in scans {
            let (mut cursor, mut calls) = ("0".to_owned(), 0);
            let mut seen = std::collections::BTreeSet::new();
            loop {
                let reply = client.call(&format!("{command} {cursor} COUNT 50{option}"));
                let (next, elements) = reply[2..].split_once("\", [").unwrap();
                let elements: Vec<_> = elements.trim_end_matches(']').split(", ").collect();
                seen.extend(elements.iter().step_by(words).map(|&name| name.to_owned()));
                (cursor, calls) = (next.to_owned(), calls + 1);
                if cursor == "0" {
                    break;
                }
            }
            assert_eq!(seen.len(), 600, "{command}");
            assert!((11..=13).contains(&calls), "{command}: {calls} calls");
        }
        client.expect(&[
            ("SSCAN s 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN"),
            ("ZSCAN z 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN"),
            ("OBJECT ENCODING s", "\"hashtable\""),
            ("OBJECT ENCODING z", "\"skiplist\""),
            ("ZRANK z member599", ":599"),
            ("ZRANGE z -1 -1", "[\"member599\"]"),
        ]);
        let popped = client.call("SPOP s 100");
        assert_eq!(popped.matches("member").count(), 100);
        assert_eq!(client.call("SCARD s"), ":500");
        let drawn = client.call("SRANDMEMBER s 300");
        let distinct: std::collections::BTreeSet<_> = drawn.split(", ").collect();
        assert_eq!(distinct.len(), 300);
    });
}

/// Elements may repeat any number of times, but only within a reply.
#[test]
fn selection_with_repetitions_ends_at_the_limit_of_a_reply() {
    let dir = TempDir::new().unwrap();
    let db = Db::open_or_create(dir.path().join("store"), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
    let server = TestServer::over(Some(table.engine().clone()), |options| {
        options.max_output_bytes = 64 << 10;
    });
    let mut client = server.client();
    client.expect(&[("SADD s a b", ":2"), ("ZADD z 1 a 2 b", ":2"), ("HSET h a 1 b 2", ":2")]);
    for command in [
        "SRANDMEMBER s -9223372036854775807",
        "ZRANDMEMBER z -9223372036854775807",
        "ZRANDMEMBER z -4611686018427387903 WITHSCORES",
        "HRANDFIELD h -9223372036854775807",
        "HRANDFIELD h -4611686018427387903 WITHVALUES",
    ] {
        let reply = client.call(command);
        assert!(reply.contains("the reply exceeds the limit of 65536 bytes"), "{command}: {reply}");
    }
    assert_eq!(client.call("SRANDMEMBER s -5000").matches('"').count(), 10_000);
    server.finish().unwrap();
    db.close().unwrap();
}

#[test]
fn table_without_order_names_its_engine() {
    let db = tempfile::TempDir::new().unwrap();
    let store = Db::open_or_create(db.path().join("store"), DbOptions::default()).unwrap();
    let table = store.table_or_create("cache", "mica", &Default::default()).unwrap();
    let server = TestServer::over(Some(table.engine().clone()), |_| ());
    let mut client = server.client();
    let error = "-ERR table 'first' has the engine mica, which stores only strings; use a table of \
                 the engine lsm";
    client.expect(&[
        ("SADD s a", error),
        ("HGETALL h", error),
        ("SET s v", "+OK"),
        ("TYPE s", "+string"),
        ("DEL s", ":1"),
        ("SCAN 0 TYPE hash", "[\"0\", []]"),
    ]);
    drop(server);
    store.close().unwrap();
}

#[test]
fn memcached_clients_do_not_see_collections() {
    let dir = TempDir::new().unwrap();
    let db = Db::open_or_create(dir.path().join("store"), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
    let server = TestServer::over(Some(table.engine().clone()), |options| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
    });
    let (mut client, mut memcached) = (server.client(), server.memcached_client());
    client.expect(&[("SADD s a", ":1")]);
    assert_eq!(memcached.request(b"get s\r\n"), "END\r\n");
    assert_eq!(memcached.request(b"set s 0 0 1\r\nx\r\n"), "STORED\r\n");
    client.expect(&[("GET s", "\"x\""), ("SADD s a", WRONG_TYPE)]);
    drop(server);
    db.close().unwrap();
}
