//! What the server says of its commands, and commands about modules and replicas, of which there
//! are none.

use crate::both_servers::on_both;
use crate::support::{Client, Peer, TestServer};

/// Calls of commands of every kind of access.
const CALLS: &str = "\
GET k|SET k v|SET k v GET|SET k v NX|SETEX k 1 v|SETNX k v|GETSET k v|GETDEL k|GETEX k|APPEND k v
STRLEN k|GETRANGE k 0 1|SETRANGE k 0 v|INCR k|INCRBYFLOAT k 1|MSET k v l w|MSETNX k v l w|MGET k l
LCS k l|SETBIT k 0 1|GETBIT k 0|BITCOUNT k|BITOP AND d k l|BITFIELD k GET u8 0
BITFIELD k SET u8 0 1|BITFIELD_RO k GET u8 0|PFADD k v|PFMERGE d k l|DEL k l|UNLINK k|EXISTS k l
TOUCH k|TYPE k|RENAME k l|RENAMENX k l|COPY k l|MOVE k 1|DUMP k|RESTORE k 0 v|EXPIRE k 1|PERSIST k
TTL k|OBJECT ENCODING k|SORT k|SORT k STORE d|SORT_RO k|LPUSH k v|LPUSHX k v|LPOP k|LMOVE k l LEFT LEFT
RPOPLPUSH k l|BLMOVE k l LEFT LEFT 0|LMPOP 1 k LEFT|BLPOP k l 0|LINSERT k BEFORE a b|LREM k 0 v
LSET k 0 v|LTRIM k 0 1|LRANGE k 0 1|LLEN k|LPOS k v|SADD k v|SREM k v|SPOP k|SMOVE k l v|SISMEMBER k v
SMISMEMBER k v|SCARD k|SMEMBERS k|SINTER k l|SINTERSTORE d k l|SINTERCARD 2 k l|SUNIONSTORE d k l
SDIFFSTORE d k l|HSET k f v|HSETNX k f v|HGET k f|HDEL k f|HEXISTS k f|HLEN k|HINCRBY k f 1|HGETALL k
ZADD k 1 v|ZADD k INCR 1 v|ZINCRBY k 1 v|ZREM k v|ZCARD k|ZRANGE k 0 1|ZRANGESTORE d k 0 1|ZPOPMIN k
BZPOPMIN k l 0|ZMPOP 1 k MIN|ZUNIONSTORE d 2 k l|ZUNION 2 k l|ZREMRANGEBYRANK k 0 1|GEOADD k 1 1 v
GEOSEARCHSTORE d k FROMMEMBER v BYRADIUS 1 km|GEORADIUS k 1 1 1 km STORE d|GEOPOS k v|XADD k * f v
XDEL k 1|XTRIM k MAXLEN 1|XLEN k|XRANGE k - +|XREAD STREAMS k l 0 0|XREADGROUP GROUP g c STREAMS k >
XACK k g 1|XCLAIM k g c 0 1|XAUTOCLAIM k g c 0 0|XGROUP CREATE k g 0|XGROUP DESTROY k g
XGROUP DELCONSUMER k g c|XGROUP SETID k g 0|XINFO STREAM k|XSETID k 1|XPENDING k g|WATCH k l
EVAL s 2 k l|EVAL_RO s 1 k|FCALL f 1 k|MEMORY USAGE k|MIGRATE h 1 k 0 1|MIGRATE h 1 k 0 1 COPY";

fn calls() -> impl Iterator<Item = &'static str> {
    CALLS.split(['|', '\n'])
}

