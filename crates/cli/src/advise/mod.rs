//! `advise`: which engine a workload wants, with which settings, at which costs.
//!
//! The arithmetic is the model's; `--check` has the lab measure the recommendation at a small scale and
//! prints both. Exit status 1 says that no engine can serve the workload.

mod trace;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use comfy_table::{Cell, CellAlignment, Table as Grid, presets};
use indicatif::HumanBytes;
use serde_json::{Value, json};
use siltstone::options::{parse_count, parse_duration, parse_size};
use siltstone_lab::advice::{CHECKED_KEYS, Checked, Figures, check};
use siltstone_model::Popularity;
use siltstone_model::advise::{Advice, Candidate, Device, Needs, Wanted, advise, preference};

use crate::{CommandResult, Failure, Outcome, interrupt, progress};

/// Tell which engine a workload wants, with which settings
///
/// The workload is told by options, or by a trace of it. The answer has each engine's predicted costs once
/// the store has been overwritten for long, and why other engines are ruled out.
#[derive(Args)]
#[command(after_help = "Try:\n  \
    siltstone advise --keys 100M --value-size 100 --reads 0.5 --skew 0.99 --memory 4GiB\n  \
    siltstone advise --keys 1G --value-size 40 --reads 0.9 --memory 1GiB --check\n  \
    siltstone advise --trace requests.txt     # lines: get KEY, put KEY BYTES, del KEY, scan KEY")]
pub(crate) struct Advise {
    /// Distinct keys, e.g. 100M
    #[arg(long, required_unless_present = "trace", value_parser = parse_count)]
    keys: Option<u64>,
    /// Bytes of a key
    #[arg(long, default_value = "16", value_parser = parse_size)]
    key_size: u64,
    /// Bytes of a value
    #[arg(long, default_value = "100", value_parser = parse_size)]
    value_size: u64,
    /// The share of operations that are lookups
    #[arg(long, default_value_t = 0.5)]
    reads: f64,
    /// The share that are scans; more than none asks for keys in order
    #[arg(long, default_value_t = 0.0)]
    scans: f64,
    /// Zipf's exponent of the popularity of keys; 0 is uniform
    #[arg(long, default_value_t = 0.0)]
    skew: f64,
    /// Take keys, sizes, mix and popularity from a trace: lines of get KEY, put KEY BYTES, del KEY, scan KEY
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keys", "reads", "scans", "skew", "check"])]
    trace: Option<PathBuf>,
    /// Memory for the table
    #[arg(long, value_parser = parse_size)]
    memory: Option<u64>,
    #[command(flatten)]
    needs: NeedArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Measure the recommendation at a small scale, and print predicted beside measured
    #[arg(long)]
    check: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct NeedArgs {
    /// Keys must be in order
    #[arg(long)]
    ordered: bool,
    /// Data need not outlive the process: a cache
    #[arg(long)]
    volatile: bool,
    /// Reads at a snapshot, transactions
    #[arg(long)]
    versions: bool,
    /// Reads as of any time since so long, e.g. 1h; with --ops, which tells how much is written in it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "ops", conflicts_with = "check")]
    history: Option<Duration>,
}

#[derive(Args)]
struct DeviceArgs {
    /// Flash for the table
    #[arg(long, value_parser = parse_size)]
    flash: Option<u64>,
    /// Operations a second, to tell how long the flash lasts and how much --history is
    #[arg(long, value_parser = parse_count)]
    ops: Option<u64>,
    /// Reads of 4 KiB that the device does in a second
    #[arg(long, default_value_t = Device::default().reads_per_second)]
    read_iops: f64,
    /// Bytes that it writes in a second
    #[arg(long, default_value = "1GB", value_parser = parse_size)]
    write_bandwidth: u64,
    /// Times that each of its bytes can be written
    #[arg(long, default_value_t = Device::default().erase_cycles)]
    cycles: f64,
}

impl Advise {
    pub(crate) fn run(self) -> CommandResult {
        let wanted = self.wanted()?;
        let advice = advise(&wanted)?;
        let checked = match (self.check, advice.candidates.first()) {
            (true, Some(first)) => Some(self.measure(first, &wanted)?),
            _ => None,
        };
        if self.json {
            println!("{}", as_json(&wanted, &advice, checked.as_ref()));
        } else {
            print_advice(&wanted, &advice);
            if let Some(checked) = &checked {
                print_checked(checked);
                print_judged(&wanted, &advice, checked);
            }
        }
        Ok(if advice.candidates.is_empty() { Outcome::No } else { Outcome::Done })
    }

