//! CONFIG MOVE beside commands that wait, watch, expire, or touch whole tables. A MIGRATE to a
//! silent target holds the switch back, so that each test acts between the copy and the switch.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use siltstone::{Db, DbOptions, Env};
use siltstone_engine::ManualClock;
use siltstone_testkit::stop_guard::RunFlag;

use crate::support::{Client, eventually};
use crate::table_moves::{MICA, bind, field, move_to, outcome, serve, with_server};

/// A MIGRATE that waits for its target, in the first table: no table switches meanwhile.
pub(crate) struct HeldSwitch {
    client: Client,
    target: TcpStream,
}

impl HeldSwitch {
    pub(crate) fn begin(mut client: Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        client.expect(&[("SET held v", "+OK")]);
        let words = ["MIGRATE", "127.0.0.1", &port, "held", "0", "600000"];
        client.send(&words.map(str::as_bytes));
        HeldSwitch { client, target: listener.accept().unwrap().0 }
    }

    /// Lets the switch happen; the key stays.
    pub(crate) fn end(self) {
        let (mut client, target) = self.into_parts();
        drop(target);
        let reply = client.read();
        assert!(reply.starts_with("-IOERR"), "{reply}");
    }

    /// The client that waits for its reply, and the target, which ends it when dropped.
    pub(crate) fn into_parts(self) -> (Client, TcpStream) {
        (self.client, self.target)
    }
}

/// Begins a move, and waits until at least as many rows are copied.
pub(crate) fn begin_move(client: &mut Client, table: &str, target: &str, rows: u64) {
    let reply = client.call(&format!("CONFIG MOVE {table} {target}"));
    assert!(reply.starts_with("+Background move started"), "{reply}");
    eventually("it is copied", || {
        field(client, "table_move_copied_rows").unwrap().parse::<u64>().unwrap() >= rows
    });
    assert_eq!(field(client, "table_move_in_progress").as_deref(), Some("1"));
}

#[test]
fn abort_before_the_switch_cancels_the_move_and_one_after_it_is_refused() {
    with_server(&["default"], |connect| {
        let mut client = connect();
        client.expect(&[("SET k v", "+OK")]);
        let held = HeldSwitch::begin(connect());
        begin_move(&mut client, "default", "silt", 2);
        // Longer than the switch waits at a time.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(field(&mut client, "table_move_in_progress").as_deref(), Some("1"));
        client.expect(&[("CONFIG MOVE ABORT", "+OK"), ("SET later v", "+OK")]);
        assert_eq!(outcome(&mut client), "cancelled");
        held.end();
        // The job ends while the switch waits for it.
        let held = HeldSwitch::begin(connect());
        begin_move(&mut client, "default", "silt", 3);
        client.expect(&[("CONFIG MOVE ABORT", "+OK")]);
        held.end();
        assert_eq!(outcome(&mut client), "cancelled");
        client.expect(&[
            ("DBSIZE", ":3"),
            ("HSET h f v", ":1"),
            ("DEL h", ":1"),
            ("FLUSHDB", "+OK"),
        ]);
        move_to(&mut client, "silt");
        client.expect(&[("CONFIG MOVE ABORT", "-ERR no table is moving")]);
    });
}

#[test]
fn writes_of_every_kind_between_copy_and_switch_are_in_the_new_table() {
    with_server(&["default"], |connect| {
        let mut client = connect();
        for n in 0..40 {
            client.call(&format!("SET k{n} {n}"));
        }
        client.expect(&[("SET ttl v EX 1000", "+OK"), ("SET kept v EX 1000", "+OK")]);
        let held = HeldSwitch::begin(connect());
        begin_move(&mut client, "default", "silt", 43);
        client.expect(&[
            ("DEL k0 k1", ":2"),
            ("UNLINK k2", ":1"),
            ("GETDEL k3", "\"3\""),
            ("RENAME k4 renamed", "+OK"),
            ("COPY k5 copied", ":1"),
            ("APPEND k6 x", ":2"),
            ("SETRANGE k7 3 x", ":4"),
            ("SETBIT k8 1 0", ":0"),
            ("INCRBY k9 5", ":14"),
            ("INCRBYFLOAT k10 0.5", "\"10.5\""),
            ("MSET k11 m k12 m", "+OK"),
            ("MSETNX n1 m n2 m", ":1"),
            ("SET k13 v PX 1", "+OK"),
            ("EXPIRE k14 1000", ":1"),
            ("PERSIST ttl", ":1"),
            ("EXPIRE kept 2000", ":1"),
            ("GETEX k15 EX 1000", "\"15\""),
            ("PEXPIRE k16 -1", ":1"),
            ("PFADD hll a", ":1"),
            ("MULTI", "+OK"),
            ("SET k17 tx", "+QUEUED"),
            ("DEL k18", "+QUEUED"),
            ("EXEC", "[+OK, :1]"),
        ]);
        let script = b"redis.call('set','k20','lua') redis.call('del','k21') return 1";
        assert_eq!(client.call_bytes(&[b"EVAL", script, b"2", b"k20", b"k21"]), ":1");
        eventually("k13 has expired", || client.call("EXISTS k13") == ":0");
        let keys = ["k", "renamed", "copied", "n1", "n2", "hll", "ttl", "kept"];
        let mut state = || -> Vec<String> {
            let all = (0..40).map(|n| format!("k{n}"));
            let all = all.chain(keys.map(str::to_owned));
            all.map(|key| {
                let ttl: i64 = client.call(&format!("PTTL {key}"))[1..].parse().unwrap();
                // Exact, but for the time that passes.
                format!(
                    "{key} {} {}",
                    client.call(&format!("GET {key}")),
                    (ttl + 900_000) / 1_000_000
                )
            })
            .collect()
        };
        let before = state();
        held.end();
        let mut other = connect();
        assert_eq!(outcome(&mut other), "ok");
        assert_eq!(state(), before);
        assert!(
            before.contains(&"k4 nil 0".to_owned())
                && before.contains(&"renamed \"4\" 0".to_owned())
        );
        assert!(before.contains(&"k14 \"14\" 1".to_owned()), "{before:?}");
        assert!(other.call("HSET h f v").starts_with("-ERR"), "it is not on silt");
    });
}

