//! `put`, `get`, `del`, `scan`: single keys and ranges.
//!
//! Keys and values on the command line are taken byte for byte; `scan` prints them escaped as in
//! TSV (`\t`, `\n`, `\xNN`), so that any bytes are distinguishable on a terminal.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use siltstone::{Clock, Durability, Iter, SystemClock, Timestamp, WriteBatch};

use crate::format::{json_key, json_row, tsv};
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::store::{NewStoreArgs, RangeArgs, ReaderArgs, StoreArgs};

/// Set one key
#[derive(Args)]
pub(crate) struct Put {
    #[command(flatten)]
    store: NewStoreArgs,
    /// The key: up to 64 KiB
    #[arg(allow_negative_numbers = true)]
    key: std::ffi::OsString,
    /// The value; `-` reads it from standard input
    #[arg(allow_negative_numbers = true)]
    value: std::ffi::OsString,
    /// Expire the entry after this time, e.g. 10s, 2h
    #[arg(long, value_parser = ttl)]
    ttl: Option<Duration>,
}

/// Parses the lifetime of an entry: a zero lifetime would remove the key.
fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = siltstone::options::parse_duration(text)?;
    match ttl.as_millis() {
        0 => Err("the lifetime must be 1ms or more; `siltstone del` removes a key".to_owned()),
        _ => Ok(ttl),
    }
}

impl Put {
    pub(crate) fn run(self) -> CommandResult {
        let value = if self.value == "-" {
            let mut value = Vec::new();
            // One byte over the limit is enough to refuse the value.
            let input = std::io::stdin().take(siltstone::MAX_VALUE_BYTES as u64 + 1);
            { input }
                .read_to_end(&mut value)
                .map_err(|e| Failure::file("read", "standard input", &e))?;
            value
        } else {
            self.value.as_bytes().to_vec()
        };
        let mut batch = WriteBatch::new();
        match self.ttl {
            None => batch.put(self.key.as_bytes(), &value),
            Some(ttl) => {
                let expires_at = SystemClock.now().saturating_add(ttl.as_millis() as u64);
                batch.put_until(self.key.as_bytes(), &value, expires_at)
            }
        };
        // Checked before a directory is created for it.
        batch.check(siltstone::MAX_VALUE_BYTES)?;
        let (db, table) = self.store.open_or_create()?;
        table.write(&batch, Durability::Synced)?;
        db.close()?;
        Ok(Outcome::Done)
    }
}

/// Print the value of one key (exit status 1 if there is none)
#[derive(Args)]
pub(crate) struct Get {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    reader: ReaderArgs,
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: std::ffi::OsString,
    /// Print only the value's bytes, without a newline after them
    #[arg(long)]
    raw: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Print the value at this time: milliseconds since 1970, or a duration ago, e.g. -10s, -2h;
    /// for tables that keep history
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = timestamp)]
    at: Option<Timestamp>,
}

/// Parses a time: milliseconds since 1970, or a duration before now.
fn timestamp(text: &str) -> Result<Timestamp, String> {
    match text.strip_prefix('-') {
        Some(ago) => {
            let ago = siltstone::options::parse_duration(ago)?.as_millis() as u64;
            Ok(SystemClock.now().saturating_sub(ago))
        }
        None => text.parse().map_err(|_| {
            format!(
                "'{text}' is not a time; write milliseconds since 1970, or -10s for ten seconds ago"
            )
        }),
    }
}

impl Get {
    pub(crate) fn run(self) -> CommandResult {
        let (db, table) = self.store.read(self.reader)?;
        let entry = match self.at {
            Some(time) => table.at(time)?.get_entry(self.key.as_bytes())?,
            None => table.get_entry(self.key.as_bytes())?,
        };
        db.close()?;
        let mut out = std::io::stdout().lock();
        let found = entry.is_some();
        let written = match entry {
            Some(entry) if self.json => writeln!(out, "{}", json_row(self.key.as_bytes(), &entry)),
            None if self.json => writeln!(out, "{}", json!({ "found": false })),
            Some(entry) if self.raw => out.write_all(&entry.value),
            Some(entry) => out.write_all(&entry.value).and_then(|()| out.write_all(b"\n")),
            None => Ok(()),
        };
        written.map_err(Failure::output)?;
        if !found && !self.json {
            eprintln!("siltstone: no such key");
        }
        Ok(if found { Outcome::Done } else { Outcome::No })
    }
}

