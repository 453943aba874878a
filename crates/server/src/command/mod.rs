//! The commands, by family, and the one table in which they are found.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`context`] | what a command works with: its client, its table, its replies |
//! | [`mod@execute`] | from arguments to a reply: checks, queueing, the handler, errors |
//! | [`failure`] | errors in Redis's words |
//! | [`help`] | HELP of the commands that have subcommands |
//! | [`session`] | what the server remembers of a client |
//! | [`strings`], [`numbers`], [`ranges`] | values: whole, as numbers, in part |
//! | [`history`] | values as they were |
//! | [`keys`], [`expiry`], [`scan`] | keys: whole, in time, all of them |
//! | [`keyspace`] | how many keys there are, and how many of them expire |
//! | [`process`] | memory and processor time of the process |
//! | [`sliced`] | commands that look at every key, in slices of time |
//! | [`transactions`] | MULTI, EXEC, WATCH |
//! | [`connection`], [`client`] | the client itself |
//! | [`admin`], [`config`], [`info`], [`introspect`] | the server |

mod admin;
mod client;
mod config;
mod connection;
mod context;
mod decimal;
mod execute;
mod expiry;
mod failure;
mod help;
mod history;
mod info;
mod introspect;
mod keys;
mod keyspace;
mod numbers;
mod ranges;
mod scan;
mod session;
mod sliced;
mod strings;
mod transactions;

use std::sync::LazyLock;

use crate::resp::Args;

pub(crate) use connection::is_same;
pub(crate) use context::Context;
pub(crate) use execute::{answer_gathered, execute, resume};
pub(crate) use failure::{Failure, store_text};
pub(crate) use session::Session;

/// How a command ends: with a whole reply written, or an error that stands in its place.
pub(crate) type Outcome = Result<(), Failure>;

type Handler = fn(&mut Context<'_>, Args<'_>) -> Outcome;

/// A command: how it is called, and what it does.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// Arguments with the name: exactly so many, or at least so many if negative.
    pub(crate) arity: i32,
    pub(crate) flags: u16,
    pub(crate) keys: KeyPositions,
    handler: Handler,
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
}

/// Which arguments are keys: from `first` to `last` (negative: from the end), each `step`-th.
/// `first` 0: none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyPositions {
    pub(crate) first: usize,
    pub(crate) last: i32,
    pub(crate) step: usize,
}

const NO_KEYS: (usize, i32, usize) = (0, 0, 0);
const ONE_KEY: (usize, i32, usize) = (1, 1, 1);
const TWO_KEYS: (usize, i32, usize) = (1, 2, 1);
const ALL_KEYS: (usize, i32, usize) = (1, -1, 1);

/// The command may write.
pub(crate) const WRITE: u16 = 1;
/// The command reads keys.
pub(crate) const READ: u16 = 1 << 1;
/// The command takes a time that does not grow with the table.
pub(crate) const FAST: u16 = 1 << 2;
/// The command works before AUTH.
pub(crate) const NO_AUTH: u16 = 1 << 3;
/// The command runs at once between MULTI and EXEC, not queued.
pub(crate) const AT_ONCE: u16 = 1 << 4;
/// The command cannot stand between MULTI and EXEC.
pub(crate) const NO_MULTI: u16 = 1 << 5;
/// The command is for operators.
pub(crate) const ADMIN: u16 = 1 << 6;

const fn command(
    group: &'static str,
    name: &'static str,
    arity: i32,
    flags: u16,
    keys: (usize, i32, usize),
    handler: Handler,
    summary: &'static str,
) -> Command {
    let keys = KeyPositions { first: keys.0, last: keys.1, step: keys.2 };
    Command { name, arity, flags, keys, handler, group, summary }
}

impl Command {
    /// Whether it may be called with so many arguments, its name included.
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let arguments = arguments as i32;
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The keys among the arguments.
    pub(crate) fn keys_in<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let KeyPositions { first, last, step } = self.keys;
        let end = match last {
            _ if first == 0 => 0,
            last if last < 0 => args.len().saturating_sub((-last - 1) as usize),
            last => (last as usize + 1).min(args.len()),
        };
        args.iter().take(end).skip(first.max(1)).step_by(step.max(1))
    }
}

/// All commands, sorted by name.
pub(crate) fn table() -> &'static [Command] {
    &TABLE.commands
}

/// The index of a command in the [`table`], whatever the case of its letters. Allocates nothing.
#[inline]
pub(crate) fn find(name: &[u8]) -> Option<usize> {
    let name = pack(name)?;
    TABLE.names.binary_search(&name).ok()
}

/// The index of SET, which has a way of its own.
#[inline]
pub(crate) fn set_index() -> usize {
    TABLE.set
}

struct Table {
    /// The names, packed, in the order of `commands`: what a search touches lies close together.
    names: Vec<u128>,
    commands: Vec<Command>,
    set: usize,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let families = [
        admin::commands(),
        client::commands(),
        config::commands(),
        connection::commands(),
        expiry::commands(),
        info::commands(),
        introspect::commands(),
        keys::commands(),
        numbers::commands(),
        ranges::commands(),
        scan::commands(),
        strings::commands(),
        history::commands(),
        transactions::commands(),
    ];
    let mut commands: Vec<Command> = families.into_iter().flatten().collect();
    let packed = |command: &Command| pack(command.name.as_bytes());
    commands.sort_by_key(packed);
    let names = commands.iter().filter_map(packed).collect();
    let set = commands.iter().position(|command| command.name == "set").unwrap_or_default();
    Table { names, commands, set }
});

/// A name of up to 16 bytes as a number that sorts like it, in lower case.
#[inline]
fn pack(name: &[u8]) -> Option<u128> {
    // Zeros at the end would not be told from the padding.
    if name.last() == Some(&0) {
        return None;
    }
    let mut bytes = [0; 16];
    let slot = bytes.get_mut(..name.len())?;
    slot.copy_from_slice(name);
    bytes.make_ascii_lowercase();
    Some(u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        assert_eq!(TABLE.names.len(), TABLE.commands.len(), "a name is too long");
        assert!(TABLE.names.is_sorted_by(|a, b| a < b), "a name stands twice");
        for (index, command) in table().iter().enumerate() {
            assert_eq!(command.name, command.name.to_lowercase());
            assert_eq!(find(command.name.as_bytes()), Some(index));
            assert_eq!(find(command.name.to_uppercase().as_bytes()), Some(index));
        }
        for unknown in ["", "ge", "gett", "get\0", "a name that is much too long"] {
            assert_eq!(find(unknown.as_bytes()), None, "{unknown}");
        }
    }
}
