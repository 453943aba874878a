//! `serve`: serves a store to clients of Redis, memcached and mica, until SIGTERM or SIGINT.

mod local;
mod replicated;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use siltstone::DbOptions;
use siltstone::options::{parse_duration, parse_size};
use siltstone_server::{
    ClientAuth, Fsync, HoldableClock, Member, ServerOptions, TlsFiles, TlsOptions, TlsVersion,
};

use crate::access::{PASSWORD_VARIABLE, password_or_variable};
use crate::outcome::{CommandResult, Failure};
use crate::store::TableSpec;

/// The address for Redis clients, unless it is given.
const DEFAULT_LISTEN: &str = "127.0.0.1:6379";

/// Serve a store to clients of Redis and memcached over TCP, and a table of mica over UDP
///
/// The store is created if the directory is missing or empty. SELECT 0 is the first table given
/// (or `default`), SELECT 1 the second, and so on. SIGTERM and SIGINT drain, sync and end with
/// status 0.
///
/// With --node-id the table is replicated (experimental): the nodes of --initial-cluster form one
/// Raft group, or several with --groups, which lose no acknowledged write while a majority of the
/// nodes is there. With --join a
/// new node is added to such a group. Clients use the protocol of Redis Cluster. The book has a
/// page on it.
#[derive(Args)]
#[command(args_override_self = true)]
pub(crate) struct Serve {
    /// The directory of the store
    #[arg(required_unless_present_any = ["config", "print_config"])]
    dir: Option<PathBuf>,
    /// Read options from a TOML file: the names are those of the command line (listen =
    /// "127.0.0.1:6379", table = ["a", "b"], direct = true), and dir is the directory. An option on
    /// the command line wins
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the options in force as a configuration file, and exit
    #[arg(long)]
    print_config: bool,
    /// The address for Redis clients; addresses other than loopback need --password or --acl-file.
    /// A node of a replicated table listens on its address in --initial-cluster, unless another one
    /// is given
    #[arg(long, default_value = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// A Unix socket for Redis clients, beside --listen: the path of its file. That of a server
    /// that has died is replaced. Who may connect is decided by the file's permissions
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// The permissions of that file, in octal
    #[arg(long, value_name = "MODE", default_value = "700", value_parser = parse_mode)]
    unix_socket_mode: u32,
    /// The address for memcached clients (text and meta commands over TCP), e.g. 127.0.0.1:11211
    #[arg(long, value_name = "ADDRESS")]
    memcached: Option<SocketAddr>,
    /// The address for memcached commands over UDP; a loopback address
    #[arg(long, value_name = "ADDRESS")]
    memcached_udp: Option<SocketAddr>,
    /// The table of memcached clients; by default the first
    #[arg(long, value_name = "NAME")]
    memcached_table: Option<String>,
    /// The address of a mica table over UDP, for siltstone's own client: the first of as many ports
    /// as there are threads
    #[arg(long, value_name = "ADDRESS")]
    udp: Option<SocketAddr>,
    /// The mica table that is served over UDP; by default the first
    #[arg(long, value_name = "NAME")]
    udp_table: Option<String>,
    /// Threads that serve UDP, one port each; 0 for one per core
    #[arg(long, default_value_t = 0)]
    udp_ports: usize,
    /// Who routes a request to the thread of its key's partition: the client, by the port, or any
    /// thread that receives the request, which is slower
    #[arg(long, value_enum, default_value = "client")]
    udp_direction: DirectionArg,
    /// The maximum number of UDP packets per segmentation offload batch (GSO), in both directions;
    /// 1 for none
    #[arg(long, alias = "udp-train", value_name = "PACKETS", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..=64))]
    udp_gso_segments: u8,
    /// Bypass the kernel's network stack for UDP (AF_XDP), which needs privileges: the interface,
    /// which has the IPv4 address of --udp, and the first of its queues, one per port
    #[arg(long, value_name = "INTERFACE[:QUEUE]", requires = "udp", value_parser = parse_queue)]
    xdp: Option<(String, u32)>,
    /// The address for Prometheus metrics, and a console for browsers, over HTTP
    #[arg(long)]
    metrics: Option<SocketAddr>,
    /// A table to serve, created if it does not exist; may be repeated
    #[arg(long = "table", value_name = "NAME[=ENGINE[,key=value…]]")]
    tables: Vec<TableSpec>,
    /// When a write is acknowledged
    #[arg(long, value_enum, default_value = "everysec")]
    fsync: FsyncArg,
    /// Clients must send this with AUTH (or set SILTSTONE_PASSWORD)
    #[arg(long)]
    password: Option<String>,
    /// Users, their passwords and rights: a file in the format of Redis's ACL files, which ACL SAVE
    /// writes and ACL LOAD reads again
    #[arg(long, value_name = "FILE")]
    acl_file: Option<PathBuf>,
    /// The address for Redis clients over TLS, beside --listen
    #[arg(long, value_name = "ADDRESS", requires = "tls_cert")]
    tls_listen: Option<SocketAddr>,
    /// The address for memcached clients over TLS, beside --memcached
    #[arg(long, value_name = "ADDRESS", requires = "tls_cert")]
    tls_memcached: Option<SocketAddr>,
    /// The address for metrics and the console over HTTPS, beside --metrics
    #[arg(long, value_name = "ADDRESS", requires = "tls_cert")]
    tls_metrics: Option<SocketAddr>,
    /// The certificate of the server, followed by those of its issuers (PEM). Read again at SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The certificates of the authorities that issue certificates of clients (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Whether clients need a certificate; by default they do with --tls-client-ca
    #[arg(long, value_enum, value_name = "WHEN", requires = "tls_cert")]
    tls_client_auth: Option<ClientAuthArg>,
    /// The oldest version of TLS that is spoken
    #[arg(long, value_enum, default_value = "1.2")]
    tls_min_version: TlsVersionArg,
    /// The maximum number of connected clients
    #[arg(long, default_value_t = 10_000)]
    max_clients: usize,
    /// The maximum size of a request, e.g. 512MiB
    #[arg(long, value_parser = parse_size, default_value = "512MiB")]
    max_request: u64,
    /// The maximum size of a reply, and of a value
    #[arg(long, value_parser = parse_size, default_value = "64MiB")]
    max_output: u64,
    /// Close connections that are idle for this long (0s: never)
    #[arg(long, value_parser = parse_duration, default_value = "0s")]
    idle_timeout: Duration,
    /// Bypass the page cache (O_DIRECT): memory use is then that of the engines, and each read
    /// goes to the device. For engines with one read per lookup, like silt
    #[arg(long)]
    direct: bool,
    /// The size of one block cache for all tables on lsm, in place of one per table, e.g. 1GiB. The
    /// option cache of existing tables has no effect then, and new tables must not have it
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache: Option<u64>,
    /// The maximum number of files of the store that are open. Idle ones beyond it are closed, and
    /// opened again when they are used
    #[arg(long, value_name = "FILES", default_value_t = DbOptions::DEFAULT_MAX_OPEN_FILES)]
    max_open_files: usize,
    /// Threads that serve clients; 0 for one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Back the store up into this repository, incrementally, when a client sends BGSAVE; clients
    /// are served meanwhile. It is a directory or a URL such as s3://bucket/prefix: see siltstone
    /// backup --help. A node of a replicated table backs up the whole cluster
    #[arg(long, value_name = "REPOSITORY")]
    backup: Option<PathBuf>,
    /// Also take a backup each time that this much time has passed since the last, e.g. 1h
    #[arg(long, value_name = "DURATION", requires = "backup", value_parser = parse_duration)]
    backup_interval: Option<Duration>,
    /// After each backup keep only this many, the newest
    #[arg(long, value_name = "COUNT", requires = "backup", value_parser = clap::value_parser!(u32).range(1..))]
    backup_keep: Option<u32>,
    /// Also archive the changes of tables on lsm in the repository each time that this much time
    /// has passed, e.g. 10s: siltstone restore --at can then restore the state of any moment, to
    /// within that time. Tables that keep no log get log_retention=1GiB
    #[arg(long, value_name = "DURATION", requires = "backup", value_parser = parse_log_interval)]
    backup_log_interval: Option<Duration>,
    /// Record the requests for a table, with keys and sizes but without values, in a new file: for
    /// bench --trace and advise --trace
    #[arg(long, alias = "record", value_name = "FILE", conflicts_with = "udp")]
    trace_out: Option<PathBuf>,
    /// The table whose requests are recorded; by default the first
    #[arg(long, alias = "record-table", value_name = "NAME", requires = "trace_out")]
    trace_table: Option<String>,
    /// Serve a replicated table (experimental), as the node with this number. The directory is that
    /// of the node; a new number needs an empty one, and an empty one needs a new number
    #[arg(long, value_name = "ID", requires = "initial_cluster", conflicts_with_all = NOT_REPLICATED)]
    node_id: Option<u64>,
    /// All nodes of a replicated table when it is created, the same list at each of them: numbers,
    /// addresses for clients, and ports for the other nodes, which are 10000 higher by default
    #[arg(long, value_name = "ID=IP:PORT[@PORT]", value_delimiter = ',', requires = "node_id")]
    initial_cluster: Vec<Member>,
    /// Add this node to the group of a replicated table (experimental), through the address for
    /// clients of any of its nodes; users need the right for CLUSTER ADD-NODE there. The directory
    /// is empty the first time. Later starts have the same options, and need no answer
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = NOT_REPLICATED, conflicts_with = "node_id")]
    join: Option<String>,
    /// The user that joins with --password
    #[arg(long, value_name = "USER", requires = "join")]
    join_user: Option<String>,
    /// Join over TLS: the certificates of the authorities of the other nodes' servers (PEM)
    #[arg(long, value_name = "FILE", requires = "join")]
    join_tls_ca: Option<PathBuf>,
    /// The address of a node that joins, as other machines reach it: for clients, by default that
    /// of --listen, and behind the @ the port for other nodes, by default 10000 higher
    #[arg(long, value_name = "IP:PORT[@PORT]", requires = "join", value_parser = |text: &str| Member::at(0, text))]
    cluster_announce: Option<Member>,
    /// The certificate of this node, followed by those of its issuers (PEM), for connections
    /// between nodes. Without it nodes have loopback addresses. Read again at SIGHUP
    #[arg(long, value_name = "FILE", requires_all = ["cluster_tls_key", "cluster_tls_ca"])]
    cluster_tls_cert: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cluster_tls_cert")]
    cluster_tls_key: Option<PathBuf>,
    /// The certificates of the authority of the nodes (PEM). Whoever has a certificate of it is
    /// accepted as a node: let it issue those of this cluster's nodes only
    #[arg(long, value_name = "FILE", requires = "cluster_tls_cert")]
    cluster_tls_ca: Option<PathBuf>,
    /// The maximum size of the snapshots that a node sends to others per second; 0 for no limit
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    snapshot_rate: u64,
    /// The size of a group's log, on disk and in memory, at which a node that receives a snapshot
    /// is not waited for any more: the snapshot begins again then. At least 128MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1GiB")]
    max_log: u64,
    /// Make the users of this node's --acl-file and --password those of the whole replicated table,
    /// once, after this start: the way in if nobody can log in any more. Otherwise these options
    /// count only until the table has users
    #[arg(long)]
    replace_users: bool,
    /// The number of the replicated table, the same at all its nodes: nodes of different tables
    /// refuse each other. Choose another one for each table
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    cluster_id: u64,
    /// The number of groups among which the slots of a replicated table are split, the same at all
    /// its nodes. Different nodes lead different groups. Fixed when the cluster is made; by default
    /// 1 then, and later what the directory says. A node that joins has that of the cluster
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    groups: Option<u16>,
    /// How long a node of a replicated table waits for a leader that is silent, before it wants to
    /// lead: once to twice this. Longer than pauses of processes and network
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    election_timeout: Duration,
}

