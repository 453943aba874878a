//! The archive of changes from the command line: of a served store, restores to a moment, and which
//! moments there are.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::HumanDuration;
use siltstone::{Db, Timestamp};
use siltstone_backup::{
    ArchiveReport, Archiver, Moments, Repository, RestoreProgress, format_time,
};
use siltstone_server::{ArchiveOptions, ArchiveStep};

use crate::backup::{ServedRepository, advise};
use crate::outcome::{CommandResult, Outcome};
use crate::{progress, store};

/// What was last reported on the standard error stream.
#[derive(Default)]
struct Reported {
    /// Since when steps have failed.
    failing_since: Option<std::time::Instant>,
    without_feed: Vec<String>,
}

/// Archives the changes of a store that is served, and reports on the standard error stream what
/// changes: a failure and its end, gaps, and tables that are not in the archive.
pub(crate) fn of_served(
    repository: ServedRepository,
    db: Db,
    interval: Duration,
) -> ArchiveOptions {
    let state = Mutex::new((None::<Archiver>, Reported::default()));
    let step = move || {
        let (archiver, reported) = &mut *state.lock().unwrap_or_else(PoisonError::into_inner);
        let stepped = match archiver {
            Some(archiver) => archiver.step(),
            None => repository.open().and_then(|repository| {
                archiver.insert(Archiver::new(db.clone(), repository)).step()
            }),
        };
        let report = stepped.inspect_err(|error| reported.fail(error))?;
        reported.succeed(&report);
        let ArchiveReport { mark, bytes, needs_backup, .. } = report;
        Ok(ArchiveStep { mark, bytes, needs_backup })
    };
    ArchiveOptions { step: Arc::new(step), interval }
}

impl Reported {
    fn fail(&mut self, error: &siltstone::Error) {
        if self.failing_since.is_none() {
            self.failing_since = Some(std::time::Instant::now());
            eprintln!("the archive of changes fails: {error}");
        }
    }

    fn succeed(&mut self, report: &ArchiveReport) {
        if let Some(since) = self.failing_since.take() {
            let time = HumanDuration(since.elapsed());
            eprintln!("the archive of changes goes on, after {time}");
        }
        for table in &report.retained {
            eprintln!(
                "table {table}: log_retention={} is set, for the archive of changes",
                siltstone_backup::DEFAULT_LOG_RETENTION
            );
        }
        if let Some(reason) = &report.gap {
            eprintln!("the archive of changes has a gap, until the next backup: {reason}");
        }
        if report.without_feed != self.without_feed {
            self.without_feed.clone_from(&report.without_feed);
            let tables = self.without_feed.join(", ");
            eprintln!(
                "not in the archive of changes, because their engines have no change feed: {tables}"
            );
        }
    }
}

/// Restores the state of a moment.
pub(crate) fn restore(
    place: &Path,
    of_store: Option<&str>,
    time: Timestamp,
    dir: &Path,
) -> CommandResult {
    let repository = Repository::open(place)?;
    let bar = progress::bytes("restoring", 0);
    let restored =
        repository.restore_at(
            of_store,
            time,
            dir,
            &store::options(),
            &mut |progress| match progress {
                RestoreProgress::Backup(done, total) => {
                    bar.set_length(total);
                    bar.set_position(done);
                }
                RestoreProgress::Segments(done, total) => {
                    bar.set_message(format!("segment {done} of {total}"));
                }
            },
        );
    bar.finish_and_clear();
    let restored = restored.map_err(|error| advise(error, place))?;
    println!(
        "restored the state of {} to {}: backup {}, {} segments, {} changes",
        format_time(restored.moment),
        dir.display(),
        restored.backup,
        restored.segments,
        restored.changes
    );
    if !restored.as_of_backup.is_empty() {
        let tables = restored.as_of_backup.join(", ");
        println!("as of the backup, because their engines have no change feed: {tables}");
    }
    Ok(Outcome::Done)
}

/// Prints the moments to which stores can be restored.
pub(crate) fn print_moments(moments: &[Moments]) {
    for range in moments {
        let (first, last) = (format_time(range.first), format_time(range.last));
        println!("any moment from {first} to {last}  {}", range.store);
        if let Some(reason) = &range.end {
            println!("  then a gap: {reason}");
        }
    }
}
