//! Replies of the commands on hashes, lists, sets and sorted sets equal those of Redis 7.2.

use crate::both_servers::on_both;
use crate::support::{Client, TestServer};
use siltstone::{Db, DbOptions};
use tempfile::TempDir;

/// A server whose first table is an `lsm` table in `dir`.
pub(crate) fn serve(dir: &TempDir) -> (Db, TestServer) {
    let db = Db::open_or_create(dir.path().join("store"), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
    let server = TestServer::over(Some(table.engine().clone()), |_| ());
    (db, server)
}

pub(crate) fn with_client(test: impl FnOnce(&mut Client)) {
    let dir = TempDir::new().unwrap();
    let (db, server) = serve(&dir);
    test(&mut server.client());
    server.finish().unwrap();
    db.close().unwrap();
}

pub(crate) const WRONG_TYPE: &str =
    "-WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "-ERR syntax error";
const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";

#[test]
fn hash_commands_reply_like_redis() {
    with_client(|client| {
        client.expect(&[
            ("HGET h a", "nil"),
            ("HGETALL h", "[]"),
            ("HSET h a 1 b 2", ":2"),
            ("HSET h a 3 c 4", ":1"),
            ("HSET h a", "-ERR wrong number of arguments for 'hset' command"),
            ("HSET h a 1 b", "-ERR wrong number of arguments for 'hset' command"),
            ("HMSET h d 5", "+OK"),
            ("HGET h a", "\"3\""),
            ("HMGET h a x c", "[\"3\", nil, \"4\"]"),
            ("HLEN h", ":4"),
            ("HEXISTS h a", ":1"),
            ("HEXISTS h x", ":0"),
            ("HSTRLEN h a", ":1"),
            ("HSETNX h a 9", ":0"),
            ("HSETNX h e 9", ":1"),
            ("HDEL h b c d x", ":3"),
            ("HINCRBY h a 4", ":7"),
            ("HINCRBY h n -4", ":-4"),
            ("HINCRBY h a 9223372036854775807", "-ERR increment or decrement would overflow"),
            ("HINCRBY h a x", NOT_AN_INTEGER),
            ("HINCRBYFLOAT h n 0.5", "\"-3.5\""),
            ("HINCRBYFLOAT h n inf", "-ERR value is NaN or Infinity"),
            ("HSET h t text", ":1"),
            ("HINCRBY h t 1", "-ERR hash value is not an integer"),
            ("HINCRBYFLOAT h t 1", "-ERR hash value is not a float"),
            ("HDEL h e n t", ":3"),
            ("HGETALL h", "[\"a\", \"7\"]"),
            ("HKEYS h", "[\"a\"]"),
            ("HVALS h", "[\"7\"]"),
            ("HRANDFIELD h", "\"a\""),
            ("HRANDFIELD h 5 WITHVALUES", "[\"a\", \"7\"]"),
            ("HRANDFIELD h -2", "[\"a\", \"a\"]"),
            ("HRANDFIELD x 1", "[]"),
            ("HRANDFIELD h 1 x", SYNTAX),
            ("HSCAN h 0", "[\"0\", [\"a\", \"7\"]]"),
            ("HSCAN h 0 MATCH b*", "[\"0\", []]"),
            ("HSCAN h x", "-ERR invalid cursor"),
            ("HDEL h a", ":1"),
            ("EXISTS h", ":0"),
        ]);
    });
}

#[test]
fn list_commands_reply_like_redis() {
    with_client(|client| {
        client.expect(&[
            ("LPUSHX l a", ":0"),
            ("RPUSH l b c", ":2"),
            ("LPUSH l a z", ":4"),
            ("LRANGE l 0 -1", "[\"z\", \"a\", \"b\", \"c\"]"),
            ("LRANGE l -2 100", "[\"b\", \"c\"]"),
            ("LRANGE l 3 1", "[]"),
            ("LINDEX l -1", "\"c\""),
            ("LINDEX l 9", "nil"),
            ("LSET l 0 y", "+OK"),
            ("LSET l 9 y", "-ERR index out of range"),
            ("LSET x 0 y", "-ERR no such key"),
            ("LINSERT l BEFORE b m", ":5"),
            ("LINSERT l AFTER x m", ":-1"),
            ("LINSERT x AFTER x m", ":0"),
            ("LINSERT l x x m", SYNTAX),
            ("RPUSH l m m", ":7"),
            ("LPOS l m", ":2"),
            ("LPOS l m RANK -1", ":6"),
            ("LPOS l m COUNT 0", "[:2, :5, :6]"),
            ("LPOS l m RANK 2 COUNT 1", "[:5]"),
            ("LPOS l m MAXLEN 2", "nil"),
            ("LPOS l m COUNT -1", "-ERR COUNT can't be negative"),
            ("LREM l -1 m", ":1"),
            ("LREM l 0 m", ":2"),
            ("LRANGE l 0 -1", "[\"y\", \"a\", \"b\", \"c\"]"),
            ("LTRIM l 1 -2", "+OK"),
            ("LRANGE l 0 -1", "[\"a\", \"b\"]"),
            ("LMOVE l k LEFT RIGHT", "\"a\""),
            ("LMOVE x k LEFT RIGHT", "nil"),
            ("LMOVE l k LEFT x", SYNTAX),
            ("RPOPLPUSH l k", "\"b\""),
            ("EXISTS l", ":0"),
            ("LRANGE k 0 -1", "[\"b\", \"a\"]"),
            ("LMOVE k k LEFT RIGHT", "\"b\""),
            ("LPOP k 5", "[\"a\", \"b\"]"),
            ("LPOP k", "nil"),
            ("LPOP k 5", "nil"),
            ("LPOP k -1", "-ERR value is out of range, must be positive"),
            ("RPUSH k 1 2 3", ":3"),
            ("LMPOP 2 x k RIGHT COUNT 2", "[\"k\", [\"3\", \"2\"]]"),
            ("LMPOP 1 x LEFT", "nil"),
            ("LMPOP 0 k LEFT", "-ERR numkeys should be greater than 0"),
            ("LMPOP 1 k LEFT COUNT 0", "-ERR count should be greater than 0"),
            ("RPOP k", "\"1\""),
            ("LLEN k", ":0"),
        ]);
    });
}

#[test]
fn set_commands_reply_like_redis() {
    with_client(|client| {
        client.expect(&[
            ("SADD s a b a", ":2"),
            ("SADD s b", ":0"),
            ("SCARD s", ":2"),
            ("SISMEMBER s a", ":1"),
            ("SMISMEMBER s a x", "[:1, :0]"),
            ("SREM s a x", ":1"),
            ("SMEMBERS s", "[\"b\"]"),
            ("SADD t b c", ":2"),
            ("SINTER s t", "[\"b\"]"),
            ("SINTER s x", "[]"),
            ("SDIFF t s", "[\"c\"]"),
            ("SUNIONSTORE u s t", ":2"),
            ("SINTERCARD 2 t u", ":2"),
            ("SINTERCARD 2 t u LIMIT 1", ":1"),
            ("SINTERCARD 0 t", "-ERR numkeys should be greater than 0"),
            ("SINTERCARD 3 t u", "-ERR Number of keys can't be greater than number of args"),
            ("SINTERCARD 1 t LIMIT -1", "-ERR LIMIT can't be negative"),
            ("SDIFFSTORE u t s", ":1"),
            ("SMEMBERS u", "[\"c\"]"),
            ("SINTERSTORE u s x", ":0"),
            ("EXISTS u", ":0"),
            ("SMOVE s t b", ":1"),
            ("SMOVE s t b", ":0"),
            ("EXISTS s", ":0"),
            ("SRANDMEMBER x", "nil"),
            ("SRANDMEMBER x 3", "[]"),
            ("SPOP x", "nil"),
            ("SPOP x 3", "[]"),
            ("SPOP t -1", "-ERR value is out of range, must be positive"),
            ("SREM t b", ":1"),
            ("SRANDMEMBER t -2", "[\"c\", \"c\"]"),
            ("SSCAN t 0", "[\"0\", [\"c\"]]"),
            ("SPOP t 9", "[\"c\"]"),
            ("EXISTS t", ":0"),
        ]);
    });
}

#[test]
fn sorted_set_commands_reply_like_redis() {
    with_client(|client| {
        client.expect(&[
            ("ZADD z 1 a 2 b", ":2"),
            ("ZADD z CH 1 a 3 b 2.5 c", ":2"),
            ("ZADD z NX 9 a 9 d", ":1"),
            ("ZADD z XX GT CH 1 a 10 d 4 e", ":1"),
            ("ZADD z NX XX 1 a", "-ERR XX and NX options at the same time are not compatible"),
            (
                "ZADD z GT LT 1 a",
                "-ERR GT, LT, and/or NX options at the same time are not compatible",
            ),
            ("ZADD z INCR 1 a 2 b", "-ERR INCR option supports a single increment-element pair"),
            ("ZADD z 1", "-ERR wrong number of arguments for 'zadd' command"),
            ("ZADD z 1 a 2", SYNTAX),
            ("ZADD z x a", "-ERR value is not a valid float"),
            ("ZADD z INCR 0.5 a", "\"1.5\""),
            ("ZADD z NX INCR 0.5 a", "nil"),
            ("ZRANGE z 0 -1 WITHSCORES", "[\"a\", \"1.5\", \"c\", \"2.5\", \"b\", \"3\", \"d\", \"10\"]"),
            ("ZSCORE z c", "\"2.5\""),
            ("ZSCORE z x", "nil"),
            ("ZMSCORE z a x", "[\"1.5\", nil]"),
            ("ZCARD z", ":4"),
            ("ZCOUNT z (1.5 3", ":2"),
            ("ZCOUNT z x 3", "-ERR min or max is not a float"),
            ("ZCOUNT z nan 3", "-ERR min or max is not a float"),
            ("ZCOUNT z -1e400 1e400", ":4"),
            ("ZRANK z b", ":2"),
            ("ZRANK z b WITHSCORE", "[:2, \"3\"]"),
            ("ZREVRANK z b", ":1"),
            ("ZRANK z x", "nil"),
            ("ZRANGE z 1 -2 REV", "[\"b\", \"c\"]"),
            ("ZRANGE z -inf 3 BYSCORE LIMIT 1 1", "[\"c\"]"),
            ("ZRANGE z 3 -inf BYSCORE REV", "[\"b\", \"c\", \"a\"]"),
            (
                "ZRANGE z 0 1 LIMIT 0 1",
                "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ),
            ("ZREVRANGE z 0 0 WITHSCORES", "[\"d\", \"10\"]"),
            ("ZRANGEBYSCORE z 2 (10", "[\"c\", \"b\"]"),
            ("ZREVRANGEBYSCORE z 3 0 LIMIT 0 -1", "[\"b\", \"c\", \"a\"]"),
            ("ZRANGESTORE y z 0 1", ":2"),
            ("ZRANGE y 0 -1", "[\"a\", \"c\"]"),
            ("ZINCRBY z -inf d", "\"-inf\""),
            ("ZINCRBY z inf d", "-ERR resulting score is not a number (NaN)"),
            ("ZUNION 2 z y WEIGHTS 1 2 WITHSCORES", "[\"d\", \"-inf\", \"b\", \"3\", \"a\", \"4.5\", \"c\", \"7.5\"]"),
            ("ZINTER 2 z y AGGREGATE MAX", "[\"a\", \"c\"]"),
            ("ZDIFF 2 z y", "[\"d\", \"b\"]"),
            ("ZINTERCARD 2 z y LIMIT 1", ":1"),
            ("ZUNION 0 z", "-ERR at least 1 input key is needed for 'zunion' command"),
            ("ZUNIONSTORE w 2 z y", ":4"),
            ("ZINTERSTORE w 2 z y", ":2"),
            ("ZDIFFSTORE w 2 z y", ":2"),
            ("ZREM z d x", ":1"),
            ("ZPOPMIN z", "[\"a\", \"1.5\"]"),
            ("ZPOPMAX z 5", "[\"b\", \"3\", \"c\", \"2.5\"]"),
            ("ZPOPMIN z", "[]"),
            ("ZMPOP 2 z w MIN COUNT 5", "[\"w\", [[\"d\", \"-inf\"], [\"b\", \"3\"]]]"),
            ("ZMPOP 1 z MAX", "nil"),
            ("ZADD l 0 a 0 b 0 c", ":3"),
            ("ZRANGEBYLEX l [b +", "[\"b\", \"c\"]"),
            ("ZREVRANGEBYLEX l + (a LIMIT 1 5", "[\"b\"]"),
            ("ZLEXCOUNT l - (c", ":2"),
            ("ZLEXCOUNT l b c", "-ERR min or max not valid string range item"),
            ("ZRANGE l (a [c BYLEX REV", "[]"),
            ("ZREMRANGEBYLEX l [a [a", ":1"),
            ("ZREMRANGEBYSCORE l 1 2", ":0"),
            ("ZREMRANGEBYRANK l 0 0", ":1"),
            ("ZRANDMEMBER l", "\"c\""),
            ("ZRANDMEMBER l 2 WITHSCORES", "[\"c\", \"0\"]"),
            ("ZSCAN l 0", "[\"0\", [\"c\", \"0\"]]"),
        ]);
    });
}

#[test]
fn large_sets_are_combined_in_parts() {
    with_client(|client| {
        let add = |client: &mut Client, key: &str, numbers: std::ops::Range<u32>| {
            let members: String = numbers.map(|number| format!(" {number}")).collect();
            client.call(&format!("SADD {key}{members}"));
        };
        add(client, "a", 0..3500);
        add(client, "b", 1500..6000);
        client.expect(&[
            ("SINTERCARD 2 a b", ":2000"),
            ("SINTERCARD 2 b a LIMIT 1001", ":1001"),
            ("SINTERSTORE i a b", ":2000"),
            ("SDIFFSTORE d a b", ":1500"),
            ("SUNIONSTORE u a b", ":6000"),
            ("SINTERCARD 2 i d", ":0"),
            ("SDIFF a i d", "[]"),
            ("SISMEMBER i 1499", ":0"),
            ("SISMEMBER i 1500", ":1"),
        ]);
        assert_eq!(client.call("SUNION i d").matches('"').count(), 2 * 3500);
    });
}

#[test]
fn rotation_of_one_element_changes_a_watched_list_and_keeps_its_expiry() {
    on_both(|connect| {
        let (mut client, mut other) = (connect(), connect());
        client.expect(&[("RPUSH l a", ":1"), ("EXPIRE l 100", ":1"), ("WATCH l", "+OK")]);
        other.expect(&[("RPOPLPUSH l l", "\"a\""), ("LRANGE l 0 -1", "[\"a\"]")]);
        client.expect(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "nil")]);
        client.expect(&[("EXPIRE l 100 NX", ":0")]);
    });
}

