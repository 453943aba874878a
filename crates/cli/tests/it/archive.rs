//! The archive of changes of a server, and restores to a moment, from the command line.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::server_process::Server;

struct Fixture {
    scratch: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Fixture { scratch: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.scratch.path().join(name).display().to_string()
    }

    fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    fn serve_with(&self, arguments: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
        command.args(arguments);
        command.args(["serve", &self.path("shop"), "--listen", "127.0.0.1:0"]);
        command.args(["--backup", &self.path("backups"), "--backup-log-interval", "20ms"]);
        Server::start(&mut command)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_siltstone"))
            .args(arguments)
            .current_dir(self.scratch.path())
            .output()
            .unwrap()
    }

    fn printed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn info(server: &mut Server, field: &str) -> u64 {
    let info = server.send("INFO persistence");
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().parse().unwrap()
}

/// The present time in milliseconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Waits for a mark behind everything that has happened so far, and returns its moment.
fn archived(server: &mut Server) -> String {
    let mut time = now();
    // The state of the first mark after a moment may be that before it.
    for _ in 0..2 {
        let mut mark = 0;
        while mark <= time {
            std::thread::sleep(Duration::from_millis(5));
            mark = info(server, "siltstone_archive_last_mark_ms");
        }
        time = mark;
    }
    format!("{}.{:03}", time / 1000, time % 1000)
}

#[test]
fn flushall_of_a_server_is_undone_also_after_it_was_killed() {
    let fixture = Fixture::new();
    let mut server = fixture.serve();
    // The first mark asks for a backup.
    while info(&mut server, "rdb_saves") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.send("SET apples 3"), "+OK");
    assert_eq!(server.send("RPUSH orders first second"), ":2");
    assert_eq!(server.send("SET basket open EX 86400"), "+OK");
    let before = archived(&mut server);
    assert_eq!(server.send("FLUSHALL"), "+OK");
    assert_eq!(server.send("SET pears 5"), "+OK");
    let after = archived(&mut server);
    assert_eq!(info(&mut server, "siltstone_archive_failures"), 0);
    assert!(info(&mut server, "siltstone_archive_lag_seconds") < 60);
    server.kill();

    let list = fixture.printed(&["backups", "backups"]);
    assert!(list.contains("any moment from "), "{list}");
    let text = fixture.printed(&["restore", "backups", "undone", "--at", &before]);
    assert!(text.contains("restored the state of 20"), "{text}");
    let mut undone = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    undone.args(["serve", &fixture.path("undone"), "--listen", "127.0.0.1:0"]);
    let mut undone = Server::start(&mut undone);
    assert_eq!(undone.send("GET apples"), "3");
    assert_eq!(undone.send("LLEN orders"), ":2");
    assert!(undone.send("TTL basket").strip_prefix(':').unwrap().parse::<i64>().unwrap() > 80_000);
    assert_eq!(undone.send("EXISTS pears"), ":0");
    undone.terminate();
    fixture.printed(&["restore", "backups", "flushed", "--at", &after]);
    assert_eq!(fixture.printed(&["get", "flushed", "pears"]).trim(), "5");
    assert_eq!(fixture.run(&["get", "flushed", "apples"]).status.code(), Some(1));