#[test]
fn collection_that_is_created_between_copy_and_switch_refuses_an_engine_without_them() {
    with_server(&["default"], |connect| {
        let mut client = connect();
        client.expect(&[("SET k v", "+OK")]);
        let held = HeldSwitch::begin(connect());
        begin_move(&mut client, "default", "silt", 2);
        client.expect(&[("RPUSH l a b", ":2")]);
        held.end();
        assert_eq!(outcome(&mut client), "failed");
        let reason = field(&mut client, "table_move_error").unwrap();
        assert!(reason.contains("which silt does not have"), "{reason}");
        client.expect(&[("LRANGE l 0 -1", "[\"a\", \"b\"]"), ("GET k", "\"v\"")]);
        client.expect(&[("CONFIG MOVE ABORT", "-ERR no table is moving"), ("RPUSH l c", ":3")]);
    });
}

#[test]
fn watches_and_transactions_over_a_switch_see_writes_and_no_move() {
    with_server(&["default"], |connect| {
        let [mut client, mut changed, mut unchanged, mut queued] = [(); 4].map(|()| connect());
        client.expect(&[("SET a 1", "+OK"), ("SET b 1", "+OK")]);
        let held = HeldSwitch::begin(connect());
        changed.expect(&[("WATCH a", "+OK")]);
        unchanged.expect(&[("WATCH b missing", "+OK")]);
        queued.expect(&[("MULTI", "+OK"), ("INCR b", "+QUEUED"), ("GET a", "+QUEUED")]);
        begin_move(&mut client, "default", "trie", 3);
        client.expect(&[("INCR a", ":2")]);
        held.end();
        assert_eq!(outcome(&mut client), "ok");
        for client in [&mut changed, &mut unchanged] {
            client.expect(&[("MULTI", "+OK"), ("GET a", "+QUEUED")]);
        }
        changed.expect(&[("EXEC", "nil")]);
        unchanged.expect(&[("EXEC", "[\"2\"]"), ("WATCH b", "+OK")]);
        queued.expect(&[("EXEC", "[:2, \"2\"]")]);
        unchanged.expect(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "nil")]);
    });
}

