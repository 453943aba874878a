//! DUMP and RESTORE: replies, damaged payloads, and round trips with a Redis server, which are
//! skipped where it is not installed.

use crate::support::{Client, Peer, TestServer};
use siltstone_rdb::payload;
use siltstone_testkit::TestRng;

const WRONG_PAYLOAD: &str = "-ERR DUMP payload version or checksum are wrong";
const BAD_DATA: &str = "-ERR Bad data format";
const SYNTAX: &str = "-ERR syntax error";

/// RESTORE with options.
fn restore(client: &mut Client, key: &[u8], ttl: &str, payload: &[u8], options: &str) -> String {
    let mut args = vec![&b"RESTORE"[..], key, ttl.as_bytes(), payload];
    args.extend(options.split_whitespace().map(str::as_bytes));
    client.call_bytes(&args)
}

fn dump(client: &mut Client, key: &[u8]) -> Option<Vec<u8>> {
    client.call_for_bulk(&[b"DUMP", key])
}

/// A payload of a body with the right checksum.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut payload = body.to_vec();
    payload::seal(&mut payload);
    payload
}

#[test]
fn dump_and_restore_reply_like_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(dump(&mut client, b"none"), None);
    assert_eq!(client.call("SET a 5"), "+OK");
    let five = dump(&mut client, b"a").unwrap();
    // Byte for byte as Redis 7.0.15 replies.
    assert_eq!(five[..5], *b"\0\xc0\x05\x0a\0");
    let busy = "-BUSYKEY Target key name already exists.";
    for (key, ttl, payload, options, expected) in [
        ("a", "0", &five[..], "", busy),
        ("a", "x", b"damaged", "", busy),
        ("b", "-1", b"damaged", "", "-ERR Invalid TTL value, must be >= 0"),
        ("b", "x", b"damaged", "", "-ERR value is not an integer or out of range"),
        ("b", "0", b"damaged", "", WRONG_PAYLOAD),
        ("b", "0", &five[..12], "", WRONG_PAYLOAD),
        ("b", "0", b"", "", WRONG_PAYLOAD),
        ("b", "0", &sealed(b""), "", BAD_DATA),
        ("b", "0", &sealed(b"\x02\0"), "", BAD_DATA),
        ("b", "0", &sealed(b"\x02\x02\x01a\x01a"), "", BAD_DATA),
        ("b", "0", &sealed(b"\0\xc0\x05\0"), "", BAD_DATA),
        ("b", "0", &sealed(b"\x02\x80\xff\xff\xff\xff\x01a"), "", BAD_DATA),
        ("b", "0", &five, "IDLETIME -1", "-ERR Invalid IDLETIME value, must be >= 0"),
        ("b", "0", &five, "FREQ 256", "-ERR Invalid FREQ value, must be >= 0 and <= 255"),
        ("b", "0", &five, "FREQ x", "-ERR value is not an integer or out of range"),
        ("b", "0", &five, "FREQ 1 IDLETIME 1", SYNTAX),
        ("b", "0", &five, "IDLETIME 1 FREQ 1", SYNTAX),
        ("b", "0", &five, "IDLETIME", SYNTAX),
        ("b", "0", &five, "FOO", SYNTAX),
        ("b", "0", &five, "FREQ 7", "+OK"),
        ("b", "100000", &five, "replace", "+OK"),
        ("c", "5", &five, "ABSTTL", "+OK"),
        ("d", "99999999999999", &five, "absttl idletime 1", "+OK"),
    ] {
        let reply = restore(&mut client, key.as_bytes(), ttl, payload, options);
        assert_eq!(reply, expected, "{key} {ttl} {} {options}", payload.escape_ascii());
    }
    client.expect(&[
        ("GET b", "\"5\""),
        ("TTL b", ":100"),
        ("EXISTS c", ":0"),
        ("PEXPIRETIME d", ":99999999999999"),
        ("OBJECT ENCODING d", "\"int\""),
    ]);
    // A time in the past removes what was there.
    assert_eq!(restore(&mut client, b"b", "5", &five, "ABSTTL REPLACE"), "+OK");
    assert_eq!(client.call("EXISTS b"), ":0");
    // The old value of another type is replaced as a whole.
    client.expect(&[("RPUSH l a b", ":2"), ("HSET h f v", ":1")]);
    let list = dump(&mut client, b"l").unwrap();
    assert_eq!(restore(&mut client, b"h", "0", &list, "REPLACE"), "+OK");
    assert_eq!(restore(&mut client, b"l", "0", &five, "REPLACE"), "+OK");
    client.expect(&[("LRANGE h 0 -1", "[\"a\", \"b\"]"), ("GET l", "\"5\""), ("DBSIZE", ":4")]);
    let text = restore(&mut client, b"m", "0", &sealed(b"\x07\x81\0\0\0\0\0\0\0\x01\0"), "");
    assert!(text.starts_with("-ERR Bad data format: a value of the module type AAA"), "{text}");
}

