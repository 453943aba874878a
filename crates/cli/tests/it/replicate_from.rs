//! `siltstone replicate-from` with a real Redis server as its source, skipped where there is none;
//! and with a source that ends a connection at a certain byte of the stream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{encode, read_command};

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that is killed at the end.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn siltstone(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_siltstone"))
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        Process { child, lines }
    }

    /// Waits for a line with this text.
    fn line(&self, text: &str) -> String {
        let mut before = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => before.push(line),
                Err(_) => panic!("no line with '{text}', but {before:?}"),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn status(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

/// Set when it is dropped, also by a panic.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A client that shows replies as text: nested arrays in brackets.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Self {
        Client(BufReader::new(TcpStream::connect(address).unwrap()))
    }

    /// Calls a command of words without spaces.
    fn call(&mut self, command: &str) -> String {
        self.words(&command.split(' ').collect::<Vec<_>>())
    }

    fn words(&mut self, words: &[&str]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        self.reply()
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "closed");
        let (kind, text) = line.trim_end().split_at(1);
        match (kind, text.parse::<i64>()) {
            ("$", Ok(length)) if length >= 0 => {
                let mut bytes = vec![0; length as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(length as usize);
                bytes.escape_ascii().to_string()
            }
            ("*", Ok(count)) => {
                let parts: Vec<_> = (0..count).map(|_| self.reply()).collect();
                format!("[{}]", parts.join(" "))
            }
            _ => line.trim_end().to_owned(),
        }
    }

    /// The parts of a flat array.
    fn list(&mut self, command: &str) -> Vec<String> {
        let reply = self.call(command);
        let inner = reply.trim_start_matches('[').trim_end_matches(']');
        inner.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    /// All keys of a database with types, values, expiries, in the order of the keys.
    fn contents(&mut self, database: u32) -> Vec<String> {
        assert_eq!(self.call(&format!("SELECT {database}")), "+OK");
        let mut keys = self.list("KEYS *");
        keys.sort();
        let describe = |key: String| {
            let kind = self.call(&format!("TYPE {key}"));
            let pairs = |mut words: Vec<String>, step: usize| {
                let mut pairs: Vec<_> = words.chunks_mut(step).map(|pair| pair.join("=")).collect();
                pairs.sort();
                pairs.join(" ")
            };
            let value = match &*kind {
                "+string" => self.call(&format!("GET {key}")),
                "+list" => self.call(&format!("LRANGE {key} 0 -1")),
                "+set" => pairs(self.list(&format!("SMEMBERS {key}")), 1),
                "+hash" => pairs(self.list(&format!("HGETALL {key}")), 2),
                "+zset" => self.call(&format!("ZRANGE {key} 0 -1 WITHSCORES")),
                "+stream" => {
                    let all = self.call(&format!("XRANGE {key} - +"));
                    // Redis does not send `entries-read` to replicas, nor has them keep it.
                    let groups = self.call(&format!("XINFO GROUPS {key}"));
                    let groups = groups.split(" entries-read").next().unwrap_or_default();
                    all + groups + &self.call(&format!("XPENDING {key} g"))
                }
                kind => panic!("{key} is {kind}"),
            };
            format!("{key} {kind} {} {value}", self.call(&format!("PEXPIRETIME {key}")))
        };
        keys.into_iter().map(describe).collect()
    }
}

/// A Redis server with options; `None` where it is not installed.
fn redis(directory: &std::path::Path, options: &[&str]) -> Option<(Process, String)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--repl-diskless-sync-delay", "0", "--dir", &directory.display().to_string()])
        .args(options)
        .stdout(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        println!("skipped: redis-server is not on the PATH");
        return None;
    };
    let process = Process { child, lines: channel().1 };
    let address = format!("127.0.0.1:{port}");
    let began = Instant::now();
    while TcpStream::connect(&address).is_err() {
        assert!(began.elapsed() < PATIENCE, "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some((process, address))
}

fn serve(directory: &std::path::Path, tables: &[&str]) -> (Process, String) {
    let store = directory.join("store").display().to_string();
    let mut arguments = vec!["serve", &store, "--listen", "127.0.0.1:0"];
    tables.iter().for_each(|table| arguments.extend(["--table", table]));
    let server = Process::siltstone(&arguments);
    let address = server.line("serving ").rsplit(' ').next().unwrap().to_owned();
    (server, address)
}

/// Values of all types, in two databases.
fn fill(source: &mut Client) {
    for command in [
        "SET string text",
        "SET expiring 5 PXAT 4102444800000",
        "RPUSH list a b c",
        "SADD set a b",
        "SADD integers 1 70000",
        "HSET hash f v g w",
        "ZADD zset 1.5 a inf b",
        "PFADD distinct a b c",
        "XADD stream 5-1 f v",
        "XADD stream 6-1 f w",
        "XGROUP CREATE stream g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS stream >",
        "SELECT 1",
        "SET other 1",
        "SELECT 0",
    ] {
        let reply = source.call(command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
    let code = "#!lua name=mine\nredis.register_function('one', function() return 1 end)";
    assert_eq!(source.words(&["FUNCTION", "LOAD", code]), "mine");
    let long = "for i=1,20000 do redis.call('RPUSH','long',i) end";
    assert_eq!(source.words(&["EVAL", long, "0"]), "$-1");
}

/// Writes until `is_over`: commands that Redis sends to replicas as others, transactions over two
/// databases, scripts, expiries that come and go.
fn write(address: &str, is_over: &AtomicBool) {
    let mut source = Client::connect(address);
    let script = "redis.call('INCR', KEYS[1]) redis.call('SELECT', 1) redis.call('INCR', KEYS[1])";
    for round in 0_u32.. {
        if is_over.load(Relaxed) {
            break;
        }
        for command in [
            "INCR counter".to_owned(),
            format!("LPUSH queue {round}"),
            format!("SADD pool {round} x{round} y{round}"),
            "SPOP pool".to_owned(),
            "HINCRBYFLOAT hash sum 0.1".to_owned(),
            "INCRBYFLOAT float 0.3".to_owned(),
            format!("ZADD zset {round} m{}", round % 50),
            "ZPOPMIN zset".to_owned(),
            format!("XADD stream MAXLEN ~ 100 * n {round}"),
            "XREADGROUP GROUP g c COUNT 1 STREAMS stream >".to_owned(),
            format!("SET brief{} {round} PX 3", round % 7),
            format!("SET held{} {round} EX 1000", round % 7),
            format!("GETEX held{} PERSIST", (round + 3) % 7),
            "MULTI".to_owned(),
            "RPOPLPUSH queue done".to_owned(),
            "SELECT 1".to_owned(),
            format!("SET moved{} {round} EX 500", round % 5),
            "INCR other".to_owned(),
            // At the target this costs a sync.
            ["SETNX unmoved 1", "MOVE moved1 0"][usize::from(round % 20 == 6)].to_owned(),
            "SELECT 0".to_owned(),
            "APPEND text x".to_owned(),
            "EXEC".to_owned(),
        ] {
            let reply = source.call(&command);
            assert!(!reply.contains("ERR"), "{command}: {reply}");
        }
        assert_eq!(source.words(&["EVAL", script, "1", "scripted"]), "$-1");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn redis_server_is_followed_through_a_copy_and_a_broken_connection() {
    let scratch = tempfile::tempdir().unwrap();
    let options = ["--repl-backlog-size", "256mb", "--enable-debug-command", "yes"];
    let Some((_redis, source_address)) = redis(scratch.path(), &options) else { return };
    let (_server, target_address) = serve(scratch.path(), &["zero", "one"]);
    let mut source = Client::connect(&source_address);
    fill(&mut source);
    let is_over = AtomicBool::new(false);
    let mut follower = std::thread::scope(|scope| {
        let end = SetOnDrop(&is_over);
        let writer = scope.spawn(|| write(&source_address, &is_over));
        let follower =
            Process::siltstone(&["replicate-from", &source_address, "--to", &target_address]);
        follower.line("copied ");
        follower.line("in sync with");
        for _ in 0..2 {
            assert_eq!(source.call("CLIENT KILL TYPE replica"), ":1");
            follower.line("trying again");
            follower.line("goes on from offset");
        }
        // Another history: the source cannot go on.
        assert_eq!(source.call("DEBUG CHANGE-REPL-ID"), "+OK");
        assert_eq!(source.call("CLIENT KILL TYPE replica"), ":1");
        follower.line("Everything is copied again");
        follower.line("in sync with");
        std::thread::sleep(Duration::from_millis(300));
        drop(end);
        writer.join().unwrap();
        follower
    });
    // The brief keys expire.
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(source.call("GET brief0"), "$-1");
    (0..7).for_each(|n| drop(source.call(&format!("GET brief{n}"))));
    // Redis asks its replica for an acknowledgement.
    source.call("SET last 1");
    assert_eq!(source.call("WAIT 1 20000"), ":1");
    let mut target = Client::connect(&target_address);
    for database in [0, 1] {
        let (expected, found) = (source.contents(database), target.contents(database));
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected, found);
        }
        assert_eq!((expected.len(), expected.len() > 5), (found.len(), true));
    }
    assert_eq!(target.call("FCALL one 0"), ":1");
    follower.signal(Signal::INT);
    let line = follower.line("stopped at offset");
    assert!(line.ends_with("lag 0 bytes"), "{line}");
    assert_eq!(follower.status(), Some(0));
}

#[test]
fn key_that_stops_expiring_late_is_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let options = ["--repl-diskless-sync", "no", "--requirepass", "secret"];
    let Some((_redis, source_address)) = redis(scratch.path(), &options) else { return };
    let (_server, target_address) = serve(scratch.path(), &["zero"]);
    let mut source = Client::connect(&source_address);
    assert_eq!(source.call("AUTH secret"), "+OK");
    source.call("SET gone 1 PX 1");
    let to = ["replicate-from", &*source_address, "--to", &target_address];
    let mut refused = Process::siltstone(&to);
    refused.line("NOAUTH");
    assert_eq!(refused.status(), Some(3));
    source.call("SET kept 1 PX 4000");
    let follower = Process::siltstone(&[&to[..], &["--password", "secret"]].concat());
    follower.line("in sync with");
    // The follower learns of PERSIST only after the expiry has passed.
    follower.signal(Signal::STOP);
    assert_eq!(source.call("PERSIST kept"), ":1");
    let mut target = Client::connect(&target_address);
    std::thread::sleep(Duration::from_millis(4100));
    assert_eq!(target.call("EXISTS kept gone"), ":1");
    follower.signal(Signal::CONT);
    source.call("SET short 1 PX 1");
    assert_eq!(source.call("WAIT 1 20000"), ":1");
    assert_eq!(target.call("PTTL kept"), ":-1");
    // Another run needs an empty target, or empties it.
    drop(follower);
    let again = [&to[..], &["--password", "secret"]].concat();
    let mut refused = Process::siltstone(&again);
    refused.line("--replace removes them first");
    assert_eq!(refused.status(), Some(2));
    target.call("SET stray 1");
    let mut follower = Process::siltstone(&[&again[..], &["--replace"]].concat());
    follower.line("in sync with");
    assert_eq!(target.call("EXISTS stray kept"), ":1");
    // Redis sends this command to its replicas.
    source.call("PFADD distinct a");
    assert_eq!(source.call("PFDEBUG TODENSE distinct"), ":1");
    let line = follower.line("refuses");
    assert!(line.contains("PFDEBUG TODENSE …: ERR unknown command 'PFDEBUG'"), "{line}");
    assert_eq!(follower.status(), Some(3));
    // A database without a table is refused before anything is removed.
    source.call("SELECT 2");
    source.call("SET k v");
    let mut refused = Process::siltstone(&[&again[..], &["--replace"]].concat());
    refused.line("database 2 of the source has 1 keys");
    assert_eq!((refused.status(), target.call("EXISTS kept")), (Some(2), ":1".to_owned()));
}

/// A source without keys, and its stream of commands.
struct ScriptedSource {
    stream: Vec<u8>,
    /// The first follower gets the stream up to here.
    cut: usize,
    /// The first connection of a follower is closed.
    is_closed: AtomicBool,
}

/// Where the stream begins.
const STREAM_OFFSET: usize = 100;

impl ScriptedSource {
    fn start(commands: &[&[&str]], cut_before: usize) -> (Arc<Self>, String) {
        let encoded: Vec<_> = commands.iter().map(|words| encode(words)).collect();
        let source = Arc::new(ScriptedSource {
            stream: encoded.concat(),
            cut: encoded[..cut_before].concat().len(),
            is_closed: AtomicBool::new(false),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let of_thread = source.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let source = of_thread.clone();
                std::thread::spawn(move || source.serve(stream));
            }
        });
        (source, address)
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut out = stream.try_clone().ok()?;
        let mut input = BufReader::new(stream);
        loop {
            let words = read_command(&mut input)?;
            let reply = match &*words[0] {
                "PING" => b"+PONG\r\n".to_vec(),
                "TIME" => {
                    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
                    encode(&[&seconds.to_string(), "0"])
                }
                "INFO" => b"$22\r\nmaster_repl_offset:0\r\n\r\n".to_vec(),
                "REPLCONF" if words[1] == "ACK" => continue,
                "REPLCONF" => b"+OK\r\n".to_vec(),
                "PSYNC" if words[1] == "?" => {
                    let mut reply =
                        format!("+FULLRESYNC {} {STREAM_OFFSET}\r\n$18\r\n", "a".repeat(40));
                    reply += "REDIS0011";
                    let end = [&[255][..], &[0; 8], &self.stream[..self.cut]].concat();
                    out.write_all(&[reply.as_bytes(), &end].concat()).ok()?;
                    while !self.is_closed.load(Relaxed) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    return None;
                }
                "PSYNC" => {
                    let from = words[2].parse::<usize>().ok()? - 1 - STREAM_OFFSET;
                    [&b"+CONTINUE\r\n"[..], &self.stream[from..]].concat()
                }
                other => panic!("{other}"),
            };
            out.write_all(&reply).ok()?;
        }
    }
}

#[test]
fn command_before_a_transaction_that_was_cut_off_is_not_repeated() {
    let scratch = tempfile::tempdir().unwrap();
    let (_server, target_address) = serve(scratch.path(), &["zero"]);
    let commands = [&["INCR", "before"][..], &["MULTI"], &["INCR", "inside"], &["EXEC"]];
    let (source, source_address) = ScriptedSource::start(&commands, 3);
    let mut follower =
        Process::siltstone(&["replicate-from", &source_address, "--to", &target_address]);
    let mut target = Client::connect(&target_address);
    let mut wait_for_one = |key: &str| {
        let began = Instant::now();
        while target.words(&["EXISTS", key]) != ":1" {
            assert!(began.elapsed() < PATIENCE, "{key}");
            std::thread::sleep(Duration::from_millis(5));
        }
        target.words(&["GET", key])
    };
    assert_eq!(wait_for_one("before"), "1");
    source.is_closed.store(true, Relaxed);
    assert_eq!(wait_for_one("inside"), "1");
    assert_eq!(wait_for_one("before"), "1");
    follower.signal(Signal::INT);
    let end = STREAM_OFFSET + source.stream.len();
    follower.line(&format!("stopped at offset {end} of"));
    assert_eq!(follower.status(), Some(0));
}
