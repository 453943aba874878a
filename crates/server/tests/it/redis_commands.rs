//! Replies of each family of commands equal those of Redis.

use std::time::Duration;

use crate::support::TestServer;
use siltstone::{Clock, Db, DbOptions, SystemClock};

#[test]
fn string_commands_reply_like_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("GET k", "nil"),
        ("SET k v", "+OK"),
        ("GET k", "\"v\""),
        ("set k w NX", "nil"),
        ("SET k w XX", "+OK"),
        ("SET k x GET", "\"w\""),
        ("SET k y NX GET", "\"x\""),
        ("GET k", "\"x\""),
        ("SET k v NX XX", "-ERR syntax error"),
        ("SET k v EX 10 PX 10", "-ERR syntax error"),
        ("SET k v EX 10 KEEPTTL", "-ERR syntax error"),
        ("SET k v EX", "-ERR syntax error"),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET k v EX -1", "-ERR invalid expire time in 'set' command"),
        ("SET k v EX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
        ("SET k v EX ten", "-ERR value is not an integer or out of range"),
        ("SETNX k z", ":0"),
        ("SETNX n z", ":1"),
        ("SETEX e 100 v", "+OK"),
        ("TTL e", ":100"),
        ("SETEX e 0 v", "-ERR invalid expire time in 'setex' command"),
        ("PSETEX e 100000 v", "+OK"),
        ("SET e w KEEPTTL", "+OK"),
        ("TTL e", ":100"),
        ("SET e w", "+OK"),
        ("TTL e", ":-1"),
        ("GETSET k new", "\"x\""),
        ("GETDEL k", "\"new\""),
        ("GETDEL k", "nil"),
        ("MSET a 1 b 2", "+OK"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
        ("MGET a b c", "[\"1\", \"2\", nil]"),
        ("MSETNX c 3 a 9", ":0"),
        ("MSETNX c 3 d 4", ":1"),
        ("MGET a c d", "[\"1\", \"3\", \"4\"]"),
        ("GETEX a EX 100", "\"1\""),
        ("TTL a", ":100"),
        ("GETEX a PERSIST", "\"1\""),
        ("TTL a", ":-1"),
        ("GETEX a EX", "-ERR syntax error"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("GET a b", "-ERR wrong number of arguments for 'get' command"),
        ("NOPE x y", "-ERR unknown command 'NOPE', with args beginning with: 'x' 'y' "),
    ]);
}

#[test]
fn number_and_range_commands_reply_like_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("INCR n", ":1"),
        ("INCRBY n 41", ":42"),
        ("DECR n", ":41"),
        ("DECRBY n 40", ":1"),
        ("SET n 9223372036854775807", "+OK"),
        ("INCR n", "-ERR increment or decrement would overflow"),
        ("INCRBY n x", "-ERR value is not an integer or out of range"),
        ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
        ("SET n 01", "+OK"),
        ("INCR n", "-ERR value is not an integer or out of range"),
        ("SET f 10.50", "+OK"),
        ("INCRBYFLOAT f 0.1", "\"10.6\""),
        ("INCRBYFLOAT f -5", "\"5.6\""),
        ("INCRBYFLOAT f 5.0e3", "\"5005.6\""),
        ("INCRBYFLOAT f x", "-ERR value is not a valid float"),
        ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity"),
        ("SETEX t 100 1", "+OK"),
        ("INCR t", ":2"),
        ("TTL t", ":100"),
        ("APPEND s Hello", ":5"),
        ("APPEND s World", ":10"),
        ("STRLEN s", ":10"),
        ("STRLEN none", ":0"),
        ("GETRANGE s 0 4", "\"Hello\""),
        ("GETRANGE s -5 -1", "\"World\""),
        ("SUBSTR s 0 -1", "\"HelloWorld\""),
        ("SETRANGE s 5 -There", ":11"),
        ("GET s", "\"Hello-There\""),
        ("SETRANGE none 0 ", ":0"),
        ("EXISTS none", ":0"),
        ("SETRANGE pad 2 x", ":3"),
        ("STRLEN pad", ":3"),
        ("SETRANGE s -1 x", "-ERR offset is out of range"),
        (
            "SETRANGE s 4294967295 x",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
        (
            "SETRANGE s 9223372036854775807 x",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
    ]);
}

