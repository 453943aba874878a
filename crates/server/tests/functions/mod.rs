//! Libraries of functions: DUMP and RESTORE, restarts, busy functions.

use siltstone::{Db, DbOptions};
use siltstone_server::{Server, ServerOptions};

use crate::redis;
use crate::support::{Client, TestServer, eventually};

/// A library with a function that returns a text.
fn library(name: &str, function: &str, text: &str) -> Vec<u8> {
    let register = format!("redis.register_function('{function}', function() return '{text}' end)");
    format!("#!lua name={name}\n{register}").into_bytes()
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

#[test]
fn libraries_outlive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("functions.rdb");
    let start = || TestServer::with(|options| options.functions_file = Some(file.clone()));
    let server = start();
    let mut client = server.client();
    for code in [library("a", "f", "one"), library("b", "g", "two")] {
        client.call_bytes(&[b"FUNCTION", b"LOAD", &code]);
    }
    client.expect(&[("FUNCTION DELETE b", "+OK")]);
    server.finish().unwrap();
    let server = start();
    let steps = [("FCALL f 0", "\"one\""), ("FCALL g 0", "-ERR Function not found")];
    server.client().expect(&steps);
    server.finish().unwrap();
    // A damaged file is refused by name, and nothing is lost.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let db = Db::open_or_create(directory.path().join("store"), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
    let options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        functions_file: Some(file.clone()),
        ..Default::default()
    };
    let error = Server::bind(vec![table], options).err().unwrap().to_string();
    assert!(error.contains("functions.rdb") && error.contains("checksum"), "{error}");
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
