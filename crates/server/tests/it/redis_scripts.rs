//! Scripts: replies and errors as those of Redis 7.0, atomicity, limits.
//!
//! Where `redis-server` is installed, the same scripts run on Redis.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::support::{Client, Peer, TestServer};
use siltstone::{Db, DbOptions};
use siltstone_server::{Server, ServerOptions};

fn eval(client: &mut Client, script: &str, keys: &[&str], args: &[&str]) -> String {
    let count = keys.len().to_string();
    let mut words = vec!["EVAL", script, &count];
    words.extend(keys.iter().chain(args));
    client.call_bytes(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
}

/// Redis, if it is installed.
pub(crate) fn redis() -> Option<(Peer, tempfile::TempDir)> {
    let directory = tempfile::tempdir().expect("a place for its files");
    let path = directory.path().to_str().expect("its path is text");
    let options = ["--save", "", "--databases", "2", "--dir", path, "--port"];
    Some((Peer::start("redis-server", &options)?, directory))
}

/// A reply with a placeholder for the SHA-1 in an error.
fn without_sha(reply: String) -> String {
    match reply.split_once(" script: ") {
        Some((text, place)) if reply.starts_with('-') => {
            format!("{text} script: SHA{}", &place[40..])
        }
        _ => reply,
    }
}

/// Checks replies on this server and, if installed, on Redis.
fn check_both(steps: &[(&[&str], &str)]) {
    let check = |client: &mut Client, who: &str| {
        for (words, expected) in steps {
            let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let reply = without_sha(client.call_bytes(&bytes));
            assert_eq!(&reply, expected, "{who}: {words:?}");
        }
    };
    if let Some((peer, _directory)) = redis() {
        check(&mut Client::connect(peer.address), "redis");
    }
    check(&mut TestServer::start().client(), "siltstone");
}

#[test]
fn scripts_have_the_replies_of_redis() {
    const SCRIPTS: &str = include_str!("../scripts/alike.lua");
    let Some((peer, _directory)) = redis() else { return };
    let server = TestServer::start();
    let (mut redis, mut siltstone) = (Client::connect(peer.address), server.client());
    for version in ["2", "3"] {
        for client in [&mut redis, &mut siltstone] {
            client.call(&format!("HELLO {version}"));
            client.call("FLUSHALL");
        }
        let scripts = SCRIPTS.lines().filter(|line| !line.starts_with("--"));
        for script in scripts {
            let [expected, reply] = [&mut redis, &mut siltstone]
                .map(|client| eval(client, script, &["key", "other"], &["a", "b"]));
            assert_eq!(reply, expected, "RESP{version}: {script}");
        }
    }
}

#[test]
fn commands_have_the_replies_of_redis() {
    const SHA: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let unknown = "-NOSCRIPT No matching script. Please use EVAL.";
    let read_only = "-ERR Write commands are not allowed from read-only scripts. script: SHA, on \
                     @user_script:1.";
    check_both(&[
        (&["EVAL", "x"], "-ERR wrong number of arguments for 'eval' command"),
        (&["EVAL", "x", "-1"], "-ERR Number of keys can't be negative"),
        (&["EVAL", "x", "a"], "-ERR value is not an integer or out of range"),
        (&["EVAL", "x", "3", "a"], "-ERR Number of keys can't be greater than number of args"),
        (&["EVALSHA", "abc", "0"], unknown),
        (&["EVALSHA", SHA, "0"], unknown),
        (&["SCRIPT", "LOAD", "return 1"], &format!("\"{SHA}\"")),
        (&["EVALSHA", SHA, "0"], ":1"),
        (&["EVALSHA", &SHA.to_uppercase(), "0"], ":1"),
        (&["EVALSHA_RO", SHA, "0"], ":1"),
        (&["SCRIPT", "EXISTS"], "-ERR wrong number of arguments for 'script|exists' command"),
        (&["SCRIPT", "EXISTS", "a", SHA], "[:0, :1]"),
        (&["SCRIPT", "FLUSH", "x"], "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        (&["SCRIPT", "FLUSH", "async"], "+OK"),
        (&["EVALSHA", SHA, "0"], unknown),
        (&["EVAL", "return 1", "0"], ":1"),
        (&["EVALSHA", SHA, "0"], ":1"),
        (&["SCRIPT", "KILL"], "-NOTBUSY No scripts in execution right now."),
        (&["SCRIPT", "x"], "-ERR unknown subcommand 'x'. Try SCRIPT HELP."),
        (
            &["SCRIPT", "LOAD", "a +"],
            "-ERR Error compiling script (new function): user_script:1: '=' expected near '+'",
        ),
        (&["EVAL_RO", "return redis.call('set','a',1)", "1", "a"], read_only),
        (&["EVAL_RO", "return redis.call('publish','a','b')", "0"], read_only),
        (&["EVAL", "return redis.call('publish','a','b')", "0"], ":0"),
        (&["EVAL", "#!lua flags=x\nreturn 1", "0"], "-ERR Unexpected flag in script shebang: x"),
        (&["EVAL", "#!lua x=1\nreturn 1", "0"], "-ERR Unknown lua shebang option: x=1"),
        (&["EVAL", "#!py\nreturn 1", "0"], "-ERR Unexpected engine in script shebang: #!py"),
        (&["EVAL", "#!lua", "0"], "-ERR Invalid script shebang"),
        (&["EVAL", "#!lua flags=no-writes,allow-stale\nreturn 1", "0"], ":1"),
        (
            &["EVAL_RO", "#!lua\nreturn 1", "0"],
            "-ERR Can not execute a script with write flag using *_ro command.",
        ),
        (&["COMMAND", "GETKEYS", "EVAL", "x", "2", "a", "b", "c"], "[\"a\", \"b\"]"),
        (&["CONFIG", "GET", "busy-reply-threshold"], "[\"busy-reply-threshold\", \"5000\"]"),
        (&["CONFIG", "SET", "lua-time-limit", "100"], "+OK"),
        (&["CONFIG", "GET", "busy-reply-threshold"], "[\"busy-reply-threshold\", \"100\"]"),
        // What a script wrote before its error stays.
        (
            &["EVAL", "redis.call('set','a',1) error('no')", "1", "a"],
            "-ERR user_script:1: no script: SHA, on \
             @user_script:1.",
        ),
        (&["GET", "a"], "\"1\""),
        // SELECT ends with the script.
        (&["EVAL", "redis.call('select',1) return redis.call('get','a')", "1", "a"], "nil"),
        (&["GET", "a"], "\"1\""),
    ]);
}

#[test]
fn scripts_of_applications_work() {
    let server = TestServer::start();
    let mut client = server.client();
    // A lock is released, or extended, by its owner only.
    let release =
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";
    let extend = "if redis.call('get',KEYS[1])==ARGV[1] then \
                  return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0";
    assert_eq!(client.call("SET lock me NX PX 60000"), "+OK");
    assert_eq!(eval(&mut client, extend, &["lock"], &["other", "90000"]), ":0");
    assert_eq!(eval(&mut client, extend, &["lock"], &["me", "90000"]), ":1");
    let left: u64 = client.call("PTTL lock")[1..].parse().unwrap();
    assert!((60_001..=90_000).contains(&left), "{left}");
    assert_eq!(eval(&mut client, release, &["lock"], &["other"]), ":0");
    assert_eq!(eval(&mut client, release, &["lock"], &["me"]), ":1");
    assert_eq!(client.call("EXISTS lock"), ":0");
    // A rate limiter with a sliding window.
    let limit = "local now, window, max = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) \
                 redis.call('zremrangebyscore', KEYS[1], 0, now - window) \
                 local count = redis.call('zcard', KEYS[1]) \
                 if count >= max then return {0, count} end \
                 redis.call('zadd', KEYS[1], now, now .. '-' .. count) \
                 redis.call('pexpire', KEYS[1], window) \
                 return {1, count + 1}";
    for (now, expected) in [
        ("1000", "[:1, :1]"),
        ("1001", "[:1, :2]"),
        ("1002", "[:0, :2]"),
        ("1050", "[:0, :2]"),
        ("1101", "[:1, :1]"),
    ] {
        assert_eq!(eval(&mut client, limit, &["hits"], &[now, "100", "2"]), expected, "{now}");
    }
    // A queue: the job moves to the active list, its state to a hash, its deadline to a set.
    let take = "local id = redis.call('rpoplpush', KEYS[1], KEYS[2]) \
                if not id then return nil end \
                redis.call('hset', KEYS[3] .. id, 'state', 'active', 'by', ARGV[1]) \
                redis.call('zadd', KEYS[4], ARGV[2], id) \
                return {id, redis.call('hmget', KEYS[3] .. id, 'by', 'state')}";
    client.call("LPUSH wait 7");
    let keys = ["wait", "active", "job:", "deadlines"];
    assert_eq!(eval(&mut client, take, &keys, &["w1", "99"]), "[\"7\", [\"w1\", \"active\"]]");
    assert_eq!(eval(&mut client, take, &keys, &["w1", "99"]), "nil");
    client.expect(&[
        ("LRANGE active 0 -1", "[\"7\"]"),
        ("ZSCORE deadlines 7", "\"99\""),
        ("HGET job:7 by", "\"w1\""),
    ]);
}

#[test]
fn writes_of_a_script_are_one_batch() {
    let server = TestServer::start();
    let mut client = server.client();
    let writes = "for i = 1, 20 do redis.call('set', KEYS[i % 2 + 1], i) \
                  redis.call('lpush', KEYS[3], i) end return redis.call('get', KEYS[1])";
    // The first collection of a table writes its marker.
    client.call("LPUSH first x");
    let before = server.engine.writes.load(SeqCst);
    assert_eq!(eval(&mut client, writes, &["a", "b", "l"], &[]), "\"20\"");
    // Keys that are not declared, and a run in a transaction.
    let undeclared = writes.replace("KEYS[", "({'c', 'd', 'm'})[");
    assert_eq!(eval(&mut client, &undeclared, &[], &[]), "\"20\"");
    client.call("MULTI");
    assert_eq!(eval(&mut client, &undeclared, &[], &[]), "+QUEUED");
    client.call("SET e 1");
    assert_eq!(client.call("EXEC"), "[\"20\", +OK]");
    assert_eq!(server.engine.writes.load(SeqCst), before + 3);
    client.expect(&[("LLEN l", ":20"), ("LLEN m", ":40"), ("GET d", "\"19\"")]);
    // A batch that the store refuses leaves nothing.
    server.engine.fail_writes.store(true, SeqCst);
    assert!(eval(&mut client, writes, &["x", "y", "z"], &[]).starts_with("-READONLY"));
    server.engine.fail_writes.store(false, SeqCst);
    assert_eq!(client.call("EXISTS x y z"), ":0");
}

#[test]
fn concurrent_scripts_lose_nothing() {
    let server = TestServer::with(|options| options.threads = 4);
    let declared = "local n = redis.call('get', KEYS[1]) or 0 \
                    redis.call('set', KEYS[1], n + 1) return 1";
    let undeclared = declared.replace("KEYS[1]", "'sum'");
    // Takes longer than a script may on a worker.
    let long = format!("local x = 0 for i = 1, 3000000 do x = x + i end {declared}");
    let running = std::sync::atomic::AtomicUsize::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (mut client, running) = (server.client(), &running);
            let (undeclared, long) = (&undeclared, &long);
            scope.spawn(move || {
                for round in 0..300 {
                    let reply = match (thread, round % 100) {
                        (0, 50) => eval(&mut client, long, &["sum"], &[]),
                        (1, _) => eval(&mut client, undeclared, &[], &[]),
                        (2, _) => client.call("INCR sum"),
                        _ => eval(&mut client, declared, &["sum"], &[]),
                    };
                    assert!(reply.starts_with(':'), "{reply}");
                }
                running.fetch_sub(1, SeqCst);
            });
        }
        // Sums of two keys that scripts keep equal are never seen apart by another script.
        let (mut client, running) = (server.client(), &running);
        scope.spawn(move || {
            let both = "redis.call('incr', KEYS[1]) redis.call('incr', KEYS[2]) \
                        return redis.call('get', KEYS[1]) == redis.call('get', KEYS[2])";
            while running.load(SeqCst) > 0 {
                assert_eq!(eval(&mut client, both, &["p", "q"], &[]), ":1");
            }
        });
    });
    assert_eq!(server.client().call("GET sum"), "\"1200\"");
}

