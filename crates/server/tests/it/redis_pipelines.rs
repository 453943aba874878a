//! Commands that clients send at once run in groups: their replies and effects are those of single
//! commands, with fewer writes of the engine.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::support::{Client, TestServer, encode, eventually};
use siltstone_server::Fsync;

/// Sends commands at once, and returns their replies.
fn pipeline(client: &mut Client, commands: &[String]) -> Vec<String> {
    send(client, commands);
    commands.iter().map(|_| client.read()).collect()
}

/// Sends commands at once.
fn send(client: &mut Client, commands: &[String]) {
    let words = |line: &String| encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    let bytes: Vec<u8> = commands.iter().flat_map(words).collect();
    client.send_raw(&bytes);
}

/// A server whose worker serves all clients.
fn one_worker() -> TestServer {
    TestServer::with(|options| options.threads = 1)
}

/// Has one iteration of the only worker serve the commands of all clients, each of which gets its
/// own. Returns their replies.
fn in_one_iteration(
    server: &TestServer,
    clients: &mut [Client],
    commands: &[Vec<String>],
) -> Vec<Vec<String>> {
    let mut other = server.client();
    let begun = server.engine.begun_writes.load(SeqCst);
    let gate = server.engine.gate.lock();
    other.send(&[b"SET", b"other", b"v"]);
    eventually("the worker waits", || server.engine.begun_writes.load(SeqCst) > begun);
    for (client, commands) in clients.iter_mut().zip(commands) {
        send(client, commands);
    }
    drop(gate);
    other.read();
    let replies = |(client, commands): (&mut Client, &Vec<String>)| {
        commands.iter().map(|_| client.read()).collect()
    };
    clients.iter_mut().zip(commands).map(replies).collect()
}

fn lines(commands: &[&str]) -> Vec<String> {
    commands.iter().map(|&command| command.to_owned()).collect()
}

/// Numbers that look random.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

const COMMANDS: [&str; 50] = [
    "SET K V",
    "SET K V EX 1000",
    "SET K V NX GET",
    "SET K V XX KEEPTTL",
    "SETEX K 1000 V",
    "GET K",
    "INCR K",
    "INCRBY K V",
    "APPEND K V",
    "STRLEN K",
    "GETDEL K",
    "SETNX K V",
    "GETEX K PERSIST",
    "GETSET K V",
    "HSET K F V",
    "HSET K F V G V H V",
    "HGET K F",
    "HDEL K F",
    "HINCRBY K F 3",
    "HGETALL K",
    "HLEN K",
    "LPUSH K V",
    "RPUSH K V W",
    "LPOP K",
    "RPOP K 2",
    "LLEN K",
    "LRANGE K 0 -1",
    "SADD K F",
    "SREM K F",
    "SISMEMBER K F",
    "SCARD K",
    "SMEMBERS K",
    "ZADD K 1 F",
    "ZADD K V F 2 G",
    "ZINCRBY K 2 F",
    "ZREM K F",
    "ZSCORE K F",
    "ZPOPMIN K",
    "ZRANGE K 0 -1 WITHSCORES",
    "DEL K",
    "TYPE K",
    "HSET K F",
    "EXPIRE K 1000",
    "PERSIST K",
    "HSETNX K F V",
    "HPEXPIRE K 100000000 FIELDS 1 F",
    "HPERSIST K FIELDS 1 F",
    "ZADD K CH V F V G",
    "ZADD K GT INCR 2 F",
    "ZPOPMAX K",
];

