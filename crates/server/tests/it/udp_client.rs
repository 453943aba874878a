//! The UDP client and server: every operation in every mode, together with RESP and memcached, and
//! over a lossy network.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{TestServer, mica, udp_server};
use siltstone::{Db, DbOptions, Engine, Table};
use siltstone_client::{Action, Client, ClientError, ClientOptions, Outcome, Value};
use siltstone_mica::{Access, Store};
use siltstone_server::{Server, ServerOptions};
use siltstone_testkit::{TestRng, stop_guard};

fn any_address() -> Option<SocketAddr> {
    Some("127.0.0.1:0".parse().unwrap())
}

fn client(server: &TestServer, change: impl FnOnce(&mut ClientOptions)) -> Client {
    let mut options = ClientOptions { deadline: Duration::from_secs(20), ..Default::default() };
    change(&mut options);
    Client::connect(server.udp.unwrap(), options).unwrap()
}

fn value(bytes: &[u8]) -> Value<'_> {
    Value { bytes, ..Value::default() }
}

#[test]
fn every_operation_has_its_outcome() {
    let server = udp_server("memory=32MiB partitions=2 cas=on", |_| ());
    let mut client = client(&server, |_| ());
    assert_eq!(client.get(b"a").unwrap(), None);
    assert_eq!(client.put(b"a", b"1").unwrap(), Outcome::Stored);
    assert_eq!(client.get(b"a").unwrap().unwrap(), b"1");
    let mut one = |key: &[u8], action| client.execute_one(key, action).unwrap();
    assert_eq!(one(b"a", Action::Add(value(b"2"))).outcome, Outcome::Exists);
    assert_eq!(one(b"b", Action::Replace(value(b"2"))).outcome, Outcome::Missing);
    assert_eq!(one(b"b", Action::Add(value(b"2"))).outcome, Outcome::Stored);
    assert_eq!(one(b"a", Action::Append(b"5")).outcome, Outcome::Stored);
    assert_eq!(one(b"a", Action::Prepend(b"7")).outcome, Outcome::Stored);
    assert_eq!(one(b"a", Action::Increment(5)).number, 720);
    assert_eq!(one(b"a", Action::Decrement(1000)).number, 0);
    assert_eq!(one(b"b", Action::Delete(None)).outcome, Outcome::Deleted);
    assert_eq!(one(b"b", Action::Delete(None)).outcome, Outcome::Missing);
    assert_eq!(one(b"b", Action::Increment(1)).outcome, Outcome::Missing);
    let flagged = Value { bytes: b"v", expires_at: Some(u64::MAX), flags: 99, marks: 0 };
    one(b"c", Action::Put(flagged));
    let mut seen = None;
    let requests: &[(&[u8], _)] = &[(b"c", Action::Get)];
    client.execute_with_meta(requests, |_, reply| seen = Some(reply.answer.meta)).unwrap();
    let meta = seen.unwrap();
    assert_eq!((meta.flags, meta.expires_at), (99, Some(u64::MAX)));
    let mut swap = |cas| client.execute_one(b"c", Action::CompareAndSet(value(b"w"), cas)).unwrap();
    assert_eq!(swap(meta.cas + 1000).outcome, Outcome::Exists);
    assert_eq!(swap(meta.cas).outcome, Outcome::Stored);
    assert_eq!(swap(meta.cas).outcome, Outcome::Exists);
    assert_eq!(client.execute_one(b"c", Action::Touch(Some(1))).unwrap().outcome, Outcome::Stored);
    assert_eq!(client.get(b"c").unwrap(), None);
}

