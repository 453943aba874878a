//! Responses of memcached commands, over engines that store flags and cas in different ways, and
//! together with RESP.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{MemcachedClient, TestServer, eventually, mica};
use siltstone::Engine;
use siltstone_server::{Server, ServerOptions};

fn anywhere() -> Option<SocketAddr> {
    Some("127.0.0.1:0".parse().unwrap())
}

fn over(first: Option<Arc<dyn Engine>>) -> TestServer {
    TestServer::over(first, |options| options.memcached = anywhere())
}

/// Engines with flags in a trailer, flags in the item, and CAS versions in the item.
fn kinds() -> Vec<(&'static str, TestServer)> {
    vec![
        ("map", over(None)),
        ("mica", over(Some(mica("memory=32MiB")))),
        ("mica, cache", over(Some(mica("memory=32MiB mode=cache access=crcw")))),
        ("mica, cas", over(Some(mica("memory=32MiB cas=on")))),
    ]
}

#[test]
fn classic_commands_respond_like_memcached() {
    for (kind, server) in kinds() {
        println!("{kind}");
        let mut memcached = server.memcached_client();
        memcached.expect(&[
            ("get a|", "END|"),
            ("set a 5 0 3|abc|", "STORED|"),
            ("get a|", "VALUE a 5 3|abc|END|"),
            ("set b 0 0 0||", "STORED|"),
            ("get zz b a zz a|", "VALUE b 0 0||VALUE a 5 3|abc|VALUE a 5 3|abc|END|"),
            ("add a 1 0 1|x|", "NOT_STORED|"),
            ("add c 4294967295 0 1|x|", "STORED|"),
            ("get c|", "VALUE c 4294967295 1|x|END|"),
            ("replace zz 0 0 1|x|", "NOT_STORED|"),
            ("replace c 0 0 1|y|get c|", "STORED|VALUE c 0 1|y|END|"),
            ("append a 9 0 2|de|prepend a 9 0 1|>|get a|", "STORED|STORED|VALUE a 5 6|>abcde|END|"),
            ("append zz 0 0 1|x|prepend zz 0 0 1|x|", "NOT_STORED|NOT_STORED|"),
            ("delete a|delete a|get a|", "DELETED|NOT_FOUND|END|"),
            ("delete b 0|delete b 1|delete b 0 noreply|", "DELETED|CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]|"),
            ("set n 7 0 2|10|incr n 5|decr n 16|get n|", "STORED|15|0|VALUE n 7 1|0|END|"),
            ("incr n 18446744073709551615|incr n 2|", "18446744073709551615|1|"),
            ("incr n -1|incr n x|incr zz 1|decr zz 1|", "CLIENT_ERROR invalid numeric delta argument|CLIENT_ERROR invalid numeric delta argument|NOT_FOUND|NOT_FOUND|"),
            ("incr c 1|", "CLIENT_ERROR cannot increment or decrement non-numeric value|"),
            ("touch c 100|touch zz 0|touch c x|", "TOUCHED|NOT_FOUND|CLIENT_ERROR invalid exptime argument|"),
            ("mg c t|touch c 0|mg c t|", "HD t100|TOUCHED|HD t-1|"),
            ("gat 50 c zz|mg c t|", "VALUE c 0 1|y|END|HD t50|"),
            ("gat -1 c|get c|", "VALUE c 0 1|y|END|END|"),
            ("set q 0 0 1 noreply|x|add q 0 0 1 noreply|y|incr q 1 noreply|get q|", "VALUE q 0 1|x|END|"),
            ("get|touch|gat|incr a|foo|set a 0 0|cas a 0 0 1||", "ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|"),
            ("set a x 0 1|set a 0 x 1|set a 4294967296 0 1|set a 0 0 -1|", "CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|"),
            ("set a 0 0 3|abcde|", "CLIENT_ERROR bad data chunk|ERROR|"),
            ("version noreply|verbosity noreply|get noreply|", "VERSION 1.6.18|END|"),
            // With `noreply` not even errors are answered; but a key may have that name.
            ("set q 0 x 1 noreply|set q 0 0 -1 noreply|cas q 0 0 1 noreply|cas q 0 0 1 x noreply|", ""),
            ("touch q x noreply|incr q noreply|set q noreply|", "ERROR|"),
            ("delete noreply|set noreply 0 0 1|5|incr noreply 2|touch noreply 0|", "NOT_FOUND|STORED|7|TOUCHED|"),
            ("delete noreply noreply|get noreply|incr noreply 1 noreply|delete noreply 0|", "END|NOT_FOUND|"),
            ("version|verbosity 1|verbosity x|shutdown|", "VERSION 1.6.18|OK|CLIENT_ERROR bad command line format|ERROR: shutdown not enabled|"),
            ("flush_all|get q|flush_all noreply|flush_all x|", "OK|END|CLIENT_ERROR invalid exptime argument|"),
            ("set a\tb 0 0 1|", "CLIENT_ERROR bad command line format|"),
        ]);
        let stats = memcached.request(b"stats\r\n");
        assert!(stats.contains("STAT cmd_get ") && stats.ends_with("END\r\n"), "{stats}");
        assert_eq!(memcached.request(b"stats reset\r\n"), "RESET\r\n");
        assert!(memcached.request(b"stats\r\n").contains("STAT get_hits 0\r\n"));
        assert!(memcached.request(b"stats settings\r\n").contains("item_size_max"));
        memcached.stream.set_nodelay(true).unwrap();
        std::io::Write::write_all(&mut memcached.stream, b"quit\r\n").unwrap();
        assert_eq!(memcached.rest(), "");
    }
}

