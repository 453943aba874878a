//! Makes a damaged table open again, with all that can be read.
//!
//! 1. The manifest is read as far as it holds. If it does not hold at all, every table goes where its
//!    footer says, in the order of the sequence numbers that the footers state. A table that a
//!    compaction had replaced and that was not yet removed may then show deleted keys again, and the
//!    report says so.
//! 2. Each table is read whole. A damaged one is searched for buckets that hold, by its directory or,
//!    without one, on the grid of its buckets: a checksum that is seeded by the file's number and the
//!    place proves each. What they hold goes to new tables in the same place of the trie.
//! 3. A damaged BloomCluster is forgotten: the tables have their filters themselves.
//! 4. Each log is replayed up to its first damage, into a new table of the root container.
//! 5. A new manifest names the result. Then damaged files are kept beside it under `*.damaged`, and logs
//!    that were replayed whole are removed: a repair that is cut off before can be run again.
//!
//! In memory are at most some [`WINDOW_BYTES`] of a damaged table or a log. Nothing is deleted but logs
//! that were replayed whole. The table must not be open.
//!
//! Invariant: every loss is a line of the report, with its file and range of bytes.
//!
//! Source: ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Error, Op, Purpose, RateLimiter, Result};
use siltstone_media::{File, Media, Mode};
use siltstone_table::{LogMode, LogReader, Manifest, aside};

use crate::cluster::Cluster;
use crate::files::{FileSum, Homes, Kind};
use crate::hash::Hash;
use crate::htable::{BucketHeader, Expected, HTable, Layout, Origin, TableWriter};
use crate::item::Item;
use crate::options::Options;
use crate::record::Record;
use crate::second;
use crate::version::{Added, ENGINE, Edit, Place, TrieShape, fold};

/// Items saved of a damaged file are written out when they take so much.
const WINDOW_BYTES: usize = 64 << 20;

/// Repairs the table on `media`, opened with these options; the answer tells, line by line, what was
/// found and done. Of the options only `upper` matters; without it
/// the table's own note of it counts.
///
/// # Errors
/// Failures of the medium; a newer format. Damage is not an error here: it is what is repaired.
pub fn repair(media: &Arc<dyn Media>, options: &Options) -> Result<Vec<String>> {
    // Without the files that are there they would pass for lost, and be removed at the next opening.
    let upper =
        options.upper.clone().map_or_else(|| second::upper_of(media.as_ref()), |u| Ok(Some(u)))?;
    let second = upper.map(|upper| second::open(media.as_ref(), &upper));
    let (upper, _lock) = second.transpose()?.unzip();
    let homes = Homes { main: media.clone(), upper: upper.map(|upper| (upper, 0)) };
    let shape = TrieShape { fanout_bits: Options::default().fanout_bits, ..TrieShape::default() };
    let rate = RateLimiter::unlimited();
    let (story, aside, replayed) = Default::default();
    let mut repair = Repair { homes, shape, rate, story, aside, replayed, next_file: 1 };
    repair.run()?;
    Ok(repair.story)
}

struct Repair {
    homes: Homes,
    shape: TrieShape,
    rate: RateLimiter,
    story: Vec<String>,
    /// Damaged files, to be kept under another name once the new manifest is in force.
    aside: Vec<String>,
    /// Logs, to be removed then.
    replayed: Vec<String>,
    next_file: u64,
}

/// Items on their way to a new table.
#[derive(Default)]
struct Saved {
    bytes: Vec<u8>,
    /// By hash, with where they begin; of equal hashes the last one is the newest.
    items: Vec<(Hash, usize)>,
}

impl Saved {
    fn push(&mut self, hash: Hash, item: &Item<'_>) {
        self.items.push((hash, self.bytes.len()));
        item.push(&mut self.bytes);
    }
}

