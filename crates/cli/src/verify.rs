//! `verify` and `repair`: check every byte; rebuild damaged parts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use siltstone::maintenance::{self, StoreRepairReport};
use siltstone::{Damage, Db, Error, VerifyReport};

use crate::outcome::{CommandResult, Outcome};
use crate::progress;
use crate::store::{options, print_no_tables, read_only, warn_reader};

/// Read and check every byte (exit status 1 if anything is damaged)
///
/// Damaged and missing files are listed, with exit status 1. Status 3 means that the store could
/// not be checked: it does not exist, is not readable, or is open in another process. Nothing is
/// changed.
#[derive(Args)]
pub(crate) struct Verify {
    /// The directory of the store
    dir: PathBuf,
    /// Only this table
    #[arg(long)]
    table: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(crate) fn run(self) -> CommandResult {
        let db = match Db::open(&self.dir, read_only()) {
            Err(damage) if damage.is_corruption() => return self.without_catalogue(damage),
            db => db?,
        };
        let catalogue = db.catalogue()?;
        let (names, unlisted) = match self.table {
            Some(name) => (vec![name], Vec::new()),
            None => (db.table_names()?, db.unlisted_tables()?),
        };
        let headers = db.verify_headers()?;
        let mut is_intact = unlisted.is_empty() && headers.is_empty();
        if !self.json && !headers.is_empty() {
            println!("headers of encrypted files: DAMAGED");
            print_damage(&headers);
        }
        let mut tables = serde_json::Map::new();
        for name in &unlisted {
            if !self.json {
                println!(
                    "table {name}: the directory exists, but CATALOG does not list it: NOT CHECKED"
                );
            }
        }
        for name in names {
            let engine = catalogue.tables.get(&name).map_or("", |spec| spec.engine.as_str());
            let report = verify(&db, &self.dir, &name)?;
            is_intact &= report.is_intact();
            if !self.json {
                print(&name, engine, &report);
            }
            tables.insert(name, json!(report));
        }
        if !self.json && tables.is_empty() {
            print_no_tables(&self.dir);
        }
        if !self.json && !is_intact {
            let dir = self.dir.display();
            println!("`siltstone repair {dir}` repairs the damage as far as possible");
        }
        if self.json {
            let none: [Damage; 0] = [];
            println!(
                "{}",
                json!({ "intact": is_intact, "catalogue": none, "headers": headers, "unnamed": unlisted, "tables": tables })
            );
        }
        db.close()?;
        Ok(if is_intact { Outcome::Done } else { Outcome::No })
    }

    /// Reports a damaged catalogue, without which the tables are unknown.
    fn without_catalogue(&self, damage: Error) -> CommandResult {
        let mut report = VerifyReport::default();
        report.note(Err(damage))?;
        if self.json {
            println!(
                "{}",
                json!({ "intact": false, "catalogue": report.damage, "unnamed": [], "tables": {} })
            );
        } else {
            print_damage(&report.damage);
            let dir = self.dir.display();
            println!(
                "no table can be checked without it: `siltstone repair {dir}` rebuilds it from the table directories"
            );
        }
        Ok(Outcome::No)
    }
}

/// Checks a table, even if it does not open because of damage.
fn verify(db: &Db, dir: &Path, name: &str) -> siltstone::Result<VerifyReport> {
    // A table that does not open is checked, too.
    if let Ok(table) = db.table(name) {
        warn_reader(&table, dir);
    }
    let bar = progress::bytes("verifying", 0);
    let report = db.verify_table(name, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    report
}

fn print(name: &str, engine: &str, report: &VerifyReport) {
    let verdict = if report.is_intact() { "intact" } else { "DAMAGED" };
    let VerifyReport { files, bytes, entries, damage } = report;
    if engine == "mica" {
        // Its bytes are in memory; nothing was read from a disk.
        println!("table {name}: in memory, {entries} entries: {verdict}");
    } else {
        println!("table {name}: {files} files, {bytes} bytes, {entries} entries: {verdict}");
    }
    print_damage(damage);
}

fn print_damage(damage: &[Damage]) {
    for Damage { file, offset, reason } in damage {
        println!("  {file} at byte {offset}: {reason}");
    }
}

/// Repair a damaged store
///
/// Damaged files are kept beside the repaired ones as *.damaged; no damaged file is deleted. Each
/// repair is printed on a line, and each loss with its file and byte range. Exit status 0: nothing
/// was lost; 1: something was. A damaged or missing CATALOG is rebuilt from the table directories;
/// tables that it does not list, e.g. because an older one was restored, are added.
#[derive(Args)]
pub(crate) struct Repair {
    /// The directory of the store
    dir: PathBuf,
    /// Only this table
    #[arg(long)]
    table: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(crate) fn run(self) -> CommandResult {
        let mut report = StoreRepairReport::default();
        let table = self.table.as_deref();
        let repaired = maintenance::repair_with(&self.dir, table, &options(), &mut report);
        // After a failure, too: what was lost before it is lost.
        if repaired.is_ok() || !report.catalogue.is_empty() || !report.tables.is_empty() {
            self.print(&report);
        }
        repaired?;
        Ok(if report.is_lossless() { Outcome::Done } else { Outcome::No })
    }

    fn print(&self, report: &StoreRepairReport) {
        if self.json {
            let lines = report.tables.iter().map(|(name, table)| (name, &table.lines));
            let lines: BTreeMap<_, _> = lines.collect();
            let damaged = report.tables.iter().filter(|(_, table)| !table.is_lossless());
            let lost: BTreeMap<_, _> = damaged.map(|(name, table)| (name, &table.losses)).collect();
            let catalogue = &report.catalogue;
            println!("{}", json!({ "catalogue": catalogue, "tables": lines, "lost": lost }));
            return;
        }
        report.catalogue.iter().for_each(|line| println!("{line}"));
        for (name, table) in &report.tables {
            println!("table {name}:");
            table.lines.iter().for_each(|line| println!("  {line}"));
        }
    }
}
