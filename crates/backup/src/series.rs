//! A series of segments: the changes of one store, without a gap, from one moment on.
//!
//! ```text
// ANCHOR: layout
//!   REPOSITORY/LOCK-ARCHIVE                               held while one writes or removes
//!   REPOSITORY/archive/  SERIES/HEAD                      the last segment, and how far it reaches
//!                        SERIES/NUMBER-SINCE-UNTIL        a segment that ends with a mark
//!                        SERIES/NUMBER-part               a piece of the next one
//!
//!   SERIES   the UTC time of its beginning and 8 digits, as in 20261129T150400Z-0f3a96c1
//!   NUMBER   12 digits; SINCE, UNTIL: 13 digits, milliseconds since 1970
//!   HEAD     {"version":1,"number":12,"hash":…,"time":…,"end":…}   and its hash (see `sealed`)
// ANCHOR_END: layout
//! ```
//!
//! The names alone show which moments can be restored. HEAD is written after its segment, and also
//! when nothing has changed: then it has a later time, and the store is at `time` as it was at the
//! last mark. A series that cannot be continued has the reason in `end`.
//!
//! Invariants:
//! - Segments have the numbers 1, 2, 3 … in the order of their marks. A segment appears when it is
//!   complete and durable, and never changes.
//! - Each segment has the hash of the one before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use siltstone_engine::{Error, Result, Timestamp};
use siltstone_vfs::LockGuard;

use crate::repository::Repository;
use crate::sealed;
use crate::storage::Storage;

const ARCHIVE: &str = "archive";
const HEAD: &str = "HEAD";
const PART: &str = "part";
const HEAD_VERSION: u32 = 1;
/// How long another archiver may write or remove segments. It takes a fraction of that.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The segments of one series.
pub(crate) struct Series {
    storage: Arc<dyn Storage>,
    pub(crate) id: String,
}

/// The name of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    pub(crate) number: u64,
    /// Since and until, if it ends with a mark.
    pub(crate) mark: Option<(Timestamp, Timestamp)>,
}

/// The content of HEAD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    version: u32,
    /// The last segment.
    pub(crate) number: u64,
    /// Its hash as 64 hex digits.
    pub(crate) hash: String,
    /// The last moment at which the store was as behind that segment.
    pub(crate) time: Timestamp,
    /// Why the series was not continued.
    pub(crate) end: Option<String>,
}

impl Head {
    pub(crate) fn new(number: u64, hash: String, time: Timestamp, end: Option<String>) -> Self {
        Head { version: HEAD_VERSION, number, hash, time, end }
    }
}

impl SegmentName {
    fn parse(name: &str) -> Option<Self> {
        let (number, rest) = name.split_once('-')?;
        let number = parse_number(number, 12)?;
        if rest == PART {
            return Some(SegmentName { number, mark: None });
        }
        let (since, until) = rest.split_once('-')?;
        let mark = Some((parse_number(since, 13)?, parse_number(until, 13)?));
        Some(SegmentName { number, mark })
    }
}

impl std::fmt::Display for SegmentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.number;
        match self.mark {
            None => write!(f, "{number:012}-{PART}"),
            Some((since, until)) => write!(f, "{number:012}-{since:013}-{until:013}"),
        }
    }
}

fn parse_number(text: &str, digits: usize) -> Option<u64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

