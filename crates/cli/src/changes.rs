//! `changes`: the change feed of a table, as lines.
//!
//! ```text
//!   text     SEQUENCE TAB OPERATION TAB KEY TAB VALUE    one line per operation, escaped as TSV
//!   jsonl    {"sequence": …, "operations": [ … ]}        one line per change: a batch is one
//! ```
//!
//! With `--follow` the command reads beside the writer. It polls the log, and when there is more it
//! reopens the feed after the last change that it has printed.

use std::io::{BufWriter, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use siltstone::{BatchOp, Change, ChangeBatch, Db, DbReader, Op, Table};

use crate::format::{put_bytes, tsv};
use crate::interrupt::Interrupt;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::store::{ReaderArgs, StoreArgs};

/// The time between two polls of the log.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

/// Print the changes of a table on lsm, in the order of their sequence numbers
///
/// The changes are read from the log. The options log_retention and log_retention_time of the table
/// say how much of it is kept. With --reader and --follow changes are shown before they are
/// durable.
#[derive(Args)]
pub(crate) struct Changes {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    reader: ReaderArgs,
    /// Only changes after this sequence number: that of the last change that was seen
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    after: u64,
    /// Go on with new changes until interrupted, beside the process that writes them
    #[arg(long)]
    follow: bool,
    /// The maximum number of changes; a batch is one change
    #[arg(long, value_parser = siltstone::options::parse_count)]
    limit: Option<u64>,
    /// The format of the output
    #[arg(long, default_value = "text")]
    format: ChangeFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ChangeFormat {
    /// `sequence TAB operation TAB key TAB value` lines, one per operation
    Text,
    /// One JSON object per change
    Jsonl,
}

/// Prints changes, and counts them.
struct Printer<W: Write> {
    out: BufWriter<W>,
    format: ChangeFormat,
    /// The sequence number of the last change.
    position: u64,
    /// The changes that may still be printed.
    left: u64,
}

impl Changes {
    pub(crate) fn run(self) -> CommandResult {
        let interrupt = Interrupt::watch()?;
        let mut printer = Printer {
            out: BufWriter::new(std::io::stdout().lock()),
            format: self.format,
            position: self.after,
            left: self.limit.unwrap_or(u64::MAX),
        };
        let printed = match self.follow {
            true => self.follow(&mut printer, &interrupt),
            false => self.print_all(&mut printer, &interrupt),
        };
        let flushed = printer.out.flush().map_err(Failure::output);
        let position = printer.position;
        printed.and(flushed).map_err(|failure| match failure {
            Failure::Interrupted { signal, .. } => {
                Failure::Interrupted { signal, text: format!("go on with --after {position}") }
            }
            other => other,
        })?;
        Ok(Outcome::Done)
    }

    fn print_all<W: Write>(
        &self,
        printer: &mut Printer<W>,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let (db, table) = self.store.read(self.reader)?;
        printer.print(&table, interrupt)?;
        db.close()?;
        Ok(())
    }

    fn follow<W: Write>(
        &self,
        printer: &mut Printer<W>,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let reader: DbReader = Db::open_reader(&self.store.dir, crate::store::options())?;
        while printer.left > 0 {
            printer.print(&reader.table(&self.store.table)?, interrupt)?;
            printer.out.flush().map_err(Failure::output)?;
            loop {
                interrupt.check()?;
                if printer.left == 0 || reader.catch_up()? {
                    break;
                }
                std::thread::sleep(FOLLOW_INTERVAL);
            }
        }
        Ok(())
    }
}

impl<W: Write> Printer<W> {
    /// Prints the changes that the log has now, from the position on.
    fn print(&mut self, table: &Table, interrupt: &Interrupt) -> Result<(), Failure> {
        for change in table.changes(self.position)? {
            if self.left == 0 {
                break;
            }
            interrupt.check()?;
            let change = change?;
            let written = match self.format {
                ChangeFormat::Text => self.print_text(&change),
                ChangeFormat::Jsonl => writeln!(self.out, "{}", to_json(&change)),
            };
            written.map_err(Failure::output)?;
            (self.position, self.left) = (change.sequence, self.left - 1);
        }
        Ok(())
    }

    fn print_text(&mut self, change: &ChangeBatch) -> std::io::Result<()> {
        let mut line = |sequence: u64, name: &str, parts: &[&[u8]]| {
            write!(self.out, "{sequence}\t{name}")?;
            for part in parts {
                self.out.write_all(b"\t")?;
                self.out.write_all(&tsv::escape(part))?;
            }
            self.out.write_all(b"\n")
        };
        let Change::Write(batch) = &change.change else {
            return line(change.sequence, name_of(&change.change), &[]);
        };
        for (sequence, op) in (change.first_sequence..).zip(batch.iter_all()) {
            match op {
                BatchOp::Point(Op::Put { key, value, .. }) => line(sequence, "put", &[key, value]),
                BatchOp::Point(Op::Delete { key }) => line(sequence, "delete", &[key]),
                BatchOp::DeleteRange { start, end: Some(end) } => {
                    line(sequence, "delete-range", &[start, end])
                }
                BatchOp::DeleteRange { start, end: None } => {
                    line(sequence, "delete-range", &[start])
                }
                BatchOp::Merge { key, operand } => line(sequence, "merge", &[key, operand]),
            }?;
        }
        Ok(())
    }
}

/// The name of a change that is no batch.
fn name_of(change: &Change) -> &'static str {
    match change {
        Change::Write(_) => "write",
        Change::Cleared => "clear",
        Change::Ingested => "ingest",
        _ => "unknown",
    }
}

/// A change as JSON: bytes as in exported rows.
fn to_json(change: &ChangeBatch) -> Value {
    let mut object = Map::new();
    object.insert("first_sequence".to_owned(), json!(change.first_sequence));
    object.insert("sequence".to_owned(), json!(change.sequence));
    if let Some(part) = &change.part {
        object.insert("batch".to_owned(), json!(part.batch));
    }
    match &change.change {
        Change::Write(batch) => {
            let operations: Vec<Value> = batch.iter_all().map(operation).collect();
            object.insert("operations".to_owned(), operations.into());
        }
        other => _ = object.insert("event".to_owned(), json!(name_of(other))),
    }
    Value::Object(object)
}

fn operation(op: BatchOp<'_>) -> Value {
    let mut object = Map::new();
    let mut name = |name: &str| _ = object.insert("operation".to_owned(), json!(name));
    match op {
        BatchOp::Point(Op::Put { key, value, expires_at }) => {
            name("put");
            put_bytes(&mut object, "key", key);
            put_bytes(&mut object, "value", value);
            if let Some(at) = expires_at {
                object.insert("expires_at".to_owned(), json!(at));
            }
        }
        BatchOp::Point(Op::Delete { key }) => {
            name("delete");
            put_bytes(&mut object, "key", key);
        }
        BatchOp::DeleteRange { start, end } => {
            name("delete-range");
            put_bytes(&mut object, "start", start);
            if let Some(end) = end {
                put_bytes(&mut object, "end", end);
            }
        }
        BatchOp::Merge { key, operand } => {
            name("merge");
            put_bytes(&mut object, "key", key);
            put_bytes(&mut object, "operand", operand);
        }
    }
    Value::Object(object)
}
