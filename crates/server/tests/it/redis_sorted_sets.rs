//! Scores of intersections, and options of searches of positions. Where Redis is installed, it
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
