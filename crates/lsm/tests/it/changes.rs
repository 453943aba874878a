//! The change feed beside ingestions, and over a malformed log. The tests of the store have its
//! histories.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use siltstone_engine::{
    Change, ChangeOptions, Durability, Engine, Error, IngestMode, IngestOptions, ManualClock,
    Purpose, Result, WriteBatch,
};
use siltstone_lsm::{Lsm, Options, SortedFileWriter};
use siltstone_runtime::Env;
use siltstone_table::log::parse_archive_name;
use siltstone_table::{LogWriter, SegmentLink};
use siltstone_testkit::engine_under_test::options;
use siltstone_vfs::{Ram, Vfs};

const INGESTIONS: u64 = 300;

fn ingest(lsm: &Lsm, vfs: &Arc<dyn Vfs>, key: &[u8]) {
    let mut writer = SortedFileWriter::create(vfs.clone(), "f", &Options::default()).unwrap();
    writer.put(key, b"file").unwrap();
    writer.finish().unwrap();
    let options = IngestOptions { mode: IngestMode::Move, ..IngestOptions::default() };
    lsm.prepare_ingestion(&[Path::new("f")], options).unwrap().commit().unwrap();
}

/// An ingestion is durable before its record is in the log.
#[test]
fn feed_read_during_ingestions_shows_each_of_them() {
    for include_unsynced in [false, true] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let lsm = Lsm::open(vfs.clone(), env, Options::default()).unwrap();
        lsm.write(WriteBatch::new().put(b"first", b""), Durability::Synced).unwrap();
        let mut feed = lsm.changes(ChangeOptions { since: 1, include_unsynced }).unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| -> Result<u64> {
                let mut shown = 0;
                loop {
                    let was_done = is_done.load(SeqCst);
                    match feed.next()? {
                        Some(change) => {
                            assert_eq!(change.change, Change::Ingested);
                            shown += 1;
                        }
                        None if was_done => return Ok(shown),
                        None => {}
                    }
                }
            });
            for number in 0..INGESTIONS {
                ingest(&lsm, &vfs, &number.to_be_bytes());
            }
            is_done.store(true, SeqCst);
            assert_eq!(reader.join().unwrap().unwrap(), INGESTIONS);
        });
    }
}

#[test]
fn log_that_names_itself_as_the_one_before_it_is_corruption() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
    let options = options(["log_retention=1MiB l0_capacity=0 triad.log=off"]);
    let lsm = Lsm::open(vfs.clone(), env, Options::from_map(&options).unwrap()).unwrap();
    lsm.write(WriteBatch::new().put(b"k", b"v"), Durability::Synced).unwrap();
    lsm.flush().unwrap();
    let names = vfs.list().unwrap();
    let mut archived = names.iter().filter_map(|name| Some((name, parse_archive_name(name)?.0)));
    let (name, number) = archived.next().unwrap();
    vfs.remove(name).unwrap();
    let mut log = LogWriter::create(vfs.as_ref(), name, number, Purpose::Log).unwrap();
    log.append(&[&SegmentLink { number, bytes: 0 }.encode()]).unwrap();
    // Kind, first sequence number, number of operations, a deletion of "k".
    log.append(&[&[1, 7, 1, 0, 1, b'k']]).unwrap();
    let since = ChangeOptions { since: 0, include_unsynced: false };
    match lsm.changes(since).map(drop) {
        Err(Error::Corruption { file, .. }) => assert_eq!(&file, name),
        other => panic!("{other:?}"),
    }
}
