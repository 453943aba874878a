//! The configuration file of `serve`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn serve(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_siltstone");
    Command::new(program).arg("serve").args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = serve(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

#[test]
fn printed_file_gives_the_same_options_when_read() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store").display().to_string();
    let given = [
        &*dir,
        "--max-clients=7",
        "--direct",
        "--table=a",
        "--table=b=mica,capacity=1MiB",
        "--idle-timeout=3s",
        "--print-config",
    ];
    let file = printed(&given);
    let lines: Vec<_> = file.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.contains(&"max-clients = 7") && lines.contains(&"direct = true"), "{file}");
    assert!(lines.contains(&r#"table = ["a", "b=mica,capacity=1MiB"]"#), "{file}");
    assert!(file.contains("# fsync = \"everysec\""), "{file}");
    let path = write(&scratch.path().join("siltstone.toml"), &file);
    assert_eq!(printed(&["--config", &path, "--print-config"]), file);
    // The defaults as a file change nothing.
    let default_of = |line: &str| line.strip_prefix("# ").map(str::to_owned);
    let is_default = |line: &String| line.contains(" = ");
    let defaults: Vec<_> =
        printed(&["--print-config"]).lines().filter_map(default_of).filter(is_default).collect();
    assert!(defaults.len() > 10, "{defaults:?}");
    let path = write(&scratch.path().join("defaults.toml"), &defaults.join("\n"));
    assert!(serve(&["--config", &path, "--print-config"]).status.success());
}

#[test]
fn printed_number_with_a_zero_in_front_is_read_again() {
    let scratch = tempfile::tempdir().unwrap();
    let given = ["/store", "--unix-socket-mode=0770", "--password=0123", "--print-config"];
    let file = printed(&given);
    let path = write(&scratch.path().join("siltstone.toml"), &file);
    assert_eq!(printed(&["--config", &path, "--print-config"]), file);
}

#[test]
fn option_of_all_commands_stands_before_the_command_with_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let path = write(&scratch.path().join("siltstone.toml"), "dir = \"/of-the-file\"\n");
    let rest = ["serve", "--config", &path, "--print-config"];
    for before in [&["--key-file", "keys"][..], &["--key-file=keys"], &["--key-file", "serve"]] {
        let program = env!("CARGO_BIN_EXE_siltstone");
        let output = Command::new(program).args(before).args(rest).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let file = String::from_utf8(output.stdout).unwrap();
        assert!(file.contains("\ndir = \"/of-the-file\"\n"), "{file}");
    }
}

#[test]
fn option_on_the_command_line_overrides_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    let text = "dir = \"/of-the-file\"\nmax-clients = 5\ntable = [\"a\"]\n";
    let path = write(&scratch.path().join("siltstone.toml"), text);
    let given =
        ["--config", &path, "--max-clients", "9", "--table", "b", "/given", "--print-config"];
    let file = printed(&given);
    for line in ["dir = \"/given\"", "max-clients = 9", "table = [\"a\", \"b\"]"] {
        assert!(file.lines().any(|found| found == line), "{line} is not in {file}");
    }
}

#[test]
fn invalid_file_is_refused_with_all_mistakes_and_nothing_is_created() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    for (text, words) in [
        ("max-client = 5\ndirect = 1", &["'max-client'", "'max-clients'", "'direct'"][..]),
        ("max-clients = \"many\"", &["many", "--max-clients"]),
        ("listen = ", &["line 1"]),
        ("config = \"other\"", &["'config'"]),
        ("table = [1, true]", &["'table' is a list"]),
        ("unix-socket-mode = 0o770", &["'unix-socket-mode' is a string of octal digits"]),
    ] {
        let path = write(&scratch.path().join("siltstone.toml"), text);
        let output = serve(&["--config", &path, &dir.display().to_string()]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        for word in words.iter().chain(&[&*path]) {
            assert!(error.contains(word), "'{word}' is not in: {error}");
        }
    }
    let missing = serve(&["--config", "/no/such/file.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/no/such/file.toml"));
    let path = write(&scratch.path().join("siltstone.toml"), "max-clients = 5");
    let without_dir = serve(&["--config", &path]);
    assert_eq!(without_dir.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&without_dir.stderr).contains("directory"));
    assert!(!dir.exists());
}

