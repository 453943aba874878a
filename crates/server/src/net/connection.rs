//! Buffers of one client: received bytes that were not run yet, replies that were not sent yet.
//!
//! A connection reads into the worker's [buffer](ReceiveBuffer) and runs the commands there; only
//! an incomplete request is copied to the connection. So an idle client holds no buffers, and a
//! short request is never copied. A connection that has joined a group of commands goes on when the
//! group has run.
//!
//! Back-pressure: while unsent replies exceed the soft limit, no further command of the client runs
//! and nothing is read, so its socket fills and it has to wait. Nothing is read either while
//! received requests have not run, since replies can be much larger than requests.
//!
//! Other threads reach a client through its mailbox: pushed messages, and the reply to a parked
//! command. Messages move to the replies while less than the soft limit is unsent there.
//!
//! Replies that depend on uncommitted writes of replicated groups are held back: nothing behind
//! `held_from` is sent until the worker releases it. The replies of one iteration wait together,
//! for all groups that they depend on, and behind those of earlier iterations.
//!
//! Invariant: [`Connection::send`] is called after the worker has synced what the replies
//! acknowledge; `unsynced` marks the replies to retract if the sync fails.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::protocol::{Protocol, ProtocolState, Step};
use super::receive_buffer::ReceiveBuffer;
use super::timeouts::Activity;
use super::transport::Transport;
use crate::clients::{Registration, flag};
use crate::command::Member;
use crate::replication::group_set::{GroupSet, only};
use crate::resp::Replies;
use crate::shared::Shared;
use crate::store::write_batcher::WriteBatcher;

/// A client connection.
pub(crate) struct Connection {
    pub(crate) stream: Transport,
    protocol: ProtocolState,
    /// Received bytes that were not run; begins with a request.
    input: Vec<u8>,
    /// Those of this iteration in the worker's buffer, if `input` is empty.
    received: Range<usize>,
    /// How many of either have run.
    consumed: usize,
    /// Waits for a group that it has joined.
    is_joined: bool,
    replies: Replies,
    /// Position up to which replies were released before this iteration.
    unsynced: usize,
    /// Bytes sent since the connection began.
    sent_bytes: u64,
    /// Position in the stream of replies from which on they are held back.
    held_from: Option<u64>,
    /// The replies that are held back, in order.
    holds: VecDeque<Hold>,
    /// Position up to which replies were written before this iteration.
    served_from: u64,
    /// The socket may have more to read.
    pub(crate) is_readable: bool,
    /// The socket may accept more.
    pub(crate) is_writable: bool,
    /// The poll has reported the end of the stream.
    pub(crate) is_end_pending: bool,
    /// The client has closed its side.
    is_ended: bool,
    /// Nothing more is read or run; pending replies are still sent.
    is_closing: bool,
    /// The connection has failed.
    is_dead: bool,
    /// In the list of connections to serve in the next iteration.
    pub(crate) is_scheduled: bool,
    /// Deadline by which the worker will serve it.
    pub(crate) timer: Option<Instant>,
    activity: Activity,
}

/// The replies of an iteration that are held back.
struct Hold {
    /// The position behind them.
    end: u64,
    /// The groups whose commits they wait for.
    waits: GroupSet,
}

impl Connection {
    pub(crate) fn new(
        shared: &Shared,
        protocol: Protocol,
        stream: Transport,
        registration: Registration,
    ) -> Self {
        let options = &shared.options;
        let now = Instant::now();
        Connection {
            stream,
            protocol: ProtocolState::new(protocol, shared, registration),
            input: Vec::new(),
            received: 0..0,
            consumed: 0,
            is_joined: false,
            replies: Replies::new(options.max_output_bytes),
            unsynced: 0,
            sent_bytes: 0,
            held_from: None,
            holds: VecDeque::new(),
            served_from: 0,
            is_readable: true,
            is_writable: true,
            is_end_pending: false,
            is_ended: false,
            is_closing: false,
            is_dead: false,
            is_scheduled: false,
            timer: None,
            activity: Activity { last_received: now, request: None, unread: None },
        }
    }

