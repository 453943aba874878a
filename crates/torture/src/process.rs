//! The server process: start, readiness, signals, limits, standard error.
//!
//! The server listens on a free loopback port and prints the port on standard error. A thread
//! copies standard error to a file, which findings include. Dropping a `Server` kills and reaps the
//! process.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

/// Time limit for start and exit; exceeding it is a finding. It is long because the machine may be
/// busy.
pub const START_STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The values of `--fsync`.
pub const FSYNC: [&str; 3] = ["always", "everysec", "no"];

/// The arguments of a server process.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The `siltstone` program.
    pub program: PathBuf,
    /// The store's directory.
    pub store: PathBuf,
    /// The value of `--table`: `default=ENGINE,options`.
    pub table: String,
    /// The value of `--fsync`.
    pub fsync: &'static str,
    /// Additional arguments of `serve`.
    pub more: Vec<String>,
    /// The file that standard error is appended to.
    pub log: PathBuf,
}

/// A process of `siltstone serve`.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: Option<SocketAddr>,
    ready: Receiver<SocketAddr>,
    log: PathBuf,
    log_from: u64,
    ended: Option<ExitStatus>,
}

impl Server {
    /// Starts the process without waiting for readiness.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn(launch: &Launch) -> io::Result<Self> {
        let mut log = OpenOptions::new().create(true).append(true).open(&launch.log)?;
        let log_from = log.metadata()?.len();
        let mut child = Command::new(&launch.program)
            .arg("serve")
            .arg(&launch.store)
            .args(["--listen", "127.0.0.1:0", "--table", &launch.table, "--fsync", launch.fsync])
            .args(&launch.more)
            .env_remove("SILTSTONE_PASSWORD")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take();
        let (sender, ready) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr?).split(b'\n') {
                let line = line.ok()?;
                let text = String::from_utf8_lossy(&line).into_owned();
                if let Some(address) = text.strip_prefix("serving ").and_then(last_word) {
                    let _ = sender.send(address);
                }
                log.write_all(&[&line[..], b"\n"].concat()).ok()?;
            }
            Some(())
        });
        Ok(Server { child, address: None, ready, log: launch.log.clone(), log_from, ended: None })
    }

    /// Starts the process and waits until it listens.
    ///
    /// # Errors
    /// The server does not start: its exit status and standard error.
    pub fn start(launch: &Launch) -> Result<Self, String> {
        let program = launch.program.display();
        let mut server =
            Server::spawn(launch).map_err(|error| format!("{program} does not start: {error}"))?;
        match server.ready.recv_timeout(START_STOP_TIMEOUT) {
            Ok(address) => {
                server.address = Some(address);
                Ok(server)
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Err(format!(
                "the server does not listen after {START_STOP_TIMEOUT:?}; {}",
                server.stderr_tail()
            )),
            Err(_) => {
                let status = server.wait(START_STOP_TIMEOUT)?;
                Err(format!(
                    "the server does not open the store: {status}; {}",
                    server.stderr_tail()
                ))
            }
        }
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL and waits for the process to exit.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.ended = self.child.wait().ok();
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        if self.ended.is_none() {
            let _ = kill_process(self.rustix_pid(), Signal::TERM);
        }
    }

    /// The exit status, if the process has exited.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Waits for the process to exit.
    ///
    /// # Errors
    /// The process is still running after `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus, String> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if Instant::now() > until {
                return Err(format!(
                    "the server does not end after {timeout:?}; {}",
                    self.stderr_tail()
                ));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends SIGTERM and waits for exit status 0.
    ///
    /// # Errors
    /// The process exits with another status, or does not exit.
    pub fn stop(&mut self) -> Result<(), String> {
        self.terminate();
        let status = self.wait(START_STOP_TIMEOUT)?;
        if status.success() {
            return Ok(());
        }
        Err(format!("after SIGTERM the server ends with {status}; {}", self.stderr_tail()))
    }

    /// Sets the soft resource limit of the running process; `None` restores the maximum.
    ///
    /// # Errors
    /// The process has exited, or the system refuses.
    pub fn limit(&self, resource: Resource, soft: Option<u64>) -> io::Result<Rlimit> {
        let pid = Some(self.rustix_pid());
        let now = rustix::process::getrlimit(resource);
        let limit = Rlimit { current: soft.or(now.maximum), maximum: now.maximum };
        Ok(prlimit(pid, resource, limit)?)
    }

    /// The highest open file descriptor of the process.
    pub fn highest_file(&self) -> u64 {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).into_iter().flatten();
        let names = files.flatten().map(|file| file.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).max().unwrap_or(0)
    }

    /// The resident memory of the process, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    }

    /// The last lines of the process's standard error.
    pub fn stderr_tail(&self) -> String {
        // The copying thread may be a few lines behind.
        thread::sleep(Duration::from_millis(20));
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(text.get(self.log_from as usize..).unwrap_or_default());
        let lines: Vec<_> = text.lines().collect();
        let lines = &lines[lines.len().saturating_sub(12)..];
        if lines.is_empty() {
            "standard error is empty".into()
        } else {
            format!("standard error:\n{}", lines.join("\n"))
        }
    }

    fn rustix_pid(&self) -> Pid {
        // The ID of a child process is positive.
        Pid::from_raw(self.child.id() as i32).unwrap_or(Pid::INIT)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
        }
    }
}

fn last_word(text: &str) -> Option<SocketAddr> {
    text.rsplit(' ').next()?.parse().ok()
}

/// The result of a command of the `siltstone` program.
#[derive(Debug)]
pub struct Answer {
    /// The exit status; `None` after a signal.
    pub status: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Answer {
    /// Status and output for findings; long output is truncated.
    pub fn summary(&self) -> String {
        let cut = |text: &str| -> String {
            let short: String = text.chars().take(1500).collect();
            if short.len() < text.len() { short + " …" } else { short }
        };
        let status = self.status.map_or("a signal".to_owned(), |status| format!("status {status}"));
        format!("{status}\n{}{}", cut(&self.out), cut(&self.err))
    }
}

/// Runs a command of the `siltstone` program until it exits.
///
/// # Errors
/// It cannot be started.
pub fn command(program: &Path, words: &[&str]) -> io::Result<Answer> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) })
}
