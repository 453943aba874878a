//! `siltstone changes` prints the change feed of a table.

use std::process::Command;

use crate::import_export::siltstone;

#[test]
fn changes_are_printed_in_order_and_followed_beside_the_writer() {
    let scratch = tempfile::tempdir().unwrap();
    let store = scratch.path().join("s");
    let dir = store.display().to_string();
    let printed = |arguments: &[&str]| {
        let arguments = [&["changes", dir.as_str()][..], arguments].concat();
        String::from_utf8(siltstone(&arguments).stdout).unwrap()
    };
    let table = "default=lsm,log_retention=1MiB";
    siltstone(&["put", &dir, "a", "1", "--table", table]);
    siltstone(&["put", &dir, "b", "x\ty"]);
    siltstone(&["del", &dir, "a"]);
    let all = ["1\tput\ta\t1\n", "2\tput\tb\tx\\ty\n", "3\tdelete\ta\n"];
    assert_eq!(printed(&[]), all.concat());
    assert_eq!(printed(&["--after", "2"]), all[2]);
    assert_eq!(printed(&["--limit", "2"]), all[..2].concat());

    let db = siltstone::Db::open(&store, siltstone::DbOptions::default()).unwrap();
    let table = db.table("default").unwrap();
    let mut follower = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    follower.args(["changes", &dir, "--after", "2", "--follow", "--limit", "3"]);
    follower.args(["--format", "jsonl"]).stdout(std::process::Stdio::piped());
    let follower = follower.spawn().unwrap();
    let mut batch = siltstone::WriteBatch::new();
    batch.put_until(b"c", b"\xff", u64::MAX - 1).delete_range(&b"x"[..]..);
    table.write(&batch, siltstone::Durability::Buffered).unwrap();
    table.clear().unwrap();
    let output = follower.wait_with_output().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = [
        serde_json::json!({"first_sequence": 3, "sequence": 3, "operations": [
            {"operation": "delete", "key": "a"}
        ]}),
        serde_json::json!({"first_sequence": 4, "sequence": 5, "operations": [
            {"operation": "put", "key": "c", "value_hex": "ff", "expires_at": u64::MAX - 1},
            {"operation": "delete-range", "start": "x"}
        ]}),
        serde_json::json!({"first_sequence": 6, "sequence": 6, "event": "clear"}),
    ];
    assert_eq!(lines, expected);
    assert_eq!(printed(&["--after", "5", "--reader"]), "6\tclear\n");
    db.close().unwrap();

    let gone = ["changes", &dir, "--after", "77"];
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(gone).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("after sequence 77"), "{message}");
}