impl Repair {
    fn run(&mut self) -> Result<()> {
        let mut files = BTreeMap::new();
        for media in self.homes.all() {
            for name in media.list()? {
                if let Some((kind, number)) = Kind::parse(&name) {
                    files.insert((number, kind), media.clone());
                    self.next_file = self.next_file.max(number + 1);
                }
            }
        }
        let known = self.read_manifest()?;
        let has_manifest = known.is_some();
        let known = match known {
            Some(known) => known,
            None => self.guess(&files)?,
        };
        self.shape = known.shape.unwrap_or(self.shape);
        let mut state = Edit { shape: Some(self.shape), ..Edit::default() };
        for added in &known.added {
            self.check_table(added, &mut state)?;
        }
        for &(place, number, bytes) in &known.clusters {
            let cluster = Cluster::open(&self.homes, number, bytes);
            match cluster.and_then(|cluster| cluster.load(Purpose::Maintenance)) {
                Ok(_) => state.clusters.push((place, number, bytes)),
                Err(error @ Error::Corruption { .. }) => {
                    self.tell(format!("{error}: nothing is lost, filters are in the tables, too"));
                    self.aside.push(Kind::Cluster.name(number));
                }
                Err(other) => return Err(other),
            }
        }
        let first_log = known.first_log.unwrap_or(0);
        let mut last_sequence = known.last_sequence.unwrap_or(0);
        // What is in a table already must not come back as newest.
        let in_tables = if has_manifest { 0 } else { last_sequence };
        for &(number, kind) in files.keys() {
            if kind == Kind::Log && number >= first_log {
                let last = self.replay(number, in_tables, &mut state)?;
                last_sequence = last_sequence.max(last);
            }
        }
        self.write_manifest(Edit { last_sequence: Some(last_sequence), ..state })
    }

    /// What the manifest says; `None`, and a line of the story, if it does not hold.
    fn read_manifest(&mut self) -> Result<Option<Edit>> {
        let media = &self.homes.main;
        let read = || -> Result<Option<Edit>> {
            if !Manifest::exists(media.as_ref())? {
                return Ok(None);
            }
            let (_, edits) = Manifest::open(media.clone(), ENGINE)?;
            fold(&edits).map(Some)
        };
        let reason = match read() {
            Ok(Some(edit)) => return Ok(Some(edit)),
            Ok(None) => "there is no manifest".to_owned(),
            Err(error) if error.is_corruption() || error.is_not_found() => {
                format!("the manifest does not hold ({error})")
            }
            Err(other) => return Err(other),
        };
        self.tell(format!(
            "{reason}: tables go where their footers say; keys deleted shortly before the damage \
             may show again"
        ));
        Ok(None)
    }

    /// What a manifest would say, as far as the tables tell.
    fn guess(&mut self, files: &BTreeMap<(u64, Kind), Arc<dyn Media>>) -> Result<Edit> {
        let mut found = Vec::new();
        for (&(number, kind), media) in files {
            if kind != Kind::HTable {
                continue;
            }
            let name = Kind::HTable.name(number);
            let bytes = media.open(&name, Mode::Read)?.len()?;
            match HTable::open(&self.homes, number, bytes, false) {
                Ok(table) => found.push((table.origin(), number, bytes)),
                // Without a footer nobody knows its place: the root shows it, as the oldest there.
                Err(Error::Corruption { .. }) => found.push((Origin::default(), number, bytes)),
                Err(other) => return Err(other),
            }
        }
        let shape = found.iter().map(|(origin, ..)| origin.shape).find(|s| s.fanout_bits > 0);
        found.sort_unstable_by_key(|&(origin, number, _)| (origin.last_sequence, number));
        let last_sequence = found.last().map(|(origin, ..)| origin.last_sequence);
        let added = |(origin, number, bytes): (Origin, u64, u64)| Added {
            place: origin.place,
            number,
            bytes,
            is_oldest: false,
        };
        let added = found.into_iter().map(added).collect();
        Ok(Edit { added, shape, last_sequence, ..Edit::default() })
    }

