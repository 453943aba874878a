//! A command as its module lists it: definition and handler.

use super::context::Handler;
use super::definition::{Definition, KeyOption, KeyPositions};

/// A command: its definition and handler.
pub(super) struct Command {
    pub(super) definition: Definition,
    pub(super) handler: Handler,
}

impl Command {
    /// The same command, with keys whose number is the argument at a position before them.
    pub(super) const fn with_counted_keys(mut self, count_at: usize) -> Self {
        self.definition.keys.count_at = count_at;
        self
    }

    /// The same command, with keys behind an option.
    pub(super) const fn with_key_option(mut self, option: KeyOption) -> Self {
        self.definition.keys.option = Some(option);
        self
    }
}

/// A command of a group, with the positions of its keys as first, last and step.
pub(super) const fn command(
    group: &'static str,
    name: &'static str,
    arity: i32,
    flags: u16,
    keys: (usize, i32, usize),
    handler: Handler,
    summary: &'static str,
) -> Command {
    let (first, last, step) = keys;
    let keys = KeyPositions { first, last, step, count_at: 0, option: None };
    Command { definition: Definition { name, arity, flags, keys, group, summary }, handler }
}
