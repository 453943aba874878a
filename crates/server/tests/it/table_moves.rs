//! CONFIG MOVE: clients read and write while their table moves to other engines, and what belongs
//! to their number stays: watches, waiting commands, expiries, scans. Refusals leave all as before.

use std::collections::BTreeMap;

use siltstone::{Db, DbOptions};
use siltstone_server::{Server, ServerOptions};
use siltstone_testkit::TestRng;
use siltstone_testkit::stop_guard::RunFlag;

use crate::support::{Client, TestServer, eventually};

pub(crate) fn bind(db: &Db, tables: &[&str], change: impl FnOnce(&mut ServerOptions)) -> Server {
    let open = |name: &&str| {
        let engine = db.spec_of(name).map_or("lsm".to_owned(), |spec| spec.engine);
        db.table_or_create(name, &engine, &Default::default()).unwrap()
    };
    let mut options =
        ServerOptions { listen: "127.0.0.1:0".parse().unwrap(), threads: 2, ..Default::default() };
    change(&mut options);
    Server::bind(tables.iter().map(open).collect(), options).unwrap()
}

/// Runs a test against a server of a new store; `test` connects as often as it needs.
pub(crate) fn with_server(tables: &[&str], test: impl FnOnce(&dyn Fn() -> Client)) {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    serve(bind(&db, tables, |_| ()), test);
    db.close().unwrap();
}

pub(crate) fn serve(server: Server, test: impl FnOnce(&dyn Fn() -> Client)) {
    let (address, stop) = (server.local_addr(), server.stop_handle());
    let thread = std::thread::spawn(move || server.run());
    test(&|| Client::connect(address));
    stop.stop();
    thread.join().unwrap().unwrap();
}

pub(crate) fn field(client: &mut Client, name: &str) -> Option<String> {
    let info = client.call("INFO persistence");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim_end_matches('"').to_owned())
}

/// Waits for the end of a move, and returns its status.
pub(crate) fn outcome(client: &mut Client) -> String {
    eventually("the move has ended", || {
        field(client, "table_move_in_progress").as_deref() == Some("0")
    });
    field(client, "table_move_status").unwrap()
}

pub(crate) fn move_to(client: &mut Client, target: &str) {
    let reply = client.call(&format!("CONFIG MOVE default {target}"));
    assert!(reply.starts_with("+Background move started"), "{target}: {reply}");
    // It says that the table is in memory alone from then on.
    assert_eq!(reply.contains("in memory alone"), target.starts_with("mica"), "{reply}");
    let status = outcome(client);
    assert_eq!(status, "ok", "{target}: {:?}", field(client, "table_move_error"));
    assert!(field(client, "table_move_pause_ms").unwrap().parse::<f64>().unwrap() > 0.0);
}

pub(crate) const MICA: &str = "mica memory 8MiB partitions 2";
pub(crate) const SKIMPY: &str = "skimpy capacity 16MiB";

/// A client with keys of its own, which knows what each reply must be.
fn use_own_keys(client: &mut Client, id: u64, running: &RunFlag) -> BTreeMap<String, String> {
    let mut rng = TestRng::new(id);
    let mut model: BTreeMap<String, String> = BTreeMap::new();
    for step in 1.. {
        if !running.is_set() {
            break;
        }
        let key = format!("{id}:{}", rng.below(150));
        let shown = |value: Option<&String>| value.map_or("nil".into(), |it| format!("\"{it}\""));
        match rng.below(8) {
            0 => {
                let expected = format!(":{}", u8::from(model.remove(&key).is_some()));
                client.expect(&[(&format!("DEL {key}"), &expected)]);
            }
            1..3 => {
                client.expect(&[(&format!("SET {key} {step}"), "+OK")]);
                model.insert(key, step.to_string());
            }
            3 => {
                let next = model.get(&key).map_or(0, |value| value.parse::<u64>().unwrap()) + 1;
                client.expect(&[(&format!("INCR {key}"), &format!(":{next}"))]);
                model.insert(key, next.to_string());
            }
            4 => {
                // One write of two keys, in a transaction.
                let other = format!("{id}:{}", rng.below(150));
                client.expect(&[
                    ("MULTI", "+OK"),
                    (&format!("SET {key} {step}"), "+QUEUED"),
                    (&format!("GET {key}"), "+QUEUED"),
                    (&format!("SET {other} {step}"), "+QUEUED"),
                    ("EXEC", &format!("[+OK, \"{step}\", +OK]")),
                ]);
                model.insert(key, step.to_string());
                model.insert(other, step.to_string());
            }
            5 => {
                // A pipeline.
                for value in 0..20 {
                    client.send(&[b"SET", key.as_bytes(), format!("{step}{value}").as_bytes()]);
                }
                client.send(&[b"GET", key.as_bytes()]);
                for _ in 0..20 {
                    assert_eq!(client.read(), "+OK");
                }
                assert_eq!(client.read(), format!("\"{step}19\""));
                model.insert(key, format!("{step}19"));
            }
            _ => client.expect(&[(&format!("GET {key}"), &shown(model.get(&key)))]),
        }
    }
    model
}

