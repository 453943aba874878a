//! What happens at a certain moment of a job: another call, a failure, a panic.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use siltstone_engine::{Durability, Engine, Error, Purpose, WriteBatch};
use siltstone_silt::Silt;
use siltstone_testkit::HookedVfs;
use siltstone_testkit::hooked::Request;
use siltstone_vfs::{Mode, Ram, Vfs};

use super::{KEYS, SMALL, assert_has_all, filled, key, memory, open};

/// Time in which a call that should wait would have returned.
const PATIENCE: Duration = Duration::from_millis(200);

fn write_some(silt: &Silt) -> siltstone_engine::Result<()> {
    let mut batch = WriteBatch::new();
    (0..100).for_each(|i| {
        batch.put(&key(i), &[i as u8; 100]);
    });
    silt.write(&batch, Durability::Buffered)
}

fn names(vfs: &Arc<dyn Vfs>, ending: &str) -> Vec<String> {
    vfs.list().unwrap().into_iter().filter(|name| name.ends_with(ending)).collect()
}

/// A table, for the hook of the file system that it is on.
type Later = Arc<OnceLock<Weak<Silt>>>;

fn table(later: &Later) -> Option<Arc<Silt>> {
    later.get().and_then(Weak::upgrade)
}

#[test]
fn limit_lowered_while_a_store_is_added_holds_for_the_store() {
    let later = Later::default();
    let hook = {
        let later = later.clone();
        move |request: &Request<'_>| {
            if request.is("open", ".filter")
                && let Some(silt) = table(&later)
            {
                silt.table().set_index_memory(1);
            }
            Ok(())
        }
    };
    let ram: Arc<dyn Vfs> = Arc::new(Ram::new());
    let silt = Arc::new(open(&HookedVfs::wrap(&ram, hook), SMALL).unwrap());
    write_some(&silt).unwrap();
    later.set(Arc::downgrade(&silt)).unwrap();
    silt.flush().unwrap();
    assert!(silt.stats().levels[1].files > 0);
    assert_eq!(memory(&silt), (0, 0));
}

#[test]
fn limit_lowered_while_filters_are_loaded_holds_for_all() {
    let (vfs, silt) = filled(SMALL);
    // A merge that is due would unload what is above the limit.
    silt.maintain().unwrap();
    silt.close().unwrap();
    drop(silt);
    let (begin, begun) = channel();
    let (end, ended) = channel::<()>();
    let ended = Mutex::new(ended);
    let is_first = AtomicBool::new(true);
    let hooked = HookedVfs::wrap(&vfs, move |request| {
        let is_loaded = request.is("open", ".filter") || request.is("open", ".index");
        if is_loaded && is_first.swap(false, SeqCst) {
            begin.send(()).unwrap();
            // The other thread waits until the filter is loaded.
            let _ = ended.lock().unwrap().recv_timeout(PATIENCE);
        }
        Ok(())
    });
    let silt = open(&hooked, &format!("{SMALL} load_indexes=background")).unwrap();
    std::thread::scope(|scope| {
        let silt = &silt;
        scope.spawn(move || {
            begun.recv().unwrap();
            silt.table().set_index_memory(1);
            let _ = end.send(());
        });
        silt.maintain().unwrap();
    });
    assert_eq!(memory(&silt), (0, 0));
    assert_has_all(&silt);
}

#[test]
fn stores_that_cannot_be_opened_after_a_conversion_are_removed() {
    let fails = Arc::new(AtomicBool::new(false));
    let ram: Arc<dyn Vfs> = Arc::new(Ram::new());
    let hooked = HookedVfs::wrap(&ram, {
        let fails = fails.clone();
        move |request| match request.is("read", ".hash") && fails.swap(false, SeqCst) {
            true => Err(Error::io("read", request.name, &io::Error::other("a bad sector"))),
            false => Ok(()),
        }
    });
    let silt = open(&hooked, SMALL).unwrap();
    write_some(&silt).unwrap();
    fails.store(true, SeqCst);
    assert!(silt.flush().is_err());
    let left = [names(&ram, ".hash"), names(&ram, ".filter")].concat();
    assert!(left.is_empty(), "{left:?}");
    silt.flush().unwrap();
    assert!(silt.get(&key(7)).unwrap().is_some());
}

#[test]
fn filter_or_index_exists_while_it_is_rebuilt() {
    for ending in [".filter", ".index"] {
        let (vfs, silt) = filled(SMALL);
        silt.close().unwrap();
        drop(silt);
        let name = names(&vfs, ending)[0].clone();
        let file = vfs.open(&name, Mode::ReadWrite).unwrap();
        file.write_at(5, &[0xa5; 9], Purpose::Maintenance).unwrap();
        let is_missing = Arc::new(AtomicBool::new(false));
        let hooked = HookedVfs::wrap(&vfs, {
            let (vfs, name, is_missing) = (vfs.clone(), name.clone(), is_missing.clone());
            move |_| {
                is_missing.fetch_or(!vfs.exists(&name).unwrap(), SeqCst);
                Ok(())
            }
        });
        let silt = open(&hooked, SMALL).unwrap();
        assert_eq!(silt.warnings().len(), 1);
        assert!(!is_missing.load(SeqCst), "{name} was removed");
        assert!(silt.verify(&mut |_, _| ()).unwrap().is_intact());
        assert!(names(&vfs, ".run").is_empty());
    }
}

