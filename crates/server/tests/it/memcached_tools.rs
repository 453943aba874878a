//! memcached's clients work with the server, and its responses equal memcached's. Skipped where
//! they are not installed.

use std::process::Command;

use crate::support::{MemcachedClient, Peer, TestServer, mica};
use siltstone_testkit::TestRng;

fn server() -> TestServer {
    TestServer::over(Some(mica("memory=64MiB mode=cache")), |options| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
    })
}

/// Output of a program; `None` if it is not installed.
fn run(program: &str, args: &[&str]) -> Option<(bool, String)> {
    let output = match Command::new(program).args(args).output() {
        Ok(output) => output,
        Err(_) => {
            println!("skipped: {program} is not on the PATH");
            return None;
        }
    };
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn memccapable_passes() {
    let server = server();
    let port = server.memcached.unwrap().port().to_string();
    // -a: the text protocol; the binary one is deprecated in memcached itself.
    let Some((succeeded, text)) = run("memccapable", &["-h", "127.0.0.1", "-p", &port, "-a"])
    else {
        return;
    };
    let failed: Vec<_> = text.lines().filter(|line| line.contains("[FAIL]")).collect();
    assert!(succeeded && failed.is_empty() && text.contains("[pass]"), "{text}");
}

#[test]
fn memcslap_passes() {
    let server = server();
    let servers = format!("--servers={}", server.memcached.unwrap());
    for test in ["set", "get", "mget"] {
        let test = format!("--test={test}");
        let args = [&servers[..], &test, "--concurrency=4", "--execute-number=1000"];
        let Some((succeeded, text)) = run("memcslap", &args) else { return };
        assert!(succeeded && text.contains("econds"), "{text}");
    }
}

/// memaslap (memcaslap in Debian): sets, and gets whose values are verified (-v 1).
#[test]
fn memaslap_passes() {
    let server = server();
    let servers = server.memcached.unwrap().to_string();
    let args = ["-s", &servers, "-T", "2", "-c", "4", "-x", "20000", "-v", "1", "-X", "200"];
    let Some((succeeded, text)) = run("memcaslap", &args) else { return };
    let counted = |what: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(what))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let (sets, gets) = (counted("cmd_set:"), counted("cmd_get:"));
    assert!(
        succeeded && sets.zip(gets).is_some_and(|(sets, gets)| sets + gets >= 20_000),
        "{text}"
    );
    for wrong in ["get_misses:", "verify_misses:", "verify_failed:"] {
        assert_eq!(counted(wrong), Some(0), "{text}");
    }
}

/// libmemcached's command-line tools.
#[test]
fn libmemcached_tools_work() {
    let server = server();
    let servers = format!("--servers={}", server.memcached.unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fruit");
    std::fs::write(&file, "apples and pears").unwrap();
    let file = file.to_str().unwrap();
    let tool = |name: &str, args: &[&str]| run(name, &[&[&servers[..]], args].concat());
    let Some((succeeded, text)) = tool("memcping", &[]) else { return };
    assert!(succeeded, "{text}");
    let mut steps = vec![
        ("memccp", vec!["--flag=7", file], true, ""),
        ("memccat", vec!["fruit"], true, "apples and pears"),
        ("memccat", vec!["--flag", "fruit"], true, "7"),
        ("memcexist", vec!["fruit"], true, ""),
        ("memctouch", vec!["--expire=100", "fruit"], true, ""),
        ("memcstat", vec![], true, "curr_items: 1"),
        ("memcrm", vec!["fruit"], true, ""),
        ("memcexist", vec!["fruit"], false, ""),
        ("memccp", vec!["--set", file], true, ""),
        ("memcflush", vec![], true, ""),
        ("memcexist", vec!["fruit"], false, ""),
    ];
    for (name, args, should, contains) in steps.drain(..) {
        let Some((succeeded, text)) = tool(name, &args) else { return };
        assert!(succeeded == should && text.contains(contains), "{name} {args:?}: {text}");
    }
}

#[test]
fn pymemcache_works() {
    let server = server();
    let address = server.memcached.unwrap();
    // The module may be installed for the system's Python only.
    let has_module =
        |python: &&str| run(python, &["-c", "import pymemcache"]).is_some_and(|ran| ran.0);
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has_module) else {
        println!("skipped: no Python has pymemcache");
        return;
    };
    let script = format!(
        "
from pymemcache.client.base import Client, PooledClient
from pymemcache import serde
c = Client(('{}', {}), serde=serde.pickle_serde, default_noreply=False)
assert c.set('a', {{'x': [1, 2]}}) and c.get('a') == {{'x': [1, 2]}}
assert c.set('text', 'schön') and c.get('text') == 'schön' and c.set('n', 5) and c.get('n') == 5
assert c.get('none') is None and c.get('none', 7) == 7
assert c.set_many({{'k%d' % i: 'v%d' % i for i in range(500)}}) == []
assert c.get_many(['k%d' % i for i in range(600)]) == {{'k%d' % i: 'v%d' % i for i in range(500)}}
value, cas = c.gets('a')
assert c.cas('a', 'new', cas) is True and c.cas('a', 'newer', cas) is False
assert c.cas('none', 'x', cas) is None
assert c.add('a', 1) is False and c.add('b', 1) is True and c.replace('zz', 1) is False
raw = Client(('{}', {}), default_noreply=False)
assert raw.set('i', b'10') and raw.incr('i', 5) == 15 and raw.decr('i', 20) == 0
assert raw.incr('none', 1) is None and raw.append('i', b'x') and raw.prepend('i', b'y')
assert raw.get('i') == b'y0x' and raw.touch('i', 100)
assert raw.delete('i') and not raw.delete('i') and b'cmd_get' in raw.stats()
assert raw.version().startswith(b'1.6') and raw.flush_all() and raw.get('a') is None
raw.set('noreply', b'x', noreply=True); assert raw.get('noreply') == b'x'
raw.quit()
pool = PooledClient(('{}', {}), max_pool_size=4)
assert all(pool.set('p%d' % i, b'x' * i) for i in range(100))
print('all well')
",
        address.ip(),
        address.port(),
        address.ip(),
        address.port(),
        address.ip(),
        address.port()
    );
    let (succeeded, text) = run(python, &["-c", &script]).unwrap();
    assert!(succeeded && text.contains("all well"), "{text}");
}

