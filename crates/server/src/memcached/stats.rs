//! What `stats` tells, in memcached's names as far as they apply.
//!
//! Source: memcached's `doc/protocol.txt`, "General-purpose statistics".

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::deed::{Complaint, Deed};
use crate::resp::Replies;
use crate::resp::number::Digits;

/// The version of memcached whose commands these are. Clients choose features by it.
pub(super) const VERSION: &str = "1.6.18";

/// What is counted for memcached's clients.
#[derive(Default)]
pub(crate) struct Tallies {
    /// The table that they are served.
    pub(crate) table: usize,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) sets: AtomicU64,
    pub(super) touches: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) delete_hits: AtomicU64,
    pub(super) delete_misses: AtomicU64,
    /// When every key is to be removed, in milliseconds since 1970; 0: never.
    pub(super) flush_at: AtomicU64,
}

impl Tallies {
    pub(crate) fn of_table(table: usize) -> Self {
        Tallies { table, ..Tallies::default() }
    }

    #[inline]
    pub(super) fn count_get(&self, is_hit: bool) {
        let counter = if is_hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn count_delete(&self, is_hit: bool) {
        let counter = if is_hit { &self.delete_hits } else { &self.delete_misses };
        counter.fetch_add(1, Relaxed);
    }

    fn counters(&self) -> [&AtomicU64; 7] {
        let Tallies { hits, misses, sets, touches, flushes, delete_hits, delete_misses, .. } = self;
        [hits, misses, sets, touches, flushes, delete_hits, delete_misses]
    }
}

fn stat(replies: &mut Replies, name: &str, value: &[u8]) {
    for part in [b"STAT ", name.as_bytes(), b" ", value, b"\r\n"] {
        replies.raw(part);
    }
}

fn count(replies: &mut Replies, name: &str, value: u64) {
    stat(replies, name, Digits::unsigned(value).as_bytes());
}

/// Answers `stats` with this word behind it.
pub(super) fn answer(deed: &mut Deed<'_>, what: Option<&[u8]>) -> Result<(), Complaint> {
    let (shared, tallies) = (deed.shared, &deed.shared.memcached);
    let (stats, now) = (deed.database().engine.stats(), deed.now());
    let max_value = deed.max_value_bytes() as u64;
    let replies = &mut *deed.replies;
    match what {
        None => {
            let get = |counter: &AtomicU64| counter.load(Relaxed);
            count(replies, "pid", std::process::id().into());
            count(replies, "uptime", shared.started.elapsed().as_secs());
            count(replies, "time", now / 1000);
            stat(replies, "version", VERSION.as_bytes());
            stat(replies, "siltstone_version", env!("CARGO_PKG_VERSION").as_bytes());
            stat(replies, "engine", deed.shared.databases[deed.table].engine.name().as_bytes());
            count(replies, "pointer_size", 8 * size_of::<usize>() as u64);
            count(replies, "curr_connections", shared.clients.connected() as u64);
            count(replies, "total_connections", get(&shared.metrics.accepted));
            count(replies, "rejected_connections", get(&shared.metrics.rejected_clients));
            count(replies, "max_connections", shared.options.max_clients as u64);
            count(replies, "cmd_get", get(&tallies.hits) + get(&tallies.misses));
            count(replies, "cmd_set", get(&tallies.sets));
            count(replies, "cmd_flush", get(&tallies.flushes));
            count(replies, "cmd_touch", get(&tallies.touches));
            count(replies, "get_hits", get(&tallies.hits));
            count(replies, "get_misses", get(&tallies.misses));
            count(replies, "delete_hits", get(&tallies.delete_hits));
            count(replies, "delete_misses", get(&tallies.delete_misses));
            count(replies, "bytes_read", get(&shared.metrics.bytes_in));
            count(replies, "bytes_written", get(&shared.metrics.bytes_out));
            count(replies, "threads", shared.options.workers() as u64);
            if let Some(keys) = stats.keys_estimate {
                count(replies, "curr_items", keys);
            }
            count(replies, "bytes", stats.memory_bytes());
            count(replies, "evictions", stats.counters.get("evictions").copied().unwrap_or(0));
        }
        Some(b"settings") => {
            count(replies, "maxconns", shared.options.max_clients as u64);
            count(replies, "item_size_max", max_value);
            count(replies, "num_threads", shared.options.workers() as u64);
            stat(replies, "cas_enabled", b"yes");
            stat(replies, "flush_enabled", b"yes");
        }
        Some(b"items" | b"slabs" | b"sizes" | b"conns") => {}
        Some(b"reset") => {
            tallies.counters().into_iter().for_each(|counter| counter.store(0, Relaxed));
            replies.raw(b"RESET\r\n");
            return Ok(());
        }
        Some(_) => return Err(Complaint::Words("ERROR")),
    }
    replies.raw(b"END\r\n");
    Ok(())
}
