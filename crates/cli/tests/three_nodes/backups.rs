//! A cluster is backed up under writers, and restored into a new cluster and into a single node:
//! every write that was acknowledged before the backup is there, and of each writer a prefix.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::client::{Answer, ClusterClient, Connection};
use super::nodes::{Nodes, SetOnDrop, siltstone, succeeds, text, wait_for};

const WRITERS: usize = 4;
/// The cluster that is restored.
const NEW_CLUSTER: u64 = 78;

/// The key of a write. All of a writer are in one slot.
fn key(writer: usize, number: u64) -> String {
    format!("{{writer-{writer}}}:{number}")
}

/// Writes one key after the other, each until it is acknowledged; `acknowledged` is the number of
/// all keys so far.
fn write(nodes: &[SocketAddr], writer: usize, ends: &AtomicBool, acknowledged: &AtomicU64) {
    let mut client = ClusterClient::impatient(nodes);
    let mut number = acknowledged.load(SeqCst);
    while !ends.load(SeqCst) {
        let set = ["SET", &key(writer, number), &number.to_string()];
        if let Answer::Reply(reply) = client.call(&set) {
            assert_eq!(reply, "+OK");
            number += 1;
            acknowledged.store(number, SeqCst);
        }
    }
}

fn load_function(nodes: &[SocketAddr]) {
    const CODE: &str = "#!lua name=lib\nredis.register_function('kept', function() return 7 end)";
    let mut client = ClusterClient::new(nodes);
    wait_for("the library", || {
        let load = client.call(&["FUNCTION", "LOAD", CODE]);
        matches!(load, Answer::Reply(name) if name == "lib")
    });
}

/// Whether the function that was loaded is there.
fn has_function(nodes: &Nodes) -> bool {
    let answer = ClusterClient::new(&nodes.clients).call(&["FCALL", "kept", "1", "{writer-0}:0"]);
    matches!(answer, Answer::Reply(reply) if reply == ":7")
}

/// How many of a writer's keys there are, which must be the first ones.
fn prefix(nodes: &[SocketAddr], writer: usize) -> u64 {
    let mut client = ClusterClient::new(nodes);
    let mut get = |number: u64| {
        let mut value = None;
        wait_for("an answer", || match client.call(&["GET", &key(writer, number)]) {
            Answer::Reply(reply) => {
                value = Some(reply);
                true
            }
            Answer::Refused | Answer::Unknown => false,
        });
        value.filter(|value| value != "$-1")
    };
    let mut count = 0;
    while let Some(value) = get(count) {
        assert_eq!(value, count.to_string());
        count += 1;
    }
    assert!((count..count + 50).all(|later| get(later).is_none()), "a gap after {count}");
    count
}

/// Checks that of each writer there is what was acknowledged before the backup, and no more than
/// was begun before its end.
fn check_prefixes(nodes: &[SocketAddr], bounds: &[(u64, u64)]) {
    for (writer, &(least, most)) in bounds.iter().enumerate() {
        let found = prefix(nodes, writer);
        assert!((least..=most).contains(&found), "writer {writer}: {found}, not {least} to {most}");
    }
}

/// The bytes of all files below a directory.
fn bytes_in(dir: &Path) -> u64 {
    let entries = dir.read_dir().unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => bytes_in(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}

/// Adds rows of 16 MiB in all.
fn fill(nodes: &[SocketAddr]) {
    let mut client = ClusterClient::new(nodes);
    let random = |number: u64| {
        let mut state = number + 1;
        let letters = (0..1 << 18).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + (state >> 59) as u8 % 26)
        });
        letters.collect::<String>()
    };
    for number in 0..64 {
        let set = ["SET", &format!("large:{number}"), &random(number)];
        wait_for("a large row", || matches!(client.call(&set), Answer::Reply(_)));
    }
}