#[test]
fn busy_script_is_killed() {
    let server = TestServer::start();
    let (mut first, mut second, mut third) = (server.client(), server.client(), server.client());
    let busy =
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    assert_eq!(first.call("CONFIG SET busy-reply-threshold 20"), "+OK");
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(redis.call, 'get', KEYS[1]) end",
        "local f = coroutine.wrap(function() while true do end end) while true do pcall(f) end",
    ] {
        first.send(&[b"EVAL", script.as_bytes(), b"1", b"k"]);
        crate::support::eventually("others are refused", || second.call("PING") == busy);
        assert_eq!(third.call("GET x"), busy);
        assert_eq!(third.call("SET x 1"), busy);
        assert_eq!(third.call("MULTI"), "+OK");
        assert_eq!(third.call("GET x"), busy);
        assert!(third.call("DISCARD").starts_with("+OK"));
        assert_eq!(second.call("SCRIPT KILL"), "+OK");
        let reply = first.read();
        assert!(reply.starts_with("-ERR Script killed by user with SCRIPT KILL."), "{reply}");
        crate::support::eventually("others are served", || second.call("PING") == "+PONG");
        assert_eq!(second.call("SCRIPT KILL"), "-NOTBUSY No scripts in execution right now.");
    }
    // One that has written goes on; here until the server stops, which applies nothing.
    first.send(&[b"EVAL", b"redis.call('set','k',1) while true do end", b"1", b"k"]);
    crate::support::eventually("others are refused", || second.call("PING") == busy);
    assert!(second.call("SCRIPT KILL").starts_with("-UNKILLABLE Sorry the script"));
    let engine = server.engine.clone();
    server.finish().unwrap();
    assert!(siltstone::Engine::get(&*engine, b"k").unwrap().is_none());
}

