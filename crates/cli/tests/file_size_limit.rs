//! A server whose files reach the file size limit (`ulimit -f`) refuses writes, and accepts them
//! again after the limit is raised.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

struct Server {
    child: Child,
    stream: BufReader<TcpStream>,
}

impl Server {
    fn start(dir: &Path, engine: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_siltstone"))
            .arg("serve")
            .arg(dir)
            .args(["--listen", "127.0.0.1:0", "--table", &format!("default={engine}")])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().rsplit(' ').next().unwrap();
        let stream = BufReader::new(TcpStream::connect(address).unwrap());
        Server { child, stream }
    }

    fn limit_file_sizes(&self, bytes: Option<u64>) {
        let maximum = getrlimit(Resource::Fsize).maximum;
        let limit = Rlimit { current: bytes.or(maximum), maximum };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit).unwrap();
    }

    /// Sends a command of words without spaces; returns the first line of the reply, or a bulk
    /// value.
    fn send(&mut self, command: &str) -> String {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        if let Some(length) = line.strip_prefix('$').filter(|it| !it.starts_with('-')) {
            let mut value = vec![0; length.trim_end().parse::<usize>().unwrap() + 2];
            self.stream.read_exact(&mut value).unwrap();
            line = String::from_utf8(value).unwrap();
        }
        line.trim_end().to_owned()
    }

    fn terminate(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn writes_beyond_the_file_size_limit_are_refused_until_it_is_raised() {
    for engine in ["lsm", "trie", "silt", "skimpy"] {
        let scratch = tempfile::tempdir().unwrap();
        let mut server = Server::start(scratch.path(), engine);
        server.limit_file_sizes(Some(400 << 10));
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
        server.limit_file_sizes(None);
        assert_eq!(server.send("SET after it-was-raised"), "+OK", "{engine}");
        server.terminate();

        let mut server = Server::start(scratch.path(), engine);
        assert_eq!(server.send(&format!("EXISTS key-{acknowledged}")), ":0", "{engine}");
        assert_eq!(server.send("GET after"), "it-was-raised", "{engine}");
        for key in 0..acknowledged {
            assert_eq!(server.send(&format!("GET key-{key}")), value, "{engine}: key-{key}");
        }
        server.terminate();
    }
}
