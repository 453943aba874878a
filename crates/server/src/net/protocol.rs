//! Protocol of a connection: RESP or memcached.
//!
//! A connection owns buffers and does not interpret them. Its protocol parses the command at the
//! start of the input, runs it and writes the reply.
//!
//! Invariant: a step leaves complete replies, or complete values of a retrieval whose response
//! exceeds the output limit. Input that it does not consume is passed again, from the same first
//! byte.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::acl::access::Access;
use crate::clients::{Client, Registration};
use crate::command::{
    Member, Session, answer_batched_sets, complete_parked, end_shard_subscriptions, execute,
    expire_parked, join_group, paused_until, resume,
};
use crate::mailbox::Completion;
use crate::memcached::MemcachedSession;
use crate::memcached::session::Progress;
use crate::replication::group_set::GroupSet;
use crate::resp::{Limits, ParseStatus, Parser, Replies};
use crate::shared::Shared;
use crate::store::write_batcher::WriteBatcher;

/// Protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp,
    Memcached,
}

/// The protocol of a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint {
    pub(crate) protocol: Protocol,
    pub(crate) is_tls: bool,
}

impl Protocol {
    /// Response to a client above the connection limit.
    pub(crate) fn rejection(self) -> &'static [u8] {
        match self {
            Protocol::Resp => b"-ERR max number of clients reached\r\n",
            Protocol::Memcached => b"ERROR Too many open connections\r\n",
        }
    }
}

/// What became of the command at the start of the input.
pub(crate) enum Step {
    /// It continues beyond the input, or has to wait.
    Incomplete,
    /// It has run, and this number of bytes is consumed.
    Consumed(usize),
    /// It will run in a group, with others that follow it. Nothing is consumed.
    Joined,
}

/// Protocol state of a connection.
pub(crate) enum ProtocolState {
    Resp { session: Box<Session>, parser: Parser, registration: Registration },
    Memcached { session: MemcachedSession, registration: Registration },
}

impl ProtocolState {
    pub(crate) fn new(protocol: Protocol, shared: &Shared, registration: Registration) -> Self {
        match protocol {
            Protocol::Resp => {
                let client = registration.client.clone();
                let session = Box::new(Session::new(client, Access::new(&shared.acl)));
                ProtocolState::Resp { session, parser: Parser::default(), registration }
            }
            Protocol::Memcached => {
                registration.client.table.store(shared.memcached.table, Relaxed);
                registration.client.set_user(&shared.acl.default_user());
                ProtocolState::Memcached { session: MemcachedSession::new(shared), registration }
            }
        }
    }

    pub(crate) fn is_resp(&self) -> bool {
        matches!(self, ProtocolState::Resp { .. })
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        let (ProtocolState::Resp { registration, .. }
        | ProtocolState::Memcached { registration, .. }) = self;
        &registration.client
    }

    /// Runs the command at the start of `input`, or lets `connection`, by its number, join a group
    /// with it.
    pub(crate) fn step(
        &mut self,
        shared: &Shared,
        replies: &mut Replies,
        batcher: &mut WriteBatcher,
        (connection, input): (usize, &[u8]),
    ) -> Result<Step, String> {
        let (session, parser) = match self {
            ProtocolState::Memcached { session, registration } => {
                let progress = session.step(shared, replies, batcher, input);
                if let Some(user) = session.take_login() {
                    registration.client.set_user(&user);
                }
                return Ok(match progress {
                    Progress::Incomplete => Step::Incomplete,
                    Progress::Consumed(count) => Step::Consumed(count),
                });
            }
            ProtocolState::Resp { session, parser, .. } => (session, parser),
        };
        let limits = Limits {
            max_request_bytes: shared.options.max_request_bytes,
            max_arguments: 1 << 20,
            authenticated: session.access.is_authenticated(),
        };
        match parser.parse(input, &limits) {
            Ok(ParseStatus::Incomplete) => Ok(Step::Incomplete),
            Ok(ParseStatus::Request { consumed }) => {
                let args = parser.args(input);
                if !args.is_empty() {
                    session.paused_until = paused_until(shared, session, args, batcher.clock);
                    if session.paused_until.is_some() {
                        session.client().set_paused(true);
                        // It is parsed again when the pause ends.
                        return Ok(Step::Incomplete);
                    }
                    let request = (connection, input, consumed, args);
                    if join_group(shared, session, replies, batcher, request, &limits) {
                        return Ok(Step::Joined);
                    }
                    execute(shared, session, replies, batcher, args);
                }
                Ok(Step::Consumed(consumed))
            }
            Err(error) => {
                answer_batched_sets(shared, session, replies, batcher);
                Err(format!("ERR {error}"))
            }
        }
    }

