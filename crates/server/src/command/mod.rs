//! Redis commands by family, and the command table.
//!
//! From the bottom up; the commands of each family are between the context and the table.
//!
//! | module | contents |
//! | --- | --- |
//! | [`failure`] | error replies, outcome of a command |
//! | [`definition`], [`index`] | properties of a command without its handler; all commands by name |
//! | [`key_flags`] | how a command uses its keys |
//! | [`subcommands`] | subcommands of commands that have some |
//! | [`sliced`] | commands that visit every key, in time slices |
//! | [`queued`], [`waiters`] | a command with its arguments, to be run later; parked commands |
//! | [`shown_call`] | a command of a script, for MONITOR |
//! | [`session`] | state of a client between commands |
//! | [`context`] | state of a running command: client, table, replies |
//! | [`context_collections`] | its operations on collections |
//! | [`authorize`] | checks that the client's user may run a command |
//! | [`parking`] | parks the running command: its reply comes later |
//! | [`entry`], [`help`] | a command as its module lists it; HELP of commands with subcommands |
//! | [`strings`], [`numbers`], [`ranges`] | commands on values: complete, as numbers, in part |
//! | [`history`], [`lcs`] | historical values; what two values have in common |
//! | [`hyperloglog`], [`hll_registers`] | commands on HyperLogLogs, and their format |
//! | [`bitmaps`], [`bitfield`] | commands on the bits of values |
//! | [`hashes`], [`lists`], [`sets`] | commands on hashes, lists and sets |
//! | [`hash_expiry`] | expiry of a hash's fields |
//! | [`sorted_sets`], [`sorted_set_ranges`], [`sorted_set_algebra`] | commands on sorted sets |
//! | [`geo`], [`geo_radius`], [`geo_cells`] | positions in sorted sets, and their cells |
//! | [`streams`], [`stream_reads`], [`stream_args`] | commands on the entries of streams |
//! | [`stream_groups`], [`stream_pending`], [`stream_info`], [`stream_lag`] | consumer groups |
//! | [`sort`] | SORT of lists, sets and sorted sets |
//! | [`elements`] | helpers of the commands on collections |
//! | [`keys`], [`expiry`], [`scan`] | commands on keys: existence, expiry, enumeration |
//! | [`mod@dump`] | DUMP and RESTORE: values in Redis's format |
//! | [`migrate`], [`migrate_target`] | MIGRATE: DUMP here, RESTORE at another server |
//! | [`keyspace`] | number of keys, and of keys that expire |
//! | [`transactions`] | MULTI, EXEC, WATCH |
//! | [`blocking`] | pops that wait |
//! | [`scripts`], [`functions`], [`script_calls`] | EVAL, SCRIPT, FCALL; what scripts run |
//! | [`connection`], [`client`], [`tracking`] | the connection and the client |
//! | [`pause`] | CLIENT PAUSE |
//! | [`databases`] | MOVE and SWAPDB |
//! | [`mod@pubsub`] | channels, patterns, messages |
//! | [`mod@acl`] | users and their rights |
//! | [`config_changes`] | checks of CONFIG SET |
//! | [`admin`], [`config`], [`info`], [`introspect`], [`slow_log`], [`latency`], [`modules`] | the server |
//! | [`table`] | the commands of all these modules |
//! | [`events`], [`observe`] | keyspace events of a command; monitors, slow log, latencies |
//! | [`serve`] | runs parked commands again after a write of their keys |
//! | [`background_threads`] | the threads of long scripts and of MIGRATE |
//! | [`mod@execute`] | from arguments to a reply: checks, queueing, handler, errors |
//! | [`pipeline`] | runs consecutive commands of a pipeline as a group |

mod acl;
mod admin;
mod authorize;
mod background_threads;
mod bitfield;
mod bitmaps;
mod blocking;
mod client;
mod cluster;
mod cluster_admin;
mod cluster_changes;
mod cluster_keys;
mod cluster_users;
mod config;
mod config_changes;
mod connection;
mod context;
mod context_collections;
mod databases;
mod decimal;
pub(crate) mod definition;
mod dump;
mod elements;
mod entry;
mod events;
mod execute;
mod expiry;
mod failure;
mod functions;
mod geo;
mod geo_cells;
mod geo_radius;
mod hash_expiry;
mod hashes;
mod help;
mod history;
mod hll_registers;
mod hyperloglog;
pub(crate) mod index;
mod info;
mod introspect;
pub(crate) mod key_flags;
mod keys;
mod keyspace;
mod latency;
mod lcs;
mod libraries;
mod lists;
mod memory;
mod migrate;
mod migrate_target;
mod modules;
mod numbers;
mod observe;
mod one_slot;
mod parking;
mod pause;
mod pipeline;
mod pubsub;
mod queued;
mod ranges;
mod redirection;
mod routing;
mod scan;
mod script_calls;
mod scripts;
mod serve;
mod session;
mod sets;
mod shown_call;
mod sliced;
mod slow_log;
mod sort;
mod sorted_set_algebra;
mod sorted_set_ranges;
mod sorted_sets;
mod stream_args;
mod stream_groups;
mod stream_info;
mod stream_lag;
mod stream_pending;
mod stream_reads;
mod streams;
mod strings;
pub(crate) mod subcommands;
mod table;
mod table_moves;
mod table_options;
mod table_rows;
mod tracking;
mod transactions;
mod user_clients;
mod waiters;

pub(crate) use background_threads::{run_jobs, run_long_scripts};
pub(crate) use cluster_changes::{replace_users, serve_cluster_changes};
pub(crate) use cluster_users::{begin_with_users, follow_users};
pub(crate) use execute::{answer_batched_sets, complete_parked, execute, expire_parked, resume};
pub(crate) use failure::store_text;
pub(crate) use index::CommandIndex;
pub(crate) use libraries::{follow_functions, open_functions};
pub(crate) use parking::end_parked;
pub(crate) use pause::paused_until;
pub(crate) use pipeline::{Member, Members, join_group, run_group};
pub(crate) use pubsub::end_shard_subscriptions;
pub(crate) use serve::serve_ready_keys;
pub(crate) use session::Session;
pub(crate) use table::command_index;
pub(crate) use waiters::Waiters;
