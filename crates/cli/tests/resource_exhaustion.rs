//! A server whose file system is full, that has no file descriptors left, or whose directory is
//! deleted: on the machine's own file systems, for each durable engine.
//!
//! | what happens | what must follow |
//! | --- | --- |
//! | a small `tmpfs` fills up, has space again, and the server is killed or ends by SIGTERM | after the restart no refused write is there and every acknowledged one is, and writes work once there is space |
//! | FLUSHALL runs on a `tmpfs` that is full to the last page | it succeeds, and writes work |
//! | background jobs have no descriptor, and later some | no table stays read-only; the server reports the problem meanwhile |
//! | the store's directory is deleted | writes are refused at the latest with the next sync, and the exit status is not 0 |
//!
//! `SILTSTONE_FULL_DISKS` sets the number of full file systems per engine, 8 by default; mounting
//! them needs root.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

/// The durable engines, small enough that some hundred writes reach every part of them.
const ENGINES: [&str; 4] = [
    "default=lsm,memtable=64KiB,target_file_size=64KiB,levels=256KiB:1MiB",
    "default=trie,htable_size=64KiB,bucket_size=512",
    "default=silt,partitions=2,log_store_slots=64,max_log_size=64KiB",
    "default=skimpy,capacity=4MiB,block=4,buckets=64",
];

/// The maximum time until a table works again.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running server.
struct Server {
    child: Child,
    address: String,
    errors: Arc<Mutex<String>>,
    /// Reads its messages until it has ended.
    reader: Option<JoinHandle<()>>,
}

