//! SWAPDB: contents, watches, waiting commands, expiries, durability, concurrency, refusals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone::{Db, DbOptions};
use siltstone_server::{Server, ServerOptions};

use crate::both_servers::on_both;
use crate::support::{Client, TestServer, eventually};

#[test]
fn swapdb_exchanges_contents_with_the_replies_of_redis() {
    on_both(|connect| {
        let (mut client, mut other) = (connect(), connect());
        client.expect(&[
            ("SWAPDB 0", "-ERR wrong number of arguments for 'swapdb' command"),
            ("SWAPDB x 1", "-ERR invalid first DB index"),
            ("SWAPDB 0 x", "-ERR invalid second DB index"),
            ("SWAPDB 0 99", "-ERR DB index is out of range"),
            ("SWAPDB -1 0", "-ERR DB index is out of range"),
            ("SET k zero", "+OK"),
            ("RPUSH l 1 2", ":2"),
            ("SWAPDB 0 0", "+OK"),
            ("GET k", "\"zero\""),
        ]);
        // Clients keep their numbers.
        other.expect(&[("SELECT 1", "+OK"), ("SET k one", "+OK")]);
        client.expect(&[("SWAPDB 0 1", "+OK"), ("GET k", "\"one\""), ("EXISTS l", ":0")]);
        other.expect(&[("GET k", "\"zero\""), ("LRANGE l 0 -1", "[\"1\", \"2\"]")]);
        other.expect(&[("SET k two", "+OK"), ("SWAPDB 1 0", "+OK"), ("GET k", "\"one\"")]);
        client.expect(&[("GET k", "\"two\""), ("DBSIZE", ":2"), ("RPOP l", "\"2\"")]);
        client.expect(&[("FLUSHDB", "+OK"), ("SWAPDB 0 1", "+OK"), ("GET k", "\"one\"")]);
    });
}

#[test]
fn swapdb_touches_watched_keys_that_exist_in_either_database() {
    on_both(|connect| {
        let (mut client, mut other) = (connect(), connect());
        for (setup, is_changed) in [
            ("SET k v", true),      // here
            ("SET other v", false), // nowhere
            ("MOVE k 1", true),     // there
        ] {
            client.expect(&[("FLUSHALL", "+OK"), ("SET k v", "+OK")]);
            if setup.starts_with("SET other") {
                client.call("DEL k");
            }
            client.call(setup);
            client.expect(&[("WATCH k", "+OK")]);
            other.expect(&[("SWAPDB 0 1", "+OK")]);
            client.expect(&[("MULTI", "+OK"), ("PING", "+QUEUED")]);
            let expected = if is_changed { "nil" } else { "[+PONG]" };
            client.expect(&[("EXEC", expected)]);
        }
    });
}

#[test]
fn swapdb_serves_waiting_commands() {
    on_both(|connect| {
        let (mut client, mut waiting) = (connect(), connect());
        client.expect(&[("SELECT 1", "+OK"), ("RPUSH l a", ":1"), ("SELECT 0", "+OK")]);
        waiting.send(&[b"BLPOP", b"l", b"0"]);
        eventually("it waits", || client.call("INFO clients").contains("blocked_clients:1\r"));
        client.expect(&[("SWAPDB 0 1", "+OK"), ("EXISTS l", ":0")]);
        assert_eq!(waiting.read(), "[\"l\", \"a\"]");
    });
}

#[test]
fn swapdb_moves_expiries_and_tells_no_tracking_client() {
    on_both(|connect| {
        let (mut client, mut tracker) = (connect(), connect());
        tracker.call("HELLO 3");
        client.call("CONFIG SET notify-keyspace-events Ex");
        client.expect(&[("SET t v", "+OK"), ("SET x v PX 3000", "+OK")]);
        tracker.expect(&[
            ("CLIENT TRACKING ON", "+OK"),
            ("GET t", "\"v\""),
            ("SUBSCRIBE __keyevent@1__:expired", "[\"subscribe\", \"__keyevent@1__:expired\", :1]"),
        ]);
        client.expect(&[("SWAPDB 0 1", "+OK")]);
        tracker.expect(&[("PING", "+PONG")]);
        assert_eq!(tracker.read(), "[\"message\", \"__keyevent@1__:expired\", \"x\"]");
        client.expect(&[("SELECT 1", "+OK"), ("EXISTS x t", ":1")]);
        client.call("CONFIG SET notify-keyspace-events ''");
    });
}

