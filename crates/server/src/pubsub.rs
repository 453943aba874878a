//! Publish and subscribe: which clients receive the messages of which channels.
//!
//! ```text
//! PUBLISH news hi ──▶ channel "news" ──▶ clients 3, 8        message  news hi
//!                └──▶ pattern "n*"   ──▶ client 5            pmessage n* news hi
//! ```
//!
//! A message is encoded once per protocol version and left in the mailbox of each receiver, whose
//! worker sends it. The lock of a kind of subscriptions is held in shared mode while a message is
//! left, and exclusively to subscribe or unsubscribe.
//!
//! Invariant: once a client is unsubscribed, no further message of the channel reaches its mailbox.
//! Messages of one publisher reach each subscriber in their order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::RwLock;

use crate::clients::Client;
use crate::glob::Pattern;
use crate::resp::{Replies, RespVersion};

/// A kind of subscription; the number is its place in [`Client::subscriptions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel = 0,
    Pattern = 1,
    ShardChannel = 2,
}

/// Subscribers by id.
type Subscribers = BTreeMap<u64, Arc<Client>>;

/// Subscriptions of all clients.
#[derive(Default)]
pub(crate) struct PubSub {
    channels: RwLock<HashMap<Vec<u8>, Subscribers>>,
    patterns: RwLock<HashMap<Vec<u8>, (Pattern, Subscribers)>>,
    shard_channels: RwLock<HashMap<Vec<u8>, Subscribers>>,
}

impl PubSub {
    /// Subscribes a client, which must not be subscribed yet.
    pub(crate) fn subscribe(&self, kind: Kind, name: &[u8], client: &Arc<Client>) {
        let (id, client) = (client.id, client.clone());
        client.subscriptions[kind as usize].fetch_add(1, Relaxed);
        match kind {
            Kind::Pattern => {
                let mut patterns = self.patterns.write();
                let compiled = || (Pattern::new(name), Subscribers::new());
                patterns.entry(name.to_vec()).or_insert_with(compiled).1.insert(id, client);
            }
            Kind::Channel | Kind::ShardChannel => {
                let mut channels = self.by_name(kind).write();
                channels.entry(name.to_vec()).or_default().insert(id, client);
            }
        }
    }

    /// Unsubscribes a client, which must be subscribed.
    pub(crate) fn unsubscribe(&self, kind: Kind, name: &[u8], client: &Client) {
        client.subscriptions[kind as usize].fetch_sub(1, Relaxed);
        match kind {
            Kind::Pattern => {
                let mut patterns = self.patterns.write();
                if let Some((_, subscribers)) = patterns.get_mut(name) {
                    subscribers.remove(&client.id);
                    if subscribers.is_empty() {
                        patterns.remove(name);
                    }
                }
            }
            Kind::Channel | Kind::ShardChannel => {
                let mut channels = self.by_name(kind).write();
                if let Some(subscribers) = channels.get_mut(name) {
                    subscribers.remove(&client.id);
                    if subscribers.is_empty() {
                        channels.remove(name);
                    }
                }
            }
        }
    }

    /// Sends a message to the subscribers of a channel and of matching patterns. Returns how many
    /// subscriptions received it.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let mut receivers = self.send(Kind::Channel, "message", channel, message);
        for (name, (pattern, subscribers)) in self.patterns.read().iter() {
            if pattern.matches(channel) {
                let parts: [&[u8]; 4] = [b"pmessage", name, channel, message];
                receivers += deliver(subscribers, &parts);
            }
        }
        receivers
    }

    /// How many subscriptions would receive a message of PUBLISH, or of SPUBLISH.
    pub(crate) fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        let matching = match kind {
            Kind::ShardChannel => 0,
            Kind::Channel | Kind::Pattern => {
                let patterns = self.patterns.read();
                let matching = patterns.values().filter(|(pattern, _)| pattern.matches(channel));
                matching.map(|(_, subscribers)| subscribers.len()).sum()
            }
        };
        matching + self.subscribers(kind, channel)
    }

    /// Sends a message to the subscribers of a shard channel.
    pub(crate) fn publish_to_shard(&self, channel: &[u8], message: &[u8]) -> usize {
        self.send(Kind::ShardChannel, "smessage", channel, message)
    }

    fn send(&self, kind: Kind, word: &str, channel: &[u8], message: &[u8]) -> usize {
        let channels = self.by_name(kind).read();
        let Some(subscribers) = channels.get(channel) else { return 0 };
        deliver(subscribers, &[word.as_bytes(), channel, message])
    }

    /// Channels that have subscribers, sorted.
    pub(crate) fn channels(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let pattern = pattern.map(Pattern::new);
        let channels = self.by_name(kind).read();
        let is_listed = |name: &&Vec<u8>| pattern.as_ref().is_none_or(|p| p.matches(name));
        let mut listed: Vec<_> = channels.keys().filter(is_listed).cloned().collect();
        listed.sort_unstable();
        listed
    }

    /// Visits all subscriptions.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(Kind, &[u8], &Client)) {
        for kind in [Kind::Channel, Kind::ShardChannel] {
            for (name, subscribers) in self.by_name(kind).read().iter() {
                subscribers.values().for_each(|client| visit(kind, name, client));
            }
        }
        for (name, (_, subscribers)) in self.patterns.read().iter() {
            subscribers.values().for_each(|client| visit(Kind::Pattern, name, client));
        }
    }

    /// Number of subscribers of a channel.
    pub(crate) fn subscribers(&self, kind: Kind, channel: &[u8]) -> usize {
        self.by_name(kind).read().get(channel).map_or(0, Subscribers::len)
    }

    /// Number of channels that have subscribers, of patterns, and of shard channels.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [self.channels.read().len(), self.patterns.read().len(), self.shard_channels.read().len()]
    }

    fn by_name(&self, kind: Kind) -> &RwLock<HashMap<Vec<u8>, Subscribers>> {
        if kind == Kind::ShardChannel { &self.shard_channels } else { &self.channels }
    }
}

/// Leaves a message for each subscriber.
fn deliver(subscribers: &Subscribers, parts: &[&[u8]]) -> usize {
    let mut encoded = [None, None];
    for client in subscribers.values() {
        let is_resp3 = client.is_resp3.load(Relaxed);
        let message = encoded[usize::from(is_resp3)].get_or_insert_with(|| push(parts, is_resp3));
        client.push(message);
    }
    subscribers.len()
}

/// Encodes a push of strings.
pub(crate) fn push(parts: &[&[u8]], is_resp3: bool) -> Arc<[u8]> {
    let mut replies = Replies::new(usize::MAX);
    replies.version = if is_resp3 { RespVersion::Resp3 } else { RespVersion::Resp2 };
    replies.push(parts.len());
    for part in parts {
        replies.bulk(part);
    }
    replies.unsent().into()
}