#[test]
fn keys_and_flags_of_calls_are_those_of_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        (
            "COMMAND GETKEYSANDFLAGS MSET a 1 b 2",
            "[[\"a\", [+OW, +update]], [\"b\", [+OW, +update]]]",
        ),
        (
            "COMMAND GETKEYSANDFLAGS LMOVE a b LEFT LEFT",
            "[[\"a\", [+RW, +access, +delete]], [\"b\", [+RW, +insert]]]",
        ),
        ("COMMAND GETKEYSANDFLAGS EVAL s 0", "[]"),
        (
            "COMMAND GETKEYSANDFLAGS ZINTERSTORE a 1443677133621497600 b",
            "-ERR Invalid arguments specified for command",
        ),
        ("COMMAND GETKEYS EVAL s 2 a", "-ERR Invalid arguments specified for command"),
        ("COMMAND GETKEYSANDFLAGS PING x", "-ERR The command has no key arguments"),
        ("COMMAND GETKEYSANDFLAGS NOPE x", "-ERR Invalid command specified"),
        (
            "COMMAND GETKEYSANDFLAGS GET a b",
            "-ERR Invalid number of arguments specified for command",
        ),
        (
            "COMMAND GETKEYSANDFLAGS",
            "-ERR wrong number of arguments for 'command|getkeysandflags' command",
        ),
    ]);
    let Some(peer) = Peer::start("redis-server", &["--save", "", "--port"]) else { return };
    let mut redis = Client::connect(peer.address);
    let mut different = Vec::new();
    for call in calls() {
        let line = format!("COMMAND GETKEYSANDFLAGS {call}");
        let (ours, theirs) = (client.call(&line), redis.call(&line));
        if ours != theirs {
            different.push(format!("{call}: {ours}, and in Redis {theirs}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    // The list of MIGRATE has its keys in place of the empty one.
    for client in [&mut client, &mut redis] {
        let words: [&[u8]; 11] =
            [b"COMMAND", b"GETKEYS", b"MIGRATE", b"h", b"1", b"", b"0", b"1", b"KEYS", b"a", b"b"];
        assert_eq!(client.call_bytes(&words), "[\"a\", \"b\"]");
    }
}

#[test]
fn subcommands_are_described_like_commands() {
    on_both(|connect| {
        let mut client = connect();
        let of_get = client.call("COMMAND INFO config|get");
        assert!(of_get.starts_with("[[\"config|get\", :-3, ["), "{of_get}");
        assert!(of_get.contains("+admin") && of_get.contains("+@dangerous"), "{of_get}");
        let of_encoding = client.call("COMMAND INFO object|encoding");
        assert!(of_encoding.starts_with("[[\"object|encoding\", :3, [+readonly"), "{of_encoding}");
        assert!(of_encoding.contains("], :2, :2, :1, ["), "{of_encoding}");
        let of_container = client.call("COMMAND INFO client");
        for subcommand in ["client|kill\", :-3", "client|setname\", :3", "client|id\", :2"] {
            assert!(of_container.contains(subcommand), "{subcommand}: {of_container}");
        }
        assert_eq!(client.call("COMMAND INFO config|nope"), "[nil]");
        let docs = client.call("COMMAND DOCS xgroup|create");
        assert!(docs.starts_with("[\"xgroup|create\", [\"summary\", "), "{docs}");
        let docs = client.call("COMMAND DOCS xgroup");
        assert!(docs.contains("\"subcommands\", [") && docs.contains("\"xgroup|setid\""), "{docs}");
    });
}

#[test]
fn commands_about_modules_replicas_and_clusters_reply_like_redis_without_them() {
    on_both(|connect| {
        let mut client = connect();
        client.expect(&[
            ("MODULE LIST", "[]"),
            ("MODULE FOO", "-ERR unknown subcommand 'FOO'. Try MODULE HELP."),
            ("MODULE LIST x", "-ERR wrong number of arguments for 'module|list' command"),
            ("ASKING", "-ERR This instance has cluster support disabled"),
            ("READONLY", "-ERR This instance has cluster support disabled"),
            ("READWRITE", "-ERR This instance has cluster support disabled"),
            ("FAILOVER", "-ERR FAILOVER requires connected replicas."),
            ("FAILOVER ABORT", "-ERR No failover in progress."),
            ("REPLICAOF no one", "+OK"),
            ("SLAVEOF NO ONE", "+OK"),
            ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ]);
        for command in ["MODULE LOAD /none.so", "MODULE LOADEX /none.so"] {
            let reply = client.call(command);
            assert!(reply.starts_with("-ERR MODULE command not allowed"), "{reply}");
        }
        assert!(client.call("MODULE HELP").contains("LIST"));
        assert!(
            client.call_bytes(&[b"EVAL", b"redis.call('module', 'list')", b"0"]).starts_with('-')
        );
    });
    let server = TestServer::start();
    let reply = server.client().call("REPLICAOF 127.0.0.1 1");
    assert!(reply.contains("siltstone replicate-from"), "{reply}");
}

/// A long script runs on another thread than the others.
#[test]
fn long_script_after_client_no_touch_leaves_idle_times() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("SET a v", "+OK"), ("CLIENT NO-TOUCH ON", "+OK")]);
    let dump = client.call_for_bulk(&[b"DUMP", b"a"]).unwrap();
    let restore: [&[u8]; 6] = [b"RESTORE", b"k", b"0", &dump, b"IDLETIME", b"1000"];
    assert_eq!(client.call_bytes(&restore), "+OK");
    let script = b"for i = 1, 3000000 do local x = i * i end return redis.call('get', KEYS[1])";
    assert_eq!(client.call_bytes(&[b"EVAL", script, b"1", b"k"]), "\"v\"");
    let idle: u64 = client.call("OBJECT IDLETIME k")[1..].parse().unwrap();
    assert!(idle >= 999, "{idle}");
}

