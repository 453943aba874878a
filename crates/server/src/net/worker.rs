//! The event loop of a worker thread: read and run, sync, send.
//!
//! Each worker has its own poll and its own clients. One iteration serves all ready clients in
//! three steps: run their commands; apply their batched writes and, under [`Fsync::Always`], sync
//! once; send the replies. So many clients share one log append and one sync, and no reply is sent
//! before its write is as durable as promised.
//!
//! A client is read once per iteration, so a busy client does not starve others.
//!
//! Invariant: a connection with remaining work is in `scheduled`; all others wait for an event.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};
use parking_lot::Mutex;

use super::accept::Arrival;
use super::connection::Connection;
use super::timeouts;
use crate::Fsync;
use crate::shared::Shared;
use crate::store::write_batcher::WriteBatcher;

const WAKE: Token = Token(usize::MAX);
/// Bytes per read.
const SCRATCH_BYTES: usize = 64 << 10;

/// New clients and wake-ups of a worker.
pub(crate) struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    pub(crate) waker: Arc<Waker>,
}

impl Inbox {
    /// Hands a client to the worker.
    pub(crate) fn put(&self, arrival: Arrival) {
        self.arrivals.lock().push(arrival);
        // A worker that cannot be woken still checks its inbox in its next iteration.
        let _ = self.waker.wake();
    }
}

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
    batcher: WriteBatcher,
    scratch: Vec<u8>,
}

impl Worker {
    /// A worker without clients, and its inbox.
    pub(crate) fn new(index: usize, shared: Arc<Shared>) -> std::io::Result<(Self, Arc<Inbox>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let inbox = Arc::new(Inbox { arrivals: Mutex::default(), waker });
        let batcher = WriteBatcher::new(shared.databases.len());
        let worker = Worker {
            index,
            shared,
            poll,
            inbox: inbox.clone(),
            connections: Vec::new(),
            free: Vec::new(),
            scheduled: Vec::new(),
            batcher,
            scratch: vec![0; SCRATCH_BYTES],
        };
        Ok((worker, inbox))
    }

    /// Runs until the server stops, and drains.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        let interval = timeouts::interval(&self.shared.options);
        let mut events = Events::with_capacity(1024);
        let mut next_check = Instant::now() + interval;
        while !self.shared.stop.is_stopping() {
            let wait = next_check.saturating_duration_since(Instant::now());
            self.poll_events(&mut events, wait)?;
            self.accept_arrivals();
            self.run_iteration();
            if Instant::now() >= next_check {
                self.check_timeouts();
                if self.index == 0 {
                    crate::memcached::flush_if_due(&self.shared, &mut self.batcher);
                }
                next_check = Instant::now() + interval;
            }
        }
        self.drain(&mut events)
    }

    /// Waits for events unless there is work, and schedules their connections.
    fn poll_events(&mut self, events: &mut Events, wait: Duration) -> std::io::Result<()> {
        let wait = if self.scheduled.is_empty() { wait } else { Duration::ZERO };
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        for event in events.iter() {
            let Token(token) = event.token();
            if event.token() == WAKE {
                // A new client, a killed client, or a stop.
                self.schedule_killed();
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

    fn schedule_killed(&mut self) {
        let now = Instant::now();
        for (token, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            connection.check_timeout(&self.shared, now);
            if connection.is_done() {
                schedule(&mut self.scheduled, token, connection);
            }
        }
    }

    fn accept_arrivals(&mut self) {
        let arrivals = std::mem::take(&mut *self.inbox.arrivals.lock());
        for arrival in arrivals {
            self.register(arrival);
        }
    }

    fn register(&mut self, Arrival { mut stream, peer, protocol }: Arrival) {
        let token = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(&mut stream, Token(token), interest);
        let Ok(local) = registered.and_then(|()| stream.local_addr()) else {
            // The client has disconnected; its token is free again.
            self.free.push(token);
            self.shared.clients.leave();
            return;
        };
        // A reply should not wait for the next one. If the option fails, it is only slower.
        let _ = stream.set_nodelay(true);
        let registration = self.shared.clients.register(peer, local, self.inbox.waker.clone());
        let mut connection =
            Box::new(Connection::new(&self.shared, protocol, stream, registration));
        schedule(&mut self.scheduled, token, &mut connection);
        self.connections[token] = Some(connection);
    }

    /// Serves all scheduled connections.
    fn run_iteration(&mut self) {
        if self.scheduled.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        let shared = &*shared;
        self.batcher.clock = Instant::now();
        let tokens = std::mem::take(&mut self.scheduled);
        for token in &tokens {
            let Some(connection) = &mut self.connections[*token] else { continue };
            connection.is_scheduled = false;
            connection.serve(shared, &mut self.batcher, &mut self.scratch);
        }
        for token in &tokens {
            let Some(connection) = &mut self.connections[*token] else { continue };
            connection.answer_batched_sets(shared, &mut self.batcher);
        }
        let sync_error = match shared.options.fsync {
            Fsync::Always => self.batcher.sync(&shared.databases).err(),
            Fsync::EverySecond | Fsync::Never => None,
        };
        let sync_error = sync_error.map(|error| {
            shared.metrics.failed_syncs.fetch_add(1, Relaxed);
            format!("ERR the write may not be durable: {error}")
        });
        for token in &tokens {
            let Some(connection) = &mut self.connections[*token] else { continue };
            if let Some(text) = &sync_error {
                connection.retract(text);
            }
            connection.send(shared);
            if connection.is_done() {
                self.close(*token);
            } else if connection.has_work(shared) {
                schedule(&mut self.scheduled, *token, connection);
            }
        }
        self.batcher.finish_iteration();
        self.shared.metrics.record(self.index, &mut self.batcher.samples);
        self.reuse(tokens);
    }

    /// Recycles a list of served tokens.
    fn reuse(&mut self, mut tokens: Vec<usize>) {
        tokens.clear();
        tokens.append(&mut self.scheduled);
        self.scheduled = tokens;
    }

    fn close(&mut self, token: usize) {
        if let Some(mut connection) = self.connections[token].take() {
            connection.close(&self.shared);
            // Closing the socket would deregister it as well.
            let _ = self.poll.registry().deregister(&mut connection.stream);
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
            self.run_iteration();
            let waits = self.connections.iter().flatten().any(|c| c.has_replies());
            if Instant::now() >= deadline || self.scheduled.is_empty() && !waits {
                break;
            }
            self.poll_events(events, Duration::from_millis(20))?;
        }
        for token in 0..self.connections.len() {
            self.close(token);
        }
        Ok(())
    }
}

/// Schedules a connection for the next iteration.
fn schedule(scheduled: &mut Vec<usize>, token: usize, connection: &mut Connection) {
    if !connection.is_scheduled {
        connection.is_scheduled = true;
        scheduled.push(token);
    }
}