impl Series {
    /// Its last segment and moment; `None` if there is none, or if the file is damaged.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn head(&self) -> Result<Option<Head>> {
        let Some(bytes) = self.storage.read(&self.file(HEAD))? else { return Ok(None) };
        let head = sealed::parse::<Head>(HEAD, &bytes).ok();
        Ok(head.filter(|head| head.version == HEAD_VERSION))
    }

    /// Replaces HEAD, durably.
    pub(crate) fn write_head(&self, head: &Head) -> Result<()> {
        self.storage.write(&self.file(HEAD), &sealed::seal(head)?)?;
        self.storage.sync()
    }

    /// The names of its segments, in the order of their numbers.
    pub(crate) fn names(&self) -> Result<Vec<SegmentName>> {
        let mut names = Vec::new();
        self.storage.list(&format!("{ARCHIVE}/{}", self.id), &mut |file| {
            names.extend(SegmentName::parse(file.path));
            Ok(())
        })?;
        names.sort_unstable();
        Ok(names)
    }

    /// The name of a segment in messages.
    pub(crate) fn path(&self, name: SegmentName) -> String {
        format!("{}/{}", self.storage.name(), self.file(&name.to_string()))
    }

    /// # Errors
    /// `Corruption` if it is missing; I/O errors.
    pub(crate) fn read(&self, name: SegmentName) -> Result<Vec<u8>> {
        let content = self.storage.read(&self.file(&name.to_string()))?;
        content.ok_or_else(|| Error::corruption(self.path(name), 0, "this segment is missing"))
    }

    /// Adds a segment, durably.
    pub(crate) fn write(&self, name: SegmentName, bytes: &[u8]) -> Result<()> {
        self.storage.write(&self.file(&name.to_string()), bytes)?;
        self.storage.sync()
    }

    /// Renames a damaged segment to `NAME.damaged`, durably.
    pub(crate) fn set_aside(&self, name: SegmentName) -> Result<()> {
        let path = self.file(&name.to_string());
        self.storage.rename(&path, &format!("{path}.damaged"))?;
        self.storage.sync()
    }

    /// Removes segments, durably.
    pub(crate) fn remove(&self, names: &[SegmentName]) -> Result<()> {
        let paths: Vec<_> = names.iter().map(|name| self.file(&name.to_string())).collect();
        self.storage.remove(&paths)?;
        self.storage.sync()
    }

    /// Removes HEAD of a series without segments.
    pub(crate) fn remove_head(&self) -> Result<()> {
        self.storage.remove(&[self.file(HEAD)])?;
        self.storage.sync()
    }

    fn file(&self, name: &str) -> String {
        format!("{ARCHIVE}/{}/{name}", self.id)
    }
}

impl Repository {
    /// Keeps others from writing and removing segments. Waits for one that does.
    ///
    /// # Errors
    /// `Refused` if the repository is not there, as under a file system that is not mounted;
    /// `Locked`; I/O errors.
    pub(crate) fn lock_archive(&self) -> Result<LockGuard> {
        Self::open_in(self.storage.clone())?;
        let began = Instant::now();
        loop {
            match self.storage.lock_archive() {
                Err(Error::Locked { .. }) if began.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(POLL_INTERVAL);
                }
                locked => return locked,
            }
        }
    }

    /// The series `id`, also if it has no segments yet.
    pub(crate) fn series(&self, id: &str) -> Series {
        Series { storage: self.storage.clone(), id: id.to_owned() }
    }

    /// All series in the order of their beginnings, with the names of their segments in order.
    pub(crate) fn all_series(&self) -> Result<Vec<(Series, Vec<SegmentName>)>> {
        let mut all: BTreeMap<String, Vec<SegmentName>> = BTreeMap::new();
        self.storage.list(ARCHIVE, &mut |file| {
            if let Some((id, name)) = file.path.split_once('/') {
                all.entry(id.to_owned()).or_default().extend(SegmentName::parse(name));
            }
            Ok(())
        })?;
        all.values_mut().for_each(|names| names.sort_unstable());
        Ok(all.into_iter().map(|(id, names)| (self.series(&id), names)).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_of_segments_sort_by_number_and_read_back() {
        let mark = |number, since, until| SegmentName { number, mark: Some((since, until)) };
        let part = SegmentName { number: 2, mark: None };
        let names =
            [mark(1, 1_795_671_000_000, 1_795_671_000_000), part, mark(3, 0, 9_999_999_999_999)];
        let texts = names.map(|name| name.to_string());
        assert!(texts.is_sorted(), "{texts:?}");
        assert_eq!(texts.clone().map(|text| SegmentName::parse(&text).unwrap()), names);
        for other in ["HEAD", "LOCK", "000000000002", "2-part", &format!("{}.damaged", texts[0])] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }
}
