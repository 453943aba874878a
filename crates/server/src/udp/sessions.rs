//! Response cache per client, so that a retransmitted packet is not executed again.
//!
//! ```text
//! client   settled: 41      42 ─ response   43 ─ response   44 ─ response
//!          older packets    duplicates of these get the cached response
//!          are complete
//! ```
//!
//! A packet states how far back its client still waits. Older responses are dropped, and older
//! packets are ignored: they were delayed in the network, and the client has the response to
//! another copy. So a packet is executed once.
//!
//! Only packets that may have changed something are cached: lookups can be repeated.
//!
//! A client is identified by its address, which another client may reuse. Clients start at a random
//! sequence number, so a packet older than the settled ones by more than any delay
//! ([`MAX_SEQUENCE_DELAY`]) is the first of a new client.
//!
//! Invariant: memory is bounded by packets per client, clients, and bytes. The least recently
//! active half of the clients is evicted at a time.
//!
//! The thesis retransmits packets and relies on PUT being idempotent, which does not prevent a late
//! duplicate from undoing a newer write.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// Maximum cached packets per client.
const MAX_PACKETS: usize = siltstone_client::in_flight::MAX_REMEMBERED_PACKETS;
/// Maximum clients per port.
const MAX_CLIENTS: usize = 4096;
/// Maximum bytes of cached responses per port.
const MAX_BYTES: usize = 16 << 20;

/// Maximum distance of a delayed packet: four billion. Clients draw their first number from a much
/// larger range, so two clients at one address are further apart than this.
const MAX_SEQUENCE_DELAY: u64 = 1 << 32;

/// Clients of a port.
pub(super) struct Sessions {
    clients: HashMap<SocketAddr, ClientCache>,
    bytes: usize,
    /// Whether a client was ever evicted: an unknown client may be one of those.
    has_evicted: bool,
    /// Logical time in packets, for the eviction order.
    time: u64,
    max_clients: usize,
    max_bytes: usize,
}

#[derive(Default)]
struct ClientCache {
    /// Older packets are complete.
    settled: u64,
    /// Executed packets in order, with their responses.
    executed: VecDeque<(u64, Box<[u8]>)>,
    /// Packets up to this one may have been executed before the client was evicted, with responses
    /// lost.
    maybe_executed: Option<u64>,
    last_active: u64,
}

impl ClientCache {
    /// Bytes of cached responses.
    fn bytes(&self) -> usize {
        self.executed.iter().map(|(_, responses)| responses.len()).sum()
    }
}

/// Classification of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PacketStatus<'s> {
    /// Not seen before: execute it.
    New,
    /// Duplicate: repeat this response.
    Duplicate(&'s [u8]),
    /// Older than the settled packets: drop it.
    Delayed,
    /// Retransmission that may have been executed: do not execute writes.
    Forgotten,
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions::with_limits(MAX_CLIENTS, MAX_BYTES)
    }
}

impl Sessions {
    fn with_limits(max_clients: usize, max_bytes: usize) -> Self {
        Sessions {
            clients: HashMap::new(),
            bytes: 0,
            has_evicted: false,
            time: 0,
            max_clients,
            max_bytes,
        }
    }

