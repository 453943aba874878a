//! The `siltstone` program: one file a group of commands, all over the store's public face.
//!
//! Answers go to standard output, progress and errors to standard error. Exit status: 0 done, 1 the
//! answer is no (key not found, verify found damage), 2 usage or input that is refused, 3 I/O or
//! corruption, 128 and the number of a signal that interrupted it. A reader that goes away (`siltstone stats DIR | head -1`) changes nothing about it.

// First, because its macros are known only behind it.
#[macro_use]
mod output;

mod advise;
mod bench;
mod checkpoint;
mod data;
mod format;
mod inspect;
mod interrupt;
mod limits;
mod model;
mod outcome;
mod picture;
mod progress;
mod repro;
mod serve;
mod stats;
mod store;
mod top;
mod transfer;
mod trouble;
mod verify;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use outcome::{Failure, Outcome};

/// A key-value store with several engines behind one interface.
#[derive(Parser)]
#[command(
    name = "siltstone",
    version,
    about,
    after_help = "A store is a directory. Try:\n  \
                  siltstone put /tmp/fruit apples 3\n  \
                  siltstone get /tmp/fruit apples\n  \
                  siltstone import /tmp/words words.tsv && siltstone serve /tmp/words\n\n\
                  Exit status: 0 done, 1 the answer is no, 2 usage or refused input, 3 I/O or \
                  corruption, 130 interrupted (143 by SIGTERM)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a store to clients of Redis and memcached over TCP, and a table of mica over UDP
    Serve(serve::Serve),
    /// Watch a running server: levels, throughput, amplification, memory, stalls, cache hits
    Top(top::Top),
    /// Load rows from a file or standard input
    Import(transfer::Import),
    /// Write all rows to a file or standard output
    Export(transfer::Export),
    /// Set one key
    Put(data::Put),
    /// Print the value of one key (exit status 1 if there is none)
    Get(data::Get),
    /// Remove keys
    Del(data::Del),
    /// Print the entries of a range of keys, in order
    Scan(data::Scan),
    /// Measure an engine under a workload
    Bench(bench::Bench),
    /// Repeat an experiment of a paper and compare its figure with ours
    Repro(repro::Repro),
    /// Tell which engine a workload wants, with which settings
    Advise(advise::Advise),
    /// Predict write amplification from the analytic model
    Model(model::Model),
    /// Tell how a store stands: sizes, levels, memory
    Stats(stats::StatsCommand),
    /// Read and check every byte (exit status 1 if anything is damaged)
    Verify(verify::Verify),
    /// Save what can be saved of a damaged store
    Repair(verify::Repair),
    /// Copy a store into a new directory, linking what it can
    Checkpoint(checkpoint::Checkpoint),
    /// Tell what is in one of a store's files
    Inspect(inspect::Inspect),
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| refuse(&error));
    limits::raise_open_files();
    limits::report_file_size_limit();
    let outcome = match cli.command {
        Command::Serve(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::Import(command) => command.run(),
        Command::Export(command) => command.run(),
        Command::Put(command) => command.run(),
        Command::Get(command) => command.run(),
        Command::Del(command) => command.run(),
        Command::Scan(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Repro(command) => command.run(),
        Command::Advise(command) => command.run(),
        Command::Model(command) => command.run(),
        Command::Stats(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Repair(command) => command.run(),
        Command::Checkpoint(command) => command.run(),
        Command::Inspect(command) => command.run(),
    };
    outcome::exit(outcome)
}

/// Prints why the command line was refused, or the help that was asked for, and leaves.
fn refuse(error: &clap::Error) -> ! {
    let is_asked_for = !error.use_stderr();
    if error.kind() == ErrorKind::InvalidSubcommand {
        // Of the command that had it, at whatever depth: the words before are commands, too.
        let mut command = Cli::command();
        for word in std::env::args().skip(1) {
            let Some(inner) = command.find_subcommand(&word).cloned() else { break };
            command = inner;
        }
        let names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        eprint!("{error}\nThe commands are {}.\n", names.join(", "));
        std::process::exit(2);
    }
    // Help that is asked for and not read to its end is no failure.
    let is_fine = |e: std::io::Error| e.kind() == std::io::ErrorKind::BrokenPipe;
    let is_printed = error.print().map_or_else(is_fine, |()| true);
    std::process::exit(if is_asked_for && is_printed { 0 } else { 2 })
}

/// The result of a command.
type CommandResult = Result<Outcome, Failure>;