    /// Adds a table to `state`: as it is if it is sound, else what can be read of it.
    fn check_table(&mut self, added: &Added, state: &mut Edit) -> Result<()> {
        let &Added { place, number, bytes, .. } = added;
        let name = Kind::HTable.name(number);
        let table = HTable::open(&self.homes, number, bytes, true).map(Arc::new);
        let sound = table.as_ref().map_err(Error::clone);
        let damage = match sound.and_then(|table| table.verify(self.shape.hash)) {
            Ok(()) => {
                state.added.push(*added);
                return Ok(());
            }
            Err(damage @ Error::Corruption { .. }) => damage,
            Err(other) => return Err(other),
        };
        let Some(media) = self.medium_of(&name)? else {
            self.tell(format!("{name} of {place} is missing: what was in it is lost"));
            return Ok(());
        };
        self.tell(damage.to_string());
        let file = media.open(&name, Mode::Read)?;
        let saved = match &table {
            Ok(table) => self.save_known(table, state)?,
            Err(_) => self.save_unknown(number, place, file.as_ref(), state)?,
        };
        self.tell(format!("{name}: {saved} items saved, the file kept as {name}.damaged"));
        self.aside.push(name);
        Ok(())
    }

    /// Saves what can be read of a table whose frames hold.
    fn save_known(&mut self, table: &Arc<HTable>, state: &mut Edit) -> Result<u64> {
        let (mut saved, mut count) = (Saved::default(), 0);
        let mut buffer = vec![0; table.bucket_bytes() as usize];
        for bucket in 0..table.buckets() {
            let place = table.directory().place(bucket, table.bucket_bytes());
            let (offset, buffer) = (place.start, &mut buffer[..(place.end - place.start) as usize]);
            let read = table.read(offset, buffer, Purpose::Maintenance);
            let opened = read.and_then(|()| table.open_bucket(offset, buffer));
            match opened {
                Ok((header, items)) => {
                    for (_, _, item) in header.items(items).flatten() {
                        saved.push(self.shape.hash.hash(item.key), &item);
                    }
                }
                Err(Error::Corruption { .. }) => self.tell(format!(
                    "{}: bytes {offset} to {} do not hold: a bucket is lost",
                    table.name(),
                    offset + buffer.len() as u64
                )),
                Err(other) => return Err(other),
            }
            count += self.write_if_full(&mut saved, table.origin(), state)?;
        }
        for special in table.specials() {
            let read = table.read_special(special, Purpose::Maintenance);
            match read.and_then(|bytes| {
                let item = table.special_item(special, &bytes)?;
                saved.push(self.shape.hash.hash(item.key), &item);
                Ok(())
            }) {
                Ok(()) => {}
                Err(Error::Corruption { .. }) => self.tell(format!(
                    "{}: bytes {} to {} do not hold: a large item is lost",
                    table.name(),
                    special.offset,
                    special.offset + special.frame_bytes()
                )),
                Err(other) => return Err(other),
            }
            count += self.write_if_full(&mut saved, table.origin(), state)?;
        }
        Ok(count + self.write(&mut saved, table.origin(), state)?)
    }

