//! Commands that remove thousands of adjacent elements at once: their result, and that the memory
//! of requests does not limit them.

use crate::support::{Client, TestServer, encode};
use siltstone_server::ServerOptions;

/// Elements of each collection: many times the number from which on a range is deleted.
const ELEMENTS: u32 = 20_000;

/// Fills a list, a stream and a sorted set with the numbers below [`ELEMENTS`].
fn fill(client: &mut Client) {
    for from in (0..ELEMENTS).step_by(2000) {
        let numbers: Vec<String> = (from..from + 2000).map(|number| number.to_string()).collect();
        let words = |first: [&[u8]; 2], per: &dyn Fn(&String) -> Vec<Vec<u8>>| {
            let rest = numbers.iter().flat_map(per);
            let words: Vec<Vec<u8>> = first.map(<[u8]>::to_vec).into_iter().chain(rest).collect();
            words
        };
        for words in [
            words([b"RPUSH", b"l"], &|number| vec![number.clone().into_bytes()]),
            words([b"ZADD", b"z"], &|number| {
                vec![number.clone().into_bytes(), format!("m{number}").into_bytes()]
            }),
        ] {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            assert!(client.call_bytes(&words).starts_with(':'));
        }
        let adds: Vec<u8> = numbers
            .iter()
            .flat_map(|number| {
                let id = format!("{}-1", number.parse::<u32>().unwrap() + 1);
                encode(&[b"XADD", b"x", id.as_bytes(), b"f", number.as_bytes()])
            })
            .collect();
        client.send_raw(&adds);
        numbers.iter().for_each(|_| assert!(client.read().ends_with("-1\"")));
    }
}

/// Removes most of each collection, by steps that delete ranges at both ends, and compares.
fn remove(client: &mut Client) {
    client.expect(&[
        ("LTRIM l 6000 -1", "+OK"),
        ("LLEN l", ":14000"),
        ("LINDEX l 0", "\"6000\""),
        ("LPUSH l new", ":14001"),
        ("LRANGE l 0 1", "[\"new\", \"6000\"]"),
        ("LTRIM l 0 7000", "+OK"),
        ("LRANGE l -2 -1", "[\"12998\", \"12999\"]"),
        ("RPUSH l last", ":7002"),
        ("LRANGE l -2 -1", "[\"12999\", \"last\"]"),
        ("XTRIM x MAXLEN 9000", ":11000"),
        ("XLEN x", ":9000"),
        ("XRANGE x - + COUNT 1", "[[\"11001-1\", [\"f\", \"11000\"]]]"),
        ("XTRIM x MINID 19999", ":8998"),
        ("XRANGE x - +", "[[\"19999-1\", [\"f\", \"19998\"]], [\"20000-1\", [\"f\", \"19999\"]]]"),
        ("XADD x MAXLEN 2 20001-1 f v", "\"20001-1\""),
        ("XLEN x", ":2"),
        ("ZREMRANGEBYSCORE z 5000 9999", ":5000"),
        ("ZCARD z", ":15000"),
        ("ZRANGE z 4999 5000", "[\"m4999\", \"m10000\"]"),
        ("ZSCORE z m5000", "nil"),
        ("ZREMRANGEBYRANK z 1 -2", ":14998"),
        ("ZRANGE z 0 -1 WITHSCORES", "[\"m0\", \"0\", \"m19999\", \"19999\"]"),
        ("ZSCORE z m19999", "\"19999\""),
        ("ZSCORE z m10000", "nil"),
        ("ZADD z 1 m10000", ":1"),
        ("ZRANGE z 0 -1", "[\"m0\", \"m10000\", \"m19999\"]"),
        ("ZREMRANGEBYLEX none - +", ":0"),
    ]);
    let popped = client.call("LPOP l 6000");
    assert!(popped.starts_with("[\"new\", \"6000\", \"6001\""), "{}", &popped[..60]);
    assert!(popped.ends_with("\"11998\"]"));
    client.expect(&[("LLEN l", ":1002"), ("LRANGE l 0 0", "[\"11999\"]")]);
}

fn small_requests() -> TestServer {
    // The rows of 6,000 deletions would take more.
    let lsm = crate::support::lsm(&[("memtable", "256KiB")]);
    TestServer::over(Some(lsm), |options| options.max_request_bytes = 800 << 10)
}

#[test]
fn large_removals_have_no_limit_and_the_same_result_as_small_ones() {
    let server = small_requests();
    let mut client = server.client();
    fill(&mut client);
    remove(&mut client);
    // The type, the expiry and the watches are those of the key.
    client.expect(&[("DEL l x z", ":3"), ("DBSIZE", ":0"), ("XLEN x", ":0")]);
    fill(&mut client);
    remove(&mut client);
    server.finish().unwrap();
}

