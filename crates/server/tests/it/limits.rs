//! Limits of clients: memory, connections, timeouts, passwords.

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::support::{Client, TestServer, encode, eventually};
use siltstone::{Error, Table};
use siltstone_server::{Server, ServerOptions};

#[test]
fn thousands_of_pipelined_commands_are_answered() {
    let server = TestServer::start();
    let mut client = server.client();
    let mut bytes = Vec::new();
    for i in 0..10_000 {
        let (key, value) = (format!("k{i}"), format!("v{i}"));
        bytes.extend(encode(&[b"SET", key.as_bytes(), value.as_bytes()]));
        bytes.extend(encode(&[b"GET", key.as_bytes()]));
        bytes.extend(encode(&[b"INCR", b"count"]));
    }
    let mut writer = client.stream().try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
    for i in 0..10_000 {
        assert_eq!(client.read(), "+OK");
        assert_eq!(client.read(), format!("\"v{i}\""));
        assert_eq!(client.read(), format!(":{}", i + 1));
    }
    sending.join().unwrap();
}

#[test]
fn pipelined_sets_share_a_write() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send_raw(&encode(&[b"SET", b"k", b"v"]).repeat(1000));
    for _ in 0..1000 {
        assert_eq!(client.read(), "+OK");
    }
    let writes = server.engine.writes.load(std::sync::atomic::Ordering::SeqCst);
    assert!(writes < 100, "{writes} writes");
}

#[test]
fn client_that_does_not_read_is_throttled_and_disconnected() {
    let server = TestServer::with(|options| {
        options.max_output_bytes = 1 << 20;
        options.stall_timeout = Duration::from_millis(500);
    });
    let mut client = server.client();
    client.call_bytes(&[b"SET", b"k", &[b'x'; 100_000]]);
    let mut writer = client.stream().try_clone().unwrap();
    writer.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let gets = encode(&[b"GET", b"k"]).repeat(100);
    let cut_off = (0..10_000).any(|_| writer.write_all(&gets).is_err());
    assert!(cut_off);
    assert_eq!(server.client().call("PING"), "+PONG");
}

/// A request for a large value is a few bytes. If more requests were read with each reply, a client
/// that reads all replies could fill the server's memory with requests.
#[test]
fn requests_are_not_read_while_large_replies_are_pending() {
    let server = TestServer::with(|options| options.max_output_bytes = 256 << 10);
    let mut client = server.client();
    client.call_bytes(&[b"SET", b"k", &[b'x'; 100_000]]);
    let mut writer = client.stream().try_clone().unwrap();
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let _sending = scope.spawn(|| {
            let gets = encode(&[b"GET", b"k"]).repeat(3000);
            while writer.write_all(&gets).is_ok() {
                sent.fetch_add(gets.len(), Relaxed);
            }
        });
        for _ in 0..1000 {
            assert_eq!(client.read().len(), 100_002);
        }
        let sent = sent.load(Relaxed);
        client.stream().shutdown(Shutdown::Both).unwrap();
        // The sockets in between buffer some.
        assert!(sent < 24 << 20, "{sent} bytes were taken in for 1000 answers");
    });
}

#[test]
fn flushall_uses_bounded_batches() {
    let server = TestServer::start();
    let mut client = server.client();
    for number in 0..100u32 {
        let mut key = vec![b'k'; 64 << 10];
        key[..4].copy_from_slice(&number.to_le_bytes());
        assert_eq!(client.call_bytes(&[b"SET", &key, b"v"]), "+OK");
    }
    let before = server.engine.writes.load(Relaxed);
    client.expect(&[("FLUSHDB", "+OK"), ("DBSIZE", ":0")]);
    let writes = server.engine.writes.load(Relaxed) - before;
    assert!((5..=10).contains(&writes), "{writes} writes for 6 MiB");
}

#[test]
fn reply_above_the_limit_is_an_error_on_an_open_connection() {
    let server = TestServer::with(|options| options.max_output_bytes = 64 << 10);
    let mut client = server.client();
    assert_eq!(client.call_bytes(&[b"SET", b"k", &[b'x'; 40_000]]), "+OK");
    assert_eq!(client.call("STRLEN k"), ":40000");
    // After SETs with pending replies, which keep theirs.
    client.send_raw(&[encode(&[b"SET", b"a", b"1"]), encode(&[b"MGET", b"k", b"k"])].concat());
    assert_eq!(client.read(), "+OK");
    let reply = client.read();
    assert!(reply.starts_with("-ERR the reply exceeds the limit of 65536 bytes"), "{reply}");
    assert_eq!(client.call("GET a"), "\"1\"");
    assert_eq!(client.call("GET k").len(), 40_002);
}