/// Remove keys
///
/// All keys are removed in one batch. Missing keys are listed, with exit status 1; the others are
/// removed all the same.
#[derive(Args)]
pub(crate) struct Del {
    #[command(flatten)]
    store: StoreArgs,
    /// The keys
    #[arg(required = true, allow_negative_numbers = true)]
    keys: Vec<std::ffi::OsString>,
    /// Print one JSON object: the number of removed keys, and the missing keys
    #[arg(long)]
    json: bool,
}

impl Del {
    pub(crate) fn run(self) -> CommandResult {
        let keys: BTreeSet<_> = self.keys.iter().map(|key| key.as_bytes()).collect();
        let mut batch = WriteBatch::new();
        for key in &keys {
            batch.delete(key);
        }
        batch.check(siltstone::MAX_VALUE_BYTES)?;
        let (db, table) = self.store.write()?;
        batch.clear();
        let mut missing = Vec::new();
        for key in keys {
            match table.get_entry(key)? {
                Some(_) => drop(batch.delete(key)),
                None => missing.push(key),
            }
        }
        if !batch.is_empty() {
            table.write(&batch, Durability::Synced)?;
        }
        db.close()?;
        if self.json {
            let missing: Vec<_> = missing.iter().map(|key| json_key(key)).collect();
            println!("{}", json!({ "removed": batch.len(), "missing": missing }));
        } else {
            for key in &missing {
                eprintln!("siltstone: no such key: {}", String::from_utf8_lossy(&tsv::escape(key)));
            }
        }
        Ok(if missing.is_empty() { Outcome::Done } else { Outcome::No })
    }
}

/// Print the entries of a range of keys, in order
#[derive(Args)]
pub(crate) struct Scan {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    reader: ReaderArgs,
    #[command(flatten)]
    range: RangeArgs,
    /// Only keys that start with this
    #[arg(long, allow_negative_numbers = true, conflicts_with_all = ["from", "to"])]
    prefix: Option<std::ffi::OsString>,
    /// The maximum number of entries
    #[arg(long, value_parser = siltstone::options::parse_count)]
    limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Print only keys
    #[arg(long)]
    keys_only: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Scan {
    pub(crate) fn run(self) -> CommandResult {
        let (db, table) = self.store.read(self.reader)?;
        let engine = table.engine();
        if !engine.capabilities().ordered {
            return Err(Failure::Usage(format!(
                "table '{}' is on the engine {}, which is unordered and cannot be scanned: siltstone export \
                 {} - --table {} prints all of it",
                table.name(),
                engine.name(),
                self.store.dir.display(),
                table.name()
            )));
        }
        let range: Iter = match &self.prefix {
            Some(prefix) => table.prefix(prefix.as_bytes())?,
            None => table.range::<&[u8]>(self.range.bounds())?,
        };
        let limit =
            self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if self.reverse {
            self.print(range.rev().take(limit))?;
        } else {
            self.print(range.take(limit))?;
        }
        db.close()?;
        Ok(Outcome::Done)
    }

    fn print(
        &self,
        entries: impl Iterator<Item = siltstone::Result<(Vec<u8>, siltstone::Entry)>>,
    ) -> Result<(), Failure> {
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        let mut rows = Vec::new();
        for entry in entries {
            let (key, entry) = entry?;
            if self.json {
                rows.push(json_row(&key, &entry));
                continue;
            }
            let mut line = tsv::escape(&key);
            if !self.keys_only {
                line.push(b'\t');
                line.extend(tsv::escape(&entry.value));
            }
            line.push(b'\n');
            out.write_all(&line).map_err(Failure::output)?;
        }
        if self.json {
            writeln!(out, "{}", json!({ "entries": rows })).map_err(Failure::output)?;
        }
        out.flush().map_err(Failure::output)
    }
}
