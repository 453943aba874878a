//! `l0_policy=novelsm`: the NoveLSM memtable takes writes while the others wait for their flush,
//! and the newest version of a key is read, wherever its versions are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use siltstone_engine::{Durability, Engine, KeyRange, ManualClock, ReadPoint, WriteBatch};
use siltstone_faults::{FaultyVfs, Survival};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(vfs: &Arc<dyn Vfs>) -> (Lsm, Env) {
    open_in(vfs, Env::replayable(Arc::new(ManualClock::at(0)), 1), "64KiB", "3")
}

fn open_in(vfs: &Arc<dyn Vfs>, env: Env, pmem: &str, l0_trigger: &str) -> (Lsm, Env) {
    let options = [
        ("l0_policy", "novelsm"),
        ("pmem.size", pmem),
        ("memtable", "4KiB"),
        ("target_file_size", "8KiB"),
        ("levels", "32KiB:128KiB:1MiB"),
        ("experimental.l0_compaction_trigger", l0_trigger),
        ("experimental.l0_slowdown_trigger", "400"),
        ("experimental.l0_stop_trigger", "500"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = Options::from_map(&options.into()).unwrap();
    (Lsm::open(vfs.clone(), env.clone(), options).unwrap(), env)
}

fn check(lsm: &Lsm, model: &Model, at: Option<&ReadPoint>) {
    let mut cursor = lsm.range(KeyRange::all(), at).unwrap();
    let mut content = Model::new();
    cursor.first().unwrap();
    while cursor.valid() {
        content.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    assert!(content == *model, "iteration has another result");
    for number in 0..KEYS {
        let key = key(number);
        let found = match at {
            Some(at) => lsm.get_at(&key, at),
            None => lsm.get(&key),
        };
        assert_eq!(found.unwrap().map(|entry| entry.value), model.get(&key).cloned(), "{key:?}");
    }
}

const KEYS: u32 = 700;

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn counter(lsm: &Lsm, name: &str) -> u64 {
    lsm.stats().counters[name]
}

#[test]
fn newest_version_is_read_from_any_memtable() {
    for seed in 0..6 {
        let mut rng = StdRng::seed_from_u64(seed);
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let (mut lsm, mut env) = open(&vfs);
        let (mut model, mut then) = (Model::new(), None);
        let (mut novelsm_writes, mut writes) = (0, 0);
        for step in 1..=6000u32 {
            let mut batch = WriteBatch::new();
            for _ in 0..rng.random_range(1..4) {
                // Half of the writes go to a tenth of the keys.
                let among = if rng.random_bool(0.5) { KEYS / 10 } else { KEYS };
                let key = key(rng.random_range(0..among));
                if rng.random_bool(0.1) {
                    batch.delete(&key);
                    model.remove(&key);
                } else {
                    let value = [&step.to_le_bytes()[..], &[7; 60]].concat();
                    batch.put(&key, &value);
                    model.insert(key, value);
                }
            }
            lsm.write(&batch, Durability::Buffered).unwrap();
            // Background jobs run at random times.
            if rng.random_bool([0.0, 0.01, 0.03, 0.1, 0.3, 1.0][seed as usize]) {
                env.scheduler.run_one();
            }
            match step % 1500 {
                500 => then = Some((lsm.snapshot().unwrap(), model.clone())),
                1100 => {
                    let (point, model) = then.take().unwrap();
                    check(&lsm, &model, Some(&point));
                }
                700 => lsm.flush().unwrap(),
                1300 => {
                    novelsm_writes += counter(&lsm, "large_memtable_writes");
                    writes += lsm.stats().writes;
                    lsm.sync().unwrap();
                    // Every other time without closing.
                    if step > 3000 {
                        lsm.close().unwrap();
                    }
                    drop(lsm);
                    (lsm, env) = open(&vfs);
                }
                _ => {}
            }
            if step % 300 == 0 {
                check(&lsm, &model, None);
            }
        }
        let is_slow = seed < 2;
        assert!(novelsm_writes < writes, "{novelsm_writes} of {writes}");
        assert!(novelsm_writes > 0 || !is_slow, "none of {writes}");
        lsm.maintain().unwrap();
        lsm.flush().unwrap();
        check(&lsm, &model, None);
        lsm.verify(&mut |_, _| ()).unwrap();
    }
}

/// The NoveLSM memtable takes the writes that flushes cannot keep up with.
#[test]
fn novelsm_memtable_takes_more_writes_with_slower_flushes() {
    let share = |jobs_every: u32| {
        let (lsm, env) = open(&(Arc::new(Ram::new()) as Arc<dyn Vfs>));
        for step in 0..4000 {
            let mut batch = WriteBatch::new();
            batch.put(&format!("{:08}", step * 7919 % 100_000).into_bytes(), &[1; 60]);
            lsm.write(&batch, Durability::Buffered).unwrap();
            if step % jobs_every == 0 {
                while env.scheduler.run_one() {}
            }
        }
        counter(&lsm, "large_memtable_writes") as f64 / 4000.0
    };
    let shares = [1, 100, 400, 5000].map(share);
    assert_eq!(shares[0], 0.0);
    assert!(shares.is_sorted_by(|a, b| a < b) && shares[3] > 0.8, "{shares:?}");
}

/// A run of the DRAM memtable may contain later writes than the NoveLSM memtable, which only the
/// log makes durable: after a power cut the result is still a prefix of the writes.
#[test]
fn power_cut_leaves_a_prefix_of_the_writes() {
    let faulty = FaultyVfs::new(1);
    let (lsm, env) = open(&(Arc::new(faulty.clone()) as Arc<dyn Vfs>));
    let key = |step: u64| format!("{:08}", step * 7919 % 100_003).into_bytes();
    let mut jobs_beside_novelsm = 0;
    for step in 0..1500u64 {
        let mut batch = WriteBatch::new();
        batch.put(&key(step), &[1; 60]);
        lsm.write(&batch, Durability::Buffered).unwrap();
        if step % 70 != 0 || !env.scheduler.run_one() {
            continue;
        }
        jobs_beside_novelsm += u64::from(counter(&lsm, "large_memtable_writes") > 0);
        let left: Arc<dyn Vfs> = Arc::new(faulty.survivors_as(Survival::LoseAll, step));
        let (left, _) = open(&left);
        let is_present = |step: &u64| left.get(&key(*step)).unwrap().is_some();
        let present = (0..=step).take_while(is_present).count() as u64;
        let later = (present..=step).filter(is_present).count();
        assert_eq!(later, 0, "{present} writes are present at step {step}, and {later} after them");
    }
    assert!(
        jobs_beside_novelsm > 5,
        "only {jobs_beside_novelsm} jobs ran beside the NoveLSM memtable"
    );
}

/// Of two keys that are always written together one may be in the NoveLSM memtable and the other
/// not, so iteration with an old set of memtables and a new sequence number would yield half of a
/// batch. It takes about a second until a reader is preempted between the two; with a `yield_now`
/// there it always happens.
#[test]
fn batch_is_atomic_for_iteration_while_memtables_rotate() {
    const PAIRS: usize = 4000;
    let pair = |number: usize| ["a", "b"].map(|suffix| format!("{number:04}{suffix}").into_bytes());
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let (lsm, _) = open_in(&vfs, Env::system(2), "1MiB", "100");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (lsm, is_done) = (&lsm, &is_done);
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(reader);
                while !is_done.load(Relaxed) {
                    let [from, to] = pair(rng.random_range(0..PAIRS));
                    let mut cursor = lsm.range(KeyRange::new(from..=to), None).unwrap();
                    let mut values = Vec::new();
                    cursor.first().unwrap();
                    while cursor.valid() {
                        values.push(cursor.value().to_vec());
                        cursor.next().unwrap();
                    }
                    assert!(
                        values.is_empty() || values.len() == 2 && values[0] == values[1],
                        "{values:?}"
                    );
                }
            });
        }
        let mut rng = StdRng::seed_from_u64(1);
        let mut values = [0u32; PAIRS];
        let began = Instant::now();
        for round in 1.. {
            let number = rng.random_range(0..PAIRS);
            let [a, b] = pair(number);
            let mut batch = WriteBatch::new();
            if values[number] == 0 || rng.random_bool(0.5) {
                values[number] = round;
                batch.put(&b, &round.to_le_bytes());
            }
            batch.put(&a, &values[number].to_le_bytes());
            batch.put(&key(rng.random_range(0..KEYS)), &[7; 60]);
            lsm.write(&batch, Durability::Buffered).unwrap();
            if began.elapsed() > Duration::from_secs(1) {
                break;
            }
        }
        is_done.store(true, Relaxed);
    });
    assert!(counter(&lsm, "large_memtable_writes") > 0);
}

