//! `model`: predictions of the analytic model, its optimizer and its simulator.
//!
//! Nothing is opened or written: the results are pure functions of the parameters.

use clap::{Args, Subcommand, ValueEnum};
use comfy_table::{Cell, CellAlignment, Table as Grid, presets};
use serde_json::json;
use siltstone::options::{parse_count, parse_size};
use siltstone_model::optimize::optimize_levels;
use siltstone_model::simulate::{Selection, Simulation, Variation};
use siltstone_model::{
    Breakdown, Cola, Deletions, Drift, InvalidParameter, LevelDb, Lsm, Popularity, Samt, Silt,
    Skimpy, Trie, Wait,
};

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::progress;

/// Predict write amplification from the analytic model
#[derive(Args)]
pub(crate) struct Model {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Subcommand)]
enum ModelCommand {
    /// Write amplification of a design under a workload, stage by stage
    Wa(WriteAmplification),
    /// The level sizes with the lowest write amplification
    Optimize(Optimize),
    /// Write amplification of LevelDB's design, counted by an event simulator
    Simulate(Simulate),
}

#[derive(Args)]
struct Workload {
    /// Distinct keys, e.g. 100M
    #[arg(long, value_parser = parse_count)]
    keys: u64,
    /// The Zipf exponent; 0 is uniform
    #[arg(long, default_value_t = 0.0)]
    skew: f64,
    /// The size of an item (key and value) in bytes
    #[arg(long, default_value_t = 1000.0)]
    item_size: f64,
    /// LevelDB: the share of the requests that delete their key
    #[arg(long, default_value_t = 0.0)]
    deletes: f64,
    /// LevelDB: the size of a deleted entry in bytes, at most that of an item
    #[arg(long, default_value_t = 24.0)]
    tombstone_size: f64,
    /// LevelDB: sizes of items by popularity, instead of --item-size: shares of the keys with sizes
    /// in bytes, the most popular keys first, e.g. 0.1:100,0.9:2000
    #[arg(long, value_delimiter = ',', value_parser = parse_class, conflicts_with_all = ["item_size", "phase"])]
    item_sizes: Vec<(f64, f64)>,
    /// LevelDB: the number of requests after which other keys become the popular ones
    #[arg(long, value_parser = parse_count)]
    phase: Option<u64>,
}

/// A share of the keys and the size of their items.
fn parse_class(text: &str) -> Result<(f64, f64), String> {
    let (share, size) = text.split_once(':').ok_or("give SHARE:BYTES, e.g. 0.1:100")?;
    let number = |text: &str| text.parse::<f64>().map_err(|error| format!("{text}: {error}"));
    Ok((number(share)?, number(size)?))
}

