//! A server that is killed while its table moves to other engines: after a SIGKILL at any moment
//! the store has one whole table with each acknowledged write, and nothing else.
//!
//! `SILTSTONE_KILLS=N` kills more often.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use siltstone_testkit::TestRng;

use crate::server_process::{Connection, Server};

const CLIENTS: u64 = 3;
const DEFAULT_KILLS: u64 = 5;

fn serve(dir: &str) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    Server::start(command.args(["serve", dir, "--listen", "127.0.0.1:0", "--fsync", "always"]))
}

#[test]
fn sigkill_during_moves_leaves_one_table_with_each_acknowledged_write() {
    let kills = std::env::var("SILTSTONE_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills: u64 = kills.unwrap_or(DEFAULT_KILLS);
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("store");
    let dir = path.display().to_string();
    let mut rng = TestRng::new(44);
    // The writes c:0 … c:(n−1) of client c are acknowledged, and the counter is n.
    let acknowledged: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let mut moves = 0;
    for kill in 0..=kills {
        let mut server = serve(&dir);
        let names = std::fs::read_dir(&path).unwrap().map(|it| it.unwrap().file_name());
        let tables = names.filter(|name| name.to_string_lossy().starts_with("table-"));
        assert_eq!(tables.count(), 1, "kill {kill}");
        for (c, count) in acknowledged.iter().enumerate() {
            for i in 0..count.load(SeqCst) {
                assert_eq!(server.send(&format!("GET {c}:{i}")), i.to_string(), "kill {kill}");
            }
            let counter = server.send(&format!("GET counter:{c}")).parse().unwrap_or(0);
            let written = count.load(SeqCst);
            // The last write may have happened without a reply.
            assert!((written..=written + 1).contains(&counter), "{counter} of {written}");
            count.store(counter, SeqCst);
            for i in written..counter {
                assert_eq!(server.send(&format!("SET {c}:{i} {i}")), "+OK");
            }
        }
        if kill == kills {
            server.terminate();
            break;
        }
        let pid = server.pid();
        std::thread::scope(|scope| {
            for (c, count) in acknowledged.iter().enumerate() {
                let mut client = Connection::open(&server.address());
                scope.spawn(move || {
                    loop {
                        let i = count.load(SeqCst);
                        let unit = format!("MULTI\r\nSET {c}:{i} {i}\r\nINCR counter:{c}\r\nEXEC");
                        let replies = client.lines(&unit, 6);
                        let Some(replies) = replies else { return };
                        assert_eq!(replies[5], format!(":{}", i + 1), "{replies:?}");
                        count.store(i + 1, SeqCst);
                    }
                });
            }
            let server = &mut server;
            let moves = &mut moves;
            let mover = scope.spawn(move || {
                for engine in ["silt", "trie", "lsm"].iter().cycle() {
                    let command = format!("CONFIG MOVE default {engine}");
                    match server.try_send(&command).as_deref() {
                        Some("+Background move started") => *moves += 1,
                        None => return,
                        Some(other) => panic!("{other}"),
                    }
                    loop {
                        let Some(info) = server.try_send("INFO persistence") else { return };
                        if info.contains("table_move_in_progress:0") {
                            assert!(info.contains("table_move_status:ok"), "{info}");
                            break;
                        }
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(200 + rng.below(300)));
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            mover.join().unwrap();
        });
    }
    let total: u64 = acknowledged.iter().map(|count| count.load(SeqCst)).sum();
    println!("{moves} moves and {total} acknowledged writes at {kills} kills");
    assert!(moves >= kills && total > kills, "{moves} moves, {total} writes");
}

#[test]
fn table_whose_requests_are_recorded_does_not_move() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name| scratch.path().join(name).display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    let command = command.args(["serve", &path("store"), "--listen", "127.0.0.1:0"]);
    let mut server = Server::start(command.args(["--trace-out", &path("trace")]));
    let refused = server.send("CONFIG MOVE default silt");
    assert!(refused.contains("start the server without --trace-out"), "{refused}");
    assert_eq!(server.send("SET k v"), "+OK");
    server.terminate();
}
