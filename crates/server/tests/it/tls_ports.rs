//! The protocols over TLS: certificates of both sides, versions, stalled and wrong clients,
//! certificates that change.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use siltstone_engine::Error;
use siltstone_server::{ClientAuth, Server, ServerOptions, TlsFiles, TlsOptions, TlsVersion};

use crate::support::{TestServer, encode};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name)
}

fn files() -> TlsFiles {
    TlsFiles { certificate: file("server.pem"), key: file("server.key"), ..TlsFiles::default() }
}

/// A server with all ports over TLS.
fn server(change: impl FnOnce(&mut ServerOptions, &mut TlsFiles)) -> TestServer {
    TestServer::with(|options| {
        let anywhere = Some("127.0.0.1:0".parse().unwrap());
        let mut files = files();
        change(options, &mut files);
        let (listen, memcached, metrics) = (anywhere, anywhere, anywhere);
        options.tls = Some(TlsOptions { listen, memcached, metrics, files });
    })
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn connect(
    address: SocketAddr,
    own: Option<&str>,
    version: &'static SupportedProtocolVersion,
) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("authority.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let certificate = CertificateDer::from_pem_file(file(&format!("{name}.pem"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    StreamOwned::new(connection, socket)
}

/// Sends bytes, and reads as many as are expected.
fn exchange(stream: &mut Stream, sent: &[u8], expected: &[u8]) {
    stream.write_all(sent).unwrap();
    let mut received = vec![0; expected.len()];
    stream.read_exact(&mut received).unwrap();
    assert!(received == expected, "{}", received[..received.len().min(200)].escape_ascii());
}

/// Whether a PING is answered.
fn answers(mut stream: Stream) -> bool {
    let mut reply = [0; 7];
    stream.write_all(b"PING\r\n").is_ok()
        && stream.read_exact(&mut reply).is_ok()
        && &reply == b"+PONG\r\n"
}

/// Whether the server closes a connection, with or without a last message.
fn closes(socket: &mut TcpStream) -> bool {
    match socket.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn all_protocols_are_served_over_both_versions() {
    let server = server(|_, _| ());
    let [resp, memcached, metrics] = server.tls.map(Option::unwrap);
    for version in [&TLS12, &TLS13] {
        let mut client = connect(resp, None, version);
        exchange(&mut client, b"PING\r\nSET k v\r\nGET k\r\n", b"+PONG\r\n+OK\r\n$1\r\nv\r\n");
        // More than fits into the buffers of sockets and TLS, in both directions and pipelined.
        let value: Vec<u8> = (0..3 << 20).map(|place: usize| (place % 251) as u8).collect();
        exchange(&mut client, &encode(&[b"SET", b"big", &value]), b"+OK\r\n");
        let header = format!("${}\r\n", value.len());
        let reply = [header.as_bytes(), &value, b"\r\n"].concat();
        exchange(&mut client, &b"GET big\r\n".repeat(3), &reply.repeat(3));
        // The last bytes before the server closes are followed by its close_notify.
        exchange(&mut client, b"QUIT\r\n", b"+OK\r\n");
        assert_eq!(client.read(&mut [0; 16]).unwrap(), 0, "a clean end");
        let mut client = connect(memcached, None, version);
        exchange(
            &mut client,
            b"set m 0 0 1\r\nx\r\nget m\r\n",
            b"STORED\r\nVALUE m 0 1\r\nx\r\nEND\r\n",
        );
        let mut client = connect(metrics, None, version);
        client.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nok\n"));
        let mut client = connect(metrics, None, version);
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        client.read_to_string(&mut page).unwrap();
        assert!(page.trim_end().ends_with("</html>"), "the page is cut");
    }
    // The port without TLS has the same data.
    assert_eq!(server.client().call("get k"), "\"v\"");
}

#[test]
fn records_that_arrive_byte_by_byte_are_understood() {
    let server = server(|_, _| ());
    let stream = connect(server.tls[0].unwrap(), None, &TLS13);
    let (mut connection, mut socket) = (stream.conn, stream.sock);
    connection.writer().write_all(b"PING\r\n").unwrap();
    let mut reply = Vec::new();
    while reply != b"+PONG\r\n" {
        let mut records = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut records).unwrap();
        }
        records.iter().for_each(|byte| socket.write_all(&[*byte]).unwrap());
        connection.read_tls(&mut socket).unwrap();
        connection.process_new_packets().unwrap();
        let mut plain = [0; 64];
        if let Ok(count) = connection.reader().read(&mut plain) {
            reply.extend_from_slice(&plain[..count]);
        }
    }
}

