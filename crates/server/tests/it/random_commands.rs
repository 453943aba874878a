//! Random calls of all commands, with words of all kinds as arguments: no call ends a connection,
//! and each collection has as many elements as it says and survives DUMP and RESTORE.
//!
//! Among the arguments are payloads of DUMP with a changed byte and a right checksum, and scripts
//! that decode random bytes. `SILTSTONE_RANDOM_CALLS=10000000` runs longer, `SILTSTONE_SEED=N`
//! draws other calls.

use siltstone_rdb::payload;
use siltstone_server::fuzzing::WORDS;
use siltstone_testkit::TestRng;

use crate::support::{Client, TestServer};

const DEFAULT_CALLS: u64 = 4_000;
/// Calls after which the keys are checked.
const ROUND: u64 = 200;
const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "", "{t}1", "\u{ff}"];

/// Commands that end or change the connection, the server, its users or its clock, that wait for
/// others, or that take over a connection.
const LEFT_OUT: [&str; 27] = [
    "acl",
    "auth",
    "bgsave",
    "client",
    "cluster",
    "config",
    "debug",
    "failover",
    "hello",
    "latency",
    "migrate",
    "monitor",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "save",
    "shutdown",
    "slowlog",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
    "wait",
    "waitaof",
    "multi",
    "exec",
];

/// Commands that do not wait inside MULTI.
const WAITS: [&str; 8] =
    ["blpop", "brpop", "blmove", "brpoplpush", "blmpop", "bzpopmin", "bzpopmax", "bzmpop"];

/// Codes and libraries whose decoders read bytes of clients.
const SCRIPTS: [&str; 7] = [
    "return cjson.encode(cjson.decode(ARGV[1]))",
    "return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))",
    "return {struct.unpack(ARGV[2], ARGV[1])}",
    "return {string.find(ARGV[1], ARGV[2])}",
    "return string.format(ARGV[1], 1, 2.5, 'x')",
    "return {pcall(loadstring(ARGV[1]) or tostring)}",
    "return redis.call(ARGV[2], KEYS[1], ARGV[1])",
];

/// Bytes that begin like something that a decoder reads.
fn encoded(rng: &mut TestRng) -> Vec<u8> {
    const PARTS: [&[u8]; 20] = [
        b"{\"a\":[1,2,{\"b\":null}]}",
        b"[[[[",
        b"\"\\u12",
        b"1e999",
        b"\x93\x01\xc0",
        b"\xdf\xff\xff\xff",
        b"\xdb\x7f\xff\xff\xff",
        b"\x81",
        b">I2s4",
        b"c0z",
        b"i99",
        b"%d%s%g",
        b"%99999d",
        b"(.-)%1",
        b"[^%w",
        b"%f[%a]",
        b"return 1",
        b"\x1bLua",
        b"local a<const> = ",
        b"\0",
    ];
    let mut bytes = Vec::new();
    for _ in 0..1 + rng.below(3) {
        if rng.one_in(2) {
            bytes.extend_from_slice(PARTS[rng.index(PARTS.len())]);
        }
        let len = rng.index(6);
        bytes.extend(rng.bytes(len));
    }
    bytes
}

struct Caller {
    client: Client,
    rng: TestRng,
    commands: Vec<String>,
    words: Vec<&'static str>,
}

impl Caller {
    fn key(&mut self) -> Vec<u8> {
        KEYS[self.rng.index(KEYS.len())].as_bytes().to_vec()
    }

    fn word(&mut self) -> Vec<u8> {
        match self.rng.below(10) {
            0..=3 => self.key(),
            4 => encoded(&mut self.rng),
            _ => self.words[self.rng.index(self.words.len())].as_bytes().to_vec(),
        }
    }

    /// A payload of DUMP; in most cases with changed bytes, and with the checksum of these.
    fn payload(&mut self) -> Vec<u8> {
        let key = self.key();
        let Some(dumped) = self.client.call_for_bulk(&[b"DUMP", &key]) else { return Vec::new() };
        let mut body = payload::verify(&dumped).unwrap().to_vec();
        for _ in 0..self.rng.below(3) {
            let at = self.rng.index(body.len());
            body[at] = self.rng.draw() as u8;
        }
        payload::seal(&mut body);
        body
    }