#[derive(Args)]
struct Levels {
    /// The number of levels below level 0
    #[arg(long, default_value_t = 5)]
    levels: usize,
    /// Sizes of all levels but the last, e.g. 10MiB:100MiB; LevelDB's 10^l MiB if not given
    #[arg(long, value_delimiter = ':', value_parser = parse_size)]
    sizes: Option<Vec<u64>>,
    /// The size of a full log in bytes
    #[arg(long, value_parser = parse_size, default_value = "4MiB")]
    log: u64,
    /// The number of level-0 tables that starts a compaction
    #[arg(long, default_value_t = 4.0)]
    level0_tables: f64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Design {
    /// Leveled compaction with level 0 (Algorithm 3 of the thesis)
    Leveldb,
    /// Cache-oblivious lookahead array (Algorithm 4)
    Cola,
    /// Sorted array merge tree (Algorithm 4)
    Samt,
    /// LogStore, HashStores and SortedStore (Algorithm 5)
    Silt,
    /// Siltstone's leveled tree: TRIAD's techniques and level-0 slices, each on or off
    Lsm,
    /// Siltstone's trie of containers
    Trie,
    /// Siltstone's log of versions over flash
    Skimpy,
}

#[derive(Args)]
struct WriteAmplification {
    /// The design
    #[arg(long, value_enum)]
    design: Design,
    #[command(flatten)]
    workload: Workload,
    #[command(flatten)]
    levels: Levels,
    /// COLA, SAMT and trie: the growth factor of levels; by default 4, for the trie 8
    #[arg(long)]
    growth: Option<u32>,
    /// SILT: slots of a LogStore's table
    #[arg(long, default_value_t = 131072.0)]
    table_slots: f64,
    /// SILT: the load factor of a full table
    #[arg(long, default_value_t = 0.93)]
    occupancy: f64,
    /// SILT: HashStores merged at once
    #[arg(long, default_value_t = 62.0)]
    hash_stores: f64,
    /// SILT: instances that share the keys
    #[arg(long, default_value_t = 4.0)]
    instances: f64,
    #[command(flatten)]
    lsm: LsmArgs,
    /// Trie: the fraction of garbage at which a container of the last level is collected
    #[arg(long, default_value_t = 0.5)]
    garbage_share: f64,
    /// Skimpy: the capacity of the device in bytes; by default twice the size of all keys
    #[arg(long, value_parser = parse_size)]
    capacity: Option<u64>,
    /// Skimpy: requests since the watermark
    #[arg(long, default_value_t = 0.0)]
    window: f64,
    /// Skimpy: the fill of a page when it is programmed
    #[arg(long, default_value_t = 1.0)]
    page_fill: f64,
    /// LevelDB: the asymptotic analysis, without overwrites
    #[arg(long)]
    worst_case: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct LsmArgs {
    /// LSM, TRIAD-MEM: keys that stay in the memtable
    #[arg(long, default_value_t = 0.0)]
    hot_keys: f64,
    /// LSM, TRIAD-MEM: the share of the log's items below which a memtable is not flushed
    #[arg(long, default_value_t = 0.0)]
    flush_share: f64,
    /// LSM, TRIAD-LOG: the size of a flushed index as a share of the items' bytes
    #[arg(long)]
    index_share: Option<f64>,
    /// LSM, TRIAD-DISK: the overlap at which level 0 is compacted, or at --max-l0-runs
    #[arg(long)]
    overlap: Option<f64>,
    /// LSM, TRIAD-DISK: the number of level-0 runs that starts a compaction whatever the overlap
    #[arg(long, alias = "most-rows", default_value_t = 6)]
    max_l0_runs: u32,
    /// LSM: the capacity of level 0 in bytes
    #[arg(long, alias = "container", value_parser = parse_size)]
    l0_capacity: Option<u64>,
}

#[derive(Args)]
struct Optimize {
    #[command(flatten)]
    workload: Workload,
    #[command(flatten)]
    levels: Levels,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Simulate {
    #[command(flatten)]
    workload: Workload,
    #[command(flatten)]
    levels: Levels,
    /// The rule for the next table of a level to compact
    #[arg(long, value_enum, default_value = "round-robin")]
    select: SelectArg,
    /// The number of requests, as a multiple of the keys
    #[arg(long, default_value_t = 3.0)]
    rounds: f64,
    /// Seed of keys and requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SelectArg {
    /// LevelDB's
    RoundRobin,
    /// RocksDB 3.9's
    Largest,
}

impl From<InvalidParameter> for Failure {
    fn from(bad: InvalidParameter) -> Self {
        Failure::Usage(bad.to_string())
    }
}

impl Model {
    pub(crate) fn run(self) -> CommandResult {
        match self.command {
            ModelCommand::Wa(command) => command.run(),
            ModelCommand::Optimize(command) => command.run(),
            ModelCommand::Simulate(command) => command.run(),
        }
    }
}

impl Workload {
    fn popularity(&self) -> Result<Popularity, InvalidParameter> {
        Popularity::zipf(self.keys as f64, self.skew)
    }

    /// The popularity of the bytes that are put, and their mean size.
    fn puts(&self) -> Result<(Popularity, f64), InvalidParameter> {
        let popularity = self.popularity()?;
        if self.item_sizes.is_empty() {
            return Ok((popularity, self.item_size));
        }
        let sized = popularity.with_item_sizes(&self.item_sizes)?;
        let bytes: f64 = self.item_sizes.iter().map(|(share, size)| share * size).sum();
        let mean = bytes * popularity.keys() / sized.keys();
        Ok((sized, mean))
    }

    /// The mean size of a written item in bytes: the unit of all sizes.
    fn mean_size(&self) -> Result<f64, InvalidParameter> {
        let mean = if self.item_sizes.is_empty() { self.item_size } else { self.puts()?.1 };
        Ok(mean * (1.0 - self.deletes) + self.deletes * self.tombstone_size)
    }

