//! CONFIG SET, the slow log, latencies and statistics, over real connections.

use std::time::Duration;

use crate::both_servers::on_both;
use crate::support::{Client, TestServer, eventually};

/// Words separated by spaces; `_` in a word stands for a space.
fn call(client: &mut Client, line: &str) -> String {
    let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
    client.call_bytes(&words.iter().map(String::as_bytes).collect::<Vec<_>>())
}

#[test]
fn config_set_changes_settings_or_reports_why_not() {
    on_both(|connect| {
        let mut client = connect();
        let failed = |name: &str, reason: &str| {
            format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
        };
        let classes = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
        let arguments = "Wrong number of arguments in buffer limit configuration.";
        let class = "Invalid client class specified in buffer limit configuration.";
        let pubsub = "pubsub_1000000_500000_10";
        let shown = client.call("CONFIG GET client-output-buffer-limit");
        for (command, expected) in [
            ("CONFIG SET timeout 100 slowlog-max-len 5", "+OK".to_owned()),
            ("CONFIG GET timeout", "[\"timeout\", \"100\"]".into()),
            ("CONFIG GET slowlog-max-len", "[\"slowlog-max-len\", \"5\"]".into()),
            // All or nothing.
            (
                "CONFIG SET timeout 7 slowlog-max-len x",
                failed("slowlog-max-len", "argument couldn't be parsed into an integer"),
            ),
            ("CONFIG GET timeout", "[\"timeout\", \"100\"]".into()),
            ("CONFIG SET timeout 1 timeout 2", failed("timeout", "duplicate parameter")),
            (
                "CONFIG SET timeout -5",
                failed("timeout", "argument must be between 0 and 2147483647 inclusive"),
            ),
            (
                "CONFIG SET maxclients 0",
                failed("maxclients", "argument must be between 1 and 4294967295 inclusive"),
            ),
            ("CONFIG SET databases 3", failed("databases", "can't set immutable config")),
            (
                "CONFIG SET foo bar",
                "-ERR Unknown option or number of arguments for CONFIG SET - 'foo'".into(),
            ),
            (
                "CONFIG SET timeout",
                "-ERR wrong number of arguments for 'config|set' command".into(),
            ),
            ("CONFIG SET notify-keyspace-events q", failed("notify-keyspace-events", classes)),
            (
                "CONFIG SET client-output-buffer-limit foo_1_2_3",
                failed("client-output-buffer-limit", class),
            ),
            (
                "CONFIG SET client-output-buffer-limit pubsub_1_2",
                failed("client-output-buffer-limit", arguments),
            ),
            ("CONFIG SET latency-monitor-threshold 100", "+OK".into()),
            ("CONFIG GET latency-mon*", "[\"latency-monitor-threshold\", \"100\"]".into()),
            ("CONFIG SET tracking-table-max-keys 10", "+OK".into()),
            ("CONFIG GET tracking-t*", "[\"tracking-table-max-keys\", \"10\"]".into()),
        ] {
            assert_eq!(call(&mut client, command), expected, "{command}");
        }
        let set = format!("CONFIG SET client-output-buffer-limit {pubsub}");
        assert_eq!(call(&mut client, &set), "+OK");
        let changed = client.call("CONFIG GET client-output-buffer-limit");
        assert!(changed.ends_with(" pubsub 1000000 500000 10\"]"), "{changed}, before {shown}");
    });
}

