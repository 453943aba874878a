//! `verify` and `repair`: every byte checked; what can be saved, saved.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use siltstone::{
    Damage, Db, DbOptions, Error, Loss, RepairReport, VerifyReport, catalogue, engines,
};

use crate::store::{tell_no_tables, to_read, warn_reader};
use crate::{CommandResult, Outcome, progress};

/// Read and check every byte (exit status 1 if anything is damaged)
///
/// Damaged or missing files are told by name, with exit status 1; status 3 means that it could not be checked: no
/// store is there, or no right to read it, or another process has it open. Nothing is changed.
#[derive(Args)]
pub(crate) struct Verify {
    /// The directory of the store
    dir: PathBuf,
    /// One table alone
    #[arg(long)]
    table: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(crate) fn run(self) -> CommandResult {
        let db = match Db::open(&self.dir, to_read()) {
            Err(damage) if damage.is_corruption() => return self.without_catalogue(damage),
            db => db?,
        };
        let catalogue = db.catalogue()?;
        let (names, unnamed) = match self.table {
            Some(name) => (vec![name], Vec::new()),
            None => (db.table_names()?, db.unnamed_tables()?),
        };
        let mut is_sound = unnamed.is_empty();
        let mut tables = serde_json::Map::new();
        for name in &unnamed {
            if !self.json {
                println!(
                    "table {name}: a directory is there, which CATALOG does not name: NOT CHECKED"
                );
            }
        }
        for name in names {
            let engine = catalogue.tables.get(&name).map_or("", |spec| spec.engine.as_str());
            let report = verify(&db, &self.dir, &name, engine)?;
            is_sound &= report.is_sound();
            if !self.json {
                print(&name, engine, &report);
            }
            tables.insert(name, json!(report));
        }
        if !self.json && tables.is_empty() {
            tell_no_tables(&self.dir);
        }
        if !self.json && !is_sound {
            let dir = self.dir.display();
            println!("`siltstone repair {dir}` saves what can be saved");
        }
        if self.json {
            let none: [Damage; 0] = [];
            println!(
                "{}",
                json!({ "sound": is_sound, "catalogue": none, "unnamed": unnamed, "tables": tables })
            );
        }
        db.close()?;
        Ok(if is_sound { Outcome::Done } else { Outcome::No })
    }

    /// Tells of a catalogue that is damaged: nobody knows which tables there are.
    fn without_catalogue(&self, damage: Error) -> CommandResult {
        let mut report = VerifyReport::default();
        report.note(Err(damage))?;
        if self.json {
            println!(
                "{}",
                json!({ "sound": false, "catalogue": report.damage, "unnamed": [], "tables": {} })
            );
        } else {
            tell(&report.damage);
            let dir = self.dir.display();
            println!(
                "no table can be checked without it: `siltstone repair {dir}` makes it anew from what is there"
            );
        }
        Ok(Outcome::No)
    }
}

/// Checks a table, also one that does not open because it is damaged.
fn verify(db: &Db, dir: &Path, name: &str, engine: &str) -> siltstone::Result<VerifyReport> {
    let table = match db.table(name) {
        Err(damage) if damage.is_corruption() => {
            return engines::verify_closed(engine, &db.table_media(name)?, damage);
        }
        table => table?,
    };
    warn_reader(&table, dir);
    let bar = progress::bytes("verifying", 0);
    let report = table.verify(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    report
}

fn print(name: &str, engine: &str, report: &VerifyReport) {
    let soundness = if report.is_sound() { "sound" } else { "DAMAGED" };
    let VerifyReport { files, bytes, entries, damage } = report;
    if engine == "mica" {
        // Its bytes are of memory, which nothing was read from a medium into.
        println!("table {name}: in memory alone, {entries} entries: {soundness}");
    } else {
        println!("table {name}: {files} files, {bytes} bytes, {entries} entries: {soundness}");
    }
    tell(damage);
}

fn tell(damage: &[Damage]) {
    for Damage { file, offset, reason } in damage {
        println!("  {file} at byte {offset}: {reason}");
    }
}

/// Save what can be saved of a damaged store
///
/// Damaged files are kept beside the repaired ones as *.damaged; no damaged file is deleted. What
/// it did is told, line by line, and what could not be saved with its file and bytes. Exit status
/// 0: nothing was lost; 1: something was. A damaged or missing CATALOG is made anew from the
/// directories of the tables; one that does not name all of them, as an older one that was put
/// back, is added to.
#[derive(Args)]
pub(crate) struct Repair {
    /// The directory of the store
    dir: PathBuf,
    /// One table alone
    #[arg(long)]
    table: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(crate) fn run(self) -> CommandResult {
        let mut of_catalogue = Vec::new();
        let db = match Db::open(&self.dir, DbOptions::default()) {
            Err(damage) if damage.is_corruption() => {
                of_catalogue = catalogue::repair(&self.dir)?;
                Db::open(&self.dir, DbOptions::default())?
            }
            db => db?,
        };
        let db = if db.unnamed_tables()?.is_empty() {
            db
        } else {
            db.close()?;
            of_catalogue.extend(catalogue::repair(&self.dir)?);
            Db::open(&self.dir, DbOptions::default())?
        };
        if !self.json {
            of_catalogue.iter().for_each(|line| println!("{line}"));
        }
        let tables = match &self.table {
            Some(name) => [(name.clone(), db.spec_of(name)?)].into(),
            None => db.catalogue()?.tables,
        };
        let (mut told, mut lost) = (serde_json::Map::new(), serde_json::Map::new());
        for (name, spec) in tables {
            let is_lost = db.has_lost_files_of(&name)?;
            let media = db.table_media(&name)?;
            let report = if is_lost {
                let env = DbOptions::default().env;
                engines::open(&spec.engine, media, &env, &spec.options)?.close()?;
                let mut report = RepairReport::default();
                report.note("its files are missing, all of them: it is begun anew, empty");
                report.lose(Loss::entries(format!("table-{name}"), 0..u64::MAX));
                report
            } else {
                match engines::repair(&spec.engine, &media, &spec.options) {
                    // One table in memory must not keep the others from being repaired.
                    Err(Error::Unsupported { engine, .. }) if self.table.is_none() => {
                        format!("nothing to repair: {engine} keeps no files").into()
                    }
                    report => report?,
                }
            };
            if !self.json {
                println!("table {name}:");
                report.lines.iter().for_each(|line| println!("  {line}"));
            }
            told.insert(name.clone(), json!(report.lines));
            if !report.is_lossless() {
                lost.insert(name, json!(report.losses));
            }
        }
        let is_lossless = lost.is_empty();
        if self.json {
            println!("{}", json!({ "catalogue": of_catalogue, "tables": told, "lost": lost }));
        }
        db.close()?;
        Ok(if is_lossless { Outcome::Done } else { Outcome::No })
    }
}
