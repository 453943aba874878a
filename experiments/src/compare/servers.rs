//! Our server beside Redis, under `redis-benchmark`.
//!
//! ```text
//! for each run and server:
//!   a fresh process ─▶ each command of COMMANDS, pipelined and one at a time ─▶ Sample
//! Samples of all runs ─▶ median, smallest and largest of each figure ─▶ table
//! ```
//!
//! All servers and the load share the cores of this machine. Redis keeps an append-only file that
//! is synced every second, as `lsm` syncs its WAL by default; `mica` is in memory.
//!
//! Invariants: servers take turns within a run, so that a slow minute meets all of them. A command
//! that a server refuses has no sample, never a sample of errors.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use siltstone_engine::{Error, Result};
use tempfile::TempDir;

use super::table::{cell, median};
use crate::net::servers::{comes_to_listen, free_address, siltstone};

/// The servers, in the order of the columns.
pub const SERVERS: &[&str] = &["lsm", "mica", "redis"];

/// The requests in flight per connection, and the share of all requests that are sent that way.
const DEPTHS: [(u32, f64); 2] = [(32, 1.0), (1, 0.1)];
const CONNECTIONS: &str = "50";

/// Each command, and the arguments of `redis-benchmark` that send it.
const COMMANDS: &[(&str, &[&str])] = &[
    ("SET", &["-t", "set"]),
    ("GET", &["-t", "get"]),
    ("INCR", &["-t", "incr"]),
    ("MSET of 10", &["-t", "mset"]),
    ("HSET", &["-t", "hset"]),
    ("HGET", &["hget", "myhash", "element:__rand_int__"]),
    ("LPUSH", &["-t", "lpush"]),
    ("RPOP", &["-t", "rpop"]),
    ("SADD", &["-t", "sadd"]),
    ("ZADD", &["-t", "zadd"]),
    ("ZRANGE of 100", &["zrange", "myzset", "0", "99"]),
    ("EVAL of INCR", &["eval", "return redis.call('incr', KEYS[1])", "1", "count:__rand_int__"]),
    ("PUBLISH", &["publish", "channel", "message"]),
];

/// What one call of `redis-benchmark` measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    server: String,
    command: &'static str,
    depth: u32,
    ops_per_second: f64,
    p99_ms: f64,
    longest_ms: f64,
    /// CPU time of the server.
    cpu_us_per_op: f64,
}

/// A figure, and what it is called.
type Figure = (&'static str, fn(&Sample) -> f64);

const FIGURES: &[Figure] = &[
    ("k/s", |sample| sample.ops_per_second / 1e3),
    ("p99 ms", |sample| sample.p99_ms),
    ("longest ms", |sample| sample.longest_ms),
    ("server's CPU µs per operation", |sample| sample.cpu_us_per_op),
];

/// The load of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Requests of each pipelined command; a tenth of it where requests are sent one at a time.
    pub requests: u64,
    /// Number of distinct keys, fields, members and elements.
    pub keys: u64,
}

/// The number of calls of `redis-benchmark` per server and run.
pub fn calls() -> u64 {
    (COMMANDS.len() * DEPTHS.len()) as u64
}

/// Measures a fresh server with all commands; `on_call` is called before each.
///
/// # Errors
/// If the server or `redis-benchmark` cannot be started.
pub fn measure(server: &str, load: Load, on_call: &mut dyn FnMut(&str)) -> Result<Vec<Sample>> {
    let process = ServerProcess::start(server)?;
    let mut samples = Vec::new();
    for &(command, arguments) in COMMANDS {
        for (depth, share) in DEPTHS {
            on_call(command);
            let requests = ((load.requests as f64 * share) as u64).max(1);
            let before = process.cpu_seconds();
            let Some([rate, p99_ms, longest_ms]) =
                benchmark(process.address, arguments, depth, requests, load.keys)?
            else {
                continue;
            };
            let cpu_us_per_op = 1e6 * (process.cpu_seconds() - before) / requests as f64;
            samples.push(Sample {
                server: server.to_owned(),
                command,
                depth,
                ops_per_second: rate,
                p99_ms,
                longest_ms,
                cpu_us_per_op,
            });
        }
    }
    Ok(samples)
}

/// The table of all samples, in Markdown.
pub fn table(samples: &[Sample], servers: &[String]) -> String {
    let mut text = format!("| command | in flight | figure | {} |\n", servers.join(" | "));
    let _ = writeln!(text, "| --- | --- | --- |{}", " --: |".repeat(servers.len()));
    for (command, _) in COMMANDS {
        for (depth, _) in DEPTHS {
            for (figure, value) in FIGURES {
                let of = |server: &String| -> Vec<f64> {
                    let is_same = |sample: &&Sample| {
                        sample.server == *server
                            && sample.command == *command
                            && sample.depth == depth
                    };
                    samples.iter().filter(is_same).map(*value).collect()
                };
                let cells: Vec<_> = servers.iter().map(|server| cell(&of(server))).collect();
                if cells.iter().any(Option::is_some) {
                    let cells = cells.iter().map(|cell| cell.as_deref().unwrap_or("–"));
                    let cells = cells.collect::<Vec<_>>().join(" | ");
                    let _ = writeln!(text, "| {command} | {depth} | {figure} | {cells} |");
                }
            }
        }
    }
    text
}

