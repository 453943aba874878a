//! MIGRATE: between two servers, to Redis and back, with passwords, to targets that break, are
//! silent or slow, and beside other writers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::support::{Client, Peer, TestServer, eventually, mica};

const BUSY: &str =
    "-ERR Target instance replied with error: BUSYKEY Target key name already exists.";
const BROKEN: &str = "-IOERR error or timeout reading to target instance";

/// Sends MIGRATE of a key, or of those behind KEYS.
fn send(
    client: &mut Client,
    to: SocketAddr,
    key: &str,
    database: &str,
    limit_ms: &str,
    options: &str,
) {
    let (host, port) = (to.ip().to_string(), to.port().to_string());
    let mut words: Vec<&[u8]> = vec![b"MIGRATE"];
    words.extend([&host, &port].map(|word| word.as_bytes()));
    words.extend([key, database, limit_ms].map(str::as_bytes));
    words.extend(options.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes));
    client.send(&words);
}

fn migrate(client: &mut Client, to: SocketAddr, key: &str, options: &str) -> String {
    send(client, to, key, "0", "5000", options);
    client.read()
}

/// Fills keys of each type.
fn fill(client: &mut Client) {
    client.expect(&[
        ("SET s v", "+OK"),
        ("SET e v PX 100000", "+OK"),
        ("RPUSH l a b c", ":3"),
        ("HSET h f v g w", ":2"),
        ("SADD t a b", ":2"),
        ("ZADD z 1 a 2.5 b", ":2"),
        ("XADD x 1-1 f v", "\"1-1\""),
    ]);
}

fn check(client: &mut Client) {
    client.expect(&[
        ("GET s", "\"v\""),
        ("TTL s", ":-1"),
        ("LRANGE l 0 -1", "[\"a\", \"b\", \"c\"]"),
        ("HMGET h f g", "[\"v\", \"w\"]"),
        ("SMISMEMBER t a b c", "[:1, :1, :0]"),
        ("ZRANGE z 0 -1 WITHSCORES", "[\"a\", \"1\", \"b\", \"2.5\"]"),
        ("XRANGE x - +", "[[\"1-1\", [\"f\", \"v\"]]]"),
        ("DBSIZE", ":7"),
    ]);
    let ttl_ms: i64 = client.call("PTTL e")[1..].parse().unwrap();
    assert!((1..=100_000).contains(&ttl_ms), "{ttl_ms}");
}

#[test]
fn values_of_all_types_move_with_their_expiry() {
    let (here, there) = (TestServer::start(), TestServer::start());
    let (mut source, mut target) = (here.client(), there.client());
    fill(&mut source);
    assert_eq!(migrate(&mut source, there.address, "", "KEYS s e l h t z x gone s"), "+OK");
    assert_eq!(source.call("DBSIZE"), ":0");
    check(&mut target);
    assert_eq!(migrate(&mut source, there.address, "s", ""), "+NOKEY");
    // Into another database, and from there back into the first one.
    source.call("SET k v");
    send(&mut source, there.address, "k", "1", "5000", "");
    assert_eq!(source.read(), "+OK");
    target.expect(&[("SELECT 1", "+OK"), ("GET k", "\"v\"")]);
    assert_eq!(migrate(&mut target, there.address, "k", ""), "+OK");
    target.expect(&[("EXISTS k", ":0"), ("SELECT 0", "+OK"), ("GET k", "\"v\"")]);
    send(&mut source, there.address, "k", "9", "5000", "");
    assert_eq!(source.read(), "+NOKEY");
    source.call("SET k v");
    send(&mut source, there.address, "k", "9", "5000", "");
    let out_of_range = "-ERR Target instance replied with error: ERR DB index is out of range";
    assert_eq!(source.read(), out_of_range);
    assert_eq!(source.call("GET k"), "\"v\"");
}

