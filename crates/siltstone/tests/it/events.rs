//! Events that listeners hear: jobs in pairs with all of their files, stalls, failures, damage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use siltstone::{
    Db, DbOptions, Env, Error, Event, EventKind, EventListener, FileInfo, Job, ManualClock, Table,
    WriteStall,
};
use siltstone_faults::{FaultError, FaultKind, FaultyVfs};
use siltstone_vfs::{Ram, Vfs};

/// Keeps all events.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Event>>>);

impl EventListener for Recorder {
    fn on_event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Recorder {
    fn kinds(&self) -> Vec<EventKind> {
        self.0.lock().unwrap().iter().map(|event| event.kind.clone()).collect()
    }

    /// Waits until an event of this kind was heard.
    fn wait_for(&self, is_it: impl Fn(&EventKind) -> bool) {
        for _ in 0..10_000 {
            if self.kinds().iter().any(&is_it) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("not heard: {:?}", self.kinds());
    }
}

fn replayable(listeners: Vec<Arc<dyn EventListener>>) -> DbOptions {
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
    DbOptions { env, listeners, ..DbOptions::default() }
}

fn table_options(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn fill(table: &Table, rounds: u32) {
    for round in 0..rounds {
        for key in 0..300u32 {
            table.put(&key.wrapping_mul(0x9e37_79b9).to_be_bytes(), &[round as u8; 300]).unwrap();
        }
    }
}

/// Whether a file is one that flushes and compactions write.
fn is_data(name: &str) -> bool {
    [".sst", ".htable", ".bloom", ".hash", ".sorted", ".blob"].iter().any(|it| name.ends_with(it))
}

fn names(files: &[FileInfo]) -> BTreeSet<String> {
    files.iter().map(|file| file.name.clone()).collect()
}

/// Checks that each job has two events, and returns the completed ones: flushes, compactions.
fn completed(kinds: &[EventKind]) -> [Vec<Job>; 2] {
    let mut running = BTreeMap::new();
    let mut completed = [Vec::new(), Vec::new()];
    for kind in kinds {
        let (is_compaction, is_begun, job) = match kind {
            EventKind::FlushBegun(job) => (false, true, job),
            EventKind::FlushCompleted(job) => (false, false, job),
            EventKind::CompactionBegun(job) => (true, true, job),
            EventKind::CompactionCompleted(job) => (true, false, job),
            _ => continue,
        };
        if is_begun {
            assert!(job.outputs.is_empty() && job.error.is_none());
            assert!(running.insert(job.id, (is_compaction, job.inputs.clone())).is_none());
        } else {
            let begun = running.remove(&job.id).expect("completed without being begun");
            assert_eq!(begun, (is_compaction, job.inputs.clone()));
            completed[usize::from(is_compaction)].push(job.clone());
        }
    }
    assert!(running.is_empty(), "never completed: {running:?}");
    completed
}

#[test]
fn jobs_of_every_engine_are_heard_with_all_of_their_files() {
    let engines = [
        (
            "lsm",
            "memtable=64KiB levels=256KiB:1MiB l0_capacity=0 target_file_size=64KiB triad.log=off \
             experimental.l0_compaction_trigger=2",
        ),
        (
            "lsm",
            "memtable=64KiB blob_threshold=100 blob_gc_ratio=0.2 l0_capacity=0 triad.log=off \
             experimental.l0_compaction_trigger=2",
        ),
        ("trie", "htable_size=64KiB"),
        ("silt", "max_log_size=64KiB partitions=2 merge_trigger=2 stop_trigger=4"),
    ];
    for (engine, options) in engines {
        let recorder = Recorder::default();
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let env = Env::system(2);
        let listeners: Vec<Arc<dyn EventListener>> = vec![Arc::new(recorder.clone())];
        let db_options = DbOptions { env, listeners, ..DbOptions::default() };
        let db = Db::create_vfs(vfs.clone(), db_options).unwrap();
        let table = db.table_or_create("t", engine, &table_options(options)).unwrap();
        fill(&table, 12);
        table.flush().unwrap();
        table.maintain().unwrap();
        db.close().unwrap();
        let [flushes, compactions] = completed(&recorder.kinds());
        assert!(flushes.len() > 1, "{engine}: {} flushes", flushes.len());
        assert!(!compactions.is_empty(), "{engine}: no compactions");
        let (mut written, mut replaced) = (BTreeSet::new(), BTreeSet::new());
        for job in flushes.iter().chain(&compactions) {
            assert!(job.error.is_none(), "{engine}: {job:?}");
            assert!(job.outputs.iter().all(|file| file.bytes > 0), "{engine}: {job:?}");
            written.extend(names(&job.outputs));
            replaced.extend(names(&job.inputs));
        }
        assert!(compactions.iter().all(|job| !job.inputs.is_empty()), "{engine}");
        let has_levels = engine != "silt";
        assert!(compactions.iter().all(|job| job.level.is_some() == has_levels), "{engine}");
        // What was not heard of is not there, and what is gone was replaced.
        let files = vfs.subdirectory("table-t").unwrap().list().unwrap();
        let files: BTreeSet<_> = files.into_iter().filter(|name| is_data(name)).collect();
        assert!(!files.is_empty());
        let unheard: Vec<_> = files.difference(&written).collect();
        assert!(unheard.is_empty(), "{engine}: {unheard:?}");
        let lost = written.iter().filter(|name| !files.contains(*name));
        let lost: Vec<_> = lost
            .filter(|name| !replaced.contains(*name) && !name.ends_with(".blob"))
            .filter(|name| !name.ends_with(".bloom"))
            .collect();
        assert!(lost.is_empty(), "{engine}: {lost:?}");
        for event in recorder.0.lock().unwrap().iter() {
            assert_eq!(&*event.table, "t", "{event}");
            assert!(event.at > 0 && !event.to_string().contains('\n'));
        }
    }
}

#[test]
fn stalls_are_heard_from_their_begin_to_their_end() {
    let (mut running, mut heard) = (BTreeSet::new(), BTreeSet::new());
    for (engine, options) in [
        ("lsm", "memtable=64KiB memtables=2"),
        ("silt", "max_log_size=64KiB partitions=2 merge_trigger=2 stop_trigger=3"),
    ] {
        let recorder = Recorder::default();
        let db_options = replayable(vec![Arc::new(recorder.clone())]);
        let db = Db::create_vfs(Arc::new(Ram::new()), db_options).unwrap();
        let table = db.table_or_create("t", engine, &table_options(options)).unwrap();
        // Jobs run only inside of calls that wait.
        fill(&table, 8);
        db.close().unwrap();
        for kind in recorder.kinds() {
            match kind {
                EventKind::StallBegun { cause } => {
                    assert!(running.insert(cause.name()), "{engine}: {cause:?}");
                }
                EventKind::StallEnded { cause, .. } => {
                    assert!(running.remove(cause.name()), "{engine}: {cause:?}");
                    heard.insert(cause.name());
                }
                _ => {}
            }
        }
        assert!(running.is_empty(), "{engine}: never ended: {running:?}");
    }
    let all = [WriteStall::Slowdown, WriteStall::Flush, WriteStall::Compaction];
    assert_eq!(heard, all.map(WriteStall::name).into());
}

#[test]
fn failed_flush_is_heard_and_its_retry_too() {
    let recorder = Recorder::default();
    let vfs = FaultyVfs::new(1);
    let options = replayable(vec![Arc::new(recorder.clone())]);
    let db = Db::create_vfs(Arc::new(vfs.clone()), options).unwrap();
    let table = db.table_or_create("t", "lsm", &BTreeMap::new()).unwrap();
    // The requests of a flush one after the other, until one within the job has failed.
    let has_failed = || table.stats().counters["background_failures"] > 0;
    vfs.set_error(FaultError::DiskFull);
    for request in 0.. {
        assert!(request < 200, "no request of a flush could fail");
        table.put(b"k", b"v").unwrap();
        vfs.fail_at(vfs.requests() + request, FaultKind::Names);
        let _ = table.flush();
        vfs.clear_faults();
        if has_failed() {
            break;
        }
    }
    table.flush().unwrap();
    db.close().unwrap();
    let kinds = recorder.kinds();
    let [flushes, _] = completed(&kinds);
    let (failed, done): (Vec<_>, Vec<_>) = flushes.iter().partition(|job| job.error.is_some());
    assert!(!failed.is_empty());
    assert!(failed.iter().all(|job| job.error.as_ref().unwrap().is_disk_full()), "{failed:?}");
    assert!(failed.iter().all(|job| job.outputs.is_empty()));
    assert!(done.iter().any(|job| job.id > failed[0].id), "{flushes:?}");
    let errors = |kind: &&EventKind| matches!(kind, EventKind::BackgroundError { .. });
    assert_eq!(kinds.iter().filter(errors).count(), failed.len());
    assert!(!kinds.iter().any(|kind| matches!(kind, EventKind::ReadOnly { .. })));
}

#[test]
fn failed_sync_is_heard_as_read_only_once() {
    for engine in ["lsm", "trie", "silt", "skimpy"] {
        let recorder = Recorder::default();
        let vfs = FaultyVfs::new(1);
        let options = replayable(vec![Arc::new(recorder.clone())]);
        let db = Db::create_vfs(Arc::new(vfs.clone()), options).unwrap();
        let given = if engine == "skimpy" { "capacity=16MiB" } else { "" };
        let table = db.table_or_create("t", engine, &table_options(given)).unwrap();
        table.put(b"k", b"v").unwrap();
        vfs.fail_next(FaultKind::Sync, 1);
        table.sync().unwrap_err();
        assert!(matches!(table.put(b"k", b"v"), Err(Error::ReadOnly { .. })), "{engine}");
        let _ = table.sync();
        let _ = db.close();
        let causes = recorder.kinds().into_iter().filter_map(|kind| match kind {
            EventKind::ReadOnly { cause } => Some(cause),
            _ => None,
        });
        let causes: Vec<_> = causes.collect();
        assert_eq!(causes.len(), 1, "{engine}: {causes:?}");
        assert!(causes[0].contains("sync") || causes[0].contains("flush"), "{engine}: {causes:?}");
    }
}

#[test]
fn damage_is_heard_wherever_it_is_found() {
    let vfs = Arc::new(Ram::new());
    let create = Db::create_vfs(vfs.clone(), replayable(Vec::new())).unwrap();
    let table = create.table_or_create("t", "lsm", &BTreeMap::new()).unwrap();
    table.put(b"k", &[7; 5000]).unwrap();
    table.flush().unwrap();
    create.close().unwrap();
    let files = vfs.subdirectory("table-t").unwrap();
    let name = files.list().unwrap().into_iter().find(|name| name.ends_with(".sst")).unwrap();
    let file = files.open(&name, siltstone_vfs::Mode::ReadWrite).unwrap();
    let purpose = siltstone_engine::Purpose::Get;
    let flip = |at: u64| {
        let mut byte = [0];
        file.read_at(at, &mut byte, purpose).unwrap();
        file.write_at(at, &[byte[0] ^ 1], purpose).unwrap();
    };
    flip(20);
    type Find = fn(&Table);
    let finds: [(&str, Find); 4] = [
        ("get", |table| _ = table.get(b"k").unwrap_err()),
        ("multi_get", |table| _ = table.multi_get(&[b"k"]).unwrap_err()),
        ("cursor", |table| _ = table.cursor().unwrap().first().unwrap_err()),
        ("verify", |table| assert!(!table.verify(&mut |_, _| ()).unwrap().is_intact())),
    ];
    for (how, find) in finds {
        let recorder = Recorder::default();
        let db = Db::open_vfs(vfs.clone(), replayable(vec![Arc::new(recorder.clone())])).unwrap();
        find(&db.table("t").unwrap());
        db.close().unwrap();
        let damage = recorder.kinds().into_iter().find_map(|kind| match kind {
            EventKind::Corruption(damage) => Some(damage),
            _ => None,
        });
        let damage = damage.unwrap_or_else(|| panic!("{how}: not heard"));
        assert!(damage.file.ends_with(&name), "{how}: {damage:?}");
    }
    // A damaged footer: the table does not open.
    flip(file.len().unwrap() - 3);
    let recorder = Recorder::default();
    let db = Db::open_vfs(vfs.clone(), replayable(vec![Arc::new(recorder.clone())])).unwrap();
    assert!(db.table("t").unwrap_err().is_corruption());
    db.close().unwrap();
    assert!(matches!(&recorder.kinds()[..], [EventKind::Corruption(_)]));
}

#[test]
fn listener_may_use_the_store_and_close_it() {
    let recorder = Recorder::default();
    let store: Arc<Mutex<Option<(Db, Table)>>> = Arc::default();
    let (done, closed) = mpsc::channel();
    let listener = {
        let (store, done) = (store.clone(), Mutex::new(done));
        move |event: &Event| {
            let Some((db, table)) = store.lock().unwrap().clone() else { return };
            match &event.kind {
                EventKind::FlushBegun(_) => {
                    // Needs what the flush does, and the locks of the store.
                    assert_eq!(db.table_names().unwrap(), ["t"]);
                    assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
                    assert!(table.stats().writes > 0);
                    table.put(b"heard", b"1").unwrap();
                    table.flush().unwrap();
                }
                EventKind::FlushCompleted(_) => {
                    db.close().unwrap();
                    store.lock().unwrap().take();
                    done.lock().unwrap().send(()).unwrap();
                }
                _ => {}
            }
        }
    };
    let listeners: Vec<Arc<dyn EventListener>> =
        vec![Arc::new(recorder.clone()), Arc::new(listener)];
    let options = DbOptions { listeners, ..DbOptions::default() };
    let db = Db::create_vfs(Arc::new(Ram::new()), options).unwrap();
    let table = db.table_or_create("t", "lsm", &BTreeMap::new()).unwrap();
    table.put(b"k", b"v").unwrap();
    *store.lock().unwrap() = Some((db, table.clone()));
    table.flush().unwrap();
    closed.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(matches!(table.get(b"k"), Err(Error::Closed)));
}

#[test]
fn slow_or_panicking_listener_does_not_hold_up_writes() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let blocks = move |_: &Event| {
        let _ = released.lock().unwrap().recv();
        // Without the output of the panic hook.
        std::panic::resume_unwind(Box::new(()));
    };
    let recorder = Recorder::default();
    let listeners: Vec<Arc<dyn EventListener>> = vec![Arc::new(blocks), Arc::new(recorder.clone())];
    let options = DbOptions { listeners, ..DbOptions::default() };
    let db = Db::create_vfs(Arc::new(Ram::new()), options).unwrap();
    let given = table_options("memtable=64KiB memtables=2");
    let table = db.table_or_create("t", "lsm", &given).unwrap();
    fill(&table, 4);
    table.flush().unwrap();
    table.maintain().unwrap();
    assert!(recorder.kinds().is_empty(), "the first event is still being delivered");
    drop(release);
    recorder.wait_for(|kind| matches!(kind, EventKind::FlushCompleted(_)));
    db.close().unwrap();
    let [flushes, _] = completed(&recorder.kinds());
    assert!(flushes.len() > 2);
}