/// Random operations against a model, in batches of distinct keys.
fn compare(client: &mut Client, rounds: u64, largest: usize) {
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut rng = TestRng::new(11);
    for _ in 0..rounds {
        let first = rng.below(500);
        let drawn: Vec<_> = (first..first + 1 + rng.below(200))
            .map(|key| {
                let len = rng.index(largest);
                // One of the keys is empty.
                let key = if key == 0 { Vec::new() } else { format!("key-{key}").into_bytes() };
                (key, rng.below(5), rng.bytes(len))
            })
            .collect();
        let requests: Vec<_> = drawn
            .iter()
            .map(|(key, kind, bytes)| {
                let action = match kind {
                    0 | 1 => Action::Put(value(bytes)),
                    2 => Action::Delete(None),
                    _ => Action::Get,
                };
                (&key[..], action)
            })
            .collect();
        let mut received = vec![0; requests.len()];
        let answers = client.execute(&requests, |at, reply| {
            received[at] += 1;
            let (key, kind, bytes) = &drawn[at];
            let old = model.get(key);
            match kind {
                0 | 1 => {
                    assert_eq!(reply.answer.outcome, Outcome::Stored);
                    model.insert(key.clone(), bytes.clone());
                }
                2 => {
                    let there = if old.is_some() { Outcome::Deleted } else { Outcome::Missing };
                    assert_eq!(reply.answer.outcome, there);
                    model.remove(key);
                }
                _ => {
                    let found = reply.answer.outcome == Outcome::Found;
                    assert_eq!(found.then_some(reply.value), old.map(Vec::as_slice));
                }
            }
        });
        answers.unwrap();
        assert!(received.iter().all(|count| *count == 1), "{received:?}");
    }
}

#[test]
fn every_access_mode_matches_the_model() {
    for (table, any_port, ports) in [
        ("access=erew partitions=1", false, 1),
        ("access=erew partitions=4", false, 2),
        ("access=erew partitions=4", true, 3),
        ("access=crew partitions=2", false, 2),
        ("access=crew partitions=4", true, 2),
        ("access=crcw partitions=2", false, 2),
        ("access=erew partitions=2 mode=cache", false, 2),
    ] {
        println!("{table}, any port: {any_port}");
        let server = udp_server(&format!("memory=64MiB {table}"), |options| {
            (options.udp_any_port, options.udp_ports) = (any_port, ports);
        });
        compare(&mut client(&server, |_| ()), 60, 60);
        // One request per packet, packets larger than a frame, values larger than a response.
        server.client().call("FLUSHALL");
        compare(&mut client(&server, |options| options.batch = 1), 5, 60);
        let wide = |options: &mut ClientOptions| {
            (options.packet_bytes, options.answer_bytes) = (20_000, 20_000);
        };
        server.client().call("FLUSHALL");
        compare(&mut client(&server, wide), 15, 6000);
        server.client().call("FLUSHALL");
        compare(&mut client(&server, |_| ()), 15, 6000);
    }
}

#[test]
fn gso_batches_at_either_end_change_no_response() {
    for (here, there) in [(1, 1), (1, 64), (64, 1), (64, 64), (2, 3)] {
        let server = udp_server("memory=64MiB partitions=2", |options| {
            (options.udp_gso_segments, options.udp_ports) = (there, 2);
        });
        for (batch, window, bytes) in [(7, 64, 1400), (3, 5, 512), (20, 16, 20_000)] {
            server.client().call("FLUSHALL");
            let change = |options: &mut ClientOptions| {
                (options.gso_segments, options.batch, options.window) = (here, batch, window);
                (options.packet_bytes, options.answer_bytes) = (bytes, bytes);
            };
            let mut client = client(&server, change);
            compare(&mut client, 15, 90);
            assert_eq!(client.counters().ignored, 0);
        }
    }
}

#[test]
fn invalid_requests_are_rejected_by_the_client() {
    let server = udp_server("memory=32MiB", |_| ());
    let mut client = client(&server, |_| ());
    let (large, long) = (vec![7; 65_400], vec![b'k'; 65_536]);
    assert_eq!(client.put(b"a", &large).unwrap(), Outcome::Stored);
    assert_eq!(client.get(b"a").unwrap().unwrap(), large);
    for (key, value) in [(&b"a"[..], &[7; 65_500][..]), (&long, b"")] {
        let refused = client.put(key, value);
        assert!(matches!(refused, Err(ClientError::TooLarge { .. })), "{refused:?}");
    }
    // A value too large for any packet is still readable over RESP.
    server.client().call_bytes(&[b"SET", b"b", &[7; 70_000]]);
    assert_eq!(client.execute_one(b"b", Action::Get).unwrap().outcome, Outcome::NoRoom);
    let got = client.get(b"b");
    assert!(matches!(got, Err(ClientError::ValueTooLarge)), "{got:?}");
}