#[test]
fn key_that_the_target_refuses_stays_and_others_move() {
    let (here, there) = (TestServer::start(), TestServer::start());
    let (mut source, mut target) = (here.client(), there.client());
    source.expect(&[("SET a new", "+OK"), ("SET b new", "+OK"), ("SET c new", "+OK")]);
    target.expect(&[("SET a old", "+OK"), ("SET c old", "+OK")]);
    let mut listener = here.client();
    listener.call("CONFIG SET notify-keyspace-events Eg");
    listener.call("SUBSCRIBE __keyevent@0__:del");
    assert_eq!(migrate(&mut source, there.address, "a", ""), BUSY);
    assert_eq!(migrate(&mut source, there.address, "", "KEYS a b"), BUSY);
    assert_eq!(listener.read(), "[\"message\", \"__keyevent@0__:del\", \"b\"]");
    source.expect(&[("MGET a b", "[\"new\", nil]")]);
    target.expect(&[("MGET a b", "[\"old\", \"new\"]")]);
    // A copy stays at both.
    assert_eq!(migrate(&mut source, there.address, "a", "COPY"), BUSY);
    assert_eq!(migrate(&mut source, there.address, "a", "COPY REPLACE"), "+OK");
    source.expect(&[("GET a", "\"new\"")]);
    target.expect(&[("GET a", "\"new\"")]);
    assert_eq!(migrate(&mut source, there.address, "", "REPLACE KEYS a c"), "+OK");
    source.expect(&[("DBSIZE", ":0")]);
    target.expect(&[("MGET a b c", "[\"new\", \"new\", \"new\"]")]);
}

#[test]
fn target_with_a_password_needs_auth_which_monitors_do_not_see() {
    let here = TestServer::start();
    let there = TestServer::with(|options| options.password = Some("secret".to_owned()));
    let (mut source, mut monitor) = (here.client(), here.client());
    let mut target = there.client();
    target.expect(&[("AUTH secret", "+OK"), ("ACL SETUSER ann on >pw ~* +@all", "+OK")]);
    source.expect(&[("SET a v", "+OK"), ("SET b v", "+OK")]);
    let refused = |text: &str| format!("-ERR Target instance replied with error: {text}");
    let no_login = refused("NOAUTH Authentication required.");
    assert_eq!(migrate(&mut source, there.address, "a", ""), no_login);
    let wrong = refused("WRONGPASS invalid username-password pair or user is disabled.");
    assert_eq!(migrate(&mut source, there.address, "a", "AUTH bad"), wrong);
    assert_eq!(migrate(&mut source, there.address, "a", "AUTH2 ann secret"), wrong);
    source.expect(&[("MGET a b", "[\"v\", \"v\"]")]);
    monitor.call("MONITOR");
    assert_eq!(migrate(&mut source, there.address, "a", "AUTH secret"), "+OK");
    assert_eq!(migrate(&mut source, there.address, "", "AUTH2 ann pw KEYS b"), "+OK");
    target.expect(&[("MGET a b", "[\"v\", \"v\"]")]);
    let [first, second] = [monitor.read(), monitor.read()];
    assert!(first.ends_with("\"AUTH\" \"(redacted)\""), "{first}");
    let end = "\"AUTH2\" \"(redacted)\" \"(redacted)\" \"KEYS\" \"b\"";
    assert!(second.ends_with(end), "{second}");
}

#[test]
fn values_move_to_redis_and_from_it() {
    let options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"];
    let Some(peer) = Peer::start("redis-server", &options) else { return };
    let server = TestServer::start();
    let (mut ours, mut redis) = (server.client(), Client::connect(peer.address));
    fill(&mut ours);
    assert_eq!(migrate(&mut ours, peer.address, "", "KEYS s e l h t z x"), "+OK");
    assert_eq!(ours.call("DBSIZE"), ":0");
    check(&mut redis);
    assert_eq!(migrate(&mut redis, server.address, "", "KEYS s e l h t z x"), "+OK");
    assert_eq!(redis.call("DBSIZE"), ":0");
    check(&mut ours);
}

#[test]
fn unordered_table_moves_strings() {
    let here = TestServer::over(Some(mica("memory=4MiB")), |_| ());
    let there = TestServer::start();
    let (mut source, mut target) = (here.client(), there.client());
    source.expect(&[("MSET a 1 b 2", "+OK")]);
    assert_eq!(migrate(&mut source, there.address, "", "KEYS a b"), "+OK");
    source.expect(&[("EXISTS a b", ":0")]);
    target.expect(&[("MGET a b", "[\"1\", \"2\"]")]);
}

/// Several windows of keys, in both directions at once: nobody waits for the other.
#[test]
fn two_servers_exchange_many_keys_at_the_same_time() {
    let servers = [TestServer::start(), TestServer::start()];
    let value = vec![b'v'; 2000];
    let keys = |server: usize| (0..1500).map(move |n| format!("{server}:{n}"));
    std::thread::scope(|scope| {
        for at in 0..2 {
            let (servers, value) = (&servers, &value);
            scope.spawn(move || {
                let mut client = servers[at].client();
                for key in keys(at) {
                    client.call_bytes(&[b"SET", key.as_bytes(), value]);
                }
                let list = keys(at).collect::<Vec<_>>().join(" ");
                let to = servers[1 - at].address;
                assert_eq!(migrate(&mut client, to, "", &format!("KEYS {list}")), "+OK");
            });
        }
    });
    for (at, server) in servers.iter().enumerate() {
        let mut client = server.client();
        assert_eq!(client.call("DBSIZE"), ":1500");
        for key in keys(1 - at) {
            assert_eq!(client.call(&format!("STRLEN {key}")), ":2000", "{key}");
        }
    }
}

