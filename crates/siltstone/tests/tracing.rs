//! What `tracing` gets of a store: spans of jobs and calls, and events in them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use siltstone::{Db, DbOptions, Env, ManualClock, TracingListener};
use siltstone_faults::{FaultKind, FaultyVfs};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes one line per span and event: level, names of the spans that it is in, fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    spans: BTreeMap<u64, String>,
    entered: Vec<u64>,
    lines: Vec<String>,
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "siltstone"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(format!("{} {}", span.metadata().level(), span.metadata().name()));
        span.record(&mut fields);
        let mut state = self.0.lock().unwrap();
        let id = state.spans.len() as u64 + 1;
        state.spans.insert(id, span.metadata().name().to_owned());
        state.lines.push(fields.0);
        Id::from_u64(id)
    }

    fn event(&self, event: &Event<'_>) {
        let mut state = self.0.lock().unwrap();
        let span = event.parent().map(Id::into_u64).and_then(|id| state.spans.get(&id));
        let span = span.map_or("-", String::as_str);
        let mut fields = Fields(format!("{} in {span}:", event.metadata().level()));
        event.record(&mut fields);
        state.lines.push(fields.0);
    }

    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().entered.push(id.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().entered.pop();
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}
}

#[test]
fn jobs_calls_and_failures_are_traced() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let vfs = FaultyVfs::new(1);
    let options = DbOptions {
        env: Env::replayable(Arc::new(ManualClock::at(1)), 1),
        listeners: vec![Arc::new(TracingListener::default())],
        ..DbOptions::default()
    };
    let db = Db::create_vfs(Arc::new(vfs.clone()), options).unwrap();
    let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
    table.put(b"k", b"v").unwrap();
    table.flush().unwrap();
    table.compact_range::<&[u8]>(..).unwrap();
    assert!(db.verify().unwrap().is_intact());
    vfs.fail_next(FaultKind::Sync, 1);
    table.put(b"k", b"v").unwrap();
    table.sync().unwrap_err();
    let _ = db.close();
    let state = lines.0.lock().unwrap();
    let has = |start: &str, rest: &str| {
        let is_it = |line: &String| line.starts_with(start) && line.contains(rest);
        assert!(state.lines.iter().any(is_it), "{start} … {rest}: {:#?}", state.lines);
    };
    has("INFO open_table", "table=t");
    has("INFO flush", "table=\"t\" job=1");
    has("INFO in flush:", "begun");
    has("INFO in flush:", "files=1");
    has("INFO compaction", "reason=\"request\"");
    has("INFO in compaction:", "completed");
    has("INFO verify", "");
    has("ERROR in -:", "read-only");
    assert!(state.entered.is_empty());
}
