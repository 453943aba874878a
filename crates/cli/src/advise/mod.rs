//! `advise`: recommends an engine and options for a workload, with the predicted costs.
//!
//! The predictions come from the model; `--check` measures the recommendation at a small scale and
//! prints both. Exit status 1: no engine can serve the workload.

mod apply;
mod observed;
mod trace;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use comfy_table::{Cell, CellAlignment, Table as Grid, presets};
use indicatif::{HumanBytes, HumanCount, HumanDuration};
use serde_json::{Value, json};
use siltstone::options::{parse_count, parse_duration, parse_size};
use siltstone_bench::advice::{CHECKED_KEYS, CheckedCosts, PredictionCheck, check};
use siltstone_model::Popularity;
use siltstone_model::advise::{
    Advice, Candidate, Device, Needs, Requirements, advise, preference_order,
};

use crate::access::{Credentials, PASSWORD_VARIABLE, password_or_variable};
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::{interrupt, metrics_page, progress};
use apply::Applied;
use observed::Observed;

/// Recommend an engine and options
///
/// The workload is given by options, by a trace, or by the counters of a running server. The result
/// has each engine's predicted costs in the steady state, after many overwrites, and the reasons
/// against the other engines.
#[derive(Args)]
#[command(after_help = "Try:\n  \
    siltstone advise --keys 100M --value-size 100 --reads 0.5 --skew 0.99 --memory 4GiB\n  \
    siltstone advise --keys 1G --value-size 40 --reads 0.9 --memory 1GiB --check\n  \
    siltstone advise --trace requests.txt     # lines: get KEY, put KEY BYTES, del KEY, scan KEY\n  \
    siltstone advise --metrics 127.0.0.1:9379 --table default   # of a running server\n  \
    siltstone advise --metrics 127.0.0.1:9379 --table default --apply 127.0.0.1:6379")]
pub(crate) struct Advise {
    /// Distinct keys, e.g. 100M
    #[arg(long, required_unless_present_any = ["trace", "metrics"], value_parser = parse_count)]
    keys: Option<u64>,
    /// The size of a key in bytes
    #[arg(long, default_value = "16", value_parser = parse_size)]
    key_size: u64,
    /// The size of a value in bytes
    #[arg(long, default_value = "100", value_parser = parse_size)]
    value_size: u64,
    /// The fraction of operations that are lookups
    #[arg(long, default_value_t = 0.5)]
    reads: f64,
    /// The fraction that are scans; any scans require ordered keys
    #[arg(long, default_value_t = 0.0)]
    scans: f64,
    /// The Zipf exponent of key popularity; 0 is uniform
    #[arg(long, default_value_t = 0.0)]
    skew: f64,
    /// Take keys, sizes, mix and popularity from a trace: lines of get KEY, put KEY BYTES, del
    /// KEY, scan KEY
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keys", "reads", "scans", "skew", "check"])]
    trace: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
    /// Memory for the table
    #[arg(long, value_parser = parse_size)]
    memory: Option<u64>,
    #[command(flatten)]
    needs: NeedArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Measure the recommendation at a small scale, and compare it with the prediction
    #[arg(long)]
    check: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ServerArgs {
    /// Take keys, sizes of items, mix and rate from what a running server has counted: its metrics
    /// address. The size of keys and --skew are not counted
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["keys", "value_size", "reads", "scans", "trace", "check"])]
    metrics: Option<SocketAddr>,
    /// The table of that server; needed if it has several
    #[arg(long, value_name = "NAME", requires = "metrics")]
    table: Option<String>,
    /// The server's password, needed from another machine (or set SILTSTONE_PASSWORD)
    #[arg(long, requires = "metrics")]
    password: Option<String>,
    /// Change the options of the table that can change while it is open to the recommended ones of
    /// its engine, durably: the address of the server for Redis clients
    #[arg(long, value_name = "ADDRESS", requires = "metrics")]
    apply: Option<String>,
    #[command(flatten)]
    credentials: Credentials,
}

impl ServerArgs {
    /// Applies the advice for the table's engine, if that is wanted.
    fn apply(
        &self,
        observed: Option<&Observed>,
        advice: &Advice,
    ) -> Result<Option<Applied>, Failure> {
        let Some((address, observed)) = self.apply.as_ref().zip(observed) else { return Ok(None) };
        let of_engine = advice.candidates.iter().find(|it| it.engine == observed.engine);
        let candidate = of_engine.ok_or_else(|| {
            Failure::Usage(format!(
                "table {} is on {}, which cannot serve this workload: nothing was changed",
                observed.table, observed.engine
            ))
        })?;
        let password = password_or_variable(self.password.clone(), PASSWORD_VARIABLE);
        let access = self.credentials.node_access(password);
        apply::apply(address, &access, observed, candidate).map(Some)
    }

    fn observed(&self) -> Result<Option<Observed>, Failure> {
        let Some(address) = self.metrics else { return Ok(None) };
        let password = password_or_variable(self.password.clone(), PASSWORD_VARIABLE);
        let page = metrics_page::read(address, password.as_deref())?;
        Observed::of(&page, self.table.as_deref()).map(Some)
    }
}

