//! Runs parked commands again after a write of their keys.
//!
//! The thread that wrote serves the commands, in the order of their arrival, before its own client
//! gets its reply. So a client that has pushed an element sees that it was taken, as in Redis.
//!
//! ```text
//! worker 1:  RPUSH jobs a ─ write ─ key ready ─ BLPOP of client 7 again ─ sync ─ deliver ─ send
//! worker 2:                                        client 7's reply ◀──────────────┘
//! ```

use super::authorize::authorize;
use super::context::Context;
use super::session::Session;
use super::table::TABLE;
use super::waiters::Waiter;
use super::{events, observe};
use crate::metrics::CallOutcome;
use crate::resp::Replies;
use crate::shared::Shared;
use crate::store::write_batcher::{Delivery, WriteBatcher};
use crate::tracking::set_current_client;

/// Runs the parked commands of all ready keys again. The caller holds no locks of keys. Cost if no
/// key is ready: one atomic load.
#[inline]
pub(crate) fn serve_ready_keys(shared: &Shared, batcher: &mut WriteBatcher) {
    if shared.observers.blocked.has_ready() {
        serve(shared, batcher);
    }
}

#[cold]
fn serve(shared: &Shared, batcher: &mut WriteBatcher) {
    let (waiters, observers) = (&shared.waiters, &shared.observers);
    let _serving = waiters.serve();
    while let Some(tickets) = observers.blocked.take_ready() {
        let mut unserved = Vec::new();
        for (ticket, kind) in tickets {
            // The next command of this kind would find nothing, either.
            if unserved.contains(&kind) {
                continue;
            }
            let Some(waiter) = waiters.start(ticket) else { continue };
            match run_again(shared, batcher, &waiter) {
                None => {
                    waiters.pause(observers, ticket);
                    if kind.consumes() {
                        unserved.push(kind);
                    }
                }
                Some(reply) => {
                    if waiters.finish(observers, ticket) {
                        let (table, client) = (waiter.table, waiter.client.clone());
                        batcher.deliver_after_sync(Delivery { table, client, reply });
                    }
                }
            }
        }
    }
}

/// Runs a parked command. Returns its reply, or `None` if it has found nothing.
pub(super) fn run_again(
    shared: &Shared,
    batcher: &mut WriteBatcher,
    waiter: &Waiter,
) -> Option<Vec<u8>> {
    let (client, table, tracks_reads) = (waiter.client.clone(), waiter.table, waiter.tracks_reads);
    let mut session = Session::retry(shared, client, table, tracks_reads);
    let mut replies = Replies::new(shared.options.max_output_bytes);
    replies.version = waiter.version;
    let handlers = &TABLE.handlers;
    let mut context = Context::new(shared, &mut session, &mut replies, batcher, &mut [], handlers);
    let args = waiter.command.args();
    let has_tracking = shared.observers.has_tracking();
    if has_tracking {
        context.record_tracked_reads(&TABLE.index[waiter.command.command], args);
        set_current_client(waiter.client.id);
    }
    // The user may have changed since the command was parked.
    let (outcome, ended) = match authorize(shared, context.session, waiter.command.command, args) {
        Ok(()) => (handlers[waiter.command.command](&mut context, args), CallOutcome::Failed),
        Err(failure) => (Err(failure), CallOutcome::Rejected),
    };
    if has_tracking {
        set_current_client(0);
    }
    match outcome {
        Ok(()) => events::derive(batcher, &TABLE.index[waiter.command.command], args),
        Err(_) => batcher.key_writes.clear(),
    }
    events::publish(shared, batcher);
    observe::show_script_calls(shared, &mut session);
    if session.parked.is_some() {
        return None;
    }
    if let Err(failure) = outcome {
        replies.rewind(0);
        replies.error(&failure.text());
        shared.metrics.record_error(&failure.text());
        batcher.samples.add_error(waiter.command.command, ended);
    }
    Some(replies.unsent().to_vec())
}
