//! EVAL, EVALSHA and their read-only forms, and SCRIPT.
//!
//! A script runs like EXEC: it holds the locks of its keys, its writes go to overlays, and at the
//! end they are applied as one batch. Three ways to run, each discarding what the one before did:
//!
//! | way | locks | until |
//! | --- | --- | --- |
//! | on the worker | of the declared keys | it uses another key, or 5 ms have passed |
//! | on the worker | of all keys of all tables | 5 ms have passed |
//! | on the script thread, alone | all | its end, SCRIPT KILL, or the stop of the server |
//!
//! A script remembers which way its last run needed. Inside EXEC it runs under the locks of EXEC,
//! which are then those of all keys, for up to `busy-reply-threshold`. If it was aborted after a
//! write, the transaction is discarded.
//!
//! A script that fails keeps what it has written before, as in Redis: one batch of its effects
//! until the error. The clock stands still: nothing expires during a script.
//!
//! Source: the documentation of Redis's scripts; error texts of Redis 7.0.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use siltstone_engine::clock;

use super::connection::integer;
use super::context::Context;
use super::definition::{NO_KEYS, REDIS_VERSION, SCRIPT};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, reply_error, unknown_subcommand, wrong_subcommand_arity};
use super::script_calls::ScriptCalls;
use super::{help, transactions};
use crate::resp::{Args, Replies};
use crate::script::cache::Script;
use crate::script::host::{RunOutcome, ScriptRun, with_host};
use crate::script::limits::{Abort, TimeLimit};
use crate::script::long_runs::Kill;
use crate::store::Overlay;
use crate::store::locks::Guard;

/// Error for a script that may write, called by a read-only command.
pub(super) const MAY_WRITE: Failure =
    reply_error("ERR Can not execute a script with write flag using *_ro command.");

/// Maximum time of a script on a worker, whose other clients wait for it.
const WORKER_TIME: Duration = Duration::from_millis(5);

/// Maximum time of a script in EXEC if `busy-reply-threshold` is 0 or longer.
const MAX_TIME_IN_TRANSACTION: Duration = Duration::from_secs(60);

const TOO_LONG_IN_EXEC: &str = "the script ran for longer than busy-reply-threshold inside MULTI; \
                                run it outside, or raise busy-reply-threshold";

const TOO_LONG: Failure = reply_error(
    "ERR the script ran for longer than busy-reply-threshold, and a replicated table has no longer \
     ones; it was not applied",
);

const NO_SCRIPT: Failure = reply_error("NOSCRIPT No matching script. Please use EVAL.");

pub(super) fn commands() -> Vec<Command> {
    let eval = |name, handler, summary| {
        entry::command("scripting", name, -3, SCRIPT, NO_KEYS, handler, summary)
            .with_counted_keys(2)
    };
    vec![
        eval("eval", eval_text, "Runs a script."),
        eval("evalsha", eval_sha, "Runs a known script."),
        eval("eval_ro", eval_text_ro, "Runs a script that does not write."),
        eval("evalsha_ro", eval_sha_ro, "Runs a known script that does not write."),
        entry::command(
            "scripting",
            "script",
            -2,
            0,
            NO_KEYS,
            script,
            "Loads, lists, removes and kills scripts.",
        ),
    ]
}

fn eval_text(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    eval(context, args, false, by_text)
}

fn eval_text_ro(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    eval(context, args, true, by_text)
}

fn eval_sha(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    eval(context, args, false, by_sha)
}

fn eval_sha_ro(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    eval(context, args, true, by_sha)
}

/// A script by its text, which becomes known if it can be compiled.
fn by_text(context: &Context<'_>, text: &[u8]) -> Result<Arc<Script>, Failure> {
    add(context, text, false)
}

fn by_sha(context: &Context<'_>, sha: &[u8]) -> Result<Arc<Script>, Failure> {
    context.shared.scripts.find(sha).ok_or(NO_SCRIPT)
}

fn add(context: &Context<'_>, text: &[u8], is_loaded: bool) -> Result<Arc<Script>, Failure> {
    if let Some(known) = context.shared.scripts.find_text(text) {
        if is_loaded {
            context.shared.scripts.add(known.clone(), true);
        }
        return Ok(known);
    }
    let script = Arc::new(Script::parse(text)?);
    let generation = context.shared.scripts.generation();
    with_host(REDIS_VERSION, |host| host.compile(&script, generation).map(drop))??;
    context.shared.scripts.add(script.clone(), is_loaded);
    Ok(script)
}

