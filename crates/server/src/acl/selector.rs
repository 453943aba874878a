//! Selectors of an ACL user: a set of rules that allow commands, keys and channels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::key_access::{self, IsPattern, KeyAccess, READS, WRITES};
use super::names::CommandNames;
use crate::glob;
use crate::resp::Args;

/// The commands, keys and channels that a set of rules allows.
#[derive(Clone)]
pub(crate) struct Selector {
    pub(super) commands: CommandRules,
    /// Patterns of keys; `None`: all keys.
    pub(super) keys: Option<Vec<KeyPattern>>,
    /// Patterns of channels; `None`: all channels.
    pub(super) channels: Option<Vec<ChannelPattern>>,
}

/// Allowed commands, and the rules that allow them.
#[derive(Clone)]
pub(super) struct CommandRules {
    /// By number.
    pub(super) allowed: Vec<bool>,
    /// Every command, with any arguments.
    pub(super) is_unrestricted: bool,
    /// Begins with `+@all`, else with `-@all`.
    pub(super) begins_with_all: bool,
    /// The rules since then: allowed or not, and the name.
    pub(super) rules: Vec<(bool, String)>,
    /// Commands that are allowed with these first arguments only.
    pub(super) first_args: BTreeMap<usize, BTreeSet<Vec<u8>>>,
}

/// A pattern of keys.
#[derive(Clone)]
pub(super) struct KeyPattern {
    pub(super) text: Vec<u8>,
    pub(super) access: KeyAccess,
    compiled: Arc<glob::Pattern>,
}

/// A pattern of channels.
#[derive(Clone)]
pub(super) struct ChannelPattern {
    pub(super) text: Vec<u8>,
    compiled: Arc<glob::Pattern>,
}

impl KeyPattern {
    pub(super) fn new(text: &[u8], access: KeyAccess) -> Self {
        KeyPattern { text: text.to_vec(), access, compiled: Arc::new(glob::Pattern::new(text)) }
    }

    /// As a rule.
    pub(super) fn describe(&self) -> Vec<u8> {
        let prefix: &[u8] = match self.access {
            READS => b"%R~",
            WRITES => b"%W~",
            _ => b"~",
        };
        [prefix, &self.text].concat()
    }
}

impl ChannelPattern {
    pub(super) fn new(text: &[u8]) -> Self {
        ChannelPattern { text: text.to_vec(), compiled: Arc::new(glob::Pattern::new(text)) }
    }

    /// Whether a channel matches. A pattern of PSUBSCRIBE must be the same text.
    fn allows(&self, channel: &[u8], is_pattern: IsPattern) -> bool {
        if is_pattern { self.text == channel } else { self.compiled.matches(channel) }
    }
}

/// Why a selector does not allow a call. The order is that of how much of the call was allowed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denial {
    Command,
    /// A key and its place among the keys.
    Key(usize, Vec<u8>),
    Channel(usize, Vec<u8>),
}

impl Denial {
    /// The denied key or channel.
    pub(crate) fn object(&self) -> Option<&[u8]> {
        match self {
            Denial::Command => None,
            Denial::Key(_, object) | Denial::Channel(_, object) => Some(object),
        }
    }
}

/// A call, with what a check of it needs. Keys are found once for all selectors.
pub(super) struct Call<'a> {
    pub(super) names: &'a CommandNames,
    /// Number of the command, and of its subcommand.
    pub(super) command: usize,
    pub(super) called: usize,
    pub(super) args: Args<'a>,
    keys: Option<Vec<(&'a [u8], KeyAccess)>>,
}

impl<'a> Call<'a> {
    pub(super) fn new(names: &'a CommandNames, command: usize, args: Args<'a>) -> Self {
        let called = names.called(command, args);
        Call { names, command, called, args, keys: None }
    }

    fn keys(&mut self) -> &[(&'a [u8], KeyAccess)] {
        let definition = &self.names.commands()[self.command];
        let args = self.args;
        self.keys.get_or_insert_with(|| key_access::keys(definition, args))
    }
}

impl Selector {
    /// Nothing is allowed.
    pub(super) fn new(names: &CommandNames, allows_channels: bool) -> Self {
        Selector {
            commands: CommandRules::new(names),
            keys: Some(Vec::new()),
            channels: if allows_channels { None } else { Some(Vec::new()) },
        }
    }

    /// Whether everything is allowed.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.commands.is_unrestricted && self.keys.is_none() && self.channels.is_none()
    }

