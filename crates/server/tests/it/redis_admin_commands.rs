//! Replies to commands of operators and client libraries, equal to those of Redis 7.0.
//!
//! Each table of steps is run against this server and, where `redis-server` is installed, against
//! Redis, which validates the table itself.

use std::time::{Duration, Instant};

use crate::support::{Client, Peer, TestServer, mica};
use siltstone_server::ServerOptions;

/// Words separated by spaces; `''` is an empty one.
fn call(client: &mut Client, line: &str) -> String {
    let words = line.split(' ').map(|word| if word == "''" { "" } else { word });
    client.call_bytes(&words.map(str::as_bytes).collect::<Vec<_>>())
}

pub(crate) fn check(client: &mut Client, who: &str, steps: &[(&str, &str)]) {
    for (command, expected) in steps {
        assert_eq!(&call(client, command), expected, "{who}: {command}");
    }
}

/// Checks steps on this server and, if installed, on Redis.
pub(crate) fn check_both(steps: &[(&str, &str)]) {
    // Directory of Redis's snapshots.
    let directory = tempfile::tempdir().expect("a place for its snapshots");
    let directory = directory.path().to_str().expect("its path is text");
    let options = ["--save", "", "--databases", "2", "--dir", directory, "--port"];
    if let Some(peer) = Peer::start("redis-server", &options) {
        check(&mut Client::connect(peer.address), "redis", steps);
    }
    let server = TestServer::start();
    check(&mut server.client(), "siltstone", steps);
}

#[test]
fn client_list_filters_by_type_and_id() {
    check_both(&[
        ("CLIENT LIST ID 99999", "\"\""),
        ("CLIENT LIST ID 99999 x", "-ERR Invalid client ID"),
        ("CLIENT LIST ID -1 0", "\"\""),
        ("CLIENT LIST ID", "-ERR syntax error"),
        ("CLIENT LIST TYPE foo", "-ERR Unknown client type 'foo'"),
        ("CLIENT LIST TYPE", "-ERR syntax error"),
        ("CLIENT LIST TYPE master", "\"\""),
        ("CLIENT LIST TYPE pubsub", "\"\""),
        ("CLIENT LIST TYPE normal ID 1", "-ERR syntax error"),
        ("CLIENT LIST foo", "-ERR syntax error"),
        ("CLIENT NO-EVICT foo", "-ERR syntax error"),
        ("CLIENT ID x", "-ERR wrong number of arguments for 'client|id' command"),
        ("CLIENT HELP x", "-ERR wrong number of arguments for 'client|help' command"),
        ("CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP."),
        ("CLIENT KILL", "-ERR wrong number of arguments for 'client|kill' command"),
        ("CLIENT KILL foo", "-ERR No such client"),
        ("CLIENT KILL ID x", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL ID 99999", ":0"),
        ("CLIENT KILL TYPE foo", "-ERR Unknown client type 'foo'"),
        ("CLIENT KILL TYPE pubsub", ":0"),
        ("CLIENT KILL SKIPME foo", "-ERR syntax error"),
        ("CLIENT KILL USER foo", "-ERR No such user 'foo'"),
        ("CLIENT KILL USER default LADDR 1.2.3.4:5", ":0"),
    ]);
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    let id = other.call("CLIENT ID")[1..].to_owned();
    let own_id = client.call("CLIENT ID")[1..].to_owned();
    let lines = client.call(&format!("CLIENT LIST ID {id} 99999 {own_id} {id}"));
    let ids: Vec<_> =
        lines.trim_matches('"').lines().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(ids, [format!("id={id}"), format!("id={own_id}"), format!("id={id}")]);
    assert_eq!(client.call("CLIENT LIST TYPE NORMAL").lines().count(), 3, "and a quote at the end");
    let local = server.address.to_string();
    assert_eq!(client.call(&format!("CLIENT KILL LADDR {local} SKIPME yes")), ":1");
    assert!(other.is_closed());
}

#[test]
fn client_kill_maxage_closes_only_older_clients() {
    let server = TestServer::start();
    let (mut old, began) = (server.client(), Instant::now());
    assert_eq!(old.call("PING"), "+PONG");
    let mut client = server.client();
    client.expect(&[
        ("CLIENT KILL MAXAGE x", "-ERR maxage is not an integer or out of range"),
        ("CLIENT KILL MAXAGE 0", "-ERR maxage should be greater than 0"),
        ("CLIENT KILL MAXAGE -1", "-ERR maxage should be greater than 0"),
        ("CLIENT KILL ID 1 MAXAGE", "-ERR syntax error"),
        ("CLIENT KILL MAXAGE 1000", ":0"),
    ]);
    std::thread::sleep(Duration::from_millis(1100).saturating_sub(began.elapsed()));
    let mut young = server.client();
    young.expect(&[("CLIENT KILL MAXAGE 1 SKIPME no TYPE pubsub", ":0")]);
    young.expect(&[("CLIENT KILL MAXAGE 1", ":2"), ("PING", "+PONG")]);
    assert!(old.is_closed() && client.is_closed());
}

#[test]
fn clients_that_watch_or_subscribe_are_counted() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.expect(&[("WATCH a b", "+OK")]);
    other.call("SUBSCRIBE c");
    for (name, value) in
        [("watching_clients", "1"), ("total_watched_keys", "2"), ("pubsub_clients", "1")]
    {
        assert_eq!(field(&mut client, "clients", name), value, "{name}");
    }
    assert!(client.call("CLIENT INFO").contains(" multi=-1 watch=2 "));
    client.expect(&[("UNWATCH", "+OK")]);
    assert!(client.call("CLIENT INFO").contains(" multi=-1 watch=0 "));
    assert_eq!(field(&mut client, "clients", "total_watched_keys"), "0");
}