/// Their requests are not read meanwhile, since their protocol has no error for them.
#[test]
fn memcached_clients_that_wait_for_a_busy_script_do_not_time_out() {
    let server = TestServer::with(|options| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
        options.idle_timeout = Some(Duration::from_millis(500));
    });
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET busy-reply-threshold 20"), "+OK");
    client.send(&[b"EVAL", b"while true do end", b"0"]);
    // New clients, since a silent one is closed.
    crate::support::eventually("others are refused", || {
        server.client().call("PING").starts_with("-BUSY")
    });
    let memcached = std::thread::scope(|scope| {
        let request = || server.memcached_client().request(b"get k\r\n");
        let memcached = scope.spawn(request);
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(server.client().call("SCRIPT KILL"), "+OK");
        memcached.join()
    });
    assert_eq!(memcached.unwrap(), "END\r\n");
    assert!(client.read().starts_with("-ERR Script killed"));
}

#[test]
fn long_script_runs_once() {
    let server = TestServer::start();
    let (mut client, mut subscriber) = (server.client(), server.client());
    subscriber.call("SUBSCRIBE news");
    let long = "redis.call('incr', KEYS[1]) redis.call('publish', 'news', ARGV[1]) \
                local x = 0 for i = 1, 5000000 do x = x + i end return redis.call('incr', KEYS[1])";
    assert_eq!(eval(&mut client, long, &["n"], &["one"]), ":2");
    assert_eq!(eval(&mut client, long, &["n"], &["two"]), ":4");
    for text in ["one", "two"] {
        assert_eq!(subscriber.read(), format!("[\"message\", \"news\", \"{text}\"]"));
    }
    // A client that leaves before its script has run is no problem.
    client.send(&[b"EVAL", long.as_bytes(), b"1", b"n", b"three"]);
    drop(client);
    subscriber.stream().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    crate::support::eventually("the server answers", || server.client().call("PING") == "+PONG");
    // The pops that wait are served by a script's push.
    let (mut waiting, mut pusher) = (server.client(), server.client());
    waiting.send(&[b"BLPOP", b"jobs", b"0"]);
    crate::support::eventually("it waits", || {
        pusher.call("INFO clients").contains("blocked_clients:1")
    });
    assert_eq!(eval(&mut pusher, "return redis.call('rpush','jobs','j')", &[], &[]), ":1");
    assert_eq!(waiting.read(), "[\"jobs\", \"j\"]");
}

