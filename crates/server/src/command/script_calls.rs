//! Commands that a script runs.
//!
//! They run against the overlays of the script's context, as those of a transaction do. A script
//! that has declared its keys holds only their locks; if it uses another key, or a command that
//! sees all keys, it is aborted and runs again with all locks. Nobody notices: its writes are in
//! the overlays, its messages wait for the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::authorize::denial;
use super::context::Context;
use super::definition::{Definition, WRITE};
use super::events;
use super::failure;
use super::one_slot::{not_in_one_slot, one_slot};
use super::redirection::refuse_missing;
use super::shown_call::ShownCall;
use super::sort;
use crate::acl::log::CallContext;
use crate::pubsub::Kind;
use crate::replication::groups::Groups;
use crate::resp::{Args, RespVersion};
use crate::script::calls::{CallError, Commands};
use crate::script::limits::Abort;
use crate::script::long_runs::LongRuns;
use crate::shared::Shared;
use crate::store::observers::MONITORS;

/// Commands that see keys which they do not name.
const WHOLE_TABLE: [&str; 6] = ["dbsize", "flushall", "flushdb", "keys", "randomkey", "scan"];

/// Bytes of a script's commands from which on further ones are not shown to monitors.
const MAX_SHOWN_BYTES: usize = 1 << 20;

/// The server as a running script sees it.
pub(super) struct ScriptCalls<'c, 'k> {
    /// With overlays, and with replies of its own.
    pub(super) context: Context<'c>,
    /// Table and sorted keys whose locks are held; `None`: all.
    declared: Option<(usize, Vec<&'k [u8]>)>,
    is_read_only: bool,
    /// With several replicated groups: the slot of all keys that it may use, if it may use any.
    slot: Option<Option<u16>>,
    /// Messages to be published at the end.
    pub(super) messages: Vec<Message>,
    /// Calls of commands by number, with the time that they took.
    calls: BTreeMap<usize, (u64, Duration)>,
    /// Commands for the monitors, with their tables.
    shown: Vec<ShownCall>,
    /// Bytes of them.
    shown_bytes: usize,
    /// The run is the long one.
    long_runs: Option<&'c LongRuns>,
    /// A command was run that may have written.
    pub(super) may_have_written: bool,
}

/// A message of PUBLISH or SPUBLISH.
pub(super) struct Message {
    kind: Kind,
    channel: Vec<u8>,
    text: Vec<u8>,
}

impl Message {
    pub(super) fn publish(&self, shared: &Shared) {
        match self.kind {
            Kind::ShardChannel => shared.pubsub.publish_to_shard(&self.channel, &self.text),
            Kind::Channel | Kind::Pattern => shared.publish(&self.channel, &self.text),
        };
    }
}

impl<'c, 'k> ScriptCalls<'c, 'k> {
    /// No calls yet. `declared` are the keys whose locks are held, sorted; `None`: all. `keys` are
    /// those that the script names.
    pub(super) fn new<'a>(
        context: Context<'c>,
        declared: Option<(usize, Vec<&'k [u8]>)>,
        is_read_only: bool,
        keys: impl Iterator<Item = &'a [u8]>,
        long_runs: Option<&'c LongRuns>,
    ) -> Self {
        let are_several = context.shared.replication.as_ref().is_some_and(Groups::are_several);
        let slot = are_several.then(|| one_slot(keys).ok().flatten());
        ScriptCalls {
            context,
            declared,
            is_read_only,
            slot,
            messages: Vec::new(),
            calls: BTreeMap::new(),
            shown: Vec::new(),
            shown_bytes: 0,
            long_runs,
            may_have_written: false,
        }
    }

    /// Counts the calls of a script that was not aborted, and shows them to the monitors.
    pub(super) fn report(&mut self) {
        for (counter, (count, time)) in std::mem::take(&mut self.calls) {
            let each = if count == 1 { time } else { time.div_f64(count as f64) };
            self.context.batcher.samples.add(counter, count, each);
        }
        self.context.session.script_calls.append(&mut self.shown);
    }

    /// Whether the locks of all keys of a command are held.
    fn may_access(&self, number: usize, args: Args<'_>) -> bool {
        let Some((table, declared)) = &self.declared else { return true };
        let is_held = *table == self.context.session.table;
        let is_declared = |key| is_held && declared.binary_search(&key).is_ok();
        let commands = self.context.shared.commands;
        if let Some(key) = commands.only_key(number, args) {
            return is_declared(key);
        }
        let command = &commands[number];
        let sorts = ["sort", "sort_ro"].contains(&command.name);
        if WHOLE_TABLE.contains(&command.name) || sorts && sort::reads_unnamed_keys(args) {
            return false;
        }
        command.keys_in(args).all(is_declared)
    }