    /// Saves the buckets of a table whose footer or index does not hold: those that prove themselves.
    fn save_unknown(
        &mut self,
        number: u64,
        place: Place,
        file: &dyn File,
        state: &mut Edit,
    ) -> Result<u64> {
        let (name, sum, len) = (Kind::HTable.name(number), FileSum::new(number), file.len()?);
        // Reads what a bucket would be there; the last one of a table ends behind its items.
        let read = |offset: u64, bytes: u64, buffer: &mut Vec<u8>| -> Result<bool> {
            buffer.resize(bytes.min(len - offset) as usize, 0);
            match file.read_at(offset, buffer, Purpose::Maintenance) {
                Ok(()) => {}
                Err(error) if error.is_corruption() => return Ok(false),
                Err(error) => return Err(error),
            }
            let is_whole = buffer.len() as u64 == bytes;
            if is_whole && BucketHeader::open(sum, offset, buffer).is_some() {
                return Ok(true);
            }
            let short = BucketHeader::least_bytes(buffer).filter(|&least| least <= buffer.len());
            buffer.truncate(short.unwrap_or(0));
            Ok(BucketHeader::open(sum, offset, buffer).is_some())
        };
        // The first bucket that holds, of whichever size, gives the grid.
        let (mut grid, mut buffer) = (None, Vec::new());
        let mut at = 0;
        while grid.is_none() && at < len {
            for bytes in (8..=15).map(|bits| 1u64 << bits).filter(|bytes| at % bytes == 0) {
                if read(at, bytes, &mut buffer)? {
                    grid = grid.or(Some(bytes));
                }
            }
            at += 256;
        }
        let Some(bytes) = grid else {
            self.tell(format!("{name}: bytes 0 to {len}: no bucket of it holds, all is lost"));
            return Ok(0);
        };
        let origin = Origin { place, shape: self.shape, last_sequence: 0 };
        let (mut saved, mut count) = (Saved::default(), 0);
        let mut lost: Option<u64> = None;
        let mut story = Vec::new();
        let mut end = |lost: &mut Option<u64>, at: u64| {
            if let Some(from) = lost.take() {
                story.push(format!(
                    "{name}: bytes {from} to {at} hold no bucket: what was there is lost, unless it \
                     was filters and indexes"
                ));
            }
        };
        for offset in (0..len).step_by(bytes as usize) {
            if !read(offset, bytes, &mut buffer)? {
                lost = lost.or(Some(offset));
                continue;
            }
            end(&mut lost, offset);
            if let Some((header, items)) = BucketHeader::open(sum, offset, &buffer) {
                for (_, _, item) in header.items(items).flatten() {
                    saved.push(self.shape.hash.hash(item.key), &item);
                }
            }
            count += self.write_if_full(&mut saved, origin, state)?;
        }
        end(&mut lost, len);
        self.story.append(&mut story);
        Ok(count + self.write(&mut saved, origin, state)?)
    }

    fn write_if_full(
        &mut self,
        saved: &mut Saved,
        origin: Origin,
        state: &mut Edit,
    ) -> Result<u64> {
        match saved.bytes.len() {
            0..WINDOW_BYTES => Ok(0),
            _ => self.write(saved, origin, state),
        }
    }

    /// Writes what was saved to a new table, as the newest so far of its container.
    fn write(&mut self, saved: &mut Saved, origin: Origin, state: &mut Edit) -> Result<u64> {
        let Saved { bytes, mut items } = std::mem::take(saved);
        if items.is_empty() {
            return Ok(0);
        }
        items.sort_unstable();
        let number = self.next_file;
        self.next_file += 1;
        let build = Options::default().build(Layout::Buckets);
        let expected = Expected { items: items.len() as u64, bytes: bytes.len() as u64 };
        let media = self.homes.main.as_ref();
        let purpose = Purpose::Maintenance;
        let mut writer =
            TableWriter::create(media, number, build, origin, expected, &self.rate, purpose)?;
        let item_at = |at: usize| Item::parse(&bytes[at..]).map(|(item, _)| item);
        for (n, &(hash, at)) in items.iter().enumerate() {
            let Some(item) = item_at(at) else { continue };
            let mut newer = items[n + 1..].iter().take_while(|(other, _)| *other == hash);
            if !newer.any(|&(_, at)| item_at(at).is_some_and(|newer| newer.key == item.key)) {
                writer.push(hash, &item)?;
            }
        }
        let built = writer.finish()?;
        let place = origin.place;
        state.added.push(Added { place, number, bytes: built.bytes, is_oldest: false });
        Ok(built.items)
    }