/// A script that is to be run, and its arguments.
pub(super) struct Invocation<'a> {
    pub(super) script: Arc<Script>,
    pub(super) keys: Args<'a>,
    pub(super) args: Args<'a>,
    pub(super) is_read_only: bool,
}

impl Invocation<'_> {
    /// The name of a function.
    fn name(&self) -> Option<&str> {
        self.script.library.as_ref().map(|_| self.script.sha.as_str())
    }
}

fn eval(
    context: &mut Context<'_>,
    args: Args<'_>,
    is_read_only: bool,
    find: impl FnOnce(&Context<'_>, &[u8]) -> Result<Arc<Script>, Failure>,
) -> Outcome {
    let (keys, rest) = split_keys(args, integer(&args[2])?)?;
    let script = find(context, &args[1])?;
    if is_read_only && script.has_shebang && !script.is_read_only {
        return Err(MAY_WRITE);
    }
    let is_read_only = is_read_only || script.is_read_only;
    invoke(context, args, &Invocation { script, keys, args: rest, is_read_only })
}

/// The keys, whose number is given, and the arguments behind them.
pub(super) fn split_keys(args: Args<'_>, count: i64) -> Result<(Args<'_>, Args<'_>), Failure> {
    if count > args.len() as i64 - 3 {
        return Err(reply_error("ERR Number of keys can't be greater than number of args"));
    }
    let negative = reply_error("ERR Number of keys can't be negative");
    let count = usize::try_from(count).map_err(|_| negative)?;
    Ok((args.from(3).up_to(count), args.from(3 + count)))
}

/// Runs a script or function in the way that it needs.
pub(super) fn invoke(
    context: &mut Context<'_>,
    args: Args<'_>,
    invocation: &Invocation<'_>,
) -> Outcome {
    if context.is_in_transaction() {
        return run_in_transaction(context, invocation);
    }
    if context.session.is_retry {
        return run_alone(context, args, invocation);
    }
    run_on_worker(context, args, invocation)
}

/// Inside EXEC, which has all locks and applies the writes.
fn run_in_transaction(context: &mut Context<'_>, invocation: &Invocation<'_>) -> Outcome {
    let Context { shared, session, replies, batcher, overlays, handlers, .. } = context;
    let mut own_replies = Replies::new(shared.options.max_output_bytes);
    let inner = Context::new(shared, session, &mut own_replies, batcher, overlays, handlers);
    let limit = TimeLimit::For(shared.settings.busy_threshold().min(MAX_TIME_IN_TRANSACTION));
    let (ended, calls) = run(inner, invocation, None, limit, replies)?;
    let (messages, may_have_written) = (calls.messages, calls.may_have_written);
    match ended {
        // Half of its writes may be in the overlays of the transaction.
        RunOutcome::Aborted(..) if may_have_written => Err(Failure::Discard(
            format!("EXECABORT Transaction discarded: {TOO_LONG_IN_EXEC}").into(),
        )),
        RunOutcome::Aborted(..) => Err(format!("ERR {TOO_LONG_IN_EXEC}").into()),
        ended => {
            messages.iter().for_each(|message| message.publish(shared));
            outcome_of(ended)
        }
    }
}

/// On the worker, under the locks of the declared keys or of all.
fn run_on_worker(
    context: &mut Context<'_>,
    args: Args<'_>,
    invocation: &Invocation<'_>,
) -> Outcome {
    let script = &invocation.script;
    let is_replicated = context.shared.replication.is_some();
    let threshold = context.shared.settings.busy_threshold();
    let time = match is_replicated {
        true => threshold.min(MAX_TIME_IN_TRANSACTION),
        false => threshold.min(WORKER_TIME),
    };
    while !script.is_long.load(Relaxed) {
        let declares_all = !script.needs_store.load(Relaxed);
        let (declared_guard, store_guards) = match declares_all {
            true => (Some(lock_keys(context, invocation.keys)), Vec::new()),
            false => (None, lock_store(context)),
        };
        let table = context.session.table;
        let declared = declares_all.then(|| {
            let mut keys: Vec<_> = invocation.keys.iter().collect();
            keys.sort_unstable();
            (table, keys)
        });
        let outcome = run_and_apply(context, invocation, declared, TimeLimit::For(time))?;
        drop((declared_guard, store_guards));
        match outcome {
            Ok(outcome) => return outcome,
            Err(RunOutcome::Aborted(Abort::NeedsStore, _)) => {
                script.needs_store.store(true, Relaxed)
            }
            // The script thread would not see what is uncommitted as of one moment.
            Err(_) if is_replicated => return Err(TOO_LONG),
            Err(_) => script.is_long.store(true, Relaxed),
        }
    }
    if let Some(ticket) = context.park_until_done(args) {
        context.shared.long_runs.parked.enqueue(ticket);
    }
    Ok(())
}

/// On the script thread, while no worker runs commands.
fn run_alone(context: &mut Context<'_>, args: Args<'_>, invocation: &Invocation<'_>) -> Outcome {
    let shared = context.shared;
    let limit =
        TimeLimit::UntilKilled { runs: shared.long_runs.clone(), stop: shared.stop.clone() };
    // Threads without a gate take locks: UDP, and the expiry of memcached's flush_all.
    let _guards = lock_store(context);
    let began = std::time::Instant::now();
    shared.long_runs.describe(invocation.name(), args);
    let outcome = run_and_apply(context, invocation, None, limit)?;
    invocation.script.is_long.store(began.elapsed() >= WORKER_TIME, Relaxed);
    match outcome {
        Ok(outcome) => outcome,
        Err(RunOutcome::Aborted(Abort::Killed, place)) => {
            let by = if invocation.name().is_some() { "FUNCTION" } else { "SCRIPT" };
            Err(format!("ERR Script killed by user with {by} KILL.{place}").into())
        }
        Err(_) => Err(reply_error("ERR the server stops; the script was not applied")),
    }
}

/// Locks keys of the selected table.
fn lock_keys<'a>(context: &Context<'a>, keys: Args<'_>) -> Guard<'a> {
    match keys.len() {
        1 => context.database().locks.one(&keys[0]),
        _ => context.database().locks.many(keys.iter()),
    }
}

/// Locks all keys of all tables.
fn lock_store<'a>(context: &Context<'a>) -> Vec<Guard<'a>> {
    context.shared.databases.iter().map(|database| database.locks.all()).collect()
}