#[test]
fn command_list_and_info_filter_commands() {
    check_both(&[
        ("COMMAND LIST FILTERBY PATTERN xy*", "[]"),
        ("COMMAND LIST FILTERBY PATTERN PEXPIREAT", "[\"pexpireat\"]"),
        ("COMMAND LIST FILTERBY MODULE foo", "[]"),
        ("COMMAND LIST FILTERBY ACLCAT foo", "[]"),
        ("COMMAND LIST FILTERBY ACLCAT string x", "-ERR syntax error"),
        ("COMMAND LIST FILTERBY foo bar", "-ERR syntax error"),
        ("COMMAND LIST foo", "-ERR syntax error"),
        ("COMMAND INFO nope", "[nil]"),
        ("COMMAND COUNT x", "-ERR wrong number of arguments for 'command|count' command"),
        ("COMMAND GETKEYS get", "-ERR wrong number of arguments for 'command|getkeys' command"),
        ("COMMAND GETKEYS get a", "[\"a\"]"),
        ("COMMAND DOCS nope", "[]"),
        ("COMMAND FOO", "-ERR unknown subcommand 'FOO'. Try COMMAND HELP."),
    ]);
    let server = TestServer::start();
    let mut client = server.client();
    let strings = client.call("COMMAND LIST FILTERBY ACLCAT string");
    assert!(strings.contains("\"append\"") && !strings.contains("\"ping\""), "{strings}");
    // A null string, not a null array.
    client.send(&[b"COMMAND", b"INFO", b"nope"]);
    let mut bytes = [0; 9];
    std::io::Read::read_exact(&mut client.reader, &mut bytes).unwrap();
    assert_eq!(&bytes, b"*1\r\n$-1\r\n");
}

