//! Publish and subscribe, over real connections and two workers.

use crate::both_servers::on_both;
use crate::support::{TestServer, encode, eventually};
use siltstone_server::ServerOptions;

#[test]
fn subscriptions_are_confirmed_and_counted() {
    on_both(|connect| {
        let mut client = connect();
        client.send(&[b"SUBSCRIBE", b"a", b"b", b"a"]);
        for (channel, count) in [("a", 1), ("b", 2), ("a", 2)] {
            assert_eq!(client.read(), format!("[\"subscribe\", \"{channel}\", :{count}]"));
        }
        client.expect(&[
            ("PSUBSCRIBE a*", "[\"psubscribe\", \"a*\", :3]"),
            ("SSUBSCRIBE a", "[\"ssubscribe\", \"a\", :1]"),
            ("UNSUBSCRIBE none", "[\"unsubscribe\", \"none\", :3]"),
            ("UNSUBSCRIBE b", "[\"unsubscribe\", \"b\", :2]"),
            ("UNSUBSCRIBE", "[\"unsubscribe\", \"a\", :1]"),
            ("UNSUBSCRIBE", "[\"unsubscribe\", nil, :1]"),
            ("PUNSUBSCRIBE", "[\"punsubscribe\", \"a*\", :0]"),
            ("SUNSUBSCRIBE b", "[\"sunsubscribe\", \"b\", :1]"),
            ("SUNSUBSCRIBE", "[\"sunsubscribe\", \"a\", :0]"),
            ("SUNSUBSCRIBE", "[\"sunsubscribe\", nil, :0]"),
            ("GET none", "nil"),
        ]);
    });
}

#[test]
fn resp2_subscriber_may_call_few_commands() {
    on_both(|connect| {
        let mut client = connect();
        let refusal = |name: &str| {
            format!(
                "-ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT \
                 / RESET are allowed in this context"
            )
        };
        client.expect(&[
            ("SUBSCRIBE a", "[\"subscribe\", \"a\", :1]"),
            ("GET x", &refusal("get")),
            ("SET x y", &refusal("set")),
            ("CLIENT ID", &refusal("client|id")),
            ("HELLO 3", &refusal("hello")),
            ("FOO", "-ERR unknown command 'FOO', with args beginning with: "),
            ("PING", "[\"pong\", \"\"]"),
            ("PING hi", "[\"pong\", \"hi\"]"),
            ("RESET", "+RESET"),
            ("PING", "+PONG"),
            ("SUBSCRIBE a", "[\"subscribe\", \"a\", :1]"),
            ("UNSUBSCRIBE", "[\"unsubscribe\", \"a\", :0]"),
            ("PING", "+PONG"),
            ("SSUBSCRIBE a", "[\"ssubscribe\", \"a\", :1]"),
            ("GET x", &refusal("get")),
            ("QUIT", "+OK"),
        ]);
        assert!(client.is_closed());
    });
}

#[test]
fn resp3_subscriber_may_call_every_command() {
    on_both(|connect| {
        let mut client = connect();
        client.call("HELLO 3");
        client.send_raw(&encode(&[b"SUBSCRIBE", b"a"]));
        let mut first = [0; 4];
        std::io::Read::read_exact(&mut client.reader, &mut first).unwrap();
        assert_eq!(&first, b">3\r\n", "a push");
        assert_eq!(client.read(), "\"subscribe\"");
        assert_eq!((client.read(), client.read()), ("\"a\"".into(), ":1".into()));
        client.expect(&[
            ("SET k v", "+OK"),
            ("GET k", "\"v\""),
            ("PING", "+PONG"),
            ("CLIENT REPLY ON", "+OK"),
        ]);
        let mut other = connect();
        other.expect(&[("PUBLISH a hello", ":1")]);
        assert_eq!(client.read(), "[\"message\", \"a\", \"hello\"]");
        // Pushes ignore CLIENT REPLY.
        client.send(&[b"CLIENT", b"REPLY", b"OFF"]);
        client.send(&[b"SET", b"k", b"w"]);
        eventually("the replies are off", || other.call("GET k") == "\"w\"");
        other.expect(&[("PUBLISH a again", ":1")]);
        assert_eq!(client.read(), "[\"message\", \"a\", \"again\"]");
    });
}