    /// Checks a call. `needs_no_right`: the command is allowed to everybody.
    pub(super) fn check(&self, call: &mut Call<'_>, needs_no_right: bool) -> Result<(), Denial> {
        if !needs_no_right && !self.commands.allows(call) {
            return Err(Denial::Command);
        }
        if self.keys.is_some() {
            for (place, (key, access)) in call.keys().iter().enumerate() {
                if !self.allows_key(key, *access) {
                    return Err(Denial::Key(place, key.to_vec()));
                }
            }
        }
        if self.channels.is_some() {
            let definition = &call.names.commands()[call.command];
            let (channels, is_pattern) = key_access::channels(definition, call.args);
            for (place, channel) in channels.into_iter().enumerate() {
                if !self.allows_channel(channel, is_pattern) {
                    return Err(Denial::Channel(place, channel.to_vec()));
                }
            }
        }
        Ok(())
    }

    fn allows_key(&self, key: &[u8], access: KeyAccess) -> bool {
        let Some(patterns) = &self.keys else { return true };
        let mut granting = patterns.iter().filter(|pattern| pattern.access & access == access);
        granting.any(|pattern| pattern.compiled.matches(key))
    }

    /// Whether all keys may be read.
    pub(super) fn may_read_all(&self) -> bool {
        let is_all = |pattern: &KeyPattern| pattern.access & READS != 0 && pattern.text == b"*";
        self.keys.as_ref().is_none_or(|patterns| patterns.iter().any(is_all))
    }

    pub(super) fn allows_channel(&self, channel: &[u8], is_pattern: IsPattern) -> bool {
        let Some(patterns) = &self.channels else { return true };
        patterns.iter().any(|pattern| pattern.allows(channel, is_pattern))
    }

    /// The rules of the commands, from `+@all` or `-@all` on.
    pub(crate) fn describe_commands(&self) -> Vec<u8> {
        self.commands.describe()
    }

    /// The rules of the keys.
    pub(crate) fn describe_keys(&self) -> Vec<u8> {
        match &self.keys {
            None => b"~*".to_vec(),
            Some(patterns) => join(patterns.iter().map(KeyPattern::describe)),
        }
    }

    /// The rules of the channels.
    pub(crate) fn describe_channels(&self) -> Vec<u8> {
        match &self.channels {
            None => b"&*".to_vec(),
            Some(patterns) => join(patterns.iter().map(|p| [b"&", &*p.text].concat())),
        }
    }

    /// All rules, as one line.
    pub(super) fn describe(&self) -> Vec<u8> {
        let channels = self.describe_channels();
        let channels = match &self.channels {
            None => channels,
            Some(patterns) if patterns.is_empty() => b"resetchannels".to_vec(),
            Some(_) => [b"resetchannels ", &*channels].concat(),
        };
        let parts = [self.describe_keys(), channels, self.describe_commands()];
        join(parts.into_iter().filter(|part| !part.is_empty()))
    }
}

/// Joins rules by spaces.
pub(super) fn join(rules: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    rules.collect::<Vec<_>>().join(&b' ')
}

impl CommandRules {
    fn new(names: &CommandNames) -> Self {
        CommandRules {
            allowed: vec![false; names.len()],
            is_unrestricted: false,
            begins_with_all: false,
            rules: Vec::new(),
            first_args: BTreeMap::new(),
        }
    }

    fn allows(&self, call: &Call<'_>) -> bool {
        if self.is_unrestricted || self.allowed[call.called] {
            return true;
        }
        let (Some(allowed), Some(first)) = (self.first_args.get(&call.called), call.args.get(1))
        else {
            return false;
        };
        allowed.contains(&first.to_ascii_lowercase())
    }

    fn describe(&self) -> Vec<u8> {
        let sign = |is_allowed: bool| if is_allowed { "+" } else { "-" };
        let mut text = format!("{}@all", sign(self.begins_with_all));
        for (is_allowed, name) in &self.rules {
            text.push(' ');
            text.push_str(sign(*is_allowed));
            text.push_str(name);
        }
        text.into_bytes()
    }

    /// `+@all` or `-@all`.
    pub(super) fn set_all(&mut self, is_allowed: bool) {
        self.allowed.fill(is_allowed);
        self.is_unrestricted = is_allowed;
        self.begins_with_all = is_allowed;
        self.rules.clear();
        self.first_args.clear();
    }

    /// Allows or forbids a command with its subcommands, or a subcommand.
    pub(super) fn set(&mut self, names: &CommandNames, number: usize, is_allowed: bool) {
        self.first_args.remove(&number);
        self.is_unrestricted &= is_allowed;
        for number in names.subcommands(number).chain([number]) {
            self.allowed[number] = is_allowed;
        }
    }

    /// Records a rule, which replaces earlier rules of the same name and of its subcommands.
    pub(super) fn record(&mut self, is_allowed: bool, name: &str) {
        let name = name.to_lowercase();
        self.rules.retain(|(_, earlier)| {
            let rest = earlier.strip_prefix(&name);
            rest.is_none_or(|rest| !rest.is_empty() && !rest.starts_with('|'))
        });
        self.rules.push((is_allowed, name));
    }
}
