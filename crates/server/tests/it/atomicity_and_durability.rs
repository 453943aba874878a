//! Atomicity of commands and transactions, and durability of acknowledged writes, under
//! concurrency.

use std::sync::atomic::Ordering::SeqCst;

use crate::both_servers::on_both;
use crate::support::{Client, TestServer, encode, eventually};
use siltstone_server::Fsync;

#[test]
fn concurrent_increments_are_not_lost() {
    let server = TestServer::start();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let mut client = server.client();
            scope.spawn(move || {
                client.send_raw(&encode(&[b"INCR", b"sum"]).repeat(500));
                for _ in 0..500 {
                    assert!(client.read().starts_with(':'));
                }
                for _ in 0..50 {
                    client.call("APPEND text x");
                }
            });
        }
    });
    server.client().expect(&[("GET sum", "\"4000\""), ("STRLEN text", ":400")]);
}

#[test]
fn set_during_an_increment_is_not_lost() {
    let server = TestServer::start();
    std::thread::scope(|scope| {
        let (mut setter, mut adder) = (server.client(), server.client());
        scope.spawn(move || {
            for round in 1..=300 {
                assert_eq!(setter.call(&format!("SET n {}", round * 1_000_000)), "+OK");
                let seen: i64 = setter.call("GET n").trim_matches('"').parse().unwrap();
                assert!(seen >= round * 1_000_000, "round {round}: {seen}");
            }
        });
        scope.spawn(move || {
            for _ in 0..1000 {
                adder.call("INCR n");
            }
        });
    });
}

#[test]
fn only_one_concurrent_setnx_succeeds() {
    let server = TestServer::start();
    for round in 0..50 {
        let wins: usize = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|_| {
                    let mut client = server.client();
                    scope.spawn(move || {
                        usize::from(client.call(&format!("SETNX l{round} x")) == ":1")
                    })
                })
                .collect();
            clients.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(wins, 1);
    }
}

#[test]
fn transactions_queue_and_run_commands() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("DISCARD", "+OK"),
        ("SET n 1", "+OK"),
        ("MULTI", "+OK"),
        ("INCR n", "+QUEUED"),
        ("GET n", "+QUEUED"),
        ("SET text abc", "+QUEUED"),
        ("INCR text", "+QUEUED"),
        ("DEL text", "+QUEUED"),
        ("EXISTS text", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("SETEX gone 100 x", "+QUEUED"),
        ("EXPIRE gone -1", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        (
            "EXEC",
            "[:2, \"2\", +OK, -ERR value is not an integer or out of range, :1, :0, [\"n\"], +OK, \
             :1, :1]",
        ),
        ("GET n", "\"2\""),
        ("MULTI", "+OK"),
        ("NOPE", "-ERR unknown command 'NOPE', with args beginning with: "),
        ("SET n 9", "+QUEUED"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("GET n", "\"2\""),
        ("MULTI", "+OK"),
        ("EXEC", "[]"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("PING", "+QUEUED"),
        ("EXEC", "[+PONG]"),
        ("MULTI", "+OK"),
        (
            "EXEC now",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' \
             command",
        ),
        ("EXEC", "-ERR EXEC without MULTI"),
    ]);
    let writes = server.engine.writes.load(SeqCst);
    client.expect(&[
        ("MULTI", "+OK"),
        ("MSET a 1 b 2", "+QUEUED"),
        ("RENAME a c", "+QUEUED"),
        ("GET c", "+QUEUED"),
        ("EXEC", "[+OK, +OK, \"1\"]"),
    ]);
    assert_eq!(server.engine.writes.load(SeqCst), writes + 1, "one batch");
    client.expect(&[
        ("MULTI", "+OK"),
        ("SET here 1", "+QUEUED"),
        ("SELECT 1", "+QUEUED"),
        ("SET there 1", "+QUEUED"),
    ]);
    assert!(client.call("EXEC").starts_with("-EXECABORT Transaction discarded because it writes"));
    client.expect(&[("GET here", "nil"), ("SELECT 1", "+OK"), ("GET there", "nil")]);
}

/// Waits until a key would have expired, and returns its value, and by how much its time to live
/// and the time have changed meanwhile. Redis 7.0 has no `os.clock`, but its TIME goes on.
const WAIT_FOR_EXPIRY: &str = "
    local before = redis.call('PTTL', KEYS[1])
    if before < 0 then return 'late' end
    local has_clock, clock = pcall(function() return os.clock end)
    if not has_clock then
        clock = function()
            local now = redis.call('TIME')
            return now[1] + now[2] / 1000000
        end
    end
    local time, began = redis.call('TIME'), clock()
    while clock() - began < (before + 20) / 1000 do end
    local now = redis.call('TIME')
    return {
        redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]) - before,
        now[1] - time[1], now[2] - time[2],
    }";