    /// Writes what a log holds behind sequence number `from`, up to its first damage, to tables of
    /// the root; answers the last sequence number.
    fn replay(&mut self, number: u64, from: u64, state: &mut Edit) -> Result<u64> {
        let name = Kind::Log.name(number);
        let media = self.homes.main.clone();
        let mut reader = LogReader::open(media.as_ref(), &name, number, LogMode::Recover)?;
        let (mut saved, mut count, mut last) = (Saved::default(), 0, 0);
        let damage = loop {
            let record = match reader.next() {
                Ok(None) => break None,
                Ok(Some(record)) => record,
                Err(error @ Error::Corruption { .. }) => break Some(error.to_string()),
                Err(other) => return Err(other),
            };
            match Record::decode(record.bytes) {
                Ok(Record::Link(_)) => {}
                Ok(Record::Batch { first_sequence, batch }) => {
                    for (sequence, op) in (first_sequence..).zip(batch.iter()) {
                        last = sequence;
                        if sequence > from {
                            let item = match op {
                                Op::Delete { key } => Item::delete(key),
                                Op::Put { key, value, expires_at } => {
                                    Item { key, value: Some(value), expires_at }
                                }
                            };
                            saved.push(self.shape.hash.hash(item.key), &item);
                        }
                    }
                    let origin = self.root(last);
                    count += self.write_if_full(&mut saved, origin, state)?;
                }
                Err(reason) => break Some(reason),
            }
        };
        let (origin, valid) = (self.root(last), reader.valid_bytes());
        count += self.write(&mut saved, origin, state)?;
        drop(reader);
        let Some(damage) = damage else {
            self.tell(format!("{name}: {count} items replayed into the root"));
            self.replayed.push(name);
            return Ok(last);
        };
        let len = media.open(&name, Mode::Read)?.len()?;
        self.tell(format!(
            "{name}: bytes {valid} to {len} are lost ({damage}): {count} items before that saved, \
             the file kept as {name}.damaged"
        ));
        self.aside.push(name);
        Ok(last)
    }

    fn root(&self, last_sequence: u64) -> Origin {
        Origin { place: Place::default(), shape: self.shape, last_sequence }
    }

    fn write_manifest(&mut self, state: Edit) -> Result<()> {
        let first = Some(self.next_file);
        let state = Edit { next_file: first, first_log: first, ..state };
        self.aside.iter().try_for_each(|name| self.put_aside(name, aside::keep))?;
        self.homes.sync_dirs(Purpose::Maintenance)?;
        let media = &self.homes.main;
        match Manifest::open(media.clone(), ENGINE) {
            Ok((mut manifest, _)) => {
                manifest.rewrite(&state.encode())?;
                manifest.close()?;
            }
            Err(_) => {
                for name in media.list()?.iter().filter(|name| Manifest::owns(name)) {
                    media.rename(name, &format!("{name}.damaged"))?;
                }
                Manifest::create(media.clone(), ENGINE, &state.encode())?.close()?;
            }
        }
        self.aside.iter().try_for_each(|name| self.put_aside(name, aside::leave))?;
        self.replayed.iter().try_for_each(|name| media.remove(name))?;
        self.homes.sync_dirs(Purpose::Maintenance)?;
        self.tell(format!("the new manifest names {} tables", state.added.len()));
        Ok(())
    }

    fn put_aside(&self, name: &str, put: fn(&dyn Media, &str) -> Result<()>) -> Result<()> {
        self.medium_of(name)?.map_or(Ok(()), |media| put(media.as_ref(), name))
    }

    /// The medium on which a file is.
    fn medium_of(&self, name: &str) -> Result<Option<Arc<dyn Media>>> {
        for media in self.homes.all() {
            if media.exists(name)? {
                return Ok(Some(media.clone()));
            }
        }
        Ok(None)
    }

    fn tell(&mut self, line: String) {
        self.story.push(line);
    }
}