/// The declared keys of a table, sorted.
type DeclaredKeys<'k> = Option<(usize, Vec<&'k [u8]>)>;

/// Runs a script, and applies its writes unless it was aborted. Returns how it was aborted, then.
fn run_and_apply(
    context: &mut Context<'_>,
    invocation: &Invocation<'_>,
    declared: DeclaredKeys<'_>,
    limit: TimeLimit,
) -> Result<Result<Outcome, RunOutcome>, Failure> {
    let shared = context.shared;
    let (events, mark) = (context.batcher.events.len(), context.replies.mark());
    let lookups = (context.batcher.samples.hits, context.batcher.samples.misses);
    let mut overlays: Vec<_> = shared.databases.iter().map(|_| Overlay::default()).collect();
    let stopped = clock::stop();
    let (ended, messages) = {
        let Context { session, replies, batcher, handlers, .. } = context;
        let mut own_replies = Replies::new(shared.options.max_output_bytes);
        let inner =
            Context::new(shared, session, &mut own_replies, batcher, &mut overlays, handlers);
        let (ended, calls) = run(inner, invocation, declared, limit, replies)?;
        (ended, calls.messages)
    };
    stopped.resume();
    if matches!(ended, RunOutcome::Aborted(..)) {
        context.batcher.events.truncate(events);
        (context.batcher.samples.hits, context.batcher.samples.misses) = lookups;
        return Ok(Err(ended));
    }
    if let Err(failure) = transactions::apply(context, &overlays, "ERR Script not applied") {
        context.batcher.events.truncate(events);
        context.replies.rewind(mark);
        return Err(failure);
    }
    messages.iter().for_each(|message| message.publish(shared));
    Ok(Ok(outcome_of(ended)))
}

