//! Do memcached's clients work against the server, and does it answer as memcached itself does?
//! Skipped, with the reason, where they are not installed.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use std::process::Command;

use siltstone_testkit::Dice;
use support::{Peer, Running, Talk, mica};

fn server() -> Running {
    Running::over(Some(mica("memory=64MiB mode=cache")), |options| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
    })
}

/// What a program prints; `None` if it is not installed.
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
fn memccapable() {
    let server = server();
    let port = server.memcached.unwrap().port().to_string();
    // -a: the text protocol; there is no binary one, which memcached itself has given up.
    let Some((is_well, text)) = run("memccapable", &["-h", "127.0.0.1", "-p", &port, "-a"]) else {
        return;
    };
    let failed: Vec<_> = text.lines().filter(|line| line.contains("[FAIL]")).collect();
    assert!(is_well && failed.is_empty() && text.contains("[pass]"), "{text}");
}

#[test]
fn memcslap() {
    let server = server();
    let servers = format!("--servers={}", server.memcached.unwrap());
    for test in ["set", "get", "mget"] {
        let test = format!("--test={test}");
        let args = [&servers[..], &test, "--concurrency=4", "--execute-number=1000"];
        let Some((is_well, text)) = run("memcslap", &args) else { return };
        assert!(is_well && text.contains("econds"), "{text}");
    }
}

/// memaslap, as Debian calls it: sets and look-ups whose values it checks (-v 1).
#[test]
fn memcaslap() {
    let server = server();
    let servers = server.memcached.unwrap().to_string();
    let args = ["-s", &servers, "-T", "2", "-c", "4", "-x", "20000", "-v", "1", "-X", "200"];
    let Some((is_well, text)) = run("memcaslap", &args) else { return };
    let counted = |what: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(what))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let (sets, gets) = (counted("cmd_set:"), counted("cmd_get:"));
    assert!(is_well && sets.zip(gets).is_some_and(|(sets, gets)| sets + gets >= 20_000), "{text}");
    for wrong in ["get_misses:", "verify_misses:", "verify_failed:"] {
        assert_eq!(counted(wrong), Some(0), "{text}");
    }
}

/// libmemcached's command-line tools, each of which is a client by that library.
#[test]
fn libmemcached() {
    let server = server();
    let servers = format!("--servers={}", server.memcached.unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fruit");
    std::fs::write(&file, "apples and pears").unwrap();
    let file = file.to_str().unwrap();
    let tool = |name: &str, args: &[&str]| run(name, &[&[&servers[..]], args].concat());
    let Some((is_well, text)) = tool("memcping", &[]) else { return };
    assert!(is_well, "{text}");
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
        let Some((is_well, text)) = tool(name, &args) else { return };
        assert!(is_well == should && text.contains(contains), "{name} {args:?}: {text}");
    }
}

#[test]
fn pymemcache() {
    let server = server();
    let address = server.memcached.unwrap();
    // The system's Python has what the system's packages bring, the one on the PATH may not.
    let has_it = |python: &&str| run(python, &["-c", "import pymemcache"]).is_some_and(|ran| ran.0);
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has_it) else {
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
    let (is_well, text) = run(python, &["-c", &script]).unwrap();
    assert!(is_well && text.contains("all well"), "{text}");
}

