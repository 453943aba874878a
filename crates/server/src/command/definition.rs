//! The properties of a command without its handler: name, arity, flags, positions of its keys.
//!
//! A [`Definition`] knows no handler, so that everything below the handlers (the client registry,
//! the metrics, the queue of a transaction) can name commands. [`super::table`] pairs both.

use super::subcommands::is_container;
use crate::resp::Args;
use crate::resp::number::parse_u64;

/// The version of Redis whose commands are implemented. Clients choose features by it.
pub(super) const REDIS_VERSION: &str = "7.4.0";

/// A command without its handler.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// Number of arguments including the name; if negative, the minimum.
    pub(crate) arity: i32,
    pub(crate) flags: u16,
    pub(crate) keys: KeyPositions,
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
}

/// Positions of keys in the arguments: from `first` to `last` (negative: from the end), every
/// `step`-th. `first` 0: none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyPositions {
    pub(crate) first: usize,
    pub(crate) last: i32,
    pub(crate) step: usize,
    /// Position of the argument that gives the number of further keys, which follow it; 0: none.
    pub(crate) count_at: usize,
    /// Further keys that follow an option.
    pub(crate) option: Option<KeyOption>,
}

/// Keys that follow an option of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyOption {
    /// Position of the first option.
    pub(crate) from: usize,
    /// Options with a key, of which the last one counts.
    pub(crate) names: &'static [&'static str],
    /// Other options that take arguments, with their number.
    pub(crate) others: &'static [(&'static str, usize)],
    pub(crate) takes: KeysTaken,
}

/// Which arguments behind an option are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeysTaken {
    /// One.
    One,
    /// The first half of all; the option is the last one.
    Half,
    /// All; the option is the last one. They replace the keys at fixed positions.
    All,
}

impl KeyOption {
    fn keys_in<'a>(&self, args: Args<'a>) -> Vec<&'a [u8]> {
        let (mut keys, mut at) = (Vec::new(), self.from);
        while let Some(word) = args.get(at) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            at += 1;
            if self.names.iter().any(|name| is(name)) {
                let rest = args.from(at);
                match self.takes {
                    KeysTaken::Half => return rest.iter().take(rest.len() / 2).collect(),
                    KeysTaken::All => return rest.iter().collect(),
                    // The last one counts.
                    KeysTaken::One => keys = rest.iter().take(1).collect(),
                }
                at += 1;
            } else if let Some((_, count)) = self.others.iter().find(|(name, _)| is(name)) {
                at += count;
            }
        }
        keys
    }
}

pub(crate) const NO_KEYS: (usize, i32, usize) = (0, 0, 0);
pub(crate) const ONE_KEY: (usize, i32, usize) = (1, 1, 1);
pub(crate) const TWO_KEYS: (usize, i32, usize) = (1, 2, 1);
pub(crate) const ALL_KEYS: (usize, i32, usize) = (1, -1, 1);

/// May write.
pub(crate) const WRITE: u16 = 1;
/// Reads keys.
pub(crate) const READ: u16 = 1 << 1;
/// Takes time independent of the table's size.
pub(crate) const FAST: u16 = 1 << 2;
/// Allowed before AUTH.
pub(crate) const NO_AUTH: u16 = 1 << 3;
/// Runs immediately between MULTI and EXEC, instead of being queued.
pub(crate) const IMMEDIATE: u16 = 1 << 4;
/// Not allowed between MULTI and EXEC.
pub(crate) const NO_MULTI: u16 = 1 << 5;
/// Administrative.
pub(crate) const ADMIN: u16 = 1 << 6;
/// Publishes or subscribes.
pub(crate) const PUBSUB: u16 = 1 << 7;
/// May wait for a write.
pub(crate) const BLOCKING: u16 = 1 << 8;
/// Replies with pushes.
pub(crate) const PUSHES: u16 = 1 << 9;

/// Runs a script.
pub(crate) const SCRIPT: u16 = 1 << 10;