/// A flush syncs the logs after that of its memtable. If it fails, that log is still needed. After
/// a power cut it may be shorter than the next log states; then the later writes are lost, too.
#[test]
fn power_cut_after_a_failed_flush_leaves_a_prefix() {
    let mut shorter = 0;
    for seed in 0..40 {
        let disk = FaultyVfs::new(seed);
        let (lsm, _) = open(&(Arc::new(disk.clone()) as Arc<dyn Vfs>));
        let put = |number: u32| {
            let mut batch = WriteBatch::new();
            batch.put(&key(number), &[number as u8; 600]);
            lsm.write(&batch, Durability::Buffered).unwrap();
        };
        (0..8).for_each(put);
        disk.set_capacity(disk.space_used());
        lsm.maintain().unwrap_err();
        disk.set_capacity(u64::MAX);
        (8..11).for_each(put);
        disk.cut_power();
        drop(lsm);
        let (lsm, _) = open(&(Arc::new(disk.survivors(seed)) as Arc<dyn Vfs>));
        let found = (0..11).take_while(|&number| lsm.get(&key(number)).unwrap().is_some()).count();
        shorter += u64::from(found < 6);
        let model: Model = (0..found as u32).map(|it| (key(it), vec![it as u8; 600])).collect();
        check(&lsm, &model, None);
    }
    assert!(shorter > 0, "no power cut took a part of the first log");
}
