//! The queue of events of a store, and the thread that calls the listeners.
//!
//! ```text
//!   jobs, writers ── emit ──▶ queue ──▶ thread "siltstone-events" ──▶ listeners, one by one
//!                              │ full: counted and dropped
//!   close ── waits until the queue is empty ── ends the thread, drops the listeners
//! ```
//!
//! Events may be emitted under any lock, since that only takes the lock of the queue, and nothing
//! is called. Without listeners there is no queue and no thread: [`Events::emit`] is a check of an
//! `Option`, and does not make the event. It is not called by reads and writes that neither wait
//! nor fail.
//!
//! Invariant: listeners get events in the order in which they were emitted.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{JoinHandle, ThreadId};

use parking_lot::{Condvar, Mutex};
use siltstone_engine::{Clock, Error, Event, EventKind, EventListener, Result};

/// The longest queue.
const MAX_QUEUED: usize = 4096;

/// Where a table puts its events. Clones share the queue; when the last one is dropped, the thread
/// delivers what is queued and ends.
#[derive(Clone, Default)]
pub struct Events {
    owner: Option<Arc<Owner>>,
    table: Arc<str>,
}

struct Owner {
    shared: Arc<Shared>,
    /// The listeners' thread.
    thread_id: ThreadId,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    next_job: AtomicU64,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    /// Events that were dropped after the last one in the queue.
    dropped: u64,
    is_closed: bool,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("table", &self.table)
            .field("is_enabled", &self.is_enabled())
            .finish()
    }
}

impl Events {
    /// Events for these listeners, with times by `clock`. No listeners: no thread.
    ///
    /// # Errors
    /// `Io`: the thread could not be started.
    pub fn new(listeners: Vec<Arc<dyn EventListener>>, clock: Arc<dyn Clock>) -> Result<Self> {
        if listeners.is_empty() {
            return Ok(Events::default());
        }
        let shared = Arc::new(Shared {
            clock,
            next_job: AtomicU64::new(1),
            queue: Mutex::default(),
            changed: Condvar::new(),
        });
        let deliver = {
            let shared = shared.clone();
            move || shared.deliver_until_closed(&listeners)
        };
        let thread = std::thread::Builder::new()
            .name("siltstone-events".to_owned())
            .spawn(deliver)
            .map_err(|error| Error::io("start", "the thread of event listeners", &error))?;
        let thread_id = thread.thread().id();
        let owner = Owner { shared, thread_id, thread: Mutex::new(Some(thread)) };
        Ok(Events { owner: Some(Arc::new(owner)), table: Arc::default() })
    }

    /// The same queue, for events of a table.
    #[must_use]
    pub fn for_table(&self, table: &str) -> Self {
        Events { owner: self.owner.clone(), table: table.into() }
    }

    /// Whether there are listeners.
    pub fn is_enabled(&self) -> bool {
        self.owner.is_some()
    }

    /// Queues an event, if there are listeners.
    pub fn emit(&self, kind: impl FnOnce() -> EventKind) {
        let Some(owner) = &self.owner else { return };
        let event = Event::new(self.table.clone(), owner.shared.clock.now(), kind());
        owner.shared.push(event);
    }

    /// Queues an event if the error reports damage.
    pub fn emit_corruption(&self, error: &Error) {
        if self.is_enabled()
            && let Some(kind) = EventKind::of_error(error)
        {
            self.emit(|| kind);
        }
    }

    /// The number of the next job.
    pub fn next_job(&self) -> u64 {
        self.owner.as_ref().map_or(0, |owner| owner.shared.next_job.fetch_add(1, Relaxed))
    }

    /// Waits until the listeners have received all events so far, ends the thread and drops the
    /// listeners. Later events are dropped. Called by a listener it does not wait.
    pub fn close(&self) {
        if let Some(owner) = &self.owner {
            owner.close();
        }
    }
}

