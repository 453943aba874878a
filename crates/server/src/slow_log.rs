//! The log of slow commands (SLOWLOG), newest first and bounded.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Maximum arguments of a logged command.
const MAX_ARGUMENTS: usize = 32;
/// Maximum bytes of a logged argument.
const MAX_ARGUMENT_BYTES: usize = 128;

/// Slow commands, newest first.
#[derive(Default)]
pub(crate) struct SlowLog {
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    entries: VecDeque<SlowCommand>,
    next_id: u64,
}

/// A slow command.
#[derive(Debug, Clone)]
pub(crate) struct SlowCommand {
    pub(crate) id: u64,
    /// When it ended, in seconds since 1970.
    pub(crate) time: u64,
    pub(crate) duration: Duration,
    /// Shortened arguments.
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) client: String,
    pub(crate) client_name: String,
}

impl SlowLog {
    /// Adds a command, and drops the oldest beyond `max_len`.
    pub(crate) fn add(
        &self,
        max_len: usize,
        duration: Duration,
        args: Vec<Vec<u8>>,
        client: String,
        client_name: String,
    ) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let mut log = self.log.lock();
        let id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(SlowCommand { id, time, duration, args, client, client_name });
        log.entries.truncate(max_len);
    }

    /// The newest commands.
    pub(crate) fn newest(&self, count: usize) -> Vec<SlowCommand> {
        self.log.lock().entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.log.lock().entries.len()
    }

    pub(crate) fn clear(&self) {
        self.log.lock().entries.clear();
    }
}

/// Shortens arguments as Redis does.
pub(crate) fn shorten<'a>(args: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let count = args.len();
    let shown = if count > MAX_ARGUMENTS { MAX_ARGUMENTS - 1 } else { count };
    let mut shortened: Vec<Vec<u8>> = args.take(shown).map(shorten_argument).collect();
    if shown < count {
        shortened.push(format!("... ({} more arguments)", count - shown).into_bytes());
    }
    shortened
}

fn shorten_argument(arg: &[u8]) -> Vec<u8> {
    if arg.len() <= MAX_ARGUMENT_BYTES {
        return arg.to_vec();
    }
    let more = format!("... ({} more bytes)", arg.len() - MAX_ARGUMENT_BYTES);
    [&arg[..MAX_ARGUMENT_BYTES], more.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_shortened() {
        let long = [b'x'; 130];
        let args: Vec<&[u8]> = std::iter::repeat_n(&long[..], 33).collect();
        let shortened = shorten(args.into_iter());
        assert_eq!(shortened.len(), 32);
        assert_eq!(shortened[31], b"... (2 more arguments)");
        assert!(shortened[0].ends_with(b"x... (2 more bytes)") && shortened[0].len() == 146);
        assert_eq!(shorten([&b"a"[..]; 32].into_iter()).len(), 32);
    }

    #[test]
    fn oldest_commands_are_dropped() {
        let log = SlowLog::default();
        for _ in 0..4 {
            log.add(3, Duration::ZERO, Vec::new(), String::new(), String::new());
        }
        let ids: Vec<_> = log.newest(10).iter().map(|entry| entry.id).collect();
        assert_eq!((ids, log.len(), log.newest(1).len()), (vec![3, 2, 1], 3, 1));
        log.clear();
        log.add(3, Duration::ZERO, Vec::new(), String::new(), String::new());
        assert_eq!(log.newest(10)[0].id, 4, "numbers go on");
    }
}
