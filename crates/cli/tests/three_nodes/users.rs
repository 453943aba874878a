//! Users over three nodes: each node has them, whichever node was asked to change them, also after
//! a failover, a restart, a join and a backup; and no node is more open than the cluster.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::client::Connection;
use super::groups::leaders;
use super::nodes::{Nodes, SetOnDrop, siltstone, succeeds, tls, wait_for};

fn open(nodes: &Nodes, node: usize) -> Connection {
    Connection::open(nodes.clients[node]).unwrap()
}

fn call(nodes: &Nodes, node: usize, words: &[&str]) -> String {
    open(nodes, node).call(words).unwrap_or_default()
}

/// A connection of a user, once its password is right.
fn log_in(nodes: &Nodes, node: usize, user: &str, password: &str) -> Option<Connection> {
    let mut client = open(nodes, node);
    let reply = client.call(&["AUTH", user, password]);
    (reply.as_deref() == Some("+OK")).then_some(client)
}

/// The users of a node, as one of them who may ask sees them.
fn list(nodes: &Nodes, node: usize, login: Option<(&str, &str)>) -> String {
    let mut client = match login {
        Some((user, password)) => log_in(nodes, node, user, password).unwrap(),
        None => open(nodes, node),
    };
    client.call(&["ACL", "LIST"]).unwrap()
}

/// Waits until the condition holds at all running nodes.
fn wait_for_all(nodes: &Nodes, what: &str, holds: impl Fn(usize) -> bool) {
    for node in nodes.running() {
        wait_for(what, || holds(node));
    }
}

/// Changes users at any node until the change is acknowledged.
fn change(nodes: &Nodes, node: usize, words: &[&str], reply: &str) {
    wait_for("a change of users", || call(nodes, node, words) == reply);
}

#[test]
fn users_are_at_all_nodes_after_failover_restart_and_join() {
    let options = [tls(), vec!["--groups".to_owned(), "4".to_owned()]].concat();
    let mut nodes = Nodes::with_spare(3, 1, &options);
    for node in 0..3 {
        wait_for("leaders that are spread", || leaders(&nodes, node) == [1, 2, 3, 1]);
    }
    // At a node that does not lead the first group.
    let set = ["ACL", "SETUSER", "alice", "on", ">secret", "~*", "&news", "+@all"];
    change(&nodes, 1, &set, "+OK");
    // It is in force there before the reply.
    assert!(log_in(&nodes, 1, "alice", "secret").is_some());
    wait_for_all(&nodes, "a login", |node| log_in(&nodes, node, "alice", "secret").is_some());
    wait_for_all(&nodes, "a refusal", |node| log_in(&nodes, node, "alice", "other").is_none());
    for (node, text) in [
        (0, "Error in ACL SETUSER modifier '+nothing': Unknown command or category name in ACL"),
        (1, "Error in ACL SETUSER modifier '+nothing': Unknown command or category name in ACL"),
    ] {
        let wrong = ["ACL", "SETUSER", "alice", "off", "+nothing"];
        assert_eq!(call(&nodes, node, &wrong), format!("-ERR {text}"));
    }
    assert!(log_in(&nodes, 2, "alice", "secret").is_some());

    // Narrowed rights and the removal reach connections that are open, at other nodes.
    let mut alice: Vec<_> =
        (0..3).map(|node| log_in(&nodes, node, "alice", "secret").unwrap()).collect();
    let mut subscribers: Vec<_> =
        (0..3).map(|node| log_in(&nodes, node, "alice", "secret").unwrap()).collect();
    for (client, subscriber) in alice.iter_mut().zip(&mut subscribers) {
        assert_eq!(client.call(&["PING"]).as_deref(), Some("+PONG"));
        assert_eq!(client.call(&["ACL", "WHOAMI"]).as_deref(), Some("alice"));
        assert_eq!(subscriber.call(&["SUBSCRIBE", "news"]).as_deref(), Some("subscribe,news,:1"));
    }
    change(&nodes, 2, &["ACL", "SETUSER", "alice", "-ping", "resetchannels"], "+OK");
    for (client, subscriber) in alice.iter_mut().zip(&mut subscribers) {
        wait_for("fewer rights", || client.call(&["PING"]).unwrap().starts_with("-NOPERM"));
        assert_eq!(client.call(&["ACL", "WHOAMI"]).as_deref(), Some("alice"));
        assert_eq!(subscriber.reply(), None);
    }
    // Of several users one exists. A client that removes itself gets its reply.
    let removed = alice[1].call(&["ACL", "DELUSER", "alice", "nobody", "alice"]);
    assert_eq!(removed.as_deref(), Some(":1"));
    for client in &mut alice {
        wait_for("a closed connection", || match client.call(&["ACL", "WHOAMI"]).as_deref() {
            None => true,
            Some(reply) => {
                assert!(reply == "alice" || reply.starts_with("-NOPERM"), "{reply}");
                false
            }
        });
    }
    assert_eq!(call(&nodes, 1, &["ACL", "DELUSER", "alice"]), ":0");
    let refused = call(&nodes, 1, &["ACL", "DELUSER", "default"]);
    assert!(refused.contains("cannot be removed"), "{refused}");
    let mut client = open(&nodes, 1);
    assert_eq!(client.call(&["MULTI"]).as_deref(), Some("+OK"));
    assert!(client.call(&["ACL", "SETUSER", "x"]).unwrap().contains("outside of MULTI"));

    // The leader of the first group dies; a node that was down learns what it has missed.
    change(&nodes, 0, &["ACL", "SETUSER", "bob", "on", ">old", "+@all", "~*"], "+OK");
    nodes.kill(0);
    change(&nodes, 1, &["ACL", "SETUSER", "bob", "resetpass", ">new", "~*"], "+OK");
    change(&nodes, 2, &["ACL", "SETUSER", "carol", "on", ">hers", "+@all"], "+OK");
    nodes.restart(0);
    let is_new = |node| {
        log_in(&nodes, node, "bob", "new").is_some()
            && log_in(&nodes, node, "bob", "old").is_none()
            && log_in(&nodes, node, "carol", "hers").is_some()
    };
    wait_for("the users at the node that was down", || is_new(0));
    // A node that joins gets them, and all have the same after a restart.
    nodes.restart(3);
    wait_for("the users at the new node", || log_in(&nodes, 3, "carol", "hers").is_some());
    let all = list(&nodes, 1, None);
    assert!(all.contains("user bob on") && !all.contains("secret") && !all.contains("new "));
    (0..4).for_each(|node| nodes.kill(node));
    (0..4).for_each(|node| nodes.restart(node));
    // Before a leader is known.
    (0..4).for_each(|node| assert!(log_in(&nodes, node, "bob", "new").is_some(), "{node}"));
    wait_for("the same tables", || nodes.cluster("check", &[]).status.code() == Some(0));
    (0..4).for_each(|node| assert_eq!(list(&nodes, node, None), all));
}

