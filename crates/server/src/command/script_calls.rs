//! Commands that a script runs.
//!
//! They run against the overlays of the script's context, as those of a transaction do. A script
//! that has declared its keys holds only their locks; if it uses another key, or a command that
//! sees all keys, it is aborted and runs again with all locks. Nobody notices: its writes are in
//! the overlays, its messages wait for the end.

use std::collections::HashSet;

use super::authorize::denial;
use super::context::Context;
use super::definition::Definition;
use super::events;
use super::failure;
use super::{sort, stream_reads};
use crate::acl::log::CallContext;
use crate::pubsub::Kind;
use crate::resp::{Args, RespVersion};
use crate::script::host::{CallError, Commands};
use crate::script::limits::Abort;
use crate::script::long_runs::LongRuns;
use crate::shared::Shared;

/// Commands that see keys which they do not name.
const WHOLE_TABLE: [&str; 6] = ["dbsize", "flushall", "flushdb", "keys", "randomkey", "scan"];

/// The server as a running script sees it.
pub(super) struct ScriptCalls<'c, 'k> {
    /// With overlays, and with replies of its own.
    pub(super) context: Context<'c>,
    /// Table and keys whose locks are held; `None`: all.
    pub(super) declared: Option<(usize, HashSet<&'k [u8]>)>,
    pub(super) is_read_only: bool,
    /// Messages to be published at the end.
    pub(super) messages: Vec<Message>,
    /// The run is the long one.
    pub(super) long_runs: Option<&'c LongRuns>,
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
            Kind::Channel | Kind::Pattern => shared.pubsub.publish(&self.channel, &self.text),
        };
    }
}

impl ScriptCalls<'_, '_> {
    /// Whether the locks of all keys of a command are held.
    fn may_access(&self, command: &Definition, args: Args<'_>) -> bool {
        let Some((table, declared)) = &self.declared else { return true };
        let sorts = ["sort", "sort_ro"].contains(&command.name);
        if WHOLE_TABLE.contains(&command.name) || sorts && sort::reads_unnamed_keys(args) {
            return false;
        }
        let is_declared = |key| *table == self.context.session.table && declared.contains(key);
        command.keys_in(args).all(is_declared)
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
        if !command.is_allowed_in_scripts() {
            return failed("ERR This Redis command is not allowed from script");
        }
        if ["xread", "xreadgroup"].contains(&command.name) && stream_reads::has_block(args) {
            let name = String::from_utf8_lossy(&args[0]);
            let text = "command is not allowed with BLOCK option from scripts";
            return failed(&format!("ERR {name} {text}"));
        }
        if self.is_read_only && command.may_replicate() {
            return failed("ERR Write commands are not allowed from read-only scripts.");
        }
        if let Some((_, text)) =
            denial(shared, self.context.session, number, args, CallContext::Script)
        {
            return failed(&format!("NOPERM ACL failure in script: {text}"));
        }
        if !self.may_access(command, args) {
            return Err(CallError::Abort(Abort::NeedsStore));
        }
        self.context.replies.rewind(0);
        self.context.replies.version = version;
        match command.name {
            "publish" => self.publish(Kind::Channel, args),
            "spublish" => self.publish(Kind::ShardChannel, args),
            _ => {
                self.context.record_tracked_reads(command, args);
                if let Err(failure) = self.context.handlers[number](&mut self.context, args) {
                    self.context.batcher.key_writes.clear();
                    return Err(CallError::Failure(failure.text().into_owned()));
                }
                events::derive(self.context.batcher, command, args);
            }
        }
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
