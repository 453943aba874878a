//! Libraries of functions: replies as those of Redis, DUMP and RESTORE, restarts, busy functions.

use std::path::Path;

use siltstone::{Db, DbOptions};
use siltstone_server::{Server, ServerOptions};

use crate::redis_scripts::redis;
use crate::replicated;
use crate::support::{Client, TestServer, eventually};

/// A library with a function that returns a text.
fn library(name: &str, function: &str, text: &str) -> Vec<u8> {
    let register = format!("redis.register_function('{function}', function() return '{text}' end)");
    format!("#!lua name={name}\n{register}").into_bytes()
}

#[test]
fn functions_have_the_replies_of_redis() {
    fn load(code: &'static str) -> Vec<&'static str> {
        vec!["FUNCTION", "LOAD", code]
    }
    let failed = |text: &str| format!("-ERR Error registering functions: ERR {text}");
    let lib = "#!lua name=lib\nredis.register_function('f', function(keys, args) \
               return {keys[1], args[1], #keys} end)";
    let named = "#!lua name=lib\nredis.register_function{function_name='f', description='d', \
                 callback=function(keys) return redis.call('set', keys[1], 1) end, \
                 flags={'no-writes'}}";
    let steps: Vec<(Vec<&str>, String)> = vec![
        (load(lib), "\"lib\"".into()),
        (load(lib), "-ERR Library 'lib' already exists".into()),
        (vec!["FCALL", "f", "1", "a", "b"], "[\"a\", \"b\", :1]".into()),
        (vec!["FCALL", "F", "0"], "[]".into()),
        (
            vec!["FCALL_RO", "f", "0"],
            "-ERR Can not execute a script with write flag using *_ro command.".into(),
        ),
        (
            load("#!lua name=other\nredis.register_function('f', function() end)"),
            "-ERR Function f already exists".into(),
        ),
        (
            vec!["FUNCTION", "LIST", "LIBRARYNAME", "L*"],
            "[[\"library_name\", \"lib\", \"engine\", \"LUA\", \"functions\", [[\"name\", \"f\", \
             \"description\", nil, \"flags\", []]]]]"
                .into(),
        ),
        (vec!["FUNCTION", "LOAD", "REPLACE", named], "\"lib\"".into()),
        (
            vec!["FCALL_RO", "f", "1", "a"],
            "-ERR Write commands are not allowed from read-only scripts. script: f, on \
             @user_function:2."
                .into(),
        ),
        (load("#!lua name=x\nreturn 1"), "-ERR No functions registered".into()),
        (load("#!lua\nreturn 1"), "-ERR Library name was not given".into()),
        (load("return 1"), "-ERR Missing library metadata".into()),
        (load("#!lua name=x"), "-ERR Invalid library metadata".into()),
        (load("#!lua foo=x\n"), "-ERR Invalid metadata value given: foo=x".into()),
        (load("#!py name=x\n"), "-ERR Engine 'py' not found".into()),
        (
            load("#!lua name=a-b\n"),
            "-ERR Library names can only contain letters, numbers, or underscores(_) and must be \
             at least one character long"
                .into(),
        ),
        (
            load("#!lua name=x\na+"),
            "-ERR Error compiling function: user_function:2: '=' expected near '+'".into(),
        ),
        (
            load("#!lua name=x\nredis.register_function('a', 1)"),
            failed("second argument to redis.register_function must be a function"),
        ),
        (
            load("#!lua name=x\nredis.register_function()"),
            failed("wrong number of arguments to redis.register_function"),
        ),
        (
            load("#!lua name=x\nredis.register_function{function_name='a'}"),
            failed("redis.register_function must get a callback argument"),
        ),
        (
            load("#!lua name=x\nredis.register_function{callback=function() end}"),
            failed("redis.register_function must get a function name argument"),
        ),
        (
            load("#!lua name=x\nx = 1"),
            failed("user_function:2: Attempt to modify a readonly table"),
        ),
        (
            load(
                "#!lua name=x\nlocal f = function() end redis.register_function('a', f) \
                 redis.register_function('a', f)",
            ),
            failed("Function already exists in the library"),
        ),
        (
            load("#!lua name=x\nredis.register_function('e', function() error('no') end)"),
            "\"x\"".into(),
        ),
        (
            vec!["FCALL", "e", "0"],
            "-ERR user_function:2: no script: e, on @user_function:2.".into(),
        ),
        (vec!["FCALL", "e", "x"], "-ERR Bad number of keys provided".into()),
        (vec!["FCALL", "e", "-1"], "-ERR Number of keys can't be negative".into()),
        (
            vec!["FCALL", "e", "1"],
            "-ERR Number of keys can't be greater than number of args".into(),
        ),
        (
            vec!["FUNCTION", "STATS"],
            "[\"running_script\", nil, \"engines\", [\"LUA\", [\"libraries_count\", :2, \
             \"functions_count\", :2]]]"
                .into(),
        ),
        (vec!["FUNCTION", "DELETE", "none"], "-ERR Library not found".into()),
        (vec!["FUNCTION", "DELETE", "x"], "+OK".into()),
        (vec!["FCALL", "e", "0"], "-ERR Function not found".into()),
        (
            vec!["FUNCTION", "FLUSH", "x"],
            "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into(),
        ),
        (vec!["FUNCTION", "FLUSH"], "+OK".into()),
        (vec!["FUNCTION", "LIST"], "[]".into()),
        (vec!["FUNCTION", "KILL"], "-NOTBUSY No scripts in execution right now.".into()),
        (vec!["EVAL", "return redis.register_function == nil", "0"], ":1".into()),
    ];
    let check = |client: &mut Client, who: &str| {
        for (words, expected) in &steps {
            let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            assert_eq!(&client.call_bytes(&bytes), expected, "{who}: {words:?}");
        }
    };
    if let Some((peer, _directory)) = redis() {
        check(&mut Client::connect(peer.address), "redis");
    }
    check(&mut TestServer::start().client(), "siltstone");
}

#[test]
fn library_is_loaded_within_the_memory_of_a_script() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET script-memory-limit 4mb"), "+OK");
    let code = "#!lua name=large\nlocal text = ('x'):rep(1e8)\n\
                redis.register_function('f', function() return #text end)";
    let reply = client.call_bytes(&[b"FUNCTION", b"LOAD", code.as_bytes()]);
    assert!(reply.starts_with("-ERR") && reply.contains("not enough memory"), "{reply}");
    let small = library("small", "g", "x");
    assert_eq!(client.call_bytes(&[b"FUNCTION", b"LOAD", &small]), "\"small\"");
    assert_eq!(client.call("FCALL g 0"), "\"x\"");
}

