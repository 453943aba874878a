//! `serve` without replication: opens the store and serves tables of it.

use std::path::Path;
use std::sync::Arc;

use siltstone::catalogue::Catalogue;
use siltstone::{Db, DbOptions, Table};
use siltstone_backup::Repository;
use siltstone_bench::trace::{Recorder, RecordingEngine};
use siltstone_server::{BackupOptions, Server, ServerOptions};

use super::Serve;
use crate::archive;
use crate::backup;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::store::{DEFAULT_TABLE, TableSpec, is_node, warn};
use crate::trouble::TroubleReporter;

impl Serve {
    /// Serves a store of this process alone.
    pub(super) fn run_local(
        &self,
        dir: &Path,
        db_options: DbOptions,
        mut options: ServerOptions,
    ) -> CommandResult {
        if is_node(dir) {
            let dir = dir.display();
            return Err(Failure::Usage(format!(
                "{dir} is the directory of a node of a replicated table: start it with the options of \
                 its first start, --node-id and --initial-cluster or --join; if it was restored from a \
                 backup, as the first node of a new cluster"
            )));
        }
        let repository = self.backup.as_deref().map(backup::ServedRepository::at).transpose()?;
        // Checked before a store or a table is created.
        let existing = match Db::exists(dir)? {
            true => Some(Db::open(dir, db_options.clone())?),
            false => None,
        };
        let known = existing.as_ref().map(Db::catalogue).transpose()?.unwrap_or_default();
        let wanted = in_their_places(self.tables_to_serve(&known), &known)?;
        let planned: Vec<_> =
            wanted.iter().map(|spec| (&*spec.name, spec.planned(&known))).collect();
        let planned: Vec<_> = planned.iter().map(|(name, spec)| (*name, spec)).collect();
        Server::check(&options, &planned)?;
        let names: Vec<_> = planned.iter().map(|(name, _)| *name).collect();
        let trace = self.trace_out.as_ref().map(|path| {
            check_trace(path, self.trace_table.as_deref(), &names).map(|table| (path, table))
        });
        let trace = trace.transpose()?;
        let db = existing.map_or_else(|| Db::open_or_create(dir, db_options), Ok)?;
        let mut tables = wanted.iter().map(|spec| spec.open(&db)).collect::<Result<Vec<_>, _>>()?;
        tables.iter().for_each(warn);
        let recorder = trace.map(|(path, table)| record(path, &mut tables[table])).transpose()?;
        let served: Vec<_> = tables.iter().map(|table| table.name().to_owned()).collect();
        let reporter = TroubleReporter::start(&tables);
        options.functions_dir = Some(dir.to_owned());
        options.backup = repository.map(|repository| {
            let archive = self
                .backup_log_interval
                .map(|interval| archive::of_served(repository.clone(), db.clone(), interval));
            let db = db.clone();
            let take = move |repository: &Repository| repository.back_up(&db, &mut |_, _| {});
            let take = backup::of_served(repository, self.backup_keep, take);
            BackupOptions { take, interval: self.backup_interval, archive }
        });
        let server = Server::bind(tables, options)?;
        recorder.iter().for_each(|recorder| recorder.start());
        // The reader of the next line may send a signal at once.
        let _signals = server.stop_on_signal()?;
        eprintln!("serving {} on {}", dir.display(), server.local_addr());
        print_databases(&served, &db)?;
        if let Some(path) = &self.unix_socket {
            eprintln!("Redis's protocol on the socket {}", path.display());
        }
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
        for (what, address) in [
            ("Redis's protocol", server.tls_addr()),
            ("memcached's protocol", server.tls_memcached_addr()),
            ("metrics", server.tls_metrics_addr()),
        ] {
            if let Some(address) = address {
                eprintln!("{what} over TLS on {address}");
            }
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

    /// The tables to serve: those given, else all of the store, else a new one.
    fn tables_to_serve(&self, known: &Catalogue) -> Vec<TableSpec> {
        if !self.tables.is_empty() {
            return self.tables.clone();
        }
        let mut names: Vec<_> = known.tables.keys().map(String::as_str).collect();
        // The default table is SELECT 0.
        names.sort_by_key(|name| *name != DEFAULT_TABLE);
        if names.is_empty() {
            names.push(DEFAULT_TABLE);
        }
        names.into_iter().map(TableSpec::named).collect()
    }
}

/// The tables in the order of their numbers, which SWAPDB may have changed.
fn in_their_places(tables: Vec<TableSpec>, known: &Catalogue) -> Result<Vec<TableSpec>, Failure> {
    let in_place = |place: &TableSpec| {
        let name = known.in_place_of(&place.name);
        tables.iter().find(|table| table.name == name).cloned().ok_or_else(|| {
            let place = &place.name;
            Failure::Usage(format!(
                "SWAPDB has exchanged the tables {place} and {name}: serve both, or neither"
            ))
        })
    };
    tables.iter().map(in_place).collect()
}

/// Prints the table of each database number, if there is more than one table.
fn print_databases(served: &[String], db: &Db) -> Result<(), Failure> {
    let catalogue = db.catalogue()?;
    if catalogue.tables.len() < 2 {
        return Ok(());
    }
    let engine = |name: &String| &catalogue.tables[name].engine;
    let numbered = served.iter().enumerate();
    let databases: Vec<_> =
        numbered.map(|(number, name)| format!("{number} {name} ({})", engine(name))).collect();
    eprintln!("SELECT {}", databases.join(", "));
    let others = catalogue.tables.keys().filter(|name| !served.contains(name));
    let others: Vec<_> = others.map(String::as_str).collect();
    if !others.is_empty() {
        eprintln!("not served, because --table names others: {}", others.join(", "));
    }
    Ok(())
}

/// The index of the table to record, and a check that the file is new.
fn check_trace(path: &Path, name: Option<&str>, served: &[&str]) -> Result<usize, Failure> {
    if path.symlink_metadata().is_ok() {
        let path = path.display();
        return Err(Failure::Store(format!(
            "cannot record requests in {path}: it exists already; name a new file"
        )));
    }
    served.iter().position(|served| name.is_none_or(|name| name == *served)).ok_or_else(|| {
        Failure::Usage(format!(
            "--trace-table: '{}' is not served; the tables are {}",
            name.unwrap_or_default(),
            served.join(", ")
        ))
    })
}

/// Prepares to record the requests for a table, from [`Recorder::start`] on.
fn record(path: &Path, table: &mut Table) -> Result<Arc<Recorder>, Failure> {
    let recorder = Recorder::create(path)?;
    *table =
        table.with_interceptor(|engine| Arc::new(RecordingEngine::new(engine, recorder.clone())));
    eprintln!("recording requests for {} in {}", table.name(), path.display());
    Ok(recorder)
}