/// A random command whose response is specified.
fn draw(rng: &mut TestRng) -> String {
    let key = format!("k{}", rng.below(4));
    let number = format!("n{}", rng.below(2));
    let len = rng.index(6);
    let data: String = (0..len).map(|_| (b'a' + rng.below(26) as u8) as char).collect();
    let flags = rng.below(3) * 1_000_000_007;
    let time = ["0", "100", "-1", "0"][rng.index(4)];
    let quiet = ["", "", "", " noreply"][rng.index(4)];
    let verb = ["set", "add", "replace", "append", "prepend"][rng.index(5)];
    // The key returned is the one requested, so the order of flags does not matter.
    let marks = ["", " k", " k Oabc", " Oq", " q", " q k"][rng.index(6)];
    let mode = ["", " MS", " ME", " MA", " MP", " MR"][rng.index(6)];
    // memcached's clock has a resolution of seconds, so `l` may differ by one and is omitted.
    let soon = [" R30", " R1000", "", ""][rng.index(4)];
    let fill = [" N200", "", " N0"][rng.index(3)];
    match rng.below(39) {
        0..=4 => format!("{verb} {key} {flags} {time} {len}{quiet}\r\n{data}\r\n"),
        5 => format!("set {number} 0 0 2{quiet}\r\n{}\r\n", 10 + rng.below(80)),
        6 => format!("incr {number} {}{quiet}\r\n", rng.below(1000)),
        7 => format!("incr {key} 1\r\n"),
        8 => format!("get {key} {number}x k1 k2\r\n"),
        9 => format!("delete {key}{quiet}\r\n"),
        10 => format!("delete {number}{quiet}\r\n"),
        11 => format!("touch {key} {time}{quiet}\r\n"),
        12 => format!("gat {time} {key} k1\r\n"),
        13 => format!("mg {key}{marks} f s t v\r\n"),
        14 => format!("mg {key}{marks}\r\n"),
        15 => format!("ms {key} {len} F{flags} T{time}{mode}{marks}\r\n{data}\r\n"),
        16 => format!("md {key}{marks}\r\n"),
        17 => format!("ma {number}{marks} D{}\r\n", rng.below(100)),
        18 => format!("ma {number} N0 J{} v t\r\n", 10 + rng.below(10)),
        19 => format!("mg {key}{marks} T100 t v\r\n"),
        20 => format!("set {key} 0 0 {}\r\n{data}\r\n\r\n", len + 1),
        21 => format!("{verb} {key} 0 0\r\n"),
        22 => "version\r\nfoo\r\n\r\n".to_owned(),
        23 => format!("incr {number} x\r\nset {key} x 0 1\r\ntouch {key} y\r\nmg {key} v v\r\n"),
        24 => format!("cas {key} 0 0 {len} 1\r\n{data}\r\nms {key} {len} C1\r\n{data}\r\n"),
        25..=27 => format!("mg {key}{marks}{soon}{fill} s t v h\r\n"),
        28 => format!("md {key} I T50{marks}\r\n"),
        29 => format!("md {key} I{marks}\r\n"),
        30 => format!("ms {key} {len} C1 I{marks} F{flags}\r\n{data}\r\n"),
        31 => format!("mg {key} h t{soon}\r\nmg {key} h\r\n"),
        32 => format!("md {number} I\r\nma {number} D{} v\r\nmg {number} v\r\n", rng.below(100)),
        33 => format!("mg {key} T300 R250 h t v{marks}\r\nmg {key} R350 t\r\n"),
        34 => {
            "mg k0 x\r\nmd k0 E5\r\nma n0 x\r\nmg k0 R\r\nmd k0 T\r\nmg k0 u L P D5\r\n".to_owned()
        }
        // Not `s`, which later versions return.
        35 => format!("ms {key} {len} t f h v I{mode}\r\n{data}\r\nmd {key} c f s t\r\n"),
        36 => format!(
            "set {key} 0 x {len}{quiet}\r\nset {key} 0 0 -1{quiet}\r\ntouch {key} x{quiet}\r\n"
        ),
        37 => format!("cas {key} 0 0 {len}{quiet}\r\nincr {number} x{quiet}\r\n"),
        _ => "get\r\nget \r\ngat 0\r\nmg\r\nms\r\nms k\r\nverbosity 1\r\n".to_owned(),
    }
}