#[test]
fn messages_reach_channels_patterns_and_shard_channels() {
    on_both(|connect| {
        let (mut one, mut two, mut publisher) = (connect(), connect(), connect());
        one.expect(&[
            ("SUBSCRIBE news.a", "[\"subscribe\", \"news.a\", :1]"),
            ("PSUBSCRIBE news.*", "[\"psubscribe\", \"news.*\", :2]"),
        ]);
        two.expect(&[
            ("PSUBSCRIBE *.[ab]", "[\"psubscribe\", \"*.[ab]\", :1]"),
            ("SSUBSCRIBE news.a", "[\"ssubscribe\", \"news.a\", :1]"),
        ]);
        publisher.expect(&[
            ("PUBSUB CHANNELS", "[\"news.a\"]"),
            ("PUBSUB CHANNELS x*", "[]"),
            ("PUBSUB SHARDCHANNELS n?ws*", "[\"news.a\"]"),
            ("PUBSUB NUMSUB news.a none", "[\"news.a\", :1, \"none\", :0]"),
            ("PUBSUB NUMSUB", "[]"),
            ("PUBSUB SHARDNUMSUB news.a none", "[\"news.a\", :1, \"none\", :0]"),
            ("PUBSUB NUMPAT", ":2"),
            ("PUBLISH news.a 1", ":3"),
            ("PUBLISH news.c 2", ":1"),
            ("PUBLISH other 3", ":0"),
            ("SPUBLISH news.a 4", ":1"),
            ("SPUBLISH other 5", ":0"),
            ("PUBSUB FOO", "-ERR unknown subcommand 'FOO'. Try PUBSUB HELP."),
            ("PUBSUB NUMPAT x", "-ERR wrong number of arguments for 'pubsub|numpat' command"),
            ("PUBLISH a", "-ERR wrong number of arguments for 'publish' command"),
        ]);
        assert_eq!(one.read(), "[\"message\", \"news.a\", \"1\"]");
        assert_eq!(one.read(), "[\"pmessage\", \"news.*\", \"news.a\", \"1\"]");
        assert_eq!(one.read(), "[\"pmessage\", \"news.*\", \"news.c\", \"2\"]");
        assert_eq!(two.read(), "[\"pmessage\", \"*.[ab]\", \"news.a\", \"1\"]");
        assert_eq!(two.read(), "[\"smessage\", \"news.a\", \"4\"]");
        let info = publisher.call("INFO stats");
        for field in ["pubsub_channels:1", "pubsub_patterns:2"] {
            assert!(info.contains(field), "{field} in {info}");
        }
        drop((one, two));
        eventually("the subscriptions end with the clients", || {
            publisher.call("PUBSUB NUMPAT") == ":0" && publisher.call("PUBSUB CHANNELS") == "[]"
        });
    });
}

#[test]
fn transaction_may_subscribe_and_publish() {
    on_both(|connect| {
        let (mut client, mut publisher) = (connect(), connect());
        client.expect(&[
            ("MULTI", "+OK"),
            ("SUBSCRIBE a", "+QUEUED"),
            ("PING", "+QUEUED"),
            ("EXEC", "[[\"subscribe\", \"a\", :1], [\"pong\", \"\"]]"),
        ]);
        publisher.expect(&[
            ("MULTI", "+OK"),
            ("PUBLISH a 1", "+QUEUED"),
            ("PUBLISH a 2", "+QUEUED"),
            ("EXEC", "[:1, :1]"),
        ]);
        assert_eq!(client.read(), "[\"message\", \"a\", \"1\"]");
        assert_eq!(client.read(), "[\"message\", \"a\", \"2\"]");
    });
}

#[test]
fn own_messages_follow_the_reply_as_in_redis_7_2() {
    let server = TestServer::start();
    let mut client = server.client();
    client.call("HELLO 3");
    client.call("SUBSCRIBE a");
    client.send(&[b"PUBLISH", b"a", b"1"]);
    client.send(&[b"PUBLISH", b"a", b"2"]);
    client.send(&[b"UNSUBSCRIBE", b"a"]);
    let expected = [
        ":1",
        "[\"message\", \"a\", \"1\"]",
        ":1",
        "[\"message\", \"a\", \"2\"]",
        "[\"unsubscribe\", \"a\", :0]",
    ];
    for expected in expected {
        assert_eq!(client.read(), expected);
    }
}

#[test]
fn messages_of_a_publisher_arrive_in_order_at_all_workers() {
    const MESSAGES: usize = 2000;
    let server = TestServer::with(|options| options.threads = 3);
    let mut subscribers: Vec<_> = (0..6).map(|_| server.client()).collect();
    for client in &mut subscribers {
        client.call("SUBSCRIBE a");
    }
    std::thread::scope(|scope| {
        for name in ["x", "y"] {
            let mut publisher = server.client();
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    let message = format!("{name} {number}");
                    publisher.send(&[b"PUBLISH", b"a", message.as_bytes()]);
                }
                for _ in 0..MESSAGES {
                    assert_eq!(publisher.read(), ":6");
                }
            });
        }
        for client in &mut subscribers {
            scope.spawn(move || {
                let mut next = [0, 0];
                for _ in 0..2 * MESSAGES {
                    let message = client.read();
                    let text = message.rsplit('"').nth(1).unwrap();
                    let (name, number) = text.split_once(' ').unwrap();
                    let next = &mut next[usize::from(name == "y")];
                    assert_eq!(number.parse::<usize>().unwrap(), *next, "{name}");
                    *next += 1;
                }
            });
        }
    });
}

