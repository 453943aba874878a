//! Users and their rights, as in Redis 7.2.

use std::fs;

use siltstone_engine::Error;
use siltstone_server::{Server, ServerOptions};

use crate::both_servers::on_both;
use crate::support::{Client, TestServer, eventually};

fn client_of(server: &TestServer, user: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.call(&format!("auth {user} pw")), "+OK", "{user}");
    client
}

#[test]
fn user_with_rules_is_limited_to_commands_keys_and_channels() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.expect(&[
        (
            "acl setuser alice on >pw +get +set +mset +append +config|get +publish ~a:* %R~r:* &n*",
            "+OK",
        ),
        ("acl whoami", "\"default\""),
        ("acl users", "[\"alice\", \"default\"]"),
    ]);
    let mut alice = client_of(&server, "alice");
    let no_key = "-NOPERM No permissions to access a key";
    alice.expect(&[
        ("acl whoami", "-NOPERM User alice has no permissions to run the 'acl|whoami' command"),
        ("set a:1 x", "+OK"),
        ("get a:1", "\"x\""),
        ("get r:1", "nil"),
        ("set r:1 x", no_key),
        ("get b", no_key),
        ("mset a:1 x b y", no_key),
        ("config get maxclients", "[\"maxclients\", \"10000\"]"),
        (
            "config set maxclients 1",
            "-NOPERM User alice has no permissions to run the 'config|set' command",
        ),
        ("publish news x", ":0"),
        ("publish other x", "-NOPERM No permissions to access a channel"),
        ("incr a:1", "-NOPERM User alice has no permissions to run the 'incr' command"),
        ("nonsense", "-ERR unknown command 'nonsense', with args beginning with: "),
        // Everybody may log in, also in a transaction's place.
        ("auth default x", "+OK"),
        ("auth alice wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("acl whoami", "\"default\""),
        (
            "hello 2 auth nobody pw",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
    ]);
    admin.expect(&[
        ("acl dryrun alice get b", "\"User alice has no permissions to access the 'b' key\""),
        (
            "acl dryrun alice publish b x",
            "\"User alice has no permissions to access the 'b' channel\"",
        ),
        ("acl dryrun alice get a:2", "+OK"),
        ("acl dryrun alice get", "-ERR wrong number of arguments for 'get' command"),
        ("acl dryrun bob get a", "-ERR User 'bob' not found"),
    ]);
}

#[test]
fn access_to_keys_follows_from_what_a_command_does() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.expect(&[("acl setuser u on nopass +@all %R~r* %W~w* ~b*", "+OK")]);
    let cases = [
        "get r|strlen w|exists r w|copy r w|sort r store w|hexists w f|touch r|bitfield r get u4 0",
        "zunionstore w 2 r r|bitop not w r|eval_ro x 1 r|xread streams r 0|georadius r 1 1 1 m store w",
        "set w v|lpush w v|del w|expire w 1|hset w f v|mset w 1 w2 2|xadd w * f v|persist w",
        "set b v get|incr b|getdel b|lpop b|blpop b 0|eval x 1 b|lmove b w left left|set w v ex 1",
    ];
    for commands in cases {
        for command in commands.split('|') {
            assert_eq!(admin.call(&format!("acl dryrun u {command}")), "+OK", "{command}");
        }
    }
    let denied = "get w|strlen x|copy w r|copy r r|sort r store r|set r v|set w v get|incr w|incr r|\
                  eval x 1 r|zunionstore r 1 r|zunionstore w 1 w|bitfield r set u4 0 1|touch x|\
                  lmove r w left left|xread streams r w 0 0|blpop b w 0|getdel w|mset w 1 r 2";
    for command in denied.split('|') {
        let reply = admin.call(&format!("acl dryrun u {command}"));
        assert!(reply.contains("no permissions to access the"), "{command}: {reply}");
    }
}

