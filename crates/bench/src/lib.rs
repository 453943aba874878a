//! The benchmark tool behind `siltstone bench` and `siltstone advise --check`.
//!
//! Every engine is measured in the same way: requests are drawn from a seed, or read from a trace,
//! and run against the engine on a metered storage backend. The report is computed from the
//! engine's [`Stats`](siltstone_engine::Stats) and the recorded latencies.
//!
//! | module | contents |
//! | --- | --- |
//! | [`args`] | the options of `siltstone bench`, and the run that they describe |
//! | [`generate`] | keys, key distributions and values, as functions of the seed |
//! | [`workload`] | the named workloads: db_bench's, YCSB's, TRIAD's |
//! | [`trace`] | requests in a file: recording, reading, replaying |
//! | [`engines`] | opens an engine by name on a storage backend by name, metered |
//! | [`run`] | the runner: threads, closed and open loops, phases |
//! | [`advice`] | the advisor's predictions next to measurements |
//! | [`report`] | what a run measured, as JSON and as a table |
//! | [`plot`] | charts as SVG |
//! | [`plot_file`] | the file that `--plot` names |

pub mod advice;
pub mod args;
pub mod engines;
pub mod generate;
pub mod plot;
pub mod plot_file;
pub mod report;
pub mod run;
pub mod trace;
pub mod workload;

/// Converts a parameter error of the model into an engine error.
pub fn model_error(error: siltstone_model::InvalidParameter) -> siltstone_engine::Error {
    siltstone_engine::Error::Invalid(error.to_string())
}