    /// Reads once and runs the complete commands, or joins a group with them. Sends nothing. Its
    /// number in the worker is `connection`.
    pub(crate) fn serve(
        &mut self,
        shared: &Shared,
        batcher: &mut WriteBatcher,
        buffer: &mut ReceiveBuffer,
        connection: usize,
    ) {
        self.unsynced = self.replies.mark();
        self.served_from = self.reply_end();
        if self.protocol.client().killed.load(Relaxed) {
            self.is_dead = true;
        }
        self.receive_mail(shared);
        if self.protocol.is_paused() {
            // The command checks again whether it must wait.
            self.protocol.end_pause();
            self.activity.last_received = batcher.clock;
        }
        if self.is_throttled(shared) {
            // A request cannot complete while nothing is read, so its timeout is suspended.
            self.activity.request = None;
            return;
        }
        if self.is_dead || self.is_closing {
            return;
        }
        if self.protocol.is_parked() {
            self.protocol.expire(shared, &mut self.replies, batcher.clock);
            if self.protocol.is_parked() {
                // Nothing is read while the command waits, so the requests behind it take no
                // memory. As in Redis, a client that ends its stream gives the command up.
                self.is_dead |= self.is_end_pending;
                return;
            }
            // The idle time begins with the reply.
            self.activity.last_received = batcher.clock;
        }
        if self.protocol.is_busy() {
            self.activity.last_received = batcher.clock;
            self.protocol.resume(shared, &mut self.replies, batcher);
            if self.protocol.is_busy() || self.has_overflowed(shared) {
                return;
            }
        }
        let has_requests = !self.input.is_empty() && self.protocol.is_idle();
        let count = if has_requests { 0 } else { self.read(shared, buffer.space()) };
        self.received = buffer.take(count);
        if !self.input.is_empty() {
            self.input.extend_from_slice(&buffer[self.received.clone()]);
        }
        self.run(shared, batcher, buffer, connection);
        if !self.is_joined {
            buffer.give_back(count);
        }
    }

    /// The connection as a member of the group that it has joined.
    pub(crate) fn member<'a>(&'a mut self, buffer: &'a ReceiveBuffer) -> Option<Member<'a>> {
        let input =
            if self.input.is_empty() { &buffer[self.received.clone()] } else { &self.input };
        self.protocol.member(&mut self.replies, &input[self.consumed..])
    }

    /// Goes on after its group has run its commands in the next `count` bytes.
    pub(crate) fn leave_group(
        &mut self,
        shared: &Shared,
        batcher: &mut WriteBatcher,
        buffer: &ReceiveBuffer,
        (connection, count): (usize, usize),
    ) {
        self.is_joined = false;
        self.consumed += count;
        self.end_step(shared);
        self.run(shared, batcher, buffer, connection);
    }

    /// Leaves requests for a later iteration. Meanwhile the client is neither silent nor slow.
    pub(crate) fn defer(&mut self, now: Instant) {
        self.is_readable = true;
        self.activity.last_received = now;
        self.activity.request = None;
    }

    /// Whether the protocol has an error for commands that come while a script is busy.
    pub(crate) fn can_be_refused(&self) -> bool {
        self.protocol.is_resp()
    }

    /// Moves messages of other threads to the replies, and the reply to the parked command.
    fn receive_mail(&mut self, shared: &Shared) {
        let client = self.protocol.client();
        if client.mailbox.is_pending() {
            let max_bytes = shared.options.soft_output_bytes();
            let completion = client.mailbox.receive(&mut self.replies, max_bytes);
            // A message that does not fit is not left out.
            if !self.has_overflowed(shared)
                && let Some(completion) = completion
            {
                self.protocol.complete(shared, &mut self.replies, completion);
            }
        }
    }