#[test]
fn restore_works_in_transactions_and_wakes_waiting_clients() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("RPUSH l a", ":1"), ("CONFIG SET notify-keyspace-events KA", "+OK")]);
    let list = dump(&mut client, b"l").unwrap();
    let mut waiting = server.client();
    waiting.send(&[b"BLPOP", b"k", b"0"]);
    crate::support::eventually("the client waits", || {
        client.call("CLIENT LIST").contains("flags=b")
    });
    let mut listener = server.client();
    listener.call("PSUBSCRIBE __key*:k");
    assert_eq!(client.call("MULTI"), "+OK");
    assert_eq!(restore(&mut client, b"k", "0", &list, ""), "+QUEUED");
    assert_eq!(restore(&mut client, b"k", "0", &list, ""), "+QUEUED");
    let busy = "[+OK, -BUSYKEY Target key name already exists.]";
    assert_eq!(client.call("EXEC"), busy);
    assert_eq!(waiting.read(), "[\"k\", \"a\"]");
    assert_eq!(listener.read(), "[\"pmessage\", \"__key*:k\", \"__keyspace@0__:k\", \"restore\"]");
}

#[test]
fn unordered_table_restores_strings_and_names_itself_for_collections() {
    let server = TestServer::over(Some(crate::support::mica("memory=4MiB")), |_| ());
    let mut client = server.client();
    client.call("SET a text");
    let text = dump(&mut client, b"a").unwrap();
    assert_eq!(restore(&mut client, b"b", "0", &text, ""), "+OK");
    assert_eq!(client.call("GET b"), "\"text\"");
    let reply = restore(&mut client, b"c", "0", &sealed(b"\x01\x01\x01a"), "");
    assert!(reply.contains("which stores only strings"), "{reply}");
}

/// Commands that fill keys of every type and size: `key` and words.
fn commands() -> Vec<Vec<Vec<u8>>> {
    let mut all: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut add = |words: &[&[u8]]| all.push(words.iter().map(|word| word.to_vec()).collect());
    let noise = |seed, len| {
        let mut rng = TestRng::new(seed);
        (0..len).map(|_| rng.below(256) as u8).collect::<Vec<u8>>()
    };
    let numbers = ["0", "-129", "40000", "3000000000", "9223372036854775808", "007", ""];
    for (at, number) in numbers.iter().enumerate() {
        add(&[b"SET", format!("string{at}").as_bytes(), number.as_bytes()]);
    }
    add(&[b"SET", b"string-noise", &noise(1, 300)]);
    add(&[b"SET", b"string-large", &noise(2, 1 << 20)]);
    // Compressed by Redis.
    add(&[b"SET", b"string-repeats", &b"abcabd".repeat(20_000)]);
    add(&[b"PFADD", b"string-hll", b"a", b"b", b"c"]);
    for key in ["list-small", "list-large"] {
        for n in 0..if key == "list-small" { 3 } else { 3000 } {
            add(&[b"RPUSH", key.as_bytes(), (n * n * 1001 - 9_i64).to_string().as_bytes()]);
        }
    }
    for len in [0, 63, 64, 4095, 4096, 9000, 70_000] {
        add(&[b"RPUSH", b"list-long", &noise(len, len), &vec![b'x'; len as usize]]);
    }
    add(&[b"HSET", b"hash-small", b"a", b"1", b"b", b"-70000", b"c", b"text"]);
    add(&[b"HSET", b"hash-long", b"a", &[b'x'; 100]]);
    for n in 0..300 {
        let n = n.to_string();
        add(&[b"HSET", b"hash-large", format!("field{n}").as_bytes(), n.as_bytes()]);
        add(&[b"SADD", b"set-large", format!("member{n}").as_bytes()]);
        add(&[b"ZADD", b"zset-large", format!("{n}.25").as_bytes(), n.as_bytes()]);
    }
    for n in 0..600 {
        add(&[b"SADD", b"set-many-integers", (n * 7).to_string().as_bytes()]);
    }
    add(&[b"SADD", b"set-integers16", b"-3", b"0", b"32767"]);
    add(&[b"SADD", b"set-integers32", b"-3", b"40000", b"-2147483648"]);
    add(&[b"SADD", b"set-integers64", b"-3", b"9223372036854775807"]);
    add(&[b"SADD", b"set-small", b"a", b"", b"17"]);
    add(&[b"ZADD", b"zset-small", b"1", b"a", b"-0.5", b"b", b"inf", b"c", b"-inf", b"17"]);
    add(&[b"ZADD", b"zset-small", b"3.141592653589793", b"pi", b"1e300", b"far", b"0", b"0"]);
    add(&[b"ZADD", b"zset-long", b"17", &[b'x'; 100]]);
    for n in 1..=250 {
        let (id, n) = (format!("{}-{}", 1000 + n / 3, n), n.to_string());
        add(&[b"XADD", b"stream-large", id.as_bytes(), b"name", n.as_bytes(), b"text", b"t"]);
    }
    add(&[b"XDEL", b"stream-large", b"1010-30", b"1010-31"]);
    for id in ["1-18446744073709551615", "2-0", "18446744073709551615-1"] {
        add(&[b"XADD", b"stream-small", id.as_bytes(), id.as_bytes(), b"5"]);
    }
    add(&[b"XADD", b"stream-empty", b"5-5", b"a", b"b"]);
    add(&[b"XDEL", b"stream-empty", b"5-5"]);
    for key in ["stream-large", "stream-small", "stream-empty"] {
        let key = key.as_bytes();
        add(&[b"XGROUP", b"CREATE", key, b"first", b"0"]);
        add(&[b"XGROUP", b"CREATE", key, b"second", b"2-0"]);
        add(&[b"XGROUP", b"CREATECONSUMER", key, b"second", b"idle"]);
        for consumer in ["ann", "bob"] {
            let read: [&[u8]; 6] =
                [b"XREADGROUP", b"GROUP", b"first", consumer.as_bytes(), b"COUNT", b"2"];
            add(&[&read[..], &[b"STREAMS", key, b">"]].concat());
        }
    }
    add(&[b"XACK", b"stream-large", b"first", b"1000-1"]);
    all
}

