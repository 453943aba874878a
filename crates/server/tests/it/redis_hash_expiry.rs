//! Expiry of a hash's fields: replies as the documentation of Redis 7.4 has them, and what other
//! commands do with such a hash.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crate::replicated::options;
use crate::support::{Client, TestServer, eventually};
use siltstone_rdb::payload;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_FIELDS: &str = "-ERR Mandatory argument FIELDS is missing or not at the right position";
const OTHER_NUMBER: &str = "-ERR The `numfields` parameter must match the number of arguments";

/// Runs a test on a plain table and on a replicated one.
fn on_each_table(test: impl Fn(&TestServer)) {
    let server = TestServer::start();
    test(&server);
    server.finish().unwrap();
    let dir = tempfile::tempdir().unwrap();
    test(&TestServer::replicated_in(&dir.path().join("node"), options()));
}

fn wait_until_expired() {
    std::thread::sleep(Duration::from_millis(60));
}

#[test]
fn field_expiry_commands_reply_like_redis() {
    on_each_table(|server| {
        server.client().expect(&[
            ("HEXPIRE none 10 FIELDS 2 a b", "[:-2, :-2]"),
            ("HTTL none FIELDS 1 a", "[:-2]"),
            ("HPERSIST none FIELDS 1 a", "[:-2]"),
            ("EXISTS none", ":0"),
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HTTL h FIELDS 2 a x", "[:-1, :-2]"),
            ("HEXPIRE h 100 FIELDS 2 a x", "[:1, :-2]"),
            ("HTTL h FIELDS 3 a b x", "[:100, :-1, :-2]"),
            ("HEXPIRE h 200 NX FIELDS 2 a b", "[:0, :1]"),
            ("HEXPIRE h 50 XX FIELDS 2 a c", "[:1, :0]"),
            ("HEXPIRE h 10 GT FIELDS 2 a c", "[:0, :0]"),
            ("HEXPIRE h 60 gt FIELDS 1 a", "[:1]"),
            ("HEXPIRE h 70 LT FIELDS 2 a c", "[:0, :1]"),
            ("HEXPIREAT h 4000000000 FIELDS 1 a", "[:1]"),
            ("HEXPIRETIME h FIELDS 1 a", "[:4000000000]"),
            ("HPEXPIRETIME h FIELDS 2 a x", "[:4000000000000, :-2]"),
            ("HPEXPIREAT h 4000000000001 FIELDS 1 a", "[:1]"),
            ("HPEXPIRETIME h FIELDS 1 a", "[:4000000000001]"),
            ("HEXPIRETIME h FIELDS 1 a", "[:4000000001]"),
            ("HPERSIST h FIELDS 3 a a x", "[:1, :-1, :-2]"),
            ("HTTL h FIELDS 1 a", "[:-1]"),
            ("HPEXPIRE h 100000 FIELDS 1 a", "[:1]"),
            // A time in the past removes the field, and the last one the hash.
            ("HEXPIRE h 0 FIELDS 2 a a", "[:2, :-2]"),
            ("HGETALL h", "[\"b\", \"2\", \"c\", \"3\"]"),
            ("HPEXPIREAT h 1 FIELDS 2 b c", "[:2, :2]"),
            ("EXISTS h", ":0"),
        ]);
        let mut client = server.client();
        client.expect(&[("HSET h a 1", ":1"), ("HPEXPIRE h 99999 FIELDS 1 a", "[:1]")]);
        let reply = client.call("HPTTL h FIELDS 1 a");
        let left: u64 = reply.trim_matches(['[', ']', ':']).parse().unwrap();
        assert!(left > 90_000 && left <= 99_999, "{reply}");
    });
}

