//! `backup`, `restore` and `backups`: incremental backups in a repository.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use serde_json::json;
use siltstone::{CLUSTER_ORIGIN, Db};
use siltstone_backup::{
    BackupReport, CheckReport, Repository, Storage, format_time, parse_time, storage,
};
use siltstone_server::TakeBackup;

use crate::archive;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::progress;
use crate::store::{read_only, refuse_node};
use indicatif::HumanBytes;

/// Back up a store into a repository: the first time all of it, then what is new
///
/// A repository holds any number of backups, and stores equal content once. It is a directory, or
/// lies in an object store: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX, with
/// credentials from environment variables such as AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
/// AWS_REGION and AWS_ENDPOINT, GOOGLE_SERVICE_ACCOUNT, or AZURE_STORAGE_ACCOUNT_NAME and
/// AZURE_STORAGE_ACCOUNT_KEY. The backup appears when it is complete and durable; a command that is
/// killed leaves the earlier ones as they were. A node of a cluster is backed up while it runs: see
/// siltstone cluster backup.
#[derive(Args)]
pub(crate) struct Backup {
    /// The directory of the store
    dir: PathBuf,
    /// The directory or URL of the repository, created if it is missing or empty
    repository: PathBuf,
    /// Check every byte of the store first, and back up only an intact one
    #[arg(long)]
    verify: bool,
    /// Afterwards keep only this many backups, the newest
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Make a store from a backup, or the first node of a new cluster from that of a cluster
///
/// Each file is compared with its hash. The store appears when it is complete and durable. With
/// --at it is a store as it was at a moment, if `siltstone serve` archives the changes between
/// backups (--backup-log-interval): all tables on lsm as of the last mark at or before it.
#[derive(Args)]
pub(crate) struct Restore {
    /// The directory or URL of the repository
    repository: PathBuf,
    /// The directory of the new store or node, which must not exist
    dir: PathBuf,
    /// The backup, as `siltstone backups` lists it; by default the newest
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The moment, within those that `siltstone backups` lists: like 2026-11-29T15:04:00Z, with an
    /// offset like 2026-11-29T16:04:00+01:00, or in seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "id")]
    at: Option<u64>,
    /// With --at: the store, as `siltstone backups` lists it, if the repository has several
    #[arg(long, value_name = "STORE", requires = "at")]
    store: Option<String>,
}

/// List the backups of a repository and the moments between them that can be restored, check them,
/// or remove old ones
///
/// Exit status 1 if --check finds that a backup, or changes after one, cannot be restored.
#[derive(Args)]
pub(crate) struct Backups {
    /// The directory or URL of the repository
    repository: PathBuf,
    /// Read everything and compare it with its hash
    #[arg(long, conflicts_with = "keep")]
    check: bool,
    /// With --check: rename damaged files, so that the next backup stores their content again
    #[arg(long, requires = "check")]
    set_aside: bool,
    /// Remove all backups but this many, the newest, and the archived changes before them
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(crate) fn run(self) -> CommandResult {
        refuse_node(&self.dir)?;
        let db = Db::open(&self.dir, read_only())?;
        if self.verify {
            check_store(&db)?;
        }
        let repository = Repository::open_or_create(&self.repository)?;
        let bar = progress::bytes("backing up", 0);
        let report = repository.back_up(&db, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let report = report?;
        db.close()?;
        let removal = self.keep.map(|count| repository.keep_newest(count as usize)).transpose()?;
        if self.json {
            let removed = removal.map(|removal| removal.backups).unwrap_or_default();
            println!(
                "{}",
                json!({
                    "id": report.id, "files": report.files, "bytes": report.bytes,
                    "read_files": report.read_files, "new_blobs": report.new_blobs,
                    "new_bytes": report.new_bytes, "removed": removed,
                })
            );
            return Ok(Outcome::Done);
        }
        println!(
            "{}: {} files, {}; new: {}",
            report.id,
            report.files,
            HumanBytes(report.bytes),
            HumanBytes(report.new_bytes)
        );
        if let Some(removal) = removal.filter(|removal| !removal.backups.is_empty()) {
            println!("removed {}: {}", removal.backups.join(", "), HumanBytes(removal.bytes));
        }
        Ok(Outcome::Done)
    }
}

/// Takes backups of what is served, by `take`, and reports the outcome on the standard error stream.
pub(crate) fn of_served(
    repository: ServedRepository,
    keep: Option<u32>,
    take: impl Fn(&Repository) -> siltstone::Result<BackupReport> + Send + Sync + 'static,
) -> TakeBackup {
    Arc::new(move || {
        let kept = repository.open().and_then(|repository| {
            let report = take(&repository)?;
            let (id, new) = (&report.id, HumanBytes(report.new_bytes));
            eprintln!(
                "backup {id}: {} files, {}; new: {new}",
                report.files,
                HumanBytes(report.bytes)
            );
            keep.map_or(Ok(()), |count| repository.keep_newest(count as usize).map(drop))
        });
        kept.inspect_err(|error| eprintln!("the backup failed: {error}"))
    })
}

/// The repository of a server. An object store that cannot be reached does not keep the server from
/// starting: the repository is opened beside it, or by the first backup that can.
#[derive(Clone)]
pub(crate) struct ServedRepository {
    storage: Arc<dyn Storage>,
    opened: Arc<Mutex<Option<Arc<Repository>>>>,
}

impl ServedRepository {
    /// The repository at `place`, a directory or a URL.
    ///
    /// # Errors
    /// Those of a directory that is no repository, and of an invalid URL.
    pub(crate) fn at(place: &Path) -> siltstone::Result<Self> {
        let storage = storage::at(place, true)?;
        let repository = ServedRepository { storage, opened: Arc::default() };
        if !storage::is_url(place) {
            repository.open()?;
            return Ok(repository);
        }
        let served = repository.clone();
        std::thread::spawn(move || {
            if let Err(error) = served.open() {
                eprintln!("the repository cannot be used: {error}\n(each backup tries again)");
            }
        });
        Ok(repository)
    }