/// A command that memcached answers in a way that is promised.
fn draw(dice: &mut Dice) -> String {
    let key = format!("k{}", dice.below(4));
    let number = format!("n{}", dice.below(2));
    let len = dice.index(6);
    let data: String = (0..len).map(|_| (b'a' + dice.below(26) as u8) as char).collect();
    let flags = dice.below(3) * 1_000_000_007;
    let time = ["0", "100", "-1", "0"][dice.index(4)];
    let quiet = ["", "", "", " noreply"][dice.index(4)];
    let verb = ["set", "add", "replace", "append", "prepend"][dice.index(5)];
    // A key that is answered is one that was asked for, so flags need no order of their own.
    let marks = ["", " k", " k Oabc", " Oq", " q", " q k"][dice.index(6)];
    let mode = ["", " MS", " ME", " MA", " MP", " MR"][dice.index(6)];
    // Its clock is of whole seconds, so `l` may differ by one and is left out.
    let soon = [" R30", " R1000", "", ""][dice.index(4)];
    let fill = [" N200", "", " N0"][dice.index(3)];
    match dice.below(39) {
        0..=4 => format!("{verb} {key} {flags} {time} {len}{quiet}\r\n{data}\r\n"),
        5 => format!("set {number} 0 0 2{quiet}\r\n{}\r\n", 10 + dice.below(80)),
        6 => format!("incr {number} {}{quiet}\r\n", dice.below(1000)),
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
        17 => format!("ma {number}{marks} D{}\r\n", dice.below(100)),
        18 => format!("ma {number} N0 J{} v t\r\n", 10 + dice.below(10)),
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
        32 => format!("md {number} I\r\nma {number} D{} v\r\nmg {number} v\r\n", dice.below(100)),
        33 => format!("mg {key} T300 R250 h t v{marks}\r\nmg {key} R350 t\r\n"),
        34 => {
            "mg k0 x\r\nmd k0 E5\r\nma n0 x\r\nmg k0 R\r\nmd k0 T\r\nmg k0 u L P D5\r\n".to_owned()
        }
        // Not `s`, which later ones answer.
        35 => format!("ms {key} {len} t f h v I{mode}\r\n{data}\r\nmd {key} c f s t\r\n"),
        36 => format!(
            "set {key} 0 x {len}{quiet}\r\nset {key} 0 0 -1{quiet}\r\ntouch {key} x{quiet}\r\n"
        ),
        37 => format!("cas {key} 0 0 {len}{quiet}\r\nincr {number} x{quiet}\r\n"),
        _ => "get\r\nget \r\ngat 0\r\nmg\r\nms\r\nms k\r\nverbosity 1\r\n".to_owned(),
    }
}

/// An answer without what depends on whether a second has begun meanwhile: memcached's clock is of whole
/// seconds. All seconds here are multiples of 50.
fn settled(answer: &str) -> String {
    let mut settled = String::new();
    for word in answer.split_inclusive([' ', '\r']) {
        let seconds = word.strip_prefix('t').and_then(|rest| rest.trim_end().parse::<u64>().ok());
        match seconds.filter(|seconds| seconds % 50 == 49) {
            None => settled.push_str(word),
            Some(seconds) => {
                settled.push_str(&format!("t{}{}", seconds + 1, &word[word.trim_end().len()..]));
            }
        }
    }
    settled
}

#[test]
fn every_answer_is_the_one_that_memcached_gives() {
    let args = ["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-p"];
    let Some(peer) = Peer::start("memcached", &args) else { return };
    let sequences = std::env::var("SILTSTONE_MEMCACHED").map_or(200, |n| n.parse().unwrap());
    let (ours, engine) = (
        server(),
        support::Running::with(|options| {
            options.memcached = Some("127.0.0.1:0".parse().unwrap());
        }),
    );
    let mut talks =
        [peer.address, ours.memcached.unwrap(), engine.memcached.unwrap()].map(Talk::connect);
    let mut commands = 0;
    for seed in 0..sequences {
        let mut dice = Dice::new(seed);
        let mut said = String::new();
        for talk in &mut talks {
            talk.say(b"flush_all noreply\r\n");
        }
        // memcached's flush is by the second: what it had keeps its place until it is deleted.
        for key in ["k0", "k1", "k2", "k3", "n0", "n1"] {
            talks[0].say(format!("md {key} q\r\n").as_bytes());
        }
        for _ in 0..30 {
            let command = draw(&mut dice);
            said.push_str(&command);
            commands += 1;
            let heard = talks.each_mut().map(|talk| settled(&talk.say(command.as_bytes())));
            assert_eq!(heard[0], heard[1], "mica, seed {seed}: {said}");
            assert_eq!(heard[0], heard[2], "map, seed {seed}: {said}");
            if dice.below(8) == 0 {
                let swapped = talks.each_mut().map(|talk| {
                    talk.say(b"append k1 0 0 1\r\nx\r\nadd k1 0 0 1\r\nx\r\n");
                    let cas = talk.cas("k1");
                    talk.say(
                        format!("cas k1 1 0 1 {cas}\r\nz\r\ncas k1 1 0 1 {cas}\r\ny\r\n")
                            .as_bytes(),
                    )
                });
                assert!(swapped.iter().all(|s| s == "STORED\r\nEXISTS\r\n"), "{swapped:?} {said}");
            }
        }
    }
    println!("{commands} commands, the same answers");
}