#[test]
fn key_commands_reply_like_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("MSET a 1 b 2 c 3", "+OK"),
        ("EXISTS a b none a", ":3"),
        ("TOUCH a none", ":1"),
        ("DEL a none a", ":1"),
        ("UNLINK b", ":1"),
        ("TYPE c", "+string"),
        ("TYPE none", "+none"),
        ("RENAME none x", "-ERR no such key"),
        ("RENAME c d", "+OK"),
        ("GET d", "\"3\""),
        ("EXISTS c", ":0"),
        ("SET e 5 EX 100", "+OK"),
        ("RENAMENX d e", ":0"),
        ("RENAME e d", "+OK"),
        ("TTL d", ":100"),
        ("COPY d f", ":1"),
        ("TTL f", ":100"),
        ("COPY d f", ":0"),
        ("COPY d f REPLACE", ":1"),
        ("COPY none f REPLACE", ":0"),
        ("COPY d d", "-ERR source and destination objects are the same"),
        ("COPY d d DB 1", ":1"),
        ("COPY d d DB 7", "-ERR DB index is out of range"),
        ("SELECT 1", "+OK"),
        ("GET d", "\"5\""),
        ("DBSIZE", ":1"),
        ("SELECT 2", "-ERR DB index is out of range"),
        ("SELECT x", "-ERR value is not an integer or out of range"),
        ("SELECT 0", "+OK"),
        ("OBJECT ENCODING d", "\"int\""),
        ("OBJECT ENCODING none", "nil"),
        ("FLUSHALL", "+OK"),
        ("DBSIZE", ":0"),
    ]);
    let (longest, long) = (vec![b'k'; 65_536], vec![b'k'; 65_537]);
    assert_eq!(client.call_bytes(&[b"SET", &longest, b"x"]), "+OK");
    assert_eq!(client.call_bytes(&[b"DEL", &longest]), ":1");
    let error = "-ERR key of 65537 bytes is over the limit of 65536 bytes";
    for command in [&[b"SET", &long[..], b"x"][..], &[b"GET", &long]] {
        assert_eq!(client.call_bytes(command), error);
    }
    let any: Vec<u8> = (0..=255).collect();
    assert_eq!(client.call_bytes(&[b"SET", &any, &any]), "+OK");
    assert_eq!(client.call_bytes(&[b"STRLEN", &any]), ":256");
}

#[test]
fn expiry_commands_reply_like_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("TTL k", ":-2"),
        ("EXPIRE k 100", ":0"),
        ("SET k v", "+OK"),
        ("TTL k", ":-1"),
        ("PTTL k", ":-1"),
        ("EXPIRETIME k", ":-1"),
        ("EXPIRE k 100 GT", ":0"),
        ("EXPIRE k 100 XX", ":0"),
        ("EXPIRE k 100 NX", ":1"),
        ("EXPIRE k 50 GT", ":0"),
        ("EXPIRE k 50 LT", ":1"),
        ("TTL k", ":50"),
        ("PERSIST k", ":1"),
        ("PERSIST k", ":0"),
        ("EXPIREAT k 4102444800", ":1"),
        ("EXPIRETIME k", ":4102444800"),
        ("PEXPIREAT k 4102444800001", ":1"),
        ("PEXPIRETIME k", ":4102444800001"),
        ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
        ("EXPIRE k 10 GT LT", "-ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE k 10 ZZ", "-ERR Unsupported option ZZ"),
        ("EXPIRE k -1", ":1"),
        ("EXISTS k", ":0"),
        ("SET k v PX 30", "+OK"),
    ]);
    crate::support::eventually("expired", || client.call("GET k") == "nil");
    client.expect(&[("TTL k", ":-2"), ("SETNX k w", ":1"), ("TTL k", ":-1")]);
}