fn drawn_command(draws: &mut Draws) -> String {
    let template = COMMANDS[draws.below(COMMANDS.len() as u64) as usize];
    // One key in two is of the type that the command wants.
    let family = template.as_bytes()[0] as char;
    let key = match draws.below(8) {
        0 => format!("k{}", draws.below(3)),
        _ => format!("{family}{}", draws.below(3)),
    };
    let (value, field) = (draws.below(20).to_string(), format!("f{}", draws.below(4)));
    let word = |word: &str| match word {
        "K" => key.clone(),
        "V" => value.clone(),
        "F" => field.clone(),
        other => other.to_owned(),
    };
    template.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn pipeline_replies_are_those_of_single_commands() {
    let (grouped, single) = (TestServer::start(), TestServer::start());
    let (mut grouped_client, mut single_client) = (grouped.client(), single.client());
    let mut draws = Draws(7);
    for round in 0..300 {
        let count = 1 + draws.below(60);
        let commands: Vec<String> = (0..count).map(|_| drawn_command(&mut draws)).collect();
        let expected: Vec<_> = commands.iter().map(|line| single_client.call(line)).collect();
        let replies = pipeline(&mut grouped_client, &commands);
        for ((command, reply), expected) in commands.iter().zip(&replies).zip(&expected) {
            assert_eq!(reply, expected, "{command} in round {round}: {commands:?}");
        }
    }
    let (grouped_writes, single_writes) =
        (grouped.engine.writes.load(SeqCst), single.engine.writes.load(SeqCst));
    assert!(grouped_writes < single_writes, "{grouped_writes} {single_writes}");
    assert_eq!(grouped_client.call("DBSIZE"), single_client.call("DBSIZE"));
}

#[test]
fn consecutive_commands_on_one_key_each_share_a_write() {
    let server = TestServer::with(|options| options.fsync = Fsync::Always);
    let mut client = server.client();
    client.call("HSET h a 0");
    let (writes, syncs) = (server.engine.writes.load(SeqCst), server.engine.syncs.load(SeqCst));
    let commands = ["HSET h a 1", "INCR n", "HSET h b 2", "HGET h b", "LPUSH l x", "LPOP l"];
    let replies = [":0", ":1", ":1", "\"2\"", ":1", "\"x\""];
    assert_eq!(pipeline(&mut client, &lines(&commands)), replies);
    assert_eq!(server.engine.writes.load(SeqCst), writes + 1);
    assert_eq!(server.engine.syncs.load(SeqCst), syncs + 1);
    client.expect(&[("HLEN h", ":2"), ("GET n", "\"1\""), ("EXISTS l", ":0")]);
    let stats = client.call("INFO commandstats");
    for count in ["cmdstat_hset:calls=3,", "cmdstat_incr:calls=1,", "cmdstat_hget:calls=1,"] {
        assert!(stats.contains(count), "{count} {stats}");
    }
}

#[test]
fn consecutive_changes_of_strings_share_a_write_and_sets_and_gets_begin_no_group() {
    let server = TestServer::start();
    let mut client = server.client();
    let writes = server.engine.writes.load(SeqCst);
    let commands = ["INCR n", "INCRBY n 4", "GET n", "APPEND s x", "SET e v EX 100", "INCR n"];
    let replies = [":1", ":5", "\"5\"", ":1", "+OK", ":6"];
    assert_eq!(pipeline(&mut client, &lines(&commands)), replies);
    assert_eq!(server.engine.writes.load(SeqCst), writes + 1);
    let commands = ["GET n", "SET a 1", "SET b 2", "INCR n", "SET a 3", "INCR a", "GET a"];
    let replies = ["\"6\"", "+OK", "+OK", ":7", "+OK", ":4", "\"4\""];
    assert_eq!(pipeline(&mut client, &lines(&commands)), replies);
    // Two SETs are a batch, and the group that INCR begins is another one.
    assert_eq!(server.engine.writes.load(SeqCst), writes + 3);
}

#[test]
fn commands_of_a_refused_group_get_their_own_errors() {
    let server = TestServer::start();
    let mut client = server.client();
    client.call("SET s text");
    server.engine.disk_full.store(true, SeqCst);
    let commands = ["HSET h f v", "GET s", "HSET s f v", "INCR s", "INCR n", "HLEN h"];
    let replies = pipeline(&mut client, &lines(&commands));
    for write in [0, 4] {
        assert!(replies[write].starts_with("-MISCONF the disk is full"), "{replies:?}");
    }
    assert_eq!(replies[1], "\"text\"");
    assert!(replies[2].starts_with("-WRONGTYPE"), "{replies:?}");
    assert!(replies[3].starts_with("-ERR value is not an integer"), "{replies:?}");
    assert_eq!(replies[5], ":0");
    server.engine.disk_full.store(false, SeqCst);
    assert_eq!(pipeline(&mut client, &lines(&["HSET h f v", "INCR n"])), [":1", ":1"]);
}

#[test]
fn commands_of_several_clients_share_a_write() {
    let server = one_worker();
    let mut clients = [server.client(), server.client(), server.client()];
    let commands = [&["HSET h a 1", "HGET h a"][..], &["HSET h b 2", "INCR n"], &["LPUSH l x"]];
    let writes = server.engine.writes.load(SeqCst);
    let replies = in_one_iteration(&server, &mut clients, &commands.map(lines));
    assert_eq!(replies, [&[":1", "\"1\""][..], &[":1", ":1"], &[":1"]].map(lines));
    assert_eq!(server.engine.writes.load(SeqCst), writes + 2);
    clients[0].expect(&[("HLEN h", ":2"), ("GET n", "\"1\""), ("LLEN l", ":1")]);
    let stats = clients[0].call("INFO commandstats");
    for count in ["cmdstat_hset:calls=2,", "cmdstat_incr:calls=1,", "cmdstat_lpush:calls=1,"] {
        assert!(stats.contains(count), "{count} {stats}");
    }
}

#[test]
fn clients_of_a_refused_group_get_their_own_errors() {
    let server = one_worker();
    let mut clients = [server.client(), server.client(), server.client()];
    clients[0].expect(&[("SET s text", "+OK"), ("HSET g f v", ":1")]);
    server.engine.disk_full.store(true, SeqCst);
    let commands =
        [&["HSET h f v", "HLEN h"][..], &["INCR s", "STRLEN s", "HGET g f"], &["HSET s f v"]];
    let replies = in_one_iteration(&server, &mut clients, &commands.map(lines));
    assert!(replies[0][0].starts_with("-MISCONF the disk is full"), "{replies:?}");
    assert_eq!(replies[0][1], ":0");
    assert!(replies[1][0].starts_with("-ERR value is not an integer"), "{replies:?}");
    assert_eq!(replies[1][1..], lines(&[":4", "\"v\""]));
    assert!(replies[2][0].starts_with("-WRONGTYPE"), "{replies:?}");
    server.engine.disk_full.store(false, SeqCst);
    let replies = in_one_iteration(&server, &mut clients, &commands.map(lines));
    assert_eq!(replies[0], [":1", ":1"]);
}

#[test]
fn clients_of_a_group_get_the_replies_of_single_commands() {
    const CLIENTS: usize = 5;
    let (grouped, single) = (one_worker(), one_worker());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| grouped.client()).collect();
    let mut single_client = single.client();
    let mut draws = Draws(11);
    for round in 0..120 {
        let mut commands = vec![Vec::new(); CLIENTS];
        for (client, commands) in commands.iter_mut().enumerate() {
            // Each client has its own keys.
            let own = |command: String| {
                let (name, rest) = command.split_once(' ').unwrap();
                format!("{name} client{client}:{rest}")
            };
            *commands = (0..draws.below(40)).map(|_| own(drawn_command(&mut draws))).collect();
        }
        let replies = in_one_iteration(&grouped, &mut clients, &commands);
        for (commands, replies) in commands.iter().zip(&replies) {
            for (command, reply) in commands.iter().zip(replies) {
                assert_eq!(reply, &single_client.call(command), "{command} in round {round}");
            }
        }
    }
    let (grouped_writes, single_writes) =
        (grouped.engine.writes.load(SeqCst), single.engine.writes.load(SeqCst));
    assert!(grouped_writes * 5 < single_writes, "{grouped_writes} {single_writes}");
}

