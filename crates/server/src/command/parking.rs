//! Parks the running command, and ends parked commands of the own client.

use std::time::{Duration, Instant};

use super::context::Context;
use super::failure::{Failure, reply_error};
use super::queued::QueuedCommand;
use super::session::{ParkedCommand, ReplyMode, Session, TimeoutReply};
use super::waiters::{CancelOutcome, Waiter};
use crate::clients::Ticket;
use crate::mailbox::Completion;
use crate::resp::{Args, Replies};
use crate::shared::Shared;
use crate::store::blocked_keys::WaitKind;

/// Delay until a parked command whose time is over is checked again, if a writer is running it at
/// the moment.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The keys and the time for which a command waits.
pub(super) struct Wait<'a> {
    pub(super) kind: WaitKind,
    /// Keys of the selected table.
    pub(super) keys: Vec<&'a [u8]>,
    /// `None`: without end.
    pub(super) deadline: Option<Instant>,
    pub(super) on_timeout: TimeoutReply,
}

impl Context<'_> {
    /// Whether the running command may take what a key has. If not, commands that came earlier
    /// wait for the key, and the command must wait behind them. The caller holds the key's lock.
    pub(super) fn may_take(&self, key: &[u8], kind: WaitKind) -> bool {
        self.session.is_retry
            || self.is_in_transaction()
            || !self.shared.observers.blocked.has_waiters(self.session.table, key, kind)
    }

    /// Parks the running command, which has found nothing: it is run again when one of the keys is
    /// written. The caller holds the locks of the keys, and returns without a reply. In a
    /// transaction the command ends at once, as if its time were over.
    pub(super) fn park(&mut self, args: Args<'_>, mut wait: Wait<'_>) {
        if self.is_in_transaction() {
            timeout_reply(self.replies, wait.on_timeout);
            return;
        }
        let (deadline, on_timeout) = (wait.deadline, wait.on_timeout);
        let (mode, is_job) = (ReplyMode::On, wait.kind == WaitKind::Job);
        let mut parked = ParkedCommand { ticket: 0, deadline, on_timeout, mode, is_job };
        if !self.session.is_retry {
            wait.keys.sort_unstable();
            wait.keys.dedup();
            let number = self.shared.commands.find(&args[0]).unwrap_or_default();
            let waiter = Waiter {
                client: self.session.client().clone(),
                table: self.session.table,
                keys: wait.keys.into_iter().map(<[u8]>::to_vec).collect(),
                command: QueuedCommand::new(number, args),
                version: self.replies.version,
                tracks_reads: self.session.tracks_reads(),
                is_job,
            };
            parked.ticket = self.shared.waiters.park(&self.shared.observers, waiter, wait.kind);
            self.session.client().set_parked(Some(parked.ticket));
        }
        if wait.kind == WaitKind::Group {
            self.follow_expiries(args);
        }
        self.session.parked = Some(Box::new(parked));
    }

    /// Parks the running command until another thread has done its work, for which it gets the
    /// ticket. `None` in a transaction.
    pub(super) fn park_until_done(&mut self, args: Args<'_>) -> Option<Ticket> {
        let on_timeout = TimeoutReply::NullArray;
        let wait = Wait { kind: WaitKind::Job, keys: Vec::new(), deadline: None, on_timeout };
        self.park(args, wait);
        self.session.parked.as_ref().map(|parked| parked.ticket)
    }
}

impl Context<'_> {
    /// Follows the expiries of the keys of a command that ends with its keys. Each write of a key
    /// runs the command again, so this is repeated when an expiry changes.
    fn follow_expiries(&self, args: Args<'_>) {
        let Some(number) = self.shared.commands.find(&args[0]) else { return };
        let table = self.session.table;
        for key in self.shared.commands[number].keys_in(args) {
            // If the key cannot be read, the command still learns of its removal.
            let stored = self.get_any(key).ok().flatten();
            let expires_at = stored.and_then(|stored| stored.entry.expires_at);
            self.shared.observers.blocked.set_expiry(table, key, expires_at);
        }
    }
}

/// Writes the reply to a command whose time is over.
pub(super) fn timeout_reply(replies: &mut Replies, reply: TimeoutReply) {
    match reply {
        TimeoutReply::NullArray => replies.null_array(),
        TimeoutReply::Int(number) => replies.int(number),
        TimeoutReply::Pair(first, second) => {
            replies.array(2);
            replies.int(first);
            replies.int(second);
        }
    }
}

/// Writes the reply to the parked command, which has ended. Returns its reply mode.
pub(super) fn complete(
    session: &mut Session,
    replies: &mut Replies,
    completion: Completion,
) -> Option<(ReplyMode, Result<(), Failure>)> {
    let parked = session.parked.take()?;
    session.client().set_parked(None);
    let outcome = match completion {
        Completion::Reply(bytes) => {
            replies.raw(&bytes);
            Ok(())
        }
        Completion::TimedOut => {
            timeout_reply(replies, parked.on_timeout);
            Ok(())
        }
        Completion::Unblocked => Err(reply_error("UNBLOCKED client unblocked via CLIENT UNBLOCK")),
    };
    Some((parked.mode, outcome))
}

/// Whether the time of the parked command is over, and it has been removed.
pub(super) fn expire(shared: &Shared, session: &mut Session, now: Instant) -> bool {
    let Some(parked) = &mut session.parked else { return false };
    if parked.deadline.is_none_or(|deadline| deadline > now) {
        return false;
    }
    match shared.waiters.cancel(&shared.observers, parked.ticket) {
        CancelOutcome::Removed => true,
        CancelOutcome::Running => {
            parked.deadline = Some(now + RETRY_INTERVAL);
            false
        }
        // The reply comes with the mail.
        CancelOutcome::Ended => {
            parked.deadline = None;
            false
        }
    }
}

/// Ends all parked commands that wait for keys of a replicated group, since this node does not lead
/// it any more.
pub(crate) fn end_parked(shared: &Shared, group: usize) {
    const ENDED: &[u8] =
        b"-UNBLOCKED force unblock from blocking operation, instance state changed \
        (master -> replica?)\r\n";
    for waiter in shared.waiters.remove_all(&shared.observers, group) {
        waiter.client.complete(Completion::Reply(ENDED.to_vec()));
    }
}

/// Parses a timeout in milliseconds; 0: without end.
pub(super) fn deadline_ms(text: &[u8]) -> Result<Option<Instant>, Failure> {
    let timeout_ms = crate::resp::number::parse_i64(text)
        .ok_or(reply_error("ERR timeout is not an integer or out of range"))?;
    match u64::try_from(timeout_ms) {
        Err(_) => Err(reply_error("ERR timeout is negative")),
        Ok(0) => Ok(None),
        // A time beyond what the clock can express is without end.
        Ok(timeout_ms) => Ok(Instant::now().checked_add(Duration::from_millis(timeout_ms))),
    }
}
