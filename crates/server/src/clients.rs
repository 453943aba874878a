//! Registry of connected clients, for CLIENT LIST and CLIENT KILL.
//!
//! Workers own the connections; the registry holds what other threads may see. A client is
//! registered exactly while its [`Registration`] lives.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};
use std::time::Instant;

use parking_lot::Mutex;

use crate::acl::user::User;
use crate::command::CommandIndex;
use crate::mailbox::{Completion, Mailbox, MessageLimits, PostOutcome};
use crate::net::wakeups::Wakeups;

/// Connected clients by id.
#[derive(Default)]
pub(crate) struct Clients {
    next_id: AtomicU64,
    connected: AtomicUsize,
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Clients whose command is parked, or waits for the end of CLIENT PAUSE.
    blocked: AtomicUsize,
    /// Clients that were closed because their messages exceeded a limit.
    overflows: AtomicU64,
    pub(crate) limits: MessageLimits,
}

/// The address of one end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Ip(SocketAddr),
    /// The path of the server's Unix socket, for both ends.
    Unix(Arc<str>),
}

impl Address {
    /// Whether the other end is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Address::Ip(address) => address.ip().is_loopback(),
            Address::Unix(_) => true,
        }
    }
}

impl fmt::Display for Address {
    /// As Redis shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "{path}:0"),
        }
    }
}

/// State of a client that all threads may see.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) peer: Address,
    pub(crate) local: Address,
    pub(crate) since: Instant,
    /// The SELECT index.
    pub(crate) table: AtomicUsize,
    /// Number of the last command, plus one.
    pub(crate) command: AtomicU16,
    /// Number of commands since MULTI, plus one; 0 without MULTI.
    pub(crate) queued: AtomicU32,
    /// Number of watches.
    pub(crate) watches: AtomicU32,
    /// The client that gets the invalidations of this one; 0: none.
    pub(crate) redirect: AtomicU64,
    /// Time of the last received bytes, in milliseconds after `since`.
    pub(crate) last_received_ms: AtomicU64,
    /// Set to close the connection.
    pub(crate) killed: AtomicBool,
    pub(crate) is_resp3: AtomicBool,
    pub(crate) names: Mutex<Names>,
    /// The user, once there is a session.
    user: Mutex<Option<Arc<User>>>,
    /// Subscriptions to channels, patterns and shard channels.
    pub(crate) subscriptions: [AtomicU32; 3],
    /// Bits of [`flag`].
    pub(crate) flags: AtomicU32,
    /// The parked command, if there is one.
    pub(crate) parked: Mutex<Option<Ticket>>,
    pub(crate) mailbox: Mailbox,
    registry: Arc<Clients>,
    /// The wake-up list of the worker that owns the connection.
    wakeups: Arc<Wakeups>,
    token: usize,
}

/// States of a client that others see.
pub(crate) mod flag {
    /// In MONITOR mode.
    pub(crate) const MONITOR: u32 = 1;
    /// Tracks keys.
    pub(crate) const TRACKING: u32 = 1 << 1;
    /// Tracks prefixes.
    pub(crate) const BROADCAST: u32 = 1 << 2;
    /// Disconnected.
    pub(crate) const GONE: u32 = 1 << 3;
    /// The next command waits for the end of CLIENT PAUSE.
    pub(crate) const PAUSED: u32 = 1 << 4;
    /// CLIENT NO-EVICT, which has no other effect.
    pub(crate) const NO_EVICT: u32 = 1 << 5;
    /// CLIENT NO-TOUCH.
    pub(crate) const NO_TOUCH: u32 = 1 << 6;
}

/// A call of CLIENT LIST or CLIENT INFO.
pub(crate) struct RunningCall {
    pub(crate) client: u64,
    /// `client|list`.
    pub(crate) command: String,
    /// Bytes of the request.
    pub(crate) request_bytes: usize,
}

/// Number of a parked command, in the order of arrival. The numbers of all clients differ.
pub(crate) type Ticket = u64;

/// Names that the client has set.
#[derive(Debug, Default, Clone)]
pub(crate) struct Names {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) library_version: String,
}

/// Keeps a client registered.
pub(crate) struct Registration {
    pub(crate) client: Arc<Client>,
}