    /// Write amplification of LevelDB's design.
    fn amplify(&self, design: &LevelDb) -> Result<Breakdown, InvalidParameter> {
        let (puts, size) = self.puts()?;
        let share = self.deletes;
        let tombstone = if share > 0.0 { self.tombstone_size / size } else { 0.0 };
        match self.phase {
            None => design.write_amplification(&Deletions::new(puts, share, tombstone)?),
            Some(phase) => {
                let drift = Drift::new(&puts, phase as f64)?;
                design.write_amplification(&Deletions::new(drift, share, tombstone)?)
            }
        }
    }

    /// Refuses parameters that only LevelDB's design has.
    fn check_plain(&self) -> Result<(), InvalidParameter> {
        let reason = "only --design leveldb has it";
        let refuse = |parameter, value| Err(InvalidParameter { parameter, value, reason });
        if self.deletes != 0.0 {
            return refuse("deletes", self.deletes);
        }
        match (self.phase, self.item_sizes.first()) {
            (Some(phase), _) => refuse("phase", phase as f64),
            (None, Some((_, size))) => refuse("item_sizes", *size),
            (None, None) => Ok(()),
        }
    }

    fn variation(&self) -> Result<Variation, InvalidParameter> {
        let tombstone_size = self.tombstone_size / self.puts()?.1;
        Ok(Variation {
            deletes: self.deletes,
            tombstone_size: if self.deletes > 0.0 { tombstone_size } else { 0.0 },
            item_sizes: self.item_sizes.clone(),
            phase: self.phase,
        })
    }
}

impl Levels {
    fn design(&self, workload: &Workload) -> Result<LevelDb, InvalidParameter> {
        let size = workload.mean_size()?;
        let keys = match &workload.item_sizes[..] {
            [] => workload.keys as f64,
            // In items of that size.
            _ => workload.puts()?.0.keys(),
        };
        let standard = LevelDb::standard(keys, size, self.levels)?;
        let items = |bytes: &u64| *bytes as f64 / size;
        Ok(LevelDb {
            log_items: items(&self.log),
            level0_tables: self.level0_tables,
            level_items: match &self.sizes {
                None => standard.level_items,
                Some(sizes) => sizes.iter().map(items).collect(),
            },
        })
    }
}

fn at_least_one(parameter: &'static str, value: f64) -> Result<(), InvalidParameter> {
    if (1.0..=1e15).contains(&value) {
        return Ok(());
    }
    Err(InvalidParameter { parameter, value, reason: "give 1 to 10^15" })
}

impl LsmArgs {
    fn design(&self, tree: LevelDb, item_size: f64) -> Lsm {
        let max_runs = self.max_l0_runs;
        Lsm {
            tree,
            hot_keys: self.hot_keys,
            flush_share: self.flush_share,
            index_share: self.index_share,
            wait: self.overlap.map(|overlap| Wait { overlap, max_runs }),
            l0_items: self.l0_capacity.map(|bytes| bytes as f64 / item_size),
        }
    }
}

impl WriteAmplification {
    fn run(self) -> CommandResult {
        print(&self.breakdown()?, self.json, json!({}));
        Ok(Outcome::Done)
    }

