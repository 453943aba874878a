//! Keyspace notifications, client-side caching and MONITOR, over real connections.

use crate::both_servers::on_both;
use crate::support::{Client, TestServer, eventually, mica};

#[test]
fn writes_are_published_as_keyspace_events() {
    on_both(|connect| {
        let (mut client, mut subscriber) = (connect(), connect());
        client.expect(&[("CONFIG SET notify-keyspace-events KEA", "+OK")]);
        subscriber.call("PSUBSCRIBE __keyspace*");
        subscriber.call("PSUBSCRIBE __keyevent*");
        let mut events = |client: &mut Client, command: &str, expected: &[(&str, &str)]| {
            client.call(command);
            for (event, key) in expected {
                let keyspace = format!(
                    "[\"pmessage\", \"__keyspace*\", \"__keyspace@0__:{key}\", \"{event}\"]"
                );
                let keyevent = format!(
                    "[\"pmessage\", \"__keyevent*\", \"__keyevent@0__:{event}\", \"{key}\"]"
                );
                assert_eq!(subscriber.read(), keyspace, "{command}");
                assert_eq!(subscriber.read(), keyevent, "{command}");
            }
        };
        for (command, expected) in [
            ("SET a 1", &[("set", "a")][..]),
            ("SET a 1 EX 100", &[("set", "a"), ("expire", "a")]),
            ("SET a 1 NX", &[]),
            ("SETEX a 100 1", &[("set", "a"), ("expire", "a")]),
            ("INCR a", &[("incrby", "a")]),
            ("DECRBY a 2", &[("incrby", "a")]),
            ("INCRBYFLOAT a 0.5", &[("incrbyfloat", "a")]),
            ("INCR a", &[]),
            ("APPEND a x", &[("append", "a")]),
            ("SETRANGE a 1 y", &[("setrange", "a")]),
            ("GETSET a 2", &[("set", "a")]),
            ("MSET a 1 b 2", &[("set", "a"), ("set", "b")]),
            ("EXPIRE a 100", &[("expire", "a")]),
            ("PERSIST a", &[("persist", "a")]),
            ("PERSIST a", &[]),
            ("GETEX a EX 100", &[("expire", "a")]),
            ("GETEX a PERSIST", &[("persist", "a")]),
            ("EXPIRE a -1", &[("del", "a")]),
            ("GETDEL b", &[("del", "b")]),
            ("DEL a b", &[]),
            ("SET a 1", &[("set", "a")]),
            ("RENAME a b", &[("rename_from", "a"), ("rename_to", "b")]),
            ("COPY b c", &[("copy_to", "c")]),
            ("DEL c b c", &[("del", "c"), ("del", "b")]),
            ("MULTI", &[]),
            ("SET a 1", &[]),
            ("DEL a", &[]),
            ("EXEC", &[("set", "a"), ("del", "a")]),
            ("GET none", &[]),
            ("CONFIG SET notify-keyspace-events KEm", &[]),
            ("GET none", &[("keymiss", "none")]),
            ("SET a 1", &[]),
            ("CONFIG SET notify-keyspace-events KEn$", &[]),
            ("SET a 2", &[("set", "a")]),
            ("SET b 2", &[("new", "b"), ("set", "b")]),
        ] {
            events(&mut client, command, expected);
        }
        // Other databases have channels of their own; without K or E there are none.
        client.expect(&[
            ("CONFIG SET notify-keyspace-events E$", "+OK"),
            ("SELECT 1", "+OK"),
            ("SET a 1", "+OK"),
            ("CONFIG SET notify-keyspace-events $", "+OK"),
            ("SET a 1", "+OK"),
            ("CONFIG SET notify-keyspace-events ", "+OK"),
            ("SET a 1", "+OK"),
            ("PUBLISH __keyevent@end end", ":1"),
        ]);
        assert_eq!(
            subscriber.read(),
            "[\"pmessage\", \"__keyevent*\", \"__keyevent@1__:set\", \"a\"]"
        );
        assert_eq!(
            subscriber.read(),
            "[\"pmessage\", \"__keyevent*\", \"__keyevent@end\", \"end\"]"
        );
    });
}

#[test]
fn passed_expiries_are_published() {
    on_both(|connect| {
        let (mut client, mut subscriber) = (connect(), connect());
        client.expect(&[("CONFIG SET notify-keyspace-events Ex", "+OK")]);
        subscriber.call("SUBSCRIBE __keyevent@0__:expired");
        client.expect(&[
            ("SET kept 1 PX 1000", "+OK"),
            ("PERSIST kept", ":1"),
            ("SET deleted 1 PX 1000", "+OK"),
            ("DEL deleted", ":1"),
            ("SET a 1 PX 1020", "+OK"),
        ]);
        assert_eq!(subscriber.read(), "[\"message\", \"__keyevent@0__:expired\", \"a\"]");
        client.expect(&[("SET b 1", "+OK"), ("PEXPIRE b 20", ":1")]);
        assert_eq!(subscriber.read(), "[\"message\", \"__keyevent@0__:expired\", \"b\"]");
    });
}