impl Server {
    fn start(dir: &Path, table: &str, fsync: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_siltstone"))
            .arg("serve")
            .arg(dir)
            .args(["--listen", "127.0.0.1:0", "--fsync", fsync, "--threads", "1", "--table", table])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let (errors, mut line) = (Arc::new(Mutex::new(String::new())), String::new());
        while !line.starts_with("serving ") {
            line.clear();
            let read = lines.read_line(&mut line).unwrap();
            assert!(read > 0, "{table}: no server: {}", errors.lock().unwrap());
            errors.lock().unwrap().push_str(&line);
        }
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        let shared = errors.clone();
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
                shared.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
        });
        Server { child, address, errors, reader: Some(reader) }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        let replies = BufReader::new(stream.try_clone().unwrap());
        Client { stream, replies }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Ends it by SIGTERM.
    fn end(mut self) -> (ExitStatus, String) {
        kill_process(self.pid(), Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        // The last lines may still be in the pipe.
        self.reader.take().map(JoinHandle::join).unwrap().unwrap();
        let errors = self.errors.lock().unwrap().clone();
        (status, errors)
    }

    /// Ends it by SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn last_descriptor(&self) -> u64 {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let numbers = open.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        numbers.map(|name| name.parse().unwrap()).max().unwrap()
    }

    fn has_reported(&self, words: &str) -> bool {
        self.errors.lock().unwrap().contains(words)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Client {
    /// Sends a request and returns the reply; `None` if the connection is gone.
    fn send(&mut self, words: &[&[u8]]) -> Option<Reply> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&request).ok()?;
        let mut line = String::new();
        self.replies.read_line(&mut line).ok().filter(|&read| read > 0)?;
        let line = line.trim_end();
        match line.strip_prefix('$').map(|len| len.parse::<usize>()) {
            Some(Ok(len)) => {
                let mut value = vec![0; len + 2];
                self.replies.read_exact(&mut value).ok()?;
                value.truncate(len);
                Some(Reply::Value(Some(value)))
            }
            Some(Err(_)) => Some(Reply::Value(None)),
            None if line.starts_with('-') => Some(Reply::Refused(line.to_owned())),
            None => Some(Reply::Done),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Reply {
    Done,
    Refused(String),
    Value(Option<Vec<u8>>),
}

/// Random numbers from a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The possible states of each key: two where a connection ended without a reply.
type Model = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// A client that writes at random, and records the expected states.
struct Writer<'s> {
    server: &'s Server,
    client: Client,
    rng: Rng,
    keys: u64,
    model: Model,
    refusals: Vec<String>,
}

impl<'s> Writer<'s> {
    fn new(server: &'s Server, seed: u64, keys: u64) -> Self {
        let (client, model) = (server.connect(), Model::new());
        Writer { server, client, rng: Rng(seed), keys, model, refusals: Vec::new() }
    }

    /// One SET or DEL; `false` if it was refused. Many values end in zeros.
    fn write(&mut self) -> bool {
        let key = format!("key-{:02}", self.rng.below(self.keys)).into_bytes();
        let value = (self.rng.below(5) > 0).then(|| {
            let mut value = vec![b'a' + self.rng.below(26) as u8; self.rng.below(3000) as usize];
            let kept = value.len() as u64 - self.rng.below(value.len() as u64 + 1);
            value[kept as usize..].fill(0);
            value
        });
        let reply = match &value {
            Some(value) => self.client.send(&[b"SET", &key, value]),
            None => self.client.send(&[b"DEL", &key]),
        };
        let states = self.model.entry(key).or_insert_with(|| vec![None]);
        match reply {
            Some(Reply::Done) => *states = vec![value],
            // The outcome is unknown: see `durability.md`.
            Some(Reply::Refused(line)) if line.contains("may not be durable") => {
                states.push(value);
                self.client = self.server.connect();
                return false;
            }
            Some(Reply::Refused(line)) => {
                self.refusals.push(line);
                return false;
            }
            Some(other) => panic!("{other:?}"),
            None => {
                states.push(value);
                self.client = self.server.connect();
                return false;
            }
        }
        true
    }

    /// Writes `count` times, refused or not.
    fn try_to_write(&mut self, count: usize) {
        for _ in 0..count {
            self.write();
        }
    }

    /// Retries a write until it succeeds.
    fn write_again(&mut self, what: &str) {
        let began = Instant::now();
        while !self.write() {
            assert!(
                began.elapsed() < TIMEOUT,
                "{what}: refused forever: {:?}",
                self.refusals.last()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn check(server: &Server, model: &Model, what: &str) {
    let mut client = server.connect();
    for (key, states) in model {
        let Some(Reply::Value(found)) = client.send(&[b"GET", key]) else {
            panic!("{what}: no GET")
        };
        let show = |state: &Option<Vec<u8>>| state.as_ref().map(|v| (v.first().copied(), v.len()));
        assert!(
            states.contains(&found),
            "{what}: {} should be one of {:?} and is {:?}",
            key.escape_ascii(),
            states.iter().map(show).collect::<Vec<_>>(),
            show(&found)
        );
    }
}

/// A file system of a given size.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` if this user may not mount one.
    fn mount(at: PathBuf, bytes: u64) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "siltstone-test"])
            .arg(&at)
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(at))
    }

    /// Fills it except for `free` bytes.
    fn fill(&self, free: u64) {
        let mut ballast = File::create(self.0.join("ballast")).unwrap();
        let mut bytes = 0;
        while ballast.write_all(&[7; 4096]).is_ok() {
            bytes += 4096;
        }
        ballast.set_len(u64::saturating_sub(bytes, free)).unwrap();
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_file_system_loses_no_acknowledged_write_and_shows_no_refused_one() {
    let count: u64 = std::env::var("SILTSTONE_FULL_DISKS").map_or(8, |text| text.parse().unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for (number, table) in ENGINES.iter().enumerate() {
        for seed in 0..count {
            let at = scratch.path().join(format!("{number}-{seed}"));
            let Some(disk) = SmallDisk::mount(at, 8 << 20) else {
                eprintln!("not checked: only root can mount a small file system");
                return;
            };
            let fsync = ["always", "everysec", "no"][seed as usize % 3];
            let what = format!("{table}, --fsync {fsync}, seed {seed}");
            let dir = disk.0.join("store");
            let mut rng = Rng(seed.wrapping_mul(7919) + number as u64);
            let server = Server::start(&dir, table, fsync);
            let mut writer = Writer::new(&server, rng.below(1 << 30), 40);
            for _ in 0..rng.below(60) {
                writer.write_again(&what);
            }
            disk.fill(rng.below(100 << 10));
            writer.try_to_write(150);
            disk.free();
            for _ in 0..rng.below(40) {
                writer.write_again(&what);
            }
            refused += writer.refusals.len();
            let model = std::mem::take(&mut writer.model);
            check(&server, &model, &format!("{what}, before it ends"));
            if rng.below(2) == 0 {
                server.kill();
            } else {
                let (status, errors) = server.end();
                assert!(status.success(), "{what}: {status}: {errors}");
            }
            let server = Server::start(&dir, table, fsync);
            check(&server, &model, &what);
            server.kill();
        }
    }
    println!("{} full file systems, {refused} writes refused", 4 * count);
}

#[test]
fn flushall_makes_space_on_a_full_file_system() {
    let scratch = tempfile::tempdir().unwrap();
    for (number, table) in ENGINES.iter().enumerate() {
        let Some(disk) = SmallDisk::mount(scratch.path().join(number.to_string()), 8 << 20) else {
            eprintln!("not checked: only root can mount a small file system");
            return;
        };
        let server = Server::start(&disk.0.join("store"), table, "always");
        let mut writer = Writer::new(&server, number as u64, 40);
        for _ in 0..60 {
            writer.write_again(table);
        }
        disk.fill(0);
        writer.try_to_write(150);
        // A flush in the background may take the space first, and fails after it.
        let began = Instant::now();
        while let Some(Reply::Refused(line)) = writer.client.send(&[b"FLUSHALL"]) {
            assert!(began.elapsed() < TIMEOUT, "{table}: {line}");
            std::thread::sleep(Duration::from_millis(50));
        }
        writer.model.clear();
        writer.write_again(table);
        check(&server, &writer.model, table);
    }
}

#[test]
fn lack_of_descriptors_is_reported_and_recovered_from() {
    let scratch = tempfile::tempdir().unwrap();
    let limit = getrlimit(Resource::Nofile);
    for (number, table) in ENGINES.iter().enumerate() {
        let dir = scratch.path().join(number.to_string());
        let server = Server::start(&dir, table, "everysec");
        let mut writer = Writer::new(&server, 7 + number as u64, 1000);
        (0..50).for_each(|_| assert!(writer.write()));
        // Open files stay open. With one more descriptor a log can be created, but its memtable not
        // flushed; with none, no log can be created.
        let lower = |current| {
            let lack = Rlimit { current: Some(current), maximum: limit.maximum };
            prlimit(Some(server.pid()), Resource::Nofile, lack).unwrap();
        };
        lower(server.last_descriptor() + 2);
        let began = Instant::now();
        let is_read_only = |line: &String| line.contains("read-only");
        // The flash device is one open file: nothing fails.
        let fails = !table.contains("skimpy");
        let (mut is_refused, mut is_troubled) = (false, false);
        while fails && !is_refused && !is_troubled {
            writer.try_to_write(20);
            is_troubled = server.has_reported("is tried again: ");
            is_refused = writer.refusals.iter().any(|line| line.contains("Too many open files"));
            if began.elapsed() > TIMEOUT / 5 {
                lower(3);
            }
            assert!(began.elapsed() < TIMEOUT, "{table}: the failure is not reported");
        }
        writer.try_to_write(200);
        assert!(fails || writer.refusals.is_empty(), "{table}: {:?}", writer.refusals.last());
        let lines = writer.refusals.iter().filter(|line| is_read_only(line)).collect::<Vec<_>>();
        assert!(lines.is_empty(), "{table}: {lines:?}");
        prlimit(Some(server.pid()), Resource::Nofile, limit).unwrap();
        (0..200).for_each(|_| writer.write_again(table));
        while is_troubled && !server.has_reported("the problem is over") {
            assert!(began.elapsed() < 2 * TIMEOUT, "{table}: the problem does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
        let model = std::mem::take(&mut writer.model);
        server.kill();
        let server = Server::start(&dir, table, "everysec");
        check(&server, &model, table);
        let (status, errors) = server.end();
        assert!(status.success(), "{table}: {status}: {errors}");
    }
}

#[test]
fn deleted_directory_refuses_writes_and_ends_with_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    for (number, table) in ENGINES.iter().enumerate() {
        for fsync in ["always", "everysec", "no"] {
            let what = format!("{table}, --fsync {fsync}");
            let dir = scratch.path().join(format!("{number}-{fsync}"));
            let server = Server::start(&dir, table, fsync);
            let mut writer = Writer::new(&server, number as u64, 40);
            (0..20).for_each(|_| assert!(writer.write(), "{what}"));
            std::fs::remove_dir_all(&dir).unwrap();
            let began = Instant::now();
            let reply = writer.client.send(&[b"SET", b"after", b"it was deleted"]);
            let is_taken = reply == Some(Reply::Done);
            assert!(fsync != "always" || !is_taken, "{what}: acknowledged in a deleted directory");
            writer.client = server.connect();
            while fsync == "everysec" && writer.write() {
                assert!(began.elapsed() < TIMEOUT, "{what}: acknowledged forever");
                std::thread::sleep(Duration::from_millis(20));
            }
            let (status, errors) = server.end();
            assert!(!status.success(), "{what}: {errors}");
            // Or a file could not be created, if one was due before the sync.
            let reasons = ["removed while it was open", "No such file"];
            assert!(reasons.iter().any(|reason| errors.contains(reason)), "{what}: {errors}");
        }
    }
}