#[test]
fn three_protocols_share_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(directory.path().join("db"), DbOptions::default()).unwrap();
    let options = [("mode", "cache"), ("memory", "32MiB"), ("cas", "on")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let durable = db.table_or_create("fruit", "lsm", &BTreeMap::default()).unwrap();
    let cache = db.table_or_create("cache", "mica", &options.into_iter().collect()).unwrap();
    let options = ServerOptions {
        listen: any_address().unwrap(),
        memcached: any_address(),
        memcached_table: Some("cache".into()),
        udp: any_address(),
        ..ServerOptions::default()
    };
    let server = Server::bind(vec![durable.clone(), cache], options).unwrap();
    let (stop, udp) = (server.stop_handle(), server.udp_addr().unwrap());
    let redis = {
        let address = server.local_addr();
        move || crate::support::Client::connect(address)
    };
    let memcached = server.memcached_addr().unwrap();
    let thread = std::thread::spawn(move || server.run());
    let mut client = Client::connect(udp, ClientOptions::default()).unwrap();
    let (mut memcached, mut fruit, mut cached) =
        (crate::support::MemcachedClient::connect(memcached), redis(), redis());
    cached.expect(&[("SELECT 1", "+OK")]);
    fruit.expect(&[("SET a durable", "+OK")]);
    client.put(b"a", b"over udp").unwrap();
    cached.expect(&[("GET a", "\"over udp\""), ("SET b resp", "+OK")]);
    memcached.expect(&[("get a b|", "VALUE a 0 8|over udp|VALUE b 0 4|resp|END|")]);
    memcached.expect(&[("set c 5 0 2|mc|", "STORED|")]);
    assert_eq!(client.get(b"c").unwrap().unwrap(), b"mc");
    assert_eq!(client.get(b"b").unwrap().unwrap(), b"resp");
    // cas and WATCH detect writes over UDP.
    let cas = memcached.cas("c");
    client.put(b"c", b"mc").unwrap();
    let swap = format!("cas c 0 0 1 {cas}|x|");
    memcached.expect(&[(&swap, "EXISTS|")]);
    cached.expect(&[("WATCH c", "+OK"), ("MULTI", "+OK"), ("SET d 1", "+QUEUED")]);
    client.put(b"c", b"mc").unwrap();
    cached.expect(&[("EXEC", "nil")]);
    fruit.expect(&[("GET a", "\"durable\""), ("EXISTS b c", ":0")]);
    stop.stop();
    thread.join().unwrap().unwrap();
    db.close().unwrap();
    let db = Db::open_or_create(directory.path().join("db"), DbOptions::default()).unwrap();
    assert_eq!(db.table("fruit").unwrap().get(b"a").unwrap().unwrap(), b"durable");
    assert_eq!(db.table("cache").unwrap().get(b"a").unwrap(), None);
}

#[test]
fn concurrent_increments_over_three_protocols_are_not_lost() {
    for (access, any_port) in [("erew", false), ("crcw", false), ("crew", true)] {
        let table = format!("memory=32MiB cas=on partitions=2 access={access}");
        let server = udp_server(&table, |options| {
            (options.memcached, options.udp_any_port) = (any_address(), any_port);
        });
        client(&server, |_| ()).put(b"n", b"0").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut memcached = server.memcached_client();
                (0..500).for_each(|_| drop(memcached.request(b"incr n 1\r\n")));
            });
            scope.spawn(|| {
                let mut client = server.client();
                (0..500).for_each(|_| drop(client.call("INCR n")));
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut client = client(&server, |_| ());
                    let requests: Vec<(&[u8], _)> = vec![(b"n", Action::Increment(1)); 7];
                    (0..500).for_each(|_| client.execute(&requests, |_, _| ()).unwrap());
                });
            }
        });
        let count = server.client().call("GET n");
        assert_eq!(count, "\"8000\"", "{access}");
    }
}