    /// # Errors
    /// Those of an object store that cannot be reached, or has no repository.
    pub(crate) fn open(&self) -> siltstone::Result<Arc<Repository>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(repository) = &*opened {
            return Ok(repository.clone());
        }
        let repository = Arc::new(Repository::open_or_create_in(self.storage.clone())?);
        Ok(opened.insert(repository).clone())
    }
}

impl Restore {
    pub(crate) fn run(self) -> CommandResult {
        if let Some(time) = self.at {
            return archive::restore(&self.repository, self.store.as_deref(), time, &self.dir);
        }
        let repository = Repository::open(&self.repository)?;
        let newest = || {
            let none = format!("there is no backup in {}", self.repository.display());
            repository.ids()?.pop().ok_or(Failure::Store(none))
        };
        let id = self.id.clone().map_or_else(newest, Ok)?;
        let bar = progress::bytes("restoring", 0);
        let restored = repository.restore(&id, &self.dir, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        restored.map_err(|error| advise(error, &self.repository))?;
        println!("restored {id} to {}", self.dir.display());
        if self.dir.join(CLUSTER_ORIGIN).exists() {
            println!(
                "It is the first node of a new cluster. Start it with a number of its own, and let \
                 others join:\n  siltstone serve {} --node-id 1 --initial-cluster 1=IP:PORT \
                 --cluster-id NUMBER",
                self.dir.display()
            );
        }
        Ok(Outcome::Done)
    }
}

impl Backups {
    pub(crate) fn run(self) -> CommandResult {
        let repository = Repository::open(&self.repository)?;
        if self.check {
            return self.check(&repository);
        }
        if let Some(count) = self.keep {
            let removal = repository.keep_newest(count as usize)?;
            if self.json {
                println!(
                    "{}",
                    json!({
                        "removed": removal.backups, "bytes": removal.bytes,
                        "segments": removal.segments,
                    })
                );
            } else {
                println!(
                    "removed {} backups, {}",
                    removal.backups.len(),
                    HumanBytes(removal.bytes)
                );
            }
            return Ok(Outcome::Done);
        }
        let backups = repository.backups().map_err(|error| advise(error, &self.repository))?;
        let moments = repository.moments()?;
        if self.json {
            let row = |backup: &siltstone_backup::Backup| {
                let manifest = &backup.manifest;
                let (files, bytes) = (manifest.files.len(), manifest.bytes());
                let range = moments.iter().find(|range| range.backups.contains(&backup.id));
                let range = range.map(|range| {
                    let (first, last) = (format_time(range.first), format_time(range.last));
                    json!({ "first": first, "last": last, "end": range.end })
                });
                json!({
                    "id": backup.id, "store": manifest.store, "files": files, "bytes": bytes,
                    "moments": range,
                })
            };
            println!("{}", json!(backups.iter().map(row).collect::<Vec<_>>()));
            return Ok(Outcome::Done);
        }
        for backup in &backups {
            let manifest = &backup.manifest;
            let (files, size) = (manifest.files.len(), HumanBytes(manifest.bytes()));
            println!("{}  {files} files, {size}  {}", backup.id, manifest.store);
        }
        archive::print_moments(&moments);
        Ok(Outcome::Done)
    }