    fn call(&mut self) -> Vec<Vec<u8>> {
        let command = self.commands[self.rng.index(self.commands.len())].clone();
        let mut call = vec![command.clone().into_bytes()];
        match command.as_str() {
            "restore" => {
                let (key, payload) = (self.key(), self.payload());
                call.extend([key, b"0".to_vec(), payload, b"REPLACE".to_vec()]);
            }
            "eval" | "eval_ro" => {
                let script = SCRIPTS[self.rng.index(SCRIPTS.len())].as_bytes().to_vec();
                let (key, text, word) = (self.key(), encoded(&mut self.rng), self.word());
                call.extend([script, b"1".to_vec(), key, text, word]);
            }
            "flushall" | "flushdb" if !self.rng.one_in(20) => call.push(b"x".to_vec()),
            _ => {
                // Most commands begin with a key.
                call.push(if self.rng.one_in(4) { self.word() } else { self.key() });
                for _ in 0..self.rng.below(7) {
                    let word = self.word();
                    call.push(word);
                }
            }
        }
        call
    }

    /// Checks all keys.
    fn check(&mut self, seed: &str) {
        for key in KEYS {
            let key = key.as_bytes();
            let kind = self.client.call_bytes(&[b"TYPE", key]);
            let (count, all): (&str, &[&str]) = match &*kind {
                "+list" => ("LLEN", &["LRANGE", "0", "-1"]),
                "+set" => ("SCARD", &["SMEMBERS"]),
                "+zset" => ("ZCARD", &["ZRANGE", "0", "-1"]),
                "+hash" => ("HLEN", &["HKEYS"]),
                "+stream" => ("XLEN", &["XRANGE", "-", "+"]),
                "+string" => ("STRLEN", &["GET"]),
                _ => continue,
            };
            let script = "local all = {ARGV[1], KEYS[1]} for i = 2, #ARGV do all[i + 1] = ARGV[i] end \
                          return #redis.call(unpack(all))";
            let words: Vec<&[u8]> = all.iter().map(|word| word.as_bytes()).collect();
            let eval = [&[b"EVAL", script.as_bytes(), b"1", key][..], &words].concat();
            let counted = self.client.call_bytes(&eval);
            assert_eq!(self.client.call_bytes(&[count.as_bytes(), key]), counted, "{seed} {key:?}");
            // Both have the same elements in the same order.
            let mut read =
                |key: &[u8]| self.client.call_bytes(&[&[words[0], key], &words[1..]].concat());
            let before = read(key);
            let dumped = self.client.call_for_bulk(&[b"DUMP", key]).unwrap();
            let restored =
                self.client.call_bytes(&[b"RESTORE", b"copy", b"0", &dumped, b"REPLACE"]);
            assert_eq!(restored, "+OK", "{seed} {key:?} {kind}");
            let mut read =
                |key: &[u8]| self.client.call_bytes(&[&[words[0], key], &words[1..]].concat());
            assert_eq!(read(b"copy"), before, "{seed} {key:?}");
        }
    }
}

#[test]
fn random_calls_of_all_commands_leave_whole_collections() {
    let number = |name, default| {
        std::env::var(name).map_or(default, |text: String| text.parse::<u64>().unwrap())
    };
    let (calls, seed) =
        (number("SILTSTONE_RANDOM_CALLS", DEFAULT_CALLS), number("SILTSTONE_SEED", 1));
    let server = TestServer::start();
    let mut client = server.client();
    let list = client.call("COMMAND LIST");
    let names = list.split('"').skip(1).step_by(2).map(str::to_owned);
    let commands: Vec<_> = names.filter(|name| !LEFT_OUT.contains(&&**name)).collect();
    assert!(commands.len() > 150, "{list}");
    let words = WORDS.split_whitespace().collect();
    let mut caller = Caller { client, rng: TestRng::new(seed), commands, words };
    let mut done = 0;
    for number in 0..calls {
        let call = caller.call();
        let shown = || {
            let words: Vec<_> = call.iter().map(|word| word.escape_ascii().to_string()).collect();
            format!("seed {seed}, call {number}: {}", words.join(" "))
        };
        let words: Vec<&[u8]> = call.iter().map(Vec::as_slice).collect();
        let waits = WAITS.iter().any(|name| name.as_bytes() == words[0]);
        let wraps: &[&[u8]] = if waits { &[b"MULTI", b"EXEC"] } else { &[] };
        if waits {
            caller.client.send(&wraps[..1]);
        }
        caller.client.send(&words);
        if waits {
            caller.client.send(&wraps[1..]);
        }
        for _ in 0..=wraps.len() {
            let reply = caller.client.try_read();
            let reply = reply.unwrap_or_else(|| panic!("{}: the connection has ended", shown()));
            done += u32::from(!reply.starts_with('-'));
        }
        if number % ROUND == ROUND - 1 {
            caller.check(&shown());
        }
    }
    assert!(done > calls as u32 / 20, "only {done} calls were no errors");
}