#[test]
fn cas_detects_writes_of_every_kind() {
    for (kind, server) in kinds() {
        println!("{kind}");
        let (mut memcached, mut other) = (server.memcached_client(), server.client());
        assert_eq!(memcached.request(b"cas a 0 0 1 1\r\n1\r\n"), "NOT_FOUND\r\n");
        memcached.request(b"set a 0 0 1\r\n1\r\n");
        let first = memcached.cas("a");
        assert_eq!(memcached.cas("a"), first, "a look is no write");
        let swap = |cas| format!("cas a 3 0 1 {cas}\r\n2\r\n").into_bytes();
        assert_eq!(memcached.request(&swap(first)), "STORED\r\n");
        assert_eq!(memcached.request(&swap(first)), "EXISTS\r\n");
        assert_eq!(memcached.request(b"get a\r\n"), "VALUE a 3 1\r\n2\r\nEND\r\n");
        // Writes of every kind and protocol change it, even those of the same value.
        for write in ["set a 3 0 1|2|", "touch a 0|", "append a 0 0 0||", "incr a 0|", "gat 0 a|"] {
            let seen = memcached.cas("a");
            memcached.request(write.replace('|', "\r\n").as_bytes());
            assert_eq!(memcached.request(&swap(seen)), "EXISTS\r\n", "{write}");
        }
        for write in ["SET a 2", "APPEND a x", "EXPIRE a 100", "PERSIST a", "MSET a 2 b 3"] {
            let seen = memcached.cas("a");
            assert!(!other.call(write).starts_with('-'));
            assert_eq!(memcached.request(&swap(seen)), "EXISTS\r\n", "{write}");
        }
        let seen = memcached.cas("a");
        memcached.request(b"delete a\r\nset a 0 0 1\r\n2\r\n");
        assert_eq!(memcached.request(&swap(seen)), "EXISTS\r\n");
        let seen = memcached.cas("a");
        assert_eq!(memcached.request(format!("md a C{}\r\n", seen + 1).as_bytes()), "EX\r\n");
        assert_eq!(memcached.request(format!("md a C{seen}\r\n").as_bytes()), "HD\r\n");
    }
}

