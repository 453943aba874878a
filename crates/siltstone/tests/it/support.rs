//! Tables for tests, in memory.

use std::sync::Arc;

use siltstone::{Clock, Engine, Env, Table, TransactionOptions, engines};
use siltstone_vfs::Ram;

/// An `lsm` with these options, in memory.
pub(crate) fn lsm(options: &[(&str, &str)]) -> Arc<dyn Engine> {
    lsm_in(&Env::system(1), options)
}

/// An `lsm` in another environment.
pub(crate) fn lsm_in(env: &Env, options: &[(&str, &str)]) -> Arc<dyn Engine> {
    open_in(env, "lsm", options)
}

/// Any engine.
pub(crate) fn open(engine: &str, options: &[(&str, &str)]) -> Arc<dyn Engine> {
    open_in(&Env::system(1), engine, options)
}

fn open_in(env: &Env, engine: &str, options: &[(&str, &str)]) -> Arc<dyn Engine> {
    let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    engines::open(engine, Arc::new(Ram::new()), env, &options.collect()).unwrap()
}

/// A table on a fresh `lsm`.
pub(crate) fn table() -> Table {
    Table::new("t", lsm(&[]))
}

/// A table with these limits and another clock.
pub(crate) fn table_at(clock: Arc<dyn Clock>, options: TransactionOptions) -> Table {
    Table::with("t", lsm(&[]), clock, &options)
}