#[test]
fn functions_run_on_every_worker_and_for_long() {
    let server = TestServer::start();
    let code = "#!lua name=counters\nlocal function add(keys) return redis.call('incr', keys[1]) end \
                redis.register_function('add', add) \
                redis.register_function('slow', function(keys) \
                local x = 0 for i = 1, 5000000 do x = x + i end return add(keys) end) \
                redis.register_function('add_hidden', function() return add({'sum'}) end) \
                redis.register_function('endless', function() while true do end end)";
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    assert_eq!(clients[0].call_bytes(&[b"FUNCTION", b"LOAD", code.as_bytes()]), "\"counters\"");
    for (round, client) in clients.iter_mut().enumerate() {
        let sum = 3 * round;
        assert_eq!(client.call("FCALL add 1 sum"), format!(":{}", sum + 1));
        assert_eq!(client.call("FCALL slow 1 sum"), format!(":{}", sum + 2));
        assert_eq!(client.call("FCALL add_hidden 0"), format!(":{}", sum + 3));
    }
    clients[0].call("CONFIG SET busy-reply-threshold 20");
    clients[0].send(&[b"FCALL", b"endless", b"0"]);
    eventually("others are refused", || clients[1].call("PING").starts_with("-BUSY"));
    assert!(clients[1].call("FUNCTION STATS").starts_with('['));
    assert_eq!(clients[1].call("FUNCTION KILL"), "+OK");
    assert!(clients[0].read().starts_with("-ERR Script killed by user"));
    let endless = "#!lua name=endless\nwhile true do end";
    let reply = clients[0].call_bytes(&[b"FUNCTION", b"LOAD", endless.as_bytes()]);
    assert_eq!(reply, "-ERR FUNCTION LOAD timeout");
}

