//! Malformed log records with valid checksums are reported as corruption, with file and offset.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone::engines;
use siltstone_engine::{Error, ManualClock, Purpose};
use siltstone_runtime::Env;
use siltstone_table::{LogWriter, SegmentLink};
use siltstone_vfs::{Ram, Vfs};

/// Opens a table whose first log contains only `record`; returns its position and the error.
fn open_with_record(engine: &str, record: &[u8]) -> (u64, Error) {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let open = || {
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        engines::open(engine, vfs.clone(), &env, &BTreeMap::new())
    };
    drop(open().unwrap());
    for name in vfs.list().unwrap().iter().filter(|name| name.ends_with(".log")) {
        vfs.remove(name).unwrap();
    }
    let mut log = LogWriter::create(vfs.as_ref(), "000001.log", 1, Purpose::Log).unwrap();
    log.append(&[&SegmentLink::default().encode()]).unwrap();
    let position = log.append(&[record]).unwrap();
    log.sync().unwrap();
    (position, open().map(drop).unwrap_err())
}

#[test]
fn record_without_operations_or_with_an_invalid_sequence_is_corruption() {
    // Kind, first sequence number, number of operations, a deletion of "k".
    for record in [&[1, 0, 0][..], &[1, 7, 0], &[1, 0, 1, 0, 1, b'k']] {
        for engine in ["lsm", "trie"] {
            match open_with_record(engine, record) {
                (position, Error::Corruption { file, offset, .. }) => {
                    let place = (file.as_str(), offset);
                    assert_eq!(place, ("000001.log", position), "{engine}: {record:?}");
                }
                (_, other) => panic!("{engine}: {record:?}: {other}"),
            }
        }
    }
}