/// A random selection with repetitions is as long as the client says.
#[test]
fn selection_above_the_limit_of_replies_is_an_error_whatever_its_count() {
    let server = TestServer::with(|options| options.max_output_bytes = 64 << 10);
    let mut client = server.client();
    let value = vec![b'x'; 30_000];
    client.expect(&[("SADD set a", ":1"), ("ZADD zset 1 a", ":1")]);
    assert_eq!(client.call_bytes(&[b"HSET", b"hash", b"a", &value]), ":1");
    for command in ["SRANDMEMBER set", "ZRANDMEMBER zset", "HRANDFIELD hash"] {
        for count in ["-9223372036854775807", "-1000000000", "-10000"] {
            let reply = client.call(&format!("{command} {count}"));
            assert!(reply.starts_with("-ERR the reply exceeds the limit"), "{command}: {reply}");
        }
        let fitting = client.call(&format!("{command} -5000"));
        assert_eq!(fitting.matches("\"a\"").count(), 5000, "{command}");
    }
    let reply = client.call("HRANDFIELD hash -3 WITHVALUES");
    assert!(reply.starts_with("-ERR the reply exceeds the limit"), "{}", reply.len());
}

#[test]
fn what_a_command_removes_is_not_lost_with_a_reply_that_is_too_large() {
    let server = TestServer::with(|options| options.max_output_bytes = 64 << 10);
    let mut client = server.client();
    for number in 0..4u8 {
        let element = [vec![b'x'; 20_000], vec![b'0' + number]].concat();
        assert_eq!(client.call_bytes(&[b"RPUSH", b"list", &element]), format!(":{}", number + 1));
        assert_eq!(client.call_bytes(&[b"SADD", b"set", &element]), ":1");
        assert_eq!(client.call_bytes(&[b"ZADD", b"zset", b"1", &element]), ":1");
        client.call_bytes(&[b"XADD", b"stream", b"*", b"f", &element]);
    }
    client.expect(&[("XGROUP CREATE stream g 0", "+OK")]);
    for command in [
        "LPOP list 4",
        "RPOP list 1000000",
        "LMPOP 1 list LEFT COUNT 4",
        "BLMPOP 0 1 list LEFT COUNT 4",
        "SPOP set 4",
        "SPOP set 3",
        "ZPOPMIN zset 4",
        "ZPOPMAX zset 4",
        "ZMPOP 1 zset MIN COUNT 4",
        "BZMPOP 0 1 zset MIN COUNT 4",
    ] {
        let reply = client.call(command);
        assert!(reply.starts_with("-ERR the reply exceeds the limit"), "{command}: {reply}");
        client.expect(&[("LLEN list", ":4"), ("SCARD set", ":4"), ("ZCARD zset", ":4")]);
    }
    for command in ["LPOP list 2", "RPOP list 2", "SPOP set 2", "ZPOPMIN zset 2", "ZPOPMAX zset 2"]
    {
        let reply = client.call(command);
        assert!(reply.len() > 40_000, "{command}: {reply}");
    }
    client.expect(&[("LLEN list", ":0"), ("SCARD set", ":2"), ("ZCARD zset", ":0")]);
    // Entries are delivered as far as they fit, in any case.
    client.expect(&[("XGROUP CREATE stream h 0", "+OK")]);
    for command in
        ["XREADGROUP GROUP g c NOACK STREAMS stream >", "XREADGROUP GROUP h c STREAMS stream >"]
    {
        for _ in 0..2 {
            let reply = client.call(command);
            assert_eq!(reply.matches("\"f\"").count(), 2, "{command}: {}", reply.len());
        }
        client.expect(&[(command, "nil")]);
    }
    let history = client.call("XREADGROUP GROUP h c STREAMS stream 0");
    assert_eq!(history.matches("\"f\"").count(), 2, "{}", history.len());
    assert!(client.call("XPENDING stream h").starts_with("[:4, "));
}