#[test]
fn libraries_move_by_dump_and_restore() {
    let server = TestServer::start();
    let mut client = server.client();
    let load = |client: &mut Client, code: &[u8]| {
        client.call_bytes(&[b"FUNCTION", b"LOAD", b"REPLACE", code])
    };
    assert_eq!(load(&mut client, &library("a", "f", "one")), "\"a\"");
    assert_eq!(load(&mut client, &library("b", "g", "two")), "\"b\"");
    let payload = client.call_for_bulk(&[b"FUNCTION", b"DUMP"]).unwrap();
    let restore = |client: &mut Client, policy: &[&[u8]]| {
        client.call_bytes(&[&[&b"FUNCTION"[..], b"RESTORE", &payload], policy].concat())
    };
    assert_eq!(restore(&mut client, &[]), "-ERR Library a already exists");
    assert_eq!(load(&mut client, &library("a", "f", "other")), "\"a\"");
    assert_eq!(load(&mut client, &library("c", "h", "three")), "\"c\"");
    assert_eq!(restore(&mut client, &[b"REPLACE"]), "+OK");
    client.expect(&[("FCALL f 0", "\"one\""), ("FCALL h 0", "\"three\"")]);
    assert_eq!(restore(&mut client, &[b"FLUSH"]), "+OK");
    client.expect(&[("FCALL g 0", "\"two\""), ("FCALL h 0", "-ERR Function not found")]);
    // A function with the name of another library's: nothing is restored.
    assert_eq!(load(&mut client, &library("a", "other", "x")), "\"a\"");
    assert_eq!(load(&mut client, &library("d", "f", "y")), "\"d\"");
    assert_eq!(restore(&mut client, &[b"REPLACE"]), "-ERR Function f already exists");
    client.expect(&[("FCALL other 0", "\"x\""), ("FCALL f 0", "\"y\"")]);
    let mut damaged = payload.clone();
    damaged[5] ^= 1;
    let reply = client.call_bytes(&[b"FUNCTION", b"RESTORE", &damaged]);
    assert_eq!(reply, "-ERR DUMP payload version or checksum are wrong");
    let unknown = restore(&mut client, &[b"MERGE"]);
    assert!(unknown.starts_with("-ERR Wrong restore policy given"), "{unknown}");
    if let Some((peer, _directory)) = redis() {
        let mut redis = Client::connect(peer.address);
        assert_eq!(restore(&mut redis, &[]), "+OK");
        redis.expect(&[("FCALL f 0", "\"one\"")]);
        let back = redis.call_for_bulk(&[b"FUNCTION", b"DUMP"]).unwrap();
        client.expect(&[("FUNCTION FLUSH", "+OK")]);
        assert_eq!(client.call_bytes(&[b"FUNCTION", b"RESTORE", &back]), "+OK");
        client.expect(&[("FCALL g 0", "\"two\"")]);
    }
}

fn with_functions_in(dir: &Path) -> TestServer {
    TestServer::with(|options| options.functions_dir = Some(dir.to_owned()))
}

fn names_in(dir: &Path) -> Vec<String> {
    let names = dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn libraries_outlive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let server = with_functions_in(dir);
    let mut client = server.client();
    assert_eq!(names_in(dir), [""; 0]);
    for code in [library("a", "f", "one"), library("b", "g", "two"), library("A", "F", "three")] {
        client.call_bytes(&[b"FUNCTION", b"LOAD", b"REPLACE", &code]);
    }
    client.expect(&[("FUNCTION DELETE B", "+OK")]);
    server.finish().unwrap();
    for steps in [
        &[("FCALL f 0", "\"three\""), ("FCALL g 0", "-ERR Function not found")][..],
        &[("FUNCTION FLUSH", "+OK"), ("FCALL f 0", "-ERR Function not found")],
        &[("FCALL f 0", "-ERR Function not found"), ("FUNCTION LIST", "[]")],
    ] {
        let server = with_functions_in(dir);
        server.client().expect(steps);
        server.finish().unwrap();
        assert_eq!(names_in(dir).len(), 1);
    }
}

#[test]
fn file_of_libraries_of_earlier_programs_is_replaced_by_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let (dir, file) = (directory.path(), directory.path().join("functions.rdb"));
    // What such a file has is the payload of FUNCTION DUMP.
    let payload = {
        let server = TestServer::start();
        let mut client = server.client();
        client.call_bytes(&[b"FUNCTION", b"LOAD", &library("a", "f", "one")]);
        client.call_bytes(&[b"FUNCTION", b"LOAD", &library("b", "g", "two")]);
        client.call_for_bulk(&[b"FUNCTION", b"DUMP"]).unwrap()
    };
    // A damaged file is refused by name, and nothing is lost.
    let mut damaged = payload.clone();
    damaged[4] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let db = Db::open_or_create(directory.path().join("store"), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
    let options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        functions_dir: Some(dir.to_owned()),
        ..Default::default()
    };
    let error = Server::bind(vec![table], options).err().unwrap().to_string();
    assert!(error.contains("functions.rdb") && error.contains("checksum"), "{error}");
    assert!(file.exists());
    std::fs::write(&file, payload).unwrap();
    let server = with_functions_in(dir);
    assert!(!file.exists());
    let mut client = server.client();
    client.expect(&[("FCALL f 0", "\"one\""), ("FUNCTION DELETE a", "+OK")]);
    server.finish().unwrap();
    let server = with_functions_in(dir);
    let steps = [("FCALL g 0", "\"two\""), ("FCALL f 0", "-ERR Function not found")];
    server.client().expect(&steps);
    server.finish().unwrap();
}