#[test]
fn clients_need_a_certificate_if_it_is_required() {
    for (client_auth, without, foreign) in [
        (ClientAuth::No, true, true),
        (ClientAuth::Optional, true, false),
        (ClientAuth::Required, false, false),
    ] {
        let server = server(|_, files| {
            (files.client_auth, files.client_ca) = (client_auth, Some(file("authority.pem")));
        });
        let address = server.tls[0].unwrap();
        for version in [&TLS12, &TLS13] {
            assert!(answers(connect(address, Some("client"), version)), "{client_auth:?}");
            assert_eq!(answers(connect(address, None, version)), without, "{client_auth:?}");
            let is_accepted = answers(connect(address, Some("foreign_client"), version));
            assert_eq!(is_accepted, foreign, "{client_auth:?}");
        }
    }
}

#[test]
fn older_version_than_the_minimum_is_refused() {
    let server = server(|_, files| files.min_version = TlsVersion::V1_3);
    let address = server.tls[0].unwrap();
    assert!(answers(connect(address, None, &TLS13)));
    assert!(!answers(connect(address, None, &TLS12)));
}

#[test]
fn stalled_handshake_is_closed() {
    let server = server(|options, _| options.stall_timeout = Duration::from_millis(300));
    let began = Instant::now();
    // One sends nothing, one a part of a handshake.
    let mut clients = [(); 2].map(|()| TcpStream::connect(server.tls[0].unwrap()).unwrap());
    clients[1].write_all(&[22, 3, 1, 1, 0, 1]).unwrap();
    // One that has completed its handshake may be silent.
    let mut silent = connect(server.tls[0].unwrap(), None, &TLS13);
    exchange(&mut silent, b"PING\r\n", b"+PONG\r\n");
    for client in &mut clients {
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert!(closes(client));
    }
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    exchange(&mut silent, b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn garbage_in_place_of_a_handshake_is_refused() {
    let server = server(|_, _| ());
    let [resp, memcached, metrics] = server.tls.map(Option::unwrap);
    for address in [resp, memcached, metrics] {
        for garbage in [&b"PING\r\nSET k v\r\n"[..], &[0; 5000], &[22, 3, 3, 0xff, 0xff, 1]] {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            client.write_all(garbage).unwrap();
            assert!(closes(&mut client), "{}", garbage[..4].escape_ascii());
        }
    }
    assert_eq!(server.client().call("get k"), "nil");
    let mut client = connect(metrics, None, &TLS13);
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    client.read_to_string(&mut page).unwrap();
    assert!(page.contains("siltstone_tls_errors_total 6\n"), "six for the first two ports");
}

#[test]
fn certificates_change_for_new_connections_and_wrong_ones_are_refused() {
    let server = server(|_, _| ());
    let address = server.tls[0].unwrap();
    let certificate = || {
        let mut client = connect(address, None, &TLS13);
        exchange(&mut client, b"PING\r\n", b"+PONG\r\n");
        client.conn.peer_certificates().unwrap()[0].clone()
    };
    let [old, new] = ["server.pem", "renewed.pem"]
        .map(|name| CertificateDer::from_pem_file(file(name)).unwrap());
    let mut connected = connect(address, None, &TLS13);
    exchange(&mut connected, b"PING\r\n", b"+PONG\r\n");
    let mut admin = server.client();
    let mut set = |pairs: &[(&str, &str)]| {
        let mut words = vec!["config".to_owned(), "set".to_owned()];
        for (name, value) in pairs {
            words.extend([(*name).to_owned(), file(value).display().to_string()]);
        }
        admin.call(&words.join(" "))
    };
    for wrong in [
        &[("tls-cert-file", "renewed.pem")][..],
        &[("tls-key-file", "renewed.key")],
        &[("tls-cert-file", "missing.pem"), ("tls-key-file", "renewed.key")],
        &[("tls-cert-file", "renewed.key"), ("tls-key-file", "renewed.key")],
        &[("tls-cert-file", "renewed.pem"), ("tls-key-file", "README.md")],
        &[("tls-cert-file", "renewed.pem"), ("tls-key-file", "renewed.key"), ("tls-ca-cert", "x")],
    ] {
        let reply = set(wrong);
        assert!(reply.starts_with("-ERR "), "{wrong:?}: {reply}");
        assert_eq!(certificate(), old, "{wrong:?}");
    }
    assert_eq!(set(&[("tls-cert-file", "renewed.pem"), ("tls-key-file", "renewed.key")]), "+OK");
    assert_eq!(certificate(), new);
    exchange(&mut connected, b"PING\r\n", b"+PONG\r\n");
    let reply = admin.call("config set tls-auth-clients yes");
    assert!(reply.contains("need a file of their authorities"), "{reply}");
    let authorities = file("authority.pem").display().to_string();
    let both = format!("config set tls-auth-clients yes tls-ca-cert-file {authorities}");
    assert_eq!(admin.call(&both), "+OK");
    assert!(!answers(connect(address, None, &TLS13)));
    assert!(answers(connect(address, Some("client"), &TLS13)));
    let shown = admin.call("config get tls-auth-clients");
    assert_eq!(shown, "[\"tls-auth-clients\", \"yes\"]");
}

#[test]
fn wrong_files_are_refused_at_the_start() {
    let check = |files: TlsFiles| {
        let listen = Some("127.0.0.1:0".parse().unwrap());
        let tls = TlsOptions { listen, memcached: None, metrics: None, files };
        let listen = "127.0.0.1:0".parse().unwrap();
        let options = ServerOptions { listen, tls: Some(tls), ..ServerOptions::default() };
        Server::check(&options, &[])
    };
    check(files()).unwrap();
    for wrong in [
        TlsFiles { key: file("renewed.key"), ..files() },
        TlsFiles { certificate: file("missing.pem"), ..files() },
        TlsFiles { client_auth: ClientAuth::Required, ..files() },
        TlsFiles {
            client_auth: ClientAuth::Required,
            client_ca: Some(file("server.key")),
            ..files()
        },
    ] {
        let Err(Error::InvalidOptions(errors)) = check(wrong.clone()) else {
            panic!("accepted: {wrong:?}")
        };
        assert_eq!(errors[0].option, "tls", "{errors:?}");
    }
}

#[test]
fn users_and_their_messages_work_over_tls() {
    let server = server(|options, _| options.password = Some("pw".into()));
    let address = server.tls[0].unwrap();
    let mut client = connect(address, None, &TLS13);
    exchange(&mut client, b"GET k\r\n", b"-NOAUTH Authentication required.\r\n");
    exchange(&mut client, b"AUTH pw\r\n", b"+OK\r\n");
    exchange(&mut client, b"SUBSCRIBE c\r\n", b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    let mut publisher = server.client();
    publisher.expect(&[("auth pw", "+OK"), ("publish c hello", ":1")]);
    exchange(&mut client, b"", b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n");
    // A parked command is answered by another thread.
    let mut blocked = connect(address, None, &TLS13);
    exchange(&mut blocked, b"AUTH pw\r\nBLPOP l 20\r\n", b"+OK\r\n");
    publisher.expect(&[("rpush l x", ":1")]);
    exchange(&mut blocked, b"", b"*2\r\n$1\r\nl\r\n$1\r\nx\r\n");
}

#[test]
fn redis_cli_and_redis_py_connect_with_certificates() {
    let server = server(|_, files| {
        (files.client_auth, files.client_ca) = (ClientAuth::Required, Some(file("authority.pem")));
    });
    let port = server.tls[0].unwrap().port().to_string();
    let [authority, certificate, key] =
        ["authority.pem", "client.pem", "client.key"].map(|name| file(name).display().to_string());
    let arguments = ["--tls", "--cacert", &authority, "--cert", &certificate, "--key", &key];
    let cli = Command::new("redis-cli").args(["-p", &port]).args(arguments).arg("ping").output();
    match cli {
        Ok(output) if output.status.success() => assert_eq!(output.stdout, b"PONG\n"),
        other => println!("skipped: redis-cli has no TLS or is not installed: {other:?}"),
    }
    let python = std::env::var("SILTSTONE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = format!(
        "import redis\n\
         r = redis.Redis(port={port}, ssl=True, ssl_ca_certs='{authority}', \
         ssl_certfile='{certificate}', ssl_keyfile='{key}')\n\
         assert r.set('k', b'x' * 100000) and r.get('k') == b'x' * 100000\n\
         p = r.pipeline()\n\
         for i in range(1000): p.incr('n')\n\
         assert p.execute()[-1] == 1000\n"
    );
    let has_module = Command::new(&python).args(["-c", "import redis"]).output();
    if !has_module.is_ok_and(|output| output.status.success()) {
        println!("skipped: {python} has no redis-py");
        return;
    }
    let output = Command::new(&python).args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