impl Owner {
    fn close(&self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.changed.notify_all();
        // A thread cannot join itself.
        if std::thread::current().id() != self.thread_id
            && let Some(thread) = self.thread.lock().take()
        {
            let _ = thread.join();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn push(&self, event: Event) {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return;
        }
        if queue.events.len() >= MAX_QUEUED {
            queue.dropped += 1;
            return;
        }
        let gap = queue.take_gap(event.at);
        queue.events.extend(gap);
        queue.events.push_back(event);
        drop(queue);
        self.changed.notify_all();
    }

    fn deliver_until_closed(&self, listeners: &[Arc<dyn EventListener>]) {
        let mut queue = self.queue.lock();
        loop {
            let next = queue.events.pop_front();
            let Some(event) = next.or_else(|| queue.take_gap(self.clock.now())) else {
                if queue.is_closed {
                    return;
                }
                self.changed.wait(&mut queue);
                continue;
            };
            drop(queue);
            for listener in listeners {
                let _ = catch_unwind(AssertUnwindSafe(|| listener.on_event(&event)));
            }
            queue = self.queue.lock();
        }
    }
}

impl Queue {
    /// The event about dropped ones, if there are any after the end of the queue.
    fn take_gap(&mut self, at: u64) -> Option<Event> {
        let count = std::mem::take(&mut self.dropped);
        (count > 0).then(|| Event::new(Arc::default(), at, EventKind::Dropped { count }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use siltstone_engine::{ManualClock, WriteStall};

    use super::*;

    fn read_only(n: usize) -> EventKind {
        EventKind::ReadOnly { cause: n.to_string() }
    }

    fn cause(event: &Event) -> String {
        match &event.kind {
            EventKind::ReadOnly { cause } => cause.clone(),
            EventKind::Dropped { count } => format!("dropped {count}"),
            other => format!("{other:?}"),
        }
    }

    fn open(listener: impl EventListener + 'static) -> Events {
        Events::new(vec![Arc::new(listener)], Arc::new(ManualClock::at(7))).unwrap()
    }

    #[test]
    fn events_are_delivered_in_order_until_the_close() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let events = open({
            let heard = heard.clone();
            move |event: &Event| {
                heard.lock().push((event.table.to_string(), event.at, cause(event)))
            }
        });
        let (a, b) = (events.for_table("a"), events.for_table("b"));
        for i in 0..100 {
            if i % 2 == 0 { &a } else { &b }.emit(|| read_only(i));
        }
        events.close();
        a.emit(|| read_only(100));
        let heard = heard.lock();
        assert_eq!(heard.len(), 100);
        for (i, (table, at, cause)) in heard.iter().enumerate() {
            let expected = if i % 2 == 0 { "a" } else { "b" };
            assert_eq!((&table[..], *at, &cause[..]), (expected, 7, &i.to_string()[..]));
        }
    }

    #[test]
    fn events_over_the_limit_are_counted_in_their_place() {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let events = open({
            let heard = heard.clone();
            move |event: &Event| {
                if heard.lock().is_empty() {
                    released.lock().recv().unwrap();
                }
                heard.lock().push(cause(event));
            }
        });
        // One is being delivered, or is the first in the queue.
        let count = MAX_QUEUED + 10;
        (0..count).for_each(|i| events.emit(|| read_only(i)));
        release.send(()).unwrap();
        while heard.lock().len() < MAX_QUEUED {
            std::thread::yield_now();
        }
        events.emit(|| read_only(count));
        drop(events);
        let heard = heard.lock();
        let (gap, _) = heard.iter().enumerate().find(|(_, it)| it.starts_with("dropped")).unwrap();
        let dropped: usize = heard[gap].strip_prefix("dropped ").unwrap().parse().unwrap();
        assert_eq!(gap + dropped, count);
        assert!((9..=10).contains(&dropped), "{dropped}");
        assert_eq!(heard[gap - 1], (gap - 1).to_string());
        assert_eq!(heard[gap + 1..], [count.to_string()]);
    }

    #[test]
    fn panicking_listener_is_called_again_and_others_hear_all() {
        let calls = Arc::new(AtomicU64::new(0));
        let panics: Arc<dyn EventListener> = {
            let calls = calls.clone();
            Arc::new(move |_: &Event| {
                calls.fetch_add(1, Relaxed);
                // Without the output of the panic hook.
                std::panic::resume_unwind(Box::new(()));
            })
        };
        let counts: Arc<dyn EventListener> = {
            let calls = calls.clone();
            Arc::new(move |_: &Event| _ = calls.fetch_add(100, Relaxed))
        };
        let events = Events::new(vec![panics, counts], Arc::new(ManualClock::at(0))).unwrap();
        (0..3).for_each(|i| events.emit(|| read_only(i)));
        events.close();
        assert_eq!(calls.load(Relaxed), 303);
    }

    #[test]
    fn listener_may_hold_and_close_its_own_queue() {
        let own: Arc<Mutex<Option<Events>>> = Arc::default();
        let (done, closed) = mpsc::channel();
        let events = open({
            let own = own.clone();
            move |_: &Event| {
                let events = own.lock().take();
                let events: Events = events.unwrap();
                events.close();
                drop(events);
                done.send(()).unwrap();
            }
        });
        let stall = EventKind::StallBegun { cause: WriteStall::Flush };
        let mut slot = own.lock();
        *slot = Some(events.clone());
        events.emit(|| stall);
        drop(events);
        drop(slot);
        closed.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn no_event_is_made_without_listeners() {
        let events = Events::new(Vec::new(), Arc::new(ManualClock::at(0))).unwrap();
        assert!(!events.is_enabled());
        events.emit(|| unreachable!("nobody listens"));
    }
}