/// A RESP3 client.
fn resp3(connect: &mut dyn FnMut() -> Client) -> Client {
    let mut client = connect();
    client.call("HELLO 3");
    client
}

#[test]
fn tracking_tells_of_keys_that_were_read() {
    on_both(|connect| {
        let (mut client, mut other) = (resp3(connect), connect());
        client.expect(&[
            ("CLIENT TRACKING ON", "+OK"),
            ("GET a", "nil"),
            ("MGET a b", "[nil, nil]"),
        ]);
        other.expect(&[("SET c 1", "+OK"), ("SET a 1", "+OK"), ("SET a 2", "+OK")]);
        assert_eq!(client.read(), "[\"invalidate\", [\"a\"]]");
        other.expect(&[("MSET a 3 b 4", "+OK")]);
        assert_eq!(client.read(), "[\"invalidate\", [\"b\"]]");
        client.expect(&[("GET a", "\"3\"")]);
        other.expect(&[("FLUSHALL", "+OK")]);
        assert_eq!(client.read(), "[\"invalidate\", nil]");
        // A client is notified of its own writes, after the reply, unless NOLOOP was given.
        client.expect(&[("GET a", "nil"), ("SET a 1", "+OK")]);
        assert_eq!(client.read(), "[\"invalidate\", [\"a\"]]");
        client.expect(&[
            ("CLIENT TRACKING ON NOLOOP", "+OK"),
            ("GET a", "\"1\""),
            ("SET a 2", "+OK"),
            ("GET a", "\"2\""),
            ("MULTI", "+OK"),
            ("SET a 3", "+QUEUED"),
            ("EXEC", "[+OK]"),
            ("GET a", "\"3\""),
        ]);
        other.expect(&[("DEL a", ":1")]);
        assert_eq!(client.read(), "[\"invalidate\", [\"a\"]]");
        client.expect(&[("GET a", "nil"), ("CLIENT TRACKING OFF", "+OK")]);
        other.expect(&[("SET a 1", "+OK")]);
        client.expect(&[("PING", "+PONG")]);
    });
}

#[test]
fn tracking_tells_of_passed_expiries_that_are_older_than_the_tracking() {
    on_both(|connect| {
        let (mut client, mut other) = (resp3(connect), connect());
        for ttl_ms in [400, 8000] {
            other.call(&format!("SET a 1 PX {ttl_ms}"));
            client.expect(&[("CLIENT TRACKING ON", "+OK")]);
            // On a slow machine it may have expired.
            if client.call("GET a") == "\"1\"" {
                assert_eq!(client.read(), "[\"invalidate\", [\"a\"]]");
                return;
            }
            client.expect(&[("CLIENT TRACKING OFF", "+OK")]);
        }
        panic!("the key expired too early");
    });
}

#[test]
fn tracking_modes_choose_the_keys() {
    on_both(|connect| {
        let (mut client, mut other) = (resp3(connect), connect());
        client.expect(&[
            ("CLIENT TRACKING ON OPTIN", "+OK"),
            ("GET a", "nil"),
            ("CLIENT CACHING YES", "+OK"),
            ("GET b", "nil"),
            ("GET c", "nil"),
        ]);
        other.expect(&[("MSET a 1 b 1 c 1", "+OK")]);
        assert_eq!(client.read(), "[\"invalidate\", [\"b\"]]");
        client.expect(&[
            ("CLIENT TRACKING OFF", "+OK"),
            ("CLIENT TRACKING ON OPTOUT", "+OK"),
            ("CLIENT CACHING NO", "+OK"),
            ("GET a", "\"1\""),
            ("GET b", "\"1\""),
        ]);
        other.expect(&[("MSET a 2 b 2", "+OK")]);
        assert_eq!(client.read(), "[\"invalidate\", [\"b\"]]");
        client.expect(&[
            // A command that is rejected is one, too.
            ("CLIENT CACHING NO", "+OK"),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("GET a", "\"2\""),
        ]);
        other.expect(&[("SET a 3", "+OK")]);
        assert_eq!(client.read(), "[\"invalidate\", [\"a\"]]");
        client.expect(&[
            ("CLIENT TRACKING OFF", "+OK"),
            ("CLIENT TRACKING ON BCAST PREFIX x: PREFIX y:", "+OK"),
        ]);
        other.expect(&[("SET a 1", "+OK"), ("SET x:1 1", "+OK"), ("SET x:1 2", "+OK")]);
        assert_eq!(client.read(), "[\"invalidate\", [\"x:1\"]]");
        assert_eq!(client.read(), "[\"invalidate\", [\"x:1\"]]");
        other.expect(&[("DEL y:1 x:1", ":1")]);
        assert_eq!(client.read(), "[\"invalidate\", [\"x:1\"]]");
        client.expect(&[("PING", "+PONG")]);
    });
}

