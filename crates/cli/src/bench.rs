//! `bench`: runs an engine under a workload and prints the report.
//!
//! Measuring is [`siltstone_bench`]'s; this command draws progress bars and prints the report as a
//! table, as one JSON object or as a chart.

use clap::Args;
use siltstone_bench::args::{BenchArgs, Plan};
use siltstone_bench::plot_file;
use siltstone_bench::report::{Report, table, throughput_chart};
use siltstone_bench::run::bench;

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::store::warn_deprecated_options;
use crate::{interrupt, progress};

/// Measure an engine under a workload
///
/// The store is created for the run and removed after it.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    args: BenchArgs,
}

impl Bench {
    pub(crate) fn run(self) -> CommandResult {
        let plan = self.args.plan()?;
        warn_deprecated_options(&plan.target.engine, plan.target.options.keys());
        if let Some(path) = &self.args.plot {
            plot_file::check_writable(path)?;
        }
        interrupt::clean_up_on_signal()?;
        let report = measure(&plan)?;
        if let Some(path) = &self.args.plot {
            plot_file::write(path, &throughput_chart(&report))?;
        }
        if self.args.json {
            println!("{}", serde_json::json!(report));
        } else {
            print!("{}", table(&report));
        }
        if let Some(kept) = report.settings.get("dir") {
            eprintln!("kept: siltstone serve {kept}");
        }
        Ok(Outcome::Done)
    }
}

fn measure(plan: &Plan) -> Result<Report, Failure> {
    let mut bars = progress::WorkloadBars::default();
    let report = bench(&plan.target, &plan.workloads, &plan.settings, &mut |progress| {
        bars.update(progress.workload, progress.done, progress.total);
    })?;
    bars.finish();
    Ok(report)
}
