//! `ingest`: sorted files become a part of a table. `import --sorted` makes such files of rows.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use siltstone::{IngestMode, IngestOptions, IngestReport, SortedFileWriter, Table};
use tempfile::TempDir;

use crate::format::Row;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::store::NewStoreArgs;

/// A sorted file of an import ends at this size.
const FILE_BYTES: u64 = 64 << 20;

/// Make sorted files a part of a table, all at once
///
/// The files are written by the library's `SortedFileWriter`. Their entries replace existing ones
/// with the same key. They must not overlap one another. The store and the table are created if
/// they do not exist. For tables on `lsm`.
#[derive(Args)]
pub(crate) struct Ingest {
    #[command(flatten)]
    store: NewStoreArgs,
    /// The files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// What happens to the files
    #[arg(long, default_value = "copy")]
    mode: Mode,
    /// Do not read and check every byte first
    #[arg(long)]
    no_verify: bool,
    /// Print one JSON object with the counts
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// They are copied
    Copy,
    /// They are linked, where the file system can, and must not be changed afterwards
    Link,
    /// They are linked and then removed from their place
    Move,
}

impl Ingest {
    pub(crate) fn run(self) -> CommandResult {
        let mode = match self.mode {
            Mode::Copy => IngestMode::Copy,
            Mode::Link => IngestMode::Link,
            Mode::Move => IngestMode::Move,
        };
        // Before a store is created.
        for file in &self.files {
            file.metadata()
                .map_err(|error| Failure::file("read", &file.display().to_string(), &error))?;
        }
        let (db, table) = self.store.open_or_create()?;
        let options = IngestOptions { mode, verify: !self.no_verify, ..IngestOptions::default() };
        let report = table.ingest(&self.files, options)?;
        db.close()?;
        print(&report, self.json);
        Ok(Outcome::Done)
    }
}

fn print(report: &IngestReport, json: bool) {
    for path in &report.not_removed {
        eprintln!("siltstone: warning: {} could not be removed", path.display());
    }
    if json {
        println!("{}", serde_json::json!(report));
    } else {
        let levels = report.levels.iter().map(|level| format!("L{level}")).collect::<Vec<_>>();
        let (entries, bytes) = (report.entries, report.bytes);
        eprintln!("ingested {entries} entries, {bytes} bytes, into {}", levels.join(" "));
    }
}

/// Writes rows, whose keys ascend, to sorted files, and ingests them all at once.
pub(crate) struct SortedLoader<'a> {
    table: &'a Table,
    /// Beside the store, so that files can be linked; removed in the end.
    directory: TempDir,
    files: Vec<PathBuf>,
    writer: Option<SortedFileWriter>,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl<'a> SortedLoader<'a> {
    pub(crate) fn new(table: &'a Table, store: &Path) -> Result<Self, Failure> {
        // Refused at once by an engine without ingestion.
        table.ingest::<&Path>(&[], IngestOptions::default())?;
        let parent = match store.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let directory = tempfile::Builder::new().prefix(".siltstone-import-").tempdir_in(parent);
        let directory = directory.map_err(|error| {
            Failure::file("create a directory in", &parent.display().to_string(), &error)
        })?;
        Ok(SortedLoader { table, directory, files: Vec::new(), writer: None, rows: 0, bytes: 0 })
    }

    pub(crate) fn add(&mut self, (key, entry): Row) -> Result<(), Failure> {
        if self.writer.as_ref().is_some_and(|writer| writer.estimated_bytes() >= FILE_BYTES) {
            self.end_file()?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let path = self.directory.path().join(format!("{}.sorted", self.files.len()));
                let writer = SortedFileWriter::create(&path, &self.table.options())?;
                self.files.push(path);
                none.insert(writer)
            }
        };
        match entry.expires_at {
            Some(at) => writer.put_until(&key, &entry.value, at)?,
            None => writer.put(&key, &entry.value)?,
        }
        self.rows += 1;
        self.bytes += (key.len() + entry.value.len()) as u64;
        Ok(())
    }

    fn end_file(&mut self) -> Result<(), Failure> {
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        Ok(())
    }

    /// Ingests all rows.
    pub(crate) fn finish(mut self) -> Result<(u64, u64), Failure> {
        self.end_file()?;
        // Just written, with checksums.
        let options =
            IngestOptions { mode: IngestMode::Move, verify: false, ..IngestOptions::default() };
        self.table.ingest(&self.files, options)?;
        Ok((self.rows, self.bytes))
    }
}