/// A request of a few bytes per value must not make the server collect values without end.
#[test]
fn values_that_a_command_names_many_times_are_not_collected_beyond_the_limit() {
    let server = TestServer::with(|options| options.max_output_bytes = 64 << 10);
    let mut client = server.client();
    let value = [b'x'; 20_000];
    client.expect(&[("RPUSH list x", ":1"), ("XGROUP CREATE stream g 0 MKSTREAM", "+OK")]);
    assert_eq!(client.call_bytes(&[b"SET", b"kx", &value]), "+OK");
    assert_eq!(client.call_bytes(&[b"HSET", b"hash", b"f", &value]), ":1");
    assert_eq!(client.call_bytes(&[b"XADD", b"stream", b"1-1", b"f", &value]), "\"1-1\"");
    let many = |head: &[&'static [u8]], part: &[&'static [u8]]| {
        let parts = std::iter::repeat_n(part, 300_000).flatten();
        head.iter().chain(parts).copied().collect::<Vec<&[u8]>>()
    };
    for request in [
        many(&[b"HMGET", b"hash"], &[b"f"]),
        many(&[b"SORT", b"list", b"BY", b"nosort"], &[b"GET", b"k*"]),
        many(&[b"XCLAIM", b"stream", b"g", b"c", b"0"], &[b"1-1"]),
    ] {
        let reply = match request[0] {
            b"XCLAIM" => client.call_bytes(&[&request[..], &[&b"FORCE"[..]]].concat()),
            _ => client.call_bytes(&request),
        };
        assert!(reply.starts_with("-ERR the reply exceeds the limit"), "{reply}");
    }
    client.expect(&[("XPENDING stream g", "[:0, nil, nil, nil]")]);
}

/// Each prefix was once compared with each other one.
#[test]
fn prefixes_of_a_tracking_client_are_limited_and_do_not_delay_others() {
    let server = TestServer::with(|options| options.max_request_bytes = 16 << 20);
    let (mut client, mut other) = (server.client(), server.client());
    client.call("HELLO 3");
    let track = |client: &mut Client, numbers: std::ops::Range<u32>| {
        let prefixes: Vec<_> = numbers.map(|number| format!("{number:06}:")).collect();
        let mut words: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON", b"BCAST"];
        words.extend(prefixes.iter().flat_map(|prefix| [&b"PREFIX"[..], prefix.as_bytes()]));
        client.call_bytes(&words)
    };
    assert_eq!(track(&mut client, 0..100_000), "+OK");
    other.expect(&[("SET 077777:a v", "+OK"), ("SET other v", "+OK"), ("SET 1 v", "+OK")]);
    assert_eq!(client.read(), "[\"invalidate\", [\"077777:a\"]]");
    let reply = track(&mut client, 100_000..200_000);
    assert!(reply.starts_with("-ERR the prefixes exceed the request limit"), "{reply}");
    assert_eq!(track(&mut client, 100_000..100_001), "+OK");
}

#[test]
fn value_too_large_for_a_reply_is_rejected_with_the_limit() {
    let server = TestServer::with(|options| options.max_output_bytes = 64 << 10);
    let mut client = server.client();
    assert_eq!(client.call("SET k old"), "+OK");
    let large = vec![b'x'; 60_000];
    let half = vec![b'x'; 30_000];
    for request in [
        &[&b"SET"[..], b"k", &large][..],
        &[b"SET", b"k", &large, b"KEEPTTL"],
        &[b"MSET", b"k", &large, b"l", b"1"],
        &[b"GETSET", b"k", &large],
        &[b"APPEND", b"k", &large],
        &[b"SETRANGE", b"k", b"55000", b"x"],
    ] {
        let reply = client.call_bytes(request);
        let names_limit = reply.contains("limit") || reply.contains("proto-max-bulk-len");
        assert!(reply.starts_with("-ERR") && names_limit, "{reply}");
        assert_eq!(client.call("GET k"), "\"old\"");
    }
    assert_eq!(client.call("EXISTS l"), ":0");
    assert_eq!(client.call_bytes(&[b"SET", b"k", &half]), "+OK");
    assert!(client.call_bytes(&[b"APPEND", b"k", &half]).starts_with("-ERR"));
    assert_eq!(client.call("STRLEN k"), ":30000");
    // The largest accepted value is returned.
    let limit = (0..)
        .map(|i| 49_152 - i)
        .find(|&bytes| client.call_bytes(&[b"SET", b"k", &vec![b'y'; bytes]]) == "+OK");
    let limit = limit.unwrap();
    assert!(limit > 48_000, "{limit}");
    assert_eq!(client.call("GET k").len(), limit + 2);
}

