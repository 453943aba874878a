//! What happens at a certain moment of a job: another call, a failure, a panic.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, WriteBatch};
use siltstone_silt::Silt;
use siltstone_vfs::{Ram, Vfs};

use super::support::HookedVfs;
use super::{SMALL, key, open};

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
