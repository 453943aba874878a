//! `repair` saves all that is readable and reports every loss, with each mapping.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, Purpose, WriteBatch};
use siltstone_faults::{FaultyVfs, Survival};
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy, inspect, repair};
use siltstone_testkit::TestRng;
use siltstone_testkit::session::contents;
use siltstone_vfs::{Mode, Ram, Vfs};

const MAPPINGS: [&str; 3] = ["skimpy", "semel", "vftl"];
const PAGE: u64 = 4096;
/// Bytes of a page with its header, and of a block with its header, in the device's file.
const SLOT: u64 = PAGE + 16;
const BLOCK: u64 = (512 + 4 * SLOT).next_multiple_of(512);
const LABEL: u64 = 512;

fn options(mapping: &str) -> Options {
    let text = format!("capacity=1MiB block=4 buckets=8 reserved_space=0.5 mapping={mapping}");
    Options::from_map(&siltstone_testkit::engine_under_test::options([text.as_str()])).unwrap()
}

fn env() -> Env {
    Env::replayable(Arc::new(ManualClock::at(10_000)), 1)
}

fn open(vfs: &Arc<dyn Vfs>, mapping: &str) -> siltstone_engine::Result<Skimpy> {
    Skimpy::open(vfs.clone(), env(), options(mapping))
}

/// By key: the values written, in order; `None`: deleted.
type History = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

fn now(history: &History) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let last = |values: &Vec<Option<Vec<u8>>>| values.last().unwrap().clone();
    history.iter().filter_map(|(key, values)| Some((key.clone(), last(values)?))).collect()
}

/// A table whose writes wrapped around its device, with overwrites, deletions, and values larger
/// than a page. With `left` it is dropped without being closed, and the last writes are in the
/// journal.
fn filled(mapping: &str, seed: u64, left: bool) -> (Arc<dyn Vfs>, History) {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let table = open(&vfs, mapping).unwrap();
    let (mut rng, mut history) = (TestRng::of(seed, 3), History::new());
    for turn in 0..1500u64 {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + rng.below(3) {
            let key = rng.below(60).to_le_bytes();
            let value = match rng.below(8) {
                0 => None,
                1 if turn % 16 == 0 => Some(vec![turn as u8; 9000]),
                _ => Some([&turn.to_le_bytes()[..], &vec![7; rng.below(600) as usize]].concat()),
            };
            match &value {
                Some(value) => batch.put(&key, value),
                None => batch.delete(&key),
            };
            let values = history.entry(key.to_vec()).or_default();
            values.push(value);
        }
        let durability = [Durability::Buffered, Durability::Synced][usize::from(turn % 9 == 0)];
        table.write(&batch, durability).unwrap();
    }
    if left {
        table.write(WriteBatch::new().put(b"staged", b"last"), Durability::Buffered).unwrap();
        history.entry(b"staged".to_vec()).or_default().push(Some(b"last".to_vec()));
    } else {
        table.close().unwrap();
    }
    (vfs, history)
}

fn read(table: &Skimpy) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entries = contents(table).unwrap().into_iter();
    entries.map(|(key, entry)| (key, entry.value)).collect()
}