/// A network that loses, duplicates and delays packets in both directions, and acts as the server.
fn lossy_network(server: SocketAddr, stop: &AtomicBool, inside: &UdpSocket, outside: &UdpSocket) {
    let mut rng = TestRng::new(77);
    let here = outside.local_addr().unwrap();
    let mut client = None;
    let mut late: Vec<(u64, bool, Vec<u8>)> = Vec::new();
    let mut time = 0;
    for socket in [inside, outside] {
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    }
    while !stop.load(SeqCst) {
        time += 1;
        let mut buffer = [0; 2048];
        for is_out in [true, false] {
            let socket = if is_out { inside } else { outside };
            let Ok((count, from)) = socket.recv_from(&mut buffer) else { continue };
            let mut packet = buffer[..count].to_vec();
            if is_out {
                if packet[3] == 2 {
                    // A welcome: replaces the server's port by the network's.
                    packet[58..60].copy_from_slice(&here.port().to_le_bytes());
                }
            } else {
                client = Some(from);
            }
            match rng.below(10) {
                0 | 1 => {}
                2 | 3 => {
                    late.push((time + rng.below(40), is_out, packet.clone()));
                    late.push((time, is_out, packet));
                }
                4 => late.push((time + rng.below(10), is_out, packet)),
                _ => late.push((time, is_out, packet)),
            }
        }
        let (due, rest): (Vec<_>, Vec<_>) = late.into_iter().partition(|(at, ..)| *at <= time);
        late = rest;
        for (_, is_out, packet) in due {
            match (is_out, client) {
                (true, Some(client)) => drop(outside.send_to(&packet, client)),
                (false, _) => drop(inside.send_to(&packet, server)),
                _ => {}
            }
        }
    }
}

#[test]
fn requests_are_executed_once_over_a_lossy_network() {
    let server = udp_server("memory=32MiB partitions=1", |_| ());
    let [inside, outside] = [0, 0].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    let (address, stop) = (outside.local_addr().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let udp = server.udp.unwrap();
        let (stop, inside, outside) = (&stop, &inside, &outside);
        scope.spawn(move || lossy_network(udp, stop, inside, outside));
        let options = ClientOptions {
            batch: 4,
            deadline: Duration::from_secs(60),
            ..ClientOptions::default()
        };
        let mut client = Client::connect(address, options).unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            client.put(b"n", b"0").unwrap();
            let mut sum = 0;
            for round in 0..30 {
                let requests: Vec<(&[u8], _)> = vec![(b"n", Action::Increment(1)); 1 + round];
                let mut numbers = Vec::new();
                client.execute(&requests, |_, reply| numbers.push(reply.answer.number)).unwrap();
                numbers.sort_unstable();
                let expected: Vec<_> = (sum + 1..=sum + requests.len() as u64).collect();
                assert_eq!(numbers, expected, "round {round}");
                sum += requests.len() as u64;
                // A delayed duplicate of a write must not overwrite a newer one.
                let text = round.to_string();
                client.put(b"v", text.as_bytes()).unwrap();
                assert_eq!(client.get(b"v").unwrap().unwrap(), text.as_bytes());
            }
        }));
        stop.store(true, SeqCst);
        assert!(client.counters().retransmitted > 10, "{:?}", client.counters());
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn client_reconnects_and_detects_a_restarted_server() {
    let first = udp_server("memory=32MiB", |_| ());
    let udp = first.udp.unwrap();
    let mut client = client(&first, |_| ());
    client.put(b"a", b"1").unwrap();
    first.finish().unwrap();
    let second = udp_server("memory=32MiB", |options| options.udp = Some(udp));
    let result = client.put(b"a", b"2");
    assert!(matches!(result, Err(ClientError::Restarted)), "{result:?}");
    assert_eq!(client.get(b"a").unwrap(), None);
    assert_eq!(client.put(b"a", b"2").unwrap(), Outcome::Stored);
    drop(second);
    let gone = Client::connect(
        udp,
        ClientOptions { deadline: Duration::from_millis(100), ..Default::default() },
    );
    assert!(matches!(gone, Err(ClientError::Deadline { .. })));
}

