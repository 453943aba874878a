//! On engines without transactions, no write of the table comes between the read and the write of
//! an update. The engine below pauses after the read.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use siltstone::{Durability, Engine, Entry, Result, Table, WriteBatch};
use siltstone_engine::forward_engine;

/// How long an update waits for the write that must not come in between.
const PAUSE: Duration = Duration::from_millis(100);

/// An engine that reports each read and then pauses.
struct Pausing {
    engine: Arc<dyn Engine>,
    has_read: Mutex<Sender<()>>,
}

impl Engine for Pausing {
    forward_engine!(engine: name capabilities clear sync iter);
    forward_engine!(engine: flush maintain checkpoint verify stats close);

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let entry = self.engine.get(key)?;
        self.has_read.lock().send(()).unwrap();
        std::thread::sleep(PAUSE);
        Ok(entry)
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.engine.write(batch, durability)
    }
}

fn pausing(engine: &str) -> (Arc<dyn Engine>, Table, Receiver<()>) {
    let engine = crate::support::open(engine, &[]);
    let (has_read, reads) = channel();
    let pausing = Pausing { engine: engine.clone(), has_read: Mutex::new(has_read) };
    (engine, Table::new("t", Arc::new(pausing)), reads)
}

#[test]
fn write_waits_for_an_update_of_its_key() {
    type Write = fn(&Table) -> Result<()>;
    let writes: [(&str, Write, Option<&[u8]>); 4] = [
        ("put", |table| table.put(b"k", b"other"), Some(b"other")),
        ("delete", |table| table.delete(b"k"), None),
        (
            "batch",
            |table| {
                let mut batch = WriteBatch::new();
                for byte in 0..100u8 {
                    batch.put(&[byte], b"");
                }
                table.write(batch.put(b"k", b"other"), Durability::Buffered)
            },
            Some(b"other"),
        ),
        ("clear", |table| table.clear(), None),
    ];
    for engine in ["trie", "silt", "mica"] {
        for (name, write, expected) in writes {
            let (engine_below, table, reads) = pausing(engine);
            table.put(b"k", b"1").unwrap();
            std::thread::scope(|scope| {
                let update = || table.compare_and_swap(b"k", Some(b"1"), Some(b"2")).unwrap();
                let update = scope.spawn(update);
                reads.recv().unwrap();
                write(&table).unwrap();
                assert!(update.join().unwrap().is_ok());
            });
            let found = engine_below.get(b"k").unwrap().map(|entry| entry.value);
            assert_eq!(found.as_deref(), expected, "{engine}: the {name} was lost");
        }
    }
}

#[test]
fn updates_of_one_key_wait_for_one_another() {
    for engine in ["trie", "silt", "mica"] {
        let (_, table, reads) = pausing(engine);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| table.compare_and_swap(b"k", None, Some(b"1")).unwrap());
            reads.recv().unwrap();
            let second = table.compare_and_swap(b"k", None, Some(b"2")).unwrap();
            assert!(first.join().unwrap().is_ok());
            assert_eq!(second.unwrap_err().current.unwrap(), b"1", "{engine}");
        });
    }
}
