//! Nodes whose files are encrypted: nothing of their rows is readable on disk, in logs, in received
//! snapshots and in backups; keys are replaced node by node.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::client::{Answer, ClusterClient};
use super::nodes::{Nodes, siltstone, succeeds, text, wait_for};

const SECRET: &str = "nobody-may-read-this";
const ROWS: usize = 300;

/// Writes a key file of these bytes, 64 digits each.
fn write_keys(path: &Path, keys: &[&str]) -> String {
    let lines: Vec<_> = keys.iter().map(|digits| digits.repeat(32)).collect();
    fs::write(path, lines.join("\n")).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// The files below a directory that have the secret in them, and the number of all.
fn readable_in(dir: &Path) -> (Vec<String>, usize) {
    let (mut found, mut files) = (Vec::new(), 0);
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let (below, count) = readable_in(&path);
            found.extend(below);
            files += count;
        } else {
            files += 1;
            let bytes = fs::read(&path).unwrap();
            let is_readable = bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
            found.extend(is_readable.then(|| path.display().to_string()));
        }
    }
    (found, files)
}

fn assert_unreadable(dir: &Path) {
    let (found, files) = readable_in(dir);
    assert!(found.is_empty() && files > 3, "{files} files, readable: {found:?}");
}

/// Writes all rows, or checks that they are there.
fn for_each_row(nodes: &Nodes, command: &[&str], expected: &str) {
    let mut client = ClusterClient::new(&nodes.clients);
    for row in 0..ROWS {
        let key = format!("{SECRET}:{row}");
        let words = [&[command[0], &key], &command[1..]].concat();
        wait_for("an answer", || match client.call(&words) {
            Answer::Reply(reply) => {
                assert_eq!(reply, expected);
                true
            }
            Answer::Refused | Answer::Unknown => false,
        });
    }
}

fn check_with_groups(groups: u64) {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let old = write_keys(&path("old.key"), &["1a"]);
    let (new, both) = (write_keys(&path("new.key"), &["2b"]), path("both.key"));
    let both = write_keys(&both, &["2b", "1a"]);
    let repository = path("repository").display().to_string();
    let options = [format!("--groups={groups}"), format!("--backup={repository}")];
    let mut nodes = Nodes::not_started(3, 1, &options);
    nodes.key_file = Some(old.clone());
    nodes.start_first();
    nodes.leader();
    let value = SECRET.repeat(200);
    for_each_row(&nodes, &["SET", &value], "+OK");
    // A node that joins receives snapshots, and one that was killed recovers.
    nodes.restart(3);
    wait_for("four voters", || {
        let status = text(&nodes.cluster("status", &[]));
        status.matches("4 of 4 voters answer").count() as u64 == groups
    });
    nodes.kill(1);
    nodes.restart(1);
    for_each_row(&nodes, &["GET"], &value);
    succeeds(&siltstone(&["cluster", "backup", &nodes.clients[1].to_string()]));
    (0..4).for_each(|node| assert_unreadable(nodes.dir(node)));
    assert_unreadable(Path::new(&repository));

    // A new key, node by node, and neither another key nor none.
    for node in 0..4 {
        nodes.kill(node);
        if node == 0 {
            let refused = |nodes: &mut Nodes, key: Option<&String>, expected: &str| {
                nodes.key_file = key.cloned();
                let output = nodes.command(0).output().unwrap();
                let is_refused = output.status.code() == Some(3);
                assert!(is_refused && text(&output).contains(expected), "{}", text(&output));
            };
            refused(&mut nodes, None, "the node's directory is encrypted: give its key");
            refused(&mut nodes, Some(&new), "the key");
        }
        let dir = nodes.dir(node).display().to_string();
        let report = succeeds(&siltstone(&["rekey", &dir, "--key-file", &both]));
        assert!(!report.contains(" 0 rewrapped") && !report.contains("at byte"), "{report}");
        nodes.key_file = Some(new.clone());
        nodes.restart(node);
    }
    for_each_row(&nodes, &["GET"], &value);
    let check = text(&nodes.cluster("check", &[]));
    assert_eq!(check.matches("4 nodes have the same ").count() as u64, groups, "{check}");

    // The backup needs the key that it was taken with.
    let mut restored = Nodes::not_started(1, 0, &[]);
    restored.cluster_id = 78;
    let dir = restored.dir(0).display().to_string();
    succeeds(&siltstone(&["restore", &repository, &dir]));
    let refused = restored.command(0).output().unwrap();
    assert!(text(&refused).contains("is encrypted: give its key"), "{}", text(&refused));
    restored.key_file = Some(old);
    restored.start_first();
    for_each_row(&restored, &["GET"], &value);
    assert_unreadable(restored.dir(0));
    drop(restored);
    plain_node_is_not_started_with_a_key(&new);
}

fn plain_node_is_not_started_with_a_key(key: &str) {
    let mut plain = Nodes::start(1);
    plain.leader();
    plain.kill(0);
    plain.key_file = Some(key.to_owned());
    let refused = plain.command(0).output().unwrap();
    assert!(
        text(&refused).contains("is not encrypted: open it without a key"),
        "{}",
        text(&refused)
    );
    let dir = plain.dir(0).display().to_string();
    let rekey = siltstone(&["rekey", &dir, "--key-file", key]);
    assert!(text(&rekey).contains("is not encrypted"), "{}", text(&rekey));
    plain.key_file = None;
    plain.restart(0);
    plain.leader();
}

#[test]
fn files_of_nodes_with_one_group_are_unreadable_without_the_key() {
    check_with_groups(1);
}

#[test]
fn files_of_nodes_with_several_groups_are_unreadable_without_the_key() {
    check_with_groups(3);
}