fn open(db: &Db, tables: &[&str], change: impl FnOnce(&mut ServerOptions)) -> Server {
    let catalogue = db.catalogue().unwrap();
    let open = |place: &&str| {
        let (name, engine) =
            (catalogue.in_place_of(place), if *place == "cache" { "mica" } else { "lsm" });
        db.table_or_create(name, engine, &Default::default()).unwrap()
    };
    let mut options =
        ServerOptions { listen: "127.0.0.1:0".parse().unwrap(), threads: 2, ..Default::default() };
    change(&mut options);
    Server::bind(tables.iter().map(open).collect(), options).unwrap()
}

/// Runs a test against a server of these tables.
fn with_server(server: Server, test: impl FnOnce(&mut Client)) {
    let (address, stop) = (server.local_addr(), server.stop_handle());
    let thread = std::thread::spawn(move || server.run());
    test(&mut Client::connect(address));
    stop.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn swapdb_is_durable_and_follows_the_tables_when_they_are_opened_again() {
    let scratch = tempfile::tempdir().unwrap();
    let tables = ["zero", "one", "two"];
    let reopen = |test: fn(&mut Client)| {
        let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
        with_server(open(&db, &tables, |_| ()), test);
        db.close().unwrap();
    };
    reopen(|client| {
        for number in ["0", "1", "2"] {
            client.call(&format!("SELECT {number}"));
            client.call(&format!("SET k {number}"));
        }
        client.expect(&[("SWAPDB 0 1", "+OK"), ("SWAPDB 1 2", "+OK")]);
    });
    let read = |client: &mut Client| {
        ["0", "1", "2"].map(|number| {
            client.call(&format!("SELECT {number}"));
            client.call("GET k")
        })
    };
    reopen(|client| {
        let found = ["0", "1", "2"].map(|number| {
            client.call(&format!("SELECT {number}"));
            client.call("GET k")
        });
        assert_eq!(found, ["\"1\"", "\"2\"", "\"0\""]);
        client.expect(&[("SELECT 0", "+OK"), ("RPUSH l a", ":1"), ("SWAPDB 0 2", "+OK")]);
    });
    let db = Db::open(scratch.path().join("s"), DbOptions::default()).unwrap();
    with_server(open(&db, &tables, |_| ()), |client| {
        assert_eq!(read(client), ["\"0\"", "\"2\"", "\"1\""]);
        client.expect(&[("LLEN l", ":1"), ("SWAPDB 1 2", "+OK")]);
    });
    // All tables are in their own places, so earlier versions can read the store again.
    assert!(db.catalogue().unwrap().places.is_empty());
    // Under the names, nothing has moved.
    assert_eq!(db.table("one").unwrap().get(b"k").unwrap().unwrap(), b"1");
    db.drop_table("one").unwrap();
}

#[test]
fn swapdb_is_refused_where_a_table_cannot_be_exchanged() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let memcached = |options: &mut ServerOptions| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
    };
    with_server(open(&db, &["zero", "one", "two", "cache"], memcached), |client| {
        for (command, expected) in [
            ("SWAPDB 0 1", "-ERR SWAPDB: memcached or UDP clients use the table 'zero'"),
            (
                "SWAPDB 1 3",
                "-ERR SWAPDB: the tables 'one' (lsm) and 'cache' (mica) are on different engines",
            ),
            ("SWAPDB 2 1", "+OK"),
            ("MULTI", "+OK"),
            ("SWAPDB 1 2", "+QUEUED"),
            ("EXEC", "[-ERR SWAPDB is not allowed in transactions and scripts]"),
        ] {
            assert_eq!(client.call(command), expected, "{command}");
        }
    });
}

#[test]
fn no_write_is_lost_between_two_databases_that_are_swapped_all_the_time() {
    let server = TestServer::start();
    let is_done = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (mut client, is_done) = (server.client(), is_done.clone());
        std::thread::spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                client.expect(&[("SWAPDB 0 1", "+OK")]);
            }
        })
    };
    let writers: Vec<_> = (0..3)
        .map(|number| {
            let mut client = server.client();
            std::thread::spawn(move || {
                client.call(&format!("SELECT {}", number % 2));
                for round in 0..400 {
                    client.call(&format!("SET {number}:{round} v"));
                    client.call("INCR n");
                    client.call(&format!("MSET {number}:a{round} v {number}:b{round} v"));
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    is_done.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    let mut client = server.client();
    let (mut keys, mut total) = (0, 0);
    for number in ["0", "1"] {
        client.call(&format!("SELECT {number}"));
        let count: u64 = client.call("DBSIZE")[1..].parse().unwrap();
        let increments: u64 = client.call("GET n").trim_matches('"').parse().unwrap();
        (keys, total) = (keys + count - 1, total + increments);
    }
    assert_eq!((keys, total), (3 * 400 * 3, 3 * 400));
}