#[test]
fn server_commands_check_their_arguments() {
    check_both(&[
        ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1"),
        ("SLOWLOG GET x", "-ERR count should be greater than or equal to -1"),
        ("CONFIG SET slowlog-log-slower-than -1", "+OK"),
        ("SLOWLOG RESET", "+OK"),
        ("SLOWLOG GET -1", "[]"),
        (
            "SLOWLOG GET 1 2",
            "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
        ),
        ("SLOWLOG LEN x", "-ERR wrong number of arguments for 'slowlog|len' command"),
        ("SLOWLOG RESET x", "-ERR wrong number of arguments for 'slowlog|reset' command"),
        ("SLOWLOG FOO", "-ERR unknown subcommand 'FOO'. Try SLOWLOG HELP."),
        ("BGSAVE foo", "-ERR syntax error"),
        ("BGSAVE SCHEDULE x", "-ERR syntax error"),
        ("BGSAVE SCHEDULE", "+Background saving started"),
        ("OBJECT FOO a", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP."),
        ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"),
        ("OBJECT FREQ none", "nil"),
        ("MEMORY USAGE none", "nil"),
        ("MEMORY USAGE none SAMPLES x", "-ERR value is not an integer or out of range"),
        ("MEMORY USAGE none SAMPLES -1", "-ERR syntax error"),
        ("MEMORY USAGE none foo", "-ERR syntax error"),
        ("MEMORY USAGE", "-ERR wrong number of arguments for 'memory|usage' command"),
        ("MEMORY FOO", "-ERR unknown subcommand 'FOO'. Try MEMORY HELP."),
        ("CONFIG RESETSTAT x", "-ERR wrong number of arguments for 'config|resetstat' command"),
        ("CONFIG REWRITE", "-ERR The server is running without a config file"),
        ("CONFIG FOO", "-ERR unknown subcommand 'FOO'. Try CONFIG HELP."),
        ("WAIT 0 -1", "-ERR timeout is negative"),
        ("ROLE", "[\"master\", :0, []]"),
    ]);
}

#[test]
fn every_help_named_in_an_error_exists() {
    let server = TestServer::start();
    let mut client = server.client();
    for command in
        ["CLIENT", "COMMAND", "CONFIG", "LATENCY", "MEMORY", "OBJECT", "PUBSUB", "SLOWLOG"]
    {
        let error = client.call(&format!("{command} nope"));
        assert_eq!(error, format!("-ERR unknown subcommand 'nope'. Try {command} HELP."));
        let help = client.call(&format!("{command} HELP"));
        let first = "<subcommand> [<arg> [value] [opt] ...]. Subcommands are:";
        assert!(help.starts_with(&format!("[+{command} {first}, +")), "{help}");
        assert!(help.ends_with(", +HELP, +    Prints this help.]"), "{help}");
    }
}

#[test]
fn object_idletime_counts_from_the_last_access() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("SET a v", "+OK"), ("OBJECT IDLETIME a", ":0"), ("OBJECT IDLETIME b", "nil")]);
    std::thread::sleep(Duration::from_millis(2100));
    // Commands that only inspect the key do not change the time.
    client.expect(&[("TYPE a", "+string"), ("TTL a", ":-1"), ("EXISTS a", ":1")]);
    let idle: u64 = client.call("OBJECT IDLETIME a")[1..].parse().unwrap();
    assert!((2..10).contains(&idle), "{idle}");
    for access in ["GET a", "TOUCH a", "APPEND a v"] {
        client.call(access);
        let idle: u64 = client.call("OBJECT IDLETIME a")[1..].parse().unwrap();
        assert!(idle < 2, "{access}: {idle}");
    }
}

#[test]
fn auth_of_the_default_user_succeeds_without_a_password() {
    check_both(&[
        (
            "AUTH x",
            "-ERR AUTH <password> called without any password configured for the default user. Are \
             you sure your configuration is correct?",
        ),
        ("AUTH default x", "+OK"),
        ("AUTH foo x", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH a b c", "-ERR syntax error"),
        ("HELLO 2 AUTH foo x", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("SET a 1", "+OK"),
    ]);
    let server = TestServer::start();
    let mut client = server.client();
    assert!(client.call("HELLO 3 AUTH default x").contains("\"proto\", :3"));
    let with_password = |options: &mut ServerOptions| options.password = Some("secret".into());
    let server = TestServer::with(with_password);
    let mut client = server.client();
    check(
        &mut client,
        "siltstone",
        &[
            ("AUTH default x", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("GET a", "-NOAUTH Authentication required."),
            ("AUTH default secret", "+OK"),
            ("GET a", "nil"),
        ],
    );
}

#[test]
fn incrbyfloat_accepts_hexadecimal_numbers() {
    check_both(&[
        ("INCRBYFLOAT f 0x10", "\"16\""),
        ("INCRBYFLOAT f 0x1p3", "\"24\""),
        ("INCRBYFLOAT f 0X.8", "\"24.5\""),
        ("INCRBYFLOAT f -0x10", "\"8.5\""),
        ("INCRBYFLOAT f 0x", "-ERR value is not a valid float"),
        ("SET h 0xA.8p1", "+OK"),
        ("INCRBYFLOAT h 0.1", "\"21.1\""),
    ]);
}

#[test]
fn scan_accepts_any_cursor() {
    let steps = [
        ("SCAN 99999", "[\"0\", []]"),
        ("SCAN 18446744073709551615", "[\"0\", []]"),
        ("SCAN 18446744073709551616", "-ERR invalid cursor"),
        ("SCAN -1", "[\"0\", []]"),
        ("SCAN +1", "[\"0\", []]"),
        ("SCAN ''", "[\"0\", []]"),
        ("SCAN 00", "[\"0\", []]"),
        ("SCAN x", "-ERR invalid cursor"),
        ("SCAN 1x", "-ERR invalid cursor"),
    ];
    check_both(&steps);
    // With keys, an unknown cursor restarts the scan: keys may be returned twice, none is missed.
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("SET a v", "+OK"), ("SCAN 99999", "[\"0\", [\"a\"]]")]);
}

#[test]
fn password_among_several_settings_is_not_in_the_slow_log() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("CONFIG SET slowlog-log-slower-than 0", "+OK")]);
    let reply = client.call("CONFIG SET maxclients 100 requirepass s3cret");
    assert!(reply.starts_with("-ERR"), "{reply}");
    let log = client.call("SLOWLOG GET 10");
    assert!(log.contains("maxclients") && !log.contains("s3cret"), "{log}");
}

