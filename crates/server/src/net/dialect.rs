//! What a client speaks: RESP or memcached's text.
//!
//! A connection owns bytes and does not know what they mean; a dialect takes the command that its
//! input begins with, runs it and writes the reply.
//!
//! Invariant: a step leaves whole replies, or whole values of a retrieval whose answer is longer than
//! what may wait; what it does not use it wants to see again from the same first byte.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::clients::{Client, Registration};
use crate::command::{Session, answer_gathered, execute, resume};
use crate::memcached::Talk;
use crate::memcached::talk::Step;
use crate::resp::{Limits, Parser, Progress, Replies};
use crate::shared::Shared;
use crate::store::turn::Turn;

/// Which dialect a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Resp,
    Memcached,
}

impl Language {
    /// What a client hears for whom there is no room.
    pub(crate) fn refusal(self) -> &'static [u8] {
        match self {
            Language::Resp => b"-ERR max number of clients reached\r\n",
            Language::Memcached => b"ERROR Too many open connections\r\n",
        }
    }
}

/// A client's side of its dialect.
pub(crate) enum Dialect {
    Resp { session: Box<Session>, parser: Parser },
    Memcached { talk: Talk, registration: Registration },
}

impl Dialect {
    pub(crate) fn new(language: Language, shared: &Shared, registration: Registration) -> Self {
        match language {
            Language::Resp => {
                let session = Session::new(registration, shared.options.password.is_none());
                Dialect::Resp { session: Box::new(session), parser: Parser::default() }
            }
            Language::Memcached => {
                registration.client.table.store(shared.memcached.table, Relaxed);
                Dialect::Memcached { talk: Talk::new(shared), registration }
            }
        }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        match self {
            Dialect::Resp { session, .. } => session.client(),
            Dialect::Memcached { registration, .. } => &registration.client,
        }
    }

    /// Runs the command that `input` begins with.
    pub(crate) fn step(
        &mut self,
        shared: &Shared,
        replies: &mut Replies,
        turn: &mut Turn,
        input: &[u8],
    ) -> Result<Step, String> {
        let (session, parser) = match self {
            Dialect::Memcached { talk, .. } => {
                return Ok(talk.step(shared, replies, turn, input));
            }
            Dialect::Resp { session, parser } => (session, parser),
        };
        let limits = Limits {
            max_request_bytes: shared.options.max_request_bytes,
            max_arguments: 1 << 20,
            authenticated: session.is_authenticated,
        };
        match parser.parse(input, &limits) {
            Ok(Progress::Incomplete) => Ok(Step::Incomplete),
            Ok(Progress::Request { consumed }) => {
                let args = parser.args(input);
                if !args.is_empty() {
                    execute(shared, session, replies, turn, args);
                }
                Ok(Step::Used(consumed))
            }
            Err(error) => {
                answer_gathered(shared, session, replies, turn);
                Err(format!("ERR {error}"))
            }
        }
    }

    /// Writes the replies to writes that were gathered in this turn.
    pub(crate) fn answer_gathered(
        &mut self,
        shared: &Shared,
        replies: &mut Replies,
        turn: &mut Turn,
    ) {
        if let Dialect::Resp { session, .. } = self {
            answer_gathered(shared, session, replies, turn);
        }
    }

    /// Writes an error of the server.
    pub(crate) fn error(&self, replies: &mut Replies, text: &str) {
        match self {
            Dialect::Resp { .. } => replies.error(text),
            Dialect::Memcached { .. } => {
                let text = text.strip_prefix("ERR ").unwrap_or(text);
                for part in ["SERVER_ERROR ", text, "\r\n"] {
                    replies.raw(part.as_bytes());
                }
            }
        }
    }

    /// Whether something is left of the last command, which has to be done before the next.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Dialect::Resp { session, .. } => session.sliced.is_some(),
            Dialect::Memcached { .. } => false,
        }
    }

    /// Does some of what is left of the last command.
    pub(crate) fn resume(&mut self, shared: &Shared, replies: &mut Replies, turn: &mut Turn) {
        if let Dialect::Resp { session, .. } = self {
            resume(shared, session, replies, turn);
        }
    }

    /// Whether no further command is to be run.
    pub(crate) fn is_closing(&self) -> bool {
        match self {
            Dialect::Resp { session, .. } => session.is_closing,
            Dialect::Memcached { talk, .. } => talk.is_closing,
        }
    }

    /// Whether no request has begun that has not come whole.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Dialect::Resp { parser, .. } => parser.is_idle(),
            Dialect::Memcached { talk, .. } => !talk.is_waiting,
        }
    }

    /// Gives memory back that the last requests took.
    pub(crate) fn shrink(&mut self) {
        if let Dialect::Resp { parser, .. } = self {
            parser.shrink();
        }
    }

    /// Ends what reaches beyond the connection.
    pub(crate) fn close(&mut self, shared: &Shared) {
        if let Dialect::Resp { session, .. } = self {
            session.unwatch(shared);
        }
    }
}