/// A long script runs on another thread than the others. Redis 7.0 tracks the keys that it names.
#[test]
fn tracking_covers_the_keys_that_a_long_script_reads() {
    let server = TestServer::start();
    let (mut client, mut other) = (resp3(&mut || server.client()), server.client());
    let script = b"for i = 1, 3000000 do local x = i * i end return redis.call('get', 'a')";
    client.expect(&[("CLIENT TRACKING ON", "+OK")]);
    assert_eq!(client.call_bytes(&[b"EVAL", script, b"1", b"b"]), "nil");
    other.expect(&[("SET b 1", "+OK"), ("SET a 1", "+OK")]);
    assert_eq!(client.read(), "[\"invalidate\", [\"a\"]]");
    client.expect(&[("PING", "+PONG")]);
}

#[test]
fn tracking_redirects_to_a_resp2_subscriber() {
    on_both(|connect| {
        let (mut receiver, mut client, mut other) = (connect(), connect(), connect());
        let id = receiver.call("CLIENT ID")[1..].to_owned();
        receiver.call("SUBSCRIBE __redis__:invalidate");
        client.expect(&[
            (&format!("CLIENT TRACKING ON REDIRECT {id}"), "+OK"),
            ("CLIENT GETREDIR", &format!(":{id}")),
            ("GET a", "nil"),
        ]);
        other.expect(&[("SET a 1", "+OK")]);
        assert_eq!(receiver.read(), "[\"message\", \"__redis__:invalidate\", [\"a\"]]");
        other.expect(&[("FLUSHALL", "+OK")]);
        assert_eq!(receiver.read(), "[\"message\", \"__redis__:invalidate\", nil]");
        // The client learns that its receiver has gone.
        client.call("HELLO 3");
        client.call("GET a");
        drop(receiver);
        eventually("the receiver has gone", || {
            !other.call("CLIENT LIST").contains(&format!("id={id} "))
        });
        other.expect(&[("SET a 2", "+OK")]);
        assert_eq!(client.read(), format!("[\"tracking-redir-broken\", :{id}]"));
        let info = client.call("CLIENT TRACKINGINFO");
        assert!(info.contains("broken_redirect"), "{info}");
    });
}