#[test]
fn commands_that_wait_over_a_switch_are_served_by_the_new_table() {
    with_server(&["default"], |connect| {
        let mut client = connect();
        client.expect(&[("XADD s 1-1 f v", "\"1-1\""), ("XGROUP CREATE s g $", "+OK")]);
        let held = HeldSwitch::begin(connect());
        let waits: [(&str, &str); 7] = [
            ("BLPOP list none 0", "[\"list\", \"a\"]"),
            ("BLMOVE from to LEFT RIGHT 0", "\"m\""),
            ("BZPOPMIN z 0", "[\"z\", \"m\", \"1\"]"),
            ("XREAD BLOCK 0 STREAMS s $", "[[\"s\", [[\"2-1\", [\"f\", \"w\"]]]]]"),
            ("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "[[\"s\", [[\"2-1\", [\"f\", \"w\"]]]]]"),
            ("BLPOP never 1.5", "nil"),
            ("WAIT 1 1500", ":0"),
        ];
        let mut waiting = Vec::new();
        for (command, reply) in waits {
            let mut client = connect();
            let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            client.send(&words);
            waiting.push((client, command, reply));
        }
        // With the MIGRATE.
        eventually("all wait", || client.call("INFO clients").contains("blocked_clients:8\r"));
        // Reads and writes between the copy and the switch, too.
        begin_move(&mut client, "default", "lsm memtable 128KiB", 3);
        client.expect(&[("RPUSH other x", ":1")]);
        held.end();
        assert_eq!(outcome(&mut client), "ok");
        client.expect(&[
            ("RPUSH list a", ":1"),
            ("RPUSH from m", ":1"),
            ("ZADD z 1 m", ":1"),
            ("XADD s 2-1 f w", "\"2-1\""),
        ]);
        for (mut client, command, reply) in waiting {
            assert_eq!(client.read(), reply, "{command}");
        }
        client.expect(&[
            ("LRANGE to 0 -1", "[\"m\"]"),
            ("EXISTS list from z never", ":0"),
            ("LRANGE other 0 -1", "[\"x\"]"),
            ("XLEN s", ":2"),
        ]);
        assert!(client.call("INFO clients").contains("blocked_clients:0\r"));
    });
}

#[test]
fn tracked_keys_are_invalidated_by_writes_and_not_by_the_switch() {
    with_server(&["default"], |connect| {
        let [mut client, mut tracker, mut broadcast] = [(); 3].map(|()| connect());
        client.expect(&[("MSET a 1 b 1 c 1", "+OK")]);
        tracker.call("HELLO 3");
        tracker.expect(&[("CLIENT TRACKING ON", "+OK"), ("MGET a b c", "[\"1\", \"1\", \"1\"]")]);
        broadcast.call("HELLO 3");
        broadcast.expect(&[("CLIENT TRACKING ON BCAST PREFIX b", "+OK")]);
        let held = HeldSwitch::begin(connect());
        begin_move(&mut client, "default", "silt", 4);
        client.expect(&[("SET a 2", "+OK")]);
        assert_eq!(tracker.read(), "[\"invalidate\", [\"a\"]]");
        held.end();
        assert_eq!(outcome(&mut client), "ok");
        tracker.expect(&[("PING", "+PONG")]);
        broadcast.expect(&[("PING", "+PONG")]);
        client.expect(&[("SET b 2", "+OK")]);
        assert_eq!(tracker.read(), "[\"invalidate\", [\"b\"]]");
        assert_eq!(broadcast.read(), "[\"invalidate\", [\"b\"]]");
        // Reads of the new table are tracked.
        tracker.expect(&[("GET a", "\"2\"")]);
        client.expect(&[("DEL a", ":1"), ("FLUSHDB", "+OK")]);
        assert_eq!(tracker.read(), "[\"invalidate\", [\"a\"]]");
        assert_eq!(tracker.read(), "[\"invalidate\", nil]");
    });
}

#[test]
fn keys_that_expire_around_a_switch_expire_once() {
    let scratch = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_000_000));
    let mut options = DbOptions::default();
    options.env = Env { clock: clock.clone(), ..options.env };
    let db = Db::open_or_create(scratch.path().join("s"), options).unwrap();
    let of_server = clock.clone();
    serve(bind(&db, &["default"], move |options| options.clock = of_server), |connect| {
        let (mut client, mut listener) = (connect(), connect());
        client.call("CONFIG SET notify-keyspace-events Ex");
        listener.call("SUBSCRIBE __keyevent@0__:expired");
        for (key, ms) in [("before", 1000), ("at", 2000), ("after", 3000), ("late", 900_000)] {
            client.expect(&[(&format!("SET {key} v PX {ms}"), "+OK")]);
        }
        let mut expired = |key: &str| {
            assert_eq!(
                listener.read(),
                format!("[\"message\", \"__keyevent@0__:expired\", \"{key}\"]")
            );
        };
        clock.set(1_001_001);
        expired("before");
        let held = HeldSwitch::begin(connect());
        begin_move(&mut client, "default", "silt", 4);
        // Between the copy and the switch.
        client.expect(&[("SET between v PX 900", "+OK"), ("GET at", "\"v\"")]);
        clock.set(1_002_001);
        expired("between");
        expired("at");
        held.end();
        assert_eq!(outcome(&mut client), "ok");
        client.expect(&[
            ("MGET before at between", "[nil, nil, nil]"),
            ("PTTL after", ":999"),
            ("PTTL late", ":897999"),
            ("DBSIZE", ":3"),
        ]);
        clock.set(1_003_001);
        expired("after");
        client.expect(&[("GET after", "nil"), ("DBSIZE", ":2"), ("PERSIST late", ":1")]);
        move_to(&mut client, "lsm");
        clock.set(9_000_000);
        client.expect(&[("GET late", "\"v\""), ("PTTL late", ":-1"), ("DBSIZE", ":2")]);
    });
    db.close().unwrap();
}