#[test]
fn password_of_hello_is_not_in_the_slow_log_whatever_precedes_it() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("CONFIG SET slowlog-log-slower-than 0", "+OK")]);
    for options in ["SETNAME auth AUTH default s3cret", "AUTH default s3cret AUTH default s3cret"] {
        let reply = client.call(&format!("HELLO 2 {options}"));
        assert!(reply.starts_with("[\"server\""), "{reply}");
        let log = client.call("SLOWLOG GET 10");
        assert!(log.contains("HELLO") && !log.contains("s3cret"), "{log}");
    }
}

#[test]
fn flushall_in_a_transaction_removes_earlier_writes() {
    check_both(&[
        ("MSET a 1 b 2", "+OK"),
        ("MULTI", "+OK"),
        ("SET c 3", "+QUEUED"),
        ("FLUSHALL", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("SET x y", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("FLUSHDB foo", "+QUEUED"),
        ("EXEC", "[+OK, +OK, nil, +OK, :1, [\"x\"], -ERR syntax error]"),
        ("KEYS *", "[\"x\"]"),
        ("MULTI", "+OK"),
        ("FLUSHDB ASYNC", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("DBSIZE", ":1"),
        // A watched key removed by FLUSHDB is changed.
        ("WATCH x", "+OK"),
        ("FLUSHDB", "+OK"),
        ("MULTI", "+OK"),
        ("SET z 1", "+QUEUED"),
        ("EXEC", "nil"),
        ("DBSIZE", ":0"),
    ]);
    // A transaction that exceeds the batch limit is rejected atomically.
    let server = TestServer::with(|options| options.max_request_bytes = 2000);
    let mut client = server.client();
    for i in 0..300 {
        client.call(&format!("SET key:{i:03} v"));
    }
    client.expect(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("FLUSHALL", "+QUEUED")]);
    assert!(client.call("EXEC").contains("run it outside of MULTI"));
    client.expect(&[("DBSIZE", ":300")]);
}

/// The value of a field of INFO.
fn field(client: &mut Client, section: &str, name: &str) -> String {
    let text = client.call(&format!("INFO {section}"));
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("{name} is missing: {text}")).trim_end_matches('"').to_owned()
}

#[test]
fn info_has_the_fields_of_redis_cli_and_exporters() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("SET a v EX 1000", "+OK"), ("SET b v", "+OK"), ("CONFIG RESETSTAT", "+OK")]);
    for command in ["GET a", "GET none", "EXISTS a none", "INCR a", "GET a b"] {
        client.call(command);
    }
    assert_eq!(field(&mut client, "stats", "keyspace_hits"), "2");
    assert_eq!(field(&mut client, "stats", "keyspace_misses"), "2");
    assert_eq!(field(&mut client, "stats", "evicted_keys"), "0");
    assert_eq!(field(&mut client, "clients", "blocked_clients"), "0");
    assert_eq!(field(&mut client, "replication", "role"), "master");
    let human = field(&mut client, "memory", "used_memory_human");
    assert!(human.ends_with(['B', 'K', 'M', 'G']), "{human}");
    if cfg!(target_os = "linux") {
        let user: f64 = field(&mut client, "cpu", "used_cpu_user").parse().unwrap();
        let system: f64 = field(&mut client, "cpu", "used_cpu_sys").parse().unwrap();
        assert!(user + system >= 0.0);
    }
    let keyspace = field(&mut client, "keyspace", "db0");
    let (counts, ttl) = keyspace.rsplit_once('=').unwrap();
    assert_eq!(counts, "keys=2,expires=1,avg_ttl");
    assert!((900_000..=1_000_000).contains(&ttl.parse::<u64>().unwrap()), "{keyspace}");
    // As in Redis, command statistics are shown only on request.
    assert!(!client.call("INFO").contains("cmdstat_get"));
    let get = field(&mut client, "commandstats", "cmdstat_get");
    assert!(get.starts_with("calls=2,usec="), "{get}");
    assert!(get.ends_with("rejected_calls=1,failed_calls=0"), "{get}");
    let incr = field(&mut client, "all", "cmdstat_incr");
    assert!(incr.ends_with("rejected_calls=0,failed_calls=1"), "{incr}");
}