    fn wanted(&self) -> Result<Wanted, Failure> {
        let (key_bytes, value_bytes) = (self.key_size as f64, self.value_size as f64);
        let mut wanted = match &self.trace {
            Some(path) => trace::read(path)?,
            None => {
                let keys = Popularity::zipf(self.keys.unwrap_or_default() as f64, self.skew)?;
                let reads = self.reads;
                Wanted { reads, scans: self.scans, ..Wanted::new(keys, key_bytes, value_bytes) }
            }
        };
        wanted.ops_per_second = self.device.ops.map(|ops| ops as f64);
        wanted.memory_bytes = self.memory.map(|bytes| bytes as f64);
        wanted.flash_bytes = self.device.flash.map(|bytes| bytes as f64);
        wanted.device = Device {
            reads_per_second: self.device.read_iops,
            written_bytes_per_second: self.device.write_bandwidth as f64,
            erase_cycles: self.device.cycles,
        };
        wanted.needs = Needs {
            order: self.needs.ordered || wanted.scans > 0.0,
            durability: !self.needs.volatile,
            versions: self.needs.versions,
            history: self.needs.history,
        };
        Ok(wanted)
    }

    fn measure(&self, first: &Candidate, wanted: &Wanted) -> Result<Checked, Failure> {
        interrupt::tidy_up()?;
        let mut bars = progress::Workloads::default();
        let (settings, skew) = (&*first.settings, self.skew);
        let checked = check(first.engine, settings, wanted, skew, CHECKED_KEYS, &mut |progress| {
            bars.update(progress.workload, progress.done, progress.total);
        })?;
        bars.finish();
        Ok(checked)
    }
}

/// The line of configuration that sets an engine so.
fn configuration(candidate: &Candidate) -> String {
    let options = candidate.settings.options();
    let options: String = options.iter().map(|(name, value)| format!(",{name}={value}")).collect();
    format!("siltstone serve DIR --table NAME={}{options}", candidate.engine)
}

fn as_json(wanted: &Wanted, advice: &Advice, checked: Option<&Checked>) -> Value {
    let candidate = |c: &Candidate| {
        let options: serde_json::Map<_, _> =
            c.settings.options().into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
        json!({
            "engine": c.engine,
            "options": options,
            "command": configuration(c),
            "write_amplification": c.costs.write_amplification,
            "by_stage": c.costs.writes.by_stage,
            "reads_per_lookup": c.costs.reads_per_lookup,
            "memory_bytes": c.costs.memory_bytes(),
            "memory_bytes_per_key": c.costs.memory_bytes() / wanted.keys(),
            "space_bytes": c.costs.space_bytes,
            "device_us_per_operation": c.device_us,
            "lifetime_years": c.lifetime_years,
        })
    };
    json!({
        "keys": wanted.keys(),
        "recommended": advice.candidates.first().map(|c| c.engine),
        "candidates": advice.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "ruled_out": advice.ruled_out,
        "checked": checked,
    })
}

fn print_advice(wanted: &Wanted, advice: &Advice) {
    let mut grid = Grid::new();
    grid.load_style(presets::UTF8_HORIZONTAL_ONLY);
    let heads =
        ["engine", "written ×", "reads/lookup", "memory", "B/key", "on flash", "device µs/op"];
    let mut header: Vec<_> = heads.iter().map(|head| (*head).to_owned()).collect();
    let has_lifetime = advice.candidates.iter().any(|c| c.lifetime_years.is_some());
    header.extend(has_lifetime.then(|| "lasts".to_owned()));
    grid.set_header(header);
    for candidate in &advice.candidates {
        let costs = &candidate.costs;
        let mut row = vec![
            candidate.engine.to_owned(),
            format!("{:.2}", costs.write_amplification),
            format!("{:.3}", costs.reads_per_lookup),
            HumanBytes(costs.memory_bytes() as u64).to_string(),
            format!("{:.2}", costs.memory_bytes() / wanted.keys()),
            HumanBytes(costs.space_bytes as u64).to_string(),
            format!("{:.2}", candidate.device_us),
        ];
        let lasts =
            || candidate.lifetime_years.map_or("–".to_owned(), |y| format!("{y:.1} years"));
        row.extend(has_lifetime.then(lasts));
        grid.add_row(row.iter().enumerate().map(|(column, text)| {
            let side = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
            Cell::new(text).set_alignment(side)
        }));
    }
    match advice.candidates.first() {
        Some(first) => {
            println!("Take {}:\n\n  {}\n", first.engine, configuration(first));
            let order: Vec<_> = preference().collect();
            let tested = advice.candidates.iter().find(|it| it.engine == order[0]);
            if let Some(tested) = tested.filter(|it| it.engine != first.engine) {
                println!(
                    "{} is younger than {}, which has been tested longest and would be set so:\n\n  {}\n",
                    first.engine,
                    tested.engine,
                    configuration(tested)
                );
            }
            println!("{grid}");
            println!(
                "The device's time for an operation decides: a lookup's reads at --read-iops, a write's bytes at\n\
                 --write-bandwidth. Of {} the first is taken that no other beats by a fifth.\n",
                order.join(", ")
            );
        }
        None => println!("No engine can serve this."),
    }
    for out in &advice.ruled_out {
        println!("not {}: {}", out.engine, out.reasons.join("; "));
    }
}

fn print_checked(checked: &Checked) {
    let (ours, measured) = (&checked.predicted, &checked.measured);
    let mut grid = Grid::new();
    grid.load_style(presets::UTF8_HORIZONTAL_ONLY);
    grid.set_header(["at the scale of the check", "predicted", "measured", "off by"]);
    let rows = [
        ("written for each byte", ours.write_amplification, measured.write_amplification),
        ("reads a lookup", ours.reads_per_lookup, measured.reads_per_lookup),
        ("filters and indexes, B a key", ours.index_bytes_per_key, measured.index_bytes_per_key),
    ];
    for (what, ours, measured) in rows {
        let off = match measured > 0.0 {
            true => format!("{:+.0} %", (ours / measured - 1.0) * 100.0),
            false => "–".to_owned(),
        };
        grid.add_row([what.to_owned(), format!("{ours:.3}"), format!("{measured:.3}"), off]);
    }
    println!("\n{} with {} keys, everything in proportion:\n{grid}", checked.engine, checked.keys);
}

/// How much device time an operation costs by the measurement, and which engine that speaks for.
fn print_judged(wanted: &Wanted, advice: &Advice, checked: &Checked) {
    let time = |f: &Figures| wanted.device_us(f.write_amplification, f.reads_per_lookup);
    let (predicted, measured) = (time(&checked.predicted), time(&checked.measured));
    // What needs no device stays at none.
    let factor = if predicted > 0.0 { measured / predicted } else { 1.0 };
    let choice = advice.choice_if_off_by(factor).unwrap_or_default();
    let stands = if choice == checked.engine {
        format!("{choice} stays the one to take")
    } else {
        format!("if that holds at full size, take {choice} instead")
    };
    println!(
        "\nAn operation keeps the device busy for {measured:.2} µs where {predicted:.2} were predicted: {stands}."
    );
}
