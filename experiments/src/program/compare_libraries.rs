//! `compare-libraries`: one program on our library and on others, as one table.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use siltstone::options::parse_count;
use siltstone_engine::names::unknown;
use siltstone_experiments::compare::RUNS;
use siltstone_experiments::compare::libraries::{Load, Program, names, table};

use crate::{CommandResult, Failure, console};

/// Compare one program on our library, fjall and redb: lines, crates, build, binary and speed
///
/// Builds each program in a fresh directory, without compression, as a plain release that is
/// stripped, and runs it on fresh stores; the programs take turns. Every write survives a power cut
/// when it returns. Prints a table in Markdown: a cell of the speed is the median, with the
/// smallest and the largest in brackets.
#[derive(Args)]
pub(crate) struct CompareLibraries {
    /// The programs, joined by commas (default: all)
    #[arg(long, value_delimiter = ',')]
    programs: Vec<String>,
    /// Number of links: a transaction for each, twice
    #[arg(long, default_value_t = 2_000, value_parser = parse_count)]
    links: u64,
    /// Number of clicks: a batch for each 1000
    #[arg(long, default_value_t = 500_000, value_parser = parse_count)]
    clicks: u64,
    /// Number of runs of each program; with 0 they are only built
    #[arg(long, default_value_t = RUNS)]
    runs: usize,
    /// Build and run below this directory
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

impl CompareLibraries {
    pub(crate) fn run(self) -> CommandResult {
        if let Some(other) = self.programs.iter().find(|name| !names().contains(&name.as_str())) {
            return Err(Failure::Usage(format!("--programs: {}", unknown(other, &names()))));
        }
        if self.links == 0 {
            return Err(Failure::Usage("--links must be at least 1".to_owned()));
        }
        let is_chosen = |name: &&str| {
            self.programs.is_empty() || self.programs.iter().any(|chosen| chosen == name)
        };
        let chosen: Vec<_> = names().into_iter().filter(is_chosen).collect();
        let bar = console::progress_bar();
        bar.set_length((chosen.len() * (1 + self.runs)) as u64);
        let mut programs = Vec::new();
        for name in chosen {
            bar.set_message(format!("build {name}"));
            programs.push(Program::build(name, &self.dir)?);
            bar.inc(1);
        }
        let load = Load { links: self.links, clicks: self.clicks };
        for _ in 0..self.runs {
            for program in &mut programs {
                bar.set_message(program.name());
                program.run(load, &self.dir)?;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        write!(std::io::stdout().lock(), "{}", table(&programs))?;
        Ok(true)
    }
}