#[test]
fn incomplete_request_and_idle_client_time_out() {
    let server = TestServer::with(|options| {
        options.stall_timeout = Duration::from_millis(300);
        options.idle_timeout = Some(Duration::from_millis(2500));
    });
    for half in [&b"*2\r\n$3\r\nGET\r\n"[..], b"GET half", b"*"] {
        let mut client = server.client();
        client.send_raw(half);
        assert!(client.is_closed());
    }
    let mut silent = server.client();
    assert_eq!(silent.call("PING"), "+PONG");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(silent.call("PING"), "+PONG");
    assert!(silent.is_closed());
}

#[test]
fn request_may_arrive_bytewise_and_end_with_a_half_close() {
    let server = TestServer::start();
    let mut client = server.client();
    for byte in encode(&[b"SET", b"slow", b"value"]) {
        client.send_raw(&[byte]);
    }
    assert_eq!(client.read(), "+OK");
    // Half-closed: received requests are answered.
    client.send_raw(b"GET slow\r\nPING\r\nGET sl");
    client.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(), "\"value\"");
    assert_eq!(client.read(), "+PONG");
    assert_eq!(client.try_read(), None);
}

#[test]
fn client_above_the_limit_gets_an_error() {
    let server = TestServer::with(|options| options.max_clients = 2);
    let mut first = server.client();
    let mut second = server.client();
    assert_eq!(first.call("PING"), "+PONG");
    assert_eq!(second.call("PING"), "+PONG");
    let mut third = server.client();
    assert_eq!(third.read(), "-ERR max number of clients reached");
    assert_eq!(third.try_read(), None);
    drop(first);
    eventually("a free place", || {
        let mut client = server.client();
        client.send_raw(b"PING\r\n");
        client.try_read().as_deref() == Some("+PONG")
    });
}

#[test]
fn requests_up_to_the_limit_are_accepted() {
    let server = TestServer::with(|options| options.max_request_bytes = 10 << 20);
    let mut client = server.client();
    let value = vec![b'v'; 9 << 20];
    assert_eq!(client.call_bytes(&[b"SET", b"large", &value]), "+OK");
    assert_eq!(client.call("STRLEN large"), format!(":{}", value.len()));
    let header = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", 10 << 20);
    client.send_raw(header.as_bytes());
    assert!(client.read().contains("exceeds the limit of 10485760 bytes"));
    assert!(client.is_closed());
    // The limit also applies to a transaction,
    let mut client = server.client();
    assert_eq!(client.call("MULTI"), "+OK");
    assert_eq!(client.call_bytes(&[b"SET", b"a", &value]), "+QUEUED");
    assert!(client.call_bytes(&[b"SET", b"b", &value]).contains("transaction exceeds the limit"));
    assert!(client.call("EXEC").starts_with("-EXECABORT"));
    // and to the expansion of short commands.
    assert_eq!(client.call("MULTI"), "+OK");
    for key in ["a", "b"] {
        assert_eq!(client.call(&format!("COPY large {key}")), "+QUEUED");
    }
    let reply = client.call("EXEC");
    assert!(reply.starts_with("[:1, -ERR transaction of"), "{reply}");
    client.expect(&[("EXISTS a b", ":1")]);
}