impl Clients {
    /// Reserves one of `max` connections, if available.
    /// [`release_connection`](Self::release_connection) releases it.
    pub(crate) fn reserve_connection(&self, max: usize) -> bool {
        self.connected.fetch_update(Relaxed, Relaxed, |n| (n < max).then_some(n + 1)).is_ok()
    }

    /// Releases a reservation.
    pub(crate) fn release_connection(&self) {
        self.connected.fetch_sub(1, Relaxed);
    }

    /// Number of connections.
    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }

    /// Registers a client for which a connection is
    /// [reserved](Self::reserve_connection).
    pub(crate) fn register(
        self: &Arc<Self>,
        peer: Address,
        local: Address,
        wakeups: Arc<Wakeups>,
        token: usize,
    ) -> Registration {
        let client = Arc::new(Client {
            id: self.next_id.fetch_add(1, Relaxed) + 1,
            peer,
            local,
            since: Instant::now(),
            table: AtomicUsize::new(0),
            command: AtomicU16::new(0),
            queued: AtomicU32::new(0),
            watches: AtomicU32::new(0),
            redirect: AtomicU64::new(0),
            last_received_ms: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            is_resp3: AtomicBool::new(false),
            names: Mutex::default(),
            user: Mutex::default(),
            subscriptions: Default::default(),
            flags: AtomicU32::new(0),
            parked: Mutex::default(),
            mailbox: Mailbox::default(),
            registry: self.clone(),
            wakeups,
            token,
        });
        self.by_id.lock().insert(client.id, client.clone());
        Registration { client }
    }

    /// The client with this id.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// Number of clients whose command is parked, or waits for the end of CLIENT PAUSE.
    pub(crate) fn blocked(&self) -> usize {
        self.blocked.load(Relaxed)
    }

    /// Resets the number of [`overflows`](Self::overflows).
    pub(crate) fn reset_overflows(&self) {
        self.overflows.store(0, Relaxed);
    }

    /// Number of clients closed because their messages exceeded a limit.
    pub(crate) fn overflows(&self) -> u64 {
        self.overflows.load(Relaxed)
    }

    /// A snapshot of all clients, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.by_id.lock().values().cloned().collect()
    }
}

