//! The buffers of one client: what came and is not understood yet, what goes and is not sent yet.
//!
//! A turn reads into the worker's scratch space and runs the commands that lie in it; only what is
//! left, the beginning of a request, is copied to the connection. So an idle client holds no
//! buffers, and a short request is never copied.
//!
//! Back-pressure: while more replies wait than the soft limit, no further command of the client
//! runs and nothing more is read from it, so its own socket fills and it has to wait. Nor is anything read while
//! requests that came before have not run: answers can be much larger than what asks for them.
//!
//! Invariant: replies are sent only after the worker has synced what they acknowledge
//! ([`Connection::send`] is called behind the sync), and `unsynced` marks where those begin that a
//! failing sync takes back.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use mio::net::TcpStream;

use super::dialect::{Dialect, Language};
use super::timeouts::Activity;
use crate::clients::Registration;
use crate::memcached::talk::Step;
use crate::resp::Replies;
use crate::shared::Shared;
use crate::store::turn::Turn;

/// One client.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    dialect: Dialect,
    /// What came and has not been run; begins with a request.
    input: Vec<u8>,
    replies: Replies,
    /// How many of the replies could be sent before this turn's.
    unsynced: usize,
    /// The socket may have more to read.
    pub(crate) is_readable: bool,
    /// The socket may take more.
    pub(crate) is_writable: bool,
    /// The poll has told that the end is there to be read.
    pub(crate) is_end_near: bool,
    /// The client sends no more.
    is_ended: bool,
    /// Nothing more is read or run; what waits is sent.
    is_closing: bool,
    /// The connection is of no more use.
    is_dead: bool,
    /// It stands in the list of those to serve in the next turn.
    pub(crate) is_scheduled: bool,
    activity: Activity,
}

impl Connection {
    pub(crate) fn new(
        shared: &Shared,
        language: Language,
        stream: TcpStream,
        registration: Registration,
    ) -> Self {
        let options = &shared.options;
        let now = Instant::now();
        Connection {
            stream,
            dialect: Dialect::new(language, shared, registration),
            input: Vec::new(),
            replies: Replies::new(options.max_output_bytes),
            unsynced: 0,
            is_readable: true,
            is_writable: true,
            is_end_near: false,
            is_ended: false,
            is_closing: false,
            is_dead: false,
            is_scheduled: false,
            activity: Activity { heard: now, request: None, unread: None },
        }
    }

    /// Reads once and runs the commands that are there. Sends nothing.
    pub(crate) fn serve(&mut self, shared: &Shared, turn: &mut Turn, scratch: &mut [u8]) {
        self.unsynced = self.replies.mark();
        if self.dialect.client().killed.load(Relaxed) {
            self.is_dead = true;
        }
        if self.is_held_back(shared) {
            // The rest of a request cannot come while nothing is read: its time stands still.
            self.activity.request = None;
            return;
        }
        if self.is_dead || self.is_closing {
            return;
        }
        if self.dialect.is_busy() {
            self.activity.heard = turn.clock;
            self.dialect.resume(shared, &mut self.replies, turn);
            if self.dialect.is_busy() || self.has_overflowed(shared) {
                return;
            }
        }
        let has_requests = !self.input.is_empty() && self.dialect.is_idle();
        let count = if has_requests { 0 } else { self.read(shared, scratch) };
        if self.input.is_empty() {
            let used = self.run(shared, turn, &scratch[..count]);
            if !self.is_closing {
                self.input.extend_from_slice(&scratch[used..count]);
            }
        } else {
            let mut input = std::mem::take(&mut self.input);
            input.extend_from_slice(&scratch[..count]);
            let used = self.run(shared, turn, &input);
            input.drain(..used);
            input.shrink_to(if input.is_empty() { 0 } else { 2 * input.len() });
            self.input = input;
        }
        self.note_request(turn.clock);
    }

    /// Whether replies must be taken before more commands run.
    fn is_held_back(&self, shared: &Shared) -> bool {
        self.replies.len() > shared.options.soft_output_bytes()
    }

