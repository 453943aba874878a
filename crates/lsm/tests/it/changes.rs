//! The change feed beside ingestions. The tests of the store have its histories.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use siltstone_engine::{
    Change, ChangeOptions, Durability, Engine, IngestMode, IngestOptions, ManualClock, Result,
    WriteBatch,
};
use siltstone_lsm::{Lsm, Options, SortedFileWriter};
use siltstone_runtime::Env;
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