#[test]
fn password_of_config_set_is_that_of_all_nodes_and_a_default_of_new_users_is_refused() {
    let mut nodes = Nodes::start(3);
    let leader = nodes.leader();
    let (one, two) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut client = open(&nodes, one);
    assert_eq!(client.call(&["MULTI"]).as_deref(), Some("+OK"));
    let queued = client.call(&["CONFIG", "SET", "requirepass", "x"]).unwrap();
    assert!(queued.contains("call CONFIG outside of MULTI"), "{queued}");
    for node in [leader, one] {
        let set = |value| call(&nodes, node, &["CONFIG", "SET", "acl-pubsub-default", value]);
        let refused = set("allchannels");
        assert!(refused.contains("ACL SETUSER NAME allchannels"), "{refused}");
        assert_eq!(set("resetchannels"), "+OK");
    }
    // Without a majority nothing changes: the password is in force nowhere, or it is committed.
    nodes.kill(two);
    nodes.kill(leader);
    let mut client = open(&nodes, one);
    let refused = client.call(&["CONFIG", "SET", "requirepass", "lost"]);
    assert!(refused.as_deref().is_none_or(|reply| reply.starts_with('-')), "{refused:?}");
    assert_eq!(call(&nodes, one, &["PING"]), "+PONG");
    nodes.restart(two);
    nodes.restart(leader);
    // A program that sends it to each node, as CONFIG SET is for.
    for node in 0..3 {
        wait_for("a password", || {
            let set = ["CONFIG", "SET", "requirepass", "old"];
            call(&nodes, node, &set) == "+OK"
                || log_in(&nodes, node, "default", "old")
                    .is_some_and(|mut client| client.call(&set).as_deref() == Some("+OK"))
        });
    }
    let is_password = |node, right, wrong| {
        call(&nodes, node, &["PING"]).starts_with("-NOAUTH")
            && log_in(&nodes, node, "default", right).is_some()
            && log_in(&nodes, node, "default", wrong).is_none()
    };
    wait_for_all(&nodes, "the password", |node| is_password(node, "old", "new"));
    let mut client = log_in(&nodes, two, "default", "old").unwrap();
    let set = client.call(&["CONFIG", "SET", "requirepass", "new"]);
    assert_eq!(set.as_deref(), Some("+OK"));
    // It is in force there before the reply, and its hash alone is shown.
    assert!(is_password(two, "new", "old"));
    assert!(!client.call(&["ACL", "LIST"]).unwrap().contains("new"));
    wait_for_all(&nodes, "the new password", |node| is_password(node, "new", "old"));
    (0..3).for_each(|node| nodes.kill(node));
    (0..3).for_each(|node| nodes.restart(node));
    for node in 0..3 {
        assert!(call(&nodes, node, &["PING"]).starts_with("-NOAUTH"));
        assert!(log_in(&nodes, node, "default", "new").is_some());
        assert!(log_in(&nodes, node, "default", "old").is_none());
    }
    // Empty: none is needed.
    wait_for("no password", || {
        let client = log_in(&nodes, one, "default", "new");
        let set = client.and_then(|mut client| client.call(&["CONFIG", "SET", "requirepass", ""]));
        set.as_deref() == Some("+OK")
    });
    wait_for_all(&nodes, "an open door", |node| call(&nodes, node, &["PING"]) == "+PONG");
}