#[test]
fn wrong_arguments_of_field_expiry_commands_are_refused_like_in_redis() {
    let server = TestServer::start();
    server.client().expect(&[
        ("SET s 1", "+OK"),
        ("HSET h a 1", ":1"),
        ("HEXPIRE s x FIELDS 1 a", WRONG_TYPE),
        ("HTTL s FIELDS 1 a", WRONG_TYPE),
        ("HPERSIST s FIELDS 1 a", WRONG_TYPE),
        ("HEXPIRE h 10 FIELDS 1", "-ERR wrong number of arguments for 'hexpire' command"),
        ("HTTL h FIELDS 1", "-ERR wrong number of arguments for 'httl' command"),
        ("HEXPIRE h x FIELDS 1 a", "-ERR value is not an integer or out of range"),
        ("HEXPIRE h -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0"),
        (
            "HEXPIRE h 9223372036854775807 FIELDS 1 a",
            "-ERR invalid expire time in 'hexpire' command",
        ),
        (
            "HPEXPIREAT h 70368744177664 FIELDS 1 a",
            "-ERR invalid expire time in 'hpexpireat' command",
        ),
        ("HEXPIRE h 10 NX XX FIELDS 1 a", NO_FIELDS),
        ("HEXPIRE h 10 FIELD 1 a", NO_FIELDS),
        ("HTTL h FIELD 1 a", NO_FIELDS),
        ("HEXPIRE h 10 FIELDS 0 a", "-ERR Parameter `numFields` should be greater than 0"),
        ("HTTL h FIELDS 0 a", "-ERR Number of fields must be a positive integer"),
        ("HPERSIST h FIELDS x a", "-ERR Number of fields must be a positive integer"),
        ("HEXPIRE h 10 FIELDS 2 a", OTHER_NUMBER),
        ("HEXPIRE h 10 FIELDS 1 a b", OTHER_NUMBER),
        ("HPEXPIRETIME h FIELDS 2 a", OTHER_NUMBER),
        ("HTTL h FIELDS 1 a", "[:-1]"),
    ]);
    server.finish().unwrap();
}

#[test]
fn expired_field_is_hidden_from_all_commands() {
    on_each_table(|server| {
        let mut client = server.client();
        client.expect(&[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HPEXPIRE h 40 FIELDS 2 a b", "[:1, :1]"),
            ("RPUSH ids h", ":1"),
        ]);
        wait_until_expired();
        client.expect(&[
            ("HLEN h", ":1"),
            ("HGET h a", "nil"),
            ("HMGET h a c", "[nil, \"3\"]"),
            ("HGETALL h", "[\"c\", \"3\"]"),
            ("HKEYS h", "[\"c\"]"),
            ("HVALS h", "[\"3\"]"),
            ("HEXISTS h b", ":0"),
            ("HSTRLEN h a", ":0"),
            ("HSCAN h 0", "[\"0\", [\"c\", \"3\"]]"),
            ("HSCAN h 0 NOVALUES COUNT 5 MATCH *", "[\"0\", [\"c\"]]"),
            ("HSCAN h 0 MATCH x NOVALUES", "[\"0\", []]"),
            ("HRANDFIELD h", "\"c\""),
            ("HRANDFIELD h 5", "[\"c\"]"),
            ("HRANDFIELD h -2", "[\"c\", \"c\"]"),
            ("HTTL h FIELDS 2 a c", "[:-2, :-1]"),
            ("HDEL h a", ":0"),
            ("HSETNX h a 9", ":1"),
            ("HTTL h FIELDS 1 a", "[:-1]"),
            ("HLEN h", ":2"),
            ("HINCRBY h b 5", ":5"),
            ("SORT ids BY nosort GET *->b", "[\"5\"]"),
        ]);
        let info = client.call("INFO stats");
        assert!(info.contains("expired_subkeys:2"), "{info}");
    });
}