/// Commands that scripts must not call: those of Redis 7.2, and MIGRATE, which waits.
const NOT_IN_SCRIPTS: [&str; 43] = [
    "acl",
    "auth",
    "bgsave",
    "client",
    "config",
    "debug",
    "discard",
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "exec",
    "failover",
    "fcall",
    "fcall_ro",
    "function",
    "hello",
    "latency",
    "migrate",
    "module",
    "monitor",
    "multi",
    "psubscribe",
    "psync",
    "punsubscribe",
    "quit",
    "replicaof",
    "reset",
    "restore-asking",
    "role",
    "save",
    "script",
    "shutdown",
    "slaveof",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "swapdb",
    "sync",
    "unsubscribe",
    "unwatch",
    "waitaof",
    "watch",
];
/// Commands that write nothing here, and reach the replicas of Redis like writes.
const REPLICATED: [&str; 3] = ["pfcount", "publish", "spublish"];
/// Groups of commands that may run in a group of a pipeline.
const GROUPED_TYPES: [&str; 5] = ["string", "hash", "list", "set", "sorted-set"];
/// Commands that may run there, too, although Redis does not flag them as fast.
const GROUPED_STRINGS: [&str; 3] = ["psetex", "set", "setex"];
/// Commands that run while a script is busy: those without keys that a client needs to end it.
const WHILE_BUSY: [&str; 8] =
    ["auth", "discard", "hello", "multi", "quit", "reset", "unwatch", "watch"];

impl Definition {
    /// Name of the command, or `command|subcommand`.
    pub(crate) fn full_name(&self, args: Args<'_>) -> String {
        match args.get(1).filter(|_| is_container(self.name)) {
            Some(word) => format!("{}|{}", self.name, String::from_utf8_lossy(word).to_lowercase()),
            None => self.name.to_owned(),
        }
    }

    /// Whether the command accepts this number of arguments, including its name.
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let arguments = arguments as i32;
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// Whether scripts may call the command.
    pub(crate) fn is_allowed_in_scripts(&self) -> bool {
        !NOT_IN_SCRIPTS.contains(&self.name)
    }

    /// Whether it is CLUSTER RESET.
    pub(super) fn resets_cluster(&self, args: Args<'_>) -> bool {
        let resets = |word: &[u8]| word.eq_ignore_ascii_case(b"reset");
        self.name == "cluster" && args.get(1).is_some_and(resets)
    }

    /// Whether the command runs while a script is busy.
    pub(crate) fn is_allowed_while_busy(&self, args: Args<'_>) -> bool {
        let has = |word: &[u8]| args.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
        match self.name {
            "script" => has(b"kill"),
            "function" => has(b"kill") || has(b"stats"),
            "shutdown" => has(b"nosave"),
            name => WHILE_BUSY.contains(&name),
        }
    }

    /// Whether the command uses one key, which is its first argument.
    pub(crate) fn has_one_key(&self) -> bool {
        let KeyPositions { first: 1, last: 1, count_at: 0, option: None, .. } = self.keys else {
            return false;
        };
        // Its patterns name others.
        self.name != "sort_ro"
    }

    /// Whether the command may run in a group of a pipeline: it uses one key, and soon ends.
    pub(crate) fn may_join_group(&self) -> bool {
        self.has_one_key()
            && (self.has(FAST) || GROUPED_STRINGS.contains(&self.name))
            && self.flags & !(READ | WRITE | FAST) == 0
            && GROUPED_TYPES.contains(&self.group)
    }

    /// Whether the command counts as a write for read-only scripts and CLIENT PAUSE WRITE.
    pub(crate) fn may_replicate(&self) -> bool {
        self.has(WRITE) || REPLICATED.contains(&self.name)
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether there are at least as many arguments as the number of keys among them says.
    pub(crate) fn has_counted_keys(&self, args: Args<'_>) -> bool {
        let count_at = self.keys.count_at;
        let count = args.get(count_at).filter(|_| count_at > 0).and_then(parse_u64);
        count.is_none_or(|count| count <= args.from(count_at + 1).len() as u64)
    }

    /// What has a slot among the arguments: keys, and the channels of shards.
    pub(crate) fn slotted_in<'a>(
        &self,
        args: Args<'a>,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let channels = match self.name {
            "spublish" => 1,
            "ssubscribe" => usize::MAX,
            _ => 0,
        };
        self.keys_in(args).chain(args.iter().skip(1).take(channels))
    }

    /// The keys among the arguments.
    pub(crate) fn keys_in<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let KeyPositions { first, last, step, count_at, option } = self.keys;
        let end = match last {
            _ if first == 0 => 0,
            last if last < 0 => args.len().saturating_sub((-last - 1) as usize),
            last => (last as usize + 1).min(args.len()),
        };
        let counted = match args.get(count_at).filter(|_| count_at > 0).and_then(parse_u64) {
            None => 0,
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
        };
        let optional = option.map(|option| option.keys_in(args)).unwrap_or_default();
        let replaces_fixed = option.is_some_and(|option| option.takes == KeysTaken::All);
        let end = if replaces_fixed && !optional.is_empty() { 0 } else { end };
        let fixed = args.iter().take(end).skip(first.max(1)).step_by(step.max(1));
        let counted = args.iter().skip(count_at + 1).take(counted);
        fixed.chain(counted).chain(optional)
    }
}
