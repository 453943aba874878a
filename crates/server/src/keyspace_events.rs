//! Keyspace notifications: which events are published, and to which channels.
//!
//! ```text
//! SET k v   ──▶ __keyspace@0__:k    message  set       with K
//!           └─▶ __keyevent@0__:set  message  k         with E
//! ```
//!
//! Source: the documentation of Redis's keyspace notifications.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::pubsub::PubSub;

/// A class of events, one bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventClass(u32);

impl EventClass {
    pub(crate) const GENERIC: Self = EventClass(1 << 2);
    pub(crate) const STRING: Self = EventClass(1 << 3);
    pub(crate) const LIST: Self = EventClass(1 << 4);
    pub(crate) const SET: Self = EventClass(1 << 5);
    pub(crate) const HASH: Self = EventClass(1 << 6);
    pub(crate) const SORTED_SET: Self = EventClass(1 << 7);
    pub(crate) const EXPIRED: Self = EventClass(1 << 8);
    pub(crate) const STREAM: Self = EventClass(1 << 10);
    pub(crate) const MISS: Self = EventClass(1 << 12);
    pub(crate) const NEW: Self = EventClass(1 << 13);
}

const KEYSPACE: u32 = 1;
const KEYEVENT: u32 = 1 << 1;
/// Letters in the order in which Redis shows them; those of `A` first.
const LETTERS: [(char, u32); 14] = [
    ('g', EventClass::GENERIC.0),
    ('$', EventClass::STRING.0),
    ('l', EventClass::LIST.0),
    ('s', EventClass::SET.0),
    ('h', EventClass::HASH.0),
    ('z', EventClass::SORTED_SET.0),
    ('x', EventClass::EXPIRED.0),
    ('e', 1 << 9),
    ('t', EventClass::STREAM.0),
    ('d', 1 << 11),
    ('n', EventClass::NEW.0),
    ('K', KEYSPACE),
    ('E', KEYEVENT),
    ('m', EventClass::MISS.0),
];
/// Letters that `A` stands for.
const ALL_LETTERS: usize = 10;

/// The events that are published (`notify-keyspace-events`).
#[derive(Default)]
pub(crate) struct KeyspaceEvents {
    flags: AtomicU32,
}

impl KeyspaceEvents {
    /// Parses flags; `None` if a letter is unknown.
    pub(crate) fn parse(text: &str) -> Option<u32> {
        text.chars().try_fold(0, |flags, letter| match letter {
            'A' => Some(flags | all()),
            _ => {
                let known = LETTERS.iter().find(|(known, _)| *known == letter);
                known.map(|(_, flag)| flags | flag)
            }
        })
    }

    pub(crate) fn set(&self, flags: u32) {
        self.flags.store(flags, Relaxed);
    }

    /// The flags as letters.
    pub(crate) fn letters(&self) -> String {
        let flags = self.flags.load(Relaxed);
        let has_all = flags & all() == all();
        let shown = if has_all { ALL_LETTERS + 1 } else { 0 };
        let letters = LETTERS.iter().skip(shown).filter(|(_, flag)| flags & flag != 0);
        has_all.then_some('A').into_iter().chain(letters.map(|(letter, _)| *letter)).collect()
    }

    /// Whether events of a class are published.
    pub(crate) fn has(&self, class: EventClass) -> bool {
        let flags = self.flags.load(Relaxed);
        flags & class.0 != 0 && flags & (KEYSPACE | KEYEVENT) != 0
    }

    /// Whether any events are published, and whether `expired` or `hexpired` is.
    pub(crate) fn active(&self) -> (bool, bool) {
        let has_any = LETTERS.iter().any(|(_, flag)| self.has(EventClass(*flag)));
        (has_any, self.has(EventClass::EXPIRED) || self.has(EventClass::HASH))
    }

    /// Publishes an event if its class is published.
    pub(crate) fn publish(
        &self,
        pubsub: &PubSub,
        table: usize,
        class: EventClass,
        event: &str,
        key: &[u8],
    ) {
        if !self.has(class) {
            return;
        }
        let flags = self.flags.load(Relaxed);
        if flags & KEYSPACE != 0 {
            let channel = [format!("__keyspace@{table}__:").as_bytes(), key].concat();
            pubsub.publish(&channel, event.as_bytes());
        }
        if flags & KEYEVENT != 0 {
            pubsub.publish(format!("__keyevent@{table}__:{event}").as_bytes(), key);
        }
    }
}

/// The events of a hash of which fields have expired; if `is_removed`, the last ones.
pub(crate) fn of_expired_fields(
    is_removed: bool,
) -> impl Iterator<Item = (EventClass, &'static str)> {
    let removal = is_removed.then_some((EventClass::GENERIC, "del"));
    [(EventClass::HASH, "hexpired")].into_iter().chain(removal)
}

/// The classes that `A` stands for.
fn all() -> u32 {
    LETTERS.iter().take(ALL_LETTERS).map(|(_, flag)| flag).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_as_in_redis() {
        let events = KeyspaceEvents::default();
        for (given, shown, any, expired) in [
            ("", "", false, false),
            ("KEA", "AKE", true, true),
            ("mnKxE", "xnKEm", true, true),
            ("g$lshzxetdKE", "AKE", true, true),
            ("A", "A", false, false),
            ("Ex", "xE", true, true),
            ("Kg", "gK", true, false),
            ("Kh", "hK", true, true),
        ] {
            events.set(KeyspaceEvents::parse(given).unwrap());
            assert_eq!(events.letters(), shown, "{given}");
            assert_eq!(events.active(), (any, expired), "{given}");
        }
        assert_eq!(KeyspaceEvents::parse("Kq"), None);
    }
}