    fn breakdown(&self) -> Result<Breakdown, InvalidParameter> {
        // Both are divisors, before the model checks its parameters.
        at_least_one("item_size", self.workload.item_size)?;
        at_least_one("instances", self.instances)?;
        if !matches!(self.design, Design::Leveldb) || self.worst_case {
            self.workload.check_plain()?;
        }
        let Workload { keys, item_size, skew, .. } = self.workload;
        let keys = keys as f64;
        let popularity = || self.workload.popularity();
        let tree = || self.levels.design(&self.workload);
        let levels = u32::try_from(self.levels.levels).unwrap_or(u32::MAX);
        let log_items = self.levels.log as f64 / item_size;
        let growth = |default| self.growth.unwrap_or(default);
        match self.design {
            Design::Leveldb if self.worst_case => tree()?.worst_case(keys),
            Design::Leveldb => self.workload.amplify(&tree()?),
            Design::Cola => {
                Cola { log_items, growth: growth(4), levels }.write_amplification(&popularity()?)
            }
            Design::Samt => {
                Samt { log_items, growth: growth(4), levels }.write_amplification(&popularity()?)
            }
            Design::Silt => {
                let (table_slots, occupancy) = (self.table_slots, self.occupancy);
                let design = Silt { table_slots, occupancy, hash_stores: self.hash_stores };
                design.write_amplification(&Popularity::zipf(keys / self.instances, skew)?)
            }
            Design::Lsm => self.lsm.design(tree()?, item_size).write_amplification(&popularity()?),
            Design::Trie => {
                let garbage_share = self.garbage_share;
                let design = Trie { log_items, growth: growth(8), levels, garbage_share };
                design.write_amplification(&popularity()?)
            }
            Design::Skimpy => {
                let capacity = self.capacity.map(|bytes| bytes as f64 / item_size);
                let design = Skimpy {
                    capacity_items: capacity.unwrap_or(2.0 * keys),
                    window_requests: self.window,
                    page_fill: self.page_fill,
                };
                design.write_amplification(&popularity()?)
            }
        }
    }
}

impl Optimize {
    fn run(self) -> CommandResult {
        self.workload.check_plain()?;
        let popularity = self.workload.popularity()?;
        let before = self.levels.design(&self.workload)?;
        let log_items = self.levels.log as f64 / self.workload.item_size;
        let found =
            optimize_levels(&popularity, log_items, self.levels.level0_tables, self.levels.levels)?;
        let before = before.write_amplification(&popularity)?.total();
        let sizes: Vec<u64> = found
            .design
            .level_items
            .iter()
            .map(|items| (items * self.workload.item_size) as u64)
            .collect();
        let more = json!({
            "level_bytes": sizes,
            "write_amplification_before": before,
            "evaluations": found.evaluations,
        });
        print(&found.write_amplification, self.json, more);
        if !self.json {
            let sizes: Vec<_> =
                sizes.iter().map(|&size| indicatif::HumanBytes(size).to_string()).collect();
            println!("level sizes: {} (the last level holds all)", sizes.join(", "));
            println!("before: {before:.2}; {} evaluations of the model", found.evaluations);
        }
        Ok(Outcome::Done)
    }
}

impl Simulate {
    fn run(self) -> CommandResult {
        let design = self.levels.design(&self.workload)?;
        let keys = self.workload.keys as f64;
        if !(2.0..=2e9).contains(&keys) {
            return Err(Failure::Usage(format!("keys is {keys}: simulate 2 to 2·10^9 keys")));
        }
        let (skew, size) = (self.workload.skew, self.workload.mean_size()?);
        let standard = Simulation::standard(design, keys as u32, skew, size);
        let simulation = Simulation {
            // LevelDB's rule applies to LevelDB's sizes.
            overlap_tables: standard.overlap_tables.filter(|_| self.levels.sizes.is_none()),
            selection: match self.select {
                SelectArg::RoundRobin => Selection::RoundRobin,
                SelectArg::Largest => Selection::Largest,
            },
            rounds: self.rounds,
            seed: self.seed,
            variation: self.workload.variation()?,
            ..standard
        };
        let bar = progress::count("simulating", 0);
        let wa = simulation.run(|done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })?;
        bar.finish_and_clear();
        print(&wa, self.json, json!({}));
        Ok(Outcome::Done)
    }
}

fn print(wa: &Breakdown, as_json: bool, more: serde_json::Value) {
    if as_json {
        let stages: serde_json::Map<_, _> =
            wa.by_stage.iter().map(|(stage, wa)| (stage.clone(), json!(wa))).collect();
        let mut answer = json!({ "write_amplification": wa.total(), "by_stage": stages });
        if let (Some(answer), Some(more)) = (answer.as_object_mut(), more.as_object()) {
            answer.extend(more.clone());
        }
        println!("{answer}");
        return;
    }
    let mut grid = Grid::new();
    grid.load_style(presets::UTF8_HORIZONTAL_ONLY);
    grid.set_header(["stage", "write amplification"]);
    let number = |wa: f64| Cell::new(format!("{wa:.2}")).set_alignment(CellAlignment::Right);
    for (stage, wa) in &wa.by_stage {
        grid.add_row([Cell::new(stage), number(*wa)]);
    }
    grid.add_row([Cell::new("total"), number(wa.total())]);
    println!("{grid}");
}
