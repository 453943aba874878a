//! The harness detects faulty servers, which this test implements.
//!
//! The servers keep their keys in memory and implement enough of RESP2 for a lane. A new connection
//! stands for a restart.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use siltstone_torture::client::Connection;
use siltstone_torture::finding::Stop;
use siltstone_torture::lane::{Lane, RoundEnd, Tolerance, Workload};

const TIMEOUT: Duration = Duration::from_secs(10);

/// The fault of a server, in the write of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    /// No fault.
    None,
    /// The server acknowledges the write and drops it.
    Lost(u64),
    /// The server refuses the write and executes it.
    RefusedButExecuted(u64),
    /// The server executes the first half of a MULTI, sends no reply and closes the connection.
    Torn(u64),
}

#[derive(Default)]
struct Keys {
    values: HashMap<Vec<u8>, Vec<u8>>,
    writes: u64,
}

/// A server on a free port.
fn serve(defect: Defect) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let keys = Arc::new(Mutex::new(Keys::default()));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let keys = keys.clone();
            thread::spawn(move || serve_connection(stream.unwrap(), &keys, defect));
        }
    });
    address
}

/// Serves a connection until the client or the fault closes it.
fn serve_connection(stream: TcpStream, keys: &Mutex<Keys>, defect: Defect) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut input = BufReader::new(stream.try_clone().ok()?);
    let mut output = stream;
    loop {
        let words = command(&mut input)?;
        let mut keys = keys.lock().ok()?;
        let reply = if words[0] == b"MULTI" {
            let mut commands = Vec::new();
            let mut reply = b"+OK\r\n".to_vec();
            loop {
                let words = command(&mut input)?;
                if words[0] == b"EXEC" {
                    break;
                }
                commands.push(words);
                reply.extend(b"+QUEUED\r\n");
            }
            keys.writes += 1;
            if defect == Defect::Torn(keys.writes) {
                commands.truncate(commands.len() / 2);
                commands.iter().for_each(|words| drop(apply(&mut keys.values, words)));
                return None;
            }
            reply.extend(format!("*{}\r\n", commands.len()).bytes());
            let replies = commands.iter().flat_map(|words| apply(&mut keys.values, words));
            reply.extend(replies);
            reply
        } else if words[0] == b"GET" {
            apply(&mut keys.values, &words)
        } else {
            keys.writes += 1;
            match defect {
                Defect::Lost(write) if write == keys.writes => {
                    apply(&mut keys.values.clone(), &words)
                }
                Defect::RefusedButExecuted(write) if write == keys.writes => {
                    apply(&mut keys.values, &words);
                    b"-ERR no\r\n".to_vec()
                }
                _ => apply(&mut keys.values, &words),
            }
        };
        output.write_all(&reply).ok()?;
    }
}

/// Reads a command.
fn command(input: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let mut number = || {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse::<usize>().ok()
    };
    let count = number()?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let mut word = vec![0; line.get(1..)?.trim().parse::<usize>().ok()? + 2];
        input.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

/// Executes a command and returns the reply.
fn apply(values: &mut HashMap<Vec<u8>, Vec<u8>>, words: &[Vec<u8>]) -> Vec<u8> {
    match &words[0][..] {
        b"GET" => match values.get(&words[1]) {
            Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
            None => b"$-1\r\n".to_vec(),
        },
        b"DEL" => {
            let removed = words[1..].iter().filter(|key| values.remove(*key).is_some()).count();
            format!(":{removed}\r\n").into_bytes()
        }
        b"INCR" => {
            let value = values.entry(words[1].clone()).or_insert_with(|| b"0".to_vec());
            let number = String::from_utf8(value.clone()).unwrap().parse::<i64>().unwrap() + 1;
            *value = number.to_string().into_bytes();
            format!(":{number}\r\n").into_bytes()
        }
        b"MSET" => {
            for pair in words[1..].chunks(2) {
                values.insert(pair[0].clone(), pair[1].clone());
            }
            b"+OK\r\n".to_vec()
        }
        b"SET" => {
            values.insert(words[1].clone(), words[2].clone());
            b"+OK\r\n".to_vec()
        }
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

/// Runs a lane for 16 rounds, then checks all keys.
fn write_and_check(defect: Defect, seed: u64) -> Result<(), String> {
    let address = serve(defect);
    // Many keys, so that few writes are overwritten before the check.
    let workload =
        Workload { expiring: 0, removals: 0, values: 3000, max_bytes: 400, ..Workload::default() };
    let mut lane = Lane::new(0, workload, seed);
    let tolerance =
        Tolerance { refusals: matches!(defect, Defect::RefusedButExecuted(_)), closes: true };
    let found = |stop: Stop| format!("{stop:?}");
    let mut connection = Connection::open(address, TIMEOUT).unwrap();
    for _ in 0..16 {
        if lane.round(&mut connection, tolerance).map_err(found)? == RoundEnd::Closed {
            break;
        }
    }
    lane.check(address, TIMEOUT).map_err(found)
}

#[test]
fn correct_server_passes() {
    for seed in 0..10 {
        write_and_check(Defect::None, seed).unwrap();
    }
}

#[test]
fn dropped_acknowledged_write_is_found() {
    let found = (0..20).filter(|seed| write_and_check(Defect::Lost(40 + seed), *seed).is_err());
    // An overwritten write cannot be found.
    assert!(found.count() >= 18);
}

#[test]
fn executed_refused_write_is_found() {
    let defect = |seed| Defect::RefusedButExecuted(40 + seed);
    let found = (0..20).filter(|seed| write_and_check(defect(*seed), *seed).is_err());
    assert!(found.count() >= 18);
}

#[test]
fn torn_batch_is_found() {
    // In some of the seeds write 60 is a MULTI.
    let found = (0..60).filter(|seed| write_and_check(Defect::Torn(60), *seed).is_err());
    assert!(found.count() >= 2);
}