#[test]
fn selectors_allow_what_one_of_them_allows_completely() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.expect(&[
        ("acl setuser u on nopass (+@write ~w*) (+@read %R~r* )", "+OK"),
        ("acl dryrun u set w 1", "+OK"),
        ("acl dryrun u get r", "+OK"),
        ("acl dryrun u get w", "\"User u has no permissions to access the 'w' key\""),
        ("acl dryrun u copy r w", "\"User u has no permissions to access the 'r' key\""),
        (
            "acl getuser u",
            "[\"flags\", [\"on\", \"nopass\", \"sanitize-payload\"], \"passwords\", [], \"commands\", \
             \"-@all\", \"keys\", \"\", \"channels\", \"\", \"selectors\", [[\"commands\", \"-@all \
             +@write\", \"keys\", \"~w*\", \"channels\", \"\"], [\"commands\", \"-@all +@read\", \
             \"keys\", \"%R~r*\", \"channels\", \"\"]]]",
        ),
        (
            "acl list",
            "[\"user default on nopass sanitize-payload ~* &* +@all\", \"user u on nopass \
             sanitize-payload resetchannels -@all (~w* resetchannels -@all +@write) (%R~r* \
             resetchannels -@all +@read)\"]",
        ),
        ("acl setuser u clearselectors", "+OK"),
        ("acl dryrun u get r", "\"User u has no permissions to run the 'get' command\""),
    ]);
}

#[test]
fn selectors_may_use_all_channels_if_new_users_may() {
    on_both(|connect| {
        let mut admin = connect();
        admin.expect(&[("acl setuser u on nopass (+subscribe)", "+OK")]);
        let denied = admin.call("acl dryrun u subscribe x");
        assert!(denied.contains("no permissions to access the 'x' channel"), "{denied}");
        admin.expect(&[
            ("config set acl-pubsub-default allchannels", "+OK"),
            ("acl setuser u clearselectors (+subscribe)", "+OK"),
            ("acl dryrun u subscribe x", "+OK"),
        ]);
    });
}

#[test]
fn wrong_rule_changes_nothing() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.expect(&[("acl setuser u on >pw ~a* +get", "+OK")]);
    let before = admin.call("acl list");
    for (rules, reason) in [
        ("off +nonsense", "Unknown command or category name in ACL"),
        ("off +@nonsense", "Unknown command or category name in ACL"),
        ("off +config|nonsense", "Unknown command or category name in ACL"),
        ("off +config|get|x", "Allowing first-arg of a subcommand is not supported"),
        ("off nonsense", "Syntax error"),
        ("off %X~a", "Syntax error"),
        ("off allkeys ~b", "Adding a pattern after the * pattern"),
        ("off allchannels &b", "Adding a pattern after the * pattern"),
        ("off #123", "The password hash must be exactly 64 characters"),
        ("off <other", "The password you are trying to remove from the user does not exist"),
        ("off (+get", "Unmatched parenthesis in acl selector starting at '(+get'"),
        ("off (+get this)", "Syntax error"),
    ] {
        let reply = admin.call(&format!("acl setuser u {rules}"));
        assert!(reply.starts_with("-ERR ") && reply.contains(reason), "{rules}: {reply}");
        assert!(!reply.contains("other"), "it shows a password: {reply}");
    }
    assert_eq!(admin.call("acl list"), before);
    admin.expect(&[("acl deluser u default", "-ERR The 'default' user cannot be removed")]);
    assert_eq!(admin.call("acl list"), before);
}

#[test]
fn changed_user_is_noticed_by_connected_clients_at_once() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.expect(&[("acl setuser u on >pw +@all ~* &*", "+OK")]);
    let (mut user, mut subscriber) = (client_of(&server, "u"), client_of(&server, "u"));
    user.expect(&[("set k v", "+OK"), ("get k", "\"v\"")]);
    subscriber.expect(&[("psubscribe n*", "[\"psubscribe\", \"n*\", :1]")]);
    admin.expect(&[("acl setuser u -get", "+OK")]);
    user.expect(&[("get k", "-NOPERM User u has no permissions to run the 'get' command")]);
    user.expect(&[("set k w", "+OK")]);
    admin.expect(&[("acl setuser u -set resetchannels &m*", "+OK")]);
    // A plain SET has a path of its own.
    user.expect(&[("set k x", "-NOPERM User u has no permissions to run the 'set' command")]);
    assert!(subscriber.is_closed(), "it may not be subscribed any more");
    // A user that is off cannot log in, and its connections remain.
    admin.expect(&[("acl setuser u off", "+OK")]);
    user.expect(&[("ping", "+PONG")]);
    let mut other = server.client();
    other
        .expect(&[("auth u pw", "-WRONGPASS invalid username-password pair or user is disabled.")]);
    assert_eq!(admin.call("client list").matches("user=u ").count(), 1);
    admin.expect(&[("acl deluser u nobody", ":1")]);
    assert!(user.is_closed(), "its user is removed");
    admin.expect(&[("get k", "\"w\"")]);
    // The own user.
    admin.expect(&[("acl setuser own on >pw +@all", "+OK")]);
    let mut own = client_of(&server, "own");
    own.send_raw(b"ACL DELUSER own\r\nPING\r\n");
    assert_eq!(own.read(), ":1");
    assert!(own.is_closed());
}

