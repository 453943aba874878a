//! Backups of a store that is in use: a checkpoint per day, the oldest removed.
// An example prints.
#![allow(clippy::print_stdout)]

use std::path::Path;

use siltstone::{Db, DbOptions};

// ANCHOR: backup
/// Makes the backup `name` in `backups`, checks it, and keeps the newest `kept` ones.
fn back_up(
    db: &Db,
    backups: &Path,
    name: &str,
    kept: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let dir = backups.join(name);
    db.checkpoint(&dir)?; // complete under this name, or not there at all
    let copy = Db::open(&dir, DbOptions { read_only: true, ..DbOptions::default() })?;
    for table in copy.table_names()? {
        let report = copy.table(&table)?.verify(&mut |_, _| ())?;
        if let Some(damage) = report.damage.first() {
            return Err(format!("table {table} of the backup: {damage:?}").into());
        }
    }
    copy.close()?;
    let mut names: Vec<_> = backups.read_dir()?.collect::<Result<_, _>>()?;
    names.sort_by_key(|entry| entry.file_name());
    for old in names.iter().rev().skip(kept) {
        std::fs::remove_dir_all(old.path())?;
    }
    Ok(())
}
// ANCHOR_END: backup

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("siltstone-backup-{}", std::process::id()));
    let db = Db::open_or_create(dir.join("store"), DbOptions::default())?;
    let table = db.table_or_create("days", "lsm", &Default::default())?;
    let backups = dir.join("backups");
    std::fs::create_dir_all(&backups)?;
    for day in ["2026-11-24", "2026-11-25", "2026-11-26"] {
        table.put(day.as_bytes(), b"")?;
        back_up(&db, &backups, day, 2)?;
    }
    // The store and a backup are independent.
    table.clear()?;
    let restored = Db::open(backups.join("2026-11-25"), DbOptions::default())?;
    assert_eq!(restored.table("days")?.len()?, 2);
    assert!(!backups.join("2026-11-24").exists());
    println!("{:?}", restored.disk_usage()?);
    restored.close()?;
    db.close()?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}

#[test]
fn example_runs() {
    main().unwrap();
}