#[test]
fn config_set_takes_effect_at_once() {
    let server = TestServer::start();
    let (mut admin, mut idle) = (server.client(), server.client());
    idle.call("PING");
    admin.expect(&[("CONFIG SET maxclients 2", "+OK")]);
    assert_eq!(server.client().read(), "-ERR max number of clients reached");
    admin.expect(&[("CONFIG SET maxclients 100", "+OK"), ("CONFIG SET timeout 1", "+OK")]);
    assert_eq!(server.client().call("PING"), "+PONG");
    for _ in 0..30 {
        admin.call("PING");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(idle.is_closed());
    // The limits of messages.
    admin.expect(&[("CONFIG SET timeout 0", "+OK")]);
    let limit = "CONFIG SET client-output-buffer-limit pubsub_1kb_0_0";
    assert_eq!(call(&mut admin, limit), "+OK");
    let mut subscriber = server.client();
    subscriber.call("SUBSCRIBE a");
    assert_eq!(admin.call_bytes(&[b"PUBLISH", b"a", &[b'x'; 2000]]), ":1");
    assert!(subscriber.is_closed());
}

#[test]
fn slow_commands_are_logged() {
    on_both(|connect| {
        let mut client = connect();
        client.expect(&[
            ("CONFIG SET slowlog-log-slower-than -1", "+OK"),
            ("SLOWLOG RESET", "+OK"),
            ("SET a b", "+OK"),
            ("SLOWLOG LEN", ":0"),
            ("CLIENT SETNAME me", "+OK"),
            ("CONFIG SET slowlog-log-slower-than 0", "+OK"),
            ("SET a b", "+OK"),
            ("GET a", "\"b\""),
            ("CONFIG SET slowlog-log-slower-than 1000000000", "+OK"),
        ]);
        let log = client.call("SLOWLOG GET");
        let (get, set) = (log.find("[\"GET\", \"a\"]"), log.find("[\"SET\", \"a\", \"b\"]"));
        assert!(get.is_some() && set.is_some() && get < set, "newest first: {log}");
        assert!(log.contains("\"127.0.0.1:") && log.contains("\"me\"]"), "{log}");
        let first = client.call("SLOWLOG GET 1");
        assert!(log.starts_with(&first[..first.len() - 1]), "{first} in {log}");
        client.expect(&[
            ("CONFIG SET slowlog-max-len 1", "+OK"),
            ("CONFIG SET slowlog-log-slower-than 0", "+OK"),
            ("PING", "+PONG"),
            ("PING", "+PONG"),
            ("SLOWLOG LEN", ":1"),
            ("CONFIG SET slowlog-log-slower-than -1", "+OK"),
            ("SLOWLOG RESET", "+OK"),
            ("SLOWLOG GET -1", "[]"),
        ]);
    });
}

#[test]
fn long_script_is_logged_and_counted_with_its_time() {
    on_both(|connect| {
        let mut client = connect();
        client.expect(&[
            ("CONFIG SET slowlog-log-slower-than 15000 latency-monitor-threshold 15", "+OK"),
            ("SLOWLOG RESET", "+OK"),
            ("CONFIG RESETSTAT", "+OK"),
        ]);
        let script = b"local x = 0 for i = 1, 20000000 do x = x + i end return 1";
        assert_eq!(client.call_bytes(&[b"EVAL", script, b"0"]), ":1");
        let log = client.call("SLOWLOG GET");
        assert_eq!(log.matches("\"EVAL\"").count(), 1, "{log}");
        let latest = client.call("LATENCY LATEST");
        assert!(latest.contains("\"command\""), "{latest}");
        let stats = client.call("INFO commandstats");
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls=1,usec="));
        let micros = line.and_then(|line| line.split(',').next()).unwrap_or_default();
        assert!(micros.parse::<u64>().unwrap_or(0) >= 15_000, "{stats}");
        client.expect(&[("CONFIG SET latency-monitor-threshold 0", "+OK")]);
    });
}

#[test]
fn latencies_are_recorded_and_reset() {
    on_both(|connect| {
        let mut client = connect();
        client.expect(&[
            ("LATENCY RESET", ":0"),
            ("LATENCY LATEST", "[]"),
            ("LATENCY HISTORY command", "[]"),
            ("LATENCY GRAPH command", "-ERR No samples available for event 'command'"),
            ("LATENCY RESET command", ":0"),
            ("LATENCY HISTORY", "-ERR wrong number of arguments for 'latency|history' command"),
            ("LATENCY FOO", "-ERR unknown subcommand 'FOO'. Try LATENCY HELP."),
            ("CONFIG RESETSTAT", "+OK"),
            ("GET none", "nil"),
            ("GET none", "nil"),
        ]);
        assert!(client.call("LATENCY DOCTOR").contains("disabled"));
        let histogram = client.call("LATENCY HISTOGRAM get");
        assert!(
            histogram.starts_with("[\"get\", [\"calls\", :2, \"histogram_usec\", [:"),
            "{histogram}"
        );
        assert!(histogram.ends_with(", :2]]]"), "{histogram}");
        client.expect(&[("LATENCY HISTOGRAM none", "[]")]);
        let stats = client.call("INFO latencystats");
        assert!(stats.contains("latency_percentiles_usec_get:p50="), "{stats}");
        let stats = client.call("INFO commandstats");
        assert!(stats.contains("cmdstat_get:calls=2,usec="), "{stats}");
    });
}

#[test]
fn subcommands_are_counted_by_themselves() {
    on_both(|connect| {
        let mut client = connect();
        client.call("CONFIG RESETSTAT");
        for call in ["CLIENT ID", "client id", "CLIENT LIST", "CLIENT NOSUCH", "XINFO STREAM none"]
        {
            client.call(call);
        }
        client.call_bytes(&[b"EVAL", b"return redis.call('OBJECT', 'ENCODING', 'none')", b"0"]);
        let stats = client.call("INFO commandstats");
        for part in [
            "cmdstat_config|resetstat:calls=1,",
            "cmdstat_client|id:calls=2,",
            "cmdstat_client|list:calls=1,",
            "cmdstat_object|encoding:calls=1,",
        ] {
            assert!(stats.contains(part), "{part} {stats}");
        }
        let failed = |line: &str| {
            line.starts_with("cmdstat_xinfo|stream:calls=1,") && line.ends_with("failed_calls=1")
        };
        assert!(stats.lines().any(failed), "{stats}");
        let stats = client.call("INFO latencystats");
        assert!(stats.contains("latency_percentiles_usec_client|id:p50="), "{stats}");
        let histograms = client.call("LATENCY HISTOGRAM client");
        assert!(histograms.contains("\"client|id\", [\"calls\", :2"), "{histograms}");
        assert!(histograms.contains("\"client|list\", [\"calls\", :1"), "{histograms}");
        let histograms = client.call("LATENCY HISTOGRAM Client|ID get");
        assert!(histograms.starts_with("[\"client|id\", "), "{histograms}");
        assert!(!histograms.contains("client|list"), "{histograms}");
    });
}

#[test]
fn commands_of_a_transaction_are_counted_when_they_run() {
    on_both(|connect| {
        let mut client = connect();
        client.expect(&[
            ("SET s v", "+OK"),
            ("CONFIG RESETSTAT", "+OK"),
            ("MULTI", "+OK"),
            ("GET s", "+QUEUED"),
            ("DISCARD", "+OK"),
            ("MULTI", "+OK"),
            ("GET s", "+QUEUED"),
            ("LPUSH s x", "+QUEUED"),
            ("GET s", "+QUEUED"),
            (
                "EXEC",
                "[\"v\", -WRONGTYPE Operation against a key holding the wrong kind of value, \"v\"]",
            ),
        ]);
        let stats = client.call("INFO commandstats");
        assert!(stats.contains("cmdstat_get:calls=2,"), "{stats}");
        let failed = |line: &str| {
            line.starts_with("cmdstat_lpush:calls=1,") && line.ends_with("failed_calls=1")
        };
        assert!(stats.lines().any(failed), "{stats}");
    });
}

#[test]
fn failed_plain_sets_are_counted_as_errors() {
    let server = TestServer::start();
    let mut client = server.client();
    server.engine.disk_full.store(true, std::sync::atomic::Ordering::SeqCst);
    for _ in 0..3 {
        let reply = client.call("SET k v");
        assert!(reply.starts_with("-MISCONF "), "{reply}");
    }
    let info = client.call("INFO all");
    assert!(info.contains("errorstat_MISCONF:count=3"), "{info}");
    assert!(info.contains("total_error_replies:3"), "{info}");
    let failed = |line: &str| line.starts_with("cmdstat_set:") && line.ends_with("failed_calls=3");
    assert!(info.lines().any(failed), "{info}");
    server.engine.disk_full.store(false, std::sync::atomic::Ordering::SeqCst);
}

#[test]
fn latency_of_syncs_is_monitored() {
    let server = TestServer::with(|options| options.fsync = siltstone_server::Fsync::Always);
    let mut client = server.client();
    client.expect(&[("CONFIG SET latency-monitor-threshold 1", "+OK")]);
    assert!(client.call("LATENCY DOCTOR").contains("No latency"));
    server.engine.slow_syncs.store(true, std::sync::atomic::Ordering::SeqCst);
    eventually("a slow sync is recorded", || {
        client.call("SET a b");
        client.call("LATENCY LATEST").starts_with("[[\"aof-fsync-always\", :")
    });
    let graph = client.call("LATENCY GRAPH aof-fsync-always");
    assert!(graph.contains("all time high"), "{graph}");
    assert!(client.call("LATENCY HISTORY aof-fsync-always").starts_with("[[:"));
    assert!(client.call("LATENCY DOCTOR").contains("aof-fsync-always"));
    server.engine.slow_syncs.store(false, std::sync::atomic::Ordering::SeqCst);
    client.expect(&[("CONFIG SET latency-monitor-threshold 0", "+OK")]);
    assert!(client.call("LATENCY RESET aof-fsync-always").starts_with(":1"));
}

#[test]
fn client_pause_holds_commands_back_until_its_end() {
    let server = TestServer::start();
    let [mut operator, mut writer, mut reader] = [(); 3].map(|()| server.client());
    operator.expect(&[
        ("CLIENT PAUSE", "-ERR wrong number of arguments for 'client|pause' command"),
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 1 FOO", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT UNPAUSE x", "-ERR wrong number of arguments for 'client|unpause' command"),
        ("CLIENT UNPAUSE", "+OK"),
        ("SET k old", "+OK"),
        ("CLIENT PAUSE 60000 WRITE", "+OK"),
        // A shorter pause changes nothing.
        ("CLIENT PAUSE 1 WRITE", "+OK"),
    ]);
    writer.send_raw(b"GET k\r\nSET k new\r\nGET k\r\n");
    assert_eq!(writer.read(), "\"old\"");
    reader.expect(&[
        ("GET k", "\"old\""),
        ("MULTI", "+OK"),
        ("GET k", "+QUEUED"),
        ("EXEC", "[\"old\"]"),
        ("EVAL_RO return(7) 0", ":7"),
        ("SET k", "-ERR wrong number of arguments for 'set' command"),
        ("EVALSHA x 0", "-NOSCRIPT No matching script. Please use EVAL."),
    ]);
    let read_only = reader.call_bytes(&[b"EVAL", b"#!lua flags=no-writes\nreturn 6", b"0"]);
    assert_eq!(read_only, ":6");
    reader.send_raw(b"EVAL return(8) 0\r\n");
    eventually("two clients wait", || operator.call("INFO clients").contains("blocked_clients:2"));
    assert_eq!(operator.call("GET k"), "\"old\"");
    assert_eq!(operator.call("CLIENT UNPAUSE"), "+OK");
    assert_eq!([writer.read(), writer.read()], ["+OK", "\"new\""]);
    assert_eq!(reader.read(), ":8");
    assert!(operator.call("INFO clients").contains("blocked_clients:0"));
    // A transaction waits as a whole.
    writer.expect(&[("MULTI", "+OK"), ("SET k newest", "+QUEUED")]);
    assert_eq!(operator.call("CLIENT PAUSE 60000 WRITE"), "+OK");
    writer.send_raw(b"EXEC\r\n");
    eventually("the transaction waits", || {
        operator.call("INFO clients").contains("blocked_clients:1")
    });
    operator.expect(&[("GET k", "\"new\""), ("CLIENT UNPAUSE", "+OK")]);
    assert_eq!(writer.read(), "[+OK]");

    let began = std::time::Instant::now();
    assert_eq!(operator.call("CLIENT PAUSE 300 ALL"), "+OK");
    assert_eq!(reader.call("PING"), "+PONG");
    assert!(began.elapsed() >= std::time::Duration::from_millis(300));
    operator.expect(&[("SET k last", "+OK"), ("GET k", "\"last\"")]);
}