#[test]
fn range_of_bytes_over_different_scores_is_that_of_redis() {
    with_client(|client| {
        client.expect(&[
            ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
            ("ZRANGE z [b [c BYLEX", "[\"b\", \"c\"]"),
            ("ZRANGE z [c (b BYLEX REV", "[\"c\"]"),
            ("ZRANGEBYLEX z - (c", "[\"a\", \"b\"]"),
            ("ZREVRANGEBYLEX z + [c", "[\"d\", \"c\"]"),
            ("ZLEXCOUNT z [b +", ":3"),
            ("ZRANGESTORE y z [b [c BYLEX", ":2"),
            ("ZRANGEBYLEX z [e +", "[]"),
            ("ZREMRANGEBYLEX z [b [c", ":2"),
            ("ZRANGE z 0 -1", "[\"a\", \"d\"]"),
            // It ends before the first member that is not in it.
            ("ZADD x 1 a 2 d 3 b", ":3"),
            ("ZRANGEBYLEX x - [b", "[\"a\"]"),
        ]);
    });
}

#[test]
fn geo_commands_reply_like_redis() {
    with_client(|client| {
        client.expect(&[
            ("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2"),
            ("GEOADD g NX 1 2 Palermo 3 4 x", ":1"),
            ("GEOADD g XX CH 3 5 x", ":1"),
            ("ZREM g x", ":1"),
            ("GEOADD g 181 1 x", "-ERR invalid longitude,latitude pair 181.000000,1.000000"),
            ("GEOADD g 1 1", "-ERR wrong number of arguments for 'geoadd' command"),
            ("GEODIST g Palermo Catania", "\"166274.1516\""),
            ("GEODIST g Palermo Catania km", "\"166.2742\""),
            ("GEODIST g Palermo x", "nil"),
            (
                "GEODIST g Palermo Catania x",
                "-ERR unsupported unit provided. please use M, KM, FT, MI",
            ),
            ("GEOHASH g Palermo Catania x", "[\"sqc8b49rny0\", \"sqdtr74hyu0\", nil]"),
            ("GEOPOS g Palermo x", "[[\"13.36138933897018433\", \"38.11555639549629859\"], nil]"),
            (
                "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHDIST",
                "[[\"Catania\", \"56.4413\"], [\"Palermo\", \"190.4424\"]]",
            ),
            ("GEOSEARCH g FROMLONLAT 15 37 BYBOX 400 400 km DESC", "[\"Palermo\", \"Catania\"]"),
            ("GEOSEARCH g FROMMEMBER Palermo BYRADIUS 200 km COUNT 1", "[\"Palermo\"]"),
            (
                "GEOSEARCH g FROMMEMBER x BYRADIUS 200 km",
                "-ERR could not decode requested zset member",
            ),
            ("GEOSEARCHSTORE s g FROMLONLAT 15 37 BYRADIUS 100 km", ":1"),
            ("ZRANGE s 0 -1 WITHSCORES", "[\"Catania\", \"3479447370796909\"]"),
        ]);
    });
}