/// What a client sees of a key; unordered elements are sorted.
fn view(client: &mut Client, key: &str) -> Vec<String> {
    let kind = key.split(['-', '0', '1', '2', '3', '4', '5', '6']).next().unwrap();
    let mut seen = vec![client.call(&format!("TYPE {key}")), client.call(&format!("TTL {key}"))];
    let mut ask = |command: &str| client.call(&command.replace("KEY", key));
    let sorted = |reply: String| {
        let mut parts: Vec<_> = reply.trim_matches(['[', ']']).split(", ").collect();
        parts.sort_unstable();
        parts.join(", ")
    };
    seen.extend(match kind {
        "string" => vec![ask("GET KEY")],
        "list" => vec![ask("LRANGE KEY 0 -1")],
        "hash" => vec![sorted(ask("HGETALL KEY"))],
        "set" => vec![sorted(ask("SMEMBERS KEY"))],
        // Redis 7.0 writes 17 digits of a score, and later versions as many as it needs.
        "zset" => {
            let number = |part: &str| match part.trim_matches('"').parse::<f64>() {
                Ok(number) => number.to_string(),
                Err(_) => part.to_owned(),
            };
            let reply = ask("ZRANGE KEY 0 -1 WITHSCORES");
            reply.trim_matches(['[', ']']).split(", ").map(number).collect()
        }
        _ => {
            let mut info = ask("XINFO STREAM KEY");
            // The nodes of Redis's tree, which we have not.
            let [from, to] = ["\"radix-tree-keys\"", "\"last-generated-id\""];
            let [from, to] = [from, to].map(|word| info.find(word).unwrap());
            info.replace_range(from..to, "");
            vec![
                ask("XRANGE KEY - +"),
                info,
                ask("XINFO GROUPS KEY"),
                ask("XPENDING KEY first"),
                ask("XPENDING KEY second"),
            ]
        }
    });
    // Lists and small sets of text have another encoding since Redis 7.2, and a HyperLogLog has one
    // that depends on how it was made.
    if kind != "list" && !["set-small", "string-hll"].contains(&key) {
        seen.push(ask("OBJECT ENCODING KEY"));
    }
    seen
}

fn redis() -> Option<Peer> {
    let args = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"];
    Peer::start("redis-server", &args)
}