#[test]
fn default_user_applies_to_clients_that_have_not_logged_in() {
    let server = TestServer::with(|options| options.password = Some("pw".into()));
    let (mut admin, mut new) = (server.client(), server.client());
    new.expect(&[("get k", "-NOAUTH Authentication required.")]);
    admin.expect(&[
        ("auth wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("auth pw", "+OK"),
        ("config set requirepass other", "+OK"),
        // Who has logged in remains.
        ("get k", "nil"),
    ]);
    new.expect(&[
        ("auth pw", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("auth default other", "+OK"),
        ("reset", "+RESET"),
        ("get k", "-NOAUTH Authentication required."),
    ]);
    admin.expect(&[("acl setuser default nopass", "+OK")]);
    new.expect(&[("get k", "nil")]);
    admin.expect(&[("acl setuser default -get", "+OK")]);
    new.expect(&[("get k", "-NOPERM User default has no permissions to run the 'get' command")]);
}

#[test]
fn transactions_scripts_and_parked_commands_check_the_calling_user() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.expect(&[("acl setuser u on >pw ~a* +@all -incr", "+OK")]);
    let mut user = client_of(&server, "u");
    user.expect(&[
        ("multi", "+OK"),
        ("incr a", "-NOPERM User u has no permissions to run the 'incr' command"),
        ("exec", "-EXECABORT Transaction discarded because of previous errors."),
        ("multi", "+OK"),
        ("set a 1", "+QUEUED"),
        ("get a", "+QUEUED"),
    ]);
    admin.expect(&[("acl setuser u -get", "+OK")]);
    user.expect(&[(
        "exec",
        "[+OK, -NOPERM ACLs rules changed between the moment the transaction was accumulated and \
         the EXEC call. This command is no longer allowed for the following reason: no permission \
         to execute the command or subcommand]",
    )]);
    let eval =
        |user: &mut Client, script: &str| user.call_bytes(&[b"eval", script.as_bytes(), b"0"]);
    let denied =
        "-NOPERM ACL failure in script: User u has no permissions to run the 'incr' command";
    assert!(eval(&mut user, "return redis.call('incr', 'a')").starts_with(denied));
    let denied = "-NOPERM ACL failure in script: No permissions to access a key";
    assert!(eval(&mut user, "return redis.call('set', 'b', 1)").starts_with(denied));
    assert_eq!(eval(&mut user, "return redis.call('set', 'a', 2)"), "+OK");
    let script = "return {redis.acl_check_cmd('set', 'a', 1), redis.acl_check_cmd('get', 'a')}";
    assert_eq!(eval(&mut user, script), "[:1, nil]");
    // A script that is so long that it runs on another thread.
    let script = "for i = 1, 3000000 do local x = i * i end return redis.pcall('incr', 'a')";
    assert!(eval(&mut user, script).starts_with("-NOPERM ACL failure in script"));
    user.send(&[b"blpop", b"alist", b"0"]);
    eventually("it waits", || admin.call("info clients").contains("blocked_clients:1"));
    admin.expect(&[("acl setuser u resetkeys", "+OK"), ("rpush alist x", ":1")]);
    assert_eq!(user.read(), "-NOPERM No permissions to access a key");
    admin.expect(&[("llen alist", ":1")]);
}

#[test]
fn denials_are_logged_and_counted() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.expect(&[("acl setuser u on >pw +get +eval ~a", "+OK"), ("acl log", "[]")]);
    let mut user = client_of(&server, "u");
    for _ in 0..3 {
        user.call("get b");
    }
    user.call("incr a");
    user.call("auth u wrong");
    user.call_bytes(&[b"eval", b"return redis.pcall('set', 'a', 1)", b"0"]);
    let entry = |count: u64, reason: &str, context: &str, object: &str| {
        format!(
            "[\"count\", :{count}, \"reason\", \"{reason}\", \"context\", \"{context}\", \
             \"object\", \"{object}\", \"username\", \"u\", \"age-seconds\", "
        )
    };
    let log = admin.call("acl log");
    let mut at = 0;
    for expected in [
        entry(1, "command", "lua", "set"),
        entry(1, "auth", "toplevel", "auth"),
        entry(1, "command", "toplevel", "incr"),
        entry(3, "key", "toplevel", "b"),
    ] {
        let found = log[at..].find(&expected);
        at += found.unwrap_or_else(|| panic!("{expected} is not in its place in {log}"));
    }
    assert!(log.contains("user=u "), "{log}");
    assert!(admin.call("info stats").contains("acl_access_denied_key:3\r\n"));
    assert_eq!(admin.call("acl log 1").matches("entry-id").count(), 1);
    admin.expect(&[("config set acllog-max-len 2", "+OK")]);
    user.call("get c");
    assert_eq!(admin.call("acl log").matches("entry-id").count(), 2);
    admin.expect(&[("acl log reset", "+OK"), ("acl log", "[]")]);
    admin.expect(&[("acl log x", "-ERR value is not an integer or out of range")]);
}