/// Replies to that script, alone and between two GETs in a transaction.
fn wait_for_expiry(client: &mut Client) -> [String; 2] {
    let wait =
        |client: &mut Client| client.call_bytes(&[b"EVAL", WAIT_FOR_EXPIRY.as_bytes(), b"1", b"k"]);
    // On a slow machine the key may have expired before.
    let alone = loop {
        client.call("SET k v PX 100");
        let reply = wait(client);
        if reply != "\"late\"" {
            break reply;
        }
    };
    assert_eq!(client.call("GET k"), "nil");
    let between = loop {
        client.expect(&[("SET k v PX 100", "+OK"), ("MULTI", "+OK"), ("GET k", "+QUEUED")]);
        assert_eq!(wait(client), "+QUEUED");
        client.call("GET k");
        let reply = client.call("EXEC");
        if !reply.starts_with("[nil") {
            break reply;
        }
    };
    [alone, between]
}

#[test]
fn nothing_expires_within_a_script_or_a_transaction() {
    on_both(|connect| {
        let [alone, between] = wait_for_expiry(&mut connect());
        assert!(alone.starts_with("[\"v\", "), "{alone}");
        assert!(between.starts_with("[\"v\", [\"v\", "), "{between}");
        assert!(between.ends_with(", \"v\"]"), "{between}");
    });
    // Since Redis 7.2 all commands see one time.
    let [alone, between] = wait_for_expiry(&mut TestServer::start().client());
    assert_eq!(alone, "[\"v\", :0, :0, :0]");
    assert_eq!(between, "[\"v\", [\"v\", :0, :0, :0], \"v\"]");
}

#[test]
fn script_that_is_aborted_after_a_write_discards_its_transaction() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("CONFIG SET busy-reply-threshold 20", "+OK"), ("MULTI", "+OK")]);
    client.call("SET before 1");
    let script = b"redis.call('SET', KEYS[1], 'half') while true do end";
    assert_eq!(client.call_bytes(&[b"EVAL", script, b"1", b"k"]), "+QUEUED");
    client.call("SET after 1");
    let reply = client.call("EXEC");
    assert!(reply.starts_with("-EXECABORT Transaction discarded: the script ran"), "{reply}");
    client
        .expect(&[("MGET before k after", "[nil, nil, nil]"), ("EXEC", "-ERR EXEC without MULTI")]);
}

