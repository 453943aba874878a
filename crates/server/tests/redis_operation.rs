//! CONFIG SET, the slow log, latencies and statistics, over real connections.

mod support;

use std::time::Duration;

use support::{Client, Peer, TestServer, eventually};

/// Words separated by spaces; `_` in a word stands for a space.
fn call(client: &mut Client, line: &str) -> String {
    let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
    client.call_bytes(&words.iter().map(String::as_bytes).collect::<Vec<_>>())
}

/// Runs a test on this server and, if installed, on Redis, which validates the test.
fn on_both(test: impl Fn(&mut dyn FnMut() -> Client)) {
    let options = ["--save", "", "--port"];
    if let Some(peer) = Peer::start("redis-server", &options) {
        test(&mut || Client::connect(peer.address));
    }
    let server = TestServer::start();
    test(&mut || server.client());
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
