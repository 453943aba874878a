//! What is counted for memcached's clients.
//!
//! Each counter has the name that `stats` shows it under; `stats reset` sets all of them to zero.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::prefixes::Prefixes;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// A counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Count {
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
    /// The item was there and had another number.
    CasBadValue => "cas_badval",
    TouchHits => "touch_hits",
    TouchMisses => "touch_misses",
    TooLarge => "store_too_large",
    NoMemory => "store_no_memory",
    Auths => "auth_cmds",
    AuthErrors => "auth_errors",
    /// Items that were stored.
    Items => "total_items",
}

/// What is counted, and what else is known of memcached's side of the server.
pub(crate) struct Tallies {
    /// The table that its clients are served.
    pub(crate) table: usize,
    counts: [AtomicU64; NAMES.len()],
    /// What is counted for each prefix of keys, where that is switched on.
    pub(super) prefixes: Prefixes,
    /// When every key is to be removed, in milliseconds since 1970; 0: never.
    pub(super) flush_at: AtomicU64,
    /// Evictions of the engine at the last reset.
    pub(super) evictions_before: AtomicU64,
}

impl Tallies {
    pub(crate) fn of_table(table: usize) -> Self {
        Tallies {
            table,
            counts: [const { AtomicU64::new(0) }; NAMES.len()],
            prefixes: Prefixes::default(),
            flush_at: AtomicU64::new(0),
            evictions_before: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn add(&self, count: Count) {
        self.counts[count as usize].fetch_add(1, Relaxed);
    }

    /// Counts a look-up of a key.
    #[inline]
    pub(super) fn add_get(&self, is_hit: bool) {
        self.add(Count::Gets);
        self.add(if is_hit { Count::GetHits } else { Count::GetMisses });
    }

    /// Counts a new expiry of a key.
    pub(super) fn add_touch(&self, is_hit: bool) {
        self.add(Count::Touches);
        self.add(if is_hit { Count::TouchHits } else { Count::TouchMisses });
    }

    pub(super) fn get(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Relaxed)
    }

    /// The count that `stats` shows under a name, if it is one of these.
    pub(super) fn named(&self, name: &str) -> Option<u64> {
        let at = NAMES.iter().position(|known| *known == name)?;
        Some(self.counts[at].load(Relaxed))
    }

    /// Sets all counts to zero.
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
    fn count_has_its_name_until_it_is_reset() {
        let tallies = Tallies::of_table(3);
        tallies.add(Count::Items);
        tallies.add_get(true);
        tallies.add_touch(false);
        for (name, value) in [
            ("total_items", Some(1)),
            ("cmd_get", Some(1)),
            ("get_hits", Some(1)),
            ("get_misses", Some(0)),
            ("touch_misses", Some(1)),
            ("evictions", None),
        ] {
            assert_eq!(tallies.named(name), value, "{name}");
        }
        tallies.reset(7);
        assert!(NAMES.iter().all(|name| tallies.named(name) == Some(0)));
        assert_eq!(tallies.get(Count::Items), 0);
    }
}
