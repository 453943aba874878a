//! Options under their old names open an existing store.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_testkit::engine_under_test;
use siltstone_trie::{Options, Trie};
use siltstone_vfs::{Ram, Vfs};

#[test]
fn options_under_old_names_open_an_existing_store() {
    let old = "table=4KiB bucket=512 fill=0.9 filter_bits=12 collect=3 garbage=0.2 run=4 jobs=1 \
               slow=8 stop=12 segment=4 migrations=0.5 tables=sorted weak_hash=9 fanout_bits=1";
    let new = "htable_size=4KiB bucket_size=512 bucket_fill=0.9 filter_bits_per_key=12 \
               gc_trigger=3 gc_garbage_ratio=0.2 dense_run_at=4 max_compactions=1 \
               slowdown_trigger=8 stop_trigger=12 experimental.segment_buckets=4 \
               experimental.cached_migrations=0.5 experimental.table_layout=sorted \
               experimental.weak_hash=9 fanout_bits=1";
    let [old, new] =
        [old, new].map(|text| Options::from_map(&engine_under_test::options([text])).unwrap());
    assert_eq!(old, new);
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    for (round, options) in [new.clone(), old, new].into_iter().enumerate() {
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        let trie = Trie::open(vfs.clone(), env, options).unwrap();
        for number in 0..round * 200 {
            assert!(trie.get(&number.to_le_bytes()).unwrap().is_some(), "{number}");
        }
        for number in round * 200..(round + 1) * 200 {
            let mut batch = WriteBatch::new();
            batch.put(&number.to_le_bytes(), &[7; 40]);
            trie.write(&batch, Durability::Buffered).unwrap();
        }
        trie.close().unwrap();
    }
}