    fn check(&self, repository: &Repository) -> CommandResult {
        let bar = progress::spinner("checking");
        let report = repository.check(&mut |done| bar.set_position(done));
        bar.finish_and_clear();
        let report = report?;
        if self.set_aside {
            repository.set_aside(&report)?;
        }
        self.print(&report);
        let is_intact = report.damaged.is_empty() && report.damaged_segments.is_empty();
        Ok(if is_intact { Outcome::Done } else { Outcome::No })
    }

    fn print(&self, report: &CheckReport) {
        if self.json {
            let damaged: serde_json::Map<_, _> = (report.damaged.iter())
                .map(|backup| (backup.id.clone(), json!(backup.reasons)))
                .collect();
            let segments = report.damaged_segments.iter().map(|segment| &segment.reason);
            println!(
                "{}",
                json!({
                    "intact": report.intact, "damaged": damaged, "bytes": report.bytes,
                    "segments": report.segments,
                    "damaged_segments": segments.collect::<Vec<_>>(),
                })
            );
            return;
        }
        for id in &report.intact {
            println!("{id}: intact");
        }
        for backup in &report.damaged {
            println!("{}: DAMAGED", backup.id);
            backup.reasons.iter().for_each(|reason| println!("  {reason}"));
        }
        println!("{} blobs are intact, {}", report.blobs, HumanBytes(report.bytes));
        let damaged = &report.damaged_segments;
        if report.segments > 0 || !damaged.is_empty() {
            println!("{} segments of archived changes are intact", report.segments);
        }
        damaged.iter().for_each(|segment| println!("DAMAGED: {}", segment.reason));
    }
}

/// The failure of an error of a repository, which is not repaired as a store is.
pub(crate) fn advise(error: siltstone::Error, repository: &Path) -> Failure {
    match error.is_corruption() {
        true => Failure::Store(format!(
            "{error}\n(`siltstone backups {} --check` lists the backups that are intact)",
            repository.display()
        )),
        false => error.into(),
    }
}

/// Checks every byte of a store.
///
/// # Errors
/// `Store` with the first damage of each table.
fn check_store(db: &Db) -> Result<(), Failure> {
    let bar = progress::bytes("verifying", 0);
    for name in db.table_names()? {
        let report = db.verify_table(&name, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })?;
        if let Some(damage) = report.damage.first() {
            bar.finish_and_clear();
            return Err(Failure::Store(format!(
                "table {name} is damaged and was not backed up: {damage:?}\n(`siltstone verify` lists the damage)"
            )));
        }
    }
    bar.finish_and_clear();
    Ok(())
}
