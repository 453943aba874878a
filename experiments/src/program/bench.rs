//! `bench`: an engine and another store under the same workload, or one of them alone.

use std::io::Write;

use clap::Args;
use siltstone_bench::args::BenchArgs;
use siltstone_bench::plot_file;
use siltstone_bench::report::{Report, table, throughput_chart};
use siltstone_bench::run::bench;
use siltstone_experiments::peers::{self, Task};

use crate::{CommandResult, console};

/// Measure an engine and another store under the same workload
///
/// Takes the options of `siltstone bench`. The stores are created for the run and removed after it.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    args: BenchArgs,
    #[arg(long, help = peer_help())]
    peer: Option<String>,
    /// Measure the other store alone
    #[arg(long, requires = "peer")]
    peer_only: bool,
}

fn peer_help() -> String {
    format!(
        "The other store: {}. rocksdb runs its db_bench; the others run in this process",
        peers::NAMES.join(", ")
    )
}

impl Bench {
    pub(crate) fn run(self) -> CommandResult {
        let plan = self.args.plan()?;
        let task = Task {
            target: &plan.target,
            settings: &plan.settings,
            workloads: &plan.workloads,
            seek_nexts: plan.seek_nexts,
        };
        if let Some(peer) = &self.peer {
            peers::check(peer, &task)?;
        }
        if let Some(path) = &self.args.plot {
            plot_file::check_writable(path)?;
        }
        console::clean_up_on_signal()?;
        let bar = console::progress_bar();
        let ours = match self.peer_only {
            true => None,
            false => Some(bench(&plan.target, &plan.workloads, &plan.settings, &mut |progress| {
                bar.set_message(progress.workload.to_owned());
                bar.set_length(progress.total);
                bar.set_position(progress.done);
            })?),
        };
        bar.set_position(0);
        let run = |peer: &String| {
            peers::run(peer, &task, &mut |workload| bar.set_message(format!("{peer} {workload}")))
        };
        let peer = self.peer.as_ref().map(run).transpose()?;
        let report = match (ours, peer) {
            (Some(ours), peer) => Report { peer: peer.map(Box::new), ..ours },
            (None, peer) => peer.unwrap_or_default(),
        };
        bar.finish_and_clear();
        if let Some(path) = &self.args.plot {
            plot_file::write(path, &throughput_chart(&report))?;
        }
        let mut out = std::io::stdout().lock();
        if self.args.json {
            writeln!(out, "{}", serde_json::json!(report))?;
        } else {
            write!(out, "{}", table(&report))?;
        }
        Ok(true)
    }
}