#[test]
fn libraries_of_a_replicated_table_outlive_a_restart_and_the_removal_of_all_keys() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("node");
    let start = || TestServer::replicated_groups(&dir, replicated::options(), Some(4));
    let server = start();
    let mut client = server.client();
    // Commands of a pipeline see it, in force here before its reply.
    for code in [library("a", "f", "one"), library("b", "g", "two")] {
        client.send(&[b"FUNCTION", b"LOAD", &code]);
    }
    client.send(&[b"FCALL", b"g", b"0"]);
    let replies = [client.read(), client.read(), client.read()];
    assert_eq!(replies, ["\"a\"", "\"b\"", "\"two\""]);
    // Programs for Redis Cluster load a library at each master.
    let again = client.call_bytes(&[b"FUNCTION", b"LOAD", &library("a", "f", "one")]);
    assert_eq!(again, "\"a\"");
    let other = client.call_bytes(&[b"FUNCTION", b"LOAD", &library("a", "f", "other")]);
    assert_eq!(other, "-ERR Library 'a' already exists");
    let dump = client.call_for_bulk(&[b"FUNCTION", b"DUMP"]).unwrap();
    client.expect(&[("FUNCTION FLUSH", "+OK"), ("FCALL f 1 a", "-ERR Function not found")]);
    // As a program that sends it to each master.
    for _ in 0..2 {
        assert_eq!(client.call_bytes(&[b"FUNCTION", b"RESTORE", &dump]), "+OK");
    }
    let replaced = client.call_bytes(&[b"FUNCTION", b"LOAD", b"REPLACE", &library("a", "f", "x")]);
    assert_eq!(replaced, "\"a\"");
    let conflict = client.call_bytes(&[b"FUNCTION", b"RESTORE", &dump]);
    assert_eq!(conflict, "-ERR Library a already exists");
    assert_eq!(client.call_bytes(&[b"FUNCTION", b"RESTORE", &dump, b"REPLACE"]), "+OK");
    client.expect(&[
        ("FCALL f 1 a", "\"one\""),
        ("FCALL f 1 b", "\"one\""),
        ("SET a 1", "+OK"),
        ("FLUSHALL", "+OK"),
        ("DBSIZE", ":0"),
        ("KEYS *", "[]"),
        ("FUNCTION DELETE b", "+OK"),
        ("MULTI", "+OK"),
    ]);
    let refused = client.call("FUNCTION DELETE a");
    assert!(refused.starts_with("-ERR a transaction on a replicated table cannot"), "{refused}");
    client.expect(&[("DISCARD", "+OK")]);
    server.finish().unwrap();
    let server = start();
    server.client().expect(&[
        ("FCALL f 1 a", "\"one\""),
        ("FCALL g 1 a", "-ERR Function not found"),
        ("FUNCTION DELETE A", "+OK"),
        ("FCALL f 1 a", "-ERR Function not found"),
    ]);
    server.finish().unwrap();
}

#[test]
fn busy_function_is_ended_by_function_kill_alone() {
    let server = TestServer::start();
    let (mut busy, mut client) = (server.client(), server.client());
    client.expect(&[("CONFIG SET busy-reply-threshold 20", "+OK")]);
    let code = b"#!lua name=l\nredis.register_function('f', function() while true do end end)";
    client.call_bytes(&[b"FUNCTION", b"LOAD", code]);
    for (call, own, other) in [
        (vec![&b"FCALL"[..], b"f", b"0"], "FUNCTION KILL", "SCRIPT KILL"),
        (vec![b"EVAL", b"while true do end", b"0"], "SCRIPT KILL", "FUNCTION KILL"),
    ] {
        busy.send(&call);
        eventually("it is busy", || client.call("GET k").starts_with("-BUSY"));
        let stats = client.call("FUNCTION STATS");
        assert_eq!(stats.contains("\"f\""), own == "FUNCTION KILL", "{stats}");
        let reply = client.call(other);
        assert!(reply.starts_with("-BUSY") && reply.contains(own), "{reply}");
        client.expect(&[(own, "+OK")]);
        assert!(busy.read().contains(&format!("killed by user with {own}")));
        eventually("it ends", || client.call("GET k") == "nil");
    }
}
