//! `completions` and `man`: what a package installs beside the program, made from the definitions
//! of the commands.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::outcome::{CommandResult, Failure, Outcome};

/// Print completions for a shell
///
/// Bash: siltstone completions bash > /etc/bash_completion.d/siltstone. Zsh: into a file _siltstone
/// in a directory of $fpath. Fish: into ~/.config/fish/completions/siltstone.fish.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut program: Command) -> CommandResult {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "siltstone", &mut script);
        print!("{}", String::from_utf8_lossy(&script));
        Ok(Outcome::Done)
    }
}

/// Write the manual pages into a directory
///
/// One page for the program and one per command, e.g. siltstone-serve.1. The directory is created
/// if it does not exist.
#[derive(Args)]
pub(crate) struct Man {
    /// The directory, e.g. /usr/local/share/man/man1
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(self, program: Command) -> CommandResult {
        let dir = self.dir.display().to_string();
        std::fs::create_dir_all(&self.dir).map_err(|e| Failure::file("create", &dir, &e))?;
        clap_mangen::generate_to(program, &self.dir)
            .map_err(|e| Failure::file("write the pages into", &dir, &e))?;
        Ok(Outcome::Done)
    }
}
