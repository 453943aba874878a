//! The history of concurrent clients is linearizable while their table moves between engines.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use siltstone::{Db, DbOptions};
use siltstone_testkit::TestRng;
use siltstone_testkit::linear::{Act, Operation, is_linearizable};
use siltstone_testkit::stop_guard::RunFlag;

use crate::support::Client;
use crate::table_moves::{MICA, SKIMPY, bind, move_to, serve};

const CLIENTS: u64 = 4;
const KEYS: u64 = 3;
/// Operations of each client and move at full speed. Further ones are slower, which bounds the time
/// of the check.
const FAST_OPERATIONS: u64 = 400;

fn number(reply: &str) -> Option<u64> {
    (reply != "nil").then(|| reply.trim_matches('"').parse().unwrap())
}

/// Sends one command, and returns what it did to the register that is its key. Values of SET are
/// multiples of a million, and there are fewer INCRs than that.
fn act(client: &mut Client, key: u64, kind: u64, unique: u64) -> Act {
    match kind {
        0..2 => {
            client.expect(&[(&format!("SET k{key} {unique}"), "+OK")]);
            Act::Write(Some(unique))
        }
        2 => match client.call(&format!("DEL k{key}")).as_str() {
            ":0" => Act::Read(None),
            _ => Act::Write(None),
        },
        3..5 => {
            let reply = client.call(&format!("INCR k{key}"));
            let to = reply.strip_prefix(':').unwrap_or_else(|| panic!("{reply}")).parse().unwrap();
            Act::Swap { from: if to == 1 { None } else { Some(to - 1) }, to: Some(to) }
        }
        5 => {
            let reply = client.call(&format!("SET k{key} {unique} GET"));
            Act::Swap { from: number(&reply), to: Some(unique) }
        }
        _ => Act::Read(number(&client.call(&format!("GET k{key}")))),
    }
}

fn record(
    client: &mut Client,
    id: u64,
    (clock, moves): (&AtomicU64, &AtomicU64),
    running: &RunFlag,
) -> Vec<(u64, Operation)> {
    let mut rng = TestRng::new(id);
    let mut done = Vec::new();
    let (mut current, mut fast) = (0, 0);
    for step in 0.. {
        if !running.is_set() {
            break;
        }
        if current != moves.load(SeqCst) {
            (current, fast) = (moves.load(SeqCst), 0);
        }
        fast += 1;
        if fast > FAST_OPERATIONS {
            std::thread::sleep(Duration::from_millis(2));
        }
        let (key, kind) = (rng.below(KEYS), rng.below(9));
        let unique = (1 + step * CLIENTS + id) * 1_000_000;
        let called = clock.fetch_add(1, SeqCst);
        let act = act(client, key, kind, unique);
        done.push((key, Operation { called, returned: clock.fetch_add(1, SeqCst), act }));
    }
    done
}

#[test]
fn history_of_concurrent_clients_is_linearizable_over_several_switches() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let mut histories = vec![Vec::new(); KEYS as usize];
    // Operations before, between and after the switches.
    let mut seen = Vec::new();
    serve(bind(&db, &["default"], |_| ()), |connect| {
        let (clock, moves, running) = (AtomicU64::new(0), AtomicU64::new(0), RunFlag::default());
        let mut mover = connect();
        let clients: Vec<Client> = (0..CLIENTS).map(|_| connect()).collect();
        std::thread::scope(|scope| {
            let (stop, running, times) = (running.clear_on_drop(), &running, (&clock, &moves));
            let clients: Vec<_> = (0..)
                .zip(clients)
                .map(|(id, mut client)| {
                    scope.spawn(move || record(&mut client, id, times, running))
                })
                .collect();
            for target in ["silt", "lsm", MICA, "trie", SKIMPY, "lsm"] {
                seen.push(clock.load(SeqCst));
                moves.fetch_add(1, SeqCst);
                move_to(&mut mover, target);
            }
            seen.push(clock.load(SeqCst));
            drop(stop);
            for client in clients {
                for (key, operation) in client.join().unwrap() {
                    histories[key as usize].push(operation);
                }
            }
        });
    });
    let count: usize = histories.iter().map(Vec::len).sum();
    println!("{count} operations, at the switches {seen:?}");
    assert!(seen.windows(2).all(|times| times[1] > times[0]), "{seen:?}");
    for (key, history) in histories.iter().enumerate() {
        assert!(is_linearizable(history), "the history of key {key} is not linearizable");
    }
    db.close().unwrap();
}
