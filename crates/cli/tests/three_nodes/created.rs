//! `cluster create` from nothing to three nodes, and again.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::client::{Answer, ClusterClient};
use super::nodes::wait_for;

/// The first of some consecutive ports for clients, which are free together with those for nodes.
/// All are below 32768: from there on the system gives ports to outgoing connections, and those of
/// other tests would take them between this look and the start of the nodes.
fn ports(count: u16) -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let all_free = |first: &u16| (*first..first + count).all(|p| is_free(p) && is_free(p + 10_000));
    let start = 11_000 + (std::process::id() % 900) as u16 * 10;
    (start..start + 2000).step_by(10).find(all_free).unwrap()
}

#[test]
fn created_group_serves_until_a_signal_and_again_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let port = ports(3);
    let clients: Vec<SocketAddr> = (0..3).map(|i| ([127, 0, 0, 1], port + i).into()).collect();
    for run in 0..2 {
        let mut created = Command::new(env!("CARGO_BIN_EXE_siltstone"))
            .args(["cluster", "create", &dir.path().join("group").display().to_string()])
            .args(["--port", &port.to_string(), "--", "--election-timeout", "300ms"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(created.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(first.starts_with("3 nodes serve, node "), "{first}");
        let mut client = ClusterClient::new(&clients);
        wait_for("an answer", || match client.call(&["INCR", "runs"]) {
            Answer::Reply(reply) => {
                assert_eq!(reply, format!(":{}", run + 1));
                true
            }
            _ => false,
        });
        kill_process(Pid::from_raw(created.id() as i32).unwrap(), Signal::INT).unwrap();
        assert_eq!(created.wait().unwrap().code(), Some(0));
        assert!(TcpListener::bind(clients[0]).is_ok());
    }
}
