//! Limits of a running script: time, and requests to end it.
//!
//! The interpreter calls [`RunControl::check`] every [`INSTRUCTIONS_PER_CHECK`] instructions, and
//! each command of a script does. Once it is aborted, every further instruction fails, so a script
//! cannot catch it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlua::Lua;

use super::long_runs::LongRuns;
use crate::StopHandle;
use crate::resp::RespVersion;

/// Instructions of the interpreter between checks: some 100 µs.
pub(super) const INSTRUCTIONS_PER_CHECK: u32 = 10_000;

/// Upper bound of the memory of a value in the interpreter per byte of its reply or argument. The
/// largest is that of `%0\r\n`: two tables of 64 bytes, and their places in other tables, which
/// double as they grow.
const MAX_EXPANSION: usize = 128;

/// Why a script was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abort {
    /// Its time on this thread is over.
    OutOfTime,
    /// It uses keys that it has not declared.
    NeedsStore,
    /// SCRIPT KILL.
    Killed,
    /// The server stops.
    Stopping,
}

/// How long a script may run.
#[derive(Clone)]
pub(crate) enum TimeLimit {
    /// Up to this time.
    For(Duration),
    /// Until it is killed, or the server stops.
    UntilKilled { runs: Arc<LongRuns>, stop: StopHandle },
}

/// State of the running script.
pub(super) struct RunControl {
    limit: RefCell<TimeLimit>,
    began: Cell<Instant>,
    aborted: Cell<Option<Abort>>,
    /// Maximum memory of the interpreter, in bytes; 0: unlimited.
    pub(super) max_memory_bytes: Cell<usize>,
    /// Version of `redis.setresp`.
    pub(super) version: Cell<RespVersion>,
    /// Where the script was aborted.
    pub(super) place: RefCell<Option<(String, usize)>>,
    /// Lines of `redis.log`.
    pub(super) log: RefCell<Vec<String>>,
}

impl RunControl {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(RunControl {
            limit: RefCell::new(TimeLimit::For(Duration::MAX)),
            began: Cell::new(Instant::now()),
            aborted: Cell::new(None),
            max_memory_bytes: Cell::new(0),
            version: Cell::default(),
            place: RefCell::default(),
            log: RefCell::default(),
        })
    }

    /// Begins a run.
    pub(super) fn begin(&self, limit: TimeLimit) {
        *self.limit.borrow_mut() = limit;
        self.began.set(Instant::now());
        self.aborted.set(None);
        self.version.set(RespVersion::Resp2);
        *self.place.borrow_mut() = None;
        self.log.borrow_mut().clear();
    }

    /// Ends the script if a limit is reached.
    pub(super) fn check(&self) -> Option<Abort> {
        if self.aborted.get().is_none() {
            self.aborted.set(self.find());
        }
        self.aborted.get()
    }

    fn find(&self) -> Option<Abort> {
        match &*self.limit.borrow() {
            TimeLimit::For(time) => {
                (self.began.get().elapsed() >= *time).then_some(Abort::OutOfTime)
            }
            TimeLimit::UntilKilled { runs, stop } => {
                if stop.is_stopping() {
                    return Some(Abort::Stopping);
                }
                runs.is_killed().then_some(Abort::Killed)
            }
        }
    }

    /// Checks the size of a value that is built outside of the interpreter.
    ///
    /// # Errors
    /// The interpreter's error for missing memory.
    pub(super) fn check_memory(&self, bytes: usize) -> mlua::Result<()> {
        let max = self.max_memory_bytes.get();
        match max > 0 && bytes > max {
            true => Err(mlua::Error::MemoryError("not enough memory".to_owned())),
            false => Ok(()),
        }
    }

    /// Runs `make`, which makes values of `bytes` bytes of replies or arguments.
    ///
    /// Under a memory limit, each allocation is a protected call of the interpreter. Values that
    /// certainly fit are built without one.
    pub(super) fn with_room_for<T>(&self, lua: &Lua, bytes: usize, make: impl FnOnce() -> T) -> T {
        let max = self.max_memory_bytes.get();
        // What the interpreter has allocated may double as it grows.
        let bound = MAX_EXPANSION.saturating_mul(bytes).saturating_add(2 * lua.used_memory());
        if bound > max {
            return make();
        }
        let _ = lua.set_memory_limit(0);
        let made = make();
        let _ = lua.set_memory_limit(max);
        made
    }

    /// Aborts the script.
    pub(super) fn abort(&self, reason: Abort) {
        self.aborted.set(Some(reason));
    }

    pub(super) fn aborted(&self) -> Option<Abort> {
        self.aborted.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::replies::to_lua;

    #[test]
    fn values_of_replies_take_no_more_memory_than_the_bound() {
        let of = |count: usize, kind: char, element: &str| {
            format!("{kind}{count}\r\n{}", element.repeat(count))
        };
        let mut replies: Vec<_> = ["%0\r\n", "~0\r\n", "*0\r\n", ":1\r\n", "_\r\n", ",1.5\r\n"]
            .iter()
            .flat_map(|element| [(*element).to_owned(), of(1, '*', element), of(600, '*', element)])
            .collect();
        replies.extend([of(257, '*', "$1\r\nx\r\n"), "$0\r\n\r\n".to_owned()]);
        replies.push(of(1000, '*', &of(1, '*', "%0\r\n")));
        for reply in replies {
            let lua = Lua::new();
            lua.gc_stop();
            let before = lua.used_memory();
            let value = to_lua(&lua, reply.as_bytes()).expect("a whole reply");
            let grown = lua.used_memory() - before;
            drop(value);
            let bound = MAX_EXPANSION * reply.len() + before;
            assert!(grown <= bound, "{grown} bytes of {bound}: {}", &reply[..reply.len().min(20)]);
        }
    }
}