/// Reads a command.
fn request(stream: &mut BufReader<TcpStream>) -> Vec<Vec<u8>> {
    let number = |stream: &mut BufReader<TcpStream>| -> usize {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line[1..].trim_end().parse().unwrap()
    };
    let count = number(stream);
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; number(stream) + 2];
        stream.read_exact(&mut word).unwrap();
        word.truncate(word.len() - 2);
        words.push(word);
    }
    words
}

/// Accepts one connection of MIGRATE, and replies to its SELECT.
fn accept(listener: &TcpListener) -> BufReader<TcpStream> {
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    assert_eq!(request(&mut stream), [&b"SELECT"[..], b"0"]);
    reply(&mut stream);
    stream
}

fn reply(stream: &mut BufReader<TcpStream>) {
    stream.get_mut().write_all(b"+OK\r\n").unwrap();
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn silent_target_ends_the_command_in_time_and_others_are_served_meanwhile() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.call("SET k v");
    let (listener, address) = listen();
    let began = Instant::now();
    send(&mut client, address, "k", "0", "8000", "");
    let silent = listener.accept().unwrap();
    other.expect(&[("GET k", "\"v\""), ("APPEND k w", ":2")]);
    assert!(began.elapsed() < Duration::from_millis(7900), "{:?}", began.elapsed());
    assert_eq!(client.read(), BROKEN);
    assert!(began.elapsed() >= Duration::from_millis(8000), "{:?}", began.elapsed());
    drop((silent, listener));
    // Nobody listens.
    let reply = migrate(&mut client, address, "k", "");
    assert!(reply.starts_with("-IOERR error or timeout connecting"), "{reply}");
    // It does not speak the protocol.
    let (listener, address) = listen();
    send(&mut client, address, "k", "0", "5000", "");
    listener.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
    let reply = client.read();
    assert!(reply.starts_with("-IOERR"), "{reply}");
    assert_eq!(client.call("GET k"), "\"vw\"");
}

/// It would get a reply while its keys are still to be moved.
#[test]
fn client_unblock_does_not_end_a_migration_that_waits_for_its_turn() {
    let server = TestServer::start();
    let [mut first, mut second, mut admin] = [(); 3].map(|()| server.client());
    admin.expect(&[("SET a v", "+OK"), ("SET b v", "+OK")]);
    let id = second.call("CLIENT ID")[1..].to_owned();
    let (listener, address) = listen();
    send(&mut first, address, "a", "0", "20000", "");
    let mut target = accept(&listener);
    send(&mut second, address, "b", "0", "20000", "");
    eventually("both wait", || admin.call("INFO clients").contains("blocked_clients:2\r\n"));
    assert_eq!(admin.call(&format!("CLIENT UNBLOCK {id}")), ":0");
    for client in [&mut first, &mut second] {
        assert_eq!(request(&mut target)[0], b"RESTORE");
        reply(&mut target);
        assert_eq!(client.read(), "+OK");
        if admin.call("DBSIZE") == ":1" {
            target = accept(&listener);
        }
    }
    assert_eq!(admin.call("DBSIZE"), ":0");
}

#[test]
fn connection_that_breaks_deletes_only_what_was_acknowledged() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("MSET a 1 b 2 c 3", "+OK")]);
    let (listener, address) = listen();
    let target = std::thread::spawn(move || {
        let mut stream = accept(&listener);
        let restored: Vec<_> = (0..3).map(|_| request(&mut stream).swap_remove(1)).collect();
        reply(&mut stream);
        restored
    });
    assert_eq!(migrate(&mut client, address, "", "KEYS a b c"), BROKEN);
    assert_eq!(target.join().unwrap(), [b"a", b"b", b"c"]);
    client.expect(&[("MGET a b c", "[nil, \"2\", \"3\"]")]);
}