#[test]
fn long_keys_and_names_are_shortened_in_the_log_of_denials() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.expect(&[("acl setuser u on >pw +get ~a", "+OK")]);
    let mut user = client_of(&server, "u");
    let (key, other) = (vec![b'k'; 1 << 20], [&[b'k'; 1024][..], b"x"].concat());
    for (key, more) in [(&key[..], (1 << 20) - 1024), (&other, 1), (&other[..1024], 0)] {
        assert_eq!(user.call_bytes(&[b"get", key]), "-NOPERM No permissions to access a key");
        let log = admin.call("acl log 1");
        let end = if more > 0 { format!("... ({more} more bytes)") } else { String::new() };
        assert!(log.contains(&format!("\"object\", \"{}{end}\"", "k".repeat(1024))), "{log}");
    }
    assert!(user.call_bytes(&[b"auth", &key, b"pw"]).starts_with("-WRONGPASS"));
    assert!(admin.call("acl log").len() < 10_000);
}

#[test]
fn file_of_users_is_loaded_and_saved() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.acl");
    fs::write(&file, "user alice on >pw ~a* &* +@all\n\nuser bob on nopass +get ~b (+set ~c)\n")
        .unwrap();
    let server = TestServer::with(|options| options.acl_file = Some(file.clone()));
    let mut admin = server.client();
    let (mut alice, mut bob) = (client_of(&server, "alice"), client_of(&server, "bob"));
    bob.expect(&[("get b", "nil"), ("set c 1", "+OK")]);
    let before = admin.call("acl list");
    admin.expect(&[("acl save", "+OK")]);
    let saved = fs::read_to_string(&file).unwrap();
    assert!(!saved.contains("pw") && saved.lines().count() == 3, "{saved}");
    admin.expect(&[("acl load", "+OK")]);
    assert_eq!(admin.call("acl list"), before, "the saved file has the same users");
    bob.expect(&[("get b", "nil")]);
    // A file with mistakes is refused, and all are named.
    let wrong = format!("{saved}user alice on\nuser carol +nonsense\nuser dave %~x\nnonsense\n");
    fs::write(&file, wrong).unwrap();
    let reply = admin.call("acl load");
    for mistake in [
        "Duplicate user 'alice' found on line 4",
        ":5: Error in applying operation '+nonsense': Unknown command",
        ":6: Syntax error",
        ":7: should start with user keyword",
        "no change to the previously active ACL rules was performed",
    ] {
        assert!(reply.contains(mistake), "{mistake}: {reply}");
    }
    assert_eq!(admin.call("acl list"), before);
    let options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        acl_file: Some(file.clone()),
        ..ServerOptions::default()
    };
    let Err(Error::InvalidOptions(errors)) = Server::check(&options, &[]) else {
        panic!("the wrong file was accepted")
    };
    assert!(errors[0].option == "acl_file" && errors[0].reason.contains("alice"), "{errors:?}");
    // Users that are not in the file are removed, and their clients closed.
    fs::write(&file, "user bob on nopass ~b +set\n").unwrap();
    admin.expect(&[("acl load", "+OK"), ("acl users", "[\"bob\", \"default\"]")]);
    assert!(alice.is_closed());
    bob.expect(&[("get b", "-NOPERM User bob has no permissions to run the 'get' command")]);
    fs::remove_file(&file).unwrap();
    let reply = admin.call("acl load");
    assert!(reply.starts_with("-ERR Error loading ACLs, opening file"), "{reply}");
}

