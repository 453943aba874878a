//! `failing-calls`: system calls that fail with EIO or ENOSPC for a while, by `strace`.
//!
//! `strace -p PID -e inject=CALL:error=E:when=N+M` attaches to the running server and lets some
//! calls fail without executing them. The table may refuse writes until it is opened again. After
//! the restart every acknowledged write is visible and no refused one: a call that failed wrote
//! nothing, and there was no power cut.
//!
//! `write` is not among the calls, because the server also uses it to wake its threads. The store
//! writes its files by `pwrite64`.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::fault::Fault;
use super::steps::{StopSignal, random_delay, restart, run_rounds};
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::Tolerance;
use crate::process::Server;

pub(super) struct FailingCalls;

/// Calls that change files.
const CALLS: &[&str] = &[
    "pwrite64",
    "fdatasync",
    "fsync",
    "fdatasync,fsync",
    "ftruncate",
    "openat",
    "rename,renameat,renameat2",
    "fallocate",
    "unlink,unlinkat",
    "msync",
    "mmap",
];
/// The injected errors.
const ERRORS: &[&str] = &["EIO", "ENOSPC"];

impl Fault for FailingCalls {
    fn name(&self) -> &'static str {
        "failing-calls"
    }

    fn about(&self) -> &'static str {
        "EIO or ENOSPC from system calls (strace), then a restart: no write is lost or comes back"
    }

    fn rounds_per_history(&self) -> u64 {
        8
    }

    fn obstacle(&self) -> Option<String> {
        let version = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
        let is_installed = version.is_ok_and(|status| status.success());
        (!is_installed).then(|| "strace is not installed (a package of that name)".to_owned())
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        run_rounds(history, |history, mut server| {
            let calls = *history.random.pick(CALLS);
            let error = *history.random.pick(ERRORS);
            let first = history.random.between(1, 20);
            let step = history.random.between(1, 5);
            let inject = match history.random.percent(40) {
                true => format!("{calls}:error={error}:when={first}"),
                false => format!("{calls}:error={error}:when={first}+{step}"),
            };
            let delay = random_delay(&mut history.random);
            let duration = history.random.duration(Duration::from_millis(300));
            let ending = StopSignal::draw(&mut history.random);
            history.note(format!(
                "strace inject={inject} after {delay:?}, for {duration:?}; then {}",
                ending.signal()
            ));
            let log = history.root.join("strace.log");
            let tolerance = Tolerance { refusals: true, closes: true };
            history.load(&mut server, tolerance, |_, server| {
                thread::sleep(delay);
                let mut strace = Strace::attach(server, calls, &inject, &log)?;
                thread::sleep(duration);
                strace.detach();
                if ending == StopSignal::Kill {
                    server.kill();
                } else if server.stop().is_err() && server.ended().is_none() {
                    let tail = server.stderr_tail();
                    return Err(Stop::Finding(format!("SIGTERM does not end the server; {tail}")));
                }
                Ok(())
            })?;
            restart(history)
        })
    }
}

/// An attached `strace` process.
struct Strace(Child);

impl Strace {
    fn attach(
        server: &Server,
        calls: &str,
        inject: &str,
        log: &std::path::Path,
    ) -> std::io::Result<Self> {
        let log = File::create(log)?;
        Command::new("strace")
            .args(["-f", "-q", "-p", &server.pid().to_string()])
            .args(["-e", &format!("trace={calls}"), "-e", &format!("inject={inject}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map(Strace)
    }

    /// Detaches; the server keeps running.
    fn detach(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id() as i32) {
            let _ = kill_process(pid, Signal::INT);
        }
        let _ = self.0.wait();
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
