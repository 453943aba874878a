//! redis-py in cluster mode over three nodes, of which the leader of the first group is killed. The
//! other clients run by `crates/cli/tests/cluster_clients/run`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::client::Connection;
use super::groups::leaders;
use super::nodes::{Nodes, wait_for};

#[test]
fn redis_py_loses_no_acknowledged_write_when_a_leader_is_killed() {
    let python = std::env::var("SILTSTONE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_module = Command::new(&python).args(["-c", "import redis.cluster"]).output();
    if !has_module.is_ok_and(|output| output.status.success()) {
        println!("skipped: {python} has no redis-py with a cluster mode");
        return;
    }
    let mut nodes = Nodes::with_spare(3, 0, &["--groups".to_owned(), "4".to_owned()]);
    for node in 0..3 {
        wait_for("leaders that are spread", || leaders(&nodes, node) == [1, 2, 3, 1]);
    }
    let set = ["ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all"];
    wait_for("the user of the program", || {
        Connection::open(nodes.clients[2]).unwrap().call(&set).as_deref() == Some("+OK")
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster_clients/redis_py.py");
    let ports = nodes.clients.iter().map(|address| address.port().to_string());
    let program = Command::new(python)
        .arg(script)
        .arg("6")
        .args(ports)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    nodes.kill(0);
    std::thread::sleep(Duration::from_secs(1));
    nodes.restart(0);
    let output = program.wait_with_output().unwrap();
    let [text, errors] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{errors}");
    assert!(text.contains("\"lost\": 0") && !text.contains("\"acknowledged\": 0"), "{text}");
    // As the book says: MOVED, CLUSTERDOWN, closed connections.
    for unnamed in ["ERR ", "WRONGPASS", "NOAUTH", "NOPERM", "CROSSSLOT"] {
        assert!(!text.contains(unnamed), "{text}");
    }
}