/// The medians of the rates of one server over those of another: a group of two numbers per
/// command, by requests in flight.
pub fn ratios(samples: &[Sample], ours: &str, other: &str) -> Vec<(&'static str, [f64; 2])> {
    let rate = |server: &str, command: &str, depth: u32| {
        let of = samples.iter().filter(|sample| {
            sample.server == server && sample.command == command && sample.depth == depth
        });
        median(&of.map(|sample| sample.ops_per_second).collect::<Vec<_>>())
    };
    let commands = COMMANDS.iter().filter_map(|&(command, _)| {
        let ratio = |(depth, _)| Some(rate(ours, command, depth)? / rate(other, command, depth)?);
        let [Some(deep), Some(single)] = DEPTHS.map(ratio) else { return None };
        Some((command, [deep, single]))
    });
    commands.collect()
}

/// Operations per second, p99 and the longest in milliseconds; `None` if the server refuses the
/// command.
fn benchmark(
    address: SocketAddr,
    arguments: &[&str],
    depth: u32,
    requests: u64,
    keys: u64,
) -> Result<Option<[f64; 3]>> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &address.port().to_string(), "-c", CONNECTIONS, "--csv"]);
    command.args(["-P", &depth.to_string(), "-n", &requests.to_string()]);
    command.args(["-r", &keys.to_string(), "-d", "100"]).args(arguments);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|error| Error::io("start", "redis-benchmark", &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().rev().find_map(figures).filter(|_| output.status.success()))
}

/// The figures of a row "test","rps","avg","min","p50","p95","p99","max".
fn figures(row: &str) -> Option<[f64; 3]> {
    let numbers: Vec<f64> = row
        .split("\",\"")
        .skip(1)
        .map(|field| field.trim_matches('"').parse().ok())
        .collect::<Option<_>>()?;
    let [rate, _, _, _, _, p99, longest] = numbers[..] else { return None };
    Some([rate, p99, longest])
}

/// A server process; it ends when this is dropped.
struct ServerProcess {
    child: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl ServerProcess {
    fn start(server: &str) -> Result<Self> {
        // Below the current directory: the temporary directory of the system may be in memory.
        let directory = TempDir::new_in(".")
            .map_err(|error| Error::io("create a directory in", ".", &error))?;
        let address = free_address()?;
        let mut command = command(server, directory.path(), address)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| Error::io("start", server, &error))?;
        let mut process = ServerProcess { child, address, _directory: directory };
        if !comes_to_listen(&mut process.child, address) {
            return Err(Error::Invalid(format!("{server} does not listen on {address}")));
        }
        Ok(process)
    }

    /// CPU time of the process so far.
    fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        stat.ok().and_then(|stat| cpu_ticks(&stat, false)).unwrap_or(0) as f64
            / rustix::param::clock_ticks_per_second() as f64
    }
}

/// User and system time of a process in a line of `/proc/PID/stat`, whose second field may have
/// spaces; or that of its children, and theirs, that have been waited for.
pub(super) fn cpu_ticks(stat: &str, of_children: bool) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let first = if of_children { 13 } else { 11 };
    let mut fields = rest.split(' ').skip(first).map(|field| field.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(server: &str, directory: &Path, address: SocketAddr) -> Result<Command> {
    if server == "redis" {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
        command.args(["--loglevel", "warning", "--dir"]).arg(directory);
        return Ok(command);
    }
    let table = match server {
        "mica" => "default=mica,mode=cache,memory=2GiB",
        _ => "default=lsm",
    };
    let mut command = Command::new(siltstone()?);
    command.arg("serve").arg(directory.join("store"));
    command.args(["--listen", &address.to_string(), "--table", table]);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_row_are_parsed_and_other_lines_are_not() {
        let row =
            "\"GET\",\"99900.10\",\"0.251\",\"0.080\",\"0.247\",\"0.343\",\"0.415\",\"1.607\"";
        assert_eq!(figures(row), Some([99900.10, 0.415, 1.607]));
        assert_eq!(figures("\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\""), None);
        assert_eq!(figures("Error from server: ERR unknown command"), None);
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 7 2 0";
        assert_eq!([false, true].map(|of| cpu_ticks(stat, of)), [Some(300), Some(9)]);
    }

    #[test]
    fn table_has_medians_and_a_dash_for_what_a_server_refuses() {
        let sample = |server: &str, command, ops_per_second| Sample {
            server: server.to_owned(),
            command,
            depth: 32,
            ops_per_second,
            p99_ms: 1.0,
            longest_ms: 2.0,
            cpu_us_per_op: 3.0,
        };
        let mut samples = [100e3, 300e3, 200e3].map(|rate| sample("lsm", "SET", rate)).to_vec();
        samples.push(sample("mica", "GET", 500e3));
        let text = table(&samples, &["lsm", "mica"].map(str::to_owned));
        assert!(text.contains("| SET | 32 | k/s | 200 (100 to 300) | – |\n"), "{text}");
        assert!(text.contains("| GET | 32 | k/s | – | 500 |\n"), "{text}");
        assert!(!text.contains("HSET"), "{text}");
        assert!(ratios(&samples, "lsm", "mica").is_empty());
    }
}