#[test]
fn changed_watched_key_aborts_a_transaction() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    for (prepare, disturb, result) in [
        ("SET k 1", "SET k 2", "nil"),
        ("SET k 1", "GET k", "[+OK]"),
        ("SET k 1", "DEL k", "nil"),
        ("DEL k", "SET k 1", "nil"),
        ("SET k 1", "INCR k", "nil"),
        ("SET k 1", "EXPIRE k 100", "nil"),
        ("SET k 1", "FLUSHDB", "nil"),
        ("SET k 1", "RENAME k j", "nil"),
        ("SET k 1", "SET elsewhere 1", "[+OK]"),
        ("SET k 1", "MSET j 1 k 1", "nil"),
        ("DEL k", "DEL k", "[+OK]"),
    ] {
        client.call(prepare);
        client.expect(&[("WATCH k j2", "+OK"), ("MULTI", "+OK"), ("SET done 1", "+QUEUED")]);
        other.call(disturb);
        assert_eq!(client.call("EXEC"), result, "{disturb}");
    }
    client.expect(&[("SET k 1 PX 1000", "+OK"), ("WATCH k", "+OK"), ("MULTI", "+OK")]);
    eventually("expired", || other.call("EXISTS k") == ":0");
    client.expect(&[("PING", "+QUEUED"), ("EXEC", "nil")]);
    client.expect(&[("SET k 1", "+OK"), ("WATCH k", "+OK"), ("UNWATCH", "+OK")]);
    other.call("SET k 2");
    client.expect(&[
        ("MULTI", "+OK"),
        ("WATCH k", "-ERR WATCH inside MULTI is not allowed"),
        ("PING", "+QUEUED"),
        ("EXEC", "[+PONG]"),
    ]);
}

#[test]
fn unwatch_in_a_transaction_is_queued() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.expect(&[("WATCH k", "+OK"), ("MULTI", "+OK"), ("UNWATCH", "+QUEUED")]);
    other.expect(&[("SET k theirs", "+OK")]);
    client.expect(&[
        ("SET k mine", "+QUEUED"),
        ("EXEC", "nil"),
        ("GET k", "\"theirs\""),
        ("MULTI", "+OK"),
        ("UNWATCH", "+QUEUED"),
        ("EXEC", "[+OK]"),
    ]);
}

#[test]
fn concurrent_transfers_keep_the_sum() {
    let server = TestServer::start();
    server.client().call("MSET a 1000 b 1000");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                for _ in 0..100 {
                    client.call("WATCH a b");
                    let a: i64 = client.call("GET a").trim_matches('"').parse().unwrap();
                    let b: i64 = client.call("GET b").trim_matches('"').parse().unwrap();
                    client.call("MULTI");
                    client.call(&format!("SET a {}", a - 1));
                    client.call(&format!("SET b {}", b + 1));
                    if client.call("EXEC") != "nil" {
                        assert_eq!(a + b, 2000);
                    }
                }
            });
        }
    });
    let mut client = server.client();
    let balance = |reply: String| reply.trim_matches('"').parse::<i64>().unwrap();
    assert_eq!(balance(client.call("GET a")) + balance(client.call("GET b")), 2000);
}

#[test]
fn reads_of_a_transaction_are_consistent() {
    let server = TestServer::start();
    server.client().expect(&[("MSET a 0 b 0", "+OK")]);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let mut writer = server.client();
                scope.spawn(move || {
                    for round in 1..=1500 {
                        assert_eq!(writer.call(&format!("MSET a {round} b {round}")), "+OK");
                    }
                })
            })
            .collect();
        let mut reader = server.client();
        while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            // Other clients can write in between.
            reader.send_raw(
                &[
                    encode(&[b"MULTI"]),
                    encode(&[b"GET", b"a"]),
                    encode(&[b"STRLEN", b"else"]).repeat(20),
                    encode(&[b"GET", b"b"]),
                    encode(&[b"EXEC"]),
                ]
                .concat(),
            );
            assert_eq!(reader.read(), "+OK");
            (0..22).for_each(|_| assert_eq!(reader.read(), "+QUEUED"));
            let answer = reader.read();
            let numbers: Vec<_> = answer.split('"').skip(1).step_by(2).collect();
            assert_eq!(numbers.len(), 2, "{answer}");
            assert_eq!(numbers[0], numbers[1], "{answer}");
        }
    });
}

