//! The archiver: adds the changes of a store to a repository, one segment per interval.
//!
//! ```text
//!   step:  mark = position of all tables, then the time
//!          sync the store ─ lock the archive ─ for each mark that is not archived yet:
//!            nothing changed   HEAD has the later time
//!            changes           feeds read up to the mark ─ ARCHIVE in the store ─ segment ─ HEAD
//!            break             HEAD has the reason; a new series begins, which needs a backup
//! ```
//!
//! Marks that cannot be written wait in memory, so that each of them can be restored once the
//! repository is there again. The position of the archive is the last segment; the file `ARCHIVE`
//! in the store (`position_file.rs`) proves that it is the store's own.
//!
//! Invariants:
//! - Only durable changes are archived. A power cut takes others, and the store gives their
//!   sequence numbers again.
//! - A mark is a state that the store has had, before the mark's time. Times ascend in a series.
//! - Nothing waits for the archiver: a log that its table need not keep is removed, and that is a
//!   break.

use std::collections::VecDeque;
use std::sync::Arc;

use siltstone::options::parse_size;
use siltstone::{Clock, Db, SystemClock};
use siltstone_engine::{Error, Result, Timestamp};

use crate::collect::{Collected, collect};
use crate::position_file::PositionFile;
use crate::repository::Repository;
use crate::segment::{self, ArchivedState, Changes, Hash, Header, NO_SEGMENT};
use crate::series::{Head, SegmentName, Series};
use crate::utc::utc;

/// The option `log_retention` that tables on lsm get if they have no retention.
pub const DEFAULT_LOG_RETENTION: &str = "1GiB";
/// The number of marks that may wait for the repository. Beyond it every second one is dropped.
const MAX_PENDING_MARKS: usize = 1024;
/// A clock that is set back by more than this ends the series; otherwise marks wait until it has
/// caught up.
const MAX_CLOCK_STEP_BACK_MS: u64 = 60_000;

/// Archives the changes of a store. Call [`step`](Self::step) after the store was opened, before
/// tables are created, and then at each interval.
///
/// ```
/// # use siltstone::{Db, DbOptions};
/// # use siltstone_backup::{Archiver, Repository};
/// # let scratch = tempfile::tempdir().unwrap();
/// # let db = Db::open_or_create(scratch.path().join("shop"), DbOptions::default())?;
/// let table = db.table_or_create("stock", "lsm", &Default::default())?;
/// let repository = || Repository::open_or_create(scratch.path().join("backups"));
/// let mut archiver = Archiver::new(db.clone(), repository()?);
/// if archiver.step()?.needs_backup {
///     repository()?.back_up(&db, &mut |_, _| {})?;
/// }
/// # std::thread::sleep(std::time::Duration::from_millis(2));
/// table.put(b"apples", b"3")?;
/// let then = archiver.step()?.mark;
/// # std::thread::sleep(std::time::Duration::from_millis(2));
/// table.clear()?;
/// archiver.step()?;
/// let target = scratch.path().join("restored");
/// repository()?.restore_at(None, then, &target, &DbOptions::default(), &mut |_| {})?;
/// let restored = Db::open(&target, DbOptions::default())?.table("stock")?;
/// assert_eq!(restored.get(b"apples")?.as_deref(), Some(&b"3"[..]));
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Archiver {
    db: Db,
    repository: Arc<Repository>,
    clock: Arc<dyn Clock>,
    /// `None` before the first step and after an error: the repository says what has been written.
    current: Option<Current>,
    /// This process has archived the store before, so nobody else has changed it since.
    has_begun: bool,
    pending: VecDeque<Mark>,
}

/// The result of [`Archiver::step`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveReport {
    /// The newest moment that the archive reaches, in milliseconds since 1970.
    pub mark: Timestamp,
    /// Segments that were written.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// A new series has begun: why the archive does not continue the one before.
    pub gap: Option<String>,
    /// No backup of the store belongs to the series yet: moments can be restored once one does.
    pub needs_backup: bool,
    /// Tables that were given [`DEFAULT_LOG_RETENTION`], because they had none.
    pub retained: Vec<String>,
    /// Tables whose engine has no change feed: they are restored as of the backup.
    pub without_feed: Vec<String>,
}

/// The tables at a moment.
struct Mark {
    time: Timestamp,
    state: ArchivedState,
}

