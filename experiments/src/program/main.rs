//! The `siltstone-experiments` program: experiments of papers, and benchmarks next to other stores.
//!
//! Exit status: 0 success, 1 a claim was not confirmed, 2 usage or invalid input, 3 I/O or another
//! failure, 128 plus the signal's number if a signal interrupted it.

mod bench;
mod compare;
mod compare_libraries;
mod compare_servers;
mod console;
mod failure;
mod repro;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

/// Repeats experiments of papers, and measures Siltstone next to other stores.
#[derive(Parser)]
#[command(name = "siltstone-experiments", version, about)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run experiments of papers and compare their numbers with ours
    Repro(repro::Repro),
    /// Measure an engine and another store under the same workload
    Bench(bench::Bench),
    Compare(compare::Compare),
    CompareLibraries(compare_libraries::CompareLibraries),
    CompareServers(compare_servers::CompareServers),
}

fn main() -> ExitCode {
    let outcome = match Program::parse().command {
        Command::Repro(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Compare(command) => command.run(),
        Command::CompareLibraries(command) => command.run(),
        Command::CompareServers(command) => command.run(),
    };
    match outcome {
        Ok(is_success) => ExitCode::from(u8::from(!is_success)),
        Err(failure) => failure.report(),
    }
}

/// Whether the command succeeded; `false` if a claim was not confirmed.
type CommandResult = Result<bool, Failure>;