#[test]
fn client_that_kills_itself_gets_the_reply_and_runs_nothing_more() {
    on_both(|connect| {
        let (mut client, mut other) = (connect(), connect());
        let id = client.call("CLIENT ID")[1..].to_owned();
        let kill = format!("CLIENT KILL ID {id} SKIPME no\r\nSET k v\r\n");
        client.send_raw(kill.as_bytes());
        assert_eq!(client.read(), ":1");
        assert!(client.is_closed());
        let mut client = connect();
        let address = client.stream().local_addr().unwrap();
        client.send_raw(format!("CLIENT KILL {address}\r\nSET k v\r\n").as_bytes());
        assert_eq!(client.read(), "+OK");
        assert!(client.is_closed());
        other.expect(&[("GET k", "nil")]);
    });
}

#[test]
fn move_takes_a_key_to_another_table() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("SET s v PX 100000", "+OK"),
        ("HSET h f v", ":1"),
        ("MOVE s 0", "-ERR source and destination objects are the same"),
        ("MOVE s 2", "-ERR DB index is out of range"),
        ("MOVE s x", "-ERR value is not an integer or out of range"),
        ("MOVE none 1", ":0"),
        ("CONFIG SET notify-keyspace-events EA", "+OK"),
    ]);
    let mut listener = server.client();
    listener.call("PSUBSCRIBE __keyevent*");
    client.expect(&[("MOVE s 1", ":1"), ("MOVE h 1", ":1"), ("DBSIZE", ":0")]);
    for event in ["@0__:move_from", "@1__:move_to"] {
        let received = listener.read();
        assert!(received.contains(event), "{received}");
    }
    client.expect(&[
        ("SET s other", "+OK"),
        ("SELECT 1", "+OK"),
        ("GET s", "\"v\""),
        ("TTL s", ":100"),
        ("HGETALL h", "[\"f\", \"v\"]"),
        ("MOVE s 0", ":0"),
        ("GET s", "\"v\""),
        ("MULTI", "+OK"),
        ("MOVE h 0", "+QUEUED"),
        ("EXEC", "[-ERR MOVE is not allowed in transactions: they write to one table]"),
    ]);
}

#[test]
fn move_syncs_the_copy_before_it_removes_the_key() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("SELECT 1", "+OK"), ("SET k v", "+OK")]);
    server.engine.fail_syncs.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(client.call("MOVE k 0").starts_with("-ERR"));
    assert_eq!(client.call("GET k"), "\"v\"");
    server.engine.fail_syncs.store(false, std::sync::atomic::Ordering::SeqCst);
}

#[test]
fn waitaof_syncs_and_waits_for_replicas() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("WAITAOF 2 0 0", "-ERR value is out of range, must be between 0 and 1"),
        ("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive"),
        ("WAITAOF x 0 0", "-ERR value is not an integer or out of range"),
        ("WAITAOF 0 0 -1", "-ERR timeout is negative"),
        ("SET k v", "+OK"),
        ("WAITAOF 0 0 0", "[:0, :0]"),
    ]);
    let syncs = || server.engine.syncs.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(syncs(), 0);
    assert_eq!(client.call("WAITAOF 1 0 0"), "[:1, :0]");
    assert_eq!(syncs(), 1);
    let began = std::time::Instant::now();
    assert_eq!(client.call("WAITAOF 1 1 60"), "[:1, :0]");
    assert!(began.elapsed() >= std::time::Duration::from_millis(60));
}