fn flip(vfs: &Arc<dyn Vfs>, name: &str, at: u64) {
    let file = vfs.open(name, Mode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(at, &mut byte, Purpose::Maintenance).unwrap();
    file.write_at(at, &[byte[0] ^ 0x20], Purpose::Maintenance).unwrap();
}

/// The offset of a byte of a page in the device's file.
fn byte_of(page: u64) -> u64 {
    LABEL + page / 4 * BLOCK + 512 + page % 4 * SLOT + 16 + 100
}

/// Whether a page is of this kind.
fn is_kind(vfs: &Arc<dyn Vfs>, page: u64, kind: u8) -> bool {
    let mut byte = [0];
    let file = vfs.open("flash", Mode::Read).unwrap();
    file.read_at(byte_of(page) - 100 + 4, &mut byte, Purpose::Maintenance).unwrap();
    byte[0] == kind
}

/// Repairs the table; checks that it opens, verifies, takes writes, and has no value that was never
/// written. Returns the number of keys with their latest value, and the report.
fn repaired(vfs: &Arc<dyn Vfs>, mapping: &str, history: &History) -> (usize, String) {
    let story = repair(vfs, env(), &options(mapping)).unwrap().lines.join("\n");
    let table = open(vfs, mapping).unwrap();
    assert!(table.verify(&mut |_, _| ()).unwrap().is_intact(), "{story}");
    let found = read(&table);
    for (key, value) in &found {
        assert!(history[key].contains(&Some(value.clone())), "{:?}: {story}", key.escape_ascii());
    }
    table.write(WriteBatch::new().put(b"later", b"too"), Durability::Synced).unwrap();
    table.maintain().unwrap();
    table.close().unwrap();
    assert_eq!(open(vfs, mapping).unwrap().get(b"later").unwrap().unwrap().value, b"too");
    assert_eq!(
        repair(vfs, env(), &options(mapping)).unwrap().lines,
        ["everything on the device is intact"]
    );
    let wanted = now(history);
    let same = wanted.iter().filter(|(key, value)| found.get(*key) == Some(value)).count();
    (same, story)
}

#[test]
fn undamaged_table_is_left_unchanged() {
    for mapping in MAPPINGS {
        let (vfs, history) = filled(mapping, 1, false);
        let names = vfs.list().unwrap();
        assert_eq!(repair(&vfs, env(), &options(mapping)).unwrap().lines.len(), 1);
        assert_eq!(vfs.list().unwrap(), names);
        assert_eq!(read(&open(&vfs, mapping).unwrap()), now(&history));
    }
}

#[test]
fn readable_pages_are_saved_and_the_damaged_device_is_kept() {
    for mapping in MAPPINGS {
        let mut damaged = 0;
        for seed in 0..12 {
            let (vfs, history) = filled(mapping, seed, seed % 2 == 0);
            let mut rng = TestRng::of(seed, 9);
            let pages = 256;
            for _ in 0..1 + seed % 3 {
                flip(&vfs, "flash", byte_of(rng.below(pages)));
            }
            let (same, story) = repaired(&vfs, mapping, &history);
            let wanted = now(&history).len();
            // A page has about eight records; a damaged payload page costs one record.
            assert!(same + 40 >= wanted, "{mapping}, {seed}: {same} of {wanted}: {story}");
            if story.contains("new device") {
                damaged += 1;
                assert!(vfs.exists("flash.damaged").unwrap() && story.contains("kept"), "{story}");
            } else {
                assert_eq!(same, wanted, "{mapping}, {seed}: {story}");
            }
        }
        assert!(damaged > 2, "{mapping}: {damaged}");
    }
}

#[test]
fn damage_without_damaged_records_loses_nothing() {
    for mapping in MAPPINGS {
        for what in ["label", "header", "checkpoints", "end"] {
            let (vfs, history) = filled(mapping, 4, what == "label");
            let file = vfs.open("flash", Mode::ReadWrite).unwrap();
            match what {
                "label" => flip(&vfs, "flash", 29),
                "header" => (0..64).for_each(|block| {
                    let at = LABEL + block * BLOCK;
                    file.write_at(at, &[0xee; 16], Purpose::Maintenance).unwrap();
                }),
                "checkpoints" => (0..256)
                    .filter(|page| is_kind(&vfs, *page, 3))
                    .for_each(|page| flip(&vfs, "flash", byte_of(page))),
                _ => file.set_len(file.len().unwrap() - 600).unwrap(),
            }
            let (same, story) = repaired(&vfs, mapping, &history);
            let wanted = now(&history).len();
            match what {
                "end" => assert!(same + 16 >= wanted && story.contains("were missing"), "{story}"),
                _ => assert_eq!(same, wanted, "{mapping}, {what}: {story}"),
            }
            let expected = ["label", "header", "checkpoint", "were missing"];
            assert!(expected.iter().any(|word| story.contains(word)), "{mapping}, {what}: {story}");
        }
    }
}

#[test]
fn missing_durable_page_is_reported_if_only_the_last_page_proves_it() {
    for mapping in MAPPINGS {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let table = open(&vfs, mapping).unwrap();
        for key in [b"first", b"other"] {
            table.write(WriteBatch::new().put(key, b"value"), Durability::Synced).unwrap();
        }
        drop(table);
        let first = (0..256).find(|page| is_kind(&vfs, *page, 1)).unwrap();
        flip(&vfs, "flash", byte_of(first));
        assert!(matches!(open(&vfs, mapping), Err(Error::Corruption { .. })), "{mapping}");
        repair(&vfs, env(), &options(mapping)).unwrap();
        let found = read(&open(&vfs, mapping).unwrap());
        assert_eq!(found.into_keys().collect::<Vec<_>>(), [b"other"], "{mapping}");
    }
}

/// The batch is valid as a whole, so the loss of its end loses the operations before it, too, and
/// those are in pages that can be read.
#[test]
fn operations_of_a_batch_that_lost_its_end_are_reported_lost() {
    for mapping in MAPPINGS {
        // A large value has pages of its own, before those of the records.
        for large in [600, 9000] {
            let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
            let table = open(&vfs, mapping).unwrap();
            table.write(WriteBatch::new().put(b"kept", b"value"), Durability::Synced).unwrap();
            let mut batch = WriteBatch::new();
            let value = |i: u8| vec![i; if i == 1 { large } else { 600 }];
            (1..20).for_each(|i| _ = batch.put(&[i], &value(i)));
            table.write(&batch, Durability::Synced).unwrap();
            table.close().unwrap();
            let last = (0..256).filter(|page| is_kind(&vfs, *page, 1)).max_by_key(|page| {
                let (mut number, file) = ([0; 8], vfs.open("flash", Mode::Read).unwrap());
                file.read_at(byte_of(*page) - 100 + 8, &mut number, Purpose::Maintenance).unwrap();
                u64::from_le_bytes(number)
            });
            flip(&vfs, "flash", byte_of(last.unwrap()));
            let mut bytes = vec![0; (LABEL + 64 * BLOCK) as usize];
            let file = vfs.open("flash", Mode::Read).unwrap();
            file.read_at(0, &mut bytes, Purpose::Maintenance).unwrap();
            let report = repair(&vfs, env(), &options(mapping)).unwrap();
            assert_eq!(
                read(&open(&vfs, mapping).unwrap()).into_keys().collect::<Vec<_>>(),
                [b"kept"]
            );
            for i in 1..20 {
                let at = bytes.windows(500).position(|it| it == &value(i)[..500]).unwrap() as u64;
                let is_lost = report.losses.iter().any(|loss| loss.bytes.contains(&at));
                assert!(is_lost, "{mapping}, {i}: {:?}", report.lines);
            }
        }
    }
}

/// The next opening goes on after the pages of the incomplete batch, in a new epoch.
#[test]
fn batch_that_was_incomplete_at_an_opening_is_left_out() {
    let mut incomplete = 0;
    for mapping in MAPPINGS {
        for operation in 0..12 {
            let disk = FaultyVfs::new(operation);
            let table = open(&(Arc::new(disk.clone()) as Arc<dyn Vfs>), mapping).unwrap();
            table.write(WriteBatch::new().put(b"before", b"1"), Durability::Synced).unwrap();
            let mut batch = WriteBatch::new();
            (0..12u8).for_each(|key| _ = batch.put(&[key], &[key; 1000]));
            disk.cut_power_at(disk.operations() + operation);
            let _ = table.write(&batch, Durability::Synced);
            drop(table);

            let vfs: Arc<dyn Vfs> = Arc::new(disk.survivors_as(Survival::KeepAll, 0));
            let table = open(&vfs, mapping).unwrap();
            table.write(WriteBatch::new().put(b"after", b"2"), Durability::Synced).unwrap();
            let found = read(&table);
            assert!([2, 14].contains(&found.len()), "{mapping}, {operation}");
            drop(table);
            flip(&vfs, "flash", 29);
            let story = repair(&vfs, env(), &options(mapping)).unwrap().lines;
            let repaired = read(&open(&vfs, mapping).unwrap());
            assert!(repaired == found, "{mapping}, {operation}: {} keys", repaired.len());
            incomplete += usize::from(story.iter().any(|line| line.contains("abandoned batches")));
        }
    }
    assert!(incomplete >= MAPPINGS.len(), "no batch was incomplete");
}

#[test]
fn repaired_versions_keep_their_timestamps() {
    for mapping in MAPPINGS {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let clock = Arc::new(ManualClock::at(10_000));
        let mut options = options(mapping);
        options.retention = std::time::Duration::from_secs(3600);
        let env = Env::replayable(clock.clone(), 1);
        let table = Skimpy::open(vfs.clone(), env.clone(), options.clone()).unwrap();
        for value in 0..20u64 {
            clock.set(10_000 + value * 1000);
            let mut batch = WriteBatch::new();
            batch.put(b"key", &value.to_le_bytes()).put_until(b"gone", b"x", 5_000_000 + value);
            table.write(&batch, Durability::Synced).unwrap();
        }
        clock.set(60_000);
        table.write(WriteBatch::new().delete(b"key"), Durability::Synced).unwrap();
        table.close().unwrap();
        flip(&vfs, "flash", 29);
        let story = repair(&vfs, env.clone(), &options).unwrap().lines;
        let table = Skimpy::open(vfs, env, options).unwrap();
        for value in 0..20u64 {
            let point = table.at(10_000 + value * 1000 + 500).unwrap();
            let found = table.get_at(b"key", &point).unwrap();
            let wanted = value.to_le_bytes().to_vec();
            assert_eq!(
                found.map(|entry| entry.value),
                Some(wanted),
                "{mapping}: {value}, {story:?}"
            );
            let until = table.get_at(b"gone", &point).unwrap().unwrap().expires_at;
            assert_eq!(until, Some(5_000_000 + value));
        }
        assert!(table.get(b"key").unwrap().is_none());
    }
}

/// A hash tombstone has no key, so it is not written to the new device; the versions that it hides
/// stay hidden, even if it is the only evidence of the deletion.
#[test]
fn versions_hidden_by_a_hash_tombstone_stay_hidden() {
    for mapping in ["semel", "vftl"] {
        (0..6).for_each(|seed| check_tombstones_after_repair(mapping, seed));
    }
}

fn check_tombstones_after_repair(mapping: &str, seed: u64) {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let clock = Arc::new(ManualClock::at(10_000));
    let env = Env::replayable(clock.clone(), 1);
    let table = Skimpy::open(vfs.clone(), env, options(mapping)).unwrap();
    let (mut rng, mut history) = (TestRng::of(seed, 5), History::new());
    // By time: the key whose write had already expired.
    let mut expired = BTreeMap::new();
    for time in 10_000..12_000 {
        clock.set(time);
        let mut batch = WriteBatch::new();
        let key = rng.below(400).to_le_bytes().to_vec();
        let mut note = |value| history.entry(key.clone()).or_default().push(value);
        match rng.below(64) {
            // A key so long that its deletion has payload pages, too.
            0 => drop(batch.delete(&vec![time as u8; 6000])),
            1..16 => {
                batch.put_until(&key, &vec![9; 9000], 9_999);
                note(None);
                expired.insert(time.to_string(), key);
            }
            _ => {
                let value = [&time.to_le_bytes()[..], &[7; 300]].concat();
                batch.put(&key, &value);
                note(Some(value));
            }
        }
        table.write(&batch, Durability::Synced).unwrap();
    }
    table.close().unwrap();
    let records = inspected(&vfs);
    let is_tombstone = |it: &InspectedRecord| it.what == "tombstone";
    let times: BTreeSet<_> =
        records.iter().filter(|it| is_tombstone(it)).map(|it| &it.time).collect();
    assert!(!times.is_empty(), "{mapping}, {seed}: there is no tombstone");
    let copies = records.iter().filter(|it| !is_tombstone(it) && times.contains(&it.time));
    let checkpoints = (0..256).filter(|page| is_kind(&vfs, *page, 3));
    let damaged: BTreeSet<u64> = copies.map(|it| it.page).chain(checkpoints).collect();
    damaged.iter().for_each(|page| flip(&vfs, "flash", byte_of(*page)));
    let (_, story) = repaired(&vfs, mapping, &history);
    assert!(inspected(&vfs).iter().all(|it| !it.key.is_empty()), "{mapping}, {seed}: {story}");
    let found = read(&open(&vfs, mapping).unwrap());
    for key in times.iter().filter_map(|time| expired.get(*time)) {
        let is_gone = history[key].last() == Some(&None);
        assert!(!is_gone || !found.contains_key(key), "{mapping}, {seed}: {key:?} reappeared");
    }
}

/// A record in the output of `inspect`.
struct InspectedRecord {
    page: u64,
    /// The key or its hash.
    key: String,
    time: String,
    what: String,
}

fn inspected(vfs: &Arc<dyn Vfs>) -> Vec<InspectedRecord> {
    let output = inspect(vfs, "flash", usize::MAX).unwrap().unwrap();
    let unread = ("unreadable pages".to_owned(), "0".to_owned());
    assert!(output.properties.contains(&unread), "{:?}", output.properties);
    let parts = output.items.iter().map(|item| {
        let (page, rest) = item.split_once(" of the log: ").unwrap();
        let (version, what) = rest.rsplit_once(": ").unwrap();
        let (key, time) = version.rsplit_once(" at ").unwrap();
        InspectedRecord {
            page: page.split([' ', ',']).nth(1).unwrap().parse().unwrap(),
            key: key.to_owned(),
            time: time.trim_end_matches(", relocated").to_owned(),
            what: what.to_owned(),
        }
    });
    parts.collect()
}

#[test]
fn interrupted_repair_is_completed_or_repeated() {
    for mapping in MAPPINGS {
        let (vfs, history) = filled(mapping, 5, false);
        flip(&vfs, "flash", 29);
        // An incomplete new device of an earlier attempt is ignored.
        vfs.create("flash.repaired").unwrap().set_len(77).unwrap();
        let (same, _) = repaired(&vfs, mapping, &history);
        assert_eq!(same, now(&history).len());
        // The repair was interrupted after the old device was renamed.
        vfs.rename("flash", "flash.repaired").unwrap();
        assert!(matches!(open(&vfs, mapping), Err(Error::Corruption { .. })));
        let story = repair(&vfs, env(), &options(mapping)).unwrap().lines;
        assert!(story[0].contains("interrupted"), "{story:?}");
        assert_eq!(read(&open(&vfs, mapping).unwrap()).len(), now(&history).len() + 1);
        // Both of two damaged devices are kept.
        flip(&vfs, "flash", 29);
        repair(&vfs, env(), &options(mapping)).unwrap();
        assert!(vfs.exists("flash.damaged").unwrap() && vfs.exists("flash.damaged-2").unwrap());
    }
}

/// Appends to the device's file.
fn extend(vfs: &Arc<dyn Vfs>, bytes: &[u8]) {
    let file = vfs.open("flash", Mode::ReadWrite).unwrap();
    file.write_at(file.len().unwrap(), bytes, Purpose::Maintenance).unwrap();
}

#[test]
fn bytes_after_the_end_of_the_device_are_reported() {
    for mapping in MAPPINGS {
        let (vfs, history) = filled(mapping, 21, true);
        extend(&vfs, b"x");
        let table = open(&vfs, mapping).unwrap();
        assert_eq!(read(&table), now(&history), "{mapping}");
        let expected = "1 bytes are past the end of the device";
        assert!(table.warnings()[0].contains(expected), "{:?}", table.warnings());
        let report = table.verify(&mut |_, _| ()).unwrap();
        assert!(
            report.damage.len() == 1 && report.damage[0].reason.contains(expected),
            "{report:?}"
        );
        table.close().unwrap();
        repair(&vfs, env(), &options(mapping)).unwrap();
        let table = open(&vfs, mapping).unwrap();
        assert_eq!(read(&table), now(&history), "{mapping}");
        assert!(table.warnings().is_empty() && table.verify(&mut |_, _| ()).unwrap().is_intact());
    }
}

#[test]
fn repair_of_a_missing_device_keeps_journaled_batches() {
    for mapping in MAPPINGS {
        let (vfs, _) = filled(mapping, 22, true);
        vfs.remove("flash").unwrap();
        assert!(matches!(open(&vfs, mapping), Err(Error::Corruption { .. })));
        let story = repair(&vfs, env(), &options(mapping)).unwrap();
        assert!(story.lines[0].contains("flash is missing") && !story.is_lossless(), "{story:?}");
        let table = open(&vfs, mapping).unwrap();
        assert_eq!(read(&table)[&b"staged"[..]], b"last");
        assert!(table.verify(&mut |_, _| ()).unwrap().is_intact());
        assert!(vfs.exists("packing.damaged").unwrap());
    }
}

/// Regression: the next repair took the new device of an interrupted one for complete.
#[test]
fn interrupted_repair_of_a_missing_device_keeps_journaled_batches() {
    let without_device = || {
        let disk = FaultyVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let table = open(&vfs, "skimpy").unwrap();
        table.write(WriteBatch::new().put(b"staged", b"last"), Durability::Buffered).unwrap();
        drop(table);
        vfs.open("packing", Mode::ReadWrite).unwrap().sync(Purpose::Log).unwrap();
        vfs.remove("flash").unwrap();
        vfs.sync_dir(Purpose::Manifest).unwrap();
        disk
    };
    let mut cuts = 0;
    loop {
        let disk = without_device();
        disk.cut_power_at(disk.operations() + cuts);
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let is_done = repair(&vfs, env(), &options("skimpy")).is_ok();
        for survival in [Survival::KeepAll, Survival::LoseAll] {
            let left: Arc<dyn Vfs> = Arc::new(disk.survivors_as(survival, cuts));
            let story = repair(&left, env(), &options("skimpy")).unwrap().lines;
            let found = open(&left, "skimpy").map(|table| read(&table));
            let found = found.unwrap_or_else(|error| panic!("cut {cuts}: {error}, {story:?}"));
            let value = found.get(&b"staged"[..]).map(Vec::as_slice);
            assert_eq!(value, Some(&b"last"[..]), "cut {cuts}: {story:?}");
        }
        if is_done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 5, "{cuts}");
}
