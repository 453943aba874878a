//! Commands and subcommands as rules name them, each with a number.
//!
//! Numbers below that of the first subcommand are those of the command table.

use std::ops::Range;

use super::categories::{self, Categories};
use crate::command::CommandIndex;
use crate::command::subcommands::{Subcommand, subcommands_of};
use crate::resp::Args;

/// All commands and subcommands.
pub(crate) struct CommandNames {
    commands: &'static CommandIndex,
    entries: Vec<Entry>,
    /// Numbers of the subcommands, by the number of their command.
    subcommands: Vec<Range<usize>>,
}

struct Entry {
    /// `get`, or `config|get`.
    name: String,
    categories: Categories,
}

impl CommandNames {
    pub(crate) fn new(commands: &'static CommandIndex) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        for command in commands.all() {
            let categories = categories::of_command(command);
            entries.push(Entry { name: command.name.to_owned(), categories });
        }
        let mut subcommands = Vec::new();
        for command in commands.all() {
            let first = entries.len();
            for (name, _, flags) in subcommands_of(command.name) {
                let categories = categories::of_subcommand(command, name, *flags);
                entries.push(Entry { name: format!("{}|{name}", command.name), categories });
            }
            subcommands.push(first..entries.len());
        }
        CommandNames { commands, entries, subcommands }
    }

    pub(crate) fn commands(&self) -> &'static CommandIndex {
        self.commands
    }

    /// How many numbers there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of a command or subcommand, by its name in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let mut parts = name.splitn(2, |byte| *byte == b'|');
        let command = self.commands.find(parts.next()?)?;
        match parts.next() {
            None => Some(command),
            Some(subcommand) => self.subcommand(command, subcommand),
        }
    }

    /// The number of a command's subcommand.
    fn subcommand(&self, command: usize, word: &[u8]) -> Option<usize> {
        let prefix = self.commands[command].name.len() + 1;
        self.subcommands[command].clone().find(|number| {
            self.entries[*number].name.as_bytes()[prefix..].eq_ignore_ascii_case(word)
        })
    }

    /// The number of what a call runs: of the subcommand, if it is known.
    pub(crate) fn called(&self, command: usize, args: Args<'_>) -> usize {
        if self.subcommands[command].is_empty() {
            return command;
        }
        args.get(1).and_then(|word| self.subcommand(command, word)).unwrap_or(command)
    }

    /// Numbers of the subcommands of a number; none for a subcommand.
    pub(crate) fn subcommands(&self, number: usize) -> Range<usize> {
        self.subcommands.get(number).cloned().unwrap_or(0..0)
    }

    /// The number of the command of a subcommand, and what it is there.
    pub(crate) fn container(&self, number: usize) -> Option<(usize, &'static Subcommand)> {
        let command = self.subcommands.iter().position(|range| range.contains(&number))?;
        let place = number - self.subcommands[command].start;
        Some((command, subcommands_of(self.commands[command].name).get(place)?))
    }

    /// Whether a number is that of a subcommand.
    pub(crate) fn is_subcommand(&self, number: usize) -> bool {
        number >= self.subcommands.len()
    }

    /// `get`, or `config|get`.
    pub(crate) fn name(&self, number: usize) -> &str {
        &self.entries[number].name
    }

    pub(crate) fn categories(&self, number: usize) -> Categories {
        self.entries[number].categories
    }

    /// Numbers of the commands and subcommands of a category.
    pub(crate) fn in_category(&self, category: Categories) -> impl Iterator<Item = usize> {
        let entries = self.entries.iter().enumerate();
        entries.filter(move |(_, entry)| entry.categories & category != 0).map(|(number, _)| number)
    }
}