    // The killed server goes on where it was, without a gap and a second backup.
    let mut server = fixture.serve();
    assert_eq!(server.send("SET plums 7"), "+OK");
    let later = archived(&mut server);
    assert_eq!(info(&mut server, "rdb_saves"), 0);
    server.terminate();
    fixture.printed(&["restore", "backups", "later", "--at", &later]);
    assert_eq!(fixture.printed(&["get", "later", "plums"]).trim(), "7");
    let json = fixture.printed(&["backups", "backups", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json[0]["moments"]["first"].is_string() && json[0]["moments"]["end"].is_null());
}

#[test]
fn moment_without_an_archive_or_outside_of_it_is_refused() {
    let fixture = Fixture::new();
    fixture.printed(&["put", "shop", "apples", "3"]);
    fixture.printed(&["backup", "shop", "backups"]);
    let text = fixture.refused(&["restore", "backups", "r", "--at", "2026-11-29T15:04:00Z"]);
    assert!(text.contains("--backup-log-interval"), "{text}");
    let text = fixture.refused(&["restore", "backups", "r", "--at", "yesterday"]);
    assert!(text.contains("2026-11-29T15:04:00Z"), "{text}");
    fixture.refused(&["restore", "backups", "r", "--at", "0", "--id", "x"]);
    fixture.refused(&["serve", "shop", "--backup-log-interval", "10s"]);
    fixture.refused(&["serve", "shop", "--backup", "backups", "--backup-log-interval", "1ms"]);
    let mut server = fixture.serve();
    while info(&mut server, "rdb_saves") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    archived(&mut server);
    server.terminate();
    for moment in ["2020-01-01T00:00:00Z", "2150-01-01T00:00:00Z"] {
        let text = fixture.refused(&["restore", "backups", "r", "--at", moment]);
        assert!(text.contains("has the moments from 20"), "{text}");
    }
    assert!(!Path::new(&fixture.path("r")).exists());
}

#[test]
fn damaged_segment_is_reported_by_the_check_with_status_1() {
    let fixture = Fixture::new();
    let mut server = fixture.serve();
    while info(&mut server, "rdb_saves") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.send("SET apples 3");
    let moment = archived(&mut server);
    server.terminate();
    let text = fixture.printed(&["backups", "backups", "--check"]);
    assert!(text.contains("segments of archived changes are intact"), "{text}");
    let series = fixture.scratch.path().join("backups/archive").read_dir().unwrap();
    let mut segments: Vec<_> = series
        .flat_map(|series| series.unwrap().path().read_dir().unwrap())
        .map(|segment| segment.unwrap().path())
        .filter(|path| !path.ends_with("HEAD"))
        .collect();
    segments.sort();
    let last = segments.last().unwrap();
    let mut bytes = std::fs::read(last).unwrap();
    bytes[100] ^= 1;
    std::fs::write(last, bytes).unwrap();
    let checked = fixture.run(&["backups", "backups", "--check"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&checked.stdout).contains("DAMAGED: "));
    let restored = fixture.run(&["restore", "backups", "r", "--at", &moment]);
    assert_eq!(restored.status.code(), Some(3));
    let text = String::from_utf8_lossy(&restored.stderr).into_owned();
    assert!(text.contains("archive") && text.contains("--check"), "{text}");
}

#[test]
fn archive_of_an_encrypted_store_is_encrypted_with_its_key() {
    const SECRET: &str = "secret-apples-of-one-customer";
    let fixture = Fixture::new();
    let key = fixture.path("key");
    std::fs::write(&key, "5a".repeat(32)).unwrap();
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let mut server = fixture.serve_with(&["--key-file", &key]);
    while info(&mut server, "rdb_saves") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.send(&format!("SET {SECRET} 3"));
    let moment = archived(&mut server);
    server.terminate();
    let mut segments = 0;
    for series in fixture.scratch.path().join("backups/archive").read_dir().unwrap() {
        for segment in series.unwrap().path().read_dir().unwrap() {
            let path = segment.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            // A body that can be read is a zstd frame.
            let is_readable = !path.ends_with("HEAD") && bytes[80..84] == [0x28, 0xb5, 0x2f, 0xfd];
            let has_name = bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
            assert!(!is_readable && !has_name, "{path:?}");
            segments += 1;
        }
    }
    assert!(segments > 2);
    let without = fixture.run(&["restore", "backups", "r", "--at", &moment]);
    assert_eq!(without.status.code(), Some(3), "{without:?}");
    assert!(!Path::new(&fixture.path("r")).exists());
    fixture.printed(&["--key-file", &key, "restore", "backups", "r", "--at", &moment]);
    assert_eq!(fixture.printed(&["--key-file", &key, "get", "r", SECRET]).trim(), "3");
    // The check needs no key.
    fixture.printed(&["backups", "backups", "--check"]);
}
