//! A server whose files reach the file size limit (`ulimit -f`) refuses writes, and accepts them
//! again after the limit is raised.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod server_process;

use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use server_process::Server;

fn serve(dir: &Path, engine: &str) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    command.arg("serve").arg(dir);
    command.args(["--listen", "127.0.0.1:0", "--table", &format!("default={engine}")]);
    Server::start(&mut command)
}

fn limit_file_sizes(server: &Server, bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let limit = Rlimit { current: bytes.or(maximum), maximum };
    prlimit(Some(server.pid()), Resource::Fsize, limit).unwrap();
}

#[test]
fn writes_beyond_the_file_size_limit_are_refused_until_it_is_raised() {
    for engine in ["lsm", "trie", "silt", "skimpy"] {
        let scratch = tempfile::tempdir().unwrap();
        let mut server = serve(scratch.path(), engine);
        limit_file_sizes(&server, Some(400 << 10));
        let value = "v".repeat(2000);
        let mut acknowledged = 0;
        let refusal = loop {
            let reply = server.send(&format!("SET key-{acknowledged} {value}"));
            if reply != "+OK" {
                break reply;
            }
            acknowledged += 1;
            assert!(acknowledged < 1000, "{engine}: no write was refused");
        };
        assert!(refusal.starts_with("-MISCONF") && refusal.contains("ulimit"), "{refusal}");
        assert_eq!(server.send(&format!("EXISTS key-{acknowledged}")), ":0", "{engine}");
        limit_file_sizes(&server, None);
        assert_eq!(server.send("SET after it-was-raised"), "+OK", "{engine}");
        server.terminate();

        let mut server = serve(scratch.path(), engine);
        assert_eq!(server.send(&format!("EXISTS key-{acknowledged}")), ":0", "{engine}");
        assert_eq!(server.send("GET after"), "it-was-raised", "{engine}");
        for key in 0..acknowledged {
            assert_eq!(server.send(&format!("GET key-{key}")), value, "{engine}: key-{key}");
        }
        server.terminate();
    }
}