#[test]
fn key_that_is_written_while_it_moves_is_not_lost() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    for (key, write) in [("s", "SET s new"), ("l", "RPUSH l new"), ("h", "HSET h new v")] {
        client.expect(&[("FLUSHALL", "+OK"), ("SET s v", "+OK"), ("RPUSH l v", ":1")]);
        client.expect(&[("HSET h f v", ":1"), ("SET quiet v", "+OK")]);
        let (listener, address) = listen();
        let (has_sent, sent) = channel();
        let (go_on, may_reply) = channel();
        let target = std::thread::spawn(move || {
            let mut stream = accept(&listener);
            request(&mut stream);
            request(&mut stream);
            has_sent.send(()).unwrap();
            may_reply.recv().unwrap();
            reply(&mut stream);
            reply(&mut stream);
            // Until the client closes.
            let _ = stream.read(&mut [0]);
        });
        send(&mut client, address, "", "0", "5000", &format!("KEYS {key} quiet"));
        sent.recv().unwrap();
        other.call(write);
        go_on.send(()).unwrap();
        let reply = client.read();
        assert!(reply.starts_with("-ERR 1 of the keys were written while"), "{reply}");
        assert_eq!(client.call("EXISTS quiet"), ":0");
        assert_eq!(client.call(&format!("EXISTS {key}")), ":1");
        target.join().unwrap();
    }
    client.expect(&[("GET s", "\"v\""), ("LLEN l", ":1"), ("HGET h new", "\"v\"")]);
}

/// A writer appends numbers to a list, which moves away all the time. Each number is moved once, or
/// is still there.
#[test]
fn moves_beside_a_writer_neither_lose_nor_double_what_it_wrote() {
    const COUNT: usize = 2000;
    let (here, there) = (TestServer::start(), TestServer::start());
    let is_done = AtomicBool::new(false);
    let numbers = |list: String| -> Vec<usize> {
        let parts = list.trim_matches(['[', ']']).split(", ").filter(|part| !part.is_empty());
        parts.map(|part| part.trim_matches('"').parse().unwrap()).collect()
    };
    let (mut found, mut moves, mut refusals) = (Vec::new(), 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = here.client();
            for number in 0..COUNT {
                writer.call(&format!("RPUSH l {number}"));
            }
            is_done.store(true, Relaxed);
        });
        let (mut source, mut target) = (here.client(), there.client());
        while !is_done.load(Relaxed) {
            match migrate(&mut source, there.address, "l", "").as_str() {
                "+OK" => {
                    found.extend(numbers(target.call("LRANGE l 0 -1")));
                    moves += 1;
                }
                "+NOKEY" => {}
                reply => {
                    assert!(reply.starts_with("-ERR 1 of the keys were written while"), "{reply}");
                    refusals += 1;
                }
            }
            target.call("DEL l");
        }
    });
    found.extend(numbers(here.client().call("LRANGE l 0 -1")));
    println!("{moves} moves, {refusals} refused because of a write");
    assert_eq!(found, (0..COUNT).collect::<Vec<_>>());
}

#[test]
fn server_stops_while_a_target_is_silent() {
    let server = TestServer::with(|options| options.drain_timeout = Duration::from_millis(100));
    let mut client = server.client();
    client.call("SET k v");
    let (listener, address) = listen();
    send(&mut client, address, "k", "0", "3600000", "");
    let _silent = listener.accept().unwrap();
    let mut other = server.client();
    eventually("it waits", || other.call("INFO clients").contains("blocked_clients:1\r\n"));
    let began = Instant::now();
    server.finish().unwrap();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn malformed_calls_are_refused() {
    let server = TestServer::start();
    let mut client = server.client();
    let [no_integer, syntax] =
        ["-ERR value is not an integer or out of range", "-ERR syntax error"];
    client.expect(&[
        ("SET k v", "+OK"),
        ("MIGRATE h 1 k 0", "-ERR wrong number of arguments for 'migrate' command"),
        ("MIGRATE h 1 k 0 x", no_integer),
        ("MIGRATE h 1 k x 1", no_integer),
        ("MIGRATE h 70000 k 0 1", no_integer),
        ("MIGRATE h 1 k 0 1 FOO", syntax),
        ("MIGRATE h 1 k 0 1 AUTH", syntax),
        ("MIGRATE h 1 k 0 1 AUTH2 user", syntax),
        (
            "MIGRATE h 1 k 0 1 KEYS a",
            "-ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
        ),
        ("MULTI", "+OK"),
        ("MIGRATE h 1 k 0 1", "-ERR Command not allowed inside a transaction"),
        ("DISCARD", "+OK"),
    ]);
    let script = b"return redis.call('migrate', 'h', 1, KEYS[1], 0, 1)";
    let reply = client.call_bytes(&[b"EVAL", script, b"1", b"k"]);
    assert!(reply.contains("not allowed from script"), "{reply}");
    assert_eq!(client.call("GET k"), "\"v\"");
}
