//! Streams over real connections: replies, consumer groups, readers that wait, events. Where Redis
//! is installed, it validates the tests whose replies are the same in 7.0 and 7.2.

use crate::both_servers::{on_both, park};
use crate::support::{Client, TestServer, eventually};
use siltstone::{Db, DbOptions};
use tempfile::TempDir;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "-ERR syntax error";
const INVALID_ID: &str = "-ERR Invalid stream ID specified as stream command argument";
const TOO_SMALL: &str =
    "-ERR The ID specified in XADD is equal or smaller than the target stream top item";

#[test]
fn entries_are_added_read_and_deleted_as_in_redis() {
    on_both(|connect| {
        connect().expect(&[
            ("XADD s 1-1 a 1", "\"1-1\""),
            ("XADD s 1-1 a 1", TOO_SMALL),
            ("XADD s 1-* a 2 b 3", "\"1-2\""),
            ("XADD s 0-* a 1", TOO_SMALL),
            ("XADD s 0-0 a 1", "-ERR The ID specified in XADD must be greater than 0-0"),
            ("XADD s x a 1", INVALID_ID),
            ("XADD s 5 a", "-ERR wrong number of arguments for 'xadd' command"),
            ("XADD s 5 a 1 b", "-ERR wrong number of arguments for 'xadd' command"),
            ("XADD t NOMKSTREAM 5 a 1", "nil"),
            ("EXISTS t", ":0"),
            ("XADD s 3 a 4", "\"3-0\""),
            ("XLEN s", ":3"),
            ("XRANGE s - +", "[[\"1-1\", [\"a\", \"1\"]], [\"1-2\", [\"a\", \"2\", \"b\", \"3\"]], [\"3-0\", [\"a\", \"4\"]]]"),
            ("XRANGE s (1-1 (3-0", "[[\"1-2\", [\"a\", \"2\", \"b\", \"3\"]]]"),
            ("XRANGE s - + COUNT 1", "[[\"1-1\", [\"a\", \"1\"]]]"),
            ("XRANGE s - + COUNT 0", "nil"),
            ("XRANGE s - + COUNT", SYNTAX),
            ("XRANGE s (18446744073709551615-18446744073709551615 +", "-ERR invalid start ID for the interval"),
            ("XREVRANGE s + - COUNT 1", "[[\"3-0\", [\"a\", \"4\"]]]"),
            ("XREVRANGE t + -", "[]"),
            ("XREAD STREAMS s 1-2", "[[\"s\", [[\"3-0\", [\"a\", \"4\"]]]]]"),
            ("XREAD COUNT 1 STREAMS t s 0 0", "[[\"s\", [[\"1-1\", [\"a\", \"1\"]]]]]"),
            ("XREAD STREAMS s $", "nil"),
            ("XDEL s 1-2 9", ":1"),
            ("XDEL s x", INVALID_ID),
            ("XADD s MAXLEN 2 MINID 3 4 a 1", "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible"),
            ("XADD s LIMIT 2 4 a 1", "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
            ("XADD s MAXLEN 2 LIMIT 2 4 a 1", "-ERR syntax error, LIMIT cannot be used without the special ~ option"),
            ("XADD s MAXLEN 2 4 a 5", "\"4-0\""),
            ("XTRIM s MINID 4", ":1"),
            ("XTRIM s MAXLEN -1", "-ERR The MAXLEN argument must be >= 0."),
            ("XTRIM s LIMIT 0", "-ERR syntax error, XTRIM must be called with a trimming strategy"),
            ("XSETID s 3", "-ERR The ID specified in XSETID is smaller than the target stream top item"),
            ("XSETID s 9 ENTRIESADDED 20 MAXDELETEDID 3", "+OK"),
            ("XINFO STREAM s", "[\"length\", :1, \"radix-tree-keys\", :1, \"radix-tree-nodes\", :2, \"last-generated-id\", \"9-0\", \"max-deleted-entry-id\", \"3-0\", \"entries-added\", :20, \"recorded-first-entry-id\", \"4-0\", \"groups\", :0, \"first-entry\", [\"4-0\", [\"a\", \"5\"]], \"last-entry\", [\"4-0\", [\"a\", \"5\"]]]"),
            ("XDEL s 4", ":1"),
            ("EXISTS s", ":1"),
            ("XLEN s", ":0"),
            ("TYPE s", "+stream"),
            ("OBJECT ENCODING s", "\"stream\""),
            ("SCAN 0 TYPE stream", "[\"0\", [\"s\"]]"),
            ("XADD s 18446744073709551615-18446744073709551615 a 1", "\"18446744073709551615-18446744073709551615\""),
            ("XADD s * a 1", "-ERR The stream has exhausted the last possible ID, unable to add more items"),
            ("SET v 1", "+OK"),
            ("XADD v 1 a 1", WRONG_TYPE),
            ("XREAD STREAMS v 0", WRONG_TYPE),
            ("XINFO STREAM v", WRONG_TYPE),
            ("XINFO STREAM none", "-ERR no such key"),
            ("LPUSH s 1", WRONG_TYPE),
            ("COMMAND GETKEYS XREAD COUNT 1 STREAMS a b 0 0", "[\"a\", \"b\"]"),
        ]);
    });
}

#[test]
fn approximate_trimming_deletes_whole_nodes() {
    on_both(|connect| {
        let mut client = connect();
        client.expect(&[("CONFIG SET stream-node-max-entries 10", "+OK")]);
        for number in 1..=45 {
            client.call(&format!("XADD s {number} a 1"));
        }
        client.expect(&[
            ("XTRIM s MAXLEN ~ 30", ":10"),
            ("XTRIM s MAXLEN 33", ":2"),
            // The first node has eight entries left.
            ("XTRIM s MAXLEN ~ 20", ":8"),
            ("XTRIM s MAXLEN ~ 0 LIMIT 9", ":0"),
            ("XTRIM s MINID ~ 40", ":10"),
            ("XTRIM s MAXLEN ~ 0", ":15"),
            ("XLEN s", ":0"),
        ]);
    });
}

#[test]
fn consumer_groups_reply_like_redis() {
    on_both(|connect| {
        connect().expect(&[
            ("XGROUP CREATE s g $", "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically."),
            ("XGROUP CREATE s g $ MKSTREAM", "+OK"),
            ("XGROUP CREATE s g $", "-BUSYGROUP Consumer Group name already exists"),
            ("XGROUP CREATE s h 0 ENTRIESREAD -2", "-ERR value for ENTRIESREAD must be positive or -1"),
            ("XGROUP SETID s x 0", "-NOGROUP No such consumer group 'x' for key name 's'"),
            ("XGROUP FOO s x", "-ERR unknown subcommand 'FOO'. Try XGROUP HELP."),
            ("XGROUP CREATECONSUMER s g a", ":1"),
            ("XGROUP CREATECONSUMER s g a", ":0"),
            ("XREADGROUP GROUP x a STREAMS s >", "-NOGROUP No such key 's' or consumer group 'x' in XREADGROUP with GROUP option"),
            ("XREADGROUP GROUP g a STREAMS s >", "nil"),
            ("XREADGROUP GROUP g a STREAMS s 0", "[[\"s\", []]]"),
            ("XADD s 1 k 1", "\"1-0\""),
            ("XADD s 2 k 2", "\"2-0\""),
            ("XADD s 3 k 3", "\"3-0\""),
            ("XREADGROUP GROUP g a COUNT 2 STREAMS s >", "[[\"s\", [[\"1-0\", [\"k\", \"1\"]], [\"2-0\", [\"k\", \"2\"]]]]]"),
            ("XREADGROUP GROUP g b STREAMS s >", "[[\"s\", [[\"3-0\", [\"k\", \"3\"]]]]]"),
            ("XPENDING s g", "[:3, \"1-0\", \"3-0\", [[\"a\", \"2\"], [\"b\", \"1\"]]]"),
            ("XPENDING s g IDLE 100000 - + 10", "[]"),
            ("XPENDING s g - + 10 nobody", "[]"),
            ("XPENDING s x", "-NOGROUP No such key 's' or consumer group 'x'"),
            ("XPENDING s g - +", SYNTAX),
            ("XACK s g 1-0 9-0", ":1"),
            ("XACK s g 1-0", ":0"),
            ("XACK s x 1-0", ":0"),
            ("XDEL s 2", ":1"),
            ("XREADGROUP GROUP g a STREAMS s 0", "[[\"s\", [[\"2-0\", nil]]]]"),
            ("XCLAIM s g b 0 3 JUSTID", "[\"3-0\"]"),
            ("XCLAIM s g a 100000 3", "[]"),
            ("XCLAIM s g a 0 3", "[[\"3-0\", [\"k\", \"3\"]]]"),
            ("XCLAIM s g a 0 3 FOO", "-ERR Unrecognized XCLAIM option 'FOO'"),
            ("XCLAIM s g a x 3", "-ERR Invalid min-idle-time argument for XCLAIM"),
            ("XAUTOCLAIM s g c 0 0 COUNT 1 JUSTID", "[\"3-0\", [], [\"2-0\"]]"),
            ("XAUTOCLAIM s g c 0 0", "[\"0-0\", [[\"3-0\", [\"k\", \"3\"]]], []]"),
            ("XAUTOCLAIM s g c 0 0 COUNT 0", "-ERR COUNT must be > 0"),
            ("XPENDING s g", "[:1, \"3-0\", \"3-0\", [[\"c\", \"1\"]]]"),
            ("XINFO GROUPS s", "[[\"name\", \"g\", \"consumers\", :3, \"pending\", :1, \"last-delivered-id\", \"3-0\", \"entries-read\", :3, \"lag\", :0]]"),
            ("XGROUP DELCONSUMER s g c", ":1"),
            ("XPENDING s g", "[:0, nil, nil, nil]"),
            ("COPY s t", ":1"),
            ("XGROUP DESTROY s g", ":1"),
            ("XGROUP DESTROY s g", ":0"),
            ("XGROUP SETID t g 0", "+OK"),
            ("RENAME t s", "+OK"),
            ("XREADGROUP GROUP g a NOACK STREAMS s >", "[[\"s\", [[\"1-0\", [\"k\", \"1\"]], [\"3-0\", [\"k\", \"3\"]]]]]"),
            ("XPENDING s g", "[:0, nil, nil, nil]"),
            ("XREAD GROUP g a STREAMS s 0", "-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead."),
        ]);
    });
}

#[test]
fn forced_claim_counts_as_a_second_delivery() {
    on_both(|connect| {
        let mut client = connect();
        client.expect(&[
            ("XADD s 1 k 1", "\"1-0\""),
            ("XADD s 2 k 2", "\"2-0\""),
            ("XGROUP CREATE s g $", "+OK"),
            ("XCLAIM s g a 0 1 FORCE", "[[\"1-0\", [\"k\", \"1\"]]]"),
            ("XCLAIM s g a 0 2 FORCE JUSTID", "[\"2-0\"]"),
        ]);
        for (id, deliveries) in [("1", ":2]]"), ("2", ":1]]")] {
            let pending = client.call(&format!("XPENDING s g {id} {id} 1"));
            assert!(pending.ends_with(deliveries), "{pending}");
        }
    });
}

#[test]
fn waiting_readers_get_what_is_added_or_learn_that_their_group_is_gone() {
    on_both(|connect| {
        let (mut writer, mut reader, mut other) = (connect(), connect(), connect());
        writer.call("XADD s 1 k 1");
        park(&mut reader, &mut writer, "XREAD BLOCK 0 STREAMS t s 0 $", 1);
        park(&mut other, &mut writer, "XREAD BLOCK 0 COUNT 1 STREAMS s 1", 2);
        // Another type at the key is not what they wait for.
        writer.expect(&[("SET t v", "+OK"), ("DEL t", ":1"), ("XADD s 2 k 2", "\"2-0\"")]);
        let entry = "[[\"s\", [[\"2-0\", [\"k\", \"2\"]]]]]";
        assert_eq!([reader.read(), other.read()], [entry, entry]);
        writer.expect(&[("XGROUP CREATE s g $", "+OK"), ("XGROUP CREATE s h $", "+OK")]);
        park(&mut reader, &mut writer, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >", 1);
        park(&mut other, &mut writer, "XREADGROUP GROUP h b BLOCK 0 STREAMS s >", 2);
        writer.expect(&[("XGROUP DESTROY s h", ":1")]);
        assert!(other.read().starts_with("-NOGROUP "));
        writer.expect(&[("XADD s 3 k 3", "\"3-0\"")]);
        assert_eq!(reader.read(), "[[\"s\", [[\"3-0\", [\"k\", \"3\"]]]]]");
        writer.expect(&[("XPENDING s g", "[:1, \"3-0\", \"3-0\", [[\"a\", \"1\"]]]")]);
        reader.expect(&[("XREADGROUP GROUP g a BLOCK 10 STREAMS s >", "nil")]);
    });
}

#[test]
fn plus_reads_the_last_entry_or_waits_for_one() {
    let server = TestServer::start();
    let (mut writer, mut reader) = (server.client(), server.client());
    let refusal = reader.call("XREADGROUP GROUP g c STREAMS s +");
    assert!(refusal.starts_with("-NOGROUP"), "{refusal}");
    reader.expect(&[("XREAD STREAMS s +", "nil"), ("XREAD BLOCK 10 STREAMS s +", "nil")]);
    park(&mut reader, &mut writer, "XREAD BLOCK 0 STREAMS s +", 1);
    writer.call("XADD s 1 k 1");
    assert_eq!(reader.read(), "[[\"s\", [[\"1-0\", [\"k\", \"1\"]]]]]");
    let last = "[[\"s\", [[\"2-0\", [\"k\", \"2\"]]]]]";
    writer.expect(&[("XADD s 2 k 2", "\"2-0\""), ("XADD s 3 k 3", "\"3-0\"")]);
    // The last one that there is, whatever the last id.
    writer.expect(&[("XDEL s 3", ":1"), ("XGROUP CREATE s g 0", "+OK")]);
    reader.expect(&[
        ("XREAD STREAMS s +", last),
        ("XREAD COUNT 5 BLOCK 0 STREAMS none s + +", last),
        ("XREAD STREAMS s $", "nil"),
    ]);
    let refusal = reader.call("XREADGROUP GROUP g c STREAMS s +");
    assert!(refusal.starts_with("-ERR The + ID is meaningless"), "{refusal}");
    writer.expect(&[("XDEL s 1 2", ":2"), ("XREAD STREAMS s +", "nil"), ("SET t v", "+OK")]);
    reader.expect(&[("XREAD STREAMS t +", WRONG_TYPE)]);
}

#[test]
fn waiting_group_reader_fails_when_its_key_goes() {
    let server = TestServer::start();
    let (mut writer, mut reader) = (server.client(), server.client());
    for removal in ["DEL s", "FLUSHALL", "FLUSHDB"] {
        writer.call("XGROUP CREATE s g $ MKSTREAM");
        park(&mut reader, &mut writer, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >", 1);
        writer.call(removal);
        assert!(reader.read().starts_with("-NOGROUP No such key 's'"), "{removal}");
    }
    assert!(writer.call("INFO errorstats").contains("errorstat_NOGROUP:count=3"));
    let calls = writer.call("INFO commandstats");
    let failed =
        |line: &str| line.contains("xreadgroup:calls=3") && line.ends_with("failed_calls=3");
    assert!(calls.lines().any(failed), "{calls}");
    writer.call("XGROUP CREATE s g $ MKSTREAM");
    park(&mut reader, &mut writer, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >", 1);
    writer.call("SET s v");
    assert_eq!(reader.read(), WRONG_TYPE);
}

#[test]
fn waiting_group_reader_fails_when_its_key_expires() {
    on_both(|connect| {
        let (mut writer, mut reader) = (connect(), connect());
        let wait = "XREADGROUP GROUP g a BLOCK 0 STREAMS s >";
        // An expiry that was set before, and one that is set meanwhile.
        for before in [true, false] {
            writer.call("XGROUP CREATE s g $ MKSTREAM");
            let expire = |client: &mut Client| client.expect(&[("PEXPIRE s 1000", ":1")]);
            if before {
                expire(&mut writer);
            }
            park(&mut reader, &mut writer, wait, 1);
            if !before {
                expire(&mut writer);
            }
            // Redis 7.0 has words of its own.
            let reply = reader.read();
            let expected = ["-NOGROUP No such key 's'", "-UNBLOCKED the stream key no longer"];
            assert!(expected.iter().any(|begin| reply.starts_with(begin)), "{reply}");
            writer.expect(&[("EXISTS s", ":0")]);
        }
        // One that is removed in time.
        writer.call("XGROUP CREATE s g $ MKSTREAM");
        writer.call("PEXPIRE s 1000");
        park(&mut reader, &mut writer, wait, 1);
        writer.expect(&[("PERSIST s", ":1")]);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        writer.expect(&[("XADD s 1 k v", "\"1-0\"")]);
        assert_eq!(reader.read(), "[[\"s\", [[\"1-0\", [\"k\", \"v\"]]]]]");
    });
}

#[test]
fn waiting_group_reader_fails_when_its_key_is_renamed_or_replaced() {
    let server = TestServer::start();
    let (mut writer, mut reader) = (server.client(), server.client());
    for (removal, begin) in [
        ("RENAME s t", "-NOGROUP No such key 's'"),
        ("RENAME other s", "-WRONGTYPE"),
        ("COPY other s REPLACE", "-WRONGTYPE"),
        ("LPUSH s 1", ""),
        ("MOVE s 1", "-NOGROUP No such key 's'"),
        ("UNLINK s", "-NOGROUP No such key 's'"),
    ] {
        writer.call("FLUSHALL");
        writer.call("RPUSH other 1");
        writer.call("XGROUP CREATE s g $ MKSTREAM");
        park(&mut reader, &mut writer, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >", 1);
        let answer = writer.call(removal);
        if begin.is_empty() {
            assert!(answer.starts_with("-WRONGTYPE"), "{answer}");
            writer.call("DEL s");
        }
        let reply = reader.read();
        assert!(reply.starts_with(begin), "{removal}: {answer} {reply}");
    }
}

#[test]
fn transactions_and_scripts_read_without_waiting() {
    on_both(|connect| {
        let (mut client, mut other) = (connect(), connect());
        client.expect(&[
            ("MULTI", "+OK"),
            ("XADD s 1 k 1", "+QUEUED"),
            ("XREAD BLOCK 0 STREAMS s $", "+QUEUED"),
            ("XLEN s", "+QUEUED"),
            ("EXEC", "[\"1-0\", nil, :1]"),
            ("XGROUP CREATE s g 0", "+OK"),
            ("WATCH s", "+OK"),
        ]);
        // A group's progress is no change of the stream.
        other.expect(&[(
            "XREADGROUP GROUP g a STREAMS s >",
            "[[\"s\", [[\"1-0\", [\"k\", \"1\"]]]]]",
        )]);
        other.expect(&[("XACK s g 1", ":1")]);
        client.expect(&[
            ("MULTI", "+OK"),
            ("XLEN s", "+QUEUED"),
            ("EXEC", "[:1]"),
            ("WATCH s", "+OK"),
        ]);
        other.expect(&[("XADD s 2 k 2", "\"2-0\"")]);
        client.expect(&[("MULTI", "+OK"), ("XLEN s", "+QUEUED"), ("EXEC", "nil")]);
        let script = b"return redis.call('xread','streams',KEYS[1],'1')";
        let reply = client.call_bytes(&[b"EVAL", script, b"1", b"s"]);
        assert_eq!(reply, "[[\"s\", [[\"2-0\", [\"k\", \"2\"]]]]]");
    });
}

#[test]
fn readers_in_scripts_do_not_wait() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[("XADD s 1 k 1", "\"1-0\""), ("XGROUP CREATE s g 0", "+OK")]);
    let entry = "[[\"s\", [[\"1-0\", [\"k\", \"1\"]]]]]";
    for (read, reply) in [
        ("'xread','block',0,'streams',KEYS[1],'$'", "nil"),
        ("'xread','block',0,'streams',KEYS[1],'0'", entry),
        ("'xreadgroup','group','g','c','block',0,'streams',KEYS[1],'>'", entry),
        ("'xreadgroup','group','g','c','block',0,'streams',KEYS[1],'>'", "nil"),
    ] {
        let script = format!("return redis.call({read})");
        assert_eq!(client.call_bytes(&[b"EVAL", script.as_bytes(), b"1", b"s"]), reply, "{read}");
    }
}

#[test]
fn events_are_those_of_redis() {
    on_both(|connect| {
        let (mut client, mut subscriber) = (connect(), connect());
        client.expect(&[("CONFIG SET notify-keyspace-events KtnE", "+OK")]);
        subscriber.call("PSUBSCRIBE __key*");
        for (command, events) in [
            ("XADD s 1 k 1", &["new", "xadd"][..]),
            ("XADD s MAXLEN 1 2 k 1", &["xadd", "xtrim"]),
            ("XADD s MAXLEN 5 3 k 1", &["xadd"]),
            ("XTRIM s MAXLEN 1", &["xtrim"]),
            ("XSETID s 9", &["xsetid"]),
            ("XGROUP CREATE s g 0", &["xgroup-create"]),
            ("XGROUP CREATECONSUMER s g a", &["xgroup-createconsumer"]),
            ("XREADGROUP GROUP g b STREAMS s >", &["xgroup-createconsumer"]),
            ("XCLAIM s g c 0 3", &["xgroup-createconsumer"]),
            ("XACK s g 3", &[]),
            ("XGROUP SETID s g 0", &["xgroup-setid"]),
            ("XGROUP DELCONSUMER s g a", &["xgroup-delconsumer"]),
            ("XGROUP DESTROY s g", &["xgroup-destroy"]),
            ("XDEL s 3", &["xdel"]),
            ("XDEL s 3", &[]),
        ] {
            client.call(command);
            for event in events {
                let by_key = format!("\"__keyspace@0__:s\", \"{event}\"");
                let message = subscriber.read();
                assert!(message.contains(&by_key), "{command}: {message}, not {event}");
                let message = subscriber.read();
                assert!(message.contains(&format!(":{event}\", \"s\"")), "{command}: {message}");
            }
        }
        client.call("XSETID s 10");
        assert!(subscriber.read().contains("xsetid"));
    });
}

#[test]
fn streams_survive_a_restart() {
    let dir = TempDir::new().unwrap();
    for round in 0..2 {
        let db = Db::open_or_create(dir.path().join("store"), DbOptions::default()).unwrap();
        let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
        let server = TestServer::over(Some(table.engine().clone()), |_| ());
        let mut client = server.client();
        if round == 0 {
            client.call("XADD s 1 k 1");
            client.call("XADD s 2 k 2");
            client.call("XGROUP CREATE s g 0");
            client.call("XREADGROUP GROUP g a COUNT 1 STREAMS s >");
            client.call("XDEL s 2");
        } else {
            client.expect(&[
                ("XRANGE s - +", "[[\"1-0\", [\"k\", \"1\"]]]"),
                ("XPENDING s g", "[:1, \"1-0\", \"1-0\", [[\"a\", \"1\"]]]"),
                ("XADD s 2 k 1", TOO_SMALL),
            ]);
        }
        drop(client);
        server.finish().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn entries_are_delivered_once_to_concurrent_consumers() {
    const ENTRIES: usize = 400;
    const CONSUMERS: usize = 4;
    let server = TestServer::start();
    server.client().expect(&[("XGROUP CREATE s g $ MKSTREAM", "+OK")]);
    let mut delivered = Vec::new();
    std::thread::scope(|scope| {
        let server = &server;
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = server.client();
                    let read = format!("XREADGROUP GROUP g c{number} COUNT 3 BLOCK 0 STREAMS s >");
                    let mut ids = Vec::new();
                    // A consumer leaves with the first "end" that it gets.
                    loop {
                        let reply = client.call(&read);
                        let fields = reply.split('"').skip(3).step_by(2);
                        let words: Vec<String> = fields.map(str::to_owned).collect();
                        ids.extend(words.chunks(3).map(|entry| entry[0].clone()));
                        if words.chunks(3).any(|entry| entry[1] == "end") {
                            return ids;
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let mut client = server.client();
                    for _ in 0..ENTRIES / 2 {
                        client.call("XADD s * k v");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        // One end at a time: the next one only when a consumer has left with it.
        let mut client = server.client();
        for left in 1..=CONSUMERS {
            client.call("XADD s * end 1");
            let gone = || consumers.iter().filter(|consumer| consumer.is_finished()).count();
            eventually("the end is delivered", || gone() == left);
        }
        delivered.extend(consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()));
    });
    let count = delivered.len();
    delivered.sort();
    delivered.dedup();
    assert_eq!(delivered.len(), count, "an entry was delivered twice");
    let len = server.client().call("XLEN s");
    assert_eq!(len, format!(":{count}"), "an entry was not delivered");
    assert_eq!(count, ENTRIES + CONSUMERS);
}

#[test]
fn xautoclaim_beyond_a_reply_ends_early_with_the_position_of_the_next_call() {
    let server = TestServer::with(|options| options.max_output_bytes = 64 << 10);
    let mut client = server.client();
    client.expect(&[("XGROUP CREATE s g 0 MKSTREAM", "+OK")]);
    let value = "x".repeat(2000);
    for id in 1..=100 {
        client.call(&format!("XADD s {id} field {value}"));
    }
    for _ in 0..10 {
        client.call("XREADGROUP GROUP g a COUNT 10 STREAMS s >");
    }
    client.expect(&[("XDEL s 50", ":1")]);
    let (mut cursor, mut claimed, mut calls) = ("0".to_owned(), 0, 0);
    while cursor != "0-0" {
        let reply = client.call(&format!("XAUTOCLAIM s g b 0 {cursor} COUNT 100"));
        assert!(reply.starts_with("[\""), "{}", &reply[..reply.len().min(200)]);
        claimed += reply.matches("\"field\"").count();
        cursor = reply.split('"').nth(1).unwrap_or_default().to_owned();
        calls += 1;
    }
    assert_eq!((claimed, client.call("XPENDING s g - + 1 a")), (99, "[]".to_owned()));
    assert!(calls > 2, "{calls}");
}
