//! `siltstone import` of dump files of Redis: types, expiries, databases, damaged files.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use siltstone::{Db, DbOptions, Durability, SystemClock};
use siltstone_collections::{Collections, Encoding, StreamId};
use siltstone_rdb::crc64::crc64;
use siltstone_rdb::{
    PendingEntry, Stream, StreamConsumer, StreamEntry, StreamGroup, Value, payload,
};

/// In the year 2100, in milliseconds since 1970.
const FAR: u64 = 4_102_444_800_000;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap()
}

fn siltstone(arguments: &[&str]) -> String {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    String::from_utf8(output.stdout).unwrap() + &text
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Scratch(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.text(name)
    }
}

type Entry<'a> = (u8, &'a [u8], Value, Option<u64>);

/// A dump file with a checksum.
fn dump_file(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut file = b"REDIS0010\xfa\x09redis-ver\x067.0.15\xf5\x04code".to_vec();
    for (database, key, value, expires_at) in entries {
        file.extend_from_slice(&[0xfe, *database]);
        if let Some(at) = expires_at {
            file.push(0xfc);
            file.extend_from_slice(&at.to_le_bytes());
        }
        let payload = payload::dump(value, Encoding::Large);
        let (kind, body) = payload::verify(&payload).unwrap().split_first().unwrap();
        file.extend_from_slice(&[*kind, key.len() as u8]);
        file.extend_from_slice(key);
        file.extend_from_slice(body);
    }
    file.push(0xff);
    let crc = crc64(0, &file);
    file.extend_from_slice(&crc.to_le_bytes());
    file
}

/// Values and expiries of keys of the default table.
fn stored(store: &str, keys: &[&[u8]]) -> Vec<Option<(Value, Option<u64>)>> {
    let db = Db::open(store, DbOptions::default()).unwrap();
    let table = db.table("default").unwrap();
    let collections = Collections::open(table, Arc::new(SystemClock)).unwrap();
    let read = |key: &&[u8]| {
        let read = collections.with(&[key], Durability::Buffered, |writes| {
            let Some(stored) = writes.stored(key)? else { return Ok(None) };
            let expires_at = stored.entry.expires_at;
            let mut value = Value::read(writes, key, stored, usize::MAX)?.unwrap().0;
            match &mut value {
                Value::Set(members) => members.sort(),
                Value::Hash(fields) => fields.sort(),
                Value::ExpiringHash(fields) => fields.sort(),
                _ => {}
            }
            Ok(Some((value, expires_at)))
        });
        read.unwrap()
    };
    let values = keys.iter().map(read).collect();
    drop(collections);
    db.close().unwrap();
    values
}

fn entries() -> Vec<Entry<'static>> {
    let name = |n: u32| format!("{n:06}").into_bytes();
    let id = |ms| StreamId { ms, seq: 1 };
    let stream = Stream {
        entries: (1..=11_000)
            .map(|ms| StreamEntry { id: id(ms), fields: vec![b"f".to_vec(), b"v".to_vec()] })
            .collect(),
        last: id(12_000),
        deleted: id(9),
        added: 11_500,
        groups: vec![StreamGroup {
            name: b"g".to_vec(),
            last: id(5),
            read: Some(5),
            consumers: vec![StreamConsumer { name: b"c".to_vec(), seen_at: 7, active_at: Some(7) }],
            pending: vec![PendingEntry { id: id(5), consumer: 0, delivered_at: 7, deliveries: 2 }],
        }],
    };
    vec![
        (0, b"string", Value::String(b"text".to_vec()), None),
        (0, b"expiring", Value::String(b"5".to_vec()), Some(FAR)),
        (0, b"expired", Value::String(b"5".to_vec()), Some(1)),
        // More elements than are written at once.
        (0, b"list", Value::List((0..25_000).map(name).collect()), Some(FAR)),
        (0, b"set", Value::Set((0..11_000).map(name).collect()), None),
        (0, b"hash", Value::Hash((0..11_000).map(|n| (name(n), name(n))).collect()), Some(FAR)),
        (
            0,
            b"fields",
            Value::ExpiringHash(
                (0..11_000)
                    .map(|n| (name(n), name(n), (n % 2 == 0).then_some(FAR + u64::from(n % 100))))
                    .collect(),
            ),
            None,
        ),
        (
            0,
            b"zset",
            Value::SortedSet((0..11_000).map(|n| (name(n), f64::from(n))).collect()),
            None,
        ),
        (0, b"stream", Value::Stream(stream), None),
        // Keys that are stored elsewhere, and values that are escaped.
        (0, b"\xff\xc0key", Value::String(b"reserved".to_vec()), None),
    ]
}

