//! SORT, LCS and GEORADIUS: replies, stored results, keys, transactions. Where Redis is installed,
//! it validates the tests.

use crate::both_servers::on_both;
use crate::support::TestServer;

const SYNTAX: &str = "-ERR syntax error";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_A_SCORE: &str = "-ERR One or more scores can't be converted into double";

#[test]
fn sort_orders_limits_and_looks_up() {
    on_both(|connect| {
        connect().expect(&[
            ("RPUSH l 3 1 2 10 -5", ":5"),
            ("SORT l", "[\"-5\", \"1\", \"2\", \"3\", \"10\"]"),
            ("SORT l DESC LIMIT 1 2", "[\"3\", \"2\"]"),
            ("SORT l LIMIT 9 2", "[]"),
            ("SORT l ALPHA", "[\"-5\", \"1\", \"10\", \"2\", \"3\"]"),
            ("SORT l BY nosort DESC LIMIT 1 2", "[\"10\", \"2\"]"),
            ("MSET w_1 9 w_2 8 w_10 1 d_1 a d_2 b", "+OK"),
            ("SORT l BY w_*", "[\"-5\", \"3\", \"10\", \"2\", \"1\"]"),
            ("SORT l BY w_* DESC LIMIT 0 2 GET # GET d_*", "[\"1\", \"a\", \"2\", \"b\"]"),
            ("SORT l GET none LIMIT 0 1", "[nil]"),
            ("HSET h_1 f 3 g x", ":2"),
            ("HSET h_2 f -3 g y", ":2"),
            ("SORT l BY h_*->f LIMIT 0 1 GET h_*->g", "[\"y\"]"),
            ("SORT l LIMIT 1", SYNTAX),
            ("SORT l FOO", SYNTAX),
            ("SORT_RO l DESC LIMIT 0 1", "[\"10\"]"),
            ("SORT_RO l STORE x", SYNTAX),
            ("SADD s a c b", ":3"),
            ("SORT s", NOT_A_SCORE),
            ("SORT s ALPHA DESC", "[\"c\", \"b\", \"a\"]"),
            ("ZADD z 3 a 2 b 1 c", ":3"),
            ("SORT z BY nosort", "[\"c\", \"b\", \"a\"]"),
            ("SORT z BY nosort DESC LIMIT 1 1", "[\"b\"]"),
            ("SORT none", "[]"),
            ("SORT w_1", WRONG_TYPE),
            ("SORT h_1", WRONG_TYPE),
        ]);
    });
}

#[test]
fn sort_stores_a_list_over_any_key() {
    on_both(|connect| {
        let mut client = connect();
        client.expect(&[
            ("RPUSH l 2 1", ":2"),
            ("MSET out x d_1 a", "+OK"),
            ("EXPIRE out 100", ":1"),
            ("SORT l STORE out", ":2"),
            ("LRANGE out 0 -1", "[\"1\", \"2\"]"),
            ("TTL out", ":-1"),
            ("SORT l GET d_* STORE out", ":2"),
            ("LRANGE out 0 -1", "[\"a\", \"\"]"),
            ("SORT l STORE l", ":2"),
            ("LRANGE l 0 -1", "[\"1\", \"2\"]"),
            ("SADD s c a b", ":3"),
            ("SORT s BY nosort STORE out", ":3"),
            ("LRANGE out 0 -1", "[\"a\", \"b\", \"c\"]"),
            ("SORT none STORE out", ":0"),
            ("EXISTS out", ":0"),
            ("COMMAND GETKEYS SORT l BY store GET store STORE x STORE y", "[\"l\", \"y\"]"),
            ("MULTI", "+OK"),
            ("MSET d_1 x d_2 y", "+QUEUED"),
            ("SORT l GET d_* STORE out", "+QUEUED"),
            ("LRANGE out 0 -1", "+QUEUED"),
            ("EXEC", "[+OK, :2, [\"x\", \"y\"]]"),
            ("CONFIG SET notify-keyspace-events Klg", "+OK"),
        ]);
        let mut subscriber = connect();
        subscriber.call("SUBSCRIBE __keyspace@0__:out");
        client.expect(&[("SORT l STORE out", ":2"), ("SORT none STORE out", ":0")]);
        for event in ["sortstore", "del"] {
            let message = format!("[\"message\", \"__keyspace@0__:out\", \"{event}\"]");
            assert_eq!(subscriber.read(), message);
        }
        // Keys from patterns need not be declared.
        let script: &[u8] = b"return redis.call('sort', KEYS[1], 'get', 'd_*')";
        assert_eq!(client.call_bytes(&[b"EVAL", script, b"1", b"l"]), "[\"x\", \"y\"]");
    });
}