/// Has node 2 back the cluster up under writers. Returns the least and the most that the backup has
/// of each writer.
fn back_up_under_writers(nodes: &Nodes, acknowledged: &[AtomicU64; WRITERS]) -> Vec<(u64, u64)> {
    let ends = AtomicBool::new(false);
    let counts = || acknowledged.each_ref().map(|count| count.load(SeqCst));
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&ends);
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let (clients, ends) = (&nodes.clients, &ends);
            scope.spawn(move || write(clients, writer, ends, acknowledged));
        }
        let begun = counts();
        wait_for("writes", || counts().iter().zip(begun).all(|(now, begun)| *now > begun + 50));
        let least = counts();
        succeeds(&siltstone(&["cluster", "backup", &nodes.clients[1].to_string()]));
        // One more may be under way.
        let most = counts().map(|count| count + 1);
        wait_for("more writes", || counts().iter().zip(most).all(|(now, most)| *now > most + 20));
        least.into_iter().zip(most).collect()
    })
}

/// Nodes of a new cluster, the first of which is restored and none of which runs.
fn restored(repository: &str, id: &str, joining: usize) -> Nodes {
    let mut nodes = Nodes::not_started(1, joining, &[]);
    nodes.cluster_id = NEW_CLUSTER;
    let dir = nodes.dir(0).display().to_string();
    let printed = succeeds(&siltstone(&["restore", repository, &dir, "--id", id]));
    assert!(printed.contains("the first node of a new cluster"), "{printed}");
    nodes
}

/// The names of all backups in a repository.
fn ids(repository: &str) -> Vec<String> {
    let listed = succeeds(&siltstone(&["backups", repository]));
    listed.lines().map(|line| line.split_once(' ').unwrap().0.to_owned()).collect()
}

fn refused_start(nodes: &Nodes, expected: &str) {
    let output = nodes.command(0).output().unwrap();
    assert!(text(&output).contains(expected) && !output.status.success(), "{}", text(&output));
}

/// Backs a cluster with some groups up twice, and restores both backups.
fn check_with_groups(groups: u64) {
    let scratch = tempfile::tempdir().unwrap();
    let repository = scratch.path().join("repository").display().to_string();
    let options = [format!("--groups={groups}"), format!("--backup={repository}")];
    let mut nodes = Nodes::with_spare(3, 0, &options);
    nodes.leader();
    fill(&nodes.clients);
    load_function(&nodes.clients);
    let acknowledged = Default::default();
    let first = back_up_under_writers(&nodes, &acknowledged);
    let first_bytes = bytes_in(scratch.path());
    let second = back_up_under_writers(&nodes, &acknowledged);
    let new_bytes = bytes_in(scratch.path()) - first_bytes;
    assert!(first_bytes > 16 << 20 && new_bytes < first_bytes / 2, "{first_bytes}, {new_bytes}");
    let ids = ids(&repository);
    let shown = succeeds(&siltstone(&["backups", &repository, "--check"]));
    assert_eq!((ids.len(), shown.matches(": intact").count()), (2, 2), "{shown}");
    let listed = succeeds(&siltstone(&["backups", &repository]));
    assert_eq!(listed.matches("node 2 of cluster 77, ").count(), 2, "{listed}");

    // A single node.
    let mut single = restored(&repository, &ids[0], 0);
    refuses_what_could_vote_in_the_old_cluster(&mut single);
    single.start_first();
    check_prefixes(&single.clients, &first);
    wait_for("the function", || has_function(&single));
    single.kill(0);
    single.restart(0);
    check_prefixes(&single.clients, &first);
    drop(single);

    // Three nodes, beside those of the old cluster.
    let mut three = restored(&repository, &ids[1], 2);
    three.start_first();
    three.leader();
    for node in 1..3 {
        three.restart(node);
    }
    wait_for("three voters", || {
        let status = text(&three.cluster("status", &[]));
        status.matches("3 of 3 voters answer").count() as u64 == groups
    });
    let shown = succeeds(&three.cluster("check", &[]));
    assert_eq!(shown.matches("3 nodes have the same ").count() as u64, groups, "{shown}");
    check_prefixes(&three.clients, &second);
    wait_for("the function", || has_function(&three));
    three.kill(0);
    let mut client = ClusterClient::new(&three.clients);
    wait_for("a write without the restored node", || {
        matches!(client.call(&["SET", "{writer-0}:after", "1"]), Answer::Reply(_))
    });
    never_takes_part_in_the_old_cluster(&mut nodes, &repository, &ids[1]);
    damaged_backup_is_refused(&repository, &ids[1], scratch.path());
}

