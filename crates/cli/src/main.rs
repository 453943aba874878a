//! The `siltstone` program: one module per group of commands, over the store's public API.
//!
//! Results go to standard output, progress and errors to standard error. Exit status: 0 success, 1
//! not found or a check failed, 2 usage or refused input, 3 I/O or corruption, 128 plus the number
//! of a signal that interrupted the command. A closed pipe (`siltstone stats DIR | head -1`) does
//! not change the status.

// First, because its macros are visible only after it.
#[macro_use]
mod output;

mod access;
mod advise;
mod archive;
mod backup;
mod bench;
mod changes;
mod checkpoint;
mod cluster;
mod compact;
mod config;
mod data;
mod dump_import;
mod format;
mod ingest;
mod inspect;
mod interrupt;
mod limits;
mod manual;
mod metrics_page;
mod model;
mod outcome;
mod progress;
mod replicate_from;
mod serve;
mod stats;
mod store;
mod top;
mod transfer;
mod trouble;
mod verify;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use outcome::{CommandResult, Failure, Outcome};

/// Faster than glibc's for what a server allocates, by 3 to 30 % of the time of a command (decision
/// record 0085). The libraries leave the choice to the programs that use them.
#[cfg(all(target_os = "linux", feature = "jemalloc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// An embedded key-value store with several storage engines behind one API
#[derive(Parser)]
#[command(
    name = "siltstone",
    version,
    about,
    after_help = "A store is a directory. Try:\n  \
                  siltstone put /tmp/fruit apples 3\n  \
                  siltstone get /tmp/fruit apples\n  \
                  siltstone import /tmp/words words.tsv && siltstone serve /tmp/words\n\n\
                   Exit status: 0 success, 1 not found or check failed, 2 usage or refused input, \
                   3 I/O or corruption, 130 interrupted (143 by SIGTERM)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// The keys of an encrypted store: a file of one key per line, 64 hexadecimal digits, the
    /// current one first. Only its owner may have access
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<std::path::PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a store to clients of Redis and memcached over TCP, and a table of mica over UDP
    Serve(Box<serve::Serve>),
    /// Create and operate replicated tables (experimental)
    Cluster(cluster::Cluster),
    /// Watch a running server: levels, throughput, amplification, memory, stalls, cache hits
    Top(top::Top),
    /// Copy a Redis server into a running server, and follow its writes
    ReplicateFrom(Box<replicate_from::ReplicateFrom>),
    /// Load rows from a file or standard input
    Import(transfer::Import),
    /// Make sorted files a part of a table, all at once
    Ingest(ingest::Ingest),
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
    /// Print the changes of a table, in order
    Changes(changes::Changes),
    /// Measure an engine under a workload
    Bench(bench::Bench),
    /// Recommend an engine and options
    Advise(advise::Advise),
    /// Predict write amplification from the analytic model
    Model(model::Model),
    /// Print statistics
    Stats(stats::StatsCommand),
    /// Read and check every byte (exit status 1 if anything is damaged)
    Verify(verify::Verify),
    /// Repair a damaged store
    Repair(verify::Repair),
    /// Compact a table, or a range of its keys
    Compact(compact::Compact),
    /// Wrap the keys of all files of an encrypted store with the first key of --key-file
    Rekey(checkpoint::Rekey),
    /// Copy a store into a new directory, linking what it can
    Checkpoint(checkpoint::Checkpoint),
    /// Back up a store into a repository: the first time all of it, then what is new
    Backup(backup::Backup),
    /// Make a store from a backup, or the first node of a new cluster from that of a cluster
    Restore(backup::Restore),
    /// List the backups of a repository, check them, or remove old ones
    Backups(backup::Backups),
    /// Dump a file
    Inspect(inspect::Inspect),
    /// Print completions for a shell
    Completions(manual::Completions),
    /// Write the manual pages into a directory
    Man(manual::Man),
}

fn main() -> ExitCode {
    let program = Cli::command();
    let args = match config::with_file(&program, std::env::args_os().collect()) {
        Ok(args) => args,
        Err(failure) => return exit(Err(failure)),
    };
    let matches = program.clone().try_get_matches_from(args).unwrap_or_else(|error| refuse(&error));
    if let Some(serve) = matches.subcommand_matches("serve")
        && serve.get_flag("print_config")
    {
        print!("{}", config::render(&program, serve));
        return exit(Ok(Outcome::Done));
    }
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error));
    limits::raise_open_files();
    limits::report_file_size_limit();
    if let Some(path) = &cli.key_file
        && let Err(failure) = store::use_key_file(path)
    {
        return exit(Err(failure));
    }
    let outcome = match cli.command {
        Command::Serve(command) => command.run(),
        Command::Cluster(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::ReplicateFrom(command) => command.run(),
        Command::Import(command) => command.run(),
        Command::Ingest(command) => command.run(),
        Command::Export(command) => command.run(),
        Command::Put(command) => command.run(),
        Command::Get(command) => command.run(),
        Command::Del(command) => command.run(),
        Command::Scan(command) => command.run(),
        Command::Changes(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Advise(command) => command.run(),
        Command::Model(command) => command.run(),
        Command::Stats(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Repair(command) => command.run(),
        Command::Compact(command) => command.run(),
        Command::Rekey(command) => command.run(),
        Command::Checkpoint(command) => command.run(),
        Command::Backup(command) => command.run(),
        Command::Restore(command) => command.run(),
        Command::Backups(command) => command.run(),
        Command::Inspect(command) => command.run(),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man(command) => command.run(Cli::command()),
    };
    exit(outcome)
}

/// Prints the error of the command line, or the requested help, and exits.
fn refuse(error: &clap::Error) -> ! {
    let is_requested = !error.use_stderr();
    if error.kind() == ErrorKind::InvalidSubcommand {
        // The commands at the depth of the error: the words before it are commands, too.
        let mut command = Cli::command();
        for word in std::env::args().skip(1) {
            let Some(inner) = command.find_subcommand(&word).cloned() else { break };
            command = inner;
        }
        let names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        eprint!("{error}\nThe commands are {}.\n", names.join(", "));
        std::process::exit(2);
    }
    // A closed pipe is not a failure if help was requested.
    let is_closed_pipe = |e: std::io::Error| e.kind() == std::io::ErrorKind::BrokenPipe;
    let is_printed = error.print().map_or_else(is_closed_pipe, |()| true);
    std::process::exit(if is_requested && is_printed { 0 } else { 2 })
}

/// Prints a failure on standard error, and returns the exit status.
fn exit(outcome: CommandResult) -> ExitCode {
    // The command's own failure takes precedence over that of its output.
    match outcome.and_then(|outcome| output::finish().map(|()| outcome)) {
        Ok(Outcome::Done) | Err(Failure::PipeClosed) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("siltstone: {failure}");
            ExitCode::from(match failure {
                Failure::Usage(_) => 2,
                Failure::Interrupted { signal, .. } => 128 + signal,
                _ => 3,
            })
        }
    }
}
