//! Logs in encrypted files, where torn bytes are no zeros.

use std::sync::Arc;

use siltstone_engine::Purpose;
use siltstone_faults::FaultyVfs;
use siltstone_table::{LogMode, LogReader, LogWriter};
use siltstone_vfs::Vfs;
use siltstone_vfs::encrypted::{EncryptedVfs, KeyRing, MasterKey};

fn encrypted(vfs: &FaultyVfs) -> Arc<dyn Vfs> {
    let keys = KeyRing::new(MasterKey::new(&[7; 32]), Vec::new());
    Arc::new(EncryptedVfs::new(Arc::new(vfs.clone()), Arc::new(keys)))
}

/// Reads all records.
fn read(vfs: Arc<dyn Vfs>) -> siltstone_engine::Result<u64> {
    let mut reader = LogReader::open(vfs.as_ref(), "log", 7, LogMode::Recover)?;
    let mut records = 0;
    while reader.next()?.is_some() {
        records += 1;
    }
    Ok(records)
}

#[test]
fn power_cut_while_a_log_is_sealed_leaves_its_synced_records_and_no_damage() {
    for seed in 0..1000 {
        let vfs = FaultyVfs::new(seed);
        let files = encrypted(&vfs);
        let mut log = LogWriter::create_append(files.as_ref(), "log", 7, Purpose::Log).unwrap();
        let records = 1 + seed % 7;
        for _ in 0..records {
            log.append(&[&vec![7; (seed % 300) as usize]]).unwrap();
        }
        log.sync().unwrap();
        files.sync_dir(Purpose::Log).unwrap();
        vfs.cut_power_at(vfs.operations() + seed % 5);
        let _ = log.seal();
        vfs.cut_power();
        let found = read(encrypted(&vfs.survivors(seed)));
        assert_eq!(found.as_ref().ok(), Some(&records), "seed {seed}: {found:?}");
    }
}
