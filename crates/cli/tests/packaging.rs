//! The files in `packaging/` fit the program.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// The names of metrics in a text.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    words.filter(|word| word.starts_with("siltstone_")).map(str::to_owned).collect()
}

/// The metrics page of a server with one write and one lookup.
fn metrics_page() -> String {
    let scratch = tempfile::tempdir().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(["serve", "--listen=127.0.0.1:0", "--metrics=127.0.0.1:0"])
        .arg(scratch.path().join("store"))
        .arg("--backup")
        .arg(scratch.path().join("backups"))
        .arg("--backup-log-interval=1h")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut line_with = |start: &str| lines.find(|line| line.starts_with(start)).unwrap();
    let (serving, metrics) = (line_with("serving "), line_with("metrics on "));
    let mut client = TcpStream::connect(serving.rsplit(' ').next().unwrap()).unwrap();
    client.write_all(b"SET a 1\r\nGET a\r\n").unwrap();
    client.read_exact(&mut [0; 12]).unwrap();
    let address = metrics.strip_prefix("metrics on http://").unwrap().split('/').next().unwrap();
    let mut http = TcpStream::connect(address).unwrap();
    http.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    http.read_to_string(&mut page).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    page
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let served = metrics_page();
    let samples = served.lines().filter(|line| !line.starts_with('#'));
    let samples: BTreeSet<_> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    let families = served.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families: BTreeSet<_> = families.filter_map(|line| line.split(' ').next()).collect();
    for file in ["monitoring/grafana.json", "monitoring/alerts.yml"] {
        let text = std::fs::read_to_string(packaging(file)).unwrap();
        let names = metrics_in(&text);
        assert!(names.len() >= 5, "{file}: {names:?}");
        for name in names {
            // A summary without observations has no samples.
            let family = name.strip_suffix("_count").unwrap_or(&name);
            let is_served = samples.contains(&*name) || families.contains(family);
            assert!(is_served, "{file} names {name}, which the server does not have");
        }
    }
    let dashboard = std::fs::read(packaging("monitoring/grafana.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_slice(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
}

#[test]
fn configuration_of_the_package_is_valid() {
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone"))
        .args(["serve", "--print-config", "--config"])
        .arg(packaging("siltstone.toml"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.lines().any(|line| line == "dir = \"/var/lib/siltstone\""), "{text}");
}

/// Builds the Debian package in an empty directory. `None`: there is no dpkg.
fn debian_package(directory: &Path) -> Option<PathBuf> {
    Command::new("dpkg-deb").arg("--version").output().ok()?;
    let built = Command::new(packaging("debian/build"))
        .arg(env!("CARGO_BIN_EXE_siltstone"))
        .arg(directory)
        // What is in the package is tested; strong compression of a large program takes long.
        .envs([("DPKG_DEB_COMPRESSOR_TYPE", "gzip"), ("DPKG_DEB_COMPRESSOR_LEVEL", "1")])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(directory.read_dir().unwrap().next().unwrap().unwrap().path())
}

/// Needs root and redis-cli, too; see the script.
#[test]
fn debian_package_serves_after_its_installation_and_upgrade_and_leaves_the_data() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(package) = debian_package(scratch.path()) else { return };
    let checked = Command::new(packaging("debian/check")).arg(package).output().unwrap();
    let errors = String::from_utf8_lossy(&checked.stderr);
    if checked.status.code() == Some(77) {
        eprintln!("the package is not installed: {errors}");
        return;
    }
    assert!(checked.status.success(), "{errors}");
}

#[test]
fn debian_package_has_program_unit_and_configuration() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(package) = debian_package(scratch.path()) else { return };
    let list = Command::new("dpkg-deb").arg("-c").arg(&package).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    for file in [
        "./usr/bin/siltstone",
        "./usr/lib/systemd/system/siltstone.service",
        "./etc/siltstone/siltstone.toml",
        "./usr/share/man/man1/siltstone.1.gz",
        "./usr/share/man/man1/siltstone-serve.1.gz",
        "./usr/share/bash-completion/completions/siltstone",
        "./usr/share/zsh/vendor-completions/_siltstone",
        "./usr/share/fish/vendor_completions.d/siltstone.fish",
    ] {
        assert!(list.lines().any(|line| line.ends_with(file)), "{file} is not in {list}");
    }
}

/// What a maintainer script tells systemctl. Programs that record their arguments, or do nothing,
/// are in place of those that change the system, and a directory is in place of systemd's.
fn systemctl_calls(script: &str, arguments: &[&str], is_enabled: bool) -> Vec<String> {
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("log");
    let recording =
        format!("echo \"$*\" >> {}; [ \"$1\" != is-enabled ] || {is_enabled}", log.display());
    for program in ["systemctl", "getent", "adduser", "install", "chown", "chmod"] {
        let path = scratch.path().join(program);
        let does = if program == "systemctl" { recording.as_str() } else { "true" };
        std::fs::write(&path, format!("#!/bin/sh\n{does}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let text = std::fs::read_to_string(packaging(script)).unwrap();
    let text = text.replace("/run/systemd/system", &scratch.path().display().to_string());
    let mut sh = Command::new("/bin/sh");
    let path = format!("{}:/usr/bin:/bin", scratch.path().display());
    let output = sh.args(["-c", &text, script]).args(arguments).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let calls = std::fs::read_to_string(log).unwrap_or_default();
    calls.lines().filter(|call| !call.starts_with("is-enabled")).map(str::to_owned).collect()
}

#[test]
fn upgrade_of_the_package_leaves_a_disabled_service_as_it_is() {
    let configure = |version, is_enabled| {
        systemctl_calls("debian/postinst", &["configure", version], is_enabled)
    };
    let (reload, restart) = ("daemon-reload", "restart siltstone.service");
    assert_eq!(configure("", true), [reload, "enable --quiet siltstone.service", restart]);
    assert_eq!(configure("0.1.0", true), [reload, restart]);
    assert_eq!(configure("0.1.0", false), [reload]);
    let none: [&str; 0] = [];
    assert_eq!(systemctl_calls("debian/prerm", &["upgrade", "0.2.0"], true), none);
    assert_eq!(systemctl_calls("debian/prerm", &["remove"], true), ["stop siltstone.service"]);
}