fn refuses_what_could_vote_in_the_old_cluster(single: &mut Nodes) {
    single.cluster_id = 77;
    refused_start(single, "restored from a backup of cluster 77: give the new cluster another");
    single.cluster_id = NEW_CLUSTER;
    let hosts = vec![single.host(0).clone(), Nodes::not_started(1, 0, &[]).host(0).clone()];
    let two = Nodes::planned(hosts, 2, &[]);
    refused_start(&two, "name this node alone; the others join it");
    let dir = single.dir(0).display().to_string();
    let join = siltstone(&["serve", &dir, "--join", "127.0.0.1:1", "--listen", "127.0.0.1:2"]);
    assert!(text(&join).contains("becomes the first node of a new cluster"), "{}", text(&join));
    let local = siltstone(&["serve", &dir]);
    assert!(text(&local).contains("as the first node of a new cluster"), "{}", text(&local));
}

/// A restored node at the address of a dead node of the old cluster, under its number, gives the
/// only other one no majority.
fn never_takes_part_in_the_old_cluster(nodes: &mut Nodes, repository: &str, id: &str) {
    nodes.kill(0);
    nodes.kill(1);
    let mut host = nodes.host(0).clone();
    host.dir.set_file_name("restored");
    host.log = Some(host.dir.with_extension("log"));
    succeeds(&siltstone(&["restore", repository, &host.dir.display().to_string(), "--id", id]));
    let mut impostor = Nodes::planned(vec![host], 1, &[]);
    impostor.cluster_id = NEW_CLUSTER;
    impostor.start_first();
    impostor.leader();
    let refusal = format!("belongs to cluster {NEW_CLUSTER:016x}");
    wait_for("the refusal of the other cluster", || nodes.log(2).contains(&refusal));
    // A leader that loses its majority closes connections.
    let refused = || {
        let mut client = Connection::open(nodes.clients[2]).unwrap();
        client.call(&["SET", "k", "v"]).unwrap_or_default()
    };
    wait_for("the loss of the majority", || refused().starts_with("-CLUSTERDOWN "));
    // Several election timeouts.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(refused().starts_with("-CLUSTERDOWN "));
    drop(impostor);
    nodes.restart(0);
    nodes.leader();
}

fn damaged_backup_is_refused(repository: &str, id: &str, scratch: &Path) {
    let blobs = Path::new(repository).join("blobs");
    let directories = blobs.read_dir().unwrap().map(|entry| entry.unwrap().path());
    for directory in directories {
        for blob in directory.read_dir().unwrap() {
            let path = blob.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[0] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }
    }
    let target = scratch.join("damaged");
    let refused = siltstone(&["restore", repository, &target.display().to_string(), "--id", id]);
    assert!(refused.status.code() == Some(3) && !target.exists(), "{}", text(&refused));
    let check = siltstone(&["backups", repository, "--check"]);
    assert!(check.status.code() == Some(1) && text(&check).contains(": DAMAGED"));
}

#[test]
fn backup_of_one_group_has_what_was_acknowledged_and_begins_new_clusters() {
    check_with_groups(1);
}

#[test]
fn backup_of_several_groups_has_what_was_acknowledged_and_begins_new_clusters() {
    check_with_groups(4);
}

#[test]
fn node_without_repository_and_its_directory_are_refused_with_what_to_do() {
    let nodes = Nodes::start(1);
    nodes.leader();
    let refused = nodes.cluster("backup", &[]);
    assert!(text(&refused).contains("start it with --backup REPOSITORY"), "{}", text(&refused));
    let (dir, target) = (nodes.dir(0).display().to_string(), "never-created");
    for command in ["backup", "checkpoint"] {
        let refused = siltstone(&[command, &dir, target]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused).contains("use siltstone cluster backup"), "{}", text(&refused));
    }
    // Every acknowledged write is durable at a majority already.
    let mut client = Connection::open(nodes.clients[0]).unwrap();
    assert_eq!(client.call(&["SAVE"]).as_deref(), Some("+OK"));
}