/// A closed table with HashStores of more than a thousand entries in one partition.
fn unmerged() -> Arc<dyn Vfs> {
    let (vfs, silt) = filled("partitions=1 log_store_slots=512 merge_trigger=8 stop_trigger=20");
    silt.flush().unwrap();
    silt.close().unwrap();
    drop(silt);
    assert!(names(&vfs, ".hash").len() > 5);
    vfs
}

const MERGE_ALL: &str = "merge_trigger=1 stop_trigger=20";

#[test]
fn close_cancels_a_merge_that_is_reading_its_stores() {
    let vfs = unmerged();
    let later = Later::default();
    let reads = Arc::new(AtomicUsize::new(0));
    let hooked = HookedVfs::wrap(&vfs, {
        let (later, reads) = (later.clone(), reads.clone());
        move |request| {
            if request.is("read", ".hash")
                && let Some(silt) = table(&later)
                && reads.fetch_add(1, SeqCst) == 0
            {
                let closing = silt.clone();
                std::thread::spawn(move || closing.close().unwrap());
                while !silt.table().background.is_stopping() {
                    std::thread::yield_now();
                }
            }
            Ok(())
        }
    });
    let silt = Arc::new(open(&hooked, MERGE_ALL).unwrap());
    later.set(Arc::downgrade(&silt)).unwrap();
    assert!(matches!(silt.maintain(), Err(Error::Closed)));
    let (reads, stores) = (reads.load(SeqCst), names(&vfs, ".hash").len());
    assert!(reads < stores, "{reads} reads of {stores} HashStores");
    // Waits for the other close.
    silt.close().unwrap();
    drop(silt);
    assert_has_all(&open(&vfs, MERGE_ALL).unwrap());
}

#[test]
fn second_close_waits_for_the_first() {
    let later = Later::default();
    let (begin, begun) = channel();
    let (release, released): (Sender<()>, Receiver<()>) = channel();
    let released = Mutex::new(released);
    let is_first = AtomicBool::new(true);
    let hooked = HookedVfs::wrap(&unmerged(), {
        let later = later.clone();
        move |request| {
            if request.is("read", ".hash")
                && table(&later).is_some()
                && is_first.swap(false, SeqCst)
            {
                begin.send(()).unwrap();
                released.lock().unwrap().recv().unwrap();
            }
            Ok(())
        }
    });
    let silt = Arc::new(open(&hooked, MERGE_ALL).unwrap());
    later.set(Arc::downgrade(&silt)).unwrap();
    std::thread::scope(|scope| {
        let silt = &silt;
        scope.spawn(|| assert!(matches!(silt.maintain(), Err(Error::Closed))));
        begun.recv().unwrap();
        scope.spawn(|| silt.close().unwrap());
        while !silt.table().background.is_stopping() {
            std::thread::yield_now();
        }
        let (end, ended) = channel();
        scope.spawn(move || end.send(silt.close()).unwrap());
        let outcome = ended.recv_timeout(PATIENCE);
        release.send(()).unwrap();
        assert!(matches!(outcome, Err(RecvTimeoutError::Timeout)), "the merge is still running");
        ended.recv().unwrap().unwrap();
    });
}

#[test]
fn table_is_read_only_after_a_writer_has_panicked() {
    type Change = fn(&Silt) -> siltstone_engine::Result<()>;
    let fill: Change = |silt| {
        (0..KEYS).try_for_each(|i| {
            let mut batch = WriteBatch::new();
            batch.put(&key(i), &[i as u8; 100]);
            silt.write(&batch, Durability::Buffered)
        })
    };
    for (what, change) in
        [("write", fill), ("flush", Silt::flush as Change), ("clear", Silt::clear as Change)]
    {
        let panics = Arc::new(AtomicBool::new(false));
        let ram: Arc<dyn Vfs> = Arc::new(Ram::new());
        let hooked = HookedVfs::wrap(&ram, {
            let panics = panics.clone();
            move |request| {
                let is_now = request.is("create", ".log") && panics.swap(false, SeqCst);
                assert!(!is_now, "on purpose: a log is begun");
                Ok(())
            }
        });
        let silt = open(&hooked, SMALL).unwrap();
        write_some(&silt).unwrap();
        panics.store(true, SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| change(&silt))).is_err(), "{what}");
        let refused = write_some(&silt);
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{what}: {refused:?}");
        assert!(silt.trouble().unwrap().contains("panicked"), "{what}");
        assert!(silt.get(&key(7)).unwrap().is_some(), "{what}");
    }
}