#[test]
fn tracking_options_are_checked() {
    let switch = "-ERR You can't switch BCAST mode on/off before disabling tracking for this \
                  client, and then re-enabling it with a different mode.";
    on_both(|connect| {
        let mut client = resp3(connect);
        client.expect(&[
            (
                "CLIENT TRACKINGINFO",
                "[\"flags\", [\"off\"], \"redirect\", :-1, \"prefixes\", []]",
            ),
            ("CLIENT GETREDIR", ":-1"),
            ("CLIENT TRACKING", "-ERR wrong number of arguments for 'client|tracking' command"),
            ("CLIENT TRACKING x", "-ERR syntax error"),
            ("CLIENT TRACKING ON x", "-ERR syntax error"),
            ("CLIENT TRACKING ON PREFIX a", "-ERR PREFIX option requires BCAST mode to be enabled"),
            (
                "CLIENT TRACKING ON OPTIN OPTOUT",
                "-ERR You can't specify both OPTIN mode and OPTOUT mode",
            ),
            (
                "CLIENT TRACKING ON BCAST OPTIN",
                "-ERR OPTIN and OPTOUT are not compatible with BCAST",
            ),
            (
                "CLIENT TRACKING ON REDIRECT 99999",
                "-ERR The client ID you want redirect to does not exist",
            ),
            ("CLIENT TRACKING ON REDIRECT x", "-ERR value is not an integer or out of range"),
            (
                "CLIENT CACHING YES",
                "-ERR CLIENT CACHING can be called only when the client is in tracking mode with \
                 OPTIN or OPTOUT mode enabled",
            ),
            ("CLIENT TRACKING ON OPTIN NOLOOP", "+OK"),
            ("CLIENT CACHING x", "-ERR syntax error"),
            (
                "CLIENT CACHING NO",
                "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ),
            ("CLIENT CACHING YES", "+OK"),
            (
                "CLIENT TRACKINGINFO",
                "[\"flags\", [\"on\", \"optin\", \"caching-yes\", \"noloop\"], \"redirect\", :0, \
                 \"prefixes\", []]",
            ),
            ("CLIENT TRACKING ON BCAST", switch),
            ("CLIENT TRACKING OFF", "+OK"),
            ("CLIENT TRACKING ON BCAST PREFIX b PREFIX a", "+OK"),
            (
                "CLIENT TRACKINGINFO",
                "[\"flags\", [\"on\", \"bcast\"], \"redirect\", :0, \"prefixes\", [\"a\", \"b\"]]",
            ),
            ("CLIENT TRACKING ON", switch),
            (
                "CLIENT TRACKING ON BCAST PREFIX ab",
                "-ERR Prefix 'ab' overlaps with an existing prefix 'a'. Prefixes for a single client \
                 must not overlap.",
            ),
            ("RESET", "+RESET"),
            ("CLIENT GETREDIR", ":-1"),
        ]);
    });
}

#[test]
fn tracking_covers_all_protocols_and_forgets_clients() {
    let server = TestServer::over(Some(mica("memory=4MiB")), |options| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
    });
    let (mut client, mut other) = (server.client(), server.client());
    client.call("HELLO 3");
    client.expect(&[("CLIENT TRACKING ON NOLOOP", "+OK"), ("GET a", "nil")]);
    server.memcached_client().expect(&[("set a 0 0 1|x|", "STORED|")]);
    assert_eq!(client.read(), "[\"invalidate\", [\"a\"]]");
    client.expect(&[("GET a", "\"x\"")]);
    server.memcached_client().expect(&[("flush_all|", "OK|"), ("set a 0 0 1|x|", "STORED|")]);
    assert_eq!(client.read(), "[\"invalidate\", nil]");
    // The number of keys is bounded.
    client.expect(&[
        ("CONFIG SET tracking-table-max-keys 2", "+OK"),
        ("MGET a b c", "[\"x\", nil, nil]"),
    ]);
    assert!(client.read().starts_with("[\"invalidate\", [\""), "a key was forgotten");
    let info = other.call("INFO");
    for field in ["tracking_clients:1", "tracking_total_keys:2", "tracking_total_items:2"] {
        assert!(info.contains(field), "{field} in {info}");
    }
    // Keys that are too long to exist take no memory.
    assert!(client.call_bytes(&[b"GET", &vec![b'k'; 1 << 20]]).starts_with("-ERR"));
    assert!(other.call("INFO").contains("tracking_total_keys:2"));
    drop(client);
    eventually("the client is forgotten", || other.call("INFO").contains("tracking_clients:0"));
    assert!(other.call("INFO").contains("tracking_total_keys:0"));
}

#[test]
fn monitor_shows_the_commands_of_all_clients() {
    on_both(|connect| {
        let (mut monitor, mut client) = (connect(), connect());
        monitor.expect(&[("MONITOR", "+OK")]);
        client.expect(&[
            ("SET a b", "+OK"),
            ("CONFIG GET none", "[]"),
            ("get a", "\"b\""),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("SELECT 1", "+OK"),
            ("MULTI", "+OK"),
            ("SET c d", "+QUEUED"),
            ("EXEC", "[+OK]"),
        ]);
        client.call("AUTH secret");
        client.call_bytes(&[b"ECHO", b"x\n\"\xff"]);
        for (table, expected) in [
            (0, r#""SET" "a" "b""#),
            (0, r#""get" "a""#),
            (1, r#""SELECT" "1""#),
            (1, r#""MULTI""#),
            (1, r#""SET" "c" "d""#),
            (1, r#""EXEC""#),
            (1, r#""AUTH" "(redacted)""#),
            (1, r#""ECHO" "x\n\"\xff""#),
        ] {
            let line = monitor.read();
            let (time, shown) = line[1..].split_once(' ').unwrap();
            assert!(time.split_once('.').unwrap().1.len() == 6, "{line}");
            let (source, shown) = shown.split_once("] ").unwrap();
            assert_eq!(shown, expected);
            // SELECT is shown with the old or the new table.
            let is_select = shown.contains("SELECT");
            assert!(is_select || source.starts_with(&format!("[{table} 127.0.0.1:")), "{line}");
        }
        monitor.expect(&[("RESET", "+RESET"), ("PING", "+PONG")]);
        client.expect(&[("SET a c", "+OK")]);
        monitor.expect(&[("PING", "+PONG")]);
    });
}

#[test]
fn monitor_hides_administrative_subcommands_and_no_others() {
    on_both(|connect| {
        let (mut monitor, mut client) = (connect(), connect());
        monitor.expect(&[("MONITOR", "+OK")]);
        for command in ["CLIENT LIST", "CLIENT ID", "ACL LIST", "ACL WHOAMI", "PING"] {
            client.call(command);
        }
        for expected in [r#""CLIENT" "ID""#, r#""ACL" "WHOAMI""#, r#""PING""#] {
            let line = monitor.read();
            assert!(line.ends_with(expected), "{line}");
        }
    });
}
