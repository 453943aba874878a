//! The event loop of a worker thread: read and run, sync, send.
//!
//! Each worker has its own poll and its own clients. One iteration serves all ready clients in
//! three steps: run their commands, many of them in groups; apply their batched writes and, under
//! [`Fsync::Always`], sync once; send the replies. Thus the clients of one iteration share log
//! appends and one sync, and no reply is sent before its write is as durable as promised.
//!
//! A client is read once per iteration, so a busy client does not starve others.
//!
//! A command whose reply comes later parks its connection: nothing of it runs or is read until
//! another thread leaves the reply in its mailbox and wakes this worker, or its deadline passes.
//!
//! Invariant: a connection with remaining work is in `scheduled`; all others wait for an event, a
//! wake-up or a deadline.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};
use parking_lot::Mutex;

use super::connection::Connection;
use super::held_replies::{HeldConnection, HeldReplies};
use super::inbox::{Arrival, Inbox};
use super::receive_buffer::ReceiveBuffer;
use super::timeouts::{self, Deadlines};
use super::transport::Transport;
use super::wakeups::Wakeups;
use crate::Fsync;
use crate::clients::Address;
use crate::command::{
    Member, Members, end_parked, follow_functions, follow_users, run_group, serve_ready_keys,
};
use crate::replication::group_set::members;
use crate::replication::groups::Groups;
use crate::replication::{Progress, State};
use crate::shared::Shared;
use crate::store::write_batcher::WriteBatcher;

const WAKE: Token = Token(usize::MAX);
/// Interval at which passed expiries are published.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which the worker of a replicated table polls the node's status in its groups.
const STATUS_INTERVAL: Duration = Duration::from_millis(20);

/// A worker thread and its clients.
pub(crate) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    poll: Poll,
    inbox: Arc<Inbox>,
    /// Indexed by token.
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    /// Connections to serve in the next iteration.
    scheduled: Vec<usize>,
    /// Deadlines of parked commands.
    deadlines: Deadlines,
    batcher: WriteBatcher,
    /// Replies that wait for a commit, by replicated group.
    held: Vec<HeldReplies>,
    buffer: ReceiveBuffer,
}

impl Worker {
    /// A worker without clients, and its inbox.
    pub(crate) fn new(index: usize, shared: Arc<Shared>) -> std::io::Result<(Self, Arc<Inbox>)> {
        let poll = Poll::new()?;
        let wakeups = Arc::new(Wakeups::new(Waker::new(poll.registry(), WAKE)?));
        let inbox = Arc::new(Inbox { arrivals: Mutex::default(), wakeups });
        let batcher = WriteBatcher::new(shared.databases.len());
        let mut held = Vec::new();
        if let Some(groups) = &shared.replication {
            groups.wake(&inbox.wakeups);
            held.resize_with(groups.len(), HeldReplies::default);
        }
        let worker = Worker {
            index,
            shared,
            poll,
            inbox: inbox.clone(),
            connections: Vec::new(),
            free: Vec::new(),
            scheduled: Vec::new(),
            deadlines: Deadlines::default(),
            batcher,
            held,
            buffer: ReceiveBuffer::default(),
        };
        Ok((worker, inbox))
    }