#[test]
fn public_address_needs_a_default_user_with_a_password() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.acl");
    let check = |users: &str| {
        fs::write(&file, users).unwrap();
        let options = ServerOptions {
            listen: "0.0.0.0:0".parse().unwrap(),
            acl_file: Some(file.clone()),
            ..ServerOptions::default()
        };
        Server::check(&options, &[])
    };
    check("user default off\n").unwrap();
    check("user default on >pw +@all\n").unwrap();
    for open in ["user default on nopass\n", "user alice on >pw\n"] {
        assert!(matches!(check(open), Err(Error::InvalidOptions(_))), "{open}");
    }
    let server = TestServer::with(|options| {
        options.listen = "0.0.0.0:0".parse().unwrap();
        options.password = Some("pw".into());
    });
    let mut client = Client::connect(([127, 0, 0, 1], server.address.port()).into());
    client.expect(&[("auth pw", "+OK")]);
    for command in ["acl setuser default nopass", "config set requirepass"] {
        let words = command.split(' ').map(str::as_bytes);
        let words: Vec<_> = match command.starts_with("config") {
            true => words.chain([&b""[..]]).collect(),
            false => words.collect(),
        };
        let reply = client.call_bytes(&words);
        assert!(reply.contains("other machines can reach the server"), "{reply}");
    }
}

#[test]
fn memcached_and_metrics_use_the_same_users() {
    use std::io::{Read, Write};
    let server = TestServer::with(|options| {
        options.password = Some("pw".into());
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
    });
    let mut admin = server.client();
    admin.expect(&[
        ("auth pw", "+OK"),
        ("acl setuser cache on >secret +@all ~* &*", "+OK"),
        ("acl setuser limited on >secret +get ~a*", "+OK"),
    ]);
    let login = |token: &str| {
        let mut client = server.memcached_client();
        client
            .stream
            .write_all(format!("set x 0 0 {}\r\n{token}\r\n", token.len()).as_bytes())
            .unwrap();
        let mut reply = [0; 256];
        let count = client.stream.read(&mut reply).unwrap();
        (client, String::from_utf8_lossy(&reply[..count]).into_owned())
    };
    // Any name with the password of the default user, as before there were users.
    for right in ["cache secret", "default pw", "anybody pw"] {
        assert_eq!(login(right).1, "STORED\r\n", "{right}");
    }
    for wrong in ["cache pw", "limited secret", "anybody secret"] {
        assert_eq!(login(wrong).1, "CLIENT_ERROR authentication failure\r\n", "{wrong}");
    }
    let (mut client, _) = login("cache secret");
    client.expect(&[("set k 0 0 1|v|", "STORED|")]);
    admin.expect(&[("acl setuser cache -flushall", "+OK")]);
    client.stream.write_all(b"get k\r\n").unwrap();
    let mut reply = [0; 256];
    let count = client.stream.read(&mut reply).unwrap();
    assert_eq!(&reply[..count], b"CLIENT_ERROR unauthenticated\r\n");
    let (mut client, _) = login("default pw");
    client.expect(&[("get k|", "VALUE k 0 1|v|END|")]);
}

#[test]
fn categories_agree_between_commands() {
    let server = TestServer::start();
    let mut client = server.client();
    let categories = client.call("acl cat");
    let categories: Vec<_> = categories.trim_matches(['[', ']']).split(", ").collect();
    assert_eq!(categories.len(), 21);
    for category in categories {
        let category = category.trim_matches('"');
        let listed = client.call(&format!("acl cat {category}"));
        assert!(listed.len() > 2, "{category} is empty");
        assert_eq!(client.call(&format!("command list filterby aclcat {category}")), listed);
    }
    let info = client.call("command info get sort config");
    assert!(info.contains("[+@read, +@string, +@fast]"), "{info}");
    assert!(info.contains("[+@write, +@set, +@sortedset, +@list, +@slow, +@dangerous]"), "{info}");
    client.expect(&[
        ("acl cat nonsense", "-ERR Unknown category 'nonsense'"),
        (
            "acl genpass 5000",
            "-ERR ACL GENPASS argument must be the number of bits for the output \
                              password, a positive number up to 4096",
        ),
        ("acl help x", "-ERR wrong number of arguments for 'acl|help' command"),
    ]);
    assert_eq!(client.call("acl genpass").len(), 66);
    assert_eq!(client.call("acl genpass 5").len(), 4);
    assert_ne!(client.call("acl genpass"), client.call("acl genpass"));
}
