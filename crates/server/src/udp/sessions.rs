//! What each client was answered, until it says that it has heard.
//!
//! ```text
//! client   settled: 41      42 ─ answers   43 ─ answers   44 ─ answers
//!          what is older    these packets, when they come again, get the same answers
//!          is done with
//! ```
//!
//! A client's packet says how far back it still waits; answers that are older are forgotten, and a
//! packet that is older is dropped: it strayed in the network and its client has heard the answer to
//! another copy. So a packet is done once.
//!
//! Only packets that may have changed something are kept: a look-up can be done again.
//!
//! A client is an address, which another may have when the first is gone. It begins with a number of its own, so
//! a packet that is older than what is done with by more than any that strays ([`LONGEST_WAY`]) is the first of
//! another client.
//!
//! Invariant: memory is bounded: by packets a client, and by clients and bytes in all; the clients
//! that were silent longest are forgotten first, half of all at a time.
//!
//! Source: ours. The thesis repeats packets and relies on PUT being idempotent, which does not keep
//! a late copy from undoing a younger write.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// Packets of a client.
const MAX_PACKETS: usize = siltstone_client::flights::MAX_KEPT;
/// Clients of a port.
const MAX_CLIENTS: usize = 4096;
/// Bytes of answers at a port.
const MAX_BYTES: usize = 16 << 20;

/// Packets that a client could send while one of them strays in the network: four billion. Clients draw their first
/// number among so many more that two at one address are further apart than this.
const LONGEST_WAY: u64 = 1 << 32;

/// The clients of a port.
pub(super) struct Sessions {
    clients: HashMap<SocketAddr, Session>,
    bytes: usize,
    /// Whether a client was ever forgotten: one that is unknown may then have been known.
    has_forgotten: bool,
    /// Packets seen, to tell who was silent longest.
    time: u64,
    max_clients: usize,
    max_bytes: usize,
}

#[derive(Default)]
struct Session {
    /// Packets before this one are done with.
    settled: u64,
    /// In the order in which they were done.
    done: VecDeque<(u64, Box<[u8]>)>,
    /// Packets up to this one may have been done before the client was forgotten, and their answers with it.
    doubtful: Option<u64>,
    heard: u64,
}

impl Session {
    /// Bytes of the answers that are kept.
    fn bytes(&self) -> usize {
        self.done.iter().map(|(_, answers)| answers.len()).sum()
    }
}

