//! Who does not speak memcached's text protocol, or has not given the password.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use std::io::Write;

use support::{Running, Talk};

fn server(password: Option<&str>) -> Running {
    Running::with(|options| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
        options.password = password.map(str::to_owned);
    })
}

/// What comes back for bytes before the server closes, if it does so by itself.
fn answer_and_close(server: &Running, bytes: &[u8]) -> String {
    let mut talk = server.talk();
    talk.stream.write_all(bytes).unwrap();
    talk.rest()
}

#[test]
fn binary_request_closes_the_connection_at_its_first_byte() {
    let server = server(None);
    assert_eq!(answer_and_close(&server, b"\x80"), "");
    let get = b"\x80\x00\x00\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0a";
    assert_eq!(answer_and_close(&server, &[&get[..], b"\r\nset a 0 0 1\r\nx\r\n"].concat()), "");
    // Later on it is a command that does not exist.
    let mut talk = server.talk();
    assert_eq!(talk.say(b"get a\r\n\x80\r\nget a\r\n"), "END\r\nERROR\r\nEND\r\n");
}

#[test]
fn http_request_closes_the_connection_and_writes_nothing() {
    let server = server(None);
    for first in [
        "GET / HTTP/1.1",
        "GET /a",
        "HEAD /a HTTP/1.0",
        "POST / HTTP/1.1",
        "PUT http://h/ HTTP/1.1",
        "DELETE HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "Host: h",
    ] {
        let request = format!("{first}\r\nset a 0 0 1\r\nx\r\n HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(answer_and_close(&server, request.as_bytes()), "", "{first}");
        assert_eq!(server.talk().say(b"get a\r\n"), "END\r\n", "{first}");
    }
    // Commands before it are answered, and keys may look like paths.
    let before = answer_and_close(&server, b"set /a 0 0 1\r\nx\r\nget /a\r\nGET /a HTTP/1.1\r\n");
    assert_eq!(before, "STORED\r\nVALUE /a 0 1\r\nx\r\nEND\r\n");
    let mut talk = server.talk();
    talk.expect(&[("get / HTTP/1.1|GET a|DELETE|", "END|ERROR|ERROR|")]);
}

#[test]
fn wrong_password_is_answered_and_can_be_tried_again() {
    let server = server(Some("open sesame"));
    let unknown = "CLIENT_ERROR unauthenticated|";
    let mut talk = Talk::connect(server.memcached.unwrap());
    let mut expect = |said: &str, heard: &str| {
        talk.stream.write_all(said.replace('|', "\r\n").as_bytes()).unwrap();
        let mut answer = vec![0; heard.replace('|', "\r\n").len()];
        std::io::Read::read_exact(&mut talk.stream, &mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).replace("\r\n", "|");
        assert_eq!(answer, heard, "{said}");
    };
    for said in ["get a|", "gats 0 a b|", "mn|", "stats|", "set a|", "foo|", "add a 0 0 3|u p|"] {
        expect(said, unknown);
    }
    expect("set a 0 0 7|u wrong|", "CLIENT_ERROR authentication failure|");
    expect("set a 0 0 5|wrong|", "CLIENT_ERROR bad authentication token format|");
    let long = "x".repeat(9999);
    expect(
        &format!("set a 0 0 9999|{long}|mn|"),
        &format!("CLIENT_ERROR auth token too long|{unknown}"),
    );
    // Nothing of it has been stored, and the right one counts.
    expect("set a 0 0 18|anyone open sesame|get a|", "STORED|END|");
    expect("set a 0 0 1|x|get a|", "STORED|VALUE a 0 1|x|END|");
    let stats = talk.say(b"stats\r\n");
    assert!(stats.contains("STAT auth_cmds 2\r\nSTAT auth_errors 1\r\n"), "{stats}");
    // One who quits, or does not end a line, is let go.
    assert_eq!(answer_and_close(&server, b"quit\r\n"), "");
    assert_eq!(answer_and_close(&server, &[b'a'; 3000]), "");
    // A connection that knows nothing does not get to the commands of another.
    assert_eq!(answer_and_close(&server, b"get a\r\nquit\r\n"), unknown.replace('|', "\r\n"));
}
