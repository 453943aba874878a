//! `backup`, `restore` and `backups` from the command line, and backups of a server.

use std::path::Path;
use std::process::{Command, Output};

use crate::server_process::Server;

fn siltstone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = siltstone(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn store_is_backed_up_listed_checked_and_restored() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (store, backups, restored) = (path("store"), path("backups"), path("restored"));
    printed(&["put", &store, "apples", "3"]);
    let first = printed(&["backup", &store, &backups, "--verify"]);
    let first = first.split(':').next().unwrap().to_owned();
    printed(&["put", &store, "apples", "4"]);
    printed(&["backup", &store, &backups]);
    let list = printed(&["backups", &backups]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains(&first) && list.contains(&store), "{list}");
    assert_eq!(printed(&["backups", &backups, "--check"]).matches(": intact").count(), 2);
    printed(&["restore", &backups, &restored]);
    assert_eq!(printed(&["get", &restored, "apples"]).trim(), "4");
    let earlier = path("earlier");
    printed(&["restore", &backups, &earlier, "--id", &first]);
    assert_eq!(printed(&["get", &earlier, "apples"]).trim(), "3");
    // Never over an existing store.
    let refused = siltstone(&["restore", &backups, &restored]);
    assert_eq!(refused.status.code(), Some(3));
    assert_eq!(printed(&["get", &restored, "apples"]).trim(), "4");
    printed(&["backup", &store, &backups, "--keep", "1"]);
    assert_eq!(printed(&["backups", &backups]).lines().count(), 1);
}

#[test]
fn damaged_manifest_is_reported_with_what_helps_a_repository() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (store, backups) = (path("store"), path("backups"));
    printed(&["put", &store, "apples", "3"]);
    printed(&["backup", &store, &backups]);
    let mut manifests = Path::new(&backups).join("backups").read_dir().unwrap();
    let manifest = manifests.next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&manifest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&manifest, bytes).unwrap();
    let listed = siltstone(&["backups", &backups]);
    let text = String::from_utf8(listed.stderr).unwrap();
    assert_eq!(listed.status.code(), Some(3), "{text}");
    assert!(text.contains(&format!("siltstone backups {backups} --check")), "{text}");
    assert!(!text.contains("siltstone repair"), "{text}");
}

#[test]
fn damaged_backup_ends_with_status_1_and_a_directory_that_is_no_repository_with_3() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (store, backups) = (path("store"), path("backups"));
    printed(&["put", &store, "apples", "3"]);
    printed(&["backup", &store, &backups]);
    let directories = Path::new(&backups).join("blobs").read_dir().unwrap();
    for directory in directories {
        for file in directory.unwrap().path().read_dir().unwrap() {
            let file = file.unwrap().path();
            let mut bytes = std::fs::read(&file).unwrap();
            bytes.push(0);
            std::fs::write(&file, bytes).unwrap();
        }
    }
    let checked = siltstone(&["backups", &backups, "--check"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&checked.stdout).contains("DAMAGED"));
    let restored = siltstone(&["restore", &backups, &path("restored")]);
    assert_eq!(restored.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&restored.stderr).contains("--check"));
    assert!(!Path::new(&path("restored")).exists());
    let refused = siltstone(&["backups", &store]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no repository"));
    assert!(siltstone(&["get", &store, "apples"]).status.success());
}

/// The number of backups that the server has completed.
fn completed(server: &mut Server) -> u64 {
    let info = server.send("INFO persistence");
    let line = info.lines().find_map(|line| line.strip_prefix("rdb_saves:")).unwrap();
    line.parse().unwrap()
}

#[test]
fn server_backs_up_while_it_serves() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (store, backups) = (path("store"), path("backups"));
    let serve = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
        command.args(["serve", &store, "--listen", "127.0.0.1:0", "--backup", &backups]);
        Server::start(command.args(arguments))
    };
    let mut server = serve(&[]);
    assert_eq!(server.send("LASTSAVE"), ":0");
    for n in 0..500 {
        assert_eq!(server.send(&format!("SET key:{n} {n}")), "+OK");
    }
    assert_eq!(server.send("BGSAVE"), "+Background saving started");
    // Served meanwhile.
    let mut n = 500;
    while completed(&mut server) == 0 {
        assert_eq!(server.send(&format!("SET key:{n} {n}")), "+OK");
        n += 1;
    }
    assert_ne!(server.send("LASTSAVE"), ":0");
    // The store is in use, so the command refuses.
    assert_eq!(siltstone(&["backup", &store, &backups]).status.code(), Some(3));
    server.terminate();
    let restored = path("restored");
    printed(&["restore", &backups, &restored]);
    let rows = path("rows.tsv");
    printed(&["export", &restored, &rows]);
    let rows = std::fs::read_to_string(&rows).unwrap();
    for n in 0..500 {
        assert!(rows.lines().any(|row| row == format!("key:{n}\t{n}")), "{n} is missing");
    }
    assert!(printed(&["verify", &restored]).contains("intact"));
    // On a schedule, and only the newest are kept.
    let mut server = serve(&["--backup-interval", "10ms", "--backup-keep", "2"]);
    while completed(&mut server) < 4 {
        server.send("SET key:0 again");
    }
    server.terminate();
    assert_eq!(printed(&["backups", &backups]).lines().count(), 2);
    assert_eq!(printed(&["backups", &backups, "--check"]).matches(": intact").count(), 2);
}

#[test]
fn libraries_of_functions_are_restored_with_the_store() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let serve = |store: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
        let arguments = ["--listen", "127.0.0.1:0", "--backup", &path("backups")];
        Server::start(command.args(["serve", &path(store)]).args(arguments))
    };
    let load = |server: &mut Server, value: &str| {
        let code = format!("redis.register_function('f',function()return'{value}'end)");
        let load = format!("FUNCTION LOAD REPLACE \"#!lua name=a\\n{code}\"");
        assert_eq!(server.send(&load), "a");
    };
    let restored_value = |name: &str| {
        printed(&["restore", &path("backups"), &path(name)]);
        let mut server = serve(name);
        let value = server.send("FCALL f 0");
        server.terminate();
        value
    };
    let mut server = serve("store");
    load(&mut server, "one");
    assert_eq!(server.send("BGSAVE"), "+Background saving started");
    while completed(&mut server) == 0 {
        std::thread::yield_now();
    }
    // A change after the backup does not reach it.
    load(&mut server, "two");
    assert_eq!(restored_value("first"), "one");
    server.terminate();
    printed(&["backup", &path("store"), &path("backups")]);
    assert_eq!(restored_value("second"), "two");
    // A checkpoint has them, too, and is independent of the store.
    printed(&["checkpoint", &path("store"), &path("copy")]);
    let mut server = serve("store");
    load(&mut server, "three");
    server.terminate();
    let mut server = serve("copy");
    assert_eq!(server.send("FCALL f 0"), "two");
    server.terminate();
}