#[test]
fn info_of_a_cache_has_its_memory_limit_and_policy() {
    let server = TestServer::over(Some(mica("mode=cache memory=8388608 partitions=1")), |_| ());
    let mut client = server.client();
    client.expect(&[
        ("CONFIG GET maxmemory", "[\"maxmemory\", \"8388608\"]"),
        ("CONFIG GET maxmemory-policy", "[\"maxmemory-policy\", \"allkeys-lru\"]"),
    ]);
    assert_eq!(field(&mut client, "memory", "maxmemory_policy"), "allkeys-lru");
    let value = "v".repeat(100_000);
    for i in 0..200 {
        client.call(&format!("SET key:{i} {value}"));
    }
    assert_ne!(field(&mut client, "stats", "evicted_keys"), "0");
}

#[test]
fn info_counts_a_key_that_expiry_removed_once() {
    let engine = mica("mode=store memory=8388608 partitions=1");
    let server = TestServer::over(Some(engine), |options| {
        options.metrics = Some("127.0.0.1:0".parse().unwrap());
    });
    let mut client = server.client();
    let expired = |client: &mut Client| field(client, "stats", "expired_keys");
    client.expect(&[
        ("SET kept v PX 100000", "+OK"),
        ("SET kept v", "+OK"),
        ("SET a v PX 20", "+OK"),
        ("SET b v PX 20", "+OK"),
        ("SET c v PX 20", "+OK"),
    ]);
    crate::support::eventually("expired", || client.call("EXISTS a b c") == ":0");
    assert_eq!(expired(&mut client), "0", "they still take memory");
    client.expect(&[("SET a w", "+OK"), ("DEL b", ":0"), ("SET a x", "+OK"), ("DEL kept", ":1")]);
    assert_eq!(expired(&mut client), "1", "the server deletes no key that reads as missing");
    client.expect(&[("SET b w", "+OK"), ("SET c w", "+OK"), ("DEL a b c", ":3")]);
    assert_eq!(expired(&mut client), "3");
    assert_eq!(field(&mut client, "stats", "evicted_keys"), "0");
    let mut metrics = Client::connect(server.metrics.unwrap());
    metrics.send_raw(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut page = String::new();
    std::io::Read::read_to_string(&mut metrics.reader, &mut page).unwrap();
    assert!(page.contains("siltstone_table_expired_entries_total{table=\"first\"} 3"), "{page}");
}

#[test]
fn full_memory_table_returns_oom() {
    let server = TestServer::over(Some(mica("mode=store memory=8388608 partitions=1")), |_| ());
    let mut client = server.client();
    let value = "v".repeat(100_000);
    let refused = (0..1000).map(|i| client.call(&format!("SET key:{i} {value}")));
    let refused = refused.into_iter().find(|reply| reply != "+OK").expect("it is full");
    let text = "-OOM command not allowed when used memory > 'maxmemory'";
    assert!(refused.starts_with(text), "{refused}");
    client.expect(&[("CONFIG GET maxmemory-policy", "[\"maxmemory-policy\", \"noeviction\"]")]);
}

/// A small request must not create a value that no reply could carry.
#[test]
fn values_are_limited_to_the_reply_size() {
    let server = TestServer::with(|options| options.max_output_bytes = 1 << 20);
    let mut client = server.client();
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    client.expect(&[
        ("SETRANGE a 1048576 x", too_long),
        ("SETRANGE a 500000000 x", too_long),
        ("EXISTS a", ":0"),
        ("SETRANGE a 700000 x", ":700001"),
    ]);
    let tail = "t".repeat(200_000);
    assert_eq!(client.call(&format!("APPEND a {tail}")), too_long);
    assert_eq!(client.call("GET a").len(), 700_003);
}

/// A long pattern must neither take long nor delay other clients.
#[test]
fn long_patterns_take_linear_time_and_do_not_block_other_clients() {
    let server = TestServer::with(|options| options.threads = 1);
    let mut client = server.client();
    for first in (0..100_000).step_by(1000) {
        let pairs: Vec<_> = (first..first + 1000).map(|i| format!("key:{i:08} v")).collect();
        client.call(&format!("MSET {}", pairs.join(" ")));
    }
    let patterns =
        ["a*".repeat(25_000), "*?".repeat(25_000), format!("*[{}]x", "01".repeat(25_000))];
    let mut other = server.client();
    let mut listings = 0;
    for pattern in patterns {
        // A server that lists all keys at once serves another client once at most before the end.
        // The machine may pause this thread for the whole time of one listing.
        let is_sliced = (0..20).any(|_| {
            client.send(&[b"KEYS", pattern.as_bytes()]);
            let has_ended = format!("cmdstat_keys:calls={},", listings + 1);
            let mut served = 0;
            while !other.call("INFO commandstats").contains(&has_ended) {
                served += 1;
            }
            assert_eq!(client.read(), "[]");
            listings += 1;
            served > 1
        });
        // No key has the prefix of the first.
        assert!(is_sliced || pattern.starts_with('a'), "another client waited for a listing");
        let reply = client.call(&format!("SCAN 0 COUNT 100000 MATCH {pattern}"));
        assert!(reply.ends_with(", []]"));
    }
    // A sliced command shows the state at its start, and replies keep their order.
    client
        .send_raw(b"KEYS *\r\nSET key:new v\r\nDBSIZE\r\nCLIENT REPLY SKIP\r\nDBSIZE\r\nPING\r\n");
    let listed = client.read();
    assert_eq!(listed.matches("key:").count(), 100_000);
    assert_eq!([client.read(), client.read(), client.read()], ["+OK", ":100001", "+PONG"]);
    // A half-closed client still gets its reply.
    client.send_raw(b"DBSIZE\r\n");
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(), ":100001");
    assert!(client.is_closed());
}