#[test]
fn reads_of_several_clients_that_wait_for_a_device_are_started_together() {
    let server = one_worker();
    let mut clients = [server.client(), server.client(), server.client()];
    clients[0].expect(&[("SET a 1", "+OK"), ("HSET h f v", ":1"), ("SET c 3", "+OK")]);
    let commands = [&["GET a", "STRLEN c"][..], &["HGET h f"], &["GET none"]].map(lines);
    let replies = [&["\"1\"", ":1"][..], &["\"v\""], &["nil"]].map(lines);
    assert_eq!(in_one_iteration(&server, &mut clients, &commands), replies);
    assert!(server.engine.begun_reads.lock().is_empty());
    server.engine.slow_reads.store(true, SeqCst);
    // The first reads that wait show that there is a device.
    assert_eq!(in_one_iteration(&server, &mut clients, &commands), replies);
    // Between them the worker serves others, whose reads do not wait.
    let mut other = server.client();
    eventually("reads are started", || {
        other.call("GET a");
        send(&mut clients[0], &commands[0]);
        let got: Vec<_> = commands[0].iter().map(|_| clients[0].read()).collect();
        assert_eq!(got, replies[0]);
        let begun = server.engine.begun_reads.lock();
        begun.iter().any(|keys| *keys == [b"a".to_vec(), b"c".to_vec()])
    });
}

