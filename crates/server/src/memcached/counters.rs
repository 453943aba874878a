//! Counters of memcached clients.
//!
//! Each counter has the name shown by `stats`; `stats reset` resets all.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::prefixes::Prefixes;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// A counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($(#[$doc])* $variant,)*
        }

        const NAMES: &[&str] = &[$($name,)*];
    };
}

counters! {
    Gets => "cmd_get",
    Sets => "cmd_set",
    Flushes => "cmd_flush",
    Touches => "cmd_touch",
    Metas => "cmd_meta",
    GetHits => "get_hits",
    GetMisses => "get_misses",
    DeleteHits => "delete_hits",
    DeleteMisses => "delete_misses",
    IncrHits => "incr_hits",
    IncrMisses => "incr_misses",
    DecrHits => "decr_hits",
    DecrMisses => "decr_misses",
    CasHits => "cas_hits",
    CasMisses => "cas_misses",
    /// The item exists with another cas.
    CasBadValue => "cas_badval",
    TouchHits => "touch_hits",
    TouchMisses => "touch_misses",
    TooLarge => "store_too_large",
    NoMemory => "store_no_memory",
    Auths => "auth_cmds",
    AuthErrors => "auth_errors",
    /// Items stored.
    Items => "total_items",
}

/// Counters and other server state of the memcached protocols.
pub(crate) struct MemcachedCounters {
    /// Index of the table served.
    pub(crate) table: usize,
    counts: [AtomicU64; NAMES.len()],
    /// Counters per key prefix, if enabled.
    pub(super) prefixes: Prefixes,
    /// Time at which every key is to be removed, in milliseconds since 1970; 0: never.
    pub(super) flush_at: AtomicU64,
    /// Evictions of the engine at the last reset.
    pub(super) evictions_before: AtomicU64,
}

impl MemcachedCounters {
    pub(crate) fn new(table: usize) -> Self {
        MemcachedCounters {
            table,
            counts: [const { AtomicU64::new(0) }; NAMES.len()],
            prefixes: Prefixes::default(),
            flush_at: AtomicU64::new(0),
            evictions_before: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn add(&self, count: Counter) {
        self.counts[count as usize].fetch_add(1, Relaxed);
    }

    /// Counts a lookup of a key.
    #[inline]
    pub(super) fn add_get(&self, is_hit: bool) {
        self.add(Counter::Gets);
        self.add(if is_hit { Counter::GetHits } else { Counter::GetMisses });
    }

    /// Counts a change of a key's expiry.
    pub(super) fn add_touch(&self, is_hit: bool) {
        self.add(Counter::Touches);
        self.add(if is_hit { Counter::TouchHits } else { Counter::TouchMisses });
    }

    pub(super) fn get(&self, count: Counter) -> u64 {
        self.counts[count as usize].load(Relaxed)
    }

    /// Value of the counter that `stats` shows under `name`, if it is one of these.
    pub(super) fn named(&self, name: &str) -> Option<u64> {
        let at = NAMES.iter().position(|known| *known == name)?;
        Some(self.counts[at].load(Relaxed))
    }

    /// Resets all counters.
    pub(super) fn reset(&self, evictions: u64) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
        self.evictions_before.store(evictions, Relaxed);
        self.prefixes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name_and_reset() {
        let counters = MemcachedCounters::new(3);
        counters.add(Counter::Items);
        counters.add_get(true);
        counters.add_touch(false);
        for (name, value) in [
            ("total_items", Some(1)),
            ("cmd_get", Some(1)),
            ("get_hits", Some(1)),
            ("get_misses", Some(0)),
            ("touch_misses", Some(1)),
            ("evictions", None),
        ] {
            assert_eq!(counters.named(name), value, "{name}");
        }
        counters.reset(7);
        assert!(NAMES.iter().all(|name| counters.named(name) == Some(0)));
        assert_eq!(counters.get(Counter::Items), 0);
    }
}