#[test]
fn swapdb_between_copy_and_switch_moves_the_table_under_its_new_number() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    serve(bind(&db, &["default", "other"], |_| ()), |connect| {
        let (mut client, mut second) = (connect(), connect());
        second.expect(&[("SELECT 1", "+OK"), ("SET k other", "+OK"), ("WATCH k", "+OK")]);
        client.expect(&[("SET k default", "+OK")]);
        let held = HeldSwitch::begin(connect());
        begin_move(&mut client, "default", "lsm memtable 128KiB", 2);
        client.expect(&[("SWAPDB 0 1", "+OK"), ("GET k", "\"other\""), ("SET new here", "+OK")]);
        second.expect(&[("GET k", "\"default\""), ("SET new there", "+OK")]);
        held.end();
        assert_eq!(outcome(&mut client), "ok");
        client.expect(&[("MGET k new", "[\"other\", \"here\"]"), ("RPUSH l x", ":1")]);
        second.expect(&[("MGET k new held", "[\"default\", \"there\", \"v\"]")]);
        let options = second.call("CONFIG GET table.*");
        assert!(options.contains("\"table.default.memtable\", \"128KiB\""), "{options}");
        second.expect(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "nil")]);
        // And back, with the moved table.
        client.expect(&[("SWAPDB 1 0", "+OK"), ("GET k", "\"default\""), ("SET k again", "+OK")]);
        second.expect(&[("GET k", "\"other\""), ("SWAPDB 0 1", "+OK")]);
        client.expect(&[("DEL l", ":1"), ("FLUSHDB", "+OK"), ("SET k other", "+OK")]);
        client.expect(&[("CONFIG MOVE other silt", "+Background move started")]);
        assert_eq!(outcome(&mut client), "ok");
        assert!(second.call("SWAPDB 0 1").contains("are on different engines"));
    });
    db.close().unwrap();
    drop(db);
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    assert_eq!(db.catalogue().unwrap().in_place_of("default"), "other");
    for (table, engine, value) in [("default", "lsm", "again"), ("other", "silt", "other")] {
        assert_eq!(db.spec_of(table).unwrap().engine, engine);
        let table = db.table(table).unwrap();
        assert_eq!(table.get(b"k").unwrap().as_deref(), Some(value.as_bytes()));
    }
}

#[test]
fn flushes_between_copy_and_switch_leave_only_later_keys() {
    with_server(&["default", "other"], |connect| {
        let mut client = connect();
        for (flush, target) in
            [("FLUSHDB", "silt"), ("FLUSHALL", "trie"), ("FLUSHALL ASYNC", "lsm")]
        {
            client.expect(&[("MSET a 1 b 1", "+OK")]);
            let held = HeldSwitch::begin(connect());
            begin_move(&mut client, "default", target, 3);
            client.expect(&[(flush, "+OK"), ("SET b 2", "+OK"), ("SET c 1", "+OK")]);
            held.end();
            assert_eq!(outcome(&mut client), "ok");
            client.expect(&[
                ("MGET a b c", "[nil, \"2\", \"1\"]"),
                ("DBSIZE", ":2"),
                ("FLUSHALL", "+OK"),
            ]);
        }
    });
}

/// The source drops rows without a write.
#[test]
fn cache_that_evicts_moves_with_its_present_values() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let small = [("mode", "cache"), ("memory", "1MiB"), ("partitions", "1")];
    let small = small.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    db.table_or_create("default", "mica", &small).unwrap();
    serve(bind(&db, &["default"], |_| ()), |connect| {
        let (mut client, mut writer) = (connect(), connect());
        let running = RunFlag::default();
        std::thread::scope(|scope| {
            let stop = running.clear_on_drop();
            let (running, writer) = (&running, &mut writer);
            let written = scope.spawn(move || {
                let padding = "x".repeat(900);
                let mut last = vec![0; 3000];
                for step in 1u64.. {
                    let key = (step * 7 % 3000) as usize;
                    writer.expect(&[(&format!("SET k{key} {step}:{padding}"), "+OK")]);
                    last[key] = step;
                    if step > 4000 && !running.is_set() {
                        break;
                    }
                }
                last
            });
            eventually("it is full", || client.call("DBSIZE")[1..].parse::<u64>().unwrap() > 500);
            move_to(&mut client, "silt");
            drop(stop);
            let last = written.join().unwrap();
            let mut found = 0;
            for (key, step) in last.iter().enumerate() {
                let value = client.call(&format!("GET k{key}"));
                if value != "nil" {
                    assert!(value.starts_with(&format!("\"{step}:")), "k{key} of {step}");
                    found += 1;
                }
            }
            assert!(found > 500, "{found}");
        });
        client.expect(&[("FLUSHDB", "+OK"), ("SET k v", "+OK")]);
        move_to(&mut client, MICA);
        client.expect(&[("GET k", "\"v\"")]);
    });
    db.close().unwrap();
}
