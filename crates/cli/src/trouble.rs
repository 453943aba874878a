//! Reports problems of served tables on standard error.
//!
//! A thread polls each table's [`trouble`](siltstone::Engine::trouble) once per second: background
//! jobs that fail and are retried, or the cause of a read-only table. It prints a line when a
//! problem begins, changes or ends.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use siltstone::{Db, Table};

const INTERVAL: Duration = Duration::from_secs(1);

/// The reporting thread; it ends when this is dropped.
pub(crate) struct TroubleReporter {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TroubleReporter {
    /// Starts reporting on these tables; without a thread nothing is reported.
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

/// The last report on one table.
struct Report {
    table: Table,
    last: Option<String>,
}

impl Report {
    fn of(table: &Table) -> Self {
        Report { table: table.clone(), last: None }
    }

    /// The line to print now, if any.
    fn next(&mut self) -> Option<String> {
        if self.table.check_open().is_err()
            && let Some(moved) = Db::of_table(&self.table)
            && let Ok(table) = moved.table(self.table.name())
        {
            // It has moved to another engine.
            self.table = table;
        }
        let trouble = self.table.engine().trouble();
        if trouble == self.last {
            return None;
        }
        self.last = trouble;
        let text = self.last.as_deref().unwrap_or("the problem is over");
        Some(format!("siltstone: table {}: {text}", self.table.name()))
    }
}