/// An empty word of a command is the empty key.
#[test]
fn empty_key_is_a_key_like_any_other() {
    for name in ["lsm", "trie", "silt", "mica", "skimpy"] {
        let options = if name == "mica" { &[("memory", "32MiB")][..] } else { &[] };
        let server = TestServer::over(Some(engine(name, options)), |_| ());
        let mut client = server.client();
        client.expect(&[
            ("GET ", "nil"),
            ("EXISTS ", ":0"),
            ("SET  v", "+OK"),
            ("GET ", "\"v\""),
            ("APPEND  w", ":2"),
            ("STRLEN ", ":2"),
            ("MGET  a", "[\"vw\", nil]"),
            ("RANDOMKEY", "\"\""),
            ("EXPIRE  100", ":1"),
            ("TTL ", ":100"),
            ("PERSIST ", ":1"),
            ("RENAME  a", "+OK"),
            ("EXISTS ", ":0"),
            ("COPY a ", ":1"),
            ("WATCH ", "+OK"),
            ("MULTI", "+OK"),
            ("SET  1", "+QUEUED"),
            ("INCR ", "+QUEUED"),
            ("EXISTS  a", "+QUEUED"),
            ("EXEC", "[+OK, :2, :2]"),
            ("SET  5 NX", "nil"),
            ("SET b 1", "+OK"),
            ("DBSIZE", ":3"),
            ("DEL ", ":1"),
            ("DEL ", ":0"),
            ("GET ", "nil"),
            ("SET  v", "+OK"),
        ]);
        let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
        loop {
            let reply = client.call(&format!("SCAN {cursor} COUNT 1"));
            let (next, keys) = reply[1..reply.len() - 1].split_once(", [").expect("two elements");
            let keys = keys.trim_end_matches(']').split(", ").filter(|key| !key.is_empty());
            seen.extend(keys.map(str::to_owned));
            cursor = next.trim_matches('"').to_owned();
            if cursor == "0" {
                break;
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, ["\"\"", "\"a\"", "\"b\""], "{name}");
    }
}

/// An unordered engine with small stores, so that conversions and merges happen during the test.
fn unordered(name: &str, options: [(&str, &str); 3]) -> TestServer {
    TestServer::over(Some(engine(name, &options)), |_| ())
}

/// An engine in memory.
fn engine(name: &str, options: &[(&str, &str)]) -> std::sync::Arc<dyn siltstone::Engine> {
    let options =
        options.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let vfs = std::sync::Arc::new(siltstone_vfs::Ram::new());
    let env = siltstone::Env::system(1);
    siltstone::engines::open(name, vfs, &env, &options).expect("opens in memory")
}

#[test]
fn scan_of_silt_returns_every_key() {
    check_unordered_scan("silt", [("slots", "64"), ("hash_stores", "3"), ("stop", "8")]);
}

#[test]
fn scan_of_trie_returns_every_key() {
    check_unordered_scan("trie", [("table", "2KiB"), ("bucket", "256"), ("levels", "3")]);
}

fn check_unordered_scan(name: &str, options: [(&str, &str); 3]) {
    let server = unordered(name, options);
    let mut client = server.client();
    for i in 0..2000 {
        client.call(&format!("SET key:{i:04} v"));
    }
    client.call("MSET other:1 v other:2 v");
    for (options, expected) in
        [("", 2002), (" COUNT 7", 2002), (" COUNT 5000", 2002), (" MATCH key:00* COUNT 90", 100)]
    {
        let (mut cursor, mut seen) = ("0".to_owned(), std::collections::BTreeSet::new());
        for round in 0.. {
            let reply = client.call(&format!("SCAN {cursor}{options}"));
            let (next, keys) =
                reply[1..reply.len() - 1].split_once(", [").expect("a cursor and keys");
            let keys = keys.trim_end_matches(']').split(", ").filter(|key| !key.is_empty());
            seen.extend(keys.map(str::to_owned));
            cursor = next.trim_matches('"').to_owned();
            if cursor == "0" {
                break;
            }
            // Overwritten keys remain.
            client.call(&format!("SET key:{:04} w", round * 37 % 2000));
        }
        assert_eq!(seen.len(), expected, "{options}");
    }
    assert!(client.call("RANDOMKEY").starts_with('"'));
    client.expect(&[
        ("KEYS other:1", "[\"other:1\"]"),
        ("DBSIZE", ":2002"),
        ("FLUSHDB", "+OK"),
        ("RANDOMKEY", "nil"),
        // Few keys, so that no SCAN ends early because of its time.
        ("MSET key:1 v key:2 v other:1 v other:2 v", "+OK"),
        ("SCAN 0 MATCH none* COUNT 5000", "[\"0\", []]"),
        // A transaction sees its own writes, after the other keys.
        ("MULTI", "+OK"),
        ("DEL other:1", "+QUEUED"),
        ("SET other:3 v", "+QUEUED"),
        ("SCAN 0 COUNT 5000 MATCH other:*", "+QUEUED"),
        ("EXEC", "[:1, +OK, [\"0\", [\"other:2\", \"other:3\"]]]"),
    ]);
}

#[test]
fn ordered_scan_returns_every_key_once() {
    let server = TestServer::start();
    let mut client = server.client();
    for i in 0..500 {
        client.call(&format!("SET key:{i:04} v"));
    }
    client.call("MSET other:1 v other:2 v");
    for (options, expected) in
        [("", 502), (" COUNT 7", 502), (" COUNT 1000", 502), (" MATCH key:00* COUNT 3", 100)]
    {
        let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
        loop {
            client.send(
                &format!("SCAN {cursor}{options}")
                    .split(' ')
                    .map(str::as_bytes)
                    .collect::<Vec<_>>(),
            );
            let reply = client.read();
            let (next, keys) = reply[1..reply.len() - 1].split_once(", [").unwrap();
            seen.extend(
                keys.trim_end_matches(']').split(", ").filter(|k| !k.is_empty()).map(str::to_owned),
            );
            cursor = next.trim_matches('"').to_owned();
            if cursor == "0" {
                break;
            }
            // Concurrent inserts and deletes do not affect other keys.
            client.call("DEL key:none");
            client.call("SET passing v");
            client.call("DEL passing");
        }
        assert!(seen.is_sorted_by(|a, b| a < b), "{options}: twice or out of order");
        assert_eq!(seen.len(), expected, "{options}");
    }
    client.expect(&[
        ("SCAN 0 MATCH none*", "[\"0\", []]"),
        ("SCAN 0 TYPE hash", "[\"0\", []]"),
        ("SCAN 0 COUNT 0", "-ERR syntax error"),
        ("SCAN x", "-ERR invalid cursor"),
        ("KEYS other:?", "[\"other:1\", \"other:2\"]"),
        ("KEYS key:000[13]", "[\"key:0001\", \"key:0003\"]"),
        ("DBSIZE", ":502"),
    ]);
    assert_ne!(client.call("RANDOMKEY"), "nil");
    assert_eq!(client.call("FLUSHDB ASYNC"), "+OK");
    assert_eq!(client.call("RANDOMKEY"), "nil");
}

#[test]
fn connection_and_server_commands_reply_like_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("PING", "+PONG"),
        ("PING hi", "\"hi\""),
        ("ECHO hi", "\"hi\""),
        ("CLIENT GETNAME", "nil"),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "\"me\""),
        ("CLIENT SETINFO lib-name test", "+OK"),
        ("CLIENT NO-EVICT on", "+OK"),
        ("CONFIG GET save", "[\"save\", \"\"]"),
        ("CONFIG GET databases", "[\"databases\", \"2\"]"),
        ("COMMAND INFO nope", "[nil]"),
        ("COMMAND GETKEYS MSET a 1 b 2", "[\"a\", \"b\"]"),
        ("WAIT 0 0", ":0"),
        ("CONFIG SET slowlog-log-slower-than -1", "+OK"),
        ("SLOWLOG RESET", "+OK"),
        ("SLOWLOG GET", "[]"),
        ("SLOWLOG LEN", ":0"),
        (
            "AUTH x",
            "-ERR AUTH <password> called without any password configured for the default \
                    user. Are you sure your configuration is correct?",
        ),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
    ]);
    assert!(client.call("CONFIG SET save x").ends_with("can't set immutable config"));
    assert!(
        client
            .call("CONFIG SET access crew")
            .ends_with("is not a mica table and has no access mode")
    );
    client.expect(&[("CONFIG GET access", "[]")]);
    assert!(client.call("DEBUG SLEEP 10").starts_with("-ERR DEBUG"));
    assert!(client.call("CLIENT LIST").contains("name=me"));
    assert!(client.call("CLIENT INFO").contains("lib-name=test"));
    assert!(client.call("INFO").contains("table0:name=first,engine=map"));
    assert!(client.call("INFO keyspace").starts_with("\"# Keyspace"));
    assert!(client.call("COMMAND DOCS get").contains("summary"));
    assert!(client.call("COMMAND").contains("\"getdel\""));
    assert!(client.call("LOLWUT").contains("Siltstone"));
    // RESP3 has its own null; replies may be switched off.
    assert!(client.call("HELLO 3").contains("\"proto\", :3"));
    client.send(&[b"GET", b"none"]);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut client.reader, &mut line).unwrap();
    assert_eq!(line, "_\r\n");
    client.send(&[b"CLIENT", b"REPLY", b"OFF"]);
    client.send(&[b"SET", b"quiet", b"1"]);
    client.expect(&[("CLIENT REPLY ON", "+OK"), ("GET quiet", "\"1\"")]);
    client.send(&[b"CLIENT", b"REPLY", b"SKIP"]);
    client.send(&[b"SET", b"quiet", b"2"]);
    client.expect(&[("GET quiet", "\"2\""), ("RESET", "+RESET"), ("CLIENT GETNAME", "nil")]);
    // Each SKIP applies to the next command, and does not end OFF.
    client.send_raw(b"CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nSET quiet 3\r\n");
    client.expect(&[("GET quiet", "\"3\"")]);
    client.send_raw(b"CLIENT REPLY OFF\r\nCLIENT REPLY SKIP\r\nGET quiet\r\nGET quiet\r\n");
    client.expect(&[("CLIENT REPLY ON", "+OK"), ("GET quiet", "\"3\"")]);
    client.send_raw(b"CLIENT REPLY SKIP\r\n");
    client.expect(&[("CLIENT REPLY ON", "+OK")]);
    let mut other = server.client();
    let id: u64 = other.call("CLIENT ID")[1..].parse().unwrap();
    assert_eq!(client.call(&format!("CLIENT KILL ID {id}")), ":1");
    assert!(other.is_closed());
    assert_eq!(client.call("QUIT"), "+OK");
    assert!(client.is_closed());
}