#[test]
fn monitor_that_begins_in_the_iteration_of_a_group_shows_its_commands() {
    let server = one_worker();
    let mut clients = [server.client(), server.client(), server.client()];
    let commands = [&["HSET h a 1", "HGET h a"][..], &["MONITOR"], &["INCR n"]];
    let replies = in_one_iteration(&server, &mut clients, &commands.map(lines));
    assert_eq!(replies[0], [":1", "\"1\""]);
    let shown = [clients[1].read(), clients[1].read(), clients[1].read()].concat();
    for command in ["HSET", "HGET", "INCR"] {
        assert!(shown.contains(&format!("\"{command}\"")), "{shown}");
    }
}

#[test]
fn user_who_loses_rights_in_the_iteration_of_a_group_cannot_write() {
    let server = one_worker();
    let mut clients = [server.client(), server.client()];
    let commands = [&["HSET h a 1", "INCR n"][..], &["ACL SETUSER default -hset"]];
    let replies = in_one_iteration(&server, &mut clients, &commands.map(lines));
    assert_eq!(replies[1], ["+OK"]);
    assert!(replies[0][0].starts_with("-NOPERM"), "{replies:?}");
    assert_eq!(replies[0][1], ":1");
}

#[test]
fn pause_that_begins_in_the_iteration_of_a_group_holds_its_commands() {
    let server = one_worker();
    let mut clients = [server.client(), server.client()];
    let gate = server.engine.gate.lock();
    let mut other = server.client();
    other.send(&[b"SET", b"other", b"v"]);
    eventually("the worker waits", || server.engine.begun_writes.load(SeqCst) > 0);
    send(&mut clients[0], &lines(&["HSET h a 1", "INCR n"]));
    send(&mut clients[1], &lines(&["CLIENT PAUSE 100000 WRITE", "PING"]));
    drop(gate);
    assert_eq!([clients[1].read(), clients[1].read()], ["+OK", "+PONG"]);
    assert_eq!(server.engine.writes.load(SeqCst), 1);
    clients[1].call("CLIENT UNPAUSE");
    assert_eq!([clients[0].read(), clients[0].read()], [":1", ":1"]);
}

#[test]
fn blocked_client_is_served_between_the_commands_of_a_pipeline() {
    let server = TestServer::start();
    let (mut client, mut blocked) = (server.client(), server.client());
    blocked.send(&[b"BLPOP", b"l", b"0"]);
    crate::support::eventually("a client is blocked", || {
        client.call("INFO clients").contains("blocked_clients:1")
    });
    let replies = pipeline(&mut client, &lines(&["LPUSH l a", "LPUSH l b", "LLEN l"]));
    assert_eq!(replies, [":1", ":1", ":1"]);
    assert_eq!(blocked.read(), "[\"l\", \"a\"]");
}

#[test]
fn keyspace_events_of_a_pipeline_are_published_in_order() {
    let server = TestServer::start();
    let (mut client, mut subscriber) = (server.client(), server.client());
    client.call("CONFIG SET notify-keyspace-events KEA");
    subscriber.call("PSUBSCRIBE __keyevent@0__:*");
    pipeline(&mut client, &lines(&["HSET h a 1", "INCR n", "HDEL h a"]));
    for event in ["hset", "incrby", "hdel", "del"] {
        assert!(subscriber.read().contains(&format!(":{event}\"")), "{event}");
    }
}

#[test]
fn concurrent_pipelines_lose_no_increments() {
    let server = TestServer::start();
    let commands: Vec<String> =
        (0..200).map(|at| ["INCR n", "HINCRBY h f 1", "LPUSH l x"][at % 3].to_owned()).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client();
                (0..20).for_each(|_| _ = pipeline(&mut client, &commands));
            });
        }
    });
    let count = |every: usize| (0..200).filter(|at| at % 3 == every).count() * 80;
    let mut client = server.client();
    assert_eq!(client.call("GET n"), format!("\"{}\"", count(0)));
    assert_eq!(client.call("HGET h f"), format!("\"{}\"", count(1)));
    assert_eq!(client.call("LLEN l"), format!(":{}", count(2)));
}