#[test]
fn commands_require_the_password() {
    let server = TestServer::with(|options| options.password = Some("secret".into()));
    let mut client = server.client();
    client.expect(&[
        ("PING", "-NOAUTH Authentication required."),
        ("GET k", "-NOAUTH Authentication required."),
        ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH nobody secret", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH secret", "+OK"),
        ("PING", "+PONG"),
    ]);
    let mut other = server.client();
    assert!(other.call("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(other.call("HELLO 3 AUTH default secret SETNAME me").contains(":3"));
    assert_eq!(other.call("CLIENT GETNAME"), "\"me\"");
    let mut client = server.client();
    client.send_raw(b"*11\r\n");
    assert_eq!(client.read(), "-ERR Protocol error: unauthenticated multibulk length");
    let mut client = server.client();
    client.send_raw(b"*2\r\n$4\r\nAUTH\r\n$20000\r\n");
    assert_eq!(client.read(), "-ERR Protocol error: unauthenticated bulk length");
}

#[test]
fn public_address_requires_a_password() {
    let options =
        ServerOptions { listen: "0.0.0.0:0".parse().unwrap(), ..ServerOptions::default() };
    let table = Table::new("t", std::sync::Arc::new(crate::support::MapEngine::default()));
    let refused = Server::bind(vec![table], options);
    let Err(Error::InvalidOptions(errors)) = refused else { panic!("it was bound") };
    assert!(errors[0].reason.contains("no password"), "{errors:?}");
}

#[test]
fn metrics_are_served_to_get_only() {
    let server = TestServer::with(|options| options.metrics = Some("127.0.0.1:0".parse().unwrap()));
    assert_eq!(server.client().call("SET k v"), "+OK");
    let ask = |request: &str| {
        let mut client = Client::connect(server.metrics.unwrap());
        client.send_raw(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut client.reader, &mut answer).unwrap();
        answer
    };
    let page = ask("GET /metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    for line in [
        "siltstone_connected_clients ",
        "siltstone_command_duration_seconds_count{command=\"set\"} 1",
        "siltstone_table_writes_total{table=\"first\"} 1",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    assert!(ask("GET /healthz").ends_with("ok\n"));
    let console = ask("GET /");
    assert!(
        console.contains("Content-Type: text/html") && console.contains("</html>"),
        "{console}"
    );
    assert!(
        console.contains("Content-Security-Policy: default-src 'none'; script-src"),
        "{console}"
    );
    assert!(ask("GET /x").starts_with("HTTP/1.1 404"));
    assert!(ask("POST /metrics").starts_with("HTTP/1.1 405"));
}

#[test]
fn command_with_a_reply_is_counted_in_what_other_workers_report() {
    let server = TestServer::with(|options| options.threads = 2);
    let (mut writer, mut reader) = (server.client(), server.client());
    for calls in 1..=1000 {
        writer.call("SET k v");
        let stats = reader.call("INFO commandstats");
        assert!(stats.contains(&format!("cmdstat_set:calls={calls},")), "{calls} in {stats}");
    }
}

#[test]
fn command_that_writes_too_many_rows_at_once_changes_nothing() {
    let server = TestServer::with(|options| options.max_request_bytes = 1 << 19);
    let mut client = server.client();
    let fill = |client: &mut Client, command: &str, key: &str, word: &dyn Fn(u32) -> String| {
        for from in (0..6000).step_by(1000) {
            let words: Vec<_> = (from..from + 1000).map(word).collect();
            let line = format!("{command} {key} {}", words.join(" "));
            assert!(!client.call(&line).starts_with('-'), "{command}");
        }
    };
    fill(&mut client, "SADD", "s", &|number| format!("m{number}"));
    fill(&mut client, "SADD", "t", &|number| format!("m{}", number + 5000));
    fill(&mut client, "ZADD", "z", &|number| format!("{number} m{number}"));
    fill(&mut client, "RPUSH", "l", &|number| format!("m{number}"));
    client.expect(&[("SADD d old", ":1"), ("HSET h f v", ":1")]);
    let refused = "-ERR the command writes more than 524288 bytes in memory at once: write less at a \
                   time, or raise --max-request";
    for command in [
        "SUNIONSTORE d s t",
        "SDIFFSTORE d s none",
        "ZUNIONSTORE d 2 z s",
        "ZINTERSTORE d 2 z s",
        "ZRANGESTORE d z 0 -1",
        "COPY s d REPLACE",
        "COPY z d REPLACE",
        "COPY l d REPLACE",
        "SORT l ALPHA STORE d",
        "ZREMRANGEBYRANK z 0 2999",
        "GEOSEARCHSTORE d z FROMLONLAT 0 0 BYRADIUS 30000 km",
    ] {
        let reply = client.call(command);
        assert!(reply == refused || reply.contains("SORT needs more memory"), "{command}: {reply}");
        client.expect(&[("SMEMBERS d", "[\"old\"]"), ("SCARD s", ":6000"), ("ZCARD z", ":6000")]);
        client.expect(&[("LLEN l", ":6000"), ("LINDEX l 0", "\"m0\"")]);
    }
    client.expect(&[
        ("SINTERSTORE d s t", ":1000"),
        ("ZRANGESTORE d z 0 999", ":1000"),
        ("ZREMRANGEBYRANK z 0 999", ":1000"),
        ("COPY d e", ":1"),
        ("LTRIM l 1000 -1", "+OK"),
        ("DEL s l", ":2"),
    ]);
}