#[test]
fn commands_of_scripts_are_counted_and_shown() {
    let server = TestServer::start();
    let (mut monitor, mut client) = (server.client(), server.client());
    client.expect(&[("CONFIG RESETSTAT", "+OK")]);
    monitor.expect(&[("MONITOR", "+OK")]);
    eval(
        &mut client,
        "redis.call('set', KEYS[1], 1) return redis.call('get', KEYS[1])",
        &["k"],
        &[],
    );
    let shown: Vec<String> = (0..3).map(|_| monitor.read()).collect();
    let is_shown = |line: &str, end: &str| line.contains(" lua] ") && line.ends_with(end);
    assert!(shown[0].contains("\"EVAL\""), "{shown:?}");
    assert!(is_shown(&shown[1], "\"set\" \"k\" \"1\""), "{shown:?}");
    assert!(is_shown(&shown[2], "\"get\" \"k\""), "{shown:?}");
    let stats = client.call("INFO commandstats");
    assert!(stats.contains("cmdstat_set:calls=1,") && stats.contains("cmdstat_get:calls=1,"));
    eval(&mut client, "return redis.error_reply('MINE own')", &[], &[]);
    assert!(client.call("INFO errorstats").contains("errorstat_MINE:count=1"));
    assert_eq!(eval(&mut client, "return redis.call('wait', '1', '0')", &[], &[]), ":0");
}