/// Rounds up remaining times that depend on memcached's clock of whole seconds. All times here are
/// multiples of 50.
fn normalized(answer: &str) -> String {
    let mut normalized = String::new();
    for word in answer.split_inclusive([' ', '\r']) {
        let seconds = word.strip_prefix('t').and_then(|rest| rest.trim_end().parse::<u64>().ok());
        match seconds.filter(|seconds| seconds % 50 == 49) {
            None => normalized.push_str(word),
            Some(seconds) => {
                normalized.push_str(&format!("t{}{}", seconds + 1, &word[word.trim_end().len()..]));
            }
        }
    }
    normalized
}

#[test]
fn responses_match_memcached() {
    let args = ["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-p"];
    let Some(peer) = Peer::start("memcached", &args) else { return };
    let sequences = std::env::var("SILTSTONE_MEMCACHED").map_or(200, |n| n.parse().unwrap());
    let (ours, engine) = (
        server(),
        crate::support::TestServer::with(|options| {
            options.memcached = Some("127.0.0.1:0".parse().unwrap());
        }),
    );
    let mut clients = [peer.address, ours.memcached.unwrap(), engine.memcached.unwrap()]
        .map(MemcachedClient::connect);
    let mut commands = 0;
    for seed in 0..sequences {
        let mut rng = TestRng::new(seed);
        let mut sent = String::new();
        for memcached in &mut clients {
            memcached.request(b"flush_all noreply\r\n");
        }
        // memcached's flush has a resolution of seconds: old items occupy their keys until deleted.
        for key in ["k0", "k1", "k2", "k3", "n0", "n1"] {
            clients[0].request(format!("md {key} q\r\n").as_bytes());
        }
        for _ in 0..30 {
            let command = draw(&mut rng);
            sent.push_str(&command);
            commands += 1;
            let received = clients
                .each_mut()
                .map(|memcached| normalized(&memcached.request(command.as_bytes())));
            assert_eq!(received[0], received[1], "mica, seed {seed}: {sent}");
            assert_eq!(received[0], received[2], "map, seed {seed}: {sent}");
            if rng.below(8) == 0 {
                let swapped = clients.each_mut().map(|memcached| {
                    memcached.request(b"append k1 0 0 1\r\nx\r\nadd k1 0 0 1\r\nx\r\n");
                    let cas = memcached.cas("k1");
                    memcached.request(
                        format!("cas k1 1 0 1 {cas}\r\nz\r\ncas k1 1 0 1 {cas}\r\ny\r\n")
                            .as_bytes(),
                    )
                });
                assert!(swapped.iter().all(|s| s == "STORED\r\nEXISTS\r\n"), "{swapped:?} {sent}");
            }
        }
    }
    println!("{commands} commands, the same answers");
}
