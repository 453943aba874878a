//! `backup`, `restore`, `backups` and backups of a server, with a repository in an object store.

use std::process::{Command, Output};

use crate::s3_server::{S3Server, SECRET};
use crate::server_process::Server;

fn siltstone(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    command.args(arguments).env_remove("AWS_PROFILE");
    command
}

fn run(server: &S3Server, arguments: &[&str]) -> Output {
    server.provide(&mut siltstone(arguments)).output().unwrap()
}

fn printed(server: &S3Server, arguments: &[&str]) -> String {
    let output = run(server, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn store_is_backed_up_listed_checked_and_restored_over_http() {
    let s3 = S3Server::start();
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (store, url, restored) = (path("store"), "s3://backups/shops/one", path("restored"));
    printed(&s3, &["put", &store, "apples", "3"]);
    let first = printed(&s3, &["backup", &store, url, "--verify"]);
    let first = first.split(':').next().unwrap().to_owned();
    printed(&s3, &["put", &store, "apples", "4"]);
    printed(&s3, &["backup", &store, url]);
    let list = printed(&s3, &["backups", url]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert_eq!(printed(&s3, &["backups", url, "--check"]).matches(": intact").count(), 2);
    printed(&s3, &["restore", url, &restored]);
    assert_eq!(printed(&s3, &["get", &restored, "apples"]).trim(), "4");
    let earlier = path("earlier");
    printed(&s3, &["restore", url, &earlier, "--id", &first]);
    assert_eq!(printed(&s3, &["get", &earlier, "apples"]).trim(), "3");
    printed(&s3, &["backup", &store, url, "--keep", "1"]);
    assert_eq!(printed(&s3, &["backups", url]).lines().count(), 1);
    // Damage is found, set aside, and written again by the next backup.
    let blobs = s3.change("/blobs/", |content| content.push(0));
    assert!(blobs > 0);
    let checked = run(&s3, &["backups", url, "--check", "--set-aside"]);
    assert_eq!(checked.status.code(), Some(1), "{}", String::from_utf8_lossy(&checked.stderr));
    assert_eq!(s3.change(".damaged", |_| {}), blobs);
    printed(&s3, &["backup", &store, url]);
    assert_eq!(printed(&s3, &["backups", url, "--check"]).matches(": intact").count(), 2);
}

#[test]
fn server_backs_up_to_an_object_store_while_it_serves() {
    let s3 = S3Server::start();
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (store, url) = (path("store"), "s3://backups/shop");
    let mut command = siltstone(&["serve", &store, "--listen", "127.0.0.1:0", "--backup", url]);
    let mut server = Server::start(s3.provide(&mut command));
    for n in 0..500 {
        assert_eq!(server.send(&format!("SET key:{n} {n}")), "+OK");
    }
    assert_eq!(server.send("BGSAVE"), "+Background saving started");
    let mut info = server.send("INFO persistence");
    while info.contains("rdb_bgsave_in_progress:1") {
        info = server.send("INFO persistence");
    }
    assert!(info.contains("rdb_last_bgsave_status:ok") && info.contains("rdb_saves:1"), "{info}");
    server.terminate();
    printed(&s3, &["restore", url, &path("restored")]);
    assert_eq!(printed(&s3, &["get", &path("restored"), "key:499"]).trim(), "499");
}

#[test]
fn node_of_a_cluster_backs_up_to_an_object_store() {
    let s3 = S3Server::start();
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let url = "s3://backups/cluster";
    let node = ["--node-id", "1", "--initial-cluster", "1=127.0.0.1:0", "--backup", url];
    let mut command = siltstone(&["serve", &path("node"), "--listen", "127.0.0.1:0"]);
    let mut server = Server::start(s3.provide(command.args(node)));
    while server.send("SET key value") != "+OK" {
        std::thread::yield_now();
    }
    printed(&s3, &["cluster", "backup", &server.address()]);
    server.terminate();
    assert_eq!(printed(&s3, &["backups", url, "--check"]).matches(": intact").count(), 1);
    let restored = printed(&s3, &["restore", url, &path("restored")]);
    assert!(restored.contains("first node of a new cluster"), "{restored}");
}

/// Each error names the URL and what to do, and no secret.
#[test]
fn mistakes_are_explained() {
    let s3 = S3Server::start();
    let scratch = tempfile::tempdir().unwrap();
    let store = scratch.path().join("store").display().to_string();
    printed(&s3, &["put", &store, "apples", "3"]);
    let assert_refused = |command: &mut Command, parts: &[&str]| {
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
        assert!(!text.contains(SECRET) && !text.contains("wrong-key"), "{text}");
    };
    let mut command = siltstone(&["backup", &store, "s3://backups/x"]);
    let command = s3.provide(&mut command).env("AWS_ACCESS_KEY_ID", "wrong-key");
    let parts = ["s3://backups/x/FORMAT", "rejects the credentials (InvalidAccessKeyId)"];
    assert_refused(command, &parts);
    let mut command = siltstone(&["backups", "s3://other/x"]);
    let parts = ["s3://other/x/FORMAT", "there is no such bucket: create it"];
    assert_refused(s3.provide(&mut command), &parts);
    let mut command = siltstone(&["backups", "s3://backups/nothing"]);
    assert_refused(s3.provide(&mut command), &["s3://backups/nothing: it is no repository"]);
    let mut command = siltstone(&["backups", &format!("s3://key:{SECRET}@backups/x")]);
    assert_refused(s3.provide(&mut command), &["credentials come from environment variables"]);
    let mut command = siltstone(&["serve", &store, "--backup", "ftp://backups/x"]);
    assert_refused(s3.provide(&mut command), &["ftp is no object store; use s3, gs or az"]);
}
