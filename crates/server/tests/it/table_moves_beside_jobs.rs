//! CONFIG MOVE beside what takes long: MIGRATE, scripts, backups, walks over all keys, the end of
//! the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use siltstone::{Db, DbOptions};
use siltstone_server::BackupOptions;
use siltstone_testkit::stop_guard::RunFlag;

use crate::support::{Client, TestServer, eventually};
use crate::table_moves::{bind, field, move_to, outcome, serve, with_server};
use crate::table_moves_beside::{HeldSwitch, begin_move};

#[test]
fn keys_that_migrate_during_a_move_are_gone_from_the_new_table() {
    let target = TestServer::start();
    with_server(&["default"], |connect| {
        let mut client = connect();
        for n in 0..500 {
            client.call(&format!("SET k{n} {n}"));
        }
        let port = target.address.port();
        // One MIGRATE after the other, over several moves.
        let running = RunFlag::default();
        let (running, migrated) = (&running, &AtomicU64::new(0));
        let mut migrating = connect();
        std::thread::scope(|scope| {
            let stop = running.clear_on_drop();
            scope.spawn(move || {
                for n in 0..500 {
                    if !running.is_set() {
                        break;
                    }
                    let command = format!("MIGRATE 127.0.0.1 {port} k{n} 0 60000");
                    assert_eq!(migrating.call(&command), "+OK", "{n}");
                    migrated.fetch_add(1, SeqCst);
                }
            });
            for table in ["silt", "trie", "lsm"] {
                move_to(&mut client, table);
            }
            eventually("some have migrated", || migrated.load(SeqCst) > 0);
            drop(stop);
        });
        let migrated = migrated.load(SeqCst);
        let mut there = target.client();
        for n in 0..500 {
            let (here, expected) = (client.call(&format!("GET k{n}")), format!("\"{n}\""));
            match n < migrated {
                true => {
                    assert_eq!((here.as_str(), there.call(&format!("GET k{n}"))), ("nil", expected))
                }
                false => assert_eq!(here, expected),
            }
        }
        client.expect(&[("DBSIZE", &format!(":{}", 500 - migrated))]);
    });
}

/// The script runs before the switch or after it, and as a whole.
#[test]
fn long_scripts_and_switches_wait_for_each_other() {
    const LOOP: &str = "for i = 1, 3000000 do end ";
    with_server(&["default"], |connect| {
        let (mut client, mut scripts) = (connect(), connect());
        client.expect(&[("SET a 0", "+OK"), ("SET b 0", "+OK")]);
        let running = RunFlag::default();
        let (running, done) = (&running, &AtomicU64::new(0));
        std::thread::scope(|scope| {
            let stop = running.clear_on_drop();
            scope.spawn(move || {
                // The two keys differ within a script alone.
                let script = format!(
                    "redis.call('incr', 'a') {LOOP} redis.call('incr', 'b') \
                     return redis.call('get', 'a') == redis.call('get', 'b')"
                );
                while running.is_set() {
                    let reply = scripts.call_bytes(&[b"EVAL", script.as_bytes(), b"0"]);
                    assert_eq!(reply, ":1");
                    done.fetch_add(1, SeqCst);
                }
            });
            for target in ["silt", "trie", "lsm", "silt"] {
                let before = done.load(SeqCst);
                move_to(&mut client, target);
                eventually("a script has run", || done.load(SeqCst) > before);
                let values = client.call("MGET a b");
                let (a, b) = values[1..values.len() - 1].split_once(", ").unwrap();
                assert_eq!(a, b, "{values}");
            }
            drop(stop);
        });
        let expected = format!("\"{}\"", done.load(SeqCst));
        client.expect(&[("GET a", &expected), ("GET b", &expected)]);
    });
}

#[test]
fn busy_script_delays_the_switch_until_it_is_killed() {
    with_server(&["default"], |connect| {
        let [mut client, mut busy, mut mover] = [(); 3].map(|()| connect());
        client.expect(&[("SET k v", "+OK"), ("CONFIG SET busy-reply-threshold 20", "+OK")]);
        let held = HeldSwitch::begin(connect());
        begin_move(&mut mover, "default", "silt", 2);
        busy.send(&[b"EVAL", b"while true do redis.call('get', 'k') end", b"1", b"k"]);
        eventually("it is busy", || client.call("PING").starts_with("-BUSY"));
        // The reply to MIGRATE comes later.
        let (mut migrating, target) = held.into_parts();
        drop(target);
        assert!(client.call("CONFIG MOVE ABORT").starts_with("-BUSY"));
        assert_eq!(client.call("SCRIPT KILL"), "+OK");
        assert!(busy.read().starts_with("-ERR Script killed"));
        assert!(migrating.read().starts_with("-IOERR"));
        assert_eq!(outcome(&mut mover), "ok");
        client.expect(&[("GET k", "\"v\""), ("SET k w", "+OK")]);
    });
}

#[test]
fn script_that_writes_many_keys_before_the_switch_loses_none() {
    with_server(&["default"], |connect| {
        let (mut client, mut mover) = (connect(), connect());
        client.expect(&[("SET k v", "+OK")]);
        let held = HeldSwitch::begin(connect());
        begin_move(&mut mover, "default", "silt", 2);
        let script = "for i = 1, 6000 do redis.call('set', 'k' .. i, i) end";
        assert_eq!(client.call_bytes(&[b"EVAL", script.as_bytes(), b"0"]), "nil");
        held.end();
        assert_eq!(outcome(&mut mover), "ok");
        client.expect(&[("DBSIZE", ":6002"), ("GET k6000", "\"6000\"")]);
        let copied: u64 = field(&mut client, "table_move_copied_changes").unwrap().parse().unwrap();
        assert!(copied >= 6000, "{copied}");
    });
}