    /// Classifies a packet; its client waits for packets from `oldest_offset` before it on.
    pub(super) fn classify(
        &mut self,
        client: SocketAddr,
        sequence: u64,
        oldest_offset: u32,
        attempt: u16,
    ) -> PacketStatus<'_> {
        self.time += 1;
        if self.clients.len() >= self.max_clients && !self.clients.contains_key(&client) {
            self.evict_half();
        }
        let settled = sequence.saturating_sub(oldest_offset.into());
        let maybe_executed = self.has_evicted.then_some(sequence);
        let new = || ClientCache { settled, maybe_executed, ..ClientCache::default() };
        let session = self.clients.entry(client).or_insert_with(new);
        if session.settled.saturating_sub(sequence) > MAX_SEQUENCE_DELAY {
            self.bytes -= session.bytes();
            *session = new();
        }
        session.last_active = self.time;
        if sequence < session.settled {
            return PacketStatus::Delayed;
        }
        session.settled = session.settled.max(settled);
        while session.executed.front().is_some_and(|(number, _)| *number < session.settled) {
            let forgotten = session.executed.pop_front();
            self.bytes -= forgotten.map_or(0, |(_, responses)| responses.len());
        }
        match session.executed.iter().rposition(|(number, _)| *number == sequence) {
            Some(at) => PacketStatus::Duplicate(&session.executed[at].1),
            None if attempt > 0 && session.maybe_executed >= Some(sequence) => {
                PacketStatus::Forgotten
            }
            None => PacketStatus::New,
        }
    }

    /// Caches the response to a packet.
    pub(super) fn cache(&mut self, client: SocketAddr, sequence: u64, responses: &[u8]) {
        if self.bytes + responses.len() > self.max_bytes {
            self.evict_half();
        }
        let Some(session) = self.clients.get_mut(&client) else { return };
        if session.executed.len() >= MAX_PACKETS
            && let Some((number, oldest)) = session.executed.pop_front()
        {
            self.bytes -= oldest.len();
            // It must not be executed again.
            session.settled = session.settled.max(number + 1);
        }
        self.bytes += responses.len();
        session.executed.push_back((sequence, responses.into()));
    }

    /// Evicts the least recently active half of the clients.
    fn evict_half(&mut self) {
        self.has_evicted = true;
        let mut activity: Vec<_> =
            self.clients.values().map(|session| session.last_active).collect();
        activity.sort_unstable();
        let Some(middle) = activity.get(activity.len() / 2).copied() else { return };
        self.clients.retain(|_, session| session.last_active > middle);
        self.bytes = self.clients.values().map(ClientCache::bytes).sum();
    }

    /// Bytes of cached responses.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn duplicate_packet_gets_the_cached_response() {
        let mut sessions = Sessions::default();
        assert_eq!(sessions.classify(client(1), 10, 0, 0), PacketStatus::New);
        sessions.cache(client(1), 10, b"ten");
        assert_eq!(sessions.classify(client(1), 12, 2, 0), PacketStatus::New);
        sessions.cache(client(1), 12, b"twelve");
        assert_eq!(sessions.classify(client(1), 10, 0, 1), PacketStatus::Duplicate(b"ten"));
        // 11 is still in flight, and arrives late.
        assert_eq!(sessions.classify(client(1), 11, 1, 1), PacketStatus::New);
        // The client has the responses before 12.
        assert_eq!(sessions.classify(client(1), 13, 1, 0), PacketStatus::New);
        assert_eq!(sessions.classify(client(1), 10, 0, 1), PacketStatus::Delayed);
        assert_eq!(sessions.classify(client(1), 11, 0, 1), PacketStatus::Delayed);
        assert_eq!(sessions.classify(client(1), 12, 0, 1), PacketStatus::Duplicate(b"twelve"));
        assert_eq!(sessions.bytes(), 6);
        // Another client has its own numbers.
        assert_eq!(sessions.classify(client(2), 12, 0, 0), PacketStatus::New);
        // The first copy of its first packet was lost.
        assert_eq!(sessions.classify(client(3), 12, 0, 1), PacketStatus::New);
    }

    /// Ports are reused: a client with a lower first number must not be taken for its predecessor's
    /// delayed packet.
    #[test]
    fn reused_address_is_served_from_any_first_sequence_number() {
        let (old, young) = (1 << 62, 5);
        let mut sessions = Sessions::default();
        assert_eq!(sessions.classify(client(1), old, 0, 0), PacketStatus::New);
        sessions.cache(client(1), old, b"old");
        assert_eq!(sessions.classify(client(1), young, 0, 0), PacketStatus::New);
        assert_eq!(sessions.bytes(), 0);
        sessions.cache(client(1), young, b"young");
        assert_eq!(sessions.classify(client(1), young, 0, 1), PacketStatus::Duplicate(b"young"));
        assert_eq!(sessions.classify(client(1), young + 1, 0, 0), PacketStatus::New);
        assert_eq!(sessions.classify(client(1), young, 0, 1), PacketStatus::Delayed);
        // Delayed packets are not that far behind.
        assert_eq!(
            sessions.classify(client(1), MAX_SEQUENCE_DELAY + young, 0, 0),
            PacketStatus::New
        );
        assert_eq!(sessions.classify(client(1), young + 1, 0, 1), PacketStatus::Delayed);
    }

    #[test]
    fn packet_of_an_evicted_client_is_not_executed_again() {
        let mut sessions = Sessions::with_limits(2, 10_000);
        assert_eq!(sessions.classify(client(1), 50, 0, 0), PacketStatus::New);
        sessions.cache(client(1), 50, b"fifty");
        for other in [2, 3, 4] {
            sessions.classify(client(other), 7, 0, 0);
        }
        // A newer packet arrives before the retransmission of an older one whose response was lost.
        assert_eq!(sessions.classify(client(1), 60, 20, 0), PacketStatus::New);
        assert_eq!(sessions.classify(client(1), 50, 10, 1), PacketStatus::Forgotten);
        assert_eq!(sessions.classify(client(1), 60, 20, 1), PacketStatus::Forgotten);
        // A first transmission was not executed before, and newer packets meet a known client.
        assert_eq!(sessions.classify(client(1), 51, 11, 0), PacketStatus::New);
        assert_eq!(sessions.classify(client(1), 61, 21, 1), PacketStatus::New);
    }

    #[test]
    fn memory_is_bounded_and_idle_clients_are_evicted_first() {
        let mut sessions = Sessions::with_limits(100, 10_000);
        for round in 0..1000u64 {
            let port = (round % 300) as u16;
            sessions.classify(client(port), round, 0, 0);
            sessions.cache(client(port), round, &[0; 300]);
            // One client stays active.
            sessions.classify(client(9999), round, round as u32, 0);
            assert!(sessions.clients.len() <= 100 && sessions.bytes() <= 10_000);
            let all = sessions.clients.values().flat_map(|session| &session.executed);
            assert_eq!(sessions.bytes(), all.map(|(_, responses)| responses.len()).sum::<usize>());
        }
        assert!(sessions.clients.contains_key(&client(9999)));
        assert_eq!(sessions.classify(client(8888), 5, 0, 1), PacketStatus::Forgotten);
        assert_eq!(sessions.classify(client(8887), 5, 0, 0), PacketStatus::New);
        let mut one = Sessions::default();
        for number in 0..5000 {
            one.classify(client(1), number, number as u32, 0);
            one.cache(client(1), number, b"x");
        }
        assert_eq!(one.bytes(), MAX_PACKETS);
        // An evicted packet is not executed again.
        assert_eq!(one.classify(client(1), 7, 7, 1), PacketStatus::Delayed);
        assert_eq!(one.classify(client(1), 4999, 4999, 1), PacketStatus::Duplicate(b"x"));
    }
}
