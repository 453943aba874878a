//! Workloads, the benchmark runner, the peers and the experiments.
//!
//! Everything that claims a number in this house gets it here, in one way for every engine: drawn
//! from a seed, run against an engine on a metered medium, read from its
//! [`Stats`](siltstone_engine::Stats).
//!
//! | module | one idea |
//! | --- | --- |
//! | [`generate`] | keys, choices of keys, values: a function of the seed |
//! | [`workload`] | the named workloads: db_bench's, YCSB's, TRIAD's |
//! | [`trace`] | requests in a file: recorded, read, replayed |
//! | [`engines`] | an engine by name on a medium by name, metered |
//! | [`run`] | the runner: threads, closed and open loops, phases |
//! | [`advice`] | the advisor's predictions beside measurements |
//! | [`report`] | what a run measured, as JSON and as a table |
//! | [`net`] | servers over loopback under one load |
//! | [`peers`] | other stores under the same load in the same sitting |
//! | [`plot`] | pictures as SVG |
//! | [`repro`] | claims of papers as runnable experiments with computed verdicts |

pub mod advice;
pub mod engines;
pub mod generate;
pub mod net;
pub mod peers;
pub mod plot;
pub mod report;
pub mod repro;
pub mod run;
pub mod trace;
pub mod workload;

/// A parameter that the model refuses, as the house says it.
fn refused(bad: siltstone_model::BadParameter) -> siltstone_engine::Error {
    siltstone_engine::Error::Invalid(bad.to_string())
}
