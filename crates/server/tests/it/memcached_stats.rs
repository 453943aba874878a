//! `stats`: collectors find every name, and the statistics that apply are correct.

use std::collections::BTreeMap;

use crate::support::{MemcachedClient, TestServer, mica};

fn kinds() -> [(&'static str, TestServer); 3] {
    let over = |engine| {
        TestServer::over(engine, |options| {
            options.memcached = Some("127.0.0.1:0".parse().unwrap());
        })
    };
    [
        ("map", over(None)),
        ("mica, cache", over(Some(mica("memory=32MiB mode=cache")))),
        ("mica, store", over(Some(mica("memory=32MiB")))),
    ]
}

fn stats(memcached: &mut MemcachedClient, what: &str) -> BTreeMap<String, String> {
    let answer = memcached.request(format!("stats{what}\r\n").as_bytes());
    let lines = answer.strip_suffix("END\r\n").expect("an end").lines();
    let mut all = BTreeMap::new();
    for line in lines {
        let (name, value) = line.strip_prefix("STAT ").unwrap().split_once(' ').unwrap();
        assert!(all.insert(name.to_owned(), value.to_owned()).is_none(), "{name} twice");
    }
    all
}

/// Asserts values of counters.
fn expect(memcached: &mut MemcachedClient, counts: &[(&str, u64)]) {
    let all = stats(memcached, "");
    for (name, count) in counts {
        assert_eq!(all[*name], count.to_string(), "{name}");
    }
}

#[test]
fn stats_has_each_name_that_collectors_ask_for() {
    for (kind, server) in kinds() {
        let mut memcached = server.memcached_client();
        memcached.request(b"set a 0 0 1\r\nx\r\n");
        let all = stats(&mut memcached, "");
        assert_eq!(all.len(), 92, "{kind}");
        for op in ["get", "delete", "incr", "decr", "cas", "touch"] {
            for name in [format!("{op}_hits"), format!("{op}_misses")] {
                assert!(all[&name].parse::<u64>().is_ok(), "{kind}, {name}");
            }
        }
        for name in [
            "uptime",
            "time",
            "cas_badval",
            "cmd_flush",
            "cmd_set",
            "rusage_user",
            "rusage_system",
            "bytes",
            "limit_maxbytes",
            "curr_items",
            "total_items",
            "bytes_read",
            "bytes_written",
            "curr_connections",
            "total_connections",
            "rejected_connections",
            "conn_yields",
            "listen_disabled_num",
            "evictions",
            "reclaimed",
            "store_too_large",
            "store_no_memory",
            "lru_crawler_starts",
            "direct_reclaims",
            "crawler_items_checked",
            "crawler_reclaimed",
            "moves_to_cold",
            "moves_to_warm",
            "moves_within_lru",
            "accepting_conns",
            "threads",
            "hash_bytes",
            "slabs_moved",
            "get_expired",
            "get_flushed",
            "auth_cmds",
            "auth_errors",
        ] {
            assert!(all[name].parse::<f64>().is_ok(), "{kind}, {name}: {}", all[name]);
        }
        let settings = stats(&mut memcached, " settings");
        assert_eq!(settings.len(), 78, "{kind}");
        for name in ["maxconns", "maxbytes", "tcpport", "item_size_max", "num_threads"] {
            assert!(settings[name].parse::<u64>().is_ok(), "{kind}, {name}");
        }
        assert_eq!(settings["tcpport"], server.memcached.unwrap().port().to_string());
        let (items, slabs) = (stats(&mut memcached, " items"), stats(&mut memcached, " slabs"));
        assert_eq!((items.len(), slabs.len()), (28, 17), "{kind}");
        assert_eq!((&items["items:1:number"][..], &slabs["1:used_chunks"][..]), ("1", "1"));
        assert_eq!(slabs["1:cmd_set"], "1", "{kind}");
        assert_eq!(stats(&mut memcached, " sizes")["sizes_status"], "disabled");
        assert_eq!(memcached.request(b"stats nonsense\r\n"), "ERROR\r\n");
    }
}

#[test]
fn counters_count_each_command() {
    for (kind, server) in kinds() {
        println!("{kind}");
        let mut memcached = server.memcached_client();
        memcached.request(b"set a 0 0 1\r\n1\r\nset b 0 0 1\r\nx\r\nadd a 0 0 1\r\nx\r\n");
        memcached.request(
            b"get a b c\r\ngat 100 a c\r\nmg a v\r\nmg c\r\nmg a T50\r\ntouch a 0\r\ntouch c 0\r\n",
        );
        memcached.request(b"incr a 1\r\nincr c 1\r\ndecr a 1\r\ndecr c 1\r\nincr b 1\r\nma a\r\n");
        let cas = memcached.cas("a");
        memcached
            .request(format!("cas a 0 0 1 {cas}\r\n2\r\ncas a 0 0 1 {cas}\r\n3\r\n").as_bytes());
        memcached.request(b"cas c 0 0 1 1\r\n2\r\ndelete b\r\ndelete b\r\nmd a C1\r\n");
        let counts = [
            ("cmd_set", 6),
            ("total_items", 3),
            ("cmd_get", 6),
            ("get_hits", 4),
            ("get_misses", 2),
            ("cmd_touch", 5),
            ("touch_hits", 3),
            ("touch_misses", 2),
            ("incr_hits", 2),
            ("incr_misses", 1),
            ("decr_hits", 1),
            ("decr_misses", 1),
            ("cas_hits", 1),
            ("cas_badval", 1),
            ("cas_misses", 1),
            ("delete_hits", 1),
            ("delete_misses", 2),
            ("curr_items", 1),
            ("cmd_flush", 0),
            ("store_too_large", 0),
        ];
        expect(&mut memcached, &counts);
        memcached.request(b"flush_all\r\n");
        expect(&mut memcached, &[("cmd_flush", 1), ("curr_items", 0)]);
        assert_eq!(memcached.request(b"stats reset\r\n"), "RESET\r\n");
        let zeros: Vec<_> = counts.iter().map(|(name, _)| (*name, 0)).collect();
        expect(&mut memcached, &zeros);
    }
}

#[test]
fn bytes_is_the_memory_of_items() {
    for (kind, server) in &kinds()[1..] {
        let mut memcached = server.memcached_client();
        let empty: u64 = stats(&mut memcached, "")["bytes"].parse().unwrap();
        assert!(empty < 1000, "{kind}: {empty}");
        let value = "v".repeat(10_000);
        for number in 0..100 {
            memcached.request(format!("set k{number} 0 0 10000\r\n{value}\r\n").as_bytes());
        }
        let all = stats(&mut memcached, "");
        let (bytes, limit): (u64, u64) =
            (all["bytes"].parse().unwrap(), all["limit_maxbytes"].parse().unwrap());
        assert!((1_000_000..1_020_000).contains(&bytes), "{kind}: {bytes}");
        assert_eq!(limit, 32 << 20, "{kind}");
        assert_eq!(all["limit_maxbytes"], stats(&mut memcached, " settings")["maxbytes"], "{kind}");
    }
}

#[test]
fn evictions_of_a_full_cache_are_reported() {
    let [_, (_, server), (_, store)] = kinds();
    let mut memcached = server.memcached_client();
    let value = "v".repeat(1 << 20);
    for number in 0..60 {
        memcached.request(format!("set k{number} 0 0 {}\r\n{value}\r\n", value.len()).as_bytes());
    }
    let all = stats(&mut memcached, "");
    assert!(all["evictions"].parse::<u64>().unwrap() > 10, "{}", all["evictions"]);
    assert_eq!(stats(&mut memcached, " items")["items:1:evicted"], all["evictions"]);
    assert_eq!(stats(&mut memcached, " settings")["evictions"], "on");
    assert_eq!(memcached.request(b"stats reset\r\n"), "RESET\r\n");
    expect(&mut memcached, &[("evictions", 0)]);
    assert_eq!(stats(&mut store.memcached_client(), " settings")["evictions"], "off");
}

#[test]
fn conns_lists_the_listener_and_each_client() {
    let [(_, server), ..] = kinds();
    let (mut memcached, mut other, mut redis) =
        (server.memcached_client(), server.memcached_client(), server.client());
    assert_eq!((other.request(b""), redis.call("PING")), (String::new(), "+PONG".to_owned()));
    let all = stats(&mut memcached, " conns");
    let address = server.memcached.unwrap();
    assert_eq!(all["0:addr"], format!("tcp:{address}"));
    assert_eq!(all["0:state"], "conn_listening");
    let of = |name: &str| all.iter().filter(|(key, _)| key.ends_with(name)).count();
    assert_eq!([of(":addr"), of(":listen_addr"), of(":secs_since_last_cmd")], [3, 2, 3], "{all:?}");
    let peer = format!("tcp:{}", other.stream.local_addr().unwrap());
    assert!(all.values().any(|value| *value == peer), "{all:?}");
}

#[test]
fn detail_counts_per_prefix_while_enabled() {
    let [(_, server), ..] = kinds();
    let usage = "CLIENT_ERROR usage: stats detail on|off|dump\r\n";
    let mut memcached = server.memcached_client();
    assert_eq!(memcached.request(b"stats detail\r\nstats detail x\r\n"), usage.repeat(2));
    memcached.expect(&[
        ("set a:1 0 0 1|x|stats detail dump|", "STORED|END|"),
        ("stats detail on|set a:1 0 0 1|x|get a:1 a:2 b:1 c|", "OK|STORED|VALUE a:1 0 1|x|END|"),
        ("delete a:9|delete a:1 noreply|gat 0 b:1|", "NOT_FOUND|END|"),
        (
            "stats detail dump|",
            "PREFIX a get 2 hit 1 set 1 del 2|PREFIX b get 2 hit 0 set 0 del 0|END|",
        ),
        ("stats detail off|get b:1|", "OK|END|"),
        (
            "stats detail dump|",
            "PREFIX a get 2 hit 1 set 1 del 2|PREFIX b get 2 hit 0 set 0 del 0|END|",
        ),
        ("stats reset|stats detail dump|", "RESET|END|"),
    ]);
}

#[test]
fn cachedump_lists_keys_with_their_lengths_and_expiry() {
    for (kind, server) in kinds() {
        println!("{kind}");
        let mut memcached = server.memcached_client();
        memcached.request(b"set a 3 0 2\r\nxx\r\nset b 0 2000000000 0\r\n\r\n");
        server.client().call_bytes(&[b"SET", b"no text\r\n", b"x"]);
        let answer = memcached.request(b"stats cachedump 1 0\r\n");
        let mut lines: Vec<_> = answer.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["END", "ITEM a [2 b; 0 s]", "ITEM b [0 b; 2000000000 s]"]);
        assert_eq!(memcached.request(b"stats cachedump 1 1\r\n").lines().count(), 2);
        memcached.expect(&[
            ("stats cachedump 2 0|stats cachedump 1|", "END|CLIENT_ERROR bad command line|"),
            (
                "stats cachedump 64 0|stats cachedump 1 x|",
                "CLIENT_ERROR Illegal slab id|CLIENT_ERROR bad command line format|",
            ),
        ]);
    }
}