#[test]
fn pops_of_stored_and_pending_elements_are_those_of_single_commands() {
    let (grouped, single) = (TestServer::start(), TestServer::start());
    let (mut grouped_client, mut single_client) = (grouped.client(), single.client());
    let fill = format!("RPUSH l {}", (0..300).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
    let scores = |n: u64| format!("{} m{n}", n * 7 % 100);
    let members = format!("ZADD z {}", (0..100).map(scores).collect::<Vec<_>>().join(" "));
    for client in [&mut grouped_client, &mut single_client] {
        client.call(&fill);
        client.call(&members);
        client.call("SET string v");
    }
    let repeated = |command: &str, count: usize| vec![command.to_owned(); count];
    let rounds = [
        repeated("RPOP l", 40),
        // Of elements in the table, and of those that the group itself has written.
        [repeated("LPOP l", 10), repeated("RPUSH l new", 5), repeated("RPOP l", 20)].concat(),
        [repeated("LPUSH l new", 3), repeated("LPOP l", 9), repeated("RPOP l", 9)].concat(),
        [repeated("RPOP l 2", 4), repeated("LPOP l", 3), repeated("LPUSH k a", 2)].concat(),
        // More than there are.
        [repeated("LPOP l", 127), repeated("RPOP l", 1)].concat(),
        [repeated("RPOP l", 100), repeated("LPUSH l a", 2), repeated("RPOP l", 3)].concat(),
        repeated("LPOP k", 4),
        [repeated("ZPOPMIN z", 7), repeated("ZADD z 0 new", 1), repeated("ZPOPMIN z", 5)].concat(),
        [repeated("ZPOPMAX z", 40), repeated("ZCARD z", 1), repeated("ZPOPMIN z", 60)].concat(),
        // Of another type, and of both ends.
        [repeated("RPOP string", 5), repeated("RPUSH l a b c d e f", 1)].concat(),
        [repeated("RPOP l", 4), repeated("LPOP l", 4), repeated("ZPOPMIN l", 6)].concat(),
    ];
    for commands in rounds {
        let expected: Vec<_> = commands.iter().map(|line| single_client.call(line)).collect();
        assert_eq!(pipeline(&mut grouped_client, &commands), expected, "{commands:?}");
    }
    assert_eq!(grouped_client.call("EXISTS l k z"), ":0");
    let calls = |client: &mut Client| {
        let stats = client.call("INFO commandstats");
        ["lpop", "rpop", "zpopmin", "zpopmax"].map(|name| {
            let (_, rest) = stats.split_once(&format!("cmdstat_{name}:calls=")).unwrap();
            rest.split_once(',').unwrap().0.to_owned()
        })
    };
    assert_eq!(calls(&mut grouped_client), calls(&mut single_client));
}

#[test]
fn commands_before_a_read_that_counts_fields_out_are_counted_once() {
    let server = TestServer::start();
    let mut client = server.client();
    client.call("HSET g f v");
    client.call("HSET h f v short v");
    client.call("HPEXPIRE h 1 FIELDS 1 short");
    std::thread::sleep(std::time::Duration::from_millis(20));
    let replies = pipeline(&mut client, &lines(&["HGET g f", "HGET g f", "HLEN h", "HGET g f"]));
    assert_eq!(replies, ["\"v\"", "\"v\"", ":1", "\"v\""]);
    let stats = client.call("INFO commandstats");
    for calls in ["cmdstat_hget:calls=3,", "cmdstat_hlen:calls=1,"] {
        assert!(stats.contains(calls), "{calls} in {stats}");
    }
    assert!(client.call("INFO stats").contains("keyspace_hits:4\r"));
}

#[test]
fn concurrent_pipelines_of_reads_count_an_expired_field_out_once() {
    const FIELDS: usize = 4;
    let server = TestServer::start();
    let mut writer = server.client();
    writer.call("HSET h f0 v f1 v f2 v f3 v");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_done = &is_done;
        for _ in 0..3 {
            let mut reader = server.client();
            let commands = lines(&["HLEN h", "HGET h f0", "HLEN h", "HGET h f3"]);
            scope.spawn(move || {
                while !is_done.load(SeqCst) {
                    let replies = pipeline(&mut reader, &commands);
                    for count in [&replies[0], &replies[2]] {
                        let count: usize = count[1..].parse().unwrap();
                        assert!(count >= FIELDS, "{replies:?}");
                    }
                    assert_eq!((&*replies[1], &*replies[3]), ("\"v\"", "\"v\""));
                }
            });
        }
        for round in 0..500 {
            writer.call(&format!("HSET h short{round} v"));
            writer.call(&format!("HPEXPIRE h 1 FIELDS 1 short{round}"));
        }
        is_done.store(true, SeqCst);
    });
    eventually("the short fields expire", || writer.call("HLEN h") == format!(":{FIELDS}"));
}
