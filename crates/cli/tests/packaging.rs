//! The files in `packaging/` fit the program.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
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
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let lines: Vec<_> = lines.take(2).map(Result::unwrap).collect();
    let mut client = TcpStream::connect(lines[0].rsplit(' ').next().unwrap()).unwrap();
    client.write_all(b"SET a 1\r\nGET a\r\n").unwrap();
    client.read_exact(&mut [0; 12]).unwrap();
    let address = lines[1].strip_prefix("metrics on http://").unwrap().split('/').next().unwrap();
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

#[test]
fn debian_package_has_program_unit_and_configuration() {
    let has_dpkg = Command::new("dpkg-deb").arg("--version").output().is_ok();
    if !has_dpkg {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let built = Command::new(packaging("debian/build"))
        .arg(env!("CARGO_BIN_EXE_siltstone"))
        .arg(scratch.path())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let package = scratch.path().read_dir().unwrap().next().unwrap().unwrap().path();
    let list = Command::new("dpkg-deb").arg("-c").arg(&package).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    for file in [
        "./usr/bin/siltstone",
        "./usr/lib/systemd/system/siltstone.service",
        "./etc/siltstone/siltstone.toml",
    ] {
        assert!(list.lines().any(|line| line.ends_with(file)), "{file} is not in {list}");
    }
}