#[test]
fn meta_commands_respond_like_memcached() {
    for (kind, server) in kinds() {
        println!("{kind}");
        let mut memcached = server.memcached_client();
        memcached.expect(&[
            ("mg a v|mg a v q|mg a v k O9|", "EN|EN ka O9|"),
            ("ms a 3 F5|abc|", "HD|"),
            ("mg a|mg a v|mg a q|", "HD|VA 3|abc|HD|"),
            ("mg a s f t v k Oxyz|", "VA 3 s3 f5 t-1 ka Oxyz|abc|"),
            ("ms a 1 T60 k Oq|x|mg a t f|", "HD ka Oq|HD t60 f0|"),
            ("mg a T100 t|mg a t|", "HD t100|HD t100|"),
            ("ms a 1 T-1|x|mg a|", "HD|EN|"),
            ("ms a 1 MR|x|ms a 1 ME|y|ms a 1 ME q|z|mg a v|", "NS|HD|NS|VA 1|y|"),
            ("ms a 1 MA|2|ms a 1 Mp|0|mg a v|", "HD|HD|VA 3|0y2|"),
            ("ms v 1 MA|1|ms v 1 MA N30|1|mg v v t|", "NS|HD|VA 1 t30|1|"),
            ("ms a 1 q|x|ms a 1 MZ|x|", "CLIENT_ERROR invalid mode for ms M token|"),
            ("ms a 1 C1|x|ms zz 1 C1|x|ms a 2|abcd|", "EX|NF|CLIENT_ERROR bad data chunk|ERROR|"),
            ("md a q|md a q|md a k O1|", "NF|NF ka O1|"),
            ("ms YQ== 1 b k|z|mg YQ== b k v|mg a v|", "HD kYQ== b|VA 1 kYQ== b|z|VA 1|z|"),
            ("ms AAEgCg== 1 b|z|mg AAEgCg== b v|", "HD|VA 1|z|"),
            ("mg a b|mg a v v|mg a y|mg a N3|mg|ms a|ms a x|me|", "CLIENT_ERROR error decoding key|CLIENT_ERROR duplicate flag|CLIENT_ERROR invalid flag|HD|ERROR|CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|"),
            ("mg a Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx|ms a 1 Tx|x|ms a 1 Fx|x|", "CLIENT_ERROR opaque token too long|CLIENT_ERROR bad token in command line format|CLIENT_ERROR bad command line format|"),
            ("ma n|ma n q|ma n N0 J13 v t|ma n N0 J13 v|", "NF|NF|VA 2 t-1|13|VA 2|14|"),
            ("ma n D4 MD v|ma n M- v|ma n M+ v|ma n Mi|ma n MX|", "VA 2|10|VA 1|9|VA 2|10|HD|CLIENT_ERROR invalid mode for ma M token|"),
            ("ma n T30 t|ma n q|ma n C1 q|ma n D-1|", "HD t30|EX|CLIENT_ERROR invalid or duplicate flag|"),
            ("ma a|", "CLIENT_ERROR cannot increment or decrement non-numeric value|"),
            ("me zz|", "EN|"),
        ]);
        let debug = memcached.request(b"me a\r\n");
        assert!(debug.starts_with("ME a exp=-1 la=") && debug.ends_with(" size=1\r\n"), "{debug}");
        let cas = memcached.request(b"mg a c\r\n");
        let cas = cas.trim_end().strip_prefix("HD c").unwrap().to_owned();
        let swapped = memcached.request(format!("ms a 1 C{cas} c\r\nw\r\n").as_bytes());
        assert!(swapped.starts_with("HD c") && swapped != format!("HD c{cas}\r\n"), "{swapped}");
        assert_eq!(memcached.request(format!("ms a 1 C{cas}\r\nw\r\n").as_bytes()), "EX\r\n");
    }
}

#[test]
fn failed_meta_write_returns_cas_0() {
    for (kind, server) in kinds() {
        println!("{kind}");
        let mut memcached = server.memcached_client();
        memcached.expect(&[
            ("ms a 1 C1 c|x|ms a 1 MR c k|x|ms a 1 MA c Oq|x|", "NF c0|NS c0 ka|NS c0 Oq|"),
            ("ms a 1|x|ms a 1 ME c|y|ms a 1 c C999|y|mg a v|", "HD|NS c0|EX c0|VA 1|x|"),
            ("ma n c|md n c|mg n c|", "NF|NF|EN|"),
            // `add` ignores the cas, and an append to a missing key has none to compare.
            ("ms b 1 C999 MA|x|ms b 1 C999 MP N0|y|ms b 1 C999 MA|z|", "NS|HD|EX|"),
            ("ms c 1 C999 MR|x|ms c 1 C999 ME|y|ms c 1 C999 ME|z|", "NF|HD|NS|"),
        ]);
    }
}