#[test]
fn no_message_follows_the_end_of_a_subscription() {
    let server = TestServer::start();
    std::thread::scope(|scope| {
        let mut publisher = server.client();
        let mut client = server.client();
        scope.spawn(move || {
            // Ends when the subscriber has gone for good.
            while publisher.call("GET done") == "nil" {
                publisher.call("PUBLISH a x");
            }
        });
        for _ in 0..200 {
            client.send(&[b"SUBSCRIBE", b"a"]);
            assert_eq!(client.read(), "[\"subscribe\", \"a\", :1]");
            client.send(&[b"UNSUBSCRIBE", b"a"]);
            while client.read() != "[\"unsubscribe\", \"a\", :0]" {}
            assert_eq!(client.call("PING"), "+PONG");
        }
        client.call("SET done 1");
    });
}

/// A client takes what follows RESET for the reply to its next command.
#[test]
fn no_message_follows_reset() {
    let server = TestServer::start();
    std::thread::scope(|scope| {
        let mut publisher = server.client();
        let mut client = server.client();
        scope.spawn(move || {
            // It ends by itself if the test fails.
            for _ in 0..50_000 {
                if publisher.call("GET done") != "nil" {
                    break;
                }
                publisher.call("PUBLISH a x");
            }
        });
        for round in 0..1000 {
            let begin = if round % 2 == 0 { "SUBSCRIBE a" } else { "MONITOR" };
            client.call(begin);
            client.send(&[b"RESET"]);
            while client.read() != "+RESET" {}
            assert_eq!(client.call("ECHO x"), "\"x\"", "{begin}");
        }
        client.call("SET done 1");
    });
}

#[test]
fn subscriber_that_does_not_read_is_closed() {
    let server = TestServer::with(|options: &mut ServerOptions| options.threads = 2);
    let mut slow = server.client();
    slow.call("SUBSCRIBE a");
    let mut publisher = server.client();
    let message = vec![b'm'; 1 << 20];
    eventually("the subscriber is closed", || {
        publisher.call_bytes(&[b"PUBLISH", b"a", &message]) == ":0"
    });
    let info = publisher.call("INFO stats");
    assert!(info.contains("client_output_buffer_limit_disconnections:1"), "{info}");
    assert!(slow.is_closed());
    assert_eq!(publisher.call("CLIENT LIST TYPE pubsub"), "\"\"");
}

#[test]
fn subscriptions_whose_confirmations_are_too_large_are_not_made() {
    let server = TestServer::with(|options| options.max_output_bytes = 64 << 10);
    let mut client = server.client();
    let names: Vec<_> = (0..2000).map(|number| format!("channel:{number}")).collect();
    let words = ["SUBSCRIBE"].into_iter().chain(names.iter().map(String::as_str));
    let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
    let reply = client.call_bytes(&words);
    assert!(reply.starts_with("-ERR the reply exceeds the limit"), "{reply}");
    client.expect(&[("PUBSUB CHANNELS", "[]"), ("GET k", "nil")]);
}

/// A compiled pattern takes many times the memory of its text.
#[test]
fn memory_of_patterns_is_limited() {
    let server = TestServer::with(|options| options.max_request_bytes = 1 << 20);
    let mut client = server.client();
    let pattern = [b'p'; 20_000];
    let reply = client.call_bytes(&[b"PSUBSCRIBE", &pattern]);
    assert!(reply.starts_with("-ERR the subscriptions exceed the request limit"), "{reply}");
    for (word, left) in [(&b"PSUBSCRIBE"[..], 1), (b"PUNSUBSCRIBE", 0), (b"PSUBSCRIBE", 1)] {
        let reply = client.call_bytes(&[word, &pattern[..9000]]);
        assert!(reply.ends_with(&format!(", :{left}]")), "{reply}");
    }
    assert!(client.call_bytes(&[b"SUBSCRIBE", &pattern]).ends_with(", :2]"));
}

/// It was left out, and the next command got an error.
#[test]
fn subscriber_is_closed_by_a_message_above_the_limit_of_replies() {
    let server = TestServer::with(|options| options.max_output_bytes = 64 << 10);
    let (mut subscriber, mut publisher) = (server.client(), server.client());
    subscriber.call("SUBSCRIBE a");
    let message = [b'm'; 100 << 10];
    assert_eq!(publisher.call_bytes(&[b"PUBLISH", b"a", &message]), ":1");
    eventually("the subscriber is closed", || publisher.call("PUBSUB NUMSUB a") == "[\"a\", :0]");
    assert!(subscriber.is_closed());
}

#[test]
fn subscribers_are_listed_and_killed_by_type() {
    let server = TestServer::with(|options| {
        options.idle_timeout = Some(std::time::Duration::from_secs(3));
    });
    let (mut client, mut admin) = (server.client(), server.client());
    client.call("SUBSCRIBE a");
    client.call("PSUBSCRIBE a*");
    let list = admin.call("CLIENT LIST TYPE pubsub");
    assert!(list.contains("flags=P") && list.contains("sub=1 psub=1 ssub=0"), "{list}");
    // A subscriber may be silent; the administrator is not.
    for _ in 0..15 {
        assert_eq!(admin.call("PUBSUB NUMPAT"), ":1");
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    assert_eq!(admin.call("CLIENT KILL TYPE pubsub"), ":1");
    assert!(client.is_closed());
}
