//! Subcommands of commands that have some, with their flags.
//!
//! Access rules name them (`+config|get`), and they have categories of their own. The list has all
//! subcommands of Redis 7.2, also those that this server rejects, so that rules for Redis remain
//! valid. `cluster` and `client` have
//! some more.
//!
//! Source: the documentation of Redis's commands.

use super::definition::{ADMIN, PUBSUB, READ, WRITE};

/// Name, arity (as of a command, with the name of the command) and flags of a subcommand.
pub(crate) type Subcommand = (&'static str, i32, u16);

/// A command with subcommands.
pub(crate) struct Container {
    pub(crate) name: &'static str,
    pub(crate) subcommands: &'static [Subcommand],
}

/// All commands with subcommands.
pub(crate) const CONTAINERS: [Container; 16] = [
    Container {
        name: "acl",
        subcommands: &[
            ("cat", -2, 0),
            ("deluser", -3, ADMIN),
            ("dryrun", -4, ADMIN),
            ("genpass", -2, 0),
            ("getuser", 3, ADMIN),
            ("help", 2, 0),
            ("list", 2, ADMIN),
            ("load", 2, ADMIN),
            ("log", -2, ADMIN),
            ("save", 2, ADMIN),
            ("setuser", -3, ADMIN),
            ("users", 2, ADMIN),
            ("whoami", 2, 0),
        ],
    },
    Container {
        name: "client",
        subcommands: &[
            ("caching", 3, 0),
            ("getname", 2, 0),
            ("getredir", 2, 0),
            ("help", 2, 0),
            ("hold-expiry", 3, ADMIN),
            ("id", 2, 0),
            ("info", 2, 0),
            ("kill", -3, ADMIN),
            ("list", -2, ADMIN),
            ("no-evict", 3, ADMIN),
            ("no-touch", 3, 0),
            ("pause", -3, ADMIN),
            ("reply", 3, 0),
            ("setinfo", 4, 0),
            ("setname", 3, 0),
            ("tracking", -3, 0),
            ("trackinginfo", 2, 0),
            ("unblock", -3, ADMIN),
            ("unpause", 2, ADMIN),
        ],
    },
    Container {
        name: "cluster",
        subcommands: &[
            ("add-node", 4, ADMIN),
            ("addslots", -3, ADMIN),
            ("addslotsrange", -4, ADMIN),
            ("bumpepoch", 2, ADMIN),
            ("check", -3, ADMIN),
            ("count-failure-reports", 3, ADMIN),
            ("countkeysinslot", 3, 0),
            ("delslots", -3, ADMIN),
            ("delslotsrange", -4, ADMIN),
            ("failover", -2, ADMIN),
            ("flushslots", 2, ADMIN),
            ("forget", 3, ADMIN),
            ("getkeysinslot", 4, 0),
            ("help", 2, 0),
            ("info", 2, 0),
            ("keyslot", 3, 0),
            ("links", 2, 0),
            ("meet", -4, ADMIN),
            ("move-leader", -3, ADMIN),
            ("myid", 2, 0),
            ("myshardid", 2, 0),
            ("nodes", 2, 0),
            ("remove-node", -3, ADMIN),
            ("replicas", 3, ADMIN),
            ("replicate", 3, ADMIN),
            ("reset", -2, ADMIN),
            ("saveconfig", 2, ADMIN),
            ("set-config-epoch", 3, ADMIN),
            ("setslot", -4, ADMIN),
            ("shards", 2, 0),
            ("slaves", 3, ADMIN),
            ("slots", 2, 0),
            ("status", -2, 0),
        ],
    },
    Container {
        name: "command",
        subcommands: &[
            ("count", 2, 0),
            ("docs", -2, 0),
            ("getkeys", -4, 0),
            ("getkeysandflags", -4, 0),
            ("help", 2, 0),
            ("info", -2, 0),
            ("list", -2, 0),
        ],
    },
    Container {
        name: "config",
        subcommands: &[
            ("get", -3, ADMIN),
            ("help", 2, 0),
            ("move", -3, ADMIN),
            ("resetstat", 2, ADMIN),
            ("rewrite", 2, ADMIN),
            ("set", -4, ADMIN),
        ],
    },
    Container {
        name: "function",
        subcommands: &[
            ("delete", 3, WRITE),
            ("dump", 2, 0),
            ("flush", -2, WRITE),
            ("help", 2, 0),
            ("kill", 2, 0),
            ("list", -2, 0),
            ("load", -3, WRITE),
            ("restore", -3, WRITE),
            ("stats", 2, 0),
        ],
    },
    Container {
        name: "latency",
        subcommands: &[
            ("doctor", 2, ADMIN),
            ("graph", 3, ADMIN),
            ("help", 2, 0),
            ("histogram", -2, ADMIN),
            ("history", 3, ADMIN),
            ("latest", 2, ADMIN),
            ("reset", -2, ADMIN),
        ],
    },
    Container {
        name: "memory",
        subcommands: &[
            ("doctor", 2, 0),
            ("help", 2, 0),
            ("malloc-stats", 2, 0),
            ("purge", 2, 0),
            ("stats", 2, 0),
            ("usage", -3, READ),
        ],
    },
    Container {
        name: "module",
        subcommands: &[
            ("help", 2, 0),
            ("list", 2, ADMIN),
            ("load", -3, ADMIN),
            ("loadex", -3, ADMIN),
            ("unload", 3, ADMIN),
        ],
    },
    Container {
        name: "object",
        subcommands: &[
            ("encoding", 3, READ),
            ("freq", 3, READ),
            ("help", 2, 0),
            ("idletime", 3, READ),
            ("refcount", 3, READ),
        ],
    },
    Container {
        name: "pubsub",
        subcommands: &[
            ("channels", -2, PUBSUB),
            ("help", 2, 0),
            ("numpat", 2, PUBSUB),
            ("numsub", -2, PUBSUB),
            ("shardchannels", -2, PUBSUB),
            ("shardnumsub", -2, PUBSUB),
        ],
    },
    Container {
        name: "script",
        subcommands: &[
            ("debug", 3, 0),
            ("exists", -3, 0),
            ("flush", -2, 0),
            ("help", 2, 0),
            ("kill", 2, 0),
            ("load", 3, 0),
        ],
    },
    Container {
        name: "slowlog",
        subcommands: &[("get", -2, ADMIN), ("help", 2, 0), ("len", 2, ADMIN), ("reset", 2, ADMIN)],
    },
    Container {
        name: "xgroup",
        subcommands: &[
            ("create", -5, WRITE),
            ("createconsumer", 5, WRITE),
            ("delconsumer", 5, WRITE),
            ("destroy", 4, WRITE),
            ("help", 2, 0),
            ("setid", -5, WRITE),
        ],
    },
    Container {
        name: "xinfo",
        subcommands: &[
            ("consumers", 4, READ),
            ("groups", 3, READ),
            ("help", 2, 0),
            ("stream", -3, READ),
        ],
    },
    // Not one in Redis, whose rules name its subcommands as first arguments.
    Container { name: "debug", subcommands: &[] },
];

/// The subcommands of a command, if it has some.
pub(crate) fn subcommands_of(name: &str) -> &'static [Subcommand] {
    let found = CONTAINERS.iter().find(|container| container.name == name);
    found.map_or(&[], |container| container.subcommands)
}

/// Whether the first argument of a command names a subcommand.
pub(crate) fn is_container(name: &str) -> bool {
    CONTAINERS.iter().any(|container| container.name == name)
}