/// Name of the variable with the directory of the store that [`killed_server`] serves.
const STORE: &str = "SILTSTONE_TEST_KILLED_STORE";

/// The process that [`script_is_whole_or_absent_after_a_kill`] starts and kills.
#[test]
fn killed_server() {
    let Some(directory) = std::env::var_os(STORE) else { return };
    let directory = std::path::Path::new(&directory);
    let db = Db::open_or_create(directory.join("store"), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(vec![table], ServerOptions { listen, ..Default::default() }).unwrap();
    let address = server.local_addr().to_string();
    std::fs::write(directory.join("new"), address).unwrap();
    std::fs::rename(directory.join("new"), directory.join("address")).unwrap();
    server.run().unwrap();
}

#[test]
fn script_is_whole_or_absent_after_a_kill() {
    const ROUNDS: u64 = 6;
    let directory = tempfile::tempdir().unwrap();
    let script = "local n = redis.call('incr', KEYS[1]) \
                  for i = 2, 20 do redis.call('set', KEYS[i], n) end \
                  redis.call('rpush', 'list', n) redis.call('hset', 'hash', n, n) return n";
    let keys: Vec<String> = (1..=20).map(|key| format!("key:{key}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut acknowledged = 0;
    for round in 0..=ROUNDS {
        let file = directory.path().join("address");
        let _ = std::fs::remove_file(&file);
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "redis_scripts::killed_server"]).env(STORE, directory.path());
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        crate::support::eventually("it listens", || file.exists());
        let address = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        let mut client = Client::connect(address);
        let value = |reply: String| reply.trim_matches([':', '"']).parse::<u64>().unwrap_or(0);
        let count = value(client.call("LLEN list"));
        assert!(count >= acknowledged, "{count} {acknowledged}");
        assert_eq!(value(client.call("HLEN hash")), count);
        for key in &keys {
            assert_eq!(value(client.call(&format!("GET {key}"))), count, "{key}");
        }
        let count = value(eval(&mut client, script, &keys, &[]));
        // The kill comes in the midst of a pipeline.
        for _ in 0..400 {
            let words: Vec<&[u8]> = [&b"EVAL"[..], script.as_bytes(), b"20"].into();
            let words = words.into_iter().chain(keys.iter().map(|key| key.as_bytes()));
            client.send(&words.collect::<Vec<_>>());
        }
        acknowledged = count;
        for _ in 0..20 * round {
            acknowledged = value(client.read());
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn memory_and_time_are_limited() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET script-memory-limit 4mb"), "+OK");
    let reply = eval(
        &mut client,
        "local t = {} for i = 1, 1e9 do t[i] = string.rep('x', 1000) .. i end",
        &[],
        &[],
    );
    assert!(reply.starts_with("-ERR the script exceeds the memory limit of 4194304"), "{reply}");
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
    let reply = eval(&mut client, "return string.rep('x', 1e8)", &[], &[]);
    assert!(reply.contains("memory limit"), "{reply}");
    let replies = "local t = {} local x = string.rep('x', 1000)
        for i = 1, 1e9 do t[i] = redis.call('echo', i .. x) end";
    let reply = eval(&mut client, replies, &[], &[]);
    assert!(reply.contains("memory limit"), "{reply}");
    let large = "x".repeat(5 << 20);
    let reply = eval(&mut client, "return #ARGV[1]", &[], &[&large]);
    assert!(reply.contains("memory limit"), "{reply}");
    assert_eq!(client.call("CONFIG SET busy-reply-threshold 20"), "+OK");
    client.call("MULTI");
    assert_eq!(eval(&mut client, "while true do end", &[], &[]), "+QUEUED");
    client.call("SET a 1");
    let reply = client.call("EXEC");
    assert!(reply.contains("longer than busy-reply-threshold inside MULTI"), "{reply}");
    assert!(reply.ends_with("+OK]"), "{reply}");
    // Recursion of the matcher, of Lua and of C functions.
    let deep_pattern = "return ('a'):rep(1e5):find(('a?'):rep(1e5) .. 'b')";
    assert!(eval(&mut client, deep_pattern, &[], &[]).contains("pattern too complex"));
    let longest = "return (''):find(('a-'):rep(2048))";
    assert_eq!(eval(&mut client, longest, &[], &[]), ":1");
    let recursion = "local function f() return 1 + f() end f()";
    assert!(eval(&mut client, recursion, &[], &[]).contains("stack overflow"));
    let nested = "return cjson.decode(('['):rep(1000) .. (']'):rep(1000)) ~= nil";
    assert_eq!(eval(&mut client, nested, &[], &[]), ":1");
    // Nested values beyond any limit of a stack.
    let reply = eval(&mut client, "local t = {} for i = 1, 1e4 do t = {t} end return t", &[], &[]);
    assert!(reply.contains("reached lua stack limit"), "{reply}");
}

/// Redis 7.0 passes 17 digits, and large integers with an exponent.
#[test]
fn numbers_are_passed_to_commands_as_since_redis_7_2() {
    let server = TestServer::start();
    let mut client = server.client();
    for (number, expected) in [
        ("0.1", "0.1"),
        ("-1/3", "-0.3333333333333333"),
        ("2^53", "9007199254740992"),
        ("-1e18", "-1000000000000000000"),
        ("1e19", "1e+19"),
        ("5e-324", "5e-324"),
    ] {
        let script = format!("return redis.call('echo', {number})");
        assert_eq!(eval(&mut client, &script, &[], &[]), format!("\"{expected}\""));
    }
    let script = "return redis.call('incrby', KEYS[1], 1e17)";
    assert_eq!(eval(&mut client, script, &["n"], &[]), ":100000000000000000");
}

#[test]
fn array_of_any_number_of_strings_is_returned() {
    let server = TestServer::start();
    let mut client = server.client();
    let script = "local t = {} for i = 1, 20000 do t[i] = {'x' .. i} end return t";
    let reply = eval(&mut client, script, &[], &[]);
    assert_eq!(reply.matches("x").count(), 20_000, "{}", &reply[..reply.len().min(200)]);
}

/// Some kilobytes of tables that stand for more values than any memory holds.
#[test]
fn values_that_share_tables_are_limited() {
    let server = TestServer::with(|options| options.max_output_bytes = 256 << 10);
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET script-memory-limit 4mb"), "+OK");
    let shared = "local t = {('x'):rep(99)} for i = 1, 15 do \
                  local u = {} for j = 1, 30 do u[j] = t end t = u end return ";
    let reply = eval(&mut client, &format!("{shared} t"), &[], &[]);
    assert!(reply.contains("the reply exceeds the limit of 262144 bytes"), "{reply}");
    for packed in ["cjson.encode(t)", "cmsgpack.pack(t)"] {
        let reply = eval(&mut client, &format!("{shared} {packed}"), &[], &[]);
        assert!(reply.contains("memory limit"), "{packed}: {reply}");
    }
    let unpacked = "return struct.unpack(('b'):rep(10000), ('a'):rep(10000))";
    let reply = eval(&mut client, unpacked, &[], &[]);
    assert!(reply.contains("too many results"), "{reply}");
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
}

#[test]
fn sandbox_cannot_be_left() {
    let server = TestServer::start();
    let mut client = server.client();
    for name in ["io", "debug", "package", "require", "dofile", "loadfile", "print", "getfenv"] {
        let reply = eval(&mut client, &format!("return {name}"), &[], &[]);
        assert!(reply.contains("nonexistent global variable"), "{name}: {reply}");
    }
    for script in [
        "x = 1",
        "_G.x = 1",
        "string.x = 1",
        "getmetatable('').__index = 1",
        "getmetatable('').x = 1",
        "getmetatable(_G).__newindex = nil",
        "rawset(redis, 'call', nil)",
        "setmetatable(string, {})",
        "KEYS.x = y",
        "os.exit()",
        "for k, v in pairs(math) do math[k] = nil end",
        "local f = loadstring('x = 1') f()",
        "return loadstring(string.dump(function() end))()",
        "return load(function() return nil end)() + 1",
    ] {
        let reply = eval(&mut client, script, &[], &[]);
        assert!(reply.starts_with("-ERR "), "{script}: {reply}");
    }
    assert!(eval(&mut client, "return os.clock()", &[], &[]).starts_with(':'));
    assert_eq!(eval(&mut client, "return redis.breakpoint and 1", &[], &[]), ":1");
    assert!(client.call("SCRIPT DEBUG YES").starts_with("-ERR SCRIPT DEBUG is not supported"));
    // What a script does to the values of a library that it copied stays its own.
    assert_eq!(eval(&mut client, "return math.abs(-1)", &[], &[]), ":1");
}
