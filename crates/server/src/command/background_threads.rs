//! Threads that run parked commands: long scripts, and jobs that wait for other machines. Each runs
//! one at a time.
//!
//! | thread | workers meanwhile |
//! | --- | --- |
//! | of long scripts | wait: the script runs alone |
//! | of jobs | serve their clients: MIGRATE and ACL SETUSER hold no lock while they wait |
//!
//! As on a worker, a reply is sent after its writes are synced, if the server promises it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::waiters::Waiter;
use super::{observe, serve};
use crate::Fsync;
use crate::clients::Ticket;
use crate::shared::Shared;
use crate::store::write_batcher::{Delivery, WriteBatcher};

/// Runs long scripts until the server stops. `index` is the thread's among the metrics of workers.
pub(crate) fn run_long_scripts(shared: &Shared, index: usize) {
    let mut batcher = WriteBatcher::new(shared.databases.len());
    while let Some(ticket) = shared.long_runs.parked.next(|| shared.stop.is_stopping()) {
        // The client may have gone.
        let Some(waiter) = shared.waiters.start(ticket) else { continue };
        let gate = shared.long_runs.begin(shared.settings.busy_threshold());
        let reply = run(shared, &mut batcher, &waiter);
        shared.long_runs.end();
        serve::serve_ready_keys(shared, &mut batcher);
        drop(gate);
        finish(shared, index, &mut batcher, ticket, &waiter, reply);
    }
}

/// Runs MIGRATE, and changes of users in a replicated table, until the server stops. `index` is the
/// thread's among the metrics of workers.
pub(crate) fn run_jobs(shared: &Shared, index: usize) {
    let mut batcher = WriteBatcher::new(shared.databases.len());
    while let Some(ticket) = shared.jobs.next(|| shared.stop.is_stopping()) {
        // The client may have gone.
        let Some(waiter) = shared.waiters.start(ticket) else { continue };
        // No table switches to another engine meanwhile.
        let no_switch = shared.moves.jobs.lock();
        let reply = run(shared, &mut batcher, &waiter);
        serve::serve_ready_keys(shared, &mut batcher);
        drop(no_switch);
        finish(shared, index, &mut batcher, ticket, &waiter, reply);
    }
}

/// Runs a command, and reports and counts its time.
fn run(shared: &Shared, batcher: &mut WriteBatcher, waiter: &Waiter) -> Option<Vec<u8>> {
    batcher.clock = Instant::now();
    let reply = serve::run_again(shared, batcher, waiter);
    let duration = batcher.clock.elapsed();
    observe::observe_job(shared, waiter, duration);
    let counter = shared.commands.counter(waiter.command.command, waiter.command.args());
    batcher.samples.add(counter, 1, duration);
    reply
}

/// Syncs the writes of a command, and sends its reply. `index` is the thread's among the metrics of
/// workers.
fn finish(
    shared: &Shared,
    index: usize,
    batcher: &mut WriteBatcher,
    ticket: Ticket,
    waiter: &Waiter,
    reply: Option<Vec<u8>>,
) {
    if let Some(reply) = reply
        && shared.waiters.finish(&shared.observers, ticket)
    {
        let (table, client) = (waiter.table, waiter.client.clone());
        batcher.deliver_after_sync(Delivery { table, client, reply });
    }
    let synced = match shared.options.fsync {
        Fsync::Always => batcher.sync(&shared.databases),
        Fsync::EverySecond | Fsync::Never => Ok(()),
    };
    let error = synced.err().map(|error| {
        shared.metrics.failed_syncs.fetch_add(1, Relaxed);
        format!("ERR the write may not be durable: {error}")
    });
    shared.metrics.record(index, &mut batcher.samples);
    batcher.deliver(error.as_deref());
    batcher.finish_iteration();
}
