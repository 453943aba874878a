//! `siltstone cluster check` of a node that never has the entry which it is asked for.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::support::read_command;

/// A leader that loses its leadership before it commits the entry of a comparison.
struct DeposedLeader {
    address: String,
    is_deposed: AtomicBool,
}

impl DeposedLeader {
    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut out = stream.try_clone().ok()?;
        let mut input = BufReader::new(stream);
        loop {
            let words = read_command(&mut input)?;
            let reply = match (&*words[1], &*words[2.min(words.len() - 1)]) {
                ("STATUS", _) => {
                    let is_deposed = self.is_deposed.load(Relaxed);
                    let (role, term) = if is_deposed { ("follower", 6) } else { ("leader", 5) };
                    let status = format!(
                        "group:7\r\nnode:1\r\nrole:{role}\r\nterm:{term}\r\nleader:1\r\n\
                         applied:10\r\nvoters:1\r\nmember:1={}@17001\r\n",
                        self.address
                    );
                    format!("${}\r\n{status}\r\n", status.len())
                }
                ("CHECK", "START") => {
                    self.is_deposed.store(true, Relaxed);
                    "$3\r\n123\r\n".to_owned()
                }
                ("CHECK", "RESULT") => "$-1\r\n".to_owned(),
                other => panic!("{other:?}"),
            };
            out.write_all(reply.as_bytes()).ok()?;
        }
    }
}

#[test]
fn check_whose_leader_has_lost_the_entry_ends_and_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let leader = DeposedLeader { address: address.clone(), is_deposed: AtomicBool::new(false) };
    std::thread::spawn(move || {
        std::thread::scope(|scope| {
            for stream in listener.incoming().map_while(Result::ok) {
                scope.spawn(|| leader.serve(stream));
            }
        });
    });
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(["cluster", "check", &address, "--timeout", "3s"])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(shown.contains("it has lost the leadership before the entry was committed"), "{shown}");
}
