//! `serve`: a store for clients of Redis, memcached and mica, until SIGTERM or SIGINT.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use siltstone::catalogue::Catalogue;
use siltstone::options::{parse_duration, parse_size};
use siltstone::{Db, DbOptions, Table};
use siltstone_lab::trace::{Recorded, Recorder};
use siltstone_server::{Fsync, Server, ServerOptions};

use crate::store::{DEFAULT_TABLE, TableSpec, warn};
use crate::trouble::TroubleReporter;
use crate::{CommandResult, Failure, Outcome};

/// Serve a store to clients of Redis and memcached over TCP, and a table of mica over UDP
///
/// The store is made if the directory is missing or empty. SELECT 0 is the first table named (or
/// `default`), SELECT 1 the second, and so on. SIGTERM and SIGINT drain, sync and end with status 0.
#[derive(Args)]
pub(crate) struct Serve {
    /// The directory of the store
    dir: PathBuf,
    /// Where to listen for Redis clients; other than loopback asks for --password
    #[arg(long, default_value = "127.0.0.1:6379")]
    listen: SocketAddr,
    /// Where to listen for memcached's clients (text and meta commands over TCP), e.g. 127.0.0.1:11211
    #[arg(long, value_name = "ADDRESS")]
    memcached: Option<SocketAddr>,
    /// Where to take memcached's commands in datagrams, too; a loopback address
    #[arg(long, value_name = "ADDRESS")]
    memcached_udp: Option<SocketAddr>,
    /// The table that memcached's clients get; the first if it is not given
    #[arg(long, value_name = "NAME")]
    memcached_table: Option<String>,
    /// Where to serve a table of the engine mica over UDP, to siltstone's own client: the first of as
    /// many ports as there are threads
    #[arg(long, value_name = "ADDRESS")]
    udp: Option<SocketAddr>,
    /// The table of mica that is served over UDP; the first if it is not given
    #[arg(long, value_name = "NAME")]
    udp_table: Option<String>,
    /// Threads that serve UDP, a port each; 0 for one a core
    #[arg(long, default_value_t = 0)]
    udp_ports: usize,
    /// Who finds the thread of a key's partition: its client, by the port, or any thread that gets the
    /// request, which is slower
    #[arg(long, value_enum, default_value = "client")]
    udp_direction: DirectionArg,
    /// UDP's packets that the system may carry as one, both ways, where it can; 1 for none
    #[arg(long, value_name = "PACKETS", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..=64))]
    udp_train: u8,
    /// Take UDP's packets from an interface past the kernel's network (AF_XDP), which asks for rights: its
    /// name, which has the IPv4 address of --udp, and the first of its queues, one for each port
    #[arg(long, value_name = "INTERFACE[:QUEUE]", requires = "udp", value_parser = parse_queue)]
    xdp: Option<(String, u32)>,
    /// Where to serve Prometheus metrics, and a console for browsers, over HTTP
    #[arg(long)]
    metrics: Option<SocketAddr>,
    /// A table to serve, made if it is not there; again for more
    #[arg(long = "table", value_name = "NAME[=ENGINE[,key=value…]]")]
    tables: Vec<TableSpec>,
    /// When a write is acknowledged
    #[arg(long, value_enum, default_value = "everysec")]
    fsync: FsyncArg,
    /// Clients must send this with AUTH (or set SILTSTONE_PASSWORD)
    #[arg(long)]
    password: Option<String>,
    /// Clients at once
    #[arg(long, default_value_t = 10_000)]
    max_clients: usize,
    /// The largest request, e.g. 512MiB
    #[arg(long, value_parser = parse_size, default_value = "512MiB")]
    max_request: u64,
    /// The largest reply, and with it the largest value
    #[arg(long, value_parser = parse_size, default_value = "64MiB")]
    max_output: u64,
    /// Cut off clients that are silent for this long (0s: never)
    #[arg(long, value_parser = parse_duration, default_value = "0s")]
    idle_timeout: Duration,
    /// Read past the page cache (O_DIRECT): memory is then what the engines take, and each read one of
    /// the device. For engines that read once a lookup, like silt
    #[arg(long)]
    direct: bool,
    /// Threads that serve clients; 0 for one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Write down what clients ask of a table, keys and sizes but no values, in a new file: for
    /// bench --trace and advise --trace
    #[arg(long, value_name = "FILE", conflicts_with = "udp")]
    record: Option<PathBuf>,
    /// The table whose requests are written down; the first if it is not given
    #[arg(long, value_name = "NAME", requires = "record")]
    record_table: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FsyncArg {
    /// When the medium has it: survives a power cut
    Always,
    /// When the system has it, synced each second: a power cut may take the last second
    Everysec,
    /// When the system has it: survives the death of the process
    No,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DirectionArg {
    /// The client sends a request to its partition's port
    Client,
    /// Any port takes any request and hands it over
    Any,
}

/// An interface and the number of a queue, 0 if none is given.
fn parse_queue(text: &str) -> Result<(String, u32), String> {
    let Some((name, queue)) = text.split_once(':') else { return Ok((text.to_owned(), 0)) };
    let queue = queue.parse().map_err(|_| format!("{queue:?} is no number of a queue"))?;
    Ok((name.to_owned(), queue))
}

impl Serve {
    pub(crate) fn run(self) -> CommandResult {
        let of_store = DbOptions { direct_reads: self.direct, ..DbOptions::default() };
        self.tables.iter().try_for_each(TableSpec::check)?;
        let options = ServerOptions {
            listen: self.listen,
            memcached: self.memcached,
            memcached_udp: self.memcached_udp,
            memcached_table: self.memcached_table.clone(),
            udp: self.udp,
            udp_table: self.udp_table.clone(),
            udp_ports: self.udp_ports,
            udp_any_port: matches!(self.udp_direction, DirectionArg::Any),
            udp_train: self.udp_train.into(),
            udp_xdp: self.xdp.clone(),
            metrics: self.metrics,
            fsync: match self.fsync {
                FsyncArg::Always => Fsync::Always,
                FsyncArg::Everysec => Fsync::EverySecond,
                FsyncArg::No => Fsync::Never,
            },
            password: self.password.clone().or_else(|| std::env::var("SILTSTONE_PASSWORD").ok()),
            max_clients: self.max_clients,
            max_request_bytes: self.max_request as usize,
            max_output_bytes: self.max_output as usize,
            idle_timeout: (!self.idle_timeout.is_zero()).then_some(self.idle_timeout),
            threads: self.threads,
            ..ServerOptions::default()
        };
        // Before a store is made, or a table: what cannot be served leaves nothing behind.
        let there = match Db::exists(&self.dir)? {
            true => Some(Db::open(&self.dir, of_store.clone())?),
            false => None,
        };
        let known = there.as_ref().map(Db::catalogue).transpose()?.unwrap_or_default();
        let wanted = self.wanted(&known);
        let planned: Vec<_> =
            wanted.iter().map(|spec| (&*spec.name, spec.planned(&known))).collect();
        let planned: Vec<_> = planned.iter().map(|(name, spec)| (*name, spec)).collect();
        Server::check(&options, &planned)?;
        let names: Vec<_> = planned.iter().map(|(name, _)| *name).collect();
        let recorded = self.record.as_ref().map(|path| {
            check_record(path, self.record_table.as_deref(), &names).map(|table| (path, table))
        });
        let recorded = recorded.transpose()?;
        let db = there.map_or_else(|| Db::open_or_create(&self.dir, of_store), Ok)?;
        let mut tables = wanted.iter().map(|spec| spec.open(&db)).collect::<Result<Vec<_>, _>>()?;
        tables.iter().for_each(warn);
        let recorder =
            recorded.map(|(path, table)| record(path, &mut tables[table])).transpose()?;
        let served: Vec<_> = tables.iter().map(|table| table.name().to_owned()).collect();
        let reporter = TroubleReporter::start(&tables);
        let server = Server::bind(tables, options)?;
        // Whoever reads the next line may send a signal at once.
        let _signals = server.stop_on_signal()?;
        eprintln!("serving {} on {}", self.dir.display(), server.local_addr());
        tell_databases(&served, &db)?;
        if let Some(address) = server.memcached_addr() {
            eprintln!("memcached's protocol on {address}");
        }
        if let Some(address) = server.memcached_udp_addr() {
            eprintln!("memcached's datagrams on {address}");
        }
        if let Some(address) = server.udp_addr() {
            eprintln!("UDP on {address}");
        }
        if let Some(metrics) = server.metrics_addr() {
            eprintln!("metrics on http://{metrics}/metrics, a console on http://{metrics}/");
        }
        let drained = server.run();
        drop(reporter);
        let closed = db.close();
        if let Some(Err(error)) = recorder.map(|recorder| recorder.finish()) {
            eprintln!("the trace ends early: {error}");
        }
        drained?;
        closed?;
        Ok(Outcome::Done)
    }

    /// The tables to serve: those that are named, else all that the store has, else a new one.
    fn wanted(&self, known: &Catalogue) -> Vec<TableSpec> {
        if !self.tables.is_empty() {
            return self.tables.clone();
        }
        let mut names: Vec<_> = known.tables.keys().map(String::as_str).collect();
        // The default table is SELECT 0, whatever else there is.
        names.sort_by_key(|name| *name != DEFAULT_TABLE);
        if names.is_empty() {
            names.push(DEFAULT_TABLE);
        }
        names.into_iter().map(TableSpec::named).collect()
    }
}

/// Says which database is which table, if there is more than one to know of: their numbers follow from what is served.
fn tell_databases(served: &[String], db: &Db) -> Result<(), Failure> {
    let catalogue = db.catalogue()?;
    if catalogue.tables.len() < 2 {
        return Ok(());
    }
    let engine = |name: &String| &catalogue.tables[name].engine;
    let numbered = served.iter().enumerate();
    let told: Vec<_> =
        numbered.map(|(number, name)| format!("{number} {name} ({})", engine(name))).collect();
    eprintln!("SELECT {}", told.join(", "));
    let others = catalogue.tables.keys().filter(|name| !served.contains(name));
    let others: Vec<_> = others.map(String::as_str).collect();
    if !others.is_empty() {
        eprintln!("not served, since --table names others: {}", others.join(", "));
    }
    Ok(())
}

/// The place of the table whose requests are to be written down, in a file that is to be new.
fn check_record(path: &Path, name: Option<&str>, served: &[&str]) -> Result<usize, Failure> {
    if path.symlink_metadata().is_ok() {
        let path = path.display();
        return Err(Failure::Store(format!(
            "cannot write down requests in {path}: it is there already; name a new file"
        )));
    }
    served.iter().position(|served| name.is_none_or(|name| name == *served)).ok_or_else(|| {
        Failure::Usage(format!(
            "--record-table: '{}' is not served; the tables are {}",
            name.unwrap_or_default(),
            served.join(", ")
        ))
    })
}

/// Has the requests for a table written down.
fn record(path: &Path, table: &mut Table) -> Result<Arc<Recorder>, Failure> {
    let recorder = Recorder::create(path)?;
    *table = table.through(|engine| Arc::new(Recorded::new(engine, recorder.clone())));
    eprintln!("requests for {} are written down in {}", table.name(), path.display());
    Ok(recorder)
}
