//! OBJECT ENCODING follows the settings of the sizes.

use crate::redis_admin_commands::{check, check_both};
use crate::support::TestServer;

#[test]
fn encodings_follow_the_settings() {
    check_both(&[
        ("CONFIG SET hash-max-listpack-entries 2 hash-max-listpack-value 5", "+OK"),
        // One name each: Redis answers a pattern in the order of a hash table, by a random seed.
        ("CONFIG GET hash-max-listpack-entries", "[\"hash-max-listpack-entries\", \"2\"]"),
        ("CONFIG GET hash-max-ziplist-entries", "[\"hash-max-ziplist-entries\", \"2\"]"),
        ("HSET h a 1 b 2", ":2"),
        ("OBJECT ENCODING h", "\"listpack\""),
        ("HSET h c 3", ":1"),
        ("OBJECT ENCODING h", "\"hashtable\""),
        // It only grows.
        ("HDEL h b c", ":2"),
        ("OBJECT ENCODING h", "\"hashtable\""),
        ("HSET g a longer", ":1"),
        ("OBJECT ENCODING g", "\"hashtable\""),
        ("CONFIG SET zset-max-ziplist-entries 1", "+OK"),
        ("ZADD z 1 a", ":1"),
        ("OBJECT ENCODING z", "\"listpack\""),
        ("ZADD z 2 b", ":1"),
        ("OBJECT ENCODING z", "\"skiplist\""),
        ("CONFIG SET set-max-intset-entries 1", "+OK"),
        ("SADD s 1", ":1"),
        ("OBJECT ENCODING s", "\"intset\""),
        (
            "CONFIG SET hash-max-listpack-entries x",
            "-ERR CONFIG SET failed (possibly related to argument 'hash-max-listpack-entries') - argument couldn't be parsed into an integer",
        ),
        ("CONFIG SET list-compress-depth 1", "+OK"),
    ]);
    // As in Redis 7.2: a list is compact up to a number of elements or a size of all of them.
    let server = TestServer::start();
    check(
        &mut server.client(),
        "siltstone",
        &[
            ("CONFIG SET list-max-listpack-size 4", "+OK"),
            ("RPUSH l a b c d", ":4"),
            ("OBJECT ENCODING l", "\"listpack\""),
            ("RPUSH l e", ":5"),
            ("OBJECT ENCODING l", "\"quicklist\""),
            ("RPOP l 2", "[\"e\", \"d\"]"),
            ("OBJECT ENCODING l", "\"quicklist\""),
            ("RPOP l", "\"c\""),
            ("OBJECT ENCODING l", "\"listpack\""),
            ("CONFIG SET list-max-listpack-size -1", "+OK"),
            ("SETRANGE long 4095 x", ":4096"),
            ("LPUSH l x", ":3"),
            ("OBJECT ENCODING l", "\"listpack\""),
        ],
    );
    let mut client = server.client();
    client.call_bytes(&[b"RPUSH", b"m", &[b'x'; 4000]]);
    client.expect(&[("OBJECT ENCODING m", "\"listpack\"")]);
    client.call_bytes(&[b"RPUSH", b"m", &[b'x'; 100]]);
    client.expect(&[("OBJECT ENCODING m", "\"quicklist\"")]);
    client.expect(&[("CONFIG SET set-max-listpack-entries 1", "+OK"), ("SADD t a", ":1")]);
    client.expect(&[("OBJECT ENCODING t", "\"listpack\""), ("SADD t b", ":1")]);
    client.expect(&[("OBJECT ENCODING t", "\"hashtable\"")]);
}