#[test]
fn server_starts_from_a_file_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let text = format!("dir = \"{}\"\nlisten = \"127.0.0.1:0\"\n", dir.display());
    let path = write(&scratch.path().join("siltstone.toml"), &text);
    let mut server = Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(["serve", "--config", &path])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let line = BufReader::new(server.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(line.starts_with(&format!("serving {}", dir.display())), "{line}");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn sighup_reads_the_certificates_again() {
    use rustix::process::{Pid, Signal, kill_process};

    let scratch = tempfile::tempdir().unwrap();
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/certificates");
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let copy = |from: &str, to: &str| {
        std::fs::copy(made.join(from), scratch.path().join(to)).unwrap();
    };
    copy("server.pem", "server.pem");
    copy("server.key", "server.key");
    let mut server = Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(["serve", &path("store"), "--listen=127.0.0.1:0", "--tls-listen=127.0.0.1:0"])
        .args(["--tls-cert", &path("server.pem"), "--tls-key", &path("server.key")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&server);
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut next_line = |part: &str| lines.find(|line| line.contains(part)).unwrap();
    next_line("Redis's protocol over TLS on 127.0.0.1:");
    copy("renewed.pem", "server.pem");
    kill_process(pid, Signal::HUP).unwrap();
    // The key is that of the old certificate.
    let refused = next_line("certificates");
    assert!(refused.starts_with("the certificates are not changed: "), "{refused}");
    copy("renewed.key", "server.key");
    kill_process(pid, Signal::HUP).unwrap();
    assert_eq!(next_line("certificates"), "certificates were read again");
    kill_process(pid, Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
}

/// A Unix socket for `redis-cli -s`, which is skipped where it is not installed.
#[test]
fn unix_socket_is_served_replaced_when_stale_and_removed_at_the_end() {
    use rustix::process::{Pid, Signal, kill_process};
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (socket, config) = (path("redis.sock"), path("config.toml"));
    let text = format!("unix-socket = \"{socket}\"\nunix-socket-mode = \"770\"\n");
    std::fs::write(&config, text).unwrap();
    let serve = |store: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
        command.args(["serve", &path(store), "--config", &config, "--listen", "127.0.0.1:0"]);
        command
    };
    let start = || {
        let mut child = serve("store").stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("on the socket ")), "no socket");
        (child, lines)
    };
    let (mut child, _lines) = start();
    let call = |command: &str| {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        std::io::Write::write_all(&mut stream, format!("{command}\r\nQUIT\r\n").as_bytes())
            .unwrap();
        let mut reply = String::new();
        std::io::Read::read_to_string(&mut stream, &mut reply).unwrap();
        reply
    };
    assert_eq!(call("SET k v"), "+OK\r\n+OK\r\n");
    let list = call("CLIENT LIST");
    let expected = format!("addr={socket}:0 laddr={socket}:0 ");
    assert!(list.contains(&expected) && list.contains(" flags=U "), "{list}");
    assert!(call("INFO server").contains(&format!("listener1:name=unix,bind={socket}\r\n")));
    assert!(call("CONFIG GET unixsocketperm").contains("\r\n770\r\n"));
    match Command::new("redis-cli").args(["-s", &socket, "GET", "k"]).output() {
        Ok(output) => assert_eq!(output.stdout, b"v\n"),
        Err(_) => println!("skipped: redis-cli is not on the PATH"),
    }
    let refused = serve("other").output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{text}");
    assert!(text.contains("another server listens there"), "{text}");
    // A server that is killed leaves the file.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(Path::new(&socket).exists());
    let (mut child, _lines) = start();
    assert!(call("GET k").starts_with("$1\r\nv"));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!Path::new(&socket).exists());
}