#[test]
fn clients_lose_no_write_and_get_no_error_while_their_table_moves() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    let mut expected = BTreeMap::new();
    serve(bind(&db, &["default"], |_| ()), |connect| {
        let running = RunFlag::default();
        let mut mover = connect();
        let clients: Vec<Client> = (0..3).map(|_| connect()).collect();
        std::thread::scope(|scope| {
            let stop = running.clear_on_drop();
            let running = &running;
            let clients: Vec<_> = (0..)
                .zip(clients)
                .map(|(id, mut client)| scope.spawn(move || use_own_keys(&mut client, id, running)))
                .collect();
            for target in ["trie", MICA, "silt", SKIMPY, "lsm memtable 256KiB", "silt"] {
                move_to(&mut mover, target);
            }
            drop(stop);
            for client in clients {
                expected.extend(client.join().unwrap());
            }
        });
        assert!(!expected.is_empty());
        mover.expect(&[("DBSIZE", &format!(":{}", expected.len()))]);
    });
    db.close().unwrap();
    drop(db);
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    let table = db.table("default").unwrap();
    assert_eq!(table.engine().name(), "silt");
    assert_eq!(table.len().unwrap(), expected.len() as u64);
    for (key, value) in &expected {
        assert_eq!(table.get(key.as_bytes()).unwrap().as_deref(), Some(value.as_bytes()), "{key}");
    }
}

#[test]
fn collections_and_commands_that_wait_move_to_other_options() {
    with_server(&["default"], |connect| {
        let (mut client, mut waiting, mut watcher) = (connect(), connect(), connect());
        client.expect(&[
            ("RPUSH l 1 2", ":2"),
            ("HSET h f v", ":1"),
            ("ZADD z 1 m", ":1"),
            ("XADD s 1-1 f v", "\"1-1\""),
            ("SET t v PX 100000", "+OK"),
        ]);
        waiting.send(&[b"BLPOP", b"queue", b"0"]);
        eventually("it waits", || client.call("INFO clients").contains("blocked_clients:1\r"));
        watcher.expect(&[("WATCH t", "+OK"), ("MULTI", "+OK"), ("GET t", "+QUEUED")]);
        move_to(&mut client, "lsm memtable 128KiB");
        // The move is no write.
        watcher.expect(&[("EXEC", "[\"v\"]"), ("WATCH t", "+OK")]);
        client.expect(&[
            ("CONFIG GET table.default.memtable", "[\"table.default.memtable\", \"128KiB\"]"),
            ("RPUSH queue a", ":1"),
            ("LRANGE l 0 -1", "[\"1\", \"2\"]"),
            ("HGET h f", "\"v\""),
            ("ZSCORE z m", "\"1\""),
            ("XLEN s", ":1"),
            ("EXISTS queue", ":0"),
            ("RPUSH l 3", ":3"),
            ("SADD new x", ":1"),
        ]);
        assert_eq!(waiting.read(), "[\"queue\", \"a\"]");
        assert!(client.call("PTTL t").trim_start_matches(':').parse::<u64>().unwrap() > 0);
        move_to(&mut client, "lsm");
        client.expect(&[("SET t w", "+OK"), ("LLEN l", ":3"), ("SMEMBERS new", "[\"x\"]")]);
        watcher.expect(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "nil")]);

        // Collections exist on lsm alone.
        let refused = client.call("CONFIG MOVE default trie");
        assert!(refused.starts_with("-ERR CONFIG MOVE of table 'default': "), "{refused}");
        assert!(refused.contains("which trie does not have"), "{refused}");
        client.expect(&[("LLEN l", ":3"), ("FLUSHDB", "+OK"), ("SET k v", "+OK")]);
        move_to(&mut client, "trie");
        client.expect(&[("GET k", "\"v\"")]);
        assert!(client.call("RPUSH l 1").starts_with("-ERR"));
        // And they are back.
        move_to(&mut client, "lsm");
        client.expect(&[("RPUSH l 1", ":1"), ("GET k", "\"v\"")]);
    });
}

