//! A server of S3's protocol for tests: buckets with path-style addresses, in memory.
//!
//! It has what a repository of backups needs: PUT with If-Match and If-None-Match, GET, HEAD,
//! DELETE, DeleteObjects, CopyObject and ListObjectsV2 in pages of 5. Of a signature it checks the
//! access key. All objects have the same modification time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

pub(crate) const BUCKET: &str = "backups";
const ACCESS_KEY: &str = "test-key";
pub(crate) const SECRET: &str = "test-secret";
const PAGE_KEYS: usize = 5;

pub(crate) struct S3Server {
    pub(crate) address: String,
    objects: Objects,
}

/// The contents and ETags of objects by their keys.
type Objects = Arc<Mutex<BTreeMap<String, (Vec<u8>, String)>>>;

struct Request {
    method: String,
    /// `/bucket/key`, and what follows the question mark.
    path: String,
    query: String,
    /// By their names in lower case.
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Response {
    status: u16,
    etag: String,
    body: Vec<u8>,
}

impl S3Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let objects = Objects::default();
        let served = objects.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let objects = served.clone();
                std::thread::spawn(move || serve(stream.unwrap(), &objects));
            }
        });
        S3Server { address, objects }
    }

    /// Lets `command` find the server, with the right credentials.
    pub(crate) fn provide<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("AWS_ENDPOINT", format!("http://{}", self.address))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_REGION", "us-east-1")
    }

    /// Changes the objects whose keys contain `part`; returns how many there are.
    pub(crate) fn change(&self, part: &str, change: impl Fn(&mut Vec<u8>)) -> usize {
        let mut objects = self.objects.lock().unwrap();
        let found = objects.iter_mut().filter(|(key, _)| key.contains(part));
        found.map(|(_, (content, _))| change(content)).count()
    }
}

fn serve(stream: TcpStream, objects: &Objects) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream) {
        let Response { status, etag, body } = respond(&request, &mut objects.lock().unwrap());
        let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
        let _ =
            write!(head, "Last-Modified: Sun, 29 Nov 2026 10:00:00 GMT\r\nETag: {etag}\r\n\r\n");
        let body = if request.method == "HEAD" { &[][..] } else { &body };
        if stream.get_mut().write_all(&[head.as_bytes(), body].concat()).is_err() {
            return;
        }
    }
}

/// `None` at the end of the connection.
fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|&read| read > 0)?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut first = lines[0].split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: BTreeMap<_, _> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let mut body = vec![0; headers.get("content-length").map_or(0, |len| len.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    Some(Request { method, path: decoded(path), query: decoded(query), headers, body })
}

fn respond(request: &Request, objects: &mut BTreeMap<String, (Vec<u8>, String)>) -> Response {
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    if !header("authorization").unwrap_or_default().contains(&format!("Credential={ACCESS_KEY}/")) {
        return error(403, "InvalidAccessKeyId");
    }
    let (bucket, key) = request.path[1..].split_once('/').unwrap_or((&request.path[1..], ""));
    if bucket != BUCKET {
        return error(404, "NoSuchBucket");
    }
    let found = objects.get(key);
    match (&*request.method, key) {
        ("GET", "") => list(&request.query, objects),
        ("POST", "") => {
            let text = String::from_utf8(request.body.clone()).unwrap();
            let mut deleted = String::new();
            for key in elements(&text, "Key") {
                objects.remove(key);
                let _ = write!(deleted, "<Deleted><Key>{key}</Key></Deleted>");
            }
            ok("", &format!("<DeleteResult>{deleted}</DeleteResult>"))
        }
        ("PUT", _) => {
            let is_refused = match (header("if-none-match"), header("if-match"), found) {
                (Some(_), _, Some(_)) | (_, Some(_), None) => true,
                (_, Some(expected), Some((_, etag))) => expected != etag,
                _ => false,
            };
            if is_refused {
                return error(412, "PreconditionFailed");
            }
            let content = match header("x-amz-copy-source") {
                Some(source) => {
                    objects[source.trim_start_matches('/').split_once('/').unwrap().1].0.clone()
                }
                None => request.body.clone(),
            };
            let etag = format!("\"{:x}\"", hash(&content));
            objects.insert(key.to_owned(), (content, etag.clone()));
            ok(&etag, "<CopyObjectResult></CopyObjectResult>")
        }
        ("DELETE", _) => {
            objects.remove(key);
            Response { status: 204, etag: String::new(), body: Vec::new() }
        }
        _ => match found {
            Some((content, etag)) => {
                Response { status: 200, etag: etag.clone(), body: content.clone() }
            }
            None => error(404, "NoSuchKey"),
        },
    }
}

/// A page of a list.
fn list(query: &str, objects: &BTreeMap<String, (Vec<u8>, String)>) -> Response {
    let parameters: BTreeMap<_, _> =
        query.split('&').filter_map(|parameter| parameter.split_once('=')).collect();
    let prefix = parameters.get("prefix").copied().unwrap_or_default();
    let after = parameters.get("continuation-token").copied().unwrap_or_default();
    let mut found =
        objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
    let mut text = String::from("<ListBucketResult>");
    let mut last = "";
    for (key, (content, etag)) in found.by_ref().take(PAGE_KEYS) {
        let _ = write!(
            text,
            "<Contents><Key>{key}</Key><LastModified>2026-11-29T10:00:00.000Z</LastModified>\
             <ETag>{etag}</ETag><Size>{}</Size></Contents>",
            content.len()
        );
        last = key;
    }
    if found.next().is_some() {
        let _ = write!(text, "<NextContinuationToken>{last}</NextContinuationToken>");
    }
    ok("", &(text + "</ListBucketResult>"))
}

fn ok(etag: &str, body: &str) -> Response {
    Response { status: 200, etag: etag.to_owned(), body: body.into() }
}

fn error(status: u16, code: &str) -> Response {
    let body = format!("<Error><Code>{code}</Code><Message>of the test</Message></Error>");
    Response { status, etag: String::new(), body: body.into() }
}

/// The contents of the XML elements of a name.
fn elements<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    text.split(&open).skip(1).filter_map(|rest| rest.split(&close).next()).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

/// FNV-1a: equal contents have equal ETags, as in S3.
fn hash(content: &[u8]) -> u64 {
    content.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