impl Client {
    /// Requests its worker to close the connection.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Relaxed);
        self.wakeups.wake(self.token);
    }

    /// Wakes its worker, which then serves it.
    pub(crate) fn wake(&self) {
        self.wakeups.wake(self.token);
    }

    /// Leaves a message, to be sent after the messages before it. A client whose messages exceed
    /// the limits is closed.
    pub(crate) fn push(&self, message: &Arc<[u8]>) {
        match self.mailbox.post(message, &self.registry.limits) {
            PostOutcome::First => self.wakeups.wake(self.token),
            PostOutcome::Overflow => {
                self.registry.overflows.fetch_add(1, Relaxed);
                self.kill();
            }
            PostOutcome::Queued | PostOutcome::Closed => {}
        }
    }

    /// Ends the parked command. The caller has made sure that nobody else ends it.
    pub(crate) fn complete(&self, completion: Completion) {
        if self.mailbox.complete(completion) == PostOutcome::First {
            self.wakeups.wake(self.token);
        }
    }

    /// Counts an overflow if its messages have exceeded the soft limit for too long. Returns
    /// whether they have; the caller then closes the client.
    pub(crate) fn check_messages(&self, now: Instant) -> bool {
        let has_timed_out = self.mailbox.has_timed_out(now, &self.registry.limits);
        if has_timed_out {
            self.registry.overflows.fetch_add(1, Relaxed);
        }
        has_timed_out
    }

    /// Records the user.
    pub(crate) fn set_user(&self, user: &Arc<User>) {
        *self.user.lock() = Some(user.clone());
    }

    pub(crate) fn user(&self) -> Option<Arc<User>> {
        self.user.lock().clone()
    }

    /// Whether this is the name of the user.
    pub(crate) fn is_of_user(&self, name: &[u8]) -> bool {
        self.user.lock().as_ref().is_some_and(|user| user.name == name)
    }

    /// Records that a command is parked, or no longer.
    pub(crate) fn set_parked(&self, ticket: Option<Ticket>) {
        let before = std::mem::replace(&mut *self.parked.lock(), ticket);
        match (before, ticket) {
            (None, Some(_)) => drop(self.registry.blocked.fetch_add(1, Relaxed)),
            (Some(_), None) => drop(self.registry.blocked.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    /// Records that the next command waits for the end of CLIENT PAUSE, or no longer. As in Redis,
    /// the client counts as blocked meanwhile.
    pub(crate) fn set_paused(&self, is_paused: bool) {
        let before = match is_paused {
            true => self.flags.fetch_or(flag::PAUSED, Relaxed),
            false => self.flags.fetch_and(!flag::PAUSED, Relaxed),
        };
        match (before & flag::PAUSED != 0, is_paused) {
            (false, true) => drop(self.registry.blocked.fetch_add(1, Relaxed)),
            (true, false) => drop(self.registry.blocked.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    /// Sets or clears flags.
    pub(crate) fn set_flags(&self, flags: u32, is_set: bool) {
        match is_set {
            true => self.flags.fetch_or(flags, Relaxed),
            false => self.flags.fetch_and(!flags, Relaxed),
        };
    }

    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// Whether it has disconnected.
    pub(crate) fn is_gone(&self) -> bool {
        self.has_flag(flag::GONE)
    }

    /// Whether it has subscriptions.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Relaxed) > 0)
    }

    /// Whether it watches keys.
    pub(crate) fn is_watching(&self) -> bool {
        self.watches.load(Relaxed) > 0
    }

    /// Appends the client's line of CLIENT LIST. `call` is the running call of that command, which
    /// is known in detail. Of buffers only the sizes that Redis's tools read are counted.
    pub(crate) fn describe(
        &self,
        commands: &CommandIndex,
        call: Option<&RunningCall>,
        out: &mut String,
    ) {
        let names = self.names.lock().clone();
        let age = self.since.elapsed();
        let idle =
            (age.as_millis() as u64).saturating_sub(self.last_received_ms.load(Relaxed)) / 1000;
        let call = call.filter(|call| call.client == self.id);
        let command = match (call, self.command.load(Relaxed)) {
            (Some(call), _) => &call.command,
            (None, 0) => "NULL",
            (None, number) => commands[usize::from(number) - 1].name,
        };
        let queued = i64::from(self.queued.load(Relaxed)) - 1;
        let request_bytes = call.map_or(0, |call| call.request_bytes);
        let mailbox_bytes = self.mailbox.bytes();
        let redirect = match self.redirect.load(Relaxed) {
            0 => -1,
            id => id as i64,
        };
        let mut flags = String::new();
        for (flag, is_set) in [
            ('O', self.has_flag(flag::MONITOR)),
            ('b', self.parked.lock().is_some() || self.has_flag(flag::PAUSED)),
            ('P', self.is_subscriber()),
            ('U', matches!(self.peer, Address::Unix(_))),
            ('t', self.has_flag(flag::TRACKING)),
            ('B', self.has_flag(flag::BROADCAST)),
            ('e', self.has_flag(flag::NO_EVICT)),
            ('T', self.has_flag(flag::NO_TOUCH)),
        ] {
            flags.extend(is_set.then_some(flag));
        }
        let flags = if flags.is_empty() { "N" } else { &flags };
        let [channels, patterns, shard_channels] =
            [0, 1, 2].map(|kind: usize| self.subscriptions[kind].load(Relaxed));
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={idle} flags={flags} db={} \
             sub={channels} psub={patterns} ssub={shard_channels} multi={queued} \
             watch={} qbuf={request_bytes} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 \
             omem={mailbox_bytes} tot-mem={} events=r cmd={command} user={} redir={redirect} \
             resp={} lib-name={} lib-ver={}",
            self.id,
            self.peer,
            self.local,
            names.name,
            age.as_secs(),
            self.table.load(Relaxed),
            self.watches.load(Relaxed),
            request_bytes + mailbox_bytes,
            self.user().map_or_else(|| "default".to_owned(), |user| user.shown_name()),
            if self.is_resp3.load(Relaxed) { 3 } else { 2 },
            names.library,
            names.library_version,
        );
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.client.set_parked(None);
        self.client.set_paused(false);
        self.client.set_flags(flag::GONE, true);
        self.client.registry.by_id.lock().remove(&self.client.id);
        self.client.registry.release_connection();
    }
}