    /// Checks that all keys of a command have the slot of the script's own keys, if they have to.
    fn check_slot(&self, command: &Definition, args: Args<'_>) -> Result<(), String> {
        let Some(slot) = self.slot else { return Ok(()) };
        if WHOLE_TABLE.contains(&command.name) {
            return Err(not_in_one_slot(command).text().into_owned());
        }
        match one_slot(command.slotted_in(args)) {
            Ok(found) if found.is_none() || found == slot => Ok(()),
            _ => {
                Err("ERR Script attempted to access keys that do not hash to the same slot".into())
            }
        }
    }

    /// Keeps a command for the monitors, which see it after the script.
    fn show(&mut self, args: Args<'_>) {
        if !self.context.shared.observers.has_any(MONITORS) || self.shown_bytes > MAX_SHOWN_BYTES {
            return;
        }
        let args: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
        self.shown_bytes += args.iter().map(|arg| arg.len() + size_of::<Vec<u8>>()).sum::<usize>();
        self.shown.push(ShownCall { table: self.context.session.table, args });
    }

    /// Keeps a message for the end, and replies how many would receive it now.
    fn publish(&mut self, kind: Kind, args: Args<'_>) {
        let (channel, text) = (args[1].to_vec(), args[2].to_vec());
        self.context.replies.count(self.context.shared.pubsub.receivers(kind, &channel));
        self.messages.push(Message { kind, channel, text });
    }
}

impl Commands for ScriptCalls<'_, '_> {
    fn call(&mut self, args: Args<'_>, version: RespVersion) -> Result<(), CallError> {
        let failed = |text: &str| Err(CallError::Failure(text.to_owned()));
        let shared = self.context.shared;
        let Some(number) = shared.commands.find(&args[0]) else {
            return failed("ERR Unknown Redis command called from script");
        };
        let command = &shared.commands[number];
        if !command.takes(args.len()) {
            return failed("ERR Wrong number of args calling Redis command from script");
        }
        if !shared.commands.may_be_scripted(number, args) {
            return failed("ERR This Redis command is not allowed from script");
        }
        if self.is_read_only && command.may_replicate() {
            return failed("ERR Write commands are not allowed from read-only scripts.");
        }
        if let Some((_, text)) =
            denial(shared, self.context.session, number, args, CallContext::Script)
        {
            return failed(&format!("NOPERM ACL failure in script: {text}"));
        }
        if shared.replication.is_some()
            && let Err(failure) = refuse_missing(command)
        {
            return failed(&failure.text());
        }
        if let Err(text) = self.check_slot(command, args) {
            return failed(&text);
        }
        if !self.may_access(number, args) {
            return Err(CallError::Abort(Abort::NeedsStore));
        }
        self.context.replies.rewind(0);
        self.context.replies.version = version;
        self.show(args);
        let began = Instant::now();
        match command.name {
            "publish" => self.publish(Kind::Channel, args),
            "spublish" => self.publish(Kind::ShardChannel, args),
            _ => {
                self.may_have_written |= command.has(WRITE);
                self.context.record_tracked_reads(command, args);
                if let Err(failure) = self.context.handlers[number](&mut self.context, args) {
                    self.context.batcher.key_writes.clear();
                    return Err(CallError::Failure(failure.text().into_owned()));
                }
                events::derive(self.context.batcher, command, args);
            }
        }
        let counter = shared.commands.counter(number, args);
        let (count, time) = self.calls.entry(counter).or_default();
        (*count, *time) = (*count + 1, *time + began.elapsed());
        if let Some(runs) = self.long_runs
            && self.context.overlays.iter().any(|overlay| !overlay.is_empty())
        {
            runs.set_written();
        }
        if self.context.replies.has_overflowed() {
            let failure = failure::reply_too_large(shared.options.max_output_bytes);
            return Err(CallError::Failure(failure.text().into_owned()));
        }
        Ok(())
    }

    fn may_call(&mut self, args: Args<'_>) -> Option<bool> {
        let shared = self.context.shared;
        let number = shared.commands.find(&args[0])?;
        let user = self.context.session.access.user();
        Some(user.check(&shared.acl.names, number, args).is_ok())
    }

    fn reply(&self) -> &[u8] {
        self.context.replies.unsent()
    }
}
