//! redis-cli and redis-benchmark work with the server, and its replies equal Redis's. Skipped where
//! they are not installed.

use std::process::Command;

use crate::support::{Client, Peer, TestServer};
use siltstone_testkit::TestRng;

/// Output of a program; `None` if it is not installed.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(args).output() {
        Ok(output) => output,
        Err(_) => {
            println!("skipped: {program} is not on the PATH");
            return None;
        }
    };
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn redis_cli_works() {
    let server = TestServer::start();
    let port = server.address.port().to_string();
    let cli = |args: &[&str]| run("redis-cli", &[&["-p", &port], args].concat());
    let Some(reply) = cli(&["SET", "k", "v"]) else { return };
    assert_eq!(reply, "OK\n");
    assert_eq!(cli(&["-3", "GET", "none"]).unwrap(), "\n");
    assert_eq!(cli(&["--scan"]).unwrap(), "k\n");
    assert!(cli(&["INFO"]).unwrap().contains("redis_version"));
}

#[test]
fn redis_benchmark_works() {
    let server = TestServer::start();
    let port = server.address.port().to_string();
    let args = ["-p", &port, "-n", "20000", "-r", "1000", "-P", "16", "-q"];
    let tests = ["-t", "ping,set,get,incr,mset"];
    let Some(figures) = run("redis-benchmark", &[&args[..], &tests].concat()) else { return };
    assert!(figures.contains("requests per second") && !figures.contains("error"), "{figures}");
}

/// A random command whose reply is specified, as words separated by spaces.
fn draw(rng: &mut TestRng, is_in_multi: bool) -> String {
    fn one<'a>(rng: &mut TestRng, of: &[&'a str]) -> &'a str {
        of[rng.index(of.len())]
    }
    let (key, other) = (one(rng, &["a", "b", "ab", "n"]), one(rng, &["a", "b", "ab", "n"]));
    let value = one(rng, &["", "v", "12", "-7", "9223372036854775807", "0.5", "01", "a+b"]);
    let number =
        one(rng, &["0", "-1", "1", "3", "x", "", "9223372036854775807", "-9223372036854775808"]);
    // Times are far in the future or past, so replies do not depend on the clock.
    let seconds = 100 + 10 * rng.below(1 << 20);
    let ahead = [seconds.to_string(), format!("{seconds}000")];
    let time = one(rng, &[&ahead[0], &ahead[0], "-1", "0", "x", "9223372036854775807"]);
    let unit = one(rng, &["ex", "px", "EXAT", "pxat", "persist", "keepttl"]);
    let when =
        one(rng, &["", "", " nx", " xx", " gt", " LT", " nx xx", " gt xx", " gt lt", " foo"]);
    let how = one(rng, &["", "", " nx", " XX", " get", " nx get", " xx get", " keepttl", " nx xx"]);
    // For a key that is not appended to: Redis rounds numbers of more than 64 bits.
    let fraction = one(rng, &["-1.5e1", "1e3", "100000000000000000", "7", "inf", "x", "", "+2"]);
    let pattern = one(rng, &["*", "a*", "?", "[^a]", "a[b-]", "*b", "\\a", "[", ""]);
    let time = if unit == "px" && time == ahead[0] { &ahead[1] } else { time };
    match rng.below(if is_in_multi { 40 } else { 52 }) {
        0..=3 => format!("set {key} {value}{how}"),
        4 => format!("set {key} {value} {unit} {time}{how}"),
        5 => format!("get {key}"),
        6 => format!("mget {key} {other} none"),
        7 => format!("mset {key} {value} {other} {number}"),
        8 => format!("msetnx {key} {value} {other} {number}"),
        9 => format!("setnx {key} {value}"),
        10 => format!("setex {key} {time} {value}"),
        11 => format!("getset {key} {value}"),
        12 => format!("getdel {key}"),
        13 => format!("getex {key} {unit} {}", one(rng, &["1000000", "1000000", "0", "-1"])),
        14 => format!("getex {key}"),
        15 => format!("incr {key}"),
        16 => format!("decr {key}"),
        17 => format!("incrby {key} {number}"),
        18 => format!("decrby {key} {number}"),
        19 => format!("{} f {fraction}", one(rng, &["incrbyfloat", "incrbyfloat", "set"])),
        20 => format!("append {key} {value}"),
        21 => format!("strlen {key}"),
        22 => format!("getrange {key} {number} {}", one(rng, &["0", "2", "-1", "-3", "x"])),
        23 => {
            format!("setrange {key} {} {value}", one(rng, &["0", "2", "5", "-1", "x", "536870912"]))
        }
        24 => format!("del {key} {other} {key}"),
        25 => format!("exists {key} {other} {key}"),
        26 => format!("expire {key} {time}{when}"),
        27 => format!("pexpire {key} {}{when}", one(rng, &[&ahead[1], &ahead[1], "-5", "0"])),
        28 => format!("expireat {key} {}{when}", one(rng, &["9999999999", "1", "0", "-1", "x"])),
        29 => format!("ttl {key}"),
        30 => format!("persist {key}"),
        31 => format!("rename {key} {other}"),
        32 => format!("renamenx {key} {other}"),
        33 => {
            // Not to another table in a transaction, which is not supported.
            let to = if is_in_multi { " db -1" } else { " db 0" };
            format!("copy {key} {other}{}", one(rng, &["", " replace", " foo", to, " db x"]))
        }
        34 => format!("type {key}"),
        35 => one(rng, &["ping", "ping x", "ping x y", "echo x", "unwatch", "wait 0 0"]).to_owned(),
        36 => one(rng, &["multi", "discard", "exec", "exec x", "watch a"]).to_owned(),
        37 => one(rng, &["foo", "get", "set a", "mset a 1 b", "expire a", "select"]).to_owned(),
        38..=39 => "exec".to_owned(),
        40..=41 => format!("watch {key} {other}"),
        42..=44 => "multi".to_owned(),
        45 => format!("select {}", one(rng, &["0", "1", "1", "2", "-1", "x"])),
        46 => format!("copy {key} {other} db {} replace", rng.below(3)),
        47 => format!("keys {pattern}"),
        48 => format!("scan 0 match {pattern} count 1000"),
        49 => format!("scan 0 count {}", one(rng, &["0", "-1", "x", ""])),
        50 => one(rng, &["flushdb", "flushall", "flushall foo", "flushdb async"]).to_owned(),
        _ => "reset".to_owned(),
    }
}