    fn read(&mut self, shared: &Shared, scratch: &mut [u8]) -> usize {
        while self.is_readable && !self.is_ended {
            match self.stream.read(scratch) {
                Ok(0) => self.is_ended = true,
                Ok(count) => {
                    // The poll tells of a change once. A short read shows that all bytes are here,
                    // but not that no end stands behind them.
                    self.is_readable = count == scratch.len() || self.is_end_near;
                    shared.metrics.bytes_in.fetch_add(count as u64, Relaxed);
                    self.note_heard();
                    return count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
                Err(_) => {
                    self.is_dead = true;
                    break;
                }
            }
        }
        0
    }

    fn note_heard(&mut self) {
        let now = Instant::now();
        self.activity.heard = now;
        let client = self.dialect.client();
        client.heard_ms.store((now - client.since).as_millis() as u64, Relaxed);
    }

    /// Keeps the time of a request that has not come whole.
    fn note_request(&mut self, now: Instant) {
        let is_waiting = !self.input.is_empty() && !self.dialect.is_idle();
        self.activity.request = is_waiting.then(|| {
            let begun = self.activity.request.map_or(now, |(begun, _)| begun);
            (begun, self.input.len())
        });
    }

    /// Runs the commands that `input` begins with; how many bytes of it are done with.
    fn run(&mut self, shared: &Shared, turn: &mut Turn, input: &[u8]) -> usize {
        let mut used = 0;
        while !self.is_closing && !self.is_held_back(shared) && !self.dialect.is_busy() {
            match self.dialect.step(shared, &mut self.replies, turn, &input[used..]) {
                Ok(Step::Incomplete) => break,
                Ok(Step::Used(consumed)) => {
                    self.is_closing |= self.dialect.is_closing();
                    // Whatever was running may have timed a request that is over now.
                    self.activity.request = None;
                    used += consumed;
                    if self.has_overflowed(shared) {
                        break;
                    }
                }
                Err(text) => {
                    shared.metrics.protocol_errors.fetch_add(1, Relaxed);
                    self.dialect.error(&mut self.replies, &text);
                    self.is_closing = true;
                }
            }
        }
        self.dialect.shrink();
        used
    }

    /// Whether the replies are over their limit; then the client is cut off.
    fn has_overflowed(&mut self, shared: &Shared) -> bool {
        let has_overflowed = self.replies.has_overflowed();
        if has_overflowed {
            shared.metrics.slow_readers.fetch_add(1, Relaxed);
            self.is_dead = true;
        }
        has_overflowed
    }

    /// Writes the replies to SETs that were gathered. To be called behind the last
    /// [`serve`](Self::serve) of a turn.
    pub(crate) fn answer_gathered(&mut self, shared: &Shared, turn: &mut Turn) {
        self.dialect.answer_gathered(shared, &mut self.replies, turn);
    }

    /// Takes back this turn's replies, because what they acknowledge may not be durable.
    pub(crate) fn retract(&mut self, text: &str) {
        if self.replies.mark() > self.unsynced {
            self.replies.rewind(self.unsynced);
            self.dialect.error(&mut self.replies, text);
            self.is_closing = true;
        }
    }

    /// Sends what the socket takes.
    pub(crate) fn send(&mut self, shared: &Shared) {
        let mut sent = 0;
        while self.is_writable && !self.is_dead && !self.replies.is_empty() {
            match self.stream.write(self.replies.unsent()) {
                Ok(0) => self.is_dead = true,
                Ok(count) => {
                    self.replies.advance(count);
                    sent += count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_writable = false,
                Err(_) => self.is_dead = true,
            }
        }
        self.activity.unread = match self.activity.unread {
            _ if self.replies.is_empty() => None,
            Some(since) if sent == 0 => Some(since),
            _ => Some(Instant::now()),
        };
        shared.metrics.bytes_out.fetch_add(sent as u64, Relaxed);
    }

    /// Whether there is something to do without a further event of the socket.
    pub(crate) fn has_work(&self, shared: &Shared) -> bool {
        if self.is_closing || self.is_held_back(shared) {
            return false;
        }
        if self.dialect.is_busy() {
            return true;
        }
        // Input that is no unfinished request was held back by replies that have been taken since.
        self.is_readable && !self.is_ended || !self.input.is_empty() && self.dialect.is_idle()
    }

    /// Whether the connection should be closed.
    pub(crate) fn is_done(&self) -> bool {
        let is_last = self.is_closing || self.is_ended && self.parser_waits();
        self.is_dead || is_last && self.replies.is_empty()
    }

    /// Whether all that came has been run, but for a request without its end.
    fn parser_waits(&self) -> bool {
        !self.dialect.is_busy() && (self.input.is_empty() || !self.dialect.is_idle())
    }

    /// Whether replies wait to be sent.
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty() && !self.is_dead
    }

    /// Cuts the client off if it has taken too long, or was killed.
    pub(crate) fn check_time(&mut self, shared: &Shared, now: Instant) {
        let is_killed = self.dialect.client().killed.load(Relaxed);
        if self.activity.is_over(now, &shared.options) {
            shared.metrics.timeouts.fetch_add(1, Relaxed);
            self.is_dead = true;
        }
        self.is_dead |= is_killed;
    }

    /// Ends what reaches beyond the connection.
    pub(crate) fn close(&mut self, shared: &Shared) {
        self.dialect.close(shared);
    }
}