#[test]
fn element_that_is_too_long_for_a_key_names_none() {
    on_both(|connect| {
        let mut client = connect();
        let long = vec![b'x'; 70_000];
        assert_eq!(client.call_bytes(&[b"RPUSH", b"l", &long, b"1"]), ":2");
        client.expect(&[
            ("SET d_1 a", "+OK"),
            ("SORT l BY nosort GET d_*", "[nil, \"a\"]"),
            ("SORT l BY w_* GET d_* DESC", "[nil, \"a\"]"),
        ]);
    });
}

#[test]
fn sort_that_multiplies_a_value_is_limited() {
    let server = TestServer::with(|options| options.max_request_bytes = 1 << 20);
    let mut client = server.client();
    let refused = "-ERR SORT needs more memory than 1048576 bytes, the limit of a request";
    let long = vec![b'x'; 100_000];
    assert_eq!(client.call_bytes(&[b"SET", b"big", &long]), "+OK");
    client.call("RPUSH few i i i i");
    client.call(&format!("RPUSH many{}", " i".repeat(20)));
    client.expect(&[
        ("SORT many BY b*g ALPHA", refused),
        ("SORT many BY b*g ALPHA STORE out", refused),
        ("SORT many BY nosort GET b*g STORE out", refused),
        ("EXISTS out", ":0"),
        ("SORT few BY b*g ALPHA GET b*g STORE out", ":4"),
        ("SORT many ALPHA LIMIT 19 9", "[\"i\"]"),
    ]);
}

#[test]
fn longest_common_subsequence_is_that_of_redis() {
    on_both(|connect| {
        connect().expect(&[
            ("MSET a ohmytext b mynewtext", "+OK"),
            ("LCS a b", "\"mytext\""),
            ("LCS a b LEN", ":6"),
            (
                "LCS a b IDX",
                "[\"matches\", [[[:4, :7], [:5, :8]], [[:2, :3], [:0, :1]]], \"len\", :6]",
            ),
            (
                "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN",
                "[\"matches\", [[[:4, :7], [:5, :8], :4]], \"len\", :6]",
            ),
            ("LCS a none", "\"\""),
            (
                "LCS a b IDX LEN",
                "-ERR If you want both the length and indexes, please just use IDX.",
            ),
            ("LCS a b MINMATCHLEN", SYNTAX),
            ("RPUSH l 1", ":1"),
            ("LCS a l", "-ERR The specified keys must contain string values"),
        ]);
    });
}

#[test]
fn lcs_beyond_the_request_limit_is_rejected() {
    let server = TestServer::start();
    let mut client = server.client();
    let long = vec![b'a'; 100_000];
    client.call_bytes(&[b"MSET", b"a", &long, b"b", &long]);
    assert_eq!(
        client.call("LCS a b LEN"),
        "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
    );
}

#[test]
fn georadius_replies_like_redis() {
    on_both(|connect| {
        connect().expect(&[
            ("GEOADD g 13.361389 38.115556 p 15.087269 37.502669 c", ":2"),
            ("GEORADIUS g 15 37 200 km ASC", "[\"c\", \"p\"]"),
            ("GEORADIUS g 15 37 200 km WITHDIST DESC COUNT 1", "[[\"p\", \"190.4424\"]]"),
            ("GEORADIUS g 15 37 200 km WITHHASH COUNT 1", "[[\"c\", :3479447370796909]]"),
            ("GEORADIUS g 15 37 200 km STORE d", ":2"),
            ("ZSCORE d c", "\"3479447370796909\""),
            ("GEORADIUS g 15 37 200 km STORE d WITHDIST", "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"),
            ("GEORADIUS g 15 37 200 km ANY", "-ERR the ANY argument requires COUNT argument"),
            ("GEORADIUS g 15 37 200 km STORE", SYNTAX),
            ("GEORADIUS g 15 37 -1 km", "-ERR radius cannot be negative"),
            ("GEORADIUS_RO g 15 37 100 km", "[\"c\"]"),
            ("GEORADIUS_RO g 15 37 100 km STORE d", SYNTAX),
            ("GEORADIUSBYMEMBER g p 200 km ASC", "[\"p\", \"c\"]"),
            ("GEORADIUSBYMEMBER g x 200 km", "-ERR could not decode requested zset member"),
            ("GEORADIUSBYMEMBER none x 200 km", "[]"),
            ("GEORADIUSBYMEMBER g p 200 km STOREDIST d", ":2"),
            ("ZSCORE d p", "\"0\""),
            ("GEORADIUSBYMEMBER none x 200 km STORE d", ":0"),
            ("EXISTS d", ":0"),
            ("GEORADIUSBYMEMBER_RO g p 1 km", "[\"p\"]"),
            ("COMMAND GETKEYS GEORADIUS k 1 2 3 km COUNT 1 STOREDIST d", "[\"k\", \"d\"]"),
            ("COMMAND GETKEYS GEORADIUSBYMEMBER k store 3 km STORE d", "[\"k\", \"d\"]"),
        ]);
    });
}