#[test]
fn commands_of_a_transaction_and_of_a_script_see_large_removals_before_them() {
    let server = small_requests();
    let mut client = server.client();
    fill(&mut client);
    client.expect(&[
        ("MULTI", "+OK"),
        ("LTRIM l 9000 -1", "+QUEUED"),
        ("LPUSH l a", "+QUEUED"),
        ("LRANGE l 0 1", "+QUEUED"),
        ("LTRIM l 0 1", "+QUEUED"),
        ("LRANGE l 0 -1", "+QUEUED"),
        ("LRANGE l -1 -1", "+QUEUED"),
        ("XTRIM x MAXLEN 5000", "+QUEUED"),
        ("XRANGE x - + COUNT 1", "+QUEUED"),
        ("XREVRANGE x 15001-1 - COUNT 2", "+QUEUED"),
        ("XTRIM x MAXLEN 0", "+QUEUED"),
        ("XREVRANGE x + -", "+QUEUED"),
        ("XADD x 30000-1 f v", "+QUEUED"),
        ("XREVRANGE x + -", "+QUEUED"),
        ("ZREMRANGEBYRANK z 100 5099", "+QUEUED"),
        ("ZRANGE z 99 100", "+QUEUED"),
        ("ZREMRANGEBYRANK z 1 -1", "+QUEUED"),
        ("ZRANGE z 0 -1", "+QUEUED"),
        ("COPY l l2", "+QUEUED"),
        ("RENAME x x2", "+QUEUED"),
    ]);
    let expected = "[+OK, :11001, [\"a\", \"9000\"], +OK, [\"a\", \"9000\"], [\"9000\"], :15000, \
                    [[\"15001-1\", [\"f\", \"15000\"]]], [[\"15001-1\", [\"f\", \"15000\"]]], \
                    :5000, [], \"30000-1\", [[\"30000-1\", [\"f\", \"v\"]]], :5000, \
                    [\"m99\", \"m5100\"], :14999, [\"m0\"], :1, +OK]";
    assert_eq!(client.call("EXEC"), expected);
    client.expect(&[
        ("LRANGE l 0 -1", "[\"a\", \"9000\"]"),
        ("LRANGE l2 0 -1", "[\"a\", \"9000\"]"),
        ("XRANGE x2 - +", "[[\"30000-1\", [\"f\", \"v\"]]]"),
        ("ZRANGE z 0 -1", "[\"m0\"]"),
        ("DEL l l2 x2 z", ":4"),
    ]);
    fill(&mut client);
    let script = b"redis.call('ltrim', 'l', 0, 9) redis.call('xtrim', 'x', 'MAXLEN', 3) \
                   return {redis.call('llen', 'l'), redis.call('lindex', 'l', -1), \
                   #redis.call('xrange', 'x', '-', '+')}";
    let reply = client.call_bytes(&[b"EVAL", script, b"2", b"l", b"x"]);
    assert_eq!(reply, "[:10, \"9\", :3]");
    client.expect(&[("LRANGE l 8 -1", "[\"8\", \"9\"]"), ("XLEN x", ":3")]);
    // What is discarded leaves nothing, and a removal is a change for those that watch.
    let mut other = server.client();
    client.expect(&[
        ("DEL l x z", ":3"),
        ("RPUSH l a", ":1"),
        ("DEL l", ":1"),
        ("MULTI", "+OK"),
        ("LTRIM l 0 0", "+QUEUED"),
        ("DISCARD", "+OK"),
    ]);
    fill(&mut client);
    client.expect(&[("WATCH l", "+OK"), ("MULTI", "+OK"), ("LLEN l", "+QUEUED")]);
    other.expect(&[("LTRIM l 8000 -1", "+OK")]);
    client.expect(&[("EXEC", "nil"), ("LLEN l", ":12000")]);
}

#[test]
fn replicated_table_removes_ranges_before_and_after_they_are_committed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("node");
    let options = || ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        max_request_bytes: 800 << 10,
        ..ServerOptions::default()
    };
    let server = TestServer::replicated_in(&dir, options());
    let mut client = server.client();
    fill(&mut client);
    // In one iteration, so that the removals are not committed when they are read.
    let pipeline: Vec<u8> = [
        "LTRIM l 9000 -1",
        "LPUSH l a",
        "LTRIM l 0 5000",
        "LRANGE l 0 1",
        "LRANGE l -1 -1",
        "XTRIM x MAXLEN 2",
        "XRANGE x - + COUNT 1",
        "ZREMRANGEBYRANK z 1 -2",
        "ZRANGE z 0 -1",
    ]
    .iter()
    .flat_map(|line| encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
    .collect();
    client.send_raw(&pipeline);
    for reply in [
        "+OK",
        ":11001",
        "+OK",
        "[\"a\", \"9000\"]",
        "[\"13999\"]",
        ":19998",
        "[[\"19999-1\", [\"f\", \"19998\"]]]",
        ":19998",
        "[\"m0\", \"m19999\"]",
    ] {
        assert_eq!(client.read(), reply);
    }
    client.expect(&[("DEL l x z", ":3")]);
    fill(&mut client);
    remove(&mut client);
    server.finish().unwrap();
    let server = TestServer::replicated_in(&dir, options());
    server.client().expect(&[
        ("LRANGE l -1 -1", "[\"last\"]"),
        ("LLEN l", ":1002"),
        ("XLEN x", ":2"),
        ("ZRANGE z 0 -1", "[\"m0\", \"m10000\", \"m19999\"]"),
    ]);
    server.finish().unwrap();
}
