//! `import` and `export`: rows between files and a table.
//!
//! An import of a file is atomic with respect to bad rows: the file is read once to check every
//! row, and then again to load it. Standard input and other pipes, such as a shell's `<(zcat
//! rows.gz)`, cannot be read twice: a bad row ends the import there, and the message has the
//! number of rows imported before it, as after an interrupt.
//!
//! With `--sorted` the keys of the rows ascend; they are written to sorted files, which are
//! ingested at once. Then a bad row leaves nothing, of whatever input.
//!
//! A dump file of Redis is imported by [`crate::dump_import`].
//!
//! An export is written to a temporary file and renamed when it is complete.

use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use siltstone::{Durability, Table, WriteBatch};
use tempfile::NamedTempFile;

use crate::dump_import::{self, EntryLoader, Selection, TableLimits};
use crate::format::quotes::QuoteTracker;
use crate::format::{self, Format, Row, json_row, tsv};
use crate::ingest::SortedLoader;
use crate::interrupt::Interrupt;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::progress;
use crate::store::{NewStoreArgs, ReaderArgs, StoreArgs};

/// The size at which a batch is written.
pub(crate) const BATCH_BYTES: usize = 256 << 10;
const BUFFER_BYTES: usize = 1 << 20;

/// Whether a file is standard input or output.
fn is_stdio(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Whether a file can be read only once, as a pipe.
fn is_read_once(file: &Path) -> bool {
    is_stdio(file) || file.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// A file name for messages.
fn shown(file: &Path) -> String {
    file.display().to_string()
}

/// Load rows from a file or standard input, or a dump file of Redis
///
/// The store and the table are created if they do not exist. Rows replace existing ones with the
/// same key. A file with a bad row is refused as a whole; from standard input and other pipes the
/// rows before it are imported. With --sorted it is all or nothing, and a large table is loaded
/// with fewer bytes written. A dump file of Redis (`dump.rdb`) has one or more databases, of which
/// one is imported, with all types of values and their expiries.
#[derive(Args)]
pub(crate) struct Import {
    #[command(flatten)]
    store: NewStoreArgs,
    /// The file; `-` is standard input
    file: PathBuf,
    #[command(flatten)]
    format_args: FormatArgs,
    /// A dump file of Redis: the database to import; by default the only one that has keys
    #[arg(long, value_name = "NUMBER")]
    database: Option<u64>,
    /// The keys ascend, each of them once: load all rows at once as sorted files (tables on lsm)
    #[arg(long)]
    sorted: bool,
    /// Print one JSON object with the counts
    #[arg(long)]
    json: bool,
}

/// The format of an imported file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ImportFormat {
    /// `key TAB value` lines
    Tsv,
    /// Comma-separated, the key in the first column
    Csv,
    /// One JSON object per line
    Jsonl,
    /// A dump file of Redis (`dump.rdb`)
    Rdb,
}

#[derive(Args)]
struct FormatArgs {
    /// The format; by default from the file's extension, else TSV
    #[arg(long)]
    format: Option<ImportFormat>,
    /// CSV: the first line has the names of the columns
    #[arg(long)]
    header: bool,
    /// TSV: backslashes are data, not escapes
    #[arg(long)]
    no_escapes: bool,
}

impl Import {
    pub(crate) fn run(self) -> CommandResult {
        let interrupt = Interrupt::watch()?;
        let max_value_bytes = self.store.max_value_bytes()?;
        if self.is_dump() {
            if self.sorted {
                let text = "--sorted is for rows: a dump file of Redis is not sorted";
                return Err(Failure::Usage(text.to_owned()));
            }
            return self.run_dump(max_value_bytes, &interrupt);
        }
        if self.database.is_some() {
            let text = "--database is for dump files of Redis (--format rdb)";
            return Err(Failure::Usage(text.to_owned()));
        }
        if !is_read_once(&self.file) {
            // Before a store is created: an invalid file leaves nothing behind.
            self.read_all("checking", max_value_bytes, &interrupt, &mut |_| interrupt.check())?;
        }
        let (db, table) = self.store.open_or_create()?;
        if self.sorted {
            let mut loader = SortedLoader::new(&table, self.store.dir())?;
            self.read_all("importing", max_value_bytes, &interrupt, &mut |row| {
                interrupt.check()?;
                loader.add(row)
            })?;
            let (rows, bytes) = loader.finish()?;
            db.close()?;
            self.print(rows, bytes);
            return Ok(Outcome::Done);
        }
        let mut loader = Loader { table: &table, batch: WriteBatch::new(), rows: 0, bytes: 0 };
        let loaded = self.read_all("importing", max_value_bytes, &interrupt, &mut |row| {
            interrupt.check()?;
            loader.add(row)
        });
        // Rows before a bad one are kept, and counted in the message.
        let written = loader.write();
        let synced = table.sync();
        let (rows, bytes) = (loader.rows, loader.bytes);
        let closed = db.close();
        if let Err(failure) = loaded.and(written) {
            // A signal may come within a line, which is then not to blame.
            return Err(match interrupt.check().err().unwrap_or(failure) {
                Failure::Interrupted { signal, .. } => Failure::Interrupted {
                    signal,
                    text: format!("{rows} rows are imported; the same import again completes them"),
                },
                Failure::Usage(text) => {
                    Failure::Usage(format!("{text} ({rows} rows before it are imported)"))
                }
                // E.g. a full disk: earlier rows are stored.
                Failure::Store(text) if synced.is_ok() => Failure::Store(format!(
                    "{text}\n({rows} rows are imported; the same import again completes them)"
                )),
                other => other,
            });
        }
        synced?;
        closed?;
        self.print(rows, bytes);
        Ok(Outcome::Done)
    }

    fn print(&self, rows: u64, bytes: u64) {
        if self.json {
            println!("{}", serde_json::json!({ "rows": rows, "bytes": bytes }));
        } else {
            let format = self.format();
            eprintln!("imported {rows} rows as {format}, {bytes} bytes of keys and values");
        }
    }

    /// Whether the file is a dump file of Redis.
    fn is_dump(&self) -> bool {
        let extension = || self.file.extension().is_some_and(|e| e.eq_ignore_ascii_case("rdb"));
        self.format_args.format.map_or_else(extension, |format| format == ImportFormat::Rdb)
    }

    fn format(&self) -> Format {
        match self.format_args.format {
            Some(ImportFormat::Csv) => Format::Csv,
            Some(ImportFormat::Jsonl) => Format::Jsonl,
            Some(ImportFormat::Tsv) => Format::Tsv,
            Some(ImportFormat::Rdb) | None => Format::of(&self.file),
        }
    }

    /// Imports a dump file of Redis.
    fn run_dump(&self, max_value_bytes: usize, interrupt: &Interrupt) -> CommandResult {
        let limits = TableLimits { max_value_bytes, is_ordered: self.store.is_ordered()? };
        let selection = Selection { database: self.database, now: dump_import::now() };
        let name = &self.file_name();
        let read = |doing, take: &mut dyn FnMut(_) -> Result<(), Failure>| {
            let (input, bar) = self.open(doing, interrupt)?;
            let input = BufReader::with_capacity(BUFFER_BYTES, bar.wrap_read(input));
            let summary = dump_import::read(input, name, selection, limits, interrupt, take);
            bar.finish_and_clear();
            summary
        };
        if !is_read_once(&self.file) {
            // Before a store is created: a damaged file leaves nothing behind.
            read("checking", &mut |_| Ok(()))?;
        }
        let (db, table) = self.store.open_or_create()?;
        let mut loader = EntryLoader::new(&table)?;
        let loaded = read("importing", &mut |entry| loader.add(entry));
        let written = loader.write();
        let keys = loader.keys;
        drop(loader);
        let synced = table.sync();
        let closed = db.close();
        let summary = loaded.and_then(|summary| written.map(|()| summary));
        let summary = summary.map_err(|failure| {
            let text = format!("{keys} keys are imported");
            match interrupt.check().err().unwrap_or(failure) {
                Failure::Interrupted { signal, .. } => Failure::Interrupted {
                    signal,
                    text: format!("{text}; the same import again completes them"),
                },
                Failure::Usage(reason) => Failure::Usage(format!("{reason} ({text})")),
                Failure::Store(reason) if synced.is_ok() => Failure::Store(format!(
                    "{reason}\n({text}; the same import again completes them)"
                )),
                other => other,
            }
        })?;
        synced?;
        closed?;
        summary.print(name, self.json);
        Ok(Outcome::Done)
    }

    /// Opens the file or standard input, with a bar of its progress.
    fn open<'a>(
        &self,
        doing: &'static str,
        interrupt: &'a Interrupt,
    ) -> Result<(Box<dyn Read + 'a>, ProgressBar), Failure> {
        if is_stdio(&self.file) {
            let stdin =
                interrupt.stdin().map_err(|e| Failure::file("read", "standard input", &e))?;
            return Ok((Box::new(stdin), progress::spinner(doing)));
        }
        let open = |path: &Path| -> std::io::Result<(File, u64)> {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            match metadata.is_dir() {
                true => Err(std::io::ErrorKind::IsADirectory.into()),
                false => Ok((file, metadata.len())),
            }
        };
        let (file, len) =
            open(&self.file).map_err(|e| Failure::file("read", &shown(&self.file), &e))?;
        Ok(match is_read_once(&self.file) {
            true => (Box::new(interrupt.interruptible(file)), progress::spinner(doing)),
            false => (Box::new(file), progress::bytes(doing, len)),
        })
    }

    /// Passes every row of the input to `take`; values may have up to `max_value_bytes`.
    fn read_all(
        &self,
        doing: &'static str,
        max_value_bytes: usize,
        interrupt: &Interrupt,
        take: &mut dyn FnMut(Row) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (input, bar) = self.open(doing, interrupt)?;
        let input = BufReader::with_capacity(BUFFER_BYTES, bar.wrap_read(input));
        let result = match self.format() {
            Format::Csv => self.read_csv(input, max_value_bytes, take),
            Format::Tsv => {
                let escapes = !self.format_args.no_escapes;
                let read =
                    |input: &mut dyn BufRead, line: &mut Vec<u8>| tsv::read(input, line, escapes);
                self.read_lines(input, max_value_bytes, take, read)
            }
            Format::Jsonl => self.read_lines(input, max_value_bytes, take, format::jsonl::read),
        };
        bar.finish_and_clear();
        result
    }

    fn read_lines(
        &self,
        mut input: impl BufRead,
        max_value_bytes: usize,
        take: &mut dyn FnMut(Row) -> Result<(), Failure>,
        mut read: impl FnMut(&mut dyn BufRead, &mut Vec<u8>) -> Result<Option<Row>, String>,
    ) -> Result<(), Failure> {
        let mut line = Vec::new();
        for number in 1u64.. {
            let row = read(&mut input, &mut line).map_err(|e| self.bad_row(number, &e))?;
            let Some(row) = row else { break };
            self.check(&row, max_value_bytes, number)?;
            take(row)?;
        }
        Ok(())
    }

    fn read_csv(
        &self,
        input: impl Read,
        max_value_bytes: usize,
        take: &mut dyn FnMut(Row) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(self.format_args.header)
            .flexible(false)
            .from_reader(QuoteTracker::of(input));
        let malformed = |e: csv::Error| {
            let line =
                e.position().map(csv::Position::line).or(format::quotes::line_of_long_row(&e));
            self.bad_row(line.unwrap_or(0), &format::csv::reason(&e))
        };
        let header = match self.format_args.header {
            true => Some(reader.byte_headers().map_err(malformed)?.clone()),
            false => None,
        };
        let mut record = csv::ByteRecord::new();
        while reader.read_byte_record(&mut record).map_err(malformed)? {
            let line = record.position().map_or(0, csv::Position::line);
            let row =
                format::csv::row(&record, header.as_ref()).map_err(|e| self.bad_row(line, &e))?;
            self.check(&row, max_value_bytes, line)?;
            take(row)?;
        }
        match reader.get_ref().open() {
            Some(line) => Err(self.bad_row(line, "a quote opens here and is never closed")),
            None => Ok(()),
        }
    }

    /// Checks a row against the store's limits; the error has its line.
    fn check(&self, (key, entry): &Row, max_value_bytes: usize, line: u64) -> Result<(), Failure> {
        let mut batch = WriteBatch::new();
        batch.put_entry(key, entry);
        batch.check(max_value_bytes).map_err(|e| self.bad_row(line, &e.to_string()))
    }

    /// The file's name for messages.
    fn file_name(&self) -> String {
        if is_stdio(&self.file) { "standard input".to_owned() } else { shown(&self.file) }
    }

    fn bad_row(&self, line: u64, reason: &str) -> Failure {
        Failure::Usage(format!("{}, line {line}: {reason}", self.file_name()))
    }
}