#[test]
fn getat_returns_historical_values() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(directory.path().join("db"), DbOptions::default()).unwrap();
    let options = [("retention", "1h"), ("capacity", "64MiB")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let prices = db.table_or_create("prices", "skimpy", &options.into_iter().collect()).unwrap();
    let server = TestServer::over(Some(prices.engine().clone()), |_| ());
    let mut client = server.client();
    client.expect(&[("SET price 100", "+OK"), ("SET price 110", "+OK")]);
    std::thread::sleep(Duration::from_millis(30));
    let between = SystemClock.now() - 10;
    client.expect(&[("SET price 120", "+OK"), ("GET price", "\"120\"")]);
    assert_eq!(client.call(&format!("GETAT price {between}")), "\"110\"");
    assert_eq!(client.call(&format!("GETAT other {between}")), "nil");
    assert_eq!(client.call("GETAT price -30m"), "nil");
    assert_eq!(client.call("DEL price"), ":1");
    assert_eq!(client.call(&format!("GETAT price {between}")), "\"110\"");
    let then = format!("GETAT price {between}");
    client.expect(&[
        ("MULTI", "+OK"),
        ("SET price 130", "+QUEUED"),
        (&then, "+QUEUED"),
        ("EXEC", "[+OK, \"110\"]"),
        (
            "GETAT price soon",
            "-ERR 'soon' is not a time; give milliseconds since 1970, or -10s for ten seconds ago",
        ),
        ("GETAT price", "-ERR wrong number of arguments for 'getat' command"),
    ]);
    assert_eq!(client.call("GETAT price 5"), "nil", "nothing was there then, and nothing is gone");
    let late = client.call(&format!("GETAT price {}", SystemClock.now() + 60_000));
    assert!(late.contains("is in the future"), "{late}");
    client.expect(&[
        ("SELECT 1", "+OK"),
        ("GETAT price 5", "-ERR the map engine does not support reads at a time in the past"),
    ]);
}