#[test]
fn reads_after_client_no_touch_leave_idle_times() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("SET k v", "+OK"), ("RPUSH l a", ":1")]);
    for key in ["k", "l"] {
        let payload = client.call_for_bulk(&[b"DUMP", key.as_bytes()]).unwrap();
        let words: [&[u8]; 7] =
            [b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE", b"IDLETIME", b"1000"];
        assert_eq!(client.call_bytes(&words), "+OK");
    }
    let idle = |client: &mut Client, key: &str| -> u64 {
        client.call(&format!("OBJECT IDLETIME {key}"))[1..].parse().unwrap()
    };
    client.expect(&[("CLIENT NO-TOUCH x", "-ERR syntax error"), ("CLIENT NO-TOUCH ON", "+OK")]);
    client.expect(&[
        ("GET k", "\"v\""),
        ("LRANGE l 0 -1", "[\"a\"]"),
        ("CLIENT NO-EVICT on", "+OK"),
    ]);
    assert!(client.call("CLIENT INFO").contains(" flags=eT "));
    assert!(idle(&mut client, "k") >= 999 && idle(&mut client, "l") >= 999);
    // TOUCH is meant to.
    client.expect(&[("TOUCH k none", ":1"), ("CLIENT NO-TOUCH off", "+OK")]);
    assert!(idle(&mut client, "k") < 100 && idle(&mut client, "l") >= 999);
    client.expect(&[("LRANGE l 0 -1", "[\"a\"]"), ("CLIENT NO-TOUCH on", "+OK")]);
    assert!(idle(&mut client, "l") < 100);
    client.expect(&[("RESET", "+RESET")]);
    assert!(client.call("CLIENT INFO").contains(" flags=N "));
}

/// Arity, positions of keys and categories in the reply to COMMAND INFO.
fn essentials(reply: &str) -> (String, String, Vec<String>) {
    let mut parts = reply.split(", [");
    let mut next = || parts.next().unwrap_or_default();
    let (name_and_arity, flags_and_positions, categories) = (next(), next(), next());
    let arity = name_and_arity.rsplit(", ").next().unwrap_or_default();
    let (_, positions) = flags_and_positions.split_once("], ").unwrap_or_default();
    let categories = categories.split(']').next().unwrap_or_default();
    let mut categories: Vec<_> = categories.split(", ").map(str::to_owned).collect();
    categories.sort_unstable();
    (arity.to_owned(), positions.to_owned(), categories)
}

#[test]
fn arity_keys_and_categories_of_commands_are_those_of_redis() {
    let Some(peer) = Peer::start("redis-server", &["--save", "", "--port"]) else { return };
    let server = TestServer::start();
    let (mut ours, mut redis) = (server.client(), Client::connect(peer.address));
    let names = redis.call("COMMAND LIST");
    let (mut different, mut missing) = (Vec::new(), Vec::new());
    for name in names.trim_matches(['[', ']']).split(", ").map(|name| name.trim_matches('"')) {
        let call = format!("COMMAND INFO {name}");
        let [ours, theirs] = [ours.call(&call), redis.call(&call)].map(|reply| essentials(&reply));
        match ours.0.as_str() {
            "[nil]" => missing.push(name),
            _ if ours != theirs && !KNOWN_DIFFERENCES.contains(&name) => {
                different.push(format!("{name}: {ours:?}, and in Redis {theirs:?}"));
            }
            _ => {}
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    missing.sort_unstable();
    assert_eq!(missing, MISSING);
}

/// Replies of Redis 7.2 (ZRANK with a score, WAIT that blocks), commands with subcommands that have
/// the key of these, and channels, which are no keys here.
const KNOWN_DIFFERENCES: [&str; 10] = [
    "wait",
    "zrank",
    "zrevrank",
    "memory",
    "object",
    "xgroup",
    "xinfo",
    "spublish",
    "ssubscribe",
    "sunsubscribe",
];
const MISSING: [&str; 5] = ["pfdebug", "pfselftest", "psync", "replconf", "sync"];