/// The series that is being written.
struct Current {
    series: Series,
    /// The last segment.
    number: u64,
    hash: Hash,
    /// The tables behind it.
    state: ArchivedState,
    /// The last moment at which the store was in this state.
    time: Timestamp,
    /// The segment and the moment that HEAD has.
    head_at: Option<(u64, Timestamp)>,
    has_backup: bool,
    /// The newest backup when the series was last looked for among the backups.
    newest_backup: Option<String>,
}

/// The outcome of one mark.
enum Archived {
    Done,
    /// The mark cannot be archived; the next one can.
    Skipped,
    /// The series cannot be continued.
    Break(String),
}

impl std::fmt::Debug for Archiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archiver")
            .field("db", &self.db)
            .field("repository", &self.repository)
            .finish_non_exhaustive()
    }
}

impl Archiver {
    /// Archives the changes of `db` in `repository`, from the last segment of this store on.
    pub fn new(db: Db, repository: impl Into<Arc<Repository>>) -> Self {
        Self::with_clock(db, repository, Arc::new(SystemClock))
    }

    /// As [`new`](Self::new), with a clock for the times of the marks.
    pub fn with_clock(
        db: Db,
        repository: impl Into<Arc<Repository>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let repository = repository.into();
        Archiver {
            db,
            repository,
            clock,
            current: None,
            has_begun: false,
            pending: VecDeque::new(),
        }
    }

    /// Notes the present moment as a mark, and archives all changes up to it. Cost: a lock of all
    /// tables for an instant; a sync of the store and a read of its newest logs if there are
    /// changes.
    ///
    /// A table on lsm that keeps no log for change feeds gets the option `log_retention`
    /// ([`DEFAULT_LOG_RETENTION`]).
    ///
    /// # Errors
    /// Those of the store and of the repository. The mark is archived by a later call.
    pub fn step(&mut self) -> Result<ArchiveReport> {
        let mut report = ArchiveReport { retained: self.retain_logs()?, ..Default::default() };
        self.note_mark(&mut report)?;
        let archived = self.archive(&mut report);
        if archived.is_err() {
            self.current = None;
        }
        archived.map(|()| report)
    }

