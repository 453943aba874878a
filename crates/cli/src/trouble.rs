//! What troubles the tables that are served, on standard error, while it lasts.
//!
//! A thread asks each table once a second for its [`trouble`](siltstone::Engine::trouble):
//! background work that fails and is tried again, or why the table is read-only. It writes a line
//! when that begins, when it becomes another, and when it is over.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use siltstone::{Engine, Table};

const INTERVAL: Duration = Duration::from_secs(1);

/// The thread; it ends when this is dropped.
pub(crate) struct TroubleReporter {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TroubleReporter {
    /// Begins to report on these tables; nothing is reported where there can be no thread.
    pub(crate) fn start(tables: &[Table]) -> Self {
        let (stop, stopped) = channel();
        let mut reports: Vec<Report> = tables.iter().map(Report::of).collect();
        let watch = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(INTERVAL) {
                reports.iter_mut().filter_map(Report::next).for_each(|line| eprintln!("{line}"));
            }
        };
        let thread = std::thread::Builder::new().name("siltstone-trouble".to_owned()).spawn(watch);
        TroubleReporter { stop: Some(stop), thread: thread.ok() }
    }
}

impl Drop for TroubleReporter {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What was reported last of one table.
struct Report {
    name: String,
    engine: Arc<dyn Engine>,
    last: Option<String>,
}

impl Report {
    fn of(table: &Table) -> Self {
        Report { name: table.name().to_owned(), engine: table.engine().clone(), last: None }
    }

    /// The line to write now, if there is one.
    fn next(&mut self) -> Option<String> {
        let trouble = self.engine.trouble();
        if trouble == self.last {
            return None;
        }
        self.last = trouble;
        let told = self.last.as_deref().unwrap_or("what troubled it is over");
        Some(format!("siltstone: table {}: {told}", self.name))
    }
}
