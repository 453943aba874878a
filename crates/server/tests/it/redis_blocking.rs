//! Blocking pops over real connections: replies, order, types, transactions, watched keys.

use crate::both_servers::{on_both, park};
use crate::support::{Client, TestServer, eventually};

#[test]
fn pops_that_find_something_do_not_wait() {
    on_both(|connect| {
        let mut client = connect();
        client.expect(&[
            ("RPUSH b 1 2 3 4 5 6 7", ":7"),
            ("BLPOP a b 0", "[\"b\", \"1\"]"),
            ("BRPOP b a 0", "[\"b\", \"7\"]"),
            ("BLMOVE b c LEFT RIGHT 0", "\"2\""),
            ("BRPOPLPUSH b c 0", "\"6\""),
            ("LRANGE c 0 -1", "[\"6\", \"2\"]"),
            ("BLMPOP 0 2 a b LEFT COUNT 2", "[\"b\", [\"3\", \"4\"]]"),
            ("BLMPOP 0 1 b RIGHT", "[\"b\", [\"5\"]]"),
            ("EXISTS b", ":0"),
            ("ZADD z 1 x 2 y 3 z 4 w", ":4"),
            ("BZPOPMIN a z 0", "[\"z\", \"x\", \"1\"]"),
            ("BZPOPMAX z 0", "[\"z\", \"w\", \"4\"]"),
            ("BZMPOP 0 2 a z MIN COUNT 5", "[\"z\", [[\"y\", \"2\"], [\"z\", \"3\"]]]"),
            ("EXISTS z", ":0"),
        ]);
        client.call("HELLO 3");
        client.expect(&[
            ("ZADD z 1.5 x 2 y", ":2"),
            ("BZPOPMIN z 0", "[\"z\", \"x\", ,1.5]"),
            ("BZMPOP 0 1 z MAX", "[\"z\", [[\"y\", ,2]]]"),
        ]);
    });
}

#[test]
fn arguments_are_checked_before_anything_waits() {
    on_both(|connect| {
        let mut client = connect();
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        client.expect(&[
            ("SET s v", "+OK"),
            ("BLPOP a x", "-ERR timeout is not a float or out of range"),
            ("BLPOP a -1", "-ERR timeout is negative"),
            ("BLPOP a nan", "-ERR timeout is not a float or out of range"),
            ("BLPOP a", "-ERR wrong number of arguments for 'blpop' command"),
            ("BLPOP a s 0", wrong_type),
            ("BRPOP s 0", wrong_type),
            ("BLMOVE s a LEFT LEFT 0", wrong_type),
            ("BLMOVE a b UP LEFT 0", "-ERR syntax error"),
            ("BRPOPLPUSH s a 0", wrong_type),
            ("BZPOPMIN s 0", wrong_type),
            ("BLMPOP 0 0 a LEFT", "-ERR numkeys should be greater than 0"),
            ("BLMPOP 0 1 a UP", "-ERR syntax error"),
            ("BLMPOP 0 2 a LEFT", "-ERR syntax error"),
            ("BLMPOP 0 1 a LEFT COUNT 0", "-ERR count should be greater than 0"),
            ("BLMPOP x 1 a LEFT", "-ERR timeout is not a float or out of range"),
            ("BZMPOP 0 1 a UP", "-ERR syntax error"),
            ("RPUSH l 1", ":1"),
            ("BLMOVE l s LEFT LEFT 0", wrong_type),
            ("LLEN l", ":1"),
            ("BLPOP none 0.01", "nil"),
            ("BLMOVE none l LEFT LEFT 0.01", "nil"),
            ("BLMPOP 0.01 1 none LEFT", "nil"),
            ("BZPOPMAX none 0.01", "nil"),
            ("BZMPOP 0.01 1 none MIN", "nil"),
            ("MULTI", "+OK"),
            ("BLPOP none 0", "+QUEUED"),
            ("BLMOVE none l LEFT LEFT 0", "+QUEUED"),
            ("BLMPOP 0 1 none LEFT", "+QUEUED"),
            ("BZPOPMIN none 0", "+QUEUED"),
            ("EXEC", "[nil, nil, nil, nil]"),
        ]);
    });
}