/// Creates users one after the other through one node, and counts those that were acknowledged.
fn create_users(nodes: &[std::net::SocketAddr], ends: &AtomicBool, acknowledged: &AtomicU64) {
    let mut next = 0;
    while !ends.load(SeqCst) {
        let number = acknowledged.load(SeqCst);
        let name = format!("user-{number}");
        let set = ["ACL", "SETUSER", &name, "on", ">pw", "+@all"];
        next += 1;
        let client = Connection::open(nodes[next % nodes.len()]).ok();
        if client.and_then(|mut client| client.call(&set)).as_deref() == Some("+OK") {
            acknowledged.store(number + 1, SeqCst);
        }
    }
}

#[test]
fn killed_leader_loses_no_acknowledged_user() {
    let mut nodes = Nodes::start(3);
    nodes.leader();
    let (ends, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let clients = nodes.clients.clone();
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&ends);
        scope.spawn(|| create_users(&clients, &ends, &acknowledged));
        for _ in 0..2 {
            let count = acknowledged.load(SeqCst);
            wait_for("users", || acknowledged.load(SeqCst) > count + 10);
            let leader = nodes.leader();
            nodes.kill(leader);
            let count = acknowledged.load(SeqCst);
            wait_for("users at the others", || acknowledged.load(SeqCst) > count + 5);
            nodes.restart(leader);
        }
    });
    let count = acknowledged.load(SeqCst);
    for node in 0..3 {
        wait_for("all acknowledged users", || {
            (0..count).all(|number| log_in(&nodes, node, &format!("user-{number}"), "pw").is_some())
        });
    }
}

#[test]
fn concurrent_changes_of_one_user_are_all_kept() {
    let nodes = Nodes::start(3);
    nodes.leader();
    std::thread::scope(|scope| {
        for node in 0..3 {
            let nodes = &nodes;
            scope.spawn(move || {
                for number in 0..10 {
                    let pattern = format!("~{node}:{number}");
                    change(nodes, node, &["ACL", "SETUSER", "shared", &pattern], "+OK");
                }
            });
        }
    });
    let patterns: Vec<_> =
        (0..3).flat_map(|node| (0..10).map(move |number| format!("~{node}:{number}"))).collect();
    wait_for_all(&nodes, "all changes", |node| {
        let user = call(&nodes, node, &["ACL", "GETUSER", "shared"]);
        patterns.iter().all(|pattern| user.contains(pattern))
    });
}

fn write_users(path: &Path, lines: &[&str]) -> String {
    std::fs::write(path, lines.join("\n")).unwrap();
    path.display().to_string()
}

const ADMIN: (&str, &str) = ("admin", "root");