#[test]
fn client_follows_a_change_of_the_access_mode() {
    let engine = mica("memory=32MiB partitions=2 access=crew");
    let store = engine.as_any().unwrap().downcast::<Store>().unwrap();
    let server = TestServer::over(Some(engine), |options| {
        (options.udp, options.udp_ports) = (any_address(), 2);
    });
    let mut client = client(&server, |options| options.batch = 3);
    for (round, access) in [Access::Crew, Access::Erew, Access::Crcw, Access::Erew, Access::Crew]
        .into_iter()
        .cycle()
        .take(20)
        .enumerate()
    {
        store.set_access(access);
        let keys: Vec<_> = (0..40).map(|key| format!("{key}-{round}")).collect();
        let puts: Vec<_> =
            keys.iter().map(|k| (k.as_bytes(), Action::Put(value(k.as_bytes())))).collect();
        client
            .execute(&puts, |_, reply| assert_eq!(reply.answer.outcome, Outcome::Stored))
            .unwrap();
        let gets: Vec<_> = keys.iter().map(|k| (k.as_bytes(), Action::Get)).collect();
        client.execute(&gets, |at, reply| assert_eq!(reply.value, keys[at].as_bytes())).unwrap();
    }
    assert!(client.counters().handshakes > 1);
}

/// The access mode changes while clients write and read back.
#[test]
fn access_mode_changes_under_load() {
    let server = udp_server("memory=32MiB partitions=4", |options| options.udp_ports = 2);
    let running = stop_guard::RunFlag::default();
    std::thread::scope(|scope| {
        for writer in 0..2u8 {
            let (server, running) = (&server, &running);
            scope.spawn(move || {
                let mut client = client(server, |options| options.batch = 4);
                let keys: Vec<_> = (0..40u8).map(|key| [writer, key]).collect();
                for round in 0u32.. {
                    let bytes = round.to_le_bytes();
                    let puts: Vec<_> =
                        keys.iter().map(|key| (&key[..], Action::Put(value(&bytes)))).collect();
                    let stored = |_: usize, reply: siltstone_client::Reply<'_>| {
                        assert_eq!(reply.answer.outcome, Outcome::Stored);
                    };
                    client.execute(&puts, stored).unwrap();
                    let gets: Vec<_> = keys.iter().map(|key| (&key[..], Action::Get)).collect();
                    client.execute(&gets, |_, reply| assert_eq!(reply.value, bytes)).unwrap();
                    if !running.is_set() {
                        break;
                    }
                }
            });
        }
        let _ending = running.clear_on_drop();
        let mut admin = server.client();
        for access in ["crew", "CRCW", "erew"].into_iter().cycle().take(60) {
            admin.expect(&[(&format!("CONFIG SET access {access}"), "+OK")]);
            let now = format!("[\"access\", \"{}\"]", access.to_ascii_lowercase());
            admin.expect(&[("CONFIG GET access", &now)]);
            std::thread::sleep(Duration::from_millis(3));
        }
        let refused = admin.call("CONFIG SET access none");
        assert_eq!(refused, "-ERR 'none' is unknown (there are erew, crew, crcw)");
    });
}

#[test]
fn server_without_a_mica_table_reports_it() {
    let map: Arc<dyn Engine> = Arc::new(crate::support::MapEngine::default());
    let bind = |tables: Vec<(&str, Arc<dyn Engine>)>, change: fn(&mut ServerOptions)| {
        let tables = tables.into_iter().map(|(name, engine)| Table::new(name, engine)).collect();
        let mut options = ServerOptions {
            listen: any_address().unwrap(),
            udp: any_address(),
            ..Default::default()
        };
        change(&mut options);
        Server::bind(tables, options).map(|_| ()).unwrap_err().to_string()
    };
    let refused = bind(vec![("a", map.clone())], |_| ());
    assert!(
        refused.contains("it requires a table of the engine mica, and there is none"),
        "{refused}"
    );
    let both = || vec![("a", map.clone()), ("b", mica("memory=32MiB"))];
    let refused = bind(both(), |options| options.udp_table = Some("a".into()));
    assert!(refused.contains("'a' is not a served table of the engine mica"), "{refused}");
    let refused = bind(both(), |options| {
        (options.memcached, options.memcached_table) = (any_address(), Some("b".into()));
    });
    assert!(refused.contains("cas=on"), "{refused}");
    let refused = bind(both(), |options| options.udp = Some("0.0.0.0:0".parse().unwrap()));
    assert!(refused.contains("no password"), "{refused}");
    let refused = bind(both(), |options| {
        (options.udp, options.udp_ports) = (Some("127.0.0.1:65535".parse().unwrap()), 2);
    });
    assert!(refused.contains("ports are needed") || refused.contains("bind"), "{refused}");
}
