//! Subcommands of commands that have some, with their flags.
//!
//! Access rules name them (`+config|get`), and they have categories of their own. The list has all
//! subcommands of Redis 7.2, also those that this server rejects, so that rules for Redis remain
//! valid. `cluster` and `client` have
//! some more.
//!
//! Source: the documentation of Redis's commands.

use super::definition::{ADMIN, PUBSUB, READ, WRITE};

/// A command with subcommands.
pub(crate) struct Container {
    pub(crate) name: &'static str,
    /// Names and flags.
    pub(crate) subcommands: &'static [(&'static str, u16)],
}

/// All commands with subcommands.
pub(crate) const CONTAINERS: [Container; 15] = [
    Container {
        name: "acl",
        subcommands: &[
            ("cat", 0),
            ("deluser", ADMIN),
            ("dryrun", ADMIN),
            ("genpass", 0),
            ("getuser", ADMIN),
            ("help", 0),
            ("list", ADMIN),
            ("load", ADMIN),
            ("log", ADMIN),
            ("save", ADMIN),
            ("setuser", ADMIN),
            ("users", ADMIN),
            ("whoami", 0),
        ],
    },
    Container {
        name: "client",
        subcommands: &[
            ("caching", 0),
            ("getname", 0),
            ("getredir", 0),
            ("help", 0),
            ("hold-expiry", ADMIN),
            ("id", 0),
            ("info", 0),
            ("kill", ADMIN),
            ("list", ADMIN),
            ("no-evict", ADMIN),
            ("no-touch", 0),
            ("pause", ADMIN),
            ("reply", 0),
            ("setinfo", 0),
            ("setname", 0),
            ("tracking", 0),
            ("trackinginfo", 0),
            ("unblock", ADMIN),
            ("unpause", ADMIN),
        ],
    },
    Container {
        name: "cluster",
        subcommands: &[
            ("add-node", ADMIN),
            ("addslots", ADMIN),
            ("addslotsrange", ADMIN),
            ("bumpepoch", ADMIN),
            ("check", ADMIN),
            ("count-failure-reports", ADMIN),
            ("countkeysinslot", 0),
            ("delslots", ADMIN),
            ("delslotsrange", ADMIN),
            ("failover", ADMIN),
            ("flushslots", ADMIN),
            ("forget", ADMIN),
            ("getkeysinslot", 0),
            ("help", 0),
            ("info", 0),
            ("keyslot", 0),
            ("links", 0),
            ("meet", ADMIN),
            ("move-leader", ADMIN),
            ("myid", 0),
            ("myshardid", 0),
            ("nodes", 0),
            ("remove-node", ADMIN),
            ("replicas", ADMIN),
            ("replicate", ADMIN),
            ("reset", ADMIN),
            ("saveconfig", ADMIN),
            ("set-config-epoch", ADMIN),
            ("setslot", ADMIN),
            ("shards", 0),
            ("slaves", ADMIN),
            ("slots", 0),
            ("status", 0),
        ],
    },
    Container {
        name: "command",
        subcommands: &[
            ("count", 0),
            ("docs", 0),
            ("getkeys", 0),
            ("getkeysandflags", 0),
            ("help", 0),
            ("info", 0),
            ("list", 0),
        ],
    },
    Container {
        name: "config",
        subcommands: &[
            ("get", ADMIN),
            ("help", 0),
            ("resetstat", ADMIN),
            ("rewrite", ADMIN),
            ("set", ADMIN),
        ],
    },
    Container {
        name: "function",
        subcommands: &[
            ("delete", WRITE),
            ("dump", 0),
            ("flush", WRITE),
            ("help", 0),
            ("kill", 0),
            ("list", 0),
            ("load", WRITE),
            ("restore", WRITE),
            ("stats", 0),
        ],
    },
    Container {
        name: "latency",
        subcommands: &[
            ("doctor", ADMIN),
            ("graph", ADMIN),
            ("help", 0),
            ("histogram", ADMIN),
            ("history", ADMIN),
            ("latest", ADMIN),
            ("reset", ADMIN),
        ],
    },
    Container {
        name: "memory",
        subcommands: &[
            ("doctor", 0),
            ("help", 0),
            ("malloc-stats", 0),
            ("purge", 0),
            ("stats", 0),
            ("usage", READ),
        ],
    },
    Container {
        name: "object",
        subcommands: &[
            ("encoding", READ),
            ("freq", READ),
            ("help", 0),
            ("idletime", READ),
            ("refcount", READ),
        ],
    },
    Container {
        name: "pubsub",
        subcommands: &[
            ("channels", PUBSUB),
            ("help", 0),
            ("numpat", PUBSUB),
            ("numsub", PUBSUB),
            ("shardchannels", PUBSUB),
            ("shardnumsub", PUBSUB),
        ],
    },
    Container {
        name: "script",
        subcommands: &[
            ("debug", 0),
            ("exists", 0),
            ("flush", 0),
            ("help", 0),
            ("kill", 0),
            ("load", 0),
        ],
    },
    Container {
        name: "slowlog",
        subcommands: &[("get", ADMIN), ("help", 0), ("len", ADMIN), ("reset", ADMIN)],
    },
    Container {
        name: "xgroup",
        subcommands: &[
            ("create", WRITE),
            ("createconsumer", WRITE),
            ("delconsumer", WRITE),
            ("destroy", WRITE),
            ("help", 0),
            ("setid", WRITE),
        ],
    },
    Container {
        name: "xinfo",
        subcommands: &[("consumers", READ), ("groups", READ), ("help", 0), ("stream", READ)],
    },
    // Not one in Redis, whose rules name its subcommands as first arguments.
    Container { name: "debug", subcommands: &[] },
];

/// The subcommands of a command, if it has some.
pub(crate) fn subcommands_of(name: &str) -> &'static [(&'static str, u16)] {
    let found = CONTAINERS.iter().find(|container| container.name == name);
    found.map_or(&[], |container| container.subcommands)
}

/// Whether the first argument of a command names a subcommand.
pub(crate) fn is_container(name: &str) -> bool {
    CONTAINERS.iter().any(|container| container.name == name)
}