#[test]
fn expiries_scans_and_tracked_keys_survive_a_move() {
    with_server(&["default"], |connect| {
        let (mut client, mut tracker) = (connect(), connect());
        client.call("CONFIG SET notify-keyspace-events Ex");
        for n in 0..100 {
            client.call(&format!("SET k{n} v"));
        }
        tracker.call("HELLO 3");
        tracker.expect(&[("CLIENT TRACKING ON", "+OK"), ("GET k1", "\"v\"")]);
        tracker.call("SUBSCRIBE __keyevent@0__:expired");
        client.expect(&[("SET x v PX 1500", "+OK"), ("SET y v PX 200000", "+OK")]);
        let first = client.call("SCAN 0 COUNT 10");
        let cursor = first.split('"').nth(1).unwrap().to_owned();
        let mut seen = first;
        move_to(&mut client, "silt");
        let mut next = cursor;
        while next != "0" {
            let page = client.call(&format!("SCAN {next} COUNT 10"));
            next = page.split('"').nth(1).unwrap().to_owned();
            seen += &page;
        }
        for n in 0..100 {
            assert!(seen.contains(&format!("\"k{n}\"")), "k{n} was missed");
        }
        let left = client.call("PTTL y");
        assert!(left.trim_start_matches(':').parse::<u64>().unwrap() > 100_000, "{left}");
        client.expect(&[("SET k1 w", "+OK")]);
        let pushed: Vec<String> = (0..2).map(|_| tracker.read()).collect();
        assert!(
            pushed.iter().any(|it| it.contains("invalidate") && it.contains("k1")),
            "{pushed:?}"
        );
        assert!(pushed.iter().any(|it| it.contains("expired") && it.contains('x')), "{pushed:?}");
    });
}

#[test]
fn refused_and_aborted_moves_leave_the_table_as_it_was() {
    with_server(&["default", "other"], |connect| {
        let mut client = connect();
        client.expect(&[
            ("CONFIG MOVE ABORT", "-ERR no table is moving"),
            ("CONFIG MOVE default", "-ERR CONFIG MOVE needs a table and an engine, or ABORT"),
            ("CONFIG MOVE default lsm memtable", "-ERR CONFIG MOVE: each option needs a value"),
            ("CONFIG MOVE none lsm", "-ERR CONFIG MOVE of table 'none': no such table is served"),
            ("CONFIG MOVE", "-ERR wrong number of arguments for 'config|move' command"),
            ("SET k v", "+OK"),
        ]);
        for (command, reason) in [
            ("CONFIG MOVE default none", "engine"),
            ("CONFIG MOVE default lsm memtable 1X", "memtable"),
            ("CONFIG MOVE default lsm memtable 1MiB memtable 2MiB", "twice"),
        ] {
            let refused = client.call(command);
            assert!(refused.starts_with("-ERR CONFIG MOVE of table 'default'"), "{refused}");
            assert!(refused.contains(reason), "{refused}");
        }
        // Found while it is copied.
        client.call_bytes(&[b"SET", b"large", &vec![b'x'; 1 << 20]]);
        client.expect(&[("CONFIG MOVE default skimpy capacity 8MiB", "+Background move started")]);
        assert_eq!(outcome(&mut client), "failed");
        let reason = field(&mut client, "table_move_error").unwrap();
        assert!(reason.contains("large"), "{reason}");
        client.expect(&[("GET k", "\"v\""), ("DEL large", ":1")]);

        for n in 0..3000 {
            client.send(&[b"SET", format!("row{n}").as_bytes(), &[b'x'; 4000]]);
        }
        (0..3000).for_each(|_| assert_eq!(client.read(), "+OK"));
        client.send(&[b"CONFIG", b"MOVE", b"default", b"silt"]);
        client.send(&[b"CONFIG", b"MOVE", b"other", b"silt"]);
        client.send(&[b"CONFIG", b"MOVE", b"ABORT"]);
        assert_eq!(client.read(), "+Background move started");
        assert_eq!(client.read(), "-ERR a table is moving already; see INFO persistence");
        assert_eq!(client.read(), "+OK");
        assert_eq!(outcome(&mut client), "cancelled");
        client.expect(&[("GET k", "\"v\""), ("DBSIZE", ":3001")]);
        client.expect(&[("CONFIG GET table.*", "[]")]);
        move_to(&mut client, "trie");
        client.expect(&[("GET k", "\"v\""), ("DBSIZE", ":3001")]);
    });
}

#[test]
fn tables_outside_of_stores_and_of_other_protocols_and_replicated_ones_do_not_move() {
    let server = TestServer::start();
    let refused = server.client().call("CONFIG MOVE first lsm");
    if !refused.contains("cluster mode") {
        assert_eq!(refused, "-ERR CONFIG MOVE of table 'first': it is in no store");
    }
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::replicated_in(
        &scratch.path().join("node"),
        ServerOptions { listen: "127.0.0.1:0".parse().unwrap(), ..Default::default() },
    );
    let refused = server.client().call("CONFIG MOVE replicated trie");
    assert!(refused.starts_with("-ERR CONFIG MOVE is not allowed in cluster mode"), "{refused}");
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let memcached = |options: &mut ServerOptions| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
    };
    serve(bind(&db, &["default"], memcached), |connect| {
        connect().expect(&[(
            "CONFIG MOVE default silt",
            "-ERR CONFIG MOVE of table 'default': memcached or UDP clients use it",
        )]);
    });
}