#[test]
fn resp3_replies_have_types() {
    with_client(|client| {
        client.call("HELLO 3");
        let mut raw = |command: &str, expected: &str| {
            client.send(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
            let mut bytes = vec![0; expected.len()];
            std::io::Read::read_exact(&mut client.reader, &mut bytes).unwrap();
            assert_eq!(String::from_utf8_lossy(&bytes), expected, "{command}");
        };
        raw("HSET h a 1", ":1\r\n");
        raw("HGETALL h", "%1\r\n$1\r\na\r\n$1\r\n1\r\n");
        raw("HRANDFIELD h 1 WITHVALUES", "*1\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n");
        raw("SADD s a", ":1\r\n");
        raw("SMEMBERS s", "~1\r\n$1\r\na\r\n");
        raw("ZADD z 1.5 a", ":1\r\n");
        raw("ZSCORE z a", ",1.5\r\n");
        raw("ZSCORE z b", "_\r\n");
        raw("ZRANGE z 0 -1 WITHSCORES", "*1\r\n*2\r\n$1\r\na\r\n,1.5\r\n");
        raw("ZPOPMIN z 1", "*1\r\n*2\r\n$1\r\na\r\n,1.5\r\n");
        raw("ZADD z 1 a", ":1\r\n");
        raw("ZPOPMIN z", "*2\r\n$1\r\na\r\n,1\r\n");
        raw("LPOP l 1", "_\r\n");
    });
}
