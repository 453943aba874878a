//! Clients in MONITOR mode, which see the commands of all clients.
//!
//! ```text
//! 1339518083.107412 [0 127.0.0.1:60866] "eval" "return redis.call('get', KEYS[1])" "1" "key"
//! 1339518083.107412 [0 lua] "get" "key"
//! ```

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::clients::Client;
use crate::store::observers::{MONITORS, Observers};

/// Clients in MONITOR mode by id.
#[derive(Default)]
pub(crate) struct Monitors {
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Monitors {
    /// Adds a client, and has commands shown.
    pub(crate) fn add(&self, client: &Arc<Client>, observers: &Observers) {
        let mut clients = self.clients.lock();
        clients.insert(client.id, client.clone());
        observers.set(MONITORS, true);
    }

    /// Removes a client. Commands are shown no longer if it was the last one.
    pub(crate) fn remove(&self, id: u64, observers: &Observers) {
        let mut clients = self.clients.lock();
        clients.remove(&id);
        observers.set(MONITORS, !clients.is_empty());
    }

    /// Shows a command to all monitors. Its origin is the address of a client, or a script.
    pub(crate) fn show<'a>(
        &self,
        table: usize,
        origin: &dyn Display,
        args: impl Iterator<Item = &'a [u8]>,
    ) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let mut line = format!("+{}.{:06} [{table} {origin}]", now.as_secs(), now.subsec_micros());
        for arg in args {
            line.push_str(" \"");
            quote(arg, &mut line);
            line.push('"');
        }
        line.push_str("\r\n");
        let line: Arc<[u8]> = line.into_bytes().into();
        self.clients.lock().values().for_each(|client| client.push(&line));
    }
}

/// Appends an argument with escapes, so that it is one line of printable characters.
fn quote(arg: &[u8], out: &mut String) {
    for byte in arg {
        match byte {
            b'\\' | b'"' => out.extend(['\\', char::from(*byte)]),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            7 => out.push_str("\\a"),
            8 => out.push_str("\\b"),
            b' '..=b'~' => out.push(char::from(*byte)),
            // Writing to a string does not fail.
            _ => drop(write!(out, "\\x{byte:02x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn arguments_are_printable() {
        let mut out = String::new();
        super::quote(b"a b\"\\\n\r\t\x07\x08\x00\xff", &mut out);
        assert_eq!(out, r#"a b\"\\\n\r\t\a\b\x00\xff"#);
    }
}