    /// When the time of the parked command or of the pause is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.protocol.deadline()
    }

    /// Ends the subscriptions to channels of shards that this node does not serve any more.
    pub(crate) fn end_shard_subscriptions(
        &mut self,
        shared: &Shared,
        is_lost: impl Fn(&[u8]) -> bool,
    ) {
        self.protocol.end_shard_subscriptions(shared, is_lost);
    }

    /// Whether replies must be sent before more commands run.
    fn is_throttled(&self, shared: &Shared) -> bool {
        self.replies.len() > shared.options.soft_output_bytes()
    }

    fn read(&mut self, shared: &Shared, scratch: &mut [u8]) -> usize {
        while self.is_readable && !self.is_ended {
            match self.stream.read_some(scratch) {
                Ok((0, _)) => self.is_ended = true,
                Ok((count, may_have_more)) => {
                    // The poll is edge-triggered. A short read shows that all bytes have been read,
                    // but not that the end of the stream does not follow.
                    self.is_readable = may_have_more || self.is_end_pending;
                    shared.metrics.bytes_in.fetch_add(count as u64, Relaxed);
                    self.record_receive();
                    return count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
                Err(error) => {
                    if error.kind() == ErrorKind::InvalidData {
                        shared.metrics.tls_errors.fetch_add(1, Relaxed);
                    }
                    self.is_dead = true;
                    break;
                }
            }
        }
        0
    }

    fn record_receive(&mut self) {
        let now = Instant::now();
        self.activity.last_received = now;
        let client = self.protocol.client();
        client.last_received_ms.store((now - client.since).as_millis() as u64, Relaxed);
    }

    /// Tracks the time of an incomplete request.
    fn track_request(&mut self, now: Instant) {
        // A handshake is timed from the connection's first byte or before.
        let is_waiting =
            !self.input.is_empty() && !self.protocol.is_idle() || self.stream.is_handshaking();
        self.activity.request = is_waiting.then(|| {
            let started = self.activity.request.map_or(now, |(started, _)| started);
            (started, self.input.len())
        });
    }

    /// Runs the complete commands, up to the first that joins a group.
    fn run(
        &mut self,
        shared: &Shared,
        batcher: &mut WriteBatcher,
        buffer: &ReceiveBuffer,
        connection: usize,
    ) {
        let mut input = std::mem::take(&mut self.input);
        let bytes = if input.is_empty() { &buffer[self.received.clone()] } else { &input[..] };
        self.run_input(shared, batcher, (connection, bytes));
        if self.is_joined {
            self.input = input;
            return;
        }
        let consumed = std::mem::take(&mut self.consumed);
        if !input.is_empty() {
            input.drain(..consumed);
            input.shrink_to(if input.is_empty() { 0 } else { 2 * input.len() });
            self.input = input;
        } else if !self.is_closing {
            self.input.extend_from_slice(&bytes[consumed..]);
        }
        self.received = 0..0;
        self.protocol.shrink();
        self.track_request(batcher.clock);
    }

    fn run_input(
        &mut self,
        shared: &Shared,
        batcher: &mut WriteBatcher,
        (connection, input): (usize, &[u8]),
    ) {
        while !self.is_closing
            && !self.is_dead
            && !self.is_throttled(shared)
            && !self.protocol.is_busy()
            && !shared.has_full_proposal()
        {
            let request = (connection, &input[self.consumed..]);
            match self.protocol.step(shared, &mut self.replies, batcher, request) {
                Ok(Step::Incomplete) => break,
                Ok(Step::Joined) => {
                    self.is_joined = true;
                    break;
                }
                Ok(Step::Consumed(count)) => {
                    self.consumed += count;
                    self.end_step(shared);
                }
                Err(text) => {
                    shared.metrics.protocol_errors.fetch_add(1, Relaxed);
                    self.protocol.error(&mut self.replies, &text);
                    self.is_closing = true;
                }
            }
        }
    }

    /// Follows up commands that have run.
    fn end_step(&mut self, shared: &Shared) {
        self.is_closing |= self.protocol.is_closing();
        // The request that was timed is complete.
        self.activity.request = None;
        // Messages that the command has caused follow its reply.
        self.receive_mail(shared);
        self.has_overflowed(shared);
    }

    /// Whether the replies exceed the hard limit; then the client is disconnected.
    fn has_overflowed(&mut self, shared: &Shared) -> bool {
        let has_overflowed = self.replies.has_overflowed();
        if has_overflowed && !self.is_dead {
            shared.metrics.slow_readers.fetch_add(1, Relaxed);
            self.is_dead = true;
        }
        has_overflowed
    }

    /// Writes the replies of batched SETs. Called after the last [`serve`](Self::serve) of an
    /// iteration.
    pub(crate) fn answer_batched_sets(&mut self, shared: &Shared, batcher: &mut WriteBatcher) {
        self.protocol.answer_batched_sets(shared, &mut self.replies, batcher);
    }

    /// Retracts this iteration's replies, because what they acknowledge may not be durable.
    pub(crate) fn retract(&mut self, text: &str) {
        if self.replies.mark() > self.unsynced {
            self.replies.rewind(self.unsynced);
            self.protocol.error(&mut self.replies, text);
            self.is_closing = true;
        }
    }

    /// The position behind the last reply.
    pub(crate) fn reply_end(&self) -> u64 {
        self.sent_bytes + self.replies.len() as u64
    }

    /// Holds the replies of this iteration back if they depend on commits, or follow some that are
    /// held. Returns the groups whose commits have to release them.
    pub(crate) fn hold(&mut self) -> GroupSet {
        let waits = self.protocol.take_needs_commit();
        let end = self.reply_end();
        if end == self.served_from || waits == 0 && self.holds.is_empty() {
            return 0;
        }
        self.held_from.get_or_insert(self.served_from);
        self.holds.push_back(Hold { end, waits });
        waits
    }

    /// A group has committed what the replies up to a position depend on.
    pub(crate) fn release(&mut self, group: usize, end: u64) {
        for hold in self.holds.iter_mut().take_while(|hold| hold.end <= end) {
            hold.waits &= !only(group);
        }
        while let Some(hold) = self.holds.front()
            && hold.waits == 0
        {
            self.held_from = Some(hold.end);
            self.holds.pop_front();
        }
        if self.holds.is_empty() {
            self.held_from = None;
        }
    }

    /// Ends the connection: the outcome of its last commands is unknown.
    pub(crate) fn fail(&mut self) {
        self.is_dead = true;
    }

    /// The number of the client, unique in the server.
    pub(crate) fn client_id(&self) -> u64 {
        self.protocol.client().id
    }

    /// Bytes that may be sent.
    fn sendable(&self) -> usize {
        let end = self.held_from.unwrap_or_else(|| self.reply_end());
        (end - self.sent_bytes) as usize
    }

    /// Sends as much as the socket accepts.
    pub(crate) fn send(&mut self, shared: &Shared) {
        let mut sent = 0;
        while self.is_writable && !self.is_dead && self.sendable() > 0 {
            let sendable = self.sendable();
            match self.stream.write(&self.replies.unsent()[..sendable]) {
                Ok(0) => self.is_dead = true,
                Ok(count) => {
                    self.replies.advance(count);
                    self.sent_bytes += count as u64;
                    sent += count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_writable = false,
                Err(_) => self.is_dead = true,
            }
        }
        if self.stream.has_unsent() && self.is_writable && !self.is_dead {
            match self.stream.flush() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_writable = false,
                Err(_) => self.is_dead = true,
            }
        }
        self.activity.unread = match self.activity.unread {
            // What is held back does not wait for the client.
            _ if self.sendable() == 0 && !self.stream.has_unsent() => None,
            Some(since) if sent == 0 => Some(since),
            _ => Some(Instant::now()),
        };
        shared.metrics.bytes_out.fetch_add(sent as u64, Relaxed);
    }

    /// Whether there is work without a further socket event.
    pub(crate) fn has_work(&self, shared: &Shared) -> bool {
        if self.is_closing || self.is_throttled(shared) {
            return false;
        }
        if self.protocol.is_parked() || self.protocol.is_paused() {
            // A message, a deadline or a wake-up comes.
            return self.protocol.client().mailbox.is_pending();
        }
        if self.protocol.is_busy() || self.protocol.client().mailbox.is_pending() {
            return true;
        }
        // Complete requests were held back by replies that have been sent since.
        self.is_readable && !self.is_ended || !self.input.is_empty() && self.protocol.is_idle()
    }

    /// Whether the connection should be closed.
    pub(crate) fn is_done(&self) -> bool {
        let is_last = self.is_closing || self.is_ended && self.is_input_processed();
        self.is_dead || is_last && !self.has_unsent()
    }

    /// Whether all input has been run, except an incomplete request.
    fn is_input_processed(&self) -> bool {
        !self.protocol.is_busy() && (self.input.is_empty() || !self.protocol.is_idle())
    }

    /// Whether replies are pending.
    pub(crate) fn has_replies(&self) -> bool {
        self.has_unsent() && !self.is_dead
    }

    /// Whether the socket has not taken all replies.
    fn has_unsent(&self) -> bool {
        !self.replies.is_empty() || self.stream.has_unsent()
    }

    /// Disconnects the client if a timeout has passed or it was killed.
    pub(crate) fn check_timeout(&mut self, shared: &Shared, now: Instant) {
        let is_killed = self.protocol.client().killed.load(Relaxed);
        let client = self.protocol.client();
        self.is_dead |= client.check_messages(now);
        // Neither a command that waits nor a subscription is silence.
        let may_be_silent = client.is_subscriber()
            || client.has_flag(flag::MONITOR)
            || self.protocol.is_parked()
            || self.protocol.is_paused();
        let timeouts = (shared.options.stall_timeout, shared.settings.idle_timeout());
        if self.activity.has_timed_out(now, timeouts, may_be_silent) {
            shared.metrics.timeouts.fetch_add(1, Relaxed);
            self.is_dead = true;
        }
        self.is_dead |= is_killed;
    }

    /// Releases what outlives the connection.
    pub(crate) fn close(&mut self, shared: &Shared) {
        self.stream.end();
        self.protocol.close(shared);
    }
}