#[test]
fn backups_beside_moves_are_whole_and_as_of_one_moment() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let (taken, copies) = (Arc::new(AtomicU64::new(0)), scratch.path().join("copies"));
    std::fs::create_dir(&copies).unwrap();
    let server = bind(&db, &["default", "other"], |options| {
        let (db, taken, copies) = (db.clone(), taken.clone(), copies.clone());
        let take = move || {
            let number = taken.load(SeqCst);
            db.checkpoint(copies.join(number.to_string()))?;
            taken.store(number + 1, SeqCst);
            Ok(())
        };
        options.backup =
            Some(BackupOptions { take: Arc::new(take), interval: None, archive: None });
    });
    serve(server, |connect| {
        let [mut client, mut writer, mut backups] = [(); 3].map(|()| connect());
        writer.expect(&[("MSET a 0 b 0", "+OK")]);
        let running = RunFlag::default();
        let running = &running;
        std::thread::scope(|scope| {
            let stop = running.clear_on_drop();
            scope.spawn(move || {
                for n in 1u64.. {
                    // In this order.
                    writer
                        .expect(&[(&format!("SET a {n}"), "+OK"), (&format!("SET b {n}"), "+OK")]);
                    if !running.is_set() {
                        break;
                    }
                }
            });
            scope.spawn(move || {
                while running.is_set() {
                    let reply = backups.call("BGSAVE");
                    assert!(
                        reply.starts_with("+Background") || reply.starts_with("-ERR"),
                        "{reply}"
                    );
                    std::thread::sleep(std::time::Duration::from_millis(3));
                }
            });
            for target in ["silt", "lsm", "trie", "lsm", "silt"] {
                move_to(&mut client, target);
            }
            eventually("backups are taken", || taken.load(SeqCst) > 2);
            drop(stop);
        });
        assert!(client.call("INFO persistence").contains("rdb_last_bgsave_status:ok"));
    });
    db.close().unwrap();
    let (mut last, mut engines) = (0, std::collections::BTreeSet::new());
    for number in 0..taken.load(SeqCst) {
        let copy = Db::open(copies.join(number.to_string()), DbOptions::default()).unwrap();
        engines.insert(copy.spec_of("default").unwrap().engine);
        let table = copy.table("default").unwrap();
        let [a, b]: [u64; 2] = ["a", "b"].map(|key| {
            let value = table.get(key.as_bytes()).unwrap().unwrap();
            String::from_utf8(value).unwrap().parse().unwrap()
        });
        assert!(a == b || a == b + 1, "{a} {b} in copy {number}");
        assert!(a >= last, "copy {number} has less than the one before");
        last = a;
    }
    println!("{} backups of {engines:?}", taken.load(SeqCst));
}

/// They run in slices, so the table may move between two.
#[test]
fn walks_over_all_keys_and_reports_beside_moves_are_complete() {
    const KEYS: usize = 20_000;
    with_server(&["default"], |connect| {
        let mut client = connect();
        for n in 0..KEYS {
            client.send(&[b"SET", format!("key:{n}").as_bytes(), b"v"]);
        }
        (0..KEYS).for_each(|_| assert_eq!(client.read(), "+OK"));
        let running = RunFlag::default();
        let running = &running;
        std::thread::scope(|scope| {
            let stop = running.clear_on_drop();
            let walk = |mut client: Client| {
                move || {
                    while running.is_set() {
                        let keys = client.call("KEYS key:*");
                        assert_eq!(keys.matches("key:").count(), KEYS);
                        client.expect(&[("DBSIZE", &format!(":{KEYS}"))]);
                        assert!(client.call("RANDOMKEY").starts_with("\"key:"));
                        assert!(client.call("INFO everything").contains("keyspace"));
                        assert!(client.call("MEMORY USAGE key:1").starts_with(':'));
                        assert!(client.call("CONFIG GET table.*").starts_with('['));
                    }
                }
            };
            let walkers: Vec<_> = (0..2).map(|_| scope.spawn(walk(connect()))).collect();
            for target in ["silt", "trie", "lsm"].repeat(2) {
                if walkers.iter().any(|walker| walker.is_finished()) {
                    break;
                }
                move_to(&mut client, target);
            }
            drop(stop);
        });
    });
}

#[test]
fn server_that_stops_during_a_move_leaves_the_old_table_and_nothing_else() {
    for is_copied in [true, false] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("s");
        let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
        serve(bind(&db, &["default"], |_| ()), |connect| {
            let mut client = connect();
            for n in 0..2000 {
                client.send(&[b"SET", format!("k{n}").as_bytes(), &[b'x'; 1000]]);
            }
            (0..2000).for_each(|_| assert_eq!(client.read(), "+OK"));
            let mut admin = connect();
            let held = HeldSwitch::begin(connect());
            if is_copied {
                begin_move(&mut admin, "default", "silt", 2001);
            } else {
                let reply = admin.call("CONFIG MOVE default silt");
                assert!(reply.starts_with("+Background move started"), "{reply}");
            }
            client.expect(&[("SET last v", "+OK")]);
            admin.send(&[b"SHUTDOWN"]);
            assert_eq!(admin.try_read(), None);
            drop(held);
        });
        // As the program does at its end.
        db.close().unwrap();
        drop(db);
        let names = std::fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name());
        let tables = names.filter(|name| name.to_string_lossy().starts_with("table-"));
        assert_eq!(tables.collect::<Vec<_>>(), ["table-default"]);
        let db = Db::open(&dir, DbOptions::default()).unwrap();
        assert_eq!(db.spec_of("default").unwrap().engine, "lsm");
        let table = db.table("default").unwrap();
        assert_eq!(table.len().unwrap(), 2002);
        assert!(table.contains_key(b"last").unwrap());
    }
}
