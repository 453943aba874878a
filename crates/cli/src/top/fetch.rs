//! One page of metrics by HTTP.
//!
//! The request is HTTP/1.0, so the answer comes unchunked and ends when the server closes.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::model::Page;
use super::parse::parse;

const PATIENCE: Duration = Duration::from_secs(3);
/// Whatever sends more is no server of ours.
const MAX_PAGE_BYTES: u64 = 16 << 20;

/// Asks for the page; waits at most a few seconds for each step.
pub(super) fn fetch(address: SocketAddr, password: Option<&str>) -> Result<Page> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let bearer = password.map(|p| format!("Authorization: Bearer {p}\r\n")).unwrap_or_default();
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n{bearer}\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_PAGE_BYTES).read_to_string(&mut answer)?;
    page(&answer).map_err(|text| Error::new(ErrorKind::InvalidData, text))
}

fn page(answer: &str) -> std::result::Result<Page, String> {
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or("what answers there does not speak HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("the answer is '{status}': {}", body.trim()));
    }
    let rows = parse(body)?;
    if !rows.iter().any(|row| row.name == "siltstone_uptime_seconds") {
        return Err("the page is not one of a Siltstone server".to_owned());
    }
    Ok(Page { rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_answers_are_told_apart() {
        let uptime = "HTTP/1.1 200 OK\r\nA: b\r\n\r\nsiltstone_uptime_seconds 1\n";
        assert_eq!(page(uptime).unwrap().rows.len(), 1);
        for (answer, word) in [
            ("-ERR unknown command\r\n", "HTTP"),
            ("HTTP/1.1 401 Unauthorized\r\n\r\nsend a password\n", "send a password"),
            ("HTTP/1.1 200 OK\r\n\r\nup 1\n", "not one of"),
            ("HTTP/1.1 200 OK\r\n\r\n<html>\n", "line 1"),
        ] {
            let error = page(answer).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
