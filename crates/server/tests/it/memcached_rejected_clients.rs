//! Clients of other protocols, and unauthenticated clients.

use std::io::Write;

use crate::support::{MemcachedClient, TestServer};

fn server(password: Option<&str>) -> TestServer {
    TestServer::with(|options| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
        options.password = password.map(str::to_owned);
    })
}

/// Bytes received until the server closes the connection.
fn response_until_close(server: &TestServer, bytes: &[u8]) -> String {
    let mut memcached = server.memcached_client();
    memcached.stream.write_all(bytes).unwrap();
    memcached.rest()
}

#[test]
fn binary_request_closes_the_connection_at_its_first_byte() {
    let server = server(None);
    assert_eq!(response_until_close(&server, b"\x80"), "");
    let get = b"\x80\x00\x00\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0a";
    assert_eq!(
        response_until_close(&server, &[&get[..], b"\r\nset a 0 0 1\r\nx\r\n"].concat()),
        ""
    );
    // Later it is an unknown command.
    let mut memcached = server.memcached_client();
    assert_eq!(memcached.request(b"get a\r\n\x80\r\nget a\r\n"), "END\r\nERROR\r\nEND\r\n");
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
        assert_eq!(response_until_close(&server, request.as_bytes()), "", "{first}");
        assert_eq!(server.memcached_client().request(b"get a\r\n"), "END\r\n", "{first}");
    }
    // Earlier commands are answered, and keys may look like paths.
    let before =
        response_until_close(&server, b"set /a 0 0 1\r\nx\r\nget /a\r\nGET /a HTTP/1.1\r\n");
    assert_eq!(before, "STORED\r\nVALUE /a 0 1\r\nx\r\nEND\r\n");
    let mut memcached = server.memcached_client();
    memcached.expect(&[("get / HTTP/1.1|GET a|DELETE|", "END|ERROR|ERROR|")]);
}

#[test]
fn wrong_password_is_rejected_and_can_be_retried() {
    let server = server(Some("open sesame"));
    let unauthenticated = "CLIENT_ERROR unauthenticated|";
    let mut memcached = MemcachedClient::connect(server.memcached.unwrap());
    let mut expect = |sent: &str, received: &str| {
        memcached.stream.write_all(sent.replace('|', "\r\n").as_bytes()).unwrap();
        let mut answer = vec![0; received.replace('|', "\r\n").len()];
        std::io::Read::read_exact(&mut memcached.stream, &mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).replace("\r\n", "|");
        assert_eq!(answer, received, "{sent}");
    };
    for sent in ["get a|", "gats 0 a b|", "mn|", "stats|", "set a|", "foo|", "add a 0 0 3|u p|"] {
        expect(sent, unauthenticated);
    }
    expect("set a 0 0 7|u wrong|", "CLIENT_ERROR authentication failure|");
    expect("set a 0 0 5|wrong|", "CLIENT_ERROR bad authentication token format|");
    let long = "x".repeat(9999);
    expect(
        &format!("set a 0 0 9999|{long}|mn|"),
        &format!("CLIENT_ERROR auth token too long|{unauthenticated}"),
    );
    // Nothing was stored, and the right password is accepted.
    expect("set a 0 0 18|anyone open sesame|get a|", "STORED|END|");
    expect("set a 0 0 1|x|get a|", "STORED|VALUE a 0 1|x|END|");
    let stats = memcached.request(b"stats\r\n");
    assert!(stats.contains("STAT auth_cmds 2\r\nSTAT auth_errors 1\r\n"), "{stats}");
    // `quit` and an endless line close the connection.
    assert_eq!(response_until_close(&server, b"quit\r\n"), "");
    assert_eq!(response_until_close(&server, &[b'a'; 3000]), "");
    // Commands before authentication are rejected.
    assert_eq!(
        response_until_close(&server, b"get a\r\nquit\r\n"),
        unauthenticated.replace('|', "\r\n")
    );
}

#[test]
fn client_that_has_not_logged_in_is_of_the_default_user() {
    let server = server(None);
    let (mut admin, mut memcached) = (server.client(), server.memcached_client());
    memcached.expect(&[("get k|", "END|")]);
    assert_eq!(admin.call("CLIENT KILL USER default SKIPME yes"), ":1");
    assert_eq!(memcached.rest(), "");
}
