//! Sorted sets and positions: scores of intersections, options. Where Redis is installed, it
//! validates the tests.

use crate::both_servers::on_both;

#[test]
fn weight_of_zero_and_an_infinite_score_combine_as_in_redis() {
    on_both(|connect| {
        connect().expect(&[
            ("ZADD few 5 m", ":1"),
            ("ZADD many inf m 1 x", ":2"),
            ("ZINTER 2 few many WEIGHTS 1 0 WITHSCORES", "[\"m\", \"0\"]"),
            ("ZINTER 2 few many WEIGHTS 1 0 AGGREGATE MIN WITHSCORES", "[\"m\", \"5\"]"),
            ("ZINTER 2 few many WEIGHTS -1 0 AGGREGATE MAX WITHSCORES", "[\"m\", \"-5\"]"),
            ("ZINTER 2 many few WEIGHTS 0 1 WITHSCORES", "[\"m\", \"0\"]"),
            ("ZINTERSTORE out 2 few many WEIGHTS 1 0", ":1"),
            ("ZSCORE out m", "\"0\""),
            ("ZUNION 2 few many WEIGHTS 1 0 WITHSCORES", "[\"x\", \"0\", \"m\", \"5\"]"),
            (
                "ZUNION 2 few many WEIGHTS 1 0 AGGREGATE MIN WITHSCORES",
                "[\"m\", \"0\", \"x\", \"0\"]",
            ),
        ]);
    });
}

#[test]
fn large_sorted_sets_are_combined_in_parts() {
    on_both(|connect| {
        let mut client = connect();
        for (key, numbers) in [("a", 0..2500), ("b", 1000..4000)] {
            let members: String = numbers.map(|number| format!(" {number} {number}")).collect();
            client.call(&format!("ZADD {key}{members}"));
        }
        client.expect(&[
            ("ZINTERCARD 2 a b", ":1500"),
            ("ZINTERCARD 2 b a LIMIT 1201", ":1201"),
            ("ZINTERSTORE i 2 a b WEIGHTS 1 2", ":1500"),
            ("ZSCORE i 1000", "\"3000\""),
            ("ZDIFFSTORE d 2 a b", ":1000"),
            ("ZRANGE d -1 -1 WITHSCORES", "[\"999\", \"999\"]"),
            ("ZUNIONSTORE u 2 a b AGGREGATE MAX", ":4000"),
            ("ZRANGE u 0 0 REV WITHSCORES", "[\"3999\", \"3999\"]"),
            ("ZDIFF 3 a i d", "[]"),
        ]);
    });
}

#[test]
fn repeated_options_are_accepted_and_refused_as_in_redis() {
    const SYNTAX: &str = "-ERR syntax error";
    on_both(|connect| {
        connect().expect(&[
            ("ZADD z 1 a 1 b", ":2"),
            ("ZRANGE z 0 9 BYSCORE BYLEX", SYNTAX),
            ("ZRANGE z - + BYLEX BYLEX", SYNTAX),
            ("ZRANGE z 0 -1 REV REV", SYNTAX),
            ("ZRANGE z 0 -1 REV", "[\"b\", \"a\"]"),
            ("GEOADD g 13 38 a 14 38 b", ":2"),
            ("GEOSEARCH g FROMMEMBER b FROMMEMBER a BYRADIUS 9 m BYRADIUS 1 km", "[\"a\"]"),
            ("GEOSEARCH g FROMLONLAT 1 1 FROMLONLAT 14 38 BYBOX 1 1 m BYBOX 1 1 km", "[\"b\"]"),
            ("GEOSEARCH g FROMMEMBER a FROMLONLAT 1 1 BYRADIUS 1 km", SYNTAX),
            ("GEOSEARCH g FROMMEMBER a BYBOX 1 1 km BYRADIUS 1 km", SYNTAX),
            ("GEOSEARCH g FROMMEMBER a BYRADIUS 1 km BYBOX 1 1 km", SYNTAX),
            ("SET k v EX 10 EX 100", "+OK"),
            ("TTL k", ":100"),
            ("SET k v EX 10 PX 100", SYNTAX),
            ("SET k v EX 10 KEEPTTL", SYNTAX),
            ("GETEX k EX 10 EX 200", "\"v\""),
            ("TTL k", ":200"),
            ("GETEX k PERSIST EX 10", SYNTAX),
            ("GETEX k EX 10 PERSIST", SYNTAX),
            ("GETEX k EX", SYNTAX),
            ("GETEX k PERSIST PERSIST", "\"v\""),
            ("TTL k", ":-1"),
        ]);
    });
}

#[test]
fn geosearchstore_refuses_options_of_replies_as_redis_does() {
    const REFUSED: &str = "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and \
                           WITHCOORD options";
    on_both(|connect| {
        connect().expect(&[
            ("GEOADD g 13 38 a", ":1"),
            ("GEOSEARCHSTORE out g FROMMEMBER a BYRADIUS 1 km WITHDIST", REFUSED),
            ("GEOSEARCHSTORE out g WITHCOORD WITHHASH ASC ASC ASC", REFUSED),
            ("GEOSEARCHSTORE out g FROMMEMBER a BYRADIUS 1 km WITHDIST x", "-ERR syntax error"),
            ("GEOSEARCHSTORE out g FROMMEMBER a BYRADIUS 1 km STOREDIST", ":1"),
        ]);
    });
}
