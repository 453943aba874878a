//! Recovery replays the journal of the write buffer up to the first gap.
//!
//! The test edits the journal file by its format, which is described in `src/buffer_journal.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, Purpose, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy};
use siltstone_vfs::{Mode, Ram, Vfs};

const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

fn open(vfs: &Arc<dyn Vfs>, mapping: &str) -> Skimpy {
    let map = [("capacity", "1MiB"), ("block", "4"), ("buckets", "4"), ("mapping", mapping)];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
    Skimpy::open(vfs.clone(), env, Options::from_map(&map).unwrap()).unwrap()
}

/// Puts four keys, one per batch, and drops the table without closing it. Returns the keys that
/// exist after only these frames are left in the journal.
fn left_of(mapping: &str, frames_left: &[usize]) -> Vec<&'static [u8]> {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let engine = open(&vfs, mapping);
    for key in KEYS {
        engine.write(WriteBatch::new().put(key, b"value"), Durability::Buffered).unwrap();
    }
    drop(engine);
    let file = vfs.open("packing", Mode::ReadWrite).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery).unwrap();
    let (mut frames, mut at) = (Vec::new(), 0);
    for _ in KEYS {
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize + 40;
        frames.push(bytes[at..at + length].to_vec());
        at += length;
    }
    let mut kept: Vec<u8> = frames_left.iter().flat_map(|frame| frames[*frame].clone()).collect();
    kept.resize(bytes.len(), 0);
    file.write_at(0, &kept, Purpose::Log).unwrap();
    drop(file);
    let engine = open(&vfs, mapping);
    KEYS.into_iter().filter(|key| engine.get(key).unwrap().is_some()).collect()
}

#[test]
fn frames_after_a_gap_are_ignored() {
    for mapping in ["skimpy", "semel", "vftl"] {
        assert_eq!(left_of(mapping, &[0, 1, 2, 3]), KEYS, "{mapping}");
        assert_eq!(left_of(mapping, &[0, 1]), KEYS[..2], "{mapping}");
        assert_eq!(left_of(mapping, &[0, 2, 3]), KEYS[..1], "{mapping}");
        assert_eq!(left_of(mapping, &[1, 2, 3]), KEYS[..0], "{mapping}");
    }
}