#[test]
fn hash_whose_last_field_has_expired_does_not_exist() {
    on_each_table(|server| {
        let mut client = server.client();
        client.expect(&[
            ("HSET h a 1 b 2", ":2"),
            ("HPEXPIRE h 100000 FIELDS 2 a b", "[:1, :1]"),
            ("TTL h", ":-1"),
            ("EXISTS h", ":1"),
            ("HPEXPIRE h 40 FIELDS 2 a b", "[:1, :1]"),
        ]);
        wait_until_expired();
        client.expect(&[
            ("EXISTS h", ":0"),
            ("TYPE h", "+none"),
            ("DBSIZE", ":0"),
            ("KEYS *", "[]"),
            ("HLEN h", ":0"),
            ("OBJECT ENCODING h", "nil"),
            ("RPUSH h x", ":1"),
            ("DEL h", ":1"),
            ("HSET h a 1", ":1"),
            ("HGETALL h", "[\"a\", \"1\"]"),
        ]);
    });
}

#[test]
fn writes_clear_or_keep_the_expiry_of_a_field_like_in_redis() {
    on_each_table(|server| {
        server.client().expect(&[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HEXPIRE h 100 FIELDS 3 a b c", "[:1, :1, :1]"),
            ("HINCRBY h a 1", ":2"),
            ("HINCRBYFLOAT h b 0.5", "\"2.5\""),
            ("HSETNX h c 9", ":0"),
            ("HTTL h FIELDS 3 a b c", "[:100, :100, :100]"),
            ("HSET h a 1", ":0"),
            ("HMSET h b 1", "+OK"),
            ("HTTL h FIELDS 3 a b c", "[:-1, :-1, :100]"),
            ("EXPIRE h 50", ":1"),
            ("TTL h", ":50"),
            ("COPY h g", ":1"),
            ("RENAME h f", "+OK"),
            ("HTTL g FIELDS 1 c", "[:100]"),
            ("HTTL f FIELDS 1 c", "[:100]"),
            ("TTL g", ":50"),
            ("TTL f", ":50"),
            ("PERSIST f", ":1"),
            ("HTTL f FIELDS 1 c", "[:100]"),
            ("HDEL f a b c", ":3"),
            ("EXISTS f", ":0"),
            ("HSET f c 1", ":1"),
            ("HTTL f FIELDS 1 c", "[:-1]"),
        ]);
    });
}

#[test]
fn encoding_shows_that_fields_expire() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("HSET h a 1", ":1"),
        ("OBJECT ENCODING h", "\"listpack\""),
        ("HEXPIRE h 100 FIELDS 1 a", "[:1]"),
        ("OBJECT ENCODING h", "\"listpackex\""),
        ("HPERSIST h FIELDS 1 a", "[:1]"),
        ("OBJECT ENCODING h", "\"listpackex\""),
        ("CONFIG SET hash-max-listpack-entries 1", "+OK"),
        ("HSET h b 1", ":1"),
        ("OBJECT ENCODING h", "\"hashtable\""),
    ]);
    let usage = client.call("MEMORY USAGE h SAMPLES 0");
    assert!(usage[1..].parse::<u64>().unwrap() > 4, "{usage}");
    server.finish().unwrap();
}

#[test]
fn time_stands_still_in_a_transaction_and_in_a_script() {
    on_each_table(|server| {
        let mut client = server.client();
        client.expect(&[("HSET h a 1 b 2", ":2"), ("HPEXPIRE h 30 FIELDS 1 a", "[:1]")]);
        let script = b"local first = redis.call('hlen', KEYS[1]) \
                       local till = ARGV[1] + 0 \
                       for n = 1, till do redis.call('hget', KEYS[1], 'b') end \
                       return {first, redis.call('hlen', KEYS[1]), \
                               redis.call('hpexpire', KEYS[1], 0, 'FIELDS', 1, 'a')[1]}";
        let reply = client.call_bytes(&[b"EVAL", script, b"1", b"h", b"3000"]);
        // Whether the field had expired when the script began or not, it does not meanwhile.
        assert!(["[:2, :2, :2]", "[:1, :1, :-2]"].contains(&reply.as_str()), "{reply}");
        client.expect(&[
            ("HSET h a 1", ":1"),
            ("MULTI", "+OK"),
            ("HPEXPIRE h 1 FIELDS 1 a", "+QUEUED"),
            ("HLEN h", "+QUEUED"),
            ("HEXPIRE h 0 FIELDS 1 b", "+QUEUED"),
            ("HGETALL h", "+QUEUED"),
            ("EXEC", "[[:1], :2, [:2], [\"a\", \"1\"]]"),
        ]);
        wait_until_expired();
        client.expect(&[("EXISTS h", ":0")]);
    });
}