#[derive(Args)]
struct NeedArgs {
    /// Keys must be ordered
    #[arg(long)]
    ordered: bool,
    /// Data may be lost when the process ends: a cache
    #[arg(long)]
    volatile: bool,
    /// Snapshots and transactions
    #[arg(long)]
    versions: bool,
    /// Reads at any time within this period, e.g. 1h; --ops gives the write rate for it
    #[arg(long, alias = "history", value_name = "TIME", value_parser = parse_duration, requires = "ops", conflicts_with = "check")]
    retention: Option<Duration>,
}

#[derive(Args)]
struct DeviceArgs {
    /// The flash capacity for the table
    #[arg(long, value_parser = parse_size)]
    flash: Option<u64>,
    /// Operations per second, for the lifetime of the flash and the size of --retention
    #[arg(long, value_parser = parse_count)]
    ops: Option<u64>,
    /// Reads of 4 KiB per second
    #[arg(long, default_value_t = Device::default().reads_per_second)]
    read_iops: f64,
    /// Bytes written per second
    #[arg(long, default_value = "1GB", value_parser = parse_size)]
    write_bandwidth: u64,
    /// Erase cycles of each byte
    #[arg(long, default_value_t = Device::default().erase_cycles)]
    cycles: f64,
}

impl Advise {
    pub(crate) fn run(self) -> CommandResult {
        let observed = self.server.observed()?;
        let requirements = self.requirements(observed.as_ref())?;
        let advice = advise(&requirements)?;
        let checked = match (self.check, advice.candidates.first()) {
            (true, Some(first)) => Some(self.measure(first, &requirements)?),
            _ => None,
        };
        let applied = self.server.apply(observed.as_ref(), &advice)?;
        if self.json {
            let mut object = as_json(&requirements, &advice, checked.as_ref(), observed.as_ref());
            object["applied"] = applied.as_ref().map_or(Value::Null, Applied::as_json);
            println!("{object}");
        } else {
            observed.iter().for_each(print_observed);
            print_advice(&requirements, &advice, observed.as_ref());
            if let (Some(applied), Some(observed)) = (&applied, &observed) {
                apply::print(applied, observed);
            }
            if let Some(checked) = &checked {
                print_checked(checked);
                print_verdict(&requirements, &advice, checked);
            }
        }
        Ok(if advice.candidates.is_empty() { Outcome::No } else { Outcome::Done })
    }

    fn requirements(&self, observed: Option<&Observed>) -> Result<Requirements, Failure> {
        let (key_bytes, value_bytes) = (self.key_size as f64, self.value_size as f64);
        let mut requirements = match (&self.trace, observed) {
            (Some(path), _) => trace::read(path)?,
            (None, Some(observed)) => observed.requirements(key_bytes, self.skew)?,
            (None, None) => {
                let keys = Popularity::zipf(self.keys.unwrap_or_default() as f64, self.skew)?;
                let reads = self.reads;
                Requirements {
                    reads,
                    scans: self.scans,
                    ..Requirements::new(keys, key_bytes, value_bytes)
                }
            }
        };
        if let Some(ops) = self.device.ops {
            requirements.ops_per_second = Some(ops as f64);
        }
        requirements.memory_bytes = self.memory.map(|bytes| bytes as f64);
        requirements.flash_bytes = self.device.flash.map(|bytes| bytes as f64);
        requirements.device = Device {
            reads_per_second: self.device.read_iops,
            written_bytes_per_second: self.device.write_bandwidth as f64,
            erase_cycles: self.device.cycles,
        };
        requirements.needs = Needs {
            order: self.needs.ordered || requirements.scans > 0.0,
            durability: !self.needs.volatile,
            versions: self.needs.versions,
            history: self.needs.retention,
        };
        Ok(requirements)
    }

    fn measure(
        &self,
        first: &Candidate,
        requirements: &Requirements,
    ) -> Result<PredictionCheck, Failure> {
        interrupt::clean_up_on_signal()?;
        let mut bars = progress::WorkloadBars::default();
        let (settings, skew) = (&*first.settings, self.skew);
        let checked =
            check(first.engine, settings, requirements, skew, CHECKED_KEYS, &mut |progress| {
                bars.update(progress.workload, progress.done, progress.total);
            })?;
        bars.finish();
        Ok(checked)
    }
}

/// The command of a Redis client by which a running server moves a table to the candidate's engine
/// and options.
fn move_command(table: &str, candidate: &Candidate) -> String {
    let options = candidate.settings.options();
    let options: String = options.iter().map(|(name, value)| format!(" {name} {value}")).collect();
    format!("redis-cli CONFIG MOVE {table} {}{options}", candidate.engine)
}

/// The command that serves a table with the candidate's options.
fn configuration(candidate: &Candidate) -> String {
    let options = candidate.settings.options();
    let options: String = options.iter().map(|(name, value)| format!(",{name}={value}")).collect();
    format!("siltstone serve DIR --table NAME={}{options}", candidate.engine)
}