/// Sorts the keys of a reply whose order is unspecified.
fn normalized(command: &str, reply: String) -> String {
    if !command.starts_with("keys") && !command.starts_with("scan") {
        return reply;
    }
    let mut keys: Vec<_> = reply.split(['[', ']', ',', ' ']).collect();
    keys.sort_unstable();
    keys.concat()
}

#[test]
fn replies_match_redis() {
    let args =
        ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--databases", "2", "--port"];
    let Some(peer) = Peer::start("redis-server", &args) else { return };
    let sequences = std::env::var("SILTSTONE_REDIS").map_or(200, |n| n.parse().unwrap());
    let ours = TestServer::start();
    let (mut commands, mut transactions) = (0, 0);
    for seed in 0..sequences {
        let mut rng = TestRng::new(seed);
        // Two clients per server, so that one can change what the other watches.
        let mut pairs = [(); 2].map(|()| [peer.address, ours.address].map(Client::connect));
        assert_eq!(pairs[0].each_mut().map(|client| client.call("flushall")), ["+OK", "+OK"]);
        let mut is_in_multi = [false; 2];
        let mut sent = String::new();
        for _ in 0..60 {
            let client_index = rng.index(2);
            let command = draw(&mut rng, is_in_multi[client_index]);
            sent.push_str(&format!("{client_index}: {command}\n"));
            commands += 1;
            let received = pairs[client_index]
                .each_mut()
                .map(|client| normalized(&command, client.call(&command)));
            assert_eq!(received[0], received[1], "seed {seed}:\n{sent}");
            is_in_multi[client_index] = match command.as_str() {
                "multi" => true,
                "exec" | "exec x" | "discard" | "reset" => false,
                _ => is_in_multi[client_index],
            };
            transactions += u32::from(command == "exec" && received[0].starts_with('['));
        }
    }
    println!("{commands} commands, {transactions} transactions, the same answers");
}