/// A client never sees some keys of an MSET changed and others not.
#[test]
fn reads_of_several_keys_are_of_one_moment() {
    let server = TestServer::start();
    let keys: Vec<String> = (0..16).map(|number| format!("k{number}")).collect();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut client = server.client();
            let (keys, is_done) = (&keys, &is_done);
            scope.spawn(move || {
                for round in 0.. {
                    let value = format!("v{round}");
                    let pairs = keys.iter().flat_map(|key| [key.as_bytes(), value.as_bytes()]);
                    let words: Vec<&[u8]> = [&b"MSET"[..]].into_iter().chain(pairs).collect();
                    assert_eq!(client.call_bytes(&words), "+OK");
                    if is_done.load(SeqCst) {
                        break;
                    }
                }
            });
        }
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let mut client = server.client();
                let line = format!("MGET {}", keys.join(" "));
                scope.spawn(move || {
                    (0..1500).find_map(|_| {
                        let reply = client.call(&line);
                        let mut values = reply.trim_matches(['[', ']']).split(", ");
                        let first = values.next().unwrap();
                        (!values.all(|value| value == first)).then_some(reply)
                    })
                })
            })
            .collect();
        let torn: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        is_done.store(true, SeqCst);
        assert_eq!(torn, [const { None }; 4]);
    });
}

#[test]
fn fsync_always_syncs_once_per_pipeline_before_the_replies() {
    let server = TestServer::with(|options| options.fsync = Fsync::Always);
    let mut client = server.client();
    assert_eq!(client.call("SET k v"), "+OK");
    assert_eq!(server.engine.syncs.load(SeqCst), 1);
    client
        .send_raw(&[encode(&[b"SET", b"k", b"v"]), encode(&[b"INCR", b"n"])].concat().repeat(200));
    for _ in 0..400 {
        client.read();
    }
    assert!(server.engine.syncs.load(SeqCst) < 50);
    let before = server.engine.syncs.load(SeqCst);
    assert_eq!(client.call("GET k"), "\"v\"");
    assert_eq!(server.engine.syncs.load(SeqCst), before, "reads need no sync");
}

#[test]
fn failed_sync_retracts_acknowledgements() {
    let server = TestServer::with(|options| options.fsync = Fsync::Always);
    let mut client = server.client();
    assert_eq!(client.call("PING"), "+PONG");
    server.engine.fail_syncs.store(true, SeqCst);
    client.send_raw(&encode(&[b"SET", b"k", b"v"]).repeat(3));
    let reply = client.read();
    assert!(reply.starts_with("-ERR the write may not be durable"), "{reply}");
    assert_eq!(client.try_read(), None);
    server.engine.fail_syncs.store(false, SeqCst);
}

#[test]
fn fsync_everysec_syncs_in_the_background() {
    let server = TestServer::with(|options| options.fsync = Fsync::EverySecond);
    assert_eq!(server.client().call("SET k v"), "+OK");
    eventually("a sync", || server.engine.syncs.load(SeqCst) == 1);
}

#[test]
fn store_errors_have_redis_codes() {
    let server = TestServer::start();
    let mut client = server.client();
    server.engine.disk_full.store(true, SeqCst);
    assert!(client.call("SET k v").starts_with("-MISCONF the disk is full"));
    server.engine.disk_full.store(false, SeqCst);
    assert_eq!(client.call("SET k v"), "+OK");
    server.engine.fail_writes.store(true, SeqCst);
    for command in ["SET k w", "INCR n", "MSET a 1 b 2", "DEL k", "FLUSHDB"] {
        assert!(client.call(command).starts_with("-READONLY"), "{command}");
    }
    client.expect(&[("MULTI", "+OK"), ("SET k w", "+QUEUED")]);
    assert!(client.call("EXEC").starts_with("-READONLY"));
    assert_eq!(client.call("GET k"), "\"v\"");
}

#[test]
fn shutdown_answers_received_commands_and_syncs() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("PING"), "+PONG");
    client.send_raw(&encode(&[b"INCR", b"n"]).repeat(5000));
    let engine = server.engine.clone();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let stopping = std::thread::spawn(move || server.finish());
    for i in 1..=5000 {
        assert_eq!(client.read(), format!(":{i}"));
    }
    assert_eq!(client.try_read(), None);
    stopping.join().unwrap().unwrap();
    assert!(engine.syncs.load(SeqCst) > 0);
}
