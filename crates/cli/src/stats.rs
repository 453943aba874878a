//! `stats`: statistics of a store.

use std::path::PathBuf;

use clap::Args;
use comfy_table::{Cell, CellAlignment, Table as Grid, presets};
use indicatif::HumanBytes;
use serde_json::json;
use siltstone::Stats;

use crate::outcome::{CommandResult, Outcome};
use crate::store::{ReaderArgs, print_no_tables, warn_reader};

/// Print statistics
///
/// The number of keys is an estimate ("about"; in JSON `keys_estimate`, which `skimpy` omits): an
/// overwritten key may count again until a compaction or a merge drops the old version. `entries`
/// of a level counts all versions. Nothing in the store is changed.
#[derive(Args)]
pub(crate) struct StatsCommand {
    /// The directory of the store
    dir: PathBuf,
    #[command(flatten)]
    reader: ReaderArgs,
    /// Only this table
    #[arg(long)]
    table: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl StatsCommand {
    pub(crate) fn run(self) -> CommandResult {
        let (db, reader) = self.reader.open(&self.dir)?;
        let names = match self.table {
            Some(name) => vec![name],
            None => db.table_names()?,
        };
        let mut tables = serde_json::Map::new();
        for name in names {
            let table = match &reader {
                Some(reader) => reader.table(&name)?,
                None => db.table(&name)?,
            };
            warn_reader(&table, &self.dir);
            let stats = table.stats();
            if !self.json {
                print(&name, &stats);
            }
            tables.insert(name, json!(stats));
        }
        if self.json {
            println!("{}", json!({ "tables": tables }));
        } else if tables.is_empty() {
            print_no_tables(&self.dir);
        }
        db.close()?;
        Ok(Outcome::Done)
    }
}

fn print(name: &str, stats: &Stats) {
    let keys = match stats.keys_estimate {
        Some(keys) => format!("about {keys} keys"),
        None => "keys are not counted".to_owned(),
    };
    let space = HumanBytes(stats.space_bytes);
    println!("table {name} on {}: {keys}, {space} on disk", stats.engine);
    if !stats.options.is_empty() {
        let given = stats.options.iter().map(|(name, value)| format!("{name}={value}"));
        println!("options: {}", given.collect::<Vec<_>>().join(", "));
    }
    if stats.levels.iter().any(|level| level.files > 0) {
        println!("{}", levels(stats));
    } else if stats.engine == "mica" {
        println!("in memory: empty until it is served");
    } else if stats.engine != "skimpy" {
        println!("no level files yet: all data is in memory and in the log");
    }
    let memory: Vec<_> =
        stats.memory.iter().map(|(name, &bytes)| format!("{name} {}", HumanBytes(bytes))).collect();
    println!("memory: {}\n", memory.join(", "));
}

/// The levels that have files.
fn levels(stats: &Stats) -> Grid {
    let mut grid = Grid::new();
    grid.load_style(presets::UTF8_HORIZONTAL_ONLY);
    grid.set_header(["level", "files", "bytes", "target", "entries"]);
    for level in stats.levels.iter().filter(|level| level.files > 0) {
        let target = match level.target_bytes {
            0 => "–".to_owned(),
            bytes => HumanBytes(bytes).to_string(),
        };
        let number = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        grid.add_row([
            Cell::new(&level.name),
            number(level.files.to_string()),
            number(HumanBytes(level.bytes).to_string()),
            number(target),
            number(level.entries.to_string()),
        ]);
    }
    grid
}
