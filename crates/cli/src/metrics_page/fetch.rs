//! Fetches one page of metrics over HTTP.
//!
//! The request is HTTP/1.0, so the response is not chunked and ends when the server closes.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{Page, parse};

const TIMEOUT: Duration = Duration::from_secs(3);
/// Far above any page of the server.
const MAX_PAGE_BYTES: u64 = 16 << 20;

/// Requests the page, with a timeout per step.
pub(crate) fn fetch(address: SocketAddr, password: Option<&str>) -> Result<Page> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let bearer = password.map(|p| format!("Authorization: Bearer {p}\r\n")).unwrap_or_default();
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n{bearer}\r\n")?;
    let mut response = String::new();
    stream.take(MAX_PAGE_BYTES).read_to_string(&mut response)?;
    page(&response).map_err(|text| Error::new(ErrorKind::InvalidData, text))
}

fn page(response: &str) -> std::result::Result<Page, String> {
    let (head, body) = response.split_once("\r\n\r\n").ok_or("the response is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("the response is '{status}': {}", body.trim()));
    }
    let rows = parse(body)?;
    if !rows.iter().any(|row| row.name == "siltstone_uptime_seconds") {
        return Err("the page is not from a Siltstone server".to_owned());
    }
    Ok(Page { rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_responses_are_refused_with_the_reason() {
        let uptime = "HTTP/1.1 200 OK\r\nA: b\r\n\r\nsiltstone_uptime_seconds 1\n";
        assert_eq!(page(uptime).unwrap().rows.len(), 1);
        for (answer, word) in [
            ("-ERR unknown command\r\n", "HTTP"),
            ("HTTP/1.1 401 Unauthorized\r\n\r\nsend a password\n", "send a password"),
            ("HTTP/1.1 200 OK\r\n\r\nup 1\n", "not from"),
            ("HTTP/1.1 200 OK\r\n\r\n<html>\n", "line 1"),
        ] {
            let error = page(answer).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
