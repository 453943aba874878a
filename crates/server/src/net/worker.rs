//! A turn: read and run, then sync, then answer.
//!
//! Each worker is a thread with its own poll and its own clients. What becomes ready at once is
//! served in one turn, in three steps: every client's commands run; what they wrote is applied and,
//! under [`Fsync::Always`], synced once for all; then replies are sent. So many clients share one
//! log append and one sync, and no reply leaves before what it acknowledges is as durable as was
//! promised.
//!
//! A client is served one scratch buffer a turn, so one that sends without pause does not keep the
//! others waiting.
//!
//! Invariant: a connection that has work left stands in `scheduled`; all others wait for an event.

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
use crate::store::turn::Turn;

const WAKE: Token = Token(usize::MAX);
/// How much a client is read at a time.
const SCRATCH_BYTES: usize = 64 << 10;

/// How clients and wake-ups come to a worker.
pub(crate) struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    pub(crate) waker: Arc<Waker>,
}

impl Inbox {
    /// Gives a client to the worker.
    pub(crate) fn put(&self, arrival: Arrival) {
        self.arrivals.lock().push(arrival);
        // A worker that cannot be woken still looks into its inbox at its next turn.
        let _ = self.waker.wake();
    }
}

/// One thread's clients.
pub(crate) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    poll: Poll,
    inbox: Arc<Inbox>,
    /// By token.
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    /// Who is to be served in this turn.
    scheduled: Vec<usize>,
    turn: Turn,
    scratch: Vec<u8>,
}

impl Worker {
    /// A worker without clients, and the way to it.
    pub(crate) fn new(index: usize, shared: Arc<Shared>) -> std::io::Result<(Self, Arc<Inbox>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let inbox = Arc::new(Inbox { arrivals: Mutex::default(), waker });
        let turn = Turn::new(shared.databases.len());
        let worker = Worker {
            index,
            shared,
            poll,
            inbox: inbox.clone(),
            connections: Vec::new(),
            free: Vec::new(),
            scheduled: Vec::new(),
            turn,
            scratch: vec![0; SCRATCH_BYTES],
        };
        Ok((worker, inbox))
    }

    /// Serves until the server stops, and drains.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        let interval = timeouts::interval(&self.shared.options);
        let mut events = Events::with_capacity(1024);
        let mut next_check = Instant::now() + interval;
        while !self.shared.stop.is_stopping() {
            let wait = next_check.saturating_duration_since(Instant::now());
            self.poll_events(&mut events, wait)?;
            self.take_arrivals();
            self.take_turn();
            if Instant::now() >= next_check {
                self.check_times();
                if self.index == 0 {
                    crate::memcached::flush_if_due(&self.shared, &mut self.turn);
                }
                next_check = Instant::now() + interval;
            }
        }
        self.drain(&mut events)
    }

    /// Waits for events unless there is work, and schedules whom they concern.
    fn poll_events(&mut self, events: &mut Events, wait: Duration) -> std::io::Result<()> {
        let wait = if self.scheduled.is_empty() { wait } else { Duration::ZERO };
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        for event in events.iter() {
            let Token(token) = event.token();
            if event.token() == WAKE {
                // Someone arrives, is killed, or the server stops.
                self.schedule_killed();
                continue;
            }
            let Some(Some(connection)) = self.connections.get_mut(token) else { continue };
            connection.is_readable |= event.is_readable() || event.is_error();
            connection.is_end_near |= event.is_read_closed();
            connection.is_writable |= event.is_writable();
            schedule(&mut self.scheduled, token, connection);
        }
        Ok(())
    }

    fn schedule_killed(&mut self) {
        let now = Instant::now();
        for (token, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            connection.check_time(&self.shared, now);
            if connection.is_done() {
                schedule(&mut self.scheduled, token, connection);
            }
        }
    }

    fn take_arrivals(&mut self) {
        let arrivals = std::mem::take(&mut *self.inbox.arrivals.lock());
        for arrival in arrivals {
            self.adopt(arrival);
        }
    }

    fn adopt(&mut self, Arrival { mut stream, peer, language }: Arrival) {
        let token = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(&mut stream, Token(token), interest);
        let Ok(local) = registered.and_then(|()| stream.local_addr()) else {
            // The client has gone already; its place is free again.
            self.free.push(token);
            self.shared.clients.leave();
            return;
        };
        // A reply should not wait for the next one. Where it cannot be had, it is only slower.
        let _ = stream.set_nodelay(true);
        let registration = self.shared.clients.register(peer, local, self.inbox.waker.clone());
        let mut connection =
            Box::new(Connection::new(&self.shared, language, stream, registration));
        schedule(&mut self.scheduled, token, &mut connection);
        self.connections[token] = Some(connection);
    }

    /// Serves everyone who is scheduled.
    fn take_turn(&mut self) {
        if self.scheduled.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        let shared = &*shared;
        self.turn.clock = Instant::now();
        let tokens = std::mem::take(&mut self.scheduled);
        for token in &tokens {
            let Some(connection) = &mut self.connections[*token] else { continue };
            connection.is_scheduled = false;
            connection.serve(shared, &mut self.turn, &mut self.scratch);
        }
        for token in &tokens {
            let Some(connection) = &mut self.connections[*token] else { continue };
            connection.answer_gathered(shared, &mut self.turn);
        }
        let lost = match shared.options.fsync {
            Fsync::Always => self.turn.sync(&shared.databases).err(),
            Fsync::EverySecond | Fsync::Never => None,
        };
        let lost = lost.map(|error| {
            shared.metrics.failed_syncs.fetch_add(1, Relaxed);
            format!("ERR the write may not be durable: {error}")
        });
        for token in &tokens {
            let Some(connection) = &mut self.connections[*token] else { continue };
            if let Some(text) = &lost {
                connection.retract(text);
            }
            connection.send(shared);
            if connection.is_done() {
                self.close(*token);
            } else if connection.has_work(shared) {
                schedule(&mut self.scheduled, *token, connection);
            }
        }
        self.turn.end();
        self.shared.metrics.record(self.index, &mut self.turn.samples);
        self.reuse(tokens);
    }

    /// Keeps the memory of a list of tokens that has been served.
    fn reuse(&mut self, mut tokens: Vec<usize>) {
        tokens.clear();
        tokens.append(&mut self.scheduled);
        self.scheduled = tokens;
    }

    fn close(&mut self, token: usize) {
        if let Some(mut connection) = self.connections[token].take() {
            connection.close(&self.shared);
            // Closing the socket would do it as well.
            let _ = self.poll.registry().deregister(&mut connection.stream);
            self.free.push(token);
        }
    }

    /// Closes those who have taken too long.
    fn check_times(&mut self) {
        let now = Instant::now();
        for token in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[token] else { continue };
            connection.check_time(&self.shared, now);
            // One that is scheduled is closed by its turn.
            if connection.is_done() && !connection.is_scheduled {
                self.close(token);
            }
        }
    }

    /// Runs what has been received, sends what waits, and closes, within the time there is.
    fn drain(&mut self, events: &mut Events) -> std::io::Result<()> {
        let deadline = Instant::now() + self.shared.options.drain_timeout;
        self.take_arrivals();
        for (token, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            connection.is_readable = true;
            schedule(&mut self.scheduled, token, connection);
        }
        loop {
            self.take_turn();
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

/// Lets a connection be served in the next turn.
fn schedule(scheduled: &mut Vec<usize>, token: usize, connection: &mut Connection) {
    if !connection.is_scheduled {
        connection.is_scheduled = true;
        scheduled.push(token);
    }
}
