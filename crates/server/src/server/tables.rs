//! The tables that a server serves: their names, and the one of a protocol.

use std::sync::Arc;
use std::time::{Duration, Instant};

use siltstone::Table;
use siltstone_engine::{Clock, Error, Result};

use crate::ServerOptions;
use crate::replication::groups::Groups;
use crate::replication::options::ClusterOptions;
use crate::replication::start::{NodeThreads, StartedNode, start};
use crate::store::observers::Observers;
use crate::store::{Content, Database};

/// How long a read of a table is repeated that a received snapshot replaces.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(5);

/// The tables that a server is bound to.
pub(super) struct Tables {
    pub(super) databases: Vec<Database>,
    pub(super) observers: Arc<Observers>,
    pub(super) replication: Option<(Groups, NodeThreads)>,
}

impl Tables {
    /// The first is SELECT 0, the second SELECT 1, ….
    pub(super) fn of_store(tables: &[Table], options: &ServerOptions) -> Result<Self> {
        let observers = Arc::new(Observers::default());
        let contents = tables.iter().map(|table| {
            Content::open(table.clone(), options.max_value_bytes(), options.clock.now())
        });
        let databases = Database::of_contents(contents.collect::<Result<_>>()?, &observers);
        Ok(Tables { databases, observers, replication: None })
    }

    /// Starts this node; one database per group.
    pub(super) fn of_node(cluster: &ClusterOptions, options: &ServerOptions) -> Result<Self> {
        let observers = Arc::new(Observers::default());
        let StartedNode { groups, running } = start(cluster)?;
        let contents = groups.iter().enumerate().map(|(index, group)| {
            let name = match groups.are_several() {
                true => format!("group-{index}"),
                false => "replicated".to_owned(),
            };
            let max_value_bytes = options.max_value_bytes();
            while_replaced(|| {
                let (engine, now) = (group.table.clone(), group.clock.now());
                Content::open_replicated(name.clone(), engine, max_value_bytes, now)
            })
        });
        let databases = Database::of_contents(contents.collect::<Result<_>>()?, &observers);
        Ok(Tables { databases, observers, replication: Some((groups, running)) })
    }
}

/// Repeats a read of a node's table while a received snapshot replaces the table, which is closed
/// then.
fn while_replaced<T>(read: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + REPLACE_TIMEOUT;
    loop {
        match read() {
            Err(Error::Closed) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            outcome => return outcome,
        }
    }
}

/// Index of the table with this name; 0 without a name.
pub(super) fn find_table(names: &[&str], name: Option<&str>) -> Result<usize> {
    let Some(name) = name else { return Ok(0) };
    names.iter().position(|served| *served == name).ok_or_else(|| {
        let reason = format!("'{name}' is not served; the tables are {}", names.join(", "));
        Error::invalid_option("memcached_table", reason)
    })
}

/// Finds the `mica` table with this name, or the first: its index and attached value.
pub(super) fn find_mica<'a, T>(
    tables: impl Iterator<Item = (&'a str, Option<T>)>,
    name: Option<&str>,
) -> Result<(usize, T)> {
    let mut names = Vec::new();
    for (at, (served, mica)) in tables.enumerate() {
        let Some(mica) = mica else { continue };
        if name.is_none_or(|name| name == served) {
            return Ok((at, mica));
        }
        names.push(served);
    }
    let reason = match (name, names.is_empty()) {
        (_, true) => {
            "it requires a table of the engine mica, and there is none; add one, e.g. with --table \
             cache=mica,mode=cache"
                .to_owned()
        }
        (name, false) => format!(
            "'{}' is not a served table of the engine mica; these are: {}",
            name.unwrap_or_default(),
            names.join(", ")
        ),
    };
    Err(Error::invalid_option("udp", reason))
}

/// Two databases of one table would not share locks, so INCR and WATCH would be wrong.
pub(super) fn check_names(names: &[&str]) -> Result<()> {
    let duplicate = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    match duplicate {
        None => Ok(()),
        Some((_, name)) => {
            Err(Error::invalid_option("tables", format!("'{name}' is named twice; name it once")))
        }
    }
}