/// The shortest interval of the archive of changes: each is a sync of the store.
const MIN_LOG_INTERVAL: Duration = Duration::from_millis(10);

fn parse_log_interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        interval if interval >= MIN_LOG_INTERVAL => Ok(interval),
        _ => Err("the interval is at least 10ms".to_owned()),
    }
}

/// Options that a replicated table does not have.
const NOT_REPLICATED: [&str; 11] = [
    "backup_log_interval",
    "memcached",
    "memcached_udp",
    "memcached_table",
    "udp",
    "udp_table",
    "xdp",
    "direct",
    "cache",
    "trace_out",
    "trace_table",
];

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FsyncArg {
    /// After a sync: survives a power cut
    Always,
    /// After the write call, with a sync every second: a power cut may lose the last second
    Everysec,
    /// After the write call: survives a process crash
    No,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClientAuthArg {
    /// They are not asked for one
    No,
    /// One that is sent must be valid
    Optional,
    /// Clients without a valid one are rejected
    Required,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TlsVersionArg {
    /// TLS 1.2
    #[value(name = "1.2")]
    V1_2,
    /// TLS 1.3
    #[value(name = "1.3")]
    V1_3,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DirectionArg {
    /// The client sends a request to its partition's port
    Client,
    /// Any port accepts any request and forwards it
    Any,
}

/// Parses an interface and the number of a queue, by default 0.
fn parse_queue(text: &str) -> Result<(String, u32), String> {
    let Some((name, queue)) = text.split_once(':') else { return Ok((text.to_owned(), 0)) };
    let queue = queue.parse().map_err(|_| format!("{queue:?} is not the number of a queue"))?;
    Ok((name.to_owned(), queue))
}

/// Parses the permissions of a file.
fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is not the octal mode of a file, such as 770"))
}

impl Serve {
    pub(crate) fn run(self) -> CommandResult {
        let Some(dir) = &self.dir else {
            let reason =
                "the store's directory is missing: give DIR, or dir in the configuration file";
            return Err(Failure::Usage(reason.into()));
        };
        let clock = Arc::new(HoldableClock::default());
        let mut db_options = DbOptions {
            direct_reads: self.direct,
            cache_bytes: self.cache,
            max_open_files: self.max_open_files,
            ..crate::store::options()
        };
        db_options.env.clock = clock.clone();
        self.tables.iter().try_for_each(TableSpec::check)?;
        self.tables.iter().for_each(TableSpec::warn_deprecated_options);
        let mut options = ServerOptions {
            listen: self.listen,
            unix_socket: self.unix_socket.clone().map(|path| (path, self.unix_socket_mode)),
            memcached: self.memcached,
            memcached_udp: self.memcached_udp,
            memcached_table: self.memcached_table.clone(),
            udp: self.udp,
            udp_table: self.udp_table.clone(),
            udp_ports: self.udp_ports,
            udp_any_port: matches!(self.udp_direction, DirectionArg::Any),
            udp_gso_segments: self.udp_gso_segments.into(),
            udp_xdp: self.xdp.clone(),
            metrics: self.metrics,
            fsync: match self.fsync {
                FsyncArg::Always => Fsync::Always,
                FsyncArg::Everysec => Fsync::EverySecond,
                FsyncArg::No => Fsync::Never,
            },
            password: password_or_variable(self.password.clone(), PASSWORD_VARIABLE),
            acl_file: self.acl_file.clone(),
            tls: self.tls_options(),
            max_clients: self.max_clients,
            max_request_bytes: self.max_request as usize,
            max_output_bytes: self.max_output as usize,
            idle_timeout: (!self.idle_timeout.is_zero()).then_some(self.idle_timeout),
            threads: self.threads,
            ..ServerOptions::default()
        };
        let is_replicated = self.node_id.is_some() || self.join.is_some();
        if is_replicated {
            return self.run_replicated(dir, options);
        }
        if self.replace_users {
            return Err(Failure::Usage(
                "--replace-users: only a node of a replicated table has users that its options do not \
                 name; leave the option out"
                    .into(),
            ));
        }
        options.clock = clock.clone();
        options.holdable_clock = Some(clock);
        self.run_local(dir, db_options, options)
    }

    /// TLS, if there is a certificate.
    fn tls_options(&self) -> Option<TlsOptions> {
        let (certificate, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        let client_auth = match (self.tls_client_auth, &self.tls_client_ca) {
            (Some(ClientAuthArg::No), _) | (None, None) => ClientAuth::No,
            (Some(ClientAuthArg::Optional), _) => ClientAuth::Optional,
            (Some(ClientAuthArg::Required), _) | (None, Some(_)) => ClientAuth::Required,
        };
        let min_version = match self.tls_min_version {
            TlsVersionArg::V1_2 => TlsVersion::V1_2,
            TlsVersionArg::V1_3 => TlsVersion::V1_3,
        };
        let client_ca = self.tls_client_ca.clone();
        Some(TlsOptions {
            listen: self.tls_listen,
            memcached: self.tls_memcached,
            metrics: self.tls_metrics,
            files: TlsFiles { certificate, key, client_ca, client_auth, min_version },
        })
    }
}