#[test]
fn waiting_pops_are_served_in_order_before_the_writer_goes_on() {
    on_both(|connect| {
        let mut writer = connect();
        let mut waiting: Vec<Client> = (0..4).map(|_| connect()).collect();
        let requests =
            ["BLPOP a b 0", "BRPOP b 0", "BLMOVE a c RIGHT LEFT 0", "BLMPOP 0 1 a LEFT COUNT 2"];
        for (number, client) in waiting.iter_mut().enumerate() {
            park(client, &mut writer, requests[number], number + 1);
        }
        writer.expect(&[("RPUSH a 1", ":1"), ("EXISTS a", ":0")]);
        assert_eq!(waiting[0].read(), "[\"a\", \"1\"]");
        writer.expect(&[("RPUSH b 2", ":1"), ("EXISTS b", ":0")]);
        assert_eq!(waiting[1].read(), "[\"b\", \"2\"]");
        writer.expect(&[("RPUSH a 3 4 5 6", ":4"), ("LRANGE a 0 -1", "[\"5\"]")]);
        assert_eq!(waiting[2].read(), "\"6\"");
        assert_eq!(waiting[3].read(), "[\"a\", [\"3\", \"4\"]]");
        writer.expect(&[("LRANGE c 0 -1", "[\"6\"]")]);
    });
}

#[test]
fn one_push_can_serve_a_chain_of_clients() {
    on_both(|connect| {
        let (mut mover, mut popper, mut writer) = (connect(), connect(), connect());
        park(&mut mover, &mut writer, "BLMOVE a b LEFT LEFT 0", 1);
        park(&mut popper, &mut writer, "BLPOP b 0", 2);
        writer.expect(&[("RPUSH a x", ":1"), ("EXISTS a b", ":0")]);
        assert_eq!((mover.read(), popper.read()), ("\"x\"".into(), "[\"b\", \"x\"]".into()));
    });
}

#[test]
fn other_types_do_not_end_a_wait() {
    on_both(|connect| {
        let (mut list, mut set, mut writer) = (connect(), connect(), connect());
        park(&mut list, &mut writer, "BLPOP a 0", 1);
        park(&mut set, &mut writer, "BZPOPMIN a 0", 2);
        writer.expect(&[
            ("SET a v", "+OK"),
            ("DEL a", ":1"),
            ("MULTI", "+OK"),
            ("RPUSH a 1", "+QUEUED"),
            ("DEL a", "+QUEUED"),
            ("ZADD a 1 x", "+QUEUED"),
            ("EXEC", "[:1, :1, :1]"),
        ]);
        assert_eq!(set.read(), "[\"a\", \"x\", \"1\"]");
        writer.expect(&[("EXISTS a", ":0"), ("RPUSH a 2", ":1")]);
        assert_eq!(list.read(), "[\"a\", \"2\"]");
        // The wrong type of a target ends the wait, and the element stays.
        writer.expect(&[("SET t v", "+OK")]);
        park(&mut list, &mut writer, "BLMOVE a t LEFT LEFT 0", 1);
        writer.expect(&[("RPUSH a 3", ":1"), ("LRANGE a 0 -1", "[\"3\"]")]);
        assert!(list.read().starts_with("-WRONGTYPE"));
    });
}

#[test]
fn keys_that_are_moved_or_copied_end_a_wait() {
    on_both(|connect| {
        let (mut client, mut writer) = (connect(), connect());
        for (prepare, command) in [
            ("RPUSH other x", "RENAME other a"),
            ("RPUSH other x", "COPY other a"),
            ("PING", "LMOVE other a LEFT LEFT"),
        ] {
            writer.call(prepare);
            park(&mut client, &mut writer, "BRPOP a 0", 1);
            writer.call(command);
            assert_eq!(client.read(), "[\"a\", \"x\"]", "{command}");
        }
    });
}