fn as_json(
    requirements: &Requirements,
    advice: &Advice,
    checked: Option<&PredictionCheck>,
    observed: Option<&Observed>,
) -> Value {
    let candidate = |c: &Candidate| {
        let options: serde_json::Map<_, _> =
            c.settings.options().into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
        json!({
            "engine": c.engine,
            "options": options,
            "command": configuration(c),
            "move": observed.map(|it| move_command(&it.table, c)),
            "write_amplification": c.costs.write_amplification,
            "by_stage": c.costs.writes.by_stage,
            "reads_per_lookup": c.costs.reads_per_lookup,
            "memory_bytes": c.costs.memory_bytes(),
            "memory_bytes_per_key": c.costs.memory_bytes() / requirements.keys(),
            "space_bytes": c.costs.space_bytes,
            "device_us_per_operation": c.device_us,
            "lifetime_years": c.lifetime_years,
        })
    };
    json!({
        "keys": requirements.keys(),
        "recommended": advice.candidates.first().map(|c| c.engine),
        "candidates": advice.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "ruled_out": advice.ruled_out,
        "checked": checked,
        "observed": observed.map(|it| json!({
            "table": it.table,
            "engine": it.engine,
            "uptime_seconds": it.uptime_s,
            "item_bytes": it.item_bytes,
            "reads": it.reads(),
            "scans": it.scans(),
            "ops_per_second": it.ops_per_second(),
            "write_amplification": it.write_amplification,
            "memory_bytes": it.memory_bytes,
        })),
    })
}

fn print_observed(it: &Observed) {
    println!(
        "Table {} on {}, in {}: {} keys, {:.0} B per item written; of {:.1} operations/s {:.1} % are \
         lookups, {:.1} % scans.\nSo far {:.2} times the bytes of clients were written; {} are in \
         memory.\n",
        it.table,
        it.engine,
        HumanDuration(Duration::from_secs_f64(it.uptime_s)),
        HumanCount(it.keys as u64),
        it.item_bytes,
        it.ops_per_second().unwrap_or_default(),
        100.0 * it.reads(),
        100.0 * it.scans(),
        it.write_amplification,
        HumanBytes(it.memory_bytes as u64),
    );
}

fn print_advice(requirements: &Requirements, advice: &Advice, observed: Option<&Observed>) {
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
            format!("{:.2}", costs.memory_bytes() / requirements.keys()),
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
            let order: Vec<_> = preference_order().collect();
            let tested = advice.candidates.iter().find(|it| it.engine == order[0]);
            if let Some(tested) = tested.filter(|it| it.engine != first.engine) {
                println!(
                    "{} is younger than {}, which has been tested longest; its options would be:\n\n  {}\n",
                    first.engine,
                    tested.engine,
                    configuration(tested)
                );
            }
            if let Some(observed) = observed {
                let command = move_command(&observed.table, first);
                println!("While it is served, the table moves there by:\n\n  {command}\n");
            }
            println!("{grid}");
            println!(
                "Engines are ranked by device time per operation: a lookup's reads at --read-iops, a write's bytes\n\
                 at --write-bandwidth. Of {} the first is taken that no other beats by a fifth.\n",
                order.join(", ")
            );
        }
        None => println!("No engine can serve this."),
    }
    for out in &advice.ruled_out {
        println!("not {}: {}", out.engine, out.reasons.join("; "));
    }
}

fn print_checked(checked: &PredictionCheck) {
    let (predicted, measured) = (&checked.predicted, &checked.measured);
    let mut grid = Grid::new();
    grid.load_style(presets::UTF8_HORIZONTAL_ONLY);
    grid.set_header(["at the scale of the check", "predicted", "measured", "error"]);
    let rows = [
        ("write amplification", predicted.write_amplification, measured.write_amplification),
        ("reads per lookup", predicted.reads_per_lookup, measured.reads_per_lookup),
        ("filters and indexes, B/key", predicted.index_bytes_per_key, measured.index_bytes_per_key),
    ];
    for (what, predicted, measured) in rows {
        let error = match measured > 0.0 {
            true => format!("{:+.0} %", (predicted / measured - 1.0) * 100.0),
            false => "–".to_owned(),
        };
        grid.add_row([what.to_owned(), format!("{predicted:.3}"), format!("{measured:.3}"), error]);
    }
    println!("\n{} with {} keys, at a reduced scale:\n{grid}", checked.engine, checked.keys);
}

/// Prints the measured device time per operation, and the engine that it recommends.
fn print_verdict(requirements: &Requirements, advice: &Advice, checked: &PredictionCheck) {
    let time = |f: &CheckedCosts| requirements.device_us(f.write_amplification, f.reads_per_lookup);
    let (predicted, measured) = (time(&checked.predicted), time(&checked.measured));
    // A prediction of zero is exact: no device is used.
    let factor = if predicted > 0.0 { measured / predicted } else { 1.0 };
    let choice = advice.choice_if_wrong_by(factor).unwrap_or_default();
    let verdict = if choice == checked.engine {
        format!("{choice} remains the recommendation")
    } else {
        format!("if that holds at full size, take {choice} instead")
    };
    println!(
        "\nAn operation takes {measured:.2} µs of device time, {predicted:.2} µs were predicted: {verdict}."
    );
}