#[test]
fn meta_flags_of_later_versions_are_supported() {
    for (kind, server) in kinds() {
        println!("{kind}");
        let mut memcached = server.memcached_client();
        memcached.expect(&[
            // The size after an append.
            ("ms a 3 F5 T100 s|abc|ms a 2 MA s k|de|ms zz 1 MR s|x|", "HD s3|HD s5 ka|NS|"),
            // An empty item replaces the value; `get` returns it.
            ("md a x k|mg a s v f t|get a|", "HD ka|VA 0 s0 f0 t-1||VALUE a 0 0||END|"),
            ("ms a 1|x|md a x I T50 F3|mg a v f t|md zz x|", "HD|HD|VA 0 f3 t50 X W||NF|"),
            ("md a C999 x|mg a x|", "EX|CLIENT_ERROR invalid flag|"),
            ("ms a 3|abc|", "HD|"),
        ]);
        // The value is returned only if it differs from the client's.
        let cas = memcached.cas("a");
        assert_eq!(memcached.request(format!("mg a v s C{cas}\r\n").as_bytes()), "HD s3\r\n");
        assert_eq!(
            memcached.request(format!("mg a v C{}\r\n", cas + 1).as_bytes()),
            "VA 3\r\nabc\r\n"
        );
        memcached.expect(&[
            ("ms a 1 MXY|x|ms a 1 M|x|", &"CLIENT_ERROR incorrect length for M token|".repeat(2)),
            ("mg a Dx|mg a Jx|", "CLIENT_ERROR invalid numeric delta value|CLIENT_ERROR invalid numeric initial value|"),
        ]);
    }
}

#[test]
fn too_large_write_removes_the_old_value() {
    let large = "x".repeat(5 << 20);
    let len = large.len();
    let error = "SERVER_ERROR object too large for cache|";
    let server = over(Some(mica("memory=32MiB")));
    let mut memcached = server.memcached_client();
    let mut step = |write: &str, answer: &str, left: &str| {
        memcached.expect(&[
            ("set a 0 0 1|x|", "STORED|"),
            (&format!("{write}|{large}|get a|"), &format!("{answer}{left}END|")),
        ]);
    };
    let (gone, stays) = ("", "VALUE a 0 1|x|");
    step(&format!("set a 0 0 {len}"), error, gone);
    step(&format!("set a 0 0 {len} noreply"), "", gone);
    // As in memcached: a conditional write keeps the old value, a meta set of any mode does not.
    for verb in ["add", "replace", "append", "prepend"] {
        step(&format!("{verb} a 0 0 {len}"), error, stays);
    }
    step(&format!("cas a 0 0 {len} 1"), error, stays);
    for flags in ["", " q k", " MA", " ME", " C1"] {
        step(&format!("ms a {len}{flags}"), error, gone);
    }
    step(&format!("ms YQ== {len} b"), error, gone);
    // A rejection for another reason removes nothing.
    step(&format!("ms a {len} MZ"), "CLIENT_ERROR invalid mode for ms M token|", stays);
    step(&format!("ms a {len} Tx"), "CLIENT_ERROR bad token in command line format|", stays);
    // A concatenation that is too large is not stored.
    let settings = memcached.request(b"stats settings\r\n");
    let most = settings.lines().find_map(|line| line.strip_prefix("STAT item_size_max ")).unwrap();
    let half = "x".repeat(most.parse::<usize>().unwrap() * 3 / 4);
    memcached.expect(&[
        (&format!("set a 0 0 {}|{half}|", half.len()), "STORED|"),
        (&format!("append a 0 0 {}|{half}|", half.len()), "NOT_STORED|"),
        (
            &format!("ms a {} MP c|{half}|mg a s|", half.len()),
            &format!("NS c0|HD s{}|", half.len()),
        ),
    ]);
    let stats = memcached.request(b"stats\r\n");
    assert!(stats.contains("STAT store_too_large 13\r\n"), "{stats}");
}

#[test]
fn set_without_memory_is_rejected_and_counted() {
    let server = over(Some(mica("memory=8MiB")));
    let mut memcached = server.memcached_client();
    let value = "x".repeat(100_000);
    let set = |number: usize| format!("set k{number} 0 0 100000\r\n{value}\r\n").into_bytes();
    let mut answers = (0..200).map(|number| memcached.request(&set(number)));
    let refused = answers.position(|answer| answer != "STORED\r\n").unwrap();
    drop(answers);
    assert!((10..100).contains(&refused), "{refused}");
    // Its partition is full; the other may not be.
    assert_eq!(memcached.request(&set(refused)), "SERVER_ERROR out of memory storing object\r\n");
    let stats = memcached.request(b"stats\r\n");
    assert!(stats.contains("STAT store_no_memory 2\r\n"), "{stats}");
    assert!(stats.contains(&format!("STAT curr_items {refused}\r\n")), "{stats}");
}

