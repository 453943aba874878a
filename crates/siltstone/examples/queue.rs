//! A work queue: producers append under ascending keys, consumers remove the first entry.
// An example prints.
#![allow(clippy::print_stdout)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone::{Clock, Db, DbOptions, SystemClock, Table};

// ANCHOR: queue
struct Queue {
    table: Table,
    next: AtomicU64,
}

impl Queue {
    /// Numbers continue at the present microsecond, above all that were given out before.
    fn open(table: Table) -> Self {
        Queue { table, next: AtomicU64::new(SystemClock.now() * 1000) }
    }

    /// Appends a job. Big-endian, so that the order of keys is that of numbers.
    fn push(&self, job: &str) -> siltstone::Result<()> {
        let number = self.next.fetch_add(1, Relaxed);
        self.table.put(&number.to_be_bytes(), job.as_bytes())
    }

    /// Removes the oldest job: of several consumers each gets another one.
    fn pop(&self) -> siltstone::Result<Option<String>> {
        let entry = self.table.pop_first()?;
        Ok(entry.map(|(_, entry)| String::from_utf8_lossy(&entry.value).into_owned()))
    }
}
// ANCHOR_END: queue

fn main() -> siltstone::Result<()> {
    let dir = std::env::temp_dir().join(format!("siltstone-queue-{}", std::process::id()));
    let db = Db::open_or_create(&dir, DbOptions::default())?;
    let queue = Queue::open(db.table_or_create("jobs", "lsm", &Default::default())?);
    for number in 1..=20 {
        queue.push(&format!("job {number}"))?;
    }
    assert_eq!(queue.pop()?.as_deref(), Some("job 1"));
    let counts: Vec<siltstone::Result<u32>> = std::thread::scope(|scope| {
        let consume = || {
            let mut count = 0;
            while let Some(job) = queue.pop()? {
                println!("{job}");
                count += 1;
            }
            Ok(count)
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(consume)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let counts: Vec<u32> = counts.into_iter().collect::<siltstone::Result<_>>()?;
    assert_eq!(counts.iter().sum::<u32>(), 19);
    assert!(queue.table.is_empty()?);
    db.close()?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}

#[test]
fn example_runs() {
    main().unwrap();
}