#[test]
fn dump_file_is_imported_with_types_and_expiries() {
    let scratch = Scratch::new();
    let (entries, store) = (entries(), scratch.text("store"));
    let file = scratch.write("dump.rdb", &dump_file(&entries));
    // What was there is replaced.
    siltstone(&["put", &store, "list", "old"]);
    for _ in 0..2 {
        let text = siltstone(&["import", &store, &file]);
        let expected = "imported 9 keys of a dump of version 10: 2 hash, 1 list, 1 set, 1 stream, \
                        3 string, 1 zset; 3 of them expire\n\
                        skipped: 1 expired keys, 1 libraries of functions\n";
        assert_eq!(text, expected);
        let keys: Vec<_> = entries.iter().map(|(_, key, _, _)| *key).collect();
        for ((_, key, value, expires_at), found) in entries.iter().zip(stored(&store, &keys)) {
            let expected = (*key != b"expired").then(|| (value.clone(), *expires_at));
            assert!(found == expected, "{}", key.escape_ascii());
        }
    }
    assert!(siltstone(&["verify", &store]).ends_with("intact\n"));
    let json = siltstone(&["import", &scratch.text("other"), &file, "--json"]);
    assert!(json.contains(r#""keys":9"#) && json.contains(r#""redis_version":"7.0.15""#), "{json}");
}

#[test]
fn damaged_dump_file_is_refused_by_offset_and_leaves_nothing() {
    let scratch = Scratch::new();
    let store = scratch.text("store");
    let list = Value::List(vec![b"element".to_vec(); 3]);
    let file = dump_file(&[(0, b"list", list, None)]);
    let refused = |name: &str, bytes: &[u8], reason: &str| {
        let output = run(&["import", &store, &scratch.write(name, bytes)]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(", offset ") && text.contains(reason), "{text}");
        assert!(!scratch.path("store").exists());
    };
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0x55;
        refused("a.rdb", &damaged, "");
        refused("a.rdb", &file[..at], "");
    }
    let at = file.windows(7).position(|bytes| bytes == b"element").unwrap();
    let mut damaged = file.clone();
    damaged[at] ^= 1;
    refused("a.rdb", &damaged, "the checksum of the file is wrong");
    refused("a.rdb", &[&file[..], b"*1\r\n"].concat(), "append-only");
    refused("a.rdb", b"REDIS0080\xff", "version 80");
    refused("a.rdb", b"{\"key\": \"value\"}", "not a dump file of Redis");
    refused("a.rdb", b"REDIS0010\x07\x01k\x81\0\0\0\0\0\0\0\x01\0", "module type AAAAAAAAA");
}

#[test]
fn database_must_be_chosen_if_several_have_keys() {
    let scratch = Scratch::new();
    let value = |text: &str| Value::String(text.as_bytes().to_vec());
    let file = [(0, &b"a"[..], value("0"), None), (3, b"a", value("3"), None)];
    let file = scratch.write("dump.rdb", &dump_file(&file));
    let refused = run(&["import", &scratch.text("s"), &file]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text.contains("the databases 0 and 3; choose one by --database"), "{text}");
    let text = siltstone(&["import", &scratch.text("s"), &file, "--database", "3"]);
    assert!(
        text.ends_with("skipped: 1 keys of other databases, 1 libraries of functions\n"),
        "{text}"
    );
    assert!(siltstone(&["get", &scratch.text("s"), "a"]).starts_with('3'));
    let other = run(&["import", &scratch.text("s"), "x.tsv", "--database", "3"]);
    assert_eq!(other.status.code(), Some(2));
}

#[test]
fn table_without_order_takes_strings_and_refuses_collections() {
    let scratch = Scratch::new();
    let string = (0, &b"s"[..], Value::String(b"text".to_vec()), None);
    let list = (0, &b"l"[..], Value::List(vec![b"a".to_vec()]), None);
    let strings = scratch.write("strings.rdb", &dump_file(std::slice::from_ref(&string)));
    let lists = scratch.write("lists.rdb", &dump_file(&[string, list]));
    let (store, table) = (scratch.text("s"), "default=silt,partitions=2");
    let refused = run(&["import", &store, &lists, "--table", table]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("key 'l': a list; the table's engine stores only strings"), "{text}");
    assert!(!scratch.path("s").exists());
    siltstone(&["import", &store, &strings, "--table", table]);
    assert!(siltstone(&["get", &store, "s"]).starts_with("text"));
}

/// A file that Redis has written. Skipped where it is not installed.
#[test]
fn dump_file_of_a_redis_server_is_imported() {
    let scratch = Scratch::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (port, directory) = (port.to_string(), scratch.text(""));
    let server = Command::new("redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1", "--dir", &directory, "--save", ""])
        .stdout(Stdio::null())
        .spawn();
    let Ok(mut server) = server else {
        println!("skipped: redis-server is not on the PATH");
        return;
    };
    let cli = |words: &str| {
        // `~` in a word stands for a space.
        let words = words.split(' ').map(|word| word.replace('~', " "));
        let output = Command::new("redis-cli").args(["-p", &port]).args(words).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    while !cli("PING").starts_with("PONG") {
        std::thread::sleep(Duration::from_millis(20));
    }
    for command in [
        "SET string text",
        "SET expiring 5 PXAT 4102444800000",
        "RPUSH list a b c",
        "SADD set a b",
        "SADD integers 1 70000",
        "HSET hash f v",
        "ZADD zset 1.5 a inf b",
        "XADD stream 5-1 f v",
        "XGROUP CREATE stream g 0",
        "XREADGROUP GROUP g c STREAMS stream >",
        "EVAL for~i=1,20000~do~redis.call('RPUSH','long',i)~end 0",
        "SAVE",
    ] {
        let output = cli(command);
        assert!(!output.contains("ERR"), "{command}: {output}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
    let store = scratch.text("store");
    let text = siltstone(&["import", &store, &scratch.text("dump.rdb")]);
    let expected = "1 hash, 2 list, 2 set, 1 stream, 2 string, 1 zset; 1 of them expire\n";
    assert!(text.ends_with(expected), "{text}");
    let bytes = |text: &str| text.as_bytes().to_vec();
    let found = stored(&store, &[b"expiring", b"list", b"set", b"integers", b"hash", b"zset"]);
    let expected = [
        (Value::String(bytes("5")), Some(FAR)),
        (Value::List(vec![bytes("a"), bytes("b"), bytes("c")]), None),
        (Value::Set(vec![bytes("a"), bytes("b")]), None),
        (Value::Set(vec![bytes("1"), bytes("70000")]), None),
        (Value::Hash(vec![(bytes("f"), bytes("v"))]), None),
        (Value::SortedSet(vec![(bytes("a"), 1.5), (bytes("b"), f64::INFINITY)]), None),
    ];
    assert_eq!(found, expected.map(Some));
    let [Some((Value::Stream(stream), _)), Some((Value::List(long), _))] =
        &stored(&store, &[b"stream", b"long"])[..]
    else {
        panic!("a stream and a list");
    };
    assert_eq!((stream.entries.len(), stream.groups[0].pending.len()), (1, 1));
    assert_eq!((long.len(), &long[19_999]), (20_000, &bytes("20000")));
}