/// Writes rows in batches.
struct Loader<'a> {
    table: &'a Table,
    batch: WriteBatch,
    rows: u64,
    bytes: u64,
}

impl Loader<'_> {
    fn add(&mut self, (key, entry): Row) -> Result<(), Failure> {
        self.batch.put_entry(&key, &entry);
        if self.batch.as_bytes().len() >= BATCH_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.table.write(&self.batch, Durability::Buffered)?;
        self.rows += self.batch.len() as u64;
        self.bytes += self.batch.user_bytes();
        self.batch.clear();
        Ok(())
    }
}

/// Write all rows to a file or standard output
#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    reader: ReaderArgs,
    /// The file, which must not exist; `-` is standard output
    file: PathBuf,
    /// The format; by default from the file's extension, else TSV
    #[arg(long)]
    format: Option<Format>,
}

impl Export {
    pub(crate) fn run(self) -> CommandResult {
        let to_file = !is_stdio(&self.file);
        if to_file && self.file.symlink_metadata().is_ok() {
            return Err(self.exists());
        }
        let (db, table) = self.store.read(self.reader)?;
        let format = self.format.unwrap_or_else(|| Format::of(&self.file));
        let temporary =
            if to_file { Some((self.temporary_file()?, Interrupt::watch()?)) } else { None };
        let output: Box<dyn Write + '_> = match &temporary {
            Some((file, _)) => Box::new(file.as_file()),
            None => Box::new(std::io::stdout()),
        };
        let failed = |e: std::io::Error| Failure::file("write", &shown(&self.file), &e);
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        let bar = progress::count("exporting", table.stats().keys_estimate.unwrap_or(0));
        let mut line = Vec::new();
        let mut expiring = 0u64;
        for row in table.iter()? {
            if let Some((_, interrupt)) = &temporary {
                interrupt.check()?;
            }
            let row = row?;
            expiring += u64::from(row.1.expires_at.is_some());
            line.clear();
            write_row(&mut line, format, &row)?;
            output.write_all(&line).map_err(failed)?;
            bar.inc(1);
        }
        output.flush().map_err(failed)?;
        drop(output);
        if let Some((file, _)) = temporary {
            // Durable before it has its name: a backup must survive a power cut.
            file.as_file().sync_all().map_err(failed)?;
            file.persist_noclobber(&self.file).map_err(|e| match e.error.kind() {
                ErrorKind::AlreadyExists => self.exists(),
                _ => failed(e.error),
            })?;
            File::open(self.directory())
                .and_then(|directory| directory.sync_all())
                .map_err(failed)?;
        }
        let rows = bar.position();
        bar.finish_and_clear();
        db.close()?;
        eprintln!("exported {rows} rows");
        if expiring > 0 && format != Format::Jsonl {
            eprintln!(
                "{expiring} of them expire, which this format cannot hold: use --format jsonl"
            );
        }
        Ok(Outcome::Done)
    }

    /// A temporary file beside the target, removed unless it is renamed to it.
    fn temporary_file(&self) -> Result<NamedTempFile, Failure> {
        tempfile::Builder::new()
            .prefix(".siltstone-export-")
            // By the umask: the content is not private to this process.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(self.directory())
            .map_err(|e| Failure::file("create", &shown(&self.file), &e))
    }

    /// The directory of the file.
    fn directory(&self) -> &Path {
        match self.file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }

    fn exists(&self) -> Failure {
        Failure::Store(format!(
            "cannot export to {}: it exists already; remove it or choose another name",
            shown(&self.file)
        ))
    }
}

fn write_row(out: &mut Vec<u8>, format: Format, (key, entry): &Row) -> Result<(), Failure> {
    match format {
        Format::Tsv => {
            out.extend(tsv::escape(key));
            out.push(b'\t');
            out.extend(tsv::escape(&entry.value));
            out.push(b'\n');
        }
        Format::Jsonl => {
            out.extend(json_row(key, entry).to_string().bytes());
            out.push(b'\n');
        }
        Format::Csv => {
            let mut writer = csv::Writer::from_writer(out);
            let record = [&key[..], &entry.value];
            let written = writer.write_record(record).and_then(|()| Ok(writer.flush()?));
            written.map_err(|e| Failure::Store(format!("cannot write a CSV row: {e}")))?;
        }
    }
    Ok(())
}