#[test]
fn a_taken_element_changes_watched_keys() {
    on_both(|connect| {
        let (mut blocked, mut watcher, mut writer) = (connect(), connect(), connect());
        park(&mut blocked, &mut writer, "BRPOPLPUSH source target 0", 1);
        watcher.expect(&[("WATCH target", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED")]);
        writer.expect(&[("LPUSH source x", ":1")]);
        watcher.expect(&[("EXEC", "nil")]);
        assert_eq!(blocked.read(), "\"x\"");
    });
}

#[test]
fn collections_have_keyspace_events() {
    on_both(|connect| {
        let (mut client, mut subscriber, mut blocked) = (connect(), connect(), connect());
        client.expect(&[("CONFIG SET notify-keyspace-events KA", "+OK")]);
        subscriber.call("PSUBSCRIBE __keyspace*");
        let mut expect = |command: &str, events: &[(&str, &str)]| {
            for (event, key) in events {
                let message = format!(
                    "[\"pmessage\", \"__keyspace*\", \"__keyspace@0__:{key}\", \"{event}\"]"
                );
                assert_eq!(subscriber.read(), message, "{command}");
            }
        };
        for (command, events) in [
            ("RPUSH l 1 2 3", &[("rpush", "l")][..]),
            ("LPUSHX l 0", &[("lpush", "l")]),
            ("LSET l 0 9", &[("lset", "l")]),
            ("LPOP l", &[("lpop", "l")]),
            ("LREM l 0 2", &[("lrem", "l")]),
            ("RPOPLPUSH l m", &[("lpush", "m"), ("rpop", "l")]),
            ("LMOVE m m LEFT RIGHT", &[("rpush", "m"), ("lpop", "m")]),
            ("RPUSH m 4", &[("rpush", "m")]),
            ("RPOPLPUSH m m", &[("lpush", "m"), ("rpop", "m")]),
            ("LMOVE m m RIGHT RIGHT", &[("rpush", "m"), ("rpop", "m")]),
            ("HSET h f 1 g 2", &[("hset", "h")]),
            ("HSET h f 3", &[("hset", "h")]),
            ("HINCRBY h f 1", &[("hincrby", "h")]),
            ("HDEL h f", &[("hdel", "h")]),
            ("HDEL h g", &[("hdel", "h"), ("del", "h")]),
            ("HDEL h g", &[]),
            ("SADD s a b", &[("sadd", "s")]),
            ("SREM s a", &[("srem", "s")]),
            ("SMOVE s t b", &[("srem", "s"), ("del", "s"), ("sadd", "t")]),
            ("SUNIONSTORE u t", &[("sunionstore", "u")]),
            ("ZADD z 1 a 2 b", &[("zadd", "z")]),
            ("ZINCRBY z 1 a", &[("zincr", "z")]),
            ("ZREM z a", &[("zrem", "z")]),
            ("ZPOPMIN z", &[("zpopmin", "z"), ("del", "z")]),
            ("EXPIRE u 100", &[("expire", "u")]),
            ("DEL u", &[("del", "u")]),
        ] {
            client.call(command);
            expect(command, events);
        }
        park(&mut blocked, &mut client, "BLPOP q 0", 1);
        client.call("RPUSH q x");
        expect("BLPOP", &[("rpush", "q"), ("lpop", "q"), ("del", "q")]);
        assert_eq!(blocked.read(), "[\"q\", \"x\"]");
    });
}

#[test]
fn requests_behind_a_waiting_command_wait_and_other_clients_do_not() {
    on_both(|connect| {
        let (mut waiting, mut writer) = (connect(), connect());
        writer.expect(&[("SET k v", "+OK")]);
        park(&mut waiting, &mut writer, "BLPOP a 0", 1);
        waiting.send_raw(b"GET k\r\nSET k w\r\nGET k\r\n");
        for _ in 0..4 {
            connect().expect(&[("GET k", "\"v\"")]);
        }
        writer.expect(&[("RPUSH a 1", ":1")]);
        for expected in ["[\"a\", \"1\"]", "\"v\"", "+OK", "\"w\""] {
            assert_eq!(waiting.read(), expected);
        }
        assert!(writer.call("INFO clients").contains("blocked_clients:0\r\n"));
    });
}

#[test]
fn pushes_reach_a_waiting_client() {
    on_both(|connect| {
        let (mut waiting, mut writer) = (connect(), connect());
        waiting.call("HELLO 3");
        waiting.call("SUBSCRIBE news");
        park(&mut waiting, &mut writer, "BLPOP a 0", 1);
        writer.expect(&[("PUBLISH news hello", ":1")]);
        assert_eq!(waiting.read(), "[\"message\", \"news\", \"hello\"]");
        writer.expect(&[("RPUSH a 1", ":1")]);
        assert_eq!(waiting.read(), "[\"a\", \"1\"]");
    });
}

#[test]
fn client_unblock_ends_a_wait() {
    on_both(|connect| {
        let (mut waiting, mut admin) = (connect(), connect());
        let id = waiting.call("CLIENT ID")[1..].to_owned();
        admin.expect(&[(&format!("CLIENT UNBLOCK {id}"), ":0")]);
        for (reason, reply) in [
            ("", "nil"),
            (" TIMEOUT", "nil"),
            (" error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        ] {
            park(&mut waiting, &mut admin, "BLPOP a 0", 1);
            waiting.send(&[b"PING"]);
            assert!(admin.call("CLIENT LIST").contains("flags=b "));
            admin.expect(&[(&format!("CLIENT UNBLOCK {id}{reason}"), ":1")]);
            assert_eq!((waiting.read(), waiting.read()), (reply.to_owned(), "+PONG".to_owned()));
        }
        admin.expect(&[
            ("CLIENT UNBLOCK 99999", ":0"),
            ("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range"),
            (
                &format!("CLIENT UNBLOCK {id} now"),
                "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
            ),
            // Nobody waits: the element stays.
            ("RPUSH a 1", ":1"),
            ("LLEN a", ":1"),
        ]);
        // WAIT can be ended, too.
        park(&mut waiting, &mut admin, "WAIT 1 0", 1);
        admin.expect(&[(&format!("CLIENT UNBLOCK {id}"), ":1")]);
        assert_eq!(waiting.read(), ":0");
        waiting.expect(&[("WAIT 1 20", ":0"), ("WAIT 0 0", ":0")]);
    });
}

#[test]
fn clients_that_go_do_not_take_elements() {
    on_both(|connect| {
        let (mut gone, mut killed, mut last) = (connect(), connect(), connect());
        let mut admin = connect();
        park(&mut gone, &mut admin, "BLPOP a 0", 1);
        let id = killed.call("CLIENT ID")[1..].to_owned();
        park(&mut killed, &mut admin, "BLPOP a 0", 2);
        park(&mut last, &mut admin, "BLPOP a 0", 3);
        drop(gone);
        let blocked = |admin: &mut Client, count: usize| {
            eventually("the others wait", || {
                admin.call("INFO clients").contains(&format!("blocked_clients:{count}\r\n"))
            });
        };
        blocked(&mut admin, 2);
        admin.expect(&[(&format!("CLIENT KILL ID {id}"), ":1")]);
        assert!(killed.is_closed());
        blocked(&mut admin, 1);
        admin.expect(&[("RPUSH a 1", ":1")]);
        assert_eq!(last.read(), "[\"a\", \"1\"]");
    });
}

#[test]
fn replies_of_other_workers_are_durable_or_errors() {
    let server = TestServer::with(|options| options.fsync = siltstone_server::Fsync::Always);
    let (mut waiting, mut writer) = (server.client(), server.client());
    park(&mut waiting, &mut writer, "BLPOP a 0", 1);
    let syncs = server.engine.syncs.load(std::sync::atomic::Ordering::SeqCst);
    writer.expect(&[("RPUSH a 1", ":1")]);
    assert_eq!(waiting.read(), "[\"a\", \"1\"]");
    assert!(server.engine.syncs.load(std::sync::atomic::Ordering::SeqCst) > syncs);
    park(&mut waiting, &mut writer, "BLPOP a 0", 1);
    server.engine.fail_syncs.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(writer.call("RPUSH a 2").starts_with("-ERR the write may not be durable"));
    assert!(waiting.read().starts_with("-ERR the write may not be durable"));
    server.engine.fail_syncs.store(false, std::sync::atomic::Ordering::SeqCst);
}

#[test]
fn server_that_stops_closes_waiting_clients() {
    let server = TestServer::start();
    let (mut waiting, mut observer) = (server.client(), server.client());
    park(&mut waiting, &mut observer, "BLPOP a 0", 1);
    server.finish().unwrap();
    assert!(waiting.is_closed());
}

#[test]
fn elements_are_delivered_once_to_many_workers() {
    const ITEMS: usize = 400;
    let server = TestServer::with(|options| options.threads = 3);
    let mut sums = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let mut client = server.client();
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    loop {
                        let reply = client.call("BLPOP jobs urgent 0");
                        let item = reply.rsplit('"').nth(1).unwrap().to_owned();
                        if item == "end" {
                            return taken;
                        }
                        taken.push(item.parse::<usize>().unwrap());
                    }
                })
            })
            .collect();
        let producers: Vec<_> = ["jobs", "urgent"]
            .into_iter()
            .enumerate()
            .map(|(part, key)| {
                let mut client = server.client();
                scope.spawn(move || {
                    for item in 0..ITEMS {
                        client.call(&format!("RPUSH {key} {}", part * ITEMS + item));
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        let mut client = server.client();
        workers.iter().for_each(|_| drop(client.call("RPUSH jobs end")));
        sums.extend(workers.into_iter().flat_map(|worker| worker.join().unwrap()));
    });
    sums.sort_unstable();
    // `urgent` is looked at after `jobs`, so a worker may have ended before it was empty.
    let mut client = server.client();
    while let Some(item) = client.call("LPOP urgent").strip_prefix('"') {
        sums.push(item.trim_end_matches('"').parse().unwrap());
    }
    sums.sort_unstable();
    assert_eq!(sums, (0..2 * ITEMS).collect::<Vec<_>>());
}