#[test]
fn cas_is_unique_over_keys() {
    for (kind, server) in kinds() {
        let mut memcached = server.memcached_client();
        let keys: Vec<_> = (0..500).map(|number| format!("k{number}")).collect();
        for key in &keys {
            memcached.request(format!("set {key} 0 0 1\r\nx\r\n").as_bytes());
        }
        let answer = memcached.request(format!("gets {}\r\n", keys.join(" ")).as_bytes());
        let cas = answer.lines().filter_map(|line| line.strip_prefix("VALUE "));
        let cas: std::collections::HashSet<_> =
            cas.map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
        assert_eq!(cas.len(), keys.len(), "{kind}");
    }
}

#[test]
fn expiry_beyond_32_bits_wraps_as_in_memcached() {
    let server = over(None);
    server.memcached_client().expect(&[
        (
            "set a 0 2147483648 1|x|get a|set a 0 4294967396 1|x|mg a t|",
            "STORED|END|STORED|HD t100|",
        ),
        (
            "set a 0 4294967296 1|x|mg a t|touch a 4294967396|mg a t|",
            "STORED|HD t-1|TOUCHED|HD t100|",
        ),
        ("ms a 1 T4294967346|x|mg a t|gat 2147483648 a|get a|", "HD|HD t50|VALUE a 0 1|x|END|END|"),
        ("set a 0 9223372036854775808 1|", "CLIENT_ERROR bad command line format|"),
    ]);
}

#[test]
fn values_are_equal_over_both_protocols() {
    for (kind, server) in kinds() {
        println!("{kind}");
        let (mut memcached, mut redis) = (server.memcached_client(), server.client());
        memcached.expect(&[("set a 77 100 3|abc|", "STORED|")]);
        redis.expect(&[("GET a", "\"abc\""), ("STRLEN a", ":3"), ("TTL a", ":100")]);
        redis.expect(&[("MGET a b", "[\"abc\", nil]"), ("GETRANGE a 1 -1", "\"bc\"")]);
        redis.expect(&[("MULTI", "+OK"), ("APPEND a d", "+QUEUED"), ("GET a", "+QUEUED")]);
        redis.expect(&[("EXEC", "[:4, \"abcd\"]")]);
        memcached.expect(&[("get a|", "VALUE a 0 4|abcd|END|")]);
        redis.expect(&[("SET n 10 EX 50", "+OK"), ("INCR n", ":11")]);
        memcached.expect(&[("incr n 1|mg n t v|", "12|VA 2 t50|12|")]);
        // A value that looks like one with a trailer reads back unchanged over either protocol.
        let forged = server.engine.get(b"a").unwrap().map_or_else(Vec::new, |entry| entry.value);
        redis.call_bytes(&[b"SET", b"f", &forged]);
        memcached.request(b"set x 9 0 1\r\nx\r\n");
        if let Some(raw) = server.engine.get(b"x").unwrap().map(|entry| entry.value) {
            assert_eq!(raw.len(), 17);
            for args in [&[&b"SET"[..], b"y", &raw][..], &[b"MSET", b"y", &raw, b"z", b"1"]] {
                redis.call_bytes(args);
                assert_eq!(redis.call("STRLEN y"), ":17");
                assert!(memcached.request(b"get y\r\n").starts_with("VALUE y 0 17\r\n"));
            }
            memcached.request(&[b"set y 0 0 17\r\n", &raw[..], b"\r\n"].concat());
            assert_eq!(redis.call("STRLEN y"), ":17");
        }
    }
}

