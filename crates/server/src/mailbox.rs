//! A client's mailbox: pushed messages, and the reply to its parked command, left there by other
//! threads.
//!
//! ```text
//! PUBLISH on any worker ──▶ messages ─┐  wake-up   ┌─▶ the client's worker moves them to the
//! a write that serves a  ─▶ completion ├──────────▶│   replies of the connection, in order
//! blocked command                     ─┘           └   while less than the soft limit is unsent
//! ```
//!
//! A message is encoded once and shared by all its receivers. The bytes that wait in a mailbox are
//! bounded: beyond the hard limit, or beyond the soft limit for its time, the client is closed, as
//! with Redis's `client-output-buffer-limit` of the class `pubsub`.
//!
//! Invariant: messages of one sender are delivered in the order in which it sent them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::resp::Replies;

/// Limits of the messages that wait for one client. Zero: no limit.
#[derive(Debug)]
pub(crate) struct MessageLimits {
    hard_bytes: AtomicUsize,
    soft_bytes: AtomicUsize,
    soft_seconds: AtomicU64,
}

impl Default for MessageLimits {
    /// As in Redis: 32 MiB, and 8 MiB for a minute.
    fn default() -> Self {
        MessageLimits {
            hard_bytes: AtomicUsize::new(32 << 20),
            soft_bytes: AtomicUsize::new(8 << 20),
            soft_seconds: AtomicU64::new(60),
        }
    }
}

impl MessageLimits {
    /// Hard limit in bytes, soft limit in bytes, and its time in seconds.
    pub(crate) fn get(&self) -> (usize, usize, u64) {
        let load = |bytes: &AtomicUsize| bytes.load(Ordering::Relaxed);
        (load(&self.hard_bytes), load(&self.soft_bytes), self.soft_seconds.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, hard_bytes: usize, soft_bytes: usize, soft_seconds: u64) {
        self.hard_bytes.store(hard_bytes, Ordering::Relaxed);
        self.soft_bytes.store(soft_bytes, Ordering::Relaxed);
        self.soft_seconds.store(soft_seconds, Ordering::Relaxed);
    }
}

/// The end of a parked command.
#[derive(Debug)]
pub(crate) enum Completion {
    /// The encoded reply.
    Reply(Vec<u8>),
    /// CLIENT UNBLOCK: as if its time were over.
    TimedOut,
    /// CLIENT UNBLOCK with ERROR.
    Unblocked,
}

/// Messages for one client.
#[derive(Default)]
pub(crate) struct Mailbox {
    is_pending: AtomicBool,
    mail: Mutex<Mail>,
}

#[derive(Default)]
struct Mail {
    messages: VecDeque<Arc<[u8]>>,
    /// Bytes of the messages.
    bytes: usize,
    completion: Option<Completion>,
    /// Since when the messages have exceeded the soft limit.
    above_soft_limit: Option<Instant>,
    /// The client exceeded a limit and is being closed.
    is_closed: bool,
}

/// The result of a post: what the sender has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostOutcome {
    /// Wake the client's worker.
    First,
    /// Nothing: it has been woken.
    Queued,
    /// Close the client: it exceeds a limit.
    Overflow,
    /// Nothing: it is being closed.
    Closed,
}