/// The next events of a key.
fn expect_events(subscriber: &mut Client, events: &[&str]) {
    for event in events {
        let expected = format!("[\"message\", \"__keyspace@0__:h\", \"{event}\"]");
        assert_eq!(subscriber.read(), expected);
    }
}

#[test]
fn changes_of_field_expiries_are_published() {
    on_each_table(|server| {
        let (mut client, mut subscriber) = (server.client(), server.client());
        client.expect(&[("CONFIG SET notify-keyspace-events KA", "+OK")]);
        subscriber.call("SUBSCRIBE __keyspace@0__:h");
        client.expect(&[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HEXPIRE h 100 FIELDS 1 a", "[:1]"),
            ("HEXPIRE h 200 NX FIELDS 1 a", "[:0]"),
            ("HPERSIST h FIELDS 1 a", "[:1]"),
            ("HPERSIST h FIELDS 1 a", "[:-1]"),
            ("HEXPIRE h 0 FIELDS 1 a", "[:2]"),
            ("HPEXPIRE h 40 FIELDS 1 b", "[:1]"),
        ]);
        expect_events(&mut subscriber, &["hset", "hexpire", "hpersist", "hdel", "hexpire"]);
        // Without any command on the hash.
        expect_events(&mut subscriber, &["hexpired"]);
        client.expect(&[("HLEN h", ":1"), ("HPEXPIRE h 40 FIELDS 1 c", "[:1]")]);
        expect_events(&mut subscriber, &["hexpire", "hexpired", "del"]);
        client.expect(&[("HSET h a 1", ":1"), ("HEXPIRE h 0 FIELDS 1 a", "[:2]")]);
        expect_events(&mut subscriber, &["hset", "hdel", "del"]);
    });
}

#[test]
fn expired_field_invalidates_the_caches_of_clients() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.call("HELLO 3");
    client.expect(&[("CLIENT TRACKING ON", "+OK")]);
    other.expect(&[("HSET h a 1 b 2", ":2"), ("HPEXPIRE h 1000 FIELDS 1 a", "[:1]")]);
    client.expect(&[("HGET h a", "\"1\"")]);
    assert!(client.read().contains("invalidate"));
    server.finish().unwrap();
}

#[test]
fn dumped_hash_keeps_the_expiries_of_its_fields() {
    on_each_table(|server| {
        let mut client = server.client();
        for limit in ["512", "1"] {
            client.expect(&[
                ("DEL h g", ":0"),
                (&format!("CONFIG SET hash-max-listpack-entries {limit}"), "+OK"),
                ("HSET h a 1 b 2 c 3", ":3"),
                ("HPEXPIREAT h 4000000000000 FIELDS 1 b", "[:1]"),
            ]);
            let dumped = client.call_for_bulk(&[b"DUMP", b"h"]).unwrap();
            assert_eq!(dumped[0], if limit == "1" { 0x18 } else { 0x19 });
            assert_eq!(dumped[dumped.len() - 10], 12);
            assert_eq!(client.call_bytes(&[b"RESTORE", b"g", b"0", &dumped]), "+OK");
            client.expect(&[
                ("HPEXPIRETIME g FIELDS 3 a b c", "[:-1, :4000000000000, :-1]"),
                ("HMGET g a b c", "[\"1\", \"2\", \"3\"]"),
                // Without an expiry, older versions of Redis can read it.
                ("HPERSIST g FIELDS 1 b", "[:1]"),
            ]);
            let dumped = client.call_for_bulk(&[b"DUMP", b"g"]).unwrap();
            assert_eq!(dumped[dumped.len() - 10], 10);
            client.expect(&[("DEL h g", ":2")]);
        }
    });
}