#[test]
fn concurrent_increments_over_both_protocols_are_not_lost() {
    for (kind, server) in kinds() {
        println!("{kind}");
        server.memcached_client().request(b"set n 3 0 1\r\n0\r\nset c 0 0 1\r\n0\r\n");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut memcached = server.memcached_client();
                    (0..300).for_each(|_| drop(memcached.request(b"incr n 1\r\n")));
                });
                scope.spawn(|| {
                    let mut client = server.client();
                    (0..300).for_each(|_| drop(client.call("INCR n")));
                });
                scope.spawn(|| {
                    let mut memcached = server.memcached_client();
                    let mut done = 0;
                    while done < 100 {
                        let answer = memcached.request(b"gets c\r\n");
                        let mut lines = answer.lines();
                        let cas = lines.next().unwrap().rsplit(' ').next().unwrap().to_owned();
                        let next = lines.next().unwrap().parse::<u64>().unwrap() + 1;
                        let next = next.to_string();
                        let swap = format!("cas c 0 0 {} {cas}\r\n{next}\r\n", next.len());
                        done += usize::from(memcached.request(swap.as_bytes()) == "STORED\r\n");
                    }
                });
            }
        });
        let mut memcached = server.memcached_client();
        assert!(memcached.request(b"get n c\r\n").contains("\r\n1200\r\nVALUE c 0 3\r\n200\r\n"));
    }
}

#[test]
fn items_expire() {
    let server = over(None);
    let mut memcached = server.memcached_client();
    memcached.expect(&[
        ("set a 0 -1 1|x|get a|", "STORED|END|"),
        ("set a 0 2592001 1|x|get a|", "STORED|END|"),
    ]);
    memcached.request(b"set a 0 1 1\r\nx\r\nset b 0 0 1\r\nx\r\n");
    let soon = siltstone::Clock::now(&siltstone::SystemClock) / 1000 + 3;
    memcached.request(format!("set c 0 {soon} 1\r\nx\r\n").as_bytes());
    assert!(memcached.request(b"get a c\r\n").contains("VALUE c"));
    eventually("they expire", || memcached.request(b"get a c\r\n") == "END\r\n");
    assert_eq!(memcached.request(b"flush_all 1\r\nget b\r\n"), "OK\r\nVALUE b 0 1\r\nx\r\nEND\r\n");
    eventually("the table is cleared", || memcached.request(b"get b\r\n") == "END\r\n");
}