#[test]
fn file_of_users_seeds_a_new_cluster_and_rows_win_from_then_on() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("users.acl");
    let off = "user default off";
    let path = write_users(&file, &[off, "user admin on >root ~* &* +@all"]);
    let mut nodes = Nodes::with_spare(3, 1, &["--acl-file".to_owned(), path]);
    // Nobody gets in without a password, from the first moment on.
    (0..3).for_each(|node| assert!(call(&nodes, node, &["PING"]).starts_with("-NOAUTH")));
    let set = ["ACL", "SETUSER", "bob", "on", ">pw", "+@all"];
    wait_for("a first change", || {
        let mut admin = log_in(&nodes, 2, ADMIN.0, ADMIN.1).unwrap();
        admin.call(&set).as_deref() == Some("+OK")
    });
    wait_for_all(&nodes, "the user", |node| log_in(&nodes, node, "bob", "pw").is_some());

    // The file of a node that is started again is wider. It is ignored, and the node says so.
    write_users(&file, &["user default on nopass ~* &* +@all"]);
    nodes.kill(1);
    nodes.restart(1);
    assert!(call(&nodes, 1, &["PING"]).starts_with("-NOAUTH"));
    assert!(log_in(&nodes, 1, "bob", "pw").is_some());
    wait_for("the warning", || nodes.log(1).contains("users.acl' are ignored, which differ"));

    // SAVE writes the users of all nodes to the file of one, LOAD takes them from there.
    let mut admin = log_in(&nodes, 1, ADMIN.0, ADMIN.1).unwrap();
    assert_eq!(admin.call(&["ACL", "SAVE"]).as_deref(), Some("+OK"));
    let saved = std::fs::read_to_string(&file).unwrap();
    assert!(saved.contains("user bob on") && saved.contains(off), "{saved}");
    let loaded = saved.lines().filter(|line| !line.starts_with("user bob"));
    write_users(&file, &loaded.chain(["user carol on >pw +@all"]).collect::<Vec<_>>());
    assert_eq!(admin.call(&["ACL", "LOAD"]).as_deref(), Some("+OK"));
    wait_for_all(&nodes, "the loaded users", |node| {
        log_in(&nodes, node, "bob", "pw").is_none() && log_in(&nodes, node, "carol", "pw").is_some()
    });
    write_users(&file, &["user carol on +nothing"]);
    assert!(admin.call(&["ACL", "LOAD"]).unwrap().starts_with("-ERR"));
    assert!(log_in(&nodes, 0, "carol", "pw").is_some());

    // All passwords are forgotten: who has the machine gets in.
    nodes.kill(2);
    write_users(&file, &[off, "user admin on >again ~* &* +@all"]);
    let mut command = nodes.command(2);
    command.arg("--replace-users");
    nodes.run(2, command);
    wait_for("the new password at all nodes", || {
        (0..3).all(|node| {
            log_in(&nodes, node, ADMIN.0, "again").is_some()
                && log_in(&nodes, node, ADMIN.0, ADMIN.1).is_none()
                && log_in(&nodes, node, "carol", "pw").is_none()
        })
    });
    // A local server has no such option.
    let dir = scratch.path().join("local").display().to_string();
    let refused = siltstone(&["serve", &dir, "--replace-users"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn node_that_joins_lets_nobody_in_before_it_has_the_users() {
    let mut nodes = Nodes::with_spare(3, 1, &tls());
    nodes.leader();
    change(&nodes, 0, &["ACL", "SETUSER", "default", "resetpass", ">pw"], "+OK");
    wait_for_all(&nodes, "a closed door", |node| {
        call(&nodes, node, &["PING"]).starts_with("-NOAUTH")
    });
    // Without certificates it is added, and receives nothing.
    let mut command = nodes.command(3);
    let words: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let is_tls = |word: &&[std::ffi::OsString]| word[0].to_str().unwrap().contains("cluster-tls");
    let certificates = tls().len();
    let at = words.windows(certificates).position(|words| is_tls(&words)).unwrap();
    let mut blind = Command::new(command.get_program());
    blind.args(&words[..at]).args(&words[at + certificates..]);
    for command in [&mut blind, &mut command] {
        command.args(["--join-user", "default", "--password", "pw"]);
    }
    nodes.run(3, blind);
    for words in [&["PING"][..], &["AUTH", "pw"], &["AUTH", "default", "pw"], &["HELLO", "3"]] {
        let reply = call(&nodes, 3, words);
        assert!(reply.starts_with("-LOADING this node has joined"), "{words:?}: {reply}");
    }
    nodes.kill(3);
    nodes.run(3, command);
    wait_for("the users at the new node", || log_in(&nodes, 3, "default", "pw").is_some());
    assert!(call(&nodes, 3, &["PING"]).starts_with("-NOAUTH"));
}

#[test]
fn restored_cluster_has_the_users_of_the_backup() {
    let scratch = tempfile::tempdir().unwrap();
    let repository = scratch.path().join("repository").display().to_string();
    let nodes = Nodes::with_spare(3, 0, &[format!("--backup={repository}")]);
    nodes.leader();
    change(&nodes, 1, &["ACL", "SETUSER", "admin", "on", ">root", "~*", "&*", "+@all"], "+OK");
    change(&nodes, 1, &["ACL", "SETUSER", "default", "off"], "+OK");
    let address = nodes.clients[2].to_string();
    let login = ["--user", "admin", "--password", "root"];
    let backup = [&["cluster", "backup", &address][..], &login].concat();
    wait_for("the user", || log_in(&nodes, 2, "admin", "root").is_some());
    succeeds(&siltstone(&backup));
    let mut restored = Nodes::not_started(1, 0, &[]);
    restored.cluster_id = 78;
    let dir = restored.dir(0).display().to_string();
    succeeds(&siltstone(&["restore", &repository, &dir]));
    restored.start_first();
    // Its own options would let everybody in.
    assert!(call(&restored, 0, &["PING"]).starts_with("-NOAUTH"));
    let mut admin = log_in(&restored, 0, "admin", "root").unwrap();
    wait_for("a change in the restored cluster", || {
        let set = ["ACL", "SETUSER", "bob", "on", ">pw"];
        admin.call(&set).as_deref() == Some("+OK")
    });
    drop(nodes);
}