    /// Gives the tables whose engine has a feed a retention if they have none.
    fn retain_logs(&self) -> Result<Vec<String>> {
        let mut retained = Vec::new();
        for (name, spec) in self.db.catalogue()?.tables {
            let is_zero = |text: &String| matches!(parse_size(text), Ok(0));
            let has = |option| spec.options.get(option).is_some_and(|value| !is_zero(value));
            let has_time = spec.options.get("log_retention_time").is_some_and(|time| time != "0s");
            if !siltstone::engines::has_change_feed(&spec.engine)
                || has("log_retention")
                || has_time
            {
                continue;
            }
            let set = self.db.table(&name).and_then(|table| {
                table.set_options(&[("log_retention", DEFAULT_LOG_RETENTION)]).map(drop)
            });
            match set {
                Ok(()) => retained.push(name),
                // It was dropped or is moving to another engine.
                Err(Error::Invalid(_) | Error::Closed) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(retained)
    }

    fn note_mark(&mut self, report: &mut ArchiveReport) -> Result<()> {
        let position = self.db.position()?;
        let state = ArchivedState::of(&position);
        let without_feed = state.tables.iter().filter(|table| table.feed.is_none());
        report.without_feed = without_feed.map(|table| table.name.clone()).collect();
        // After the position, which is therefore a state before this moment.
        let time = self.clock.now();
        self.pending.push_back(Mark { time, state });
        if self.pending.len() > MAX_PENDING_MARKS {
            let mut index = 0;
            self.pending.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        Ok(())
    }

    /// Writes the pending marks.
    fn archive(&mut self, report: &mut ArchiveReport) -> Result<()> {
        let Some(newest) = self.pending.back() else { return Ok(()) };
        if self.current.as_ref().is_none_or(|current| current.state != newest.state) {
            self.db.sync()?;
        }
        let _lock = self.repository.lock_archive()?;
        if let Some(current) = &self.current {
            let is_own = |head: Head| (head.number, head.hash) == current.head_key();
            if !current.series.head()?.is_some_and(|head| head.end.is_none() && is_own(head)) {
                self.current = None;
            }
        }
        if self.current.is_none() {
            match self.resume()? {
                Ok(current) => self.current = Some(current),
                Err(reason) => self.begin(reason, report)?,
            }
            self.has_begun = true;
        }
        while let Some(mark) = self.pending.front() {
            let Some(current) = &mut self.current else { return Err(Error::Closed) };
            match current.archive(mark, &self.db, report)? {
                Archived::Done | Archived::Skipped => drop(self.pending.pop_front()),
                Archived::Break(reason) => {
                    current.write_head(Some(reason.clone()))?;
                    self.begin(Some(reason), report)?;
                }
            }
        }
        if let Some(current) = &mut self.current {
            current.write_head(None)?;
            report.mark = current.time;
            report.needs_backup = !current.look_for_backup(&self.repository)?;
        }
        Ok(())
    }

    /// The series that the store was archived in. An error is why there is none, or why it is not
    /// continued; the series then gets that as its end unless it is another store's.
    fn resume(&self) -> Result<Result<Current, Option<String>>> {
        let Some(position) = PositionFile::read(self.db.vfs())? else {
            return Ok(Err(None));
        };
        let not_own = || {
            let reason = "the store or the repository is an older copy of itself";
            Ok(Err(Some(reason.to_owned())))
        };
        let series = self.repository.series(&position.series);
        let head = series.head()?;
        if let Some(end) = head.as_ref().and_then(|head| head.end.clone()) {
            return Ok(Err(Some(end)));
        }
        let Some(last) = series.names()?.last().copied() else { return not_own() };
        let Some(hash) = position.hash_of(last.number) else { return not_own() };
        let path = series.path(last);
        let segment = match segment::decode(&path, &series.read(last)?, self.db.keys()) {
            Ok((segment, found)) if found == hash => segment,
            Ok(_) => return not_own(),
            Err(error) if error.is_corruption() => {
                let reason = error.to_string();
                series.write_head(&Head::new(
                    last.number,
                    hash.to_hex().to_string(),
                    0,
                    Some(reason.clone()),
                ))?;
                return Ok(Err(Some(reason)));
            }
            Err(error) => return Err(error),
        };
        let is_head = |head: &Head| (head.number, &*head.hash) == (last.number, &hash.to_hex());
        let time = head.filter(is_head).map_or(segment.header.until, |head| head.time);
        let mut current = Current {
            series,
            number: last.number,
            hash,
            state: segment.state,
            time,
            head_at: None,
            has_backup: false,
            newest_backup: None,
        };
        // An identity that is new since may be that of a repaired table.
        let mark = self.pending.front().filter(|_| !self.has_begun);
        let Some(mark) = mark else { return Ok(Ok(current)) };
        let unknown =
            mark.state.feeds().find(|(_, feed)| current.state.sequence(feed.id).is_none());
        if let Some((table, _)) = unknown {
            let reason =
                format!("table '{}' was created or repaired without the archiver", table.name);
            current.write_head(Some(reason.clone()))?;
            return Ok(Err(Some(reason)));
        }
        Ok(Ok(current))
    }

    /// Begins a series at the newest mark. The caller has synced the store.
    fn begin(&mut self, reason: Option<String>, report: &mut ArchiveReport) -> Result<()> {
        let Some(mark) = self.pending.pop_back() else { return Err(Error::Closed) };
        self.pending.clear();
        let seed = format!("{} {} {}", self.db.vfs().name(), mark.time, std::process::id());
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut hasher = blake3::Hasher::new();
        hasher.update(seed.as_bytes()).update(&nanos.unwrap_or_default().as_nanos().to_le_bytes());
        let digits = &hasher.finalize().to_hex()[..8];
        let id = format!("{}-{digits}", utc(mark.time / 1000));
        let mut current = Current {
            series: self.repository.series(&id),
            number: 0,
            hash: NO_SEGMENT,
            state: mark.state.clone(),
            time: mark.time,
            head_at: None,
            has_backup: false,
            newest_backup: None,
        };
        current.write(&mark.state, &Changes::default(), Some(mark.time), &self.db, report)?;
        current.write_head(None)?;
        report.gap = reason;
        self.current = Some(current);
        Ok(())
    }
}

impl Current {
    /// What HEAD says of the last segment.
    fn head_key(&self) -> (u64, String) {
        (self.number, self.hash.to_hex().to_string())
    }

    fn write_head(&mut self, end: Option<String>) -> Result<()> {
        let at = Some((self.number, self.time));
        if end.is_some() || self.head_at != at {
            let (number, hash) = self.head_key();
            self.series.write_head(&Head::new(number, hash, self.time, end))?;
            self.head_at = at;
        }
        Ok(())
    }

    /// Archives the changes up to a mark.
    fn archive(&mut self, mark: &Mark, db: &Db, report: &mut ArchiveReport) -> Result<Archived> {
        if mark.time <= self.time {
            return Ok(match mark.time + MAX_CLOCK_STEP_BACK_MS < self.time {
                true => Archived::Break("the clock was set back".to_owned()),
                false => Archived::Skipped,
            });
        }
        if mark.state == self.state {
            self.time = mark.time;
            return Ok(Archived::Done);
        }
        if let Some(reason) = self.break_before(mark) {
            return Ok(Archived::Break(reason));
        }
        // The tables of the mark, each as far as the segments go.
        let mut reached = mark.state.clone();
        for (table, feed) in mark.state.feeds() {
            let from = self.state.sequence(feed.id).unwrap_or(0);
            reached.set_sequence(feed.id, from);
            debug_assert!(from <= feed.sequence, "{}", table.name);
        }
        let collected = collect(db, &mark.state, &mut reached, &mut |reached, changes| {
            self.write(reached, &std::mem::take(changes), None, db, report)
        })?;
        match collected {
            Collected::Whole(changes) => {
                self.write(&mark.state, &changes, Some(mark.time), db, report)?;
                self.write_head(None)?;
                Ok(Archived::Done)
            }
            Collected::Gone => Ok(Archived::Skipped),
            Collected::Unavailable(reason) => Ok(Archived::Break(reason)),
        }
    }

    /// Why a mark is not reached by changes alone.
    fn break_before(&self, mark: &Mark) -> Option<String> {
        let is_known = |name: &str, engine: &str| {
            let same = self.state.tables.iter().find(|table| table.name == name);
            same.is_some_and(|table| table.feed.is_none() && table.engine == engine)
        };
        for table in &mark.state.tables {
            match table.feed {
                None if is_known(&table.name, &table.engine) => {}
                None => {
                    let (name, engine) = (&table.name, &table.engine);
                    return Some(format!(
                        "table '{name}' is new on {engine}, whose changes cannot be archived"
                    ));
                }
                Some(feed) => match self.state.sequence(feed.id) {
                    Some(before) if before > feed.sequence => {
                        return Some(format!(
                            "table '{}' has gone back to an older state",
                            table.name
                        ));
                    }
                    _ => {}
                },
            }
        }
        None
    }

    /// Writes the next segment: with a mark at `time`, or a piece of the next one.
    fn write(
        &mut self,
        state: &ArchivedState,
        changes: &Changes,
        time: Option<Timestamp>,
        db: &Db,
        report: &mut ArchiveReport,
    ) -> Result<()> {
        let number = self.number + 1;
        let mark = time.map(|time| (self.time, time));
        let (since, until) = mark.unwrap_or((self.time, self.time));
        let is_mark = mark.is_some();
        let header = Header { number, is_mark, since, until, previous: self.hash };
        let (bytes, hash) = segment::encode(&header, state, changes, db.keys())?;
        PositionFile::new(self.series.id.clone(), number, hash, self.hash).write(db.vfs())?;
        self.series.write(SegmentName { number, mark }, &bytes)?;
        (self.number, self.hash, self.state) = (number, hash, state.clone());
        self.time = time.unwrap_or(self.time);
        report.segments += 1;
        report.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Whether a backup belongs to the series.
    fn look_for_backup(&mut self, repository: &Repository) -> Result<bool> {
        if self.has_backup {
            return Ok(true);
        }
        let ids = repository.ids()?;
        let newest = ids.last().cloned();
        if newest == self.newest_backup {
            return Ok(false);
        }
        for id in ids.iter().rev() {
            match repository.backup(id) {
                Ok(backup) => {
                    let link = backup.manifest.archive;
                    self.has_backup |= link.is_some_and(|link| link.series == self.series.id);
                }
                // Another one is needed if it is the series' own.
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        self.newest_backup = newest;
        Ok(self.has_backup)
    }
}