    /// Runs until the server stops, and drains.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        let interval = timeouts::interval(&self.shared.options);
        let mut events = Events::with_capacity(1024);
        let mut next_check = Instant::now() + interval;
        while !self.shared.stop.is_stopping() {
            let next = self.deadlines.first().map_or(next_check, |first| first.min(next_check));
            let mut wait = next.saturating_duration_since(Instant::now());
            let publishes_expired =
                self.index == 0 && self.shared.observers.has_expiries_or_expiring_waits();
            if publishes_expired {
                wait = wait.min(EXPIRY_INTERVAL);
            }
            if self.shared.replication.is_some() {
                wait = wait.min(STATUS_INTERVAL);
            }
            self.poll_events(&mut events, wait)?;
            self.accept_arrivals();
            self.schedule_woken();
            self.follow_groups();
            if publishes_expired {
                self.shared.publish_expired();
            }
            self.run_iteration();
            if Instant::now() >= next_check {
                self.check_timeouts();
                if self.index == 0 {
                    self.shared.metrics.measure_rate(Instant::now());
                    // While a script is busy, the next check does it.
                    if let Some(_gate) = self.shared.long_runs.enter() {
                        crate::memcached::flush_if_due(&self.shared, &mut self.batcher);
                    }
                }
                next_check = Instant::now() + interval;
            }
        }
        self.drain(&mut events)
    }

    /// Waits for events unless there is work, and schedules their connections.
    fn poll_events(&mut self, events: &mut Events, wait: Duration) -> std::io::Result<()> {
        let has_work = !self.scheduled.is_empty() && !self.is_congested();
        let wait = if has_work { Duration::ZERO } else { wait };
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        for event in events.iter() {
            let Token(token) = event.token();
            if event.token() == WAKE {
                // A new client, wake-ups, or a stop.
                continue;
            }
            let Some(Some(connection)) = self.connections.get_mut(token) else { continue };
            connection.is_readable |= event.is_readable() || event.is_error();
            connection.is_end_pending |= event.is_read_closed();
            connection.is_writable |= event.is_writable();
            schedule(&mut self.scheduled, token, connection);
        }
        Ok(())
    }

    /// Schedules the connections that other threads have changed, and those whose deadline has
    /// passed.
    fn schedule_woken(&mut self) {
        for token in self.inbox.wakeups.take() {
            let Some(Some(connection)) = self.connections.get_mut(token) else { continue };
            schedule(&mut self.scheduled, token, connection);
        }
        if self.deadlines.first().is_none() {
            return;
        }
        let now = Instant::now();
        while let Some(token) = self.deadlines.take_due(now) {
            let Some(Some(connection)) = self.connections.get_mut(token) else { continue };
            connection.timer = None;
            schedule(&mut self.scheduled, token, connection);
        }
    }

    fn accept_arrivals(&mut self) {
        let arrivals = std::mem::take(&mut *self.inbox.arrivals.lock());
        for arrival in arrivals {
            self.register(arrival);
        }
    }

    fn register(&mut self, Arrival { mut stream, peer, endpoint }: Arrival) {
        let token = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(&mut stream, Token(token), interest);
        let tls = self.shared.tls.as_ref().filter(|_| endpoint.is_tls);
        let tls = tls.map(|tls| tls.accept()).transpose();
        let local = registered.and_then(|()| match &peer {
            Address::Ip(_) => stream.local_addr().map(Address::Ip),
            Address::Unix(_) => Ok(peer.clone()),
        });
        let (Ok(local), Ok(tls)) = (local, tls) else {
            // The client has disconnected; its token is free again.
            self.free.push(token);
            self.shared.clients.release_connection();
            return;
        };
        // A reply should not wait for the next one. If the option fails, it is only slower.
        let _ = stream.set_nodelay(true);
        let stream = Transport::new(stream, tls);
        let registration =
            self.shared.clients.register(peer, local, self.inbox.wakeups.clone(), token);
        let mut connection =
            Box::new(Connection::new(&self.shared, endpoint.protocol, stream, registration));
        schedule(&mut self.scheduled, token, &mut connection);
        self.connections[token] = Some(connection);
    }

    /// Serves all scheduled connections, and the commands that wait for ready keys.
    fn run_iteration(&mut self) {
        let has_work = !self.scheduled.is_empty() || self.shared.observers.blocked.has_ready();
        if !has_work || self.is_congested() {
            return;
        }
        let shared = self.shared.clone();
        let shared = &*shared;
        // Waits while a long script runs, until it is busy.
        let gate = shared.long_runs.enter();
        self.batcher.is_busy = gate.is_none();
        self.batcher.clock = Instant::now();
        let tokens = std::mem::take(&mut self.scheduled);
        for token in &tokens {
            let Some(connection) = &mut self.connections[*token] else { continue };
            connection.is_scheduled = false;
            if self.batcher.is_busy && !connection.can_be_refused() {
                // It is scheduled again below.
                connection.defer(self.batcher.clock);
                continue;
            }
            connection.serve(shared, &mut self.batcher, &mut self.buffer, *token);
            if self.batcher.groups.is_any_full() || self.buffer.is_full() {
                self.run_groups(shared);
            }
        }
        self.run_groups(shared);
        for token in &tokens {
            let Some(connection) = &mut self.connections[*token] else { continue };
            connection.answer_batched_sets(shared, &mut self.batcher);
        }
        if !self.batcher.is_busy {
            serve_ready_keys(shared, &mut self.batcher);
        }
        let sync_error = match shared.options.fsync {
            Fsync::Always => {
                let began = Instant::now();
                let synced = self.batcher.sync(&shared.databases);
                shared.record_latency("aof-fsync-always", began.elapsed());
                synced.err()
            }
            Fsync::EverySecond | Fsync::Never => None,
        };
        let sync_error = sync_error.map(|error| {
            shared.metrics.failed_syncs.fetch_add(1, Relaxed);
            format!("ERR the write may not be durable: {error}")
        });
        if let Some(groups) = &shared.replication {
            groups.end_snapshots();
            self.hold_replies(&tokens);
        } else {
            self.batcher.deliver(sync_error.as_deref());
        }
        // Before the replies: a client that has one finds its command counted.
        shared.metrics.record(self.index, &mut self.batcher.samples);
        for token in &tokens {
            let Some(connection) = &mut self.connections[*token] else { continue };
            if let Some(text) = &sync_error {
                connection.retract(text);
            }
            connection.send(shared);
            let deadline = connection.deadline();
            self.deadlines.set(
                *token,
                std::mem::replace(&mut connection.timer, deadline),
                deadline,
            );
            if connection.is_done() {
                self.close(*token);
            } else if connection.has_work(shared) {
                schedule(&mut self.scheduled, *token, connection);
            }
        }
        drop(gate);
        self.batcher.finish_iteration();
        self.reuse(tokens);
        if let Some(groups) = &shared.replication {
            (0..groups.len()).for_each(|group| self.submit(groups, group));
        }
    }

    /// Runs the groups that connections have joined, until none waits.
    fn run_groups(&mut self, shared: &Shared) {
        let Worker { connections, batcher, buffer, .. } = self;
        while let Some(mut group) = batcher.groups.take() {
            run_group(shared, batcher, &mut group, &mut Connections { connections, buffer });
            for part in &group.parts {
                if let Some(connection) = &mut connections[part.connection] {
                    let ran = (part.connection, part.end);
                    connection.leave_group(shared, batcher, buffer, ran);
                }
            }
            batcher.groups.recycle(group);
        }
        buffer.clear();
    }

    /// Whether commands have to wait for a commit.
    fn is_congested(&self) -> bool {
        self.shared.replication.as_ref().is_some_and(Groups::is_congested)
    }

    /// Holds back the replies of this iteration that depend on a commit.
    fn hold_replies(&mut self, tokens: &[usize]) {
        for token in tokens {
            let Some(connection) = &mut self.connections[*token] else { continue };
            let (client, end) = (connection.client_id(), connection.reply_end());
            for group in members(connection.hold()) {
                self.held[group].add_connection(HeldConnection { token: *token, client, end });
            }
        }
        for delivery in self.batcher.take_deliveries() {
            self.held[delivery.table].add_delivery(delivery);
        }
    }

    /// Begins the commit of a group that the held replies wait for, unless one is under way.
    fn submit(&mut self, groups: &Groups, group: usize) {
        let replication = groups.get(group);
        let has_work = self.held[group].has_open() || replication.table.has_open();
        if !has_work {
            return;
        }
        if replication.submit() {
            self.held[group].begin_commit();
        } else if replication.state() == State::Following {
            replication.table.discard();
            self.lose(group);
        }
    }

    /// Closes all connections whose replies wait for a group: the outcome of their commands is
    /// unknown.
    fn lose(&mut self, group: usize) {
        for mut held in self.held[group].take_all() {
            for connection in &held.connections {
                self.fail(connection);
            }
            held.fail_deliveries();
        }
    }

    /// Follows the groups of a replicated table: releases committed replies, and closes connections
    /// whose replies are lost.
    fn follow_groups(&mut self) {
        let shared = self.shared.clone();
        let Some(groups) = &shared.replication else { return };
        for group in 0..groups.len() {
            self.follow(groups, group);
            self.submit(groups, group);
        }
        follow_functions(&shared);
        // If rows cannot be read, the users in force stay, and the next call reads them.
        let _ = follow_users(&shared);
    }

    fn follow(&mut self, groups: &Groups, group: usize) {
        loop {
            match groups.get(group).advance() {
                Progress::None => return,
                Progress::Began => self.shared.begin_term(group),
                Progress::Committed => {
                    let mut held = self.held[group].take_committed();
                    for connection in &held.connections {
                        self.release(group, connection);
                    }
                    held.deliver();
                }
                Progress::Lost => {
                    self.lose(group);
                    end_parked(&self.shared, group);
                    for connection in self.connections.iter_mut().flatten() {
                        let is_lost = |channel: &[u8]| groups.of_key(channel) == group;
                        connection.end_shard_subscriptions(&self.shared, is_lost);
                    }
                    self.shared.observers.tracking.invalidate_all();
                }
            }
        }
    }

    fn release(&mut self, group: usize, held: &HeldConnection) {
        let Some(Some(connection)) = self.connections.get_mut(held.token) else { return };
        if connection.client_id() == held.client {
            connection.release(group, held.end);
            connection.send(&self.shared);
            schedule(&mut self.scheduled, held.token, connection);
        }
    }

    fn fail(&mut self, held: &HeldConnection) {
        let Some(Some(connection)) = self.connections.get_mut(held.token) else { return };
        if connection.client_id() == held.client {
            connection.fail();
            schedule(&mut self.scheduled, held.token, connection);
        }
    }

    /// Recycles a list of served tokens.
    fn reuse(&mut self, mut tokens: Vec<usize>) {
        tokens.clear();
        tokens.append(&mut self.scheduled);
        self.scheduled = tokens;
    }

    fn close(&mut self, token: usize) {
        if let Some(mut connection) = self.connections[token].take() {
            self.deadlines.set(token, connection.timer, None);
            connection.close(&self.shared);
            // Closing the socket would deregister it as well.
            let _ = self.poll.registry().deregister(&mut connection.stream.socket);
            self.free.push(token);
        }
    }

    /// Closes clients whose timeout has passed.
    fn check_timeouts(&mut self) {
        let now = Instant::now();
        for token in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[token] else { continue };
            connection.check_timeout(&self.shared, now);
            // A scheduled connection is closed in its iteration.
            if connection.is_done() && !connection.is_scheduled {
                self.close(token);
            }
        }
    }

    /// Runs received requests, sends pending replies, and closes, within `drain_timeout`.
    fn drain(&mut self, events: &mut Events) -> std::io::Result<()> {
        let deadline = Instant::now() + self.shared.options.drain_timeout;
        self.accept_arrivals();
        for (token, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            connection.is_readable = true;
            schedule(&mut self.scheduled, token, connection);
        }
        loop {
            self.follow_groups();
            self.run_iteration();
            let waits = self.connections.iter().flatten().any(|c| c.has_replies());
            if Instant::now() >= deadline || self.scheduled.is_empty() && !waits {
                break;
            }
            self.poll_events(events, Duration::from_millis(20))?;
            self.schedule_woken();
        }
        for token in 0..self.connections.len() {
            self.close(token);
        }
        Ok(())
    }
}

/// The connections that have joined groups.
struct Connections<'a> {
    connections: &'a mut [Option<Box<Connection>>],
    buffer: &'a ReceiveBuffer,
}

impl Members for Connections<'_> {
    fn get(&mut self, connection: usize) -> Option<Member<'_>> {
        self.connections[connection].as_mut()?.member(self.buffer)
    }
}

/// Schedules a connection for the next iteration.
fn schedule(scheduled: &mut Vec<usize>, token: usize, connection: &mut Connection) {
    if !connection.is_scheduled {
        connection.is_scheduled = true;
        scheduled.push(token);
    }
}