/// What a packet is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen<'s> {
    /// To be done.
    New,
    /// To be answered so again.
    Again(&'s [u8]),
    /// To be dropped.
    Stray,
    /// It was sent before and may have been done: whatever changes something must not be.
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
            has_forgotten: false,
            time: 0,
            max_clients,
            max_bytes,
        }
    }

    /// What a packet with this number is, whose client waits for packets from `behind` before it on.
    pub(super) fn see(
        &mut self,
        client: SocketAddr,
        sequence: u64,
        behind: u32,
        attempt: u16,
    ) -> Seen<'_> {
        self.time += 1;
        if self.clients.len() >= self.max_clients && !self.clients.contains_key(&client) {
            self.forget_half();
        }
        let settled = sequence.saturating_sub(behind.into());
        let doubtful = self.has_forgotten.then_some(sequence);
        let new = || Session { settled, doubtful, ..Session::default() };
        let session = self.clients.entry(client).or_insert_with(new);
        if session.settled.saturating_sub(sequence) > LONGEST_WAY {
            self.bytes -= session.bytes();
            *session = new();
        }
        session.heard = self.time;
        if sequence < session.settled {
            return Seen::Stray;
        }
        session.settled = session.settled.max(settled);
        while session.done.front().is_some_and(|(number, _)| *number < session.settled) {
            let forgotten = session.done.pop_front();
            self.bytes -= forgotten.map_or(0, |(_, answers)| answers.len());
        }
        match session.done.iter().rposition(|(number, _)| *number == sequence) {
            Some(at) => Seen::Again(&session.done[at].1),
            None if attempt > 0 && session.doubtful >= Some(sequence) => Seen::Forgotten,
            None => Seen::New,
        }
    }

    /// Keeps what a packet was answered.
    pub(super) fn keep(&mut self, client: SocketAddr, sequence: u64, answers: &[u8]) {
        if self.bytes + answers.len() > self.max_bytes {
            self.forget_half();
        }
        let Some(session) = self.clients.get_mut(&client) else { return };
        if session.done.len() >= MAX_PACKETS
            && let Some((number, oldest)) = session.done.pop_front()
        {
            self.bytes -= oldest.len();
            // It must not be done again.
            session.settled = session.settled.max(number + 1);
        }
        self.bytes += answers.len();
        session.done.push_back((sequence, answers.into()));
    }

    /// Forgets the half of the clients that were silent longest.
    fn forget_half(&mut self) {
        self.has_forgotten = true;
        let mut heard: Vec<_> = self.clients.values().map(|session| session.heard).collect();
        heard.sort_unstable();
        let Some(middle) = heard.get(heard.len() / 2).copied() else { return };
        self.clients.retain(|_, session| session.heard > middle);
        self.bytes = self.clients.values().map(Session::bytes).sum();
    }

    /// Bytes that are kept.
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
    fn is_a_packet_that_comes_again_answered_from_memory() {
        let mut sessions = Sessions::default();
        assert_eq!(sessions.see(client(1), 10, 0, 0), Seen::New);
        sessions.keep(client(1), 10, b"ten");
        assert_eq!(sessions.see(client(1), 12, 2, 0), Seen::New);
        sessions.keep(client(1), 12, b"twelve");
        assert_eq!(sessions.see(client(1), 10, 0, 1), Seen::Again(b"ten"));
        // 11 is under way still, and comes late.
        assert_eq!(sessions.see(client(1), 11, 1, 1), Seen::New);
        // The client has heard all before 12.
        assert_eq!(sessions.see(client(1), 13, 1, 0), Seen::New);
        assert_eq!(sessions.see(client(1), 10, 0, 1), Seen::Stray);
        assert_eq!(sessions.see(client(1), 11, 0, 1), Seen::Stray);
        assert_eq!(sessions.see(client(1), 12, 0, 1), Seen::Again(b"twelve"));
        assert_eq!(sessions.bytes(), 6);
        // Another client has its own numbers.
        assert_eq!(sessions.see(client(2), 12, 0, 0), Seen::New);
        // The first copy of its first packet was lost.
        assert_eq!(sessions.see(client(3), 12, 0, 1), Seen::New);
    }

    /// Ports are used again: whoever draws a lower first number must not be taken for a stray of who was there before.
    #[test]
    fn is_another_client_at_an_address_served_whatever_number_it_begins_with() {
        let (old, young) = (1 << 62, 5);
        let mut sessions = Sessions::default();
        assert_eq!(sessions.see(client(1), old, 0, 0), Seen::New);
        sessions.keep(client(1), old, b"old");
        assert_eq!(sessions.see(client(1), young, 0, 0), Seen::New);
        assert_eq!(sessions.bytes(), 0);
        sessions.keep(client(1), young, b"young");
        assert_eq!(sessions.see(client(1), young, 0, 1), Seen::Again(b"young"));
        assert_eq!(sessions.see(client(1), young + 1, 0, 0), Seen::New);
        assert_eq!(sessions.see(client(1), young, 0, 1), Seen::Stray);
        // What strays is not so far behind.
        assert_eq!(sessions.see(client(1), LONGEST_WAY + young, 0, 0), Seen::New);
        assert_eq!(sessions.see(client(1), young + 1, 0, 1), Seen::Stray);
    }

    #[test]
    fn is_what_was_done_before_its_client_was_forgotten_not_done_again() {
        let mut sessions = Sessions::with_limits(2, 10_000);
        assert_eq!(sessions.see(client(1), 50, 0, 0), Seen::New);
        sessions.keep(client(1), 50, b"fifty");
        for other in [2, 3, 4] {
            sessions.see(client(other), 7, 0, 0);
        }
        // A younger packet comes before the older one does again, whose answer was lost.
        assert_eq!(sessions.see(client(1), 60, 20, 0), Seen::New);
        assert_eq!(sessions.see(client(1), 50, 10, 1), Seen::Forgotten);
        assert_eq!(sessions.see(client(1), 60, 20, 1), Seen::Forgotten);
        // What was never sent before was never done, and what is younger comes to a client that is known.
        assert_eq!(sessions.see(client(1), 51, 11, 0), Seen::New);
        assert_eq!(sessions.see(client(1), 61, 21, 1), Seen::New);
    }

    #[test]
    fn is_memory_bounded_and_the_silent_forgotten_first() {
        let mut sessions = Sessions::with_limits(100, 10_000);
        for round in 0..1000u64 {
            let port = (round % 300) as u16;
            sessions.see(client(port), round, 0, 0);
            sessions.keep(client(port), round, &[0; 300]);
            // One is never silent.
            sessions.see(client(9999), round, round as u32, 0);
            assert!(sessions.clients.len() <= 100 && sessions.bytes() <= 10_000);
            let all = sessions.clients.values().flat_map(|session| &session.done);
            assert_eq!(sessions.bytes(), all.map(|(_, answers)| answers.len()).sum::<usize>());
        }
        assert!(sessions.clients.contains_key(&client(9999)));
        assert_eq!(sessions.see(client(8888), 5, 0, 1), Seen::Forgotten);
        assert_eq!(sessions.see(client(8887), 5, 0, 0), Seen::New);
        let mut one = Sessions::default();
        for number in 0..5000 {
            one.see(client(1), number, number as u32, 0);
            one.keep(client(1), number, b"x");
        }
        assert_eq!(one.bytes(), MAX_PACKETS);
        // What went out of memory is not done again.
        assert_eq!(one.see(client(1), 7, 7, 1), Seen::Stray);
        assert_eq!(one.see(client(1), 4999, 4999, 1), Seen::Again(b"x"));
    }
}