    /// The connection as a member of a group, with its replies and its input.
    pub(crate) fn member<'a>(
        &'a mut self,
        replies: &'a mut Replies,
        input: &'a [u8],
    ) -> Option<Member<'a>> {
        match self {
            ProtocolState::Resp { session, .. } => Some(Member { session, replies, input }),
            ProtocolState::Memcached { .. } => None,
        }
    }

    /// Writes the replies of SETs batched in this iteration.
    pub(crate) fn answer_batched_sets(
        &mut self,
        shared: &Shared,
        replies: &mut Replies,
        batcher: &mut WriteBatcher,
    ) {
        if let ProtocolState::Resp { session, .. } = self {
            answer_batched_sets(shared, session, replies, batcher);
        }
    }

    /// Writes a server error.
    pub(crate) fn error(&self, replies: &mut Replies, text: &str) {
        match self {
            ProtocolState::Resp { .. } => replies.error(text),
            ProtocolState::Memcached { .. } => {
                let text = text.strip_prefix("ERR ").unwrap_or(text);
                for part in ["SERVER_ERROR ", text, "\r\n"] {
                    replies.raw(part.as_bytes());
                }
            }
        }
    }

    /// Whether a sliced or parked command is unfinished; it must complete before the next one runs.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            ProtocolState::Resp { session, .. } => {
                session.sliced.is_some() || session.parked.is_some()
            }
            ProtocolState::Memcached { .. } => false,
        }
    }

    /// Whether the last command is parked: its reply comes later.
    pub(crate) fn is_parked(&self) -> bool {
        matches!(self, ProtocolState::Resp { session, .. } if session.parked.is_some())
    }

    /// Whether the next command waits for the end of CLIENT PAUSE.
    pub(crate) fn is_paused(&self) -> bool {
        matches!(self, ProtocolState::Resp { session, .. } if session.paused_until.is_some())
    }

    /// Lets the next command look again whether it must wait.
    pub(crate) fn end_pause(&mut self) {
        if let ProtocolState::Resp { session, .. } = self {
            session.paused_until = None;
            session.client().set_paused(false);
        }
    }

    /// When the time of the parked command or of the pause is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            ProtocolState::Resp { session, .. } => match &session.parked {
                Some(parked) => parked.deadline,
                None => session.paused_until,
            },
            ProtocolState::Memcached { .. } => None,
        }
    }

    /// Writes the reply to the parked command, which has ended.
    pub(crate) fn complete(
        &mut self,
        shared: &Shared,
        replies: &mut Replies,
        completion: Completion,
    ) {
        if let ProtocolState::Resp { session, .. } = self {
            complete_parked(shared, session, replies, completion);
        }
    }

    /// Ends the parked command if its time is over.
    pub(crate) fn expire(&mut self, shared: &Shared, replies: &mut Replies, now: Instant) {
        if let ProtocolState::Resp { session, .. } = self {
            expire_parked(shared, session, replies, now);
        }
    }

    /// Runs the next slice of the unfinished command.
    pub(crate) fn resume(
        &mut self,
        shared: &Shared,
        replies: &mut Replies,
        batcher: &mut WriteBatcher,
    ) {
        if let ProtocolState::Resp { session, .. } = self {
            resume(shared, session, replies, batcher);
        }
    }

    /// Whether no further command is to be run.
    pub(crate) fn is_closing(&self) -> bool {
        match self {
            ProtocolState::Resp { session, .. } => session.is_closing,
            ProtocolState::Memcached { session, .. } => session.is_closing,
        }
    }

    /// Whether there is no incomplete request.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            ProtocolState::Resp { parser, .. } => parser.is_idle(),
            ProtocolState::Memcached { session, .. } => !session.has_partial_request,
        }
    }

    /// Ends the subscriptions to channels of shards that this node does not serve any more.
    pub(crate) fn end_shard_subscriptions(
        &mut self,
        shared: &Shared,
        is_lost: impl Fn(&[u8]) -> bool,
    ) {
        if let ProtocolState::Resp { session, .. } = self {
            end_shard_subscriptions(shared, session, is_lost);
        }
    }

    /// Takes the groups in which replies of this iteration depend on what may not be committed.
    pub(crate) fn take_needs_commit(&mut self) -> GroupSet {
        match self {
            ProtocolState::Resp { session, .. } => std::mem::take(&mut session.needs_commit),
            ProtocolState::Memcached { .. } => 0,
        }
    }

    /// Releases memory that the last requests needed.
    pub(crate) fn shrink(&mut self) {
        if let ProtocolState::Resp { parser, .. } = self {
            parser.shrink();
        }
    }

    /// Releases what outlives the connection.
    pub(crate) fn close(&mut self, shared: &Shared) {
        if let ProtocolState::Resp { session, .. } = self {
            session.close(shared);
        }
    }
}