#[test]
fn stalled_metrics_clients_delay_nobody() {
    let server = TestServer::with(|options| options.metrics = Some("127.0.0.1:0".parse().unwrap()));
    let address = server.metrics.unwrap();
    // More connections than the limit: some send nothing, some an incomplete request.
    let stalled: Vec<Client> = (0..100)
        .map(|i| {
            let mut client = Client::connect(address);
            if i % 2 == 0 {
                client.send_raw(b"GET /metrics HTTP/1.1\r\nHost:");
            }
            client
        })
        .collect();
    for _ in 0..3 {
        let began = Instant::now();
        let mut client = Client::connect(address);
        client.send_raw(b"GET /healthz HTTP/1.1\r\n\r\n");
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut client.reader, &mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
        let took = began.elapsed();
        // One after the other, the stalled clients take minutes.
        assert!(took < Duration::from_secs(60), "{took:?}");
    }
    // In the end all are closed.
    for mut client in stalled {
        assert!(client.is_closed());
    }
}

#[test]
fn client_list_has_the_fields_of_redis() {
    let fields = |client: &mut Client| {
        client.call("MULTI");
        client.call("GET k");
        let queued = client.call("CLIENT INFO");
        assert_eq!(queued, "+QUEUED");
        let replies = client.call("EXEC");
        let line = client.call("CLIENT LIST");
        assert!(line.contains(" multi=-1 watch=0 qbuf=26 "), "{line}");
        assert!(line.contains(" cmd=client|list ") && line.contains(" redir=-1 "), "{line}");
        let names = replies.split(' ').filter_map(|word| word.split_once('='));
        names
            .map(|(name, _)| name.trim_matches(|c| !char::is_alphanumeric(c)).to_owned())
            .collect::<Vec<_>>()
    };
    let mut own = fields(&mut TestServer::start().client());
    let options = ["--save", "", "--port"];
    let Some(peer) = Peer::start("redis-server", &options) else { return };
    let redis = fields(&mut Client::connect(peer.address));
    // Redis 7.4 has all of them.
    own.retain(|name| !["watch", "lib-name", "lib-ver"].contains(&name.as_str()));
    assert_eq!(own, redis.into_iter().filter(|name| own.contains(name)).collect::<Vec<_>>());
}