/// Runs a script in a context with overlays.
fn run<'c, 'k>(
    context: Context<'c>,
    invocation: &Invocation<'_>,
    declared: DeclaredKeys<'k>,
    limit: TimeLimit,
    replies: &mut Replies,
) -> Result<(RunOutcome, ScriptCalls<'c, 'k>), Failure> {
    let (shared, table) = (context.shared, context.session.table);
    let is_long = matches!(limit, TimeLimit::UntilKilled { .. });
    let long_runs = is_long.then_some(&*shared.long_runs);
    let (is_read_only, keys) = (invocation.is_read_only, invocation.keys.iter());
    let mut calls = ScriptCalls::new(context, declared, is_read_only, keys, long_runs);
    let run = ScriptRun {
        script: &invocation.script,
        generation: shared.scripts.generation(),
        keys: invocation.keys,
        args: invocation.args,
        limit,
        max_memory_bytes: shared.settings.script_memory_bytes.load(Relaxed),
    };
    let (ended, log) = with_host(REDIS_VERSION, |host| {
        let ended = host.run(run, &mut calls, replies);
        (ended, host.take_log())
    })?;
    // As in Redis, SELECT in a script does not change the client's table.
    calls.context.session.select_again(table);
    if !matches!(ended, RunOutcome::Aborted(..)) {
        write_log(&log);
        calls.report();
    }
    Ok((ended, calls))
}

fn outcome_of(ended: RunOutcome) -> Outcome {
    match ended {
        RunOutcome::Failed(text) => Err(text.into()),
        RunOutcome::Replied | RunOutcome::Aborted(..) => Ok(()),
    }
}

/// Writes the lines of `redis.log` to standard error, where the server's log is.
fn write_log(lines: &[String]) {
    use std::io::Write;
    if lines.is_empty() {
        return;
    }
    let mut stderr = std::io::stderr().lock();
    for line in lines {
        // The script has succeeded, whether or not somebody reads its log.
        let _ = writeln!(stderr, "{line}");
    }
}

fn script(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"load", 3) => {
            let script = add(context, &args[2], true)?;
            context.replies.bulk(script.sha.as_bytes());
        }
        (b"exists", 3..) => {
            context.replies.array(args.len() - 2);
            for sha in args.from(2).iter() {
                context.replies.flag(context.shared.scripts.find(sha).is_some());
            }
        }
        (b"flush", 2 | 3) => {
            let is_known = |word: &[u8]| {
                word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async")
            };
            if !args.get(2).is_none_or(is_known) {
                return Err(reply_error("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
            }
            context.shared.scripts.flush();
            context.replies.ok();
        }
        (b"kill", 2) => return kill(context, false),
        (b"debug", 3) => {
            return Err(reply_error(
                "ERR SCRIPT DEBUG is not supported; log values with redis.log",
            ));
        }
        (b"help", 2) => return help::reply(context.replies, "SCRIPT", &HELP),
        (b"load" | b"exists" | b"flush" | b"kill" | b"debug" | b"help", _) => {
            return Err(wrong_subcommand_arity("script", &args[1]));
        }
        _ => return Err(unknown_subcommand("SCRIPT", &args[1])),
    }
    Ok(())
}

/// Requests the end of the long script that runs, or of the function.
pub(super) fn kill(context: &mut Context<'_>, is_function: bool) -> Outcome {
    match context.shared.long_runs.kill(is_function) {
        Kill::Requested => {
            context.replies.ok();
            Ok(())
        }
        Kill::NotRunning => Err(reply_error("NOTBUSY No scripts in execution right now.")),
        Kill::OtherKind => Err(reply_error(context.shared.long_runs.busy_text())),
        Kill::HasWritten => Err(reply_error(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You \
             can either wait the script termination or kill the server in a hard way using the \
             SHUTDOWN NOSAVE command.",
        )),
    }
}

const HELP: [&str; 10] = [
    "EXISTS <sha1> [<sha1> ...]",
    "    Return information about the existence of the scripts in the script cache.",
    "FLUSH [ASYNC|SYNC]",
    "    Flush the Lua scripts cache. Valid modes are:",
    "    * ASYNC: Asynchronously flush the scripts cache.",
    "    * SYNC: Synchronously flush the scripts cache.",
    "KILL",
    "    Kill the currently executing Lua script.",
    "LOAD <script>",
    "    Load a script into the scripts cache without executing it.",
];
