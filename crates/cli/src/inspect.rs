//! `inspect`: the contents of one file, or of each file of a store.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use siltstone::engines::{Inspection, inspect_with};

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::store::keys;

/// Dump a file
///
/// Works on a store that is closed, and on files copied from one: nothing is changed or locked.
#[derive(Args)]
pub(crate) struct Inspect {
    /// A file (CATALOG, CURRENT, MANIFEST-*, *.log, *.sst, *.hash, …), or the directory of a store
    path: PathBuf,
    /// The maximum number of entries, records or edits to print per file
    #[arg(long, default_value_t = 10)]
    limit: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(self) -> CommandResult {
        let mut files = Vec::new();
        collect(&self.path, &mut files)
            .map_err(|e| Failure::file("read", &self.path.display().to_string(), &e))?;
        let mut is_intact = true;
        let mut dumped = Vec::new();
        if self.path.is_dir() && is_without_catalogue(&self.path, &files) {
            is_intact = false;
            let file = self.path.join("CATALOG");
            let reason = "it is missing, though there are directories of tables";
            let damage = Some(format!("{reason}: `siltstone repair` rebuilds it"));
            let inspection = Inspection { kind: "catalogue", damage, ..Inspection::default() };
            if !self.json {
                print(&file, &inspection);
            }
            dumped.push(json!({ "file": file.to_string_lossy(), "inspection": inspection }));
        }
        for file in files {
            let Some(inspection) = inspect_with(&file, self.limit, &keys())? else { continue };
            is_intact &= inspection.damage.is_none();
            if !self.json {
                print(&file, &inspection);
            }
            dumped.push(json!({ "file": file.to_string_lossy(), "inspection": inspection }));
        }
        if dumped.is_empty() {
            let path = self.path.display();
            return Err(Failure::Usage(format!("{path}: no file of a store")));
        }
        if self.json {
            println!("{}", json!({ "files": dumped }));
        }
        Ok(if is_intact { Outcome::Done } else { Outcome::No })
    }
}

/// Whether a directory has table directories and no catalogue.
fn is_without_catalogue(dir: &Path, files: &[PathBuf]) -> bool {
    let is_of_table = |file: &PathBuf| {
        let inside = file.strip_prefix(dir).ok().and_then(|inside| inside.iter().next()?.to_str());
        inside.is_some_and(|name| name.starts_with("table-"))
    };
    !files.contains(&dir.join("CATALOG")) && files.iter().any(is_of_table)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        std::fs::metadata(path)?;
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<_> =
        path.read_dir()?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    entries.sort();
    entries.iter().try_for_each(|entry| collect(entry, files))
}

fn print(file: &Path, inspection: &Inspection) {
    println!("{}: {}", file.display(), inspection.kind);
    for (name, value) in &inspection.properties {
        println!("  {name:<20} {value}");
    }
    for item in &inspection.items {
        println!("    {item}");
    }
    if inspection.more > 0 {
        println!("    … and {} more", inspection.more);
    }
    if let Some(damage) = &inspection.damage {
        println!("  DAMAGED: {damage}");
    }
}