#[test]
fn restored_fields_that_have_expired_are_left_out() {
    let server = TestServer::start();
    let mut client = server.client();
    let fields = |times: [Option<u64>; 2]| {
        let [first, second] = times;
        let fields =
            vec![(b"a".to_vec(), b"1".to_vec(), first), (b"b".to_vec(), b"2".to_vec(), second)];
        let value = siltstone_rdb::Value::ExpiringHash(fields);
        payload::dump(&value, siltstone_rdb::Encoding::Compact)
    };
    let payload = fields([Some(1000), None]);
    assert_eq!(client.call_bytes(&[b"RESTORE", b"h", b"0", &payload]), "+OK");
    client.expect(&[("HGETALL h", "[\"b\", \"2\"]"), ("HLEN h", ":1")]);
    let payload = fields([Some(1000), Some(1000)]);
    assert_eq!(client.call_bytes(&[b"RESTORE", b"h", b"9000", &payload, b"REPLACE"]), "+OK");
    client.expect(&[("EXISTS h", ":0")]);
    server.finish().unwrap();
}

#[test]
fn fields_expire_and_counts_are_right_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("node");
    let server = TestServer::replicated_in(&dir, options());
    server.client().expect(&[
        ("HSET h a 1 b 2 c 3", ":3"),
        ("HPEXPIRE h 40 FIELDS 1 a", "[:1]"),
        ("HPEXPIREAT h 4000000000000 FIELDS 1 b", "[:1]"),
    ]);
    server.finish().unwrap();
    wait_until_expired();
    let server = TestServer::replicated_in(&dir, options());
    server.client().expect(&[
        ("HLEN h", ":2"),
        ("HPEXPIRETIME h FIELDS 3 a b c", "[:-2, :4000000000000, :-1]"),
    ]);
    server.finish().unwrap();
}

#[test]
fn watched_hash_is_changed_by_an_expired_field_once_it_is_met() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.expect(&[("HSET h a 1 b 2", ":2"), ("HPEXPIRE h 1000 FIELDS 1 a", "[:1]")]);
    client.expect(&[("WATCH h", "+OK")]);
    eventually("the field expires", || other.call("HLEN h") == ":1");
    client.expect(&[("MULTI", "+OK"), ("HLEN h", "+QUEUED"), ("EXEC", "nil")]);
    server.finish().unwrap();
}

/// Readers share the lock of a hash; one that has to take expired fields out of the count does not.
/// Each sees all fields of one HSET, and in the end the count is right.
#[test]
fn concurrent_reads_of_a_hash_with_expiring_fields_are_of_one_moment() {
    const FIELDS: usize = 8;
    let server = TestServer::start();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_done = &is_done;
        for _ in 0..3 {
            let mut reader = server.client();
            scope.spawn(move || {
                let names: Vec<_> = (0..FIELDS).map(|i| format!("f{i}")).collect();
                // One lookup per field.
                let line = format!("HMGET h {}", names.join(" "));
                while !is_done.load(SeqCst) {
                    let reply = reader.call(&line);
                    let mut values = reply.trim_matches(['[', ']']).split(", ");
                    let first = values.next().unwrap();
                    assert!(values.all(|value| value == first), "{reply}");
                }
            });
        }
        let mut writer = server.client();
        for round in 0..1000 {
            let pairs: Vec<_> = (0..FIELDS).map(|i| format!("f{i} {round}")).collect();
            writer.call(&format!("HSET h {}", pairs.join(" ")));
            writer.call(&format!("HSET h short{round} {round}"));
            writer.call(&format!("HPEXPIRE h 1 FIELDS 1 short{round}"));
        }
        is_done.store(true, SeqCst);
    });
    // All short fields expire, and are counted out once.
    let mut client = server.client();
    eventually("the short fields expire", || client.call("HLEN h") == format!(":{FIELDS}"));
}