#[test]
fn responses_do_not_depend_on_how_commands_are_split() {
    let server = over(None);
    let all =
        b"set a 1 0 3\r\na\nb\r\nget a\r\nms b 2 q\r\n\r\n\r\nmg b v\r\nget a\nincr a 1\r\n\r\n";
    let whole = server.memcached_client().request(all);
    assert!(whole.contains("a\nb") && whole.ends_with("ERROR\r\n"), "{whole}");
    for piece in [1, 2, 5] {
        let mut memcached = server.memcached_client();
        for part in all.chunks(piece) {
            std::io::Write::write_all(&mut memcached.stream, part).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(memcached.request(b""), whole, "pieces of {piece}");
    }
}

#[test]
fn oversized_lines_keys_and_values_are_rejected() {
    let server = over(Some(mica("memory=32MiB")));
    let mut memcached = server.memcached_client();
    let long = "k".repeat(251);
    let bad = "CLIENT_ERROR bad command line format|";
    memcached.expect(&[
        (&format!("get {long}|set {long} 0 0 1|mg {long}|"), &bad.repeat(3)),
        (&format!("set {} 0 0 1|x|", &long[1..]), "STORED|"),
        ("set a 0 0 1|x|", "STORED|"),
    ]);
    // A value above the limit is rejected and discarded, and the old one is removed.
    let large = "x".repeat(5 << 20);
    let too_large = "SERVER_ERROR object too large for cache|";
    memcached.expect(&[
        (&format!("set a 0 0 {}|{large}|get a|", large.len()), &format!("{too_large}END|")),
        ("set a 0 0 2147483646|", bad),
    ]);
    let mut endless = server.memcached_client();
    // The server may close while we still send.
    let _ = std::io::Write::write_all(&mut endless.stream, &[b'a'; 100 << 10]);
    assert_eq!(endless.rest(), "");
    server.engine.disk_full.store(true, std::sync::atomic::Ordering::SeqCst);
}

#[test]
fn full_disk_and_failed_writes_are_reported() {
    use std::sync::atomic::Ordering::SeqCst;
    let server = over(None);
    let mut memcached = server.memcached_client();
    server.engine.disk_full.store(true, SeqCst);
    let full = memcached.request(b"set a 0 0 1\r\nx\r\n");
    assert!(full.starts_with("SERVER_ERROR out of memory storing object"), "{full}");
    server.engine.disk_full.store(false, SeqCst);
    server.engine.fail_writes.store(true, SeqCst);
    let failed = memcached.request(b"set a 0 0 1\r\nx\r\n");
    assert!(failed.starts_with("SERVER_ERROR ") && failed.lines().count() == 1, "{failed}");
    server.engine.fail_writes.store(false, SeqCst);
    let always = TestServer::with(|options| {
        options.memcached = anywhere();
        options.fsync = siltstone_server::Fsync::Always;
    });
    let mut memcached = always.memcached_client();
    assert_eq!(memcached.request(b"set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert!(always.engine.syncs.load(SeqCst) > 0);
    always.engine.fail_syncs.store(true, SeqCst);
    std::io::Write::write_all(&mut memcached.stream, b"set a 0 0 1\r\ny\r\n").unwrap();
    let lost = memcached.rest();
    assert!(lost.starts_with("SERVER_ERROR the write may not be durable"), "{lost}");
    always.engine.fail_syncs.store(false, SeqCst);
}

#[test]
fn table_is_selected_by_option() {
    let choose = |name: &str| {
        let name = Some(name.to_owned());
        TestServer::with(|options| {
            (options.memcached, options.memcached_table) = (anywhere(), name)
        })
    };
    let server = choose("second");
    server.memcached_client().request(b"set a 0 0 1\r\nx\r\n");
    let mut client = server.client();
    client.expect(&[("GET a", "nil"), ("SELECT 1", "+OK"), ("GET a", "\"x\"")]);
    let engine: Arc<dyn Engine> = Arc::new(crate::support::MapEngine::default());
    let tables = vec![siltstone::Table::new("one", engine)];
    let options = ServerOptions {
        listen: anywhere().unwrap(),
        memcached_table: Some("two".into()),
        ..ServerOptions::default()
    };
    let refused = Server::bind(tables, options).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("'two' is not served; the tables are one"), "{refused}");
}

#[test]
fn datagrams_are_answered_with_their_request_number() {
    let server = TestServer::with(|options| options.memcached_udp = anywhere());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect(server.memcached_udp.unwrap()).unwrap();
    let ask = |frame: &[u8], commands: &str| {
        socket.send(&[frame, commands.as_bytes()].concat()).unwrap();
        let (mut all, mut at) = (String::new(), 0);
        loop {
            let mut buffer = [0; 2000];
            let count = socket.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..2], frame[..2]);
            assert_eq!(buffer[2..4], [0, at]);
            all.push_str(std::str::from_utf8(&buffer[8..count]).unwrap());
            at += 1;
            if buffer[5] == at {
                return all;
            }
        }
    };
    let value = "v".repeat(5000);
    let frame = [7, 8, 0, 0, 0, 1, 0, 0];
    assert_eq!(ask(&frame, &format!("set a 0 0 5000\r\n{value}\r\n")), "STORED\r\n");
    assert_eq!(ask(&frame, "get a\r\n"), format!("VALUE a 0 5000\r\n{value}\r\nEND\r\n"));
    assert!(ask(&frame, "set a 0 0 5\r\nab").starts_with("CLIENT_ERROR"));
    assert!(ask(&[7, 8, 0, 0, 0, 2, 0, 0], "get a\r\n").starts_with("SERVER_ERROR multi-packet"));
    // A datagram shorter than a header gets no response.
    socket.send(&[0; 7]).unwrap();
    assert_eq!(ask(&frame, "mn\r\n"), "MN\r\n");
    let options = ServerOptions {
        memcached_udp: Some("0.0.0.0:11211".parse().unwrap()),
        ..ServerOptions::default()
    };
    assert!(options.check().unwrap_err().to_string().contains("forged"));
}

#[test]
fn clients_above_the_limit_are_rejected() {
    let server = TestServer::with(|options| {
        options.memcached = anywhere();
        options.max_clients = 1;
    });
    let mut first = server.memcached_client();
    assert_eq!(first.request(b"version\r\n"), "VERSION 1.6.18\r\n");
    let mut second = MemcachedClient::connect(server.memcached.unwrap());
    assert_eq!(second.rest(), "ERROR Too many open connections\r\n");
}