impl Mailbox {
    /// Whether there is anything. Cost: one atomic load.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Acquire)
    }

    /// Adds a message.
    pub(crate) fn post(&self, message: &Arc<[u8]>, limits: &MessageLimits) -> PostOutcome {
        let (hard_bytes, soft_bytes, _) = limits.get();
        let mut mail = self.mail.lock();
        if mail.is_closed {
            return PostOutcome::Closed;
        }
        let bytes = mail.bytes + message.len();
        if hard_bytes > 0 && bytes > hard_bytes {
            mail.close();
            return PostOutcome::Overflow;
        }
        mail.bytes = bytes;
        mail.messages.push_back(message.clone());
        if soft_bytes > 0 && bytes > soft_bytes {
            mail.above_soft_limit.get_or_insert_with(Instant::now);
        }
        self.mark_pending()
    }

    /// Sets the end of the parked command.
    pub(crate) fn complete(&self, completion: Completion) -> PostOutcome {
        let mut mail = self.mail.lock();
        mail.completion = Some(completion);
        self.mark_pending()
    }

    fn mark_pending(&self) -> PostOutcome {
        match self.is_pending.swap(true, Ordering::AcqRel) {
            true => PostOutcome::Queued,
            false => PostOutcome::First,
        }
    }

    /// Moves messages to `replies` until `max_bytes` are unsent there. The end of the parked
    /// command, if there is one, is taken together with the last message.
    pub(crate) fn receive(&self, replies: &mut Replies, max_bytes: usize) -> Option<Completion> {
        let mut mail = self.mail.lock();
        while replies.len() <= max_bytes {
            let Some(message) = mail.messages.pop_front() else {
                self.is_pending.store(false, Ordering::Release);
                mail.messages.shrink_to(64);
                mail.above_soft_limit = None;
                return mail.completion.take();
            };
            mail.bytes -= message.len();
            replies.raw(&message);
        }
        None
    }

    /// Moves all messages to `replies`.
    pub(crate) fn receive_messages(&self, replies: &mut Replies) {
        if !self.is_pending() {
            return;
        }
        let mut mail = self.mail.lock();
        for message in mail.messages.drain(..) {
            replies.raw(&message);
        }
        mail.bytes = 0;
        mail.above_soft_limit = None;
        // What ends a parked command stays for the connection.
        self.is_pending.store(mail.completion.is_some(), Ordering::Release);
    }

    /// Whether the messages have exceeded the soft limit for too long.
    pub(crate) fn has_timed_out(&self, now: Instant, limits: &MessageLimits) -> bool {
        if !self.is_pending() {
            return false;
        }
        let (_, soft_bytes, seconds) = limits.get();
        let mut mail = self.mail.lock();
        if soft_bytes == 0 || mail.bytes <= soft_bytes {
            mail.above_soft_limit = None;
        }
        let limit = Duration::from_secs(seconds);
        mail.above_soft_limit.is_some_and(|since| now.saturating_duration_since(since) > limit)
    }

    /// Bytes of waiting messages.
    pub(crate) fn bytes(&self) -> usize {
        self.mail.lock().bytes
    }
}

impl Mail {
    fn close(&mut self) {
        self.is_closed = true;
        self.messages = VecDeque::new();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Arc<[u8]> {
        vec![b'x'; len].into()
    }

    #[test]
    fn messages_beyond_the_hard_limit_close_the_client() {
        let (mailbox, limits) = (Mailbox::default(), MessageLimits::default());
        limits.set(100, 50, 60);
        assert_eq!(mailbox.post(&message(60), &limits), PostOutcome::First);
        assert_eq!(mailbox.post(&message(40), &limits), PostOutcome::Queued);
        assert_eq!(mailbox.bytes(), 100);
        assert_eq!(mailbox.post(&message(1), &limits), PostOutcome::Overflow);
        assert_eq!(mailbox.post(&message(1), &limits), PostOutcome::Closed);
        assert_eq!(mailbox.bytes(), 0);
    }

    #[test]
    fn soft_limit_has_a_time() {
        let (mailbox, limits) = (Mailbox::default(), MessageLimits::default());
        limits.set(0, 50, 60);
        let now = Instant::now();
        let later = now + Duration::from_secs(120);
        assert_eq!(mailbox.post(&message(50), &limits), PostOutcome::First);
        assert!(!mailbox.has_timed_out(later, &limits));
        assert_eq!(mailbox.post(&message(1), &limits), PostOutcome::Queued);
        assert!(!mailbox.has_timed_out(now, &limits));
        assert!(mailbox.has_timed_out(later, &limits));
        // A client that has read meanwhile begins again.
        let mut replies = Replies::new(1 << 20);
        assert!(mailbox.receive(&mut replies, 1 << 20).is_none());
        assert!(!mailbox.is_pending() && !mailbox.has_timed_out(later, &limits));
    }

    #[test]
    fn completion_follows_the_messages_before_it() {
        let (mailbox, limits) = (Mailbox::default(), MessageLimits::default());
        assert_eq!(mailbox.post(&message(10), &limits), PostOutcome::First);
        assert_eq!(mailbox.post(&message(10), &limits), PostOutcome::Queued);
        assert_eq!(mailbox.complete(Completion::TimedOut), PostOutcome::Queued);
        let mut replies = Replies::new(1 << 20);
        assert!(mailbox.receive(&mut replies, 5).is_none(), "the second message waits");
        assert_eq!((replies.len(), mailbox.is_pending()), (10, true));
        replies.advance(10);
        assert!(matches!(mailbox.receive(&mut replies, 15), Some(Completion::TimedOut)));
        assert!(!mailbox.is_pending());
    }
}