#[test]
fn values_move_to_redis_and_back() {
    let Some(peer) = redis() else { return };
    let server = TestServer::start();
    let (mut redis, mut ours) = (Client::connect(peer.address), server.client());
    let commands = commands();
    let mut keys: Vec<String> = Vec::new();
    for command in &commands {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let reply = redis.call_bytes(&words);
        assert!(!reply.starts_with('-'), "{} {reply}", command[0].escape_ascii());
        let key =
            if words[0] == b"XGROUP" || words[0] == b"XREADGROUP" { continue } else { words[1] };
        keys.push(String::from_utf8(key.to_vec()).unwrap());
    }
    keys.sort_unstable();
    keys.dedup();
    for key in &keys {
        let expected = view(&mut redis, key);
        let theirs = dump(&mut redis, key.as_bytes()).unwrap();
        assert_eq!(restore(&mut ours, key.as_bytes(), "0", &theirs, ""), "+OK", "{key}");
        assert_eq!(view(&mut ours, key), expected, "{key}");
        let back = dump(&mut ours, key.as_bytes()).unwrap();
        assert_eq!(restore(&mut redis, key.as_bytes(), "0", &back, "REPLACE"), "+OK", "{key}");
        assert_eq!(view(&mut redis, key), expected, "{key}");
        // A copy of a copy has the same bytes.
        assert_eq!(restore(&mut ours, key.as_bytes(), "0", &back, "REPLACE"), "+OK", "{key}");
        assert_eq!(dump(&mut ours, key.as_bytes()).unwrap(), back, "{key}");
    }
    // Redis checks every element, too.
    assert_eq!(redis.call("CONFIG SET sanitize-dump-payload yes"), "+OK");
    for key in &keys {
        let back = dump(&mut ours, key.as_bytes()).unwrap();
        assert_eq!(restore(&mut redis, key.as_bytes(), "0", &back, "REPLACE"), "+OK", "{key}");
    }
    println!("{} keys moved", keys.len());
}

#[test]
fn old_encodings_are_restored_as_by_redis() {
    let Some(peer) = redis() else { return };
    let server = TestServer::start();
    let (mut redis, mut ours) = (Client::connect(peer.address), server.client());
    let ziplist = b"\x10\0\0\0\x0d\0\0\0\x02\0\x00\x01a\x03\xf6\xff";
    let ziplist = [&[ziplist.len() as u8][..], ziplist].concat();
    for (key, body) in [
        ("list", &b"\x01\x02\x01a\xc0\x05"[..]),
        ("list", &[b"\x0a", &ziplist[..]].concat()),
        ("list", &[b"\x0e\x02", &ziplist[..], &ziplist].concat()),
        ("list", b"\x12\x02\x01\x01a\x02\x0d\x0d\0\0\0\x02\0\x81b\x02\xc0\x85\x02\xff"),
        ("hash", &[b"\x0d", &ziplist[..]].concat()),
        ("hash", b"\x09\x07\x01\x01a\x01\x00b\xff"),
        ("hash", b"\x04\x01\x01a\xc1\x00\x80"),
        ("set-small", b"\x02\x02\x01a\xc0\x05"),
        ("zset", &[b"\x0c", &ziplist[..]].concat()),
        ("zset", b"\x03\x03\x01a\x031.5\x01b\xfe\x01c\xff"),
        ("zset", b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x3f"),
        ("string", b"\0\xc3\x05\x05\x01ab\x20\x01"),
    ] {
        let payload = sealed(body);
        for client in [&mut redis, &mut ours] {
            let reply = restore(client, key.as_bytes(), "0", &payload, "REPLACE");
            assert_eq!(reply, "+OK", "{}", body.escape_ascii());
        }
        let [theirs, ours] = [&mut redis, &mut ours].map(|client| view(client, key));
        assert_eq!(ours, theirs, "{}", body.escape_ascii());
    }
}

#[test]
fn damaged_payload_leaves_the_server_well() {
    let server = TestServer::start();
    let mut client = server.client();
    let mut keys = Vec::new();
    for command in commands() {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        client.call_bytes(&words);
        if !words[1].ends_with(b"large") && !words[1].starts_with(b"string") {
            keys.push(words[1].to_vec());
        }
    }
    keys.dedup();
    let payloads: Vec<_> = keys.iter().filter_map(|key| dump(&mut client, key)).collect();
    let rounds = std::env::var("SILTSTONE_DAMAGED_PAYLOADS").map_or(2000, |n| n.parse().unwrap());
    let (mut rng, mut restored) = (TestRng::new(7), 0);
    for _ in 0..rounds {
        let payload = &payloads[rng.index(payloads.len())];
        let mut body = payload::verify(payload).unwrap().to_vec();
        for _ in 0..1 + rng.index(3) {
            let at = rng.index(body.len());
            body[at] = rng.below(256) as u8;
        }
        let reply = restore(&mut client, b"k", "0", &sealed(&body), "REPLACE");
        match reply.as_str() {
            "+OK" => {
                restored += 1;
                assert!(dump(&mut client, b"k").is_some());
                assert_eq!(client.call("DEL k"), ":1");
            }
            error => assert!(error.starts_with("-ERR "), "{error}"),
        }
    }
    println!("{restored} of {rounds} damaged payloads are values");
}
