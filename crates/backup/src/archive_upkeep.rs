//! Checks the segments of an archive, and removes those that no backup needs.

use std::collections::BTreeSet;

use siltstone_engine::{Error, Result};

use crate::manifest::ArchiveLink;
use crate::repository::Repository;
use crate::segment::{self, Hash};
use crate::series::SegmentName;

/// A segment that cannot be read, or that does not follow the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedSegment {
    /// Its series.
    pub(crate) series: String,
    pub(crate) name: SegmentName,
    /// What is wrong, with its path.
    pub reason: String,
}

/// The result of checking an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SegmentCheck {
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    pub(crate) damaged: Vec<DamagedSegment>,
}

impl Repository {
    /// Reads all segments. `progress` is called with the bytes read so far.
    pub(crate) fn check_segments(&self, progress: &mut dyn FnMut(u64)) -> Result<SegmentCheck> {
        let mut check = SegmentCheck::default();
        for (series, names) in self.all_series()? {
            let mut last: Option<(u64, Hash)> = None;
            for name in names {
                let path = series.path(name);
                let bytes = series.read(name)?;
                check.bytes += bytes.len() as u64;
                progress(check.bytes);
                let verified = segment::verify(&path, &bytes).and_then(|(header, hash)| {
                    let mark = header.is_mark.then_some((header.since, header.until));
                    let is_next = match last {
                        Some((number, before)) if number + 1 == header.number => {
                            before == header.previous
                        }
                        _ => true,
                    };
                    match (SegmentName { number: header.number, mark } == name, is_next) {
                        (true, true) => Ok(hash),
                        (false, _) => Err(Error::corruption(&path, 0, "its name is another's")),
                        _ => Err(Error::corruption(
                            &path,
                            0,
                            "it does not follow the segment before it",
                        )),
                    }
                });
                match verified {
                    Ok(hash) => {
                        check.segments += 1;
                        last = Some((name.number, hash));
                    }
                    Err(error) if error.is_corruption() => {
                        let reason = error.to_string();
                        check.damaged.push(DamagedSegment {
                            series: series.id.clone(),
                            name,
                            reason,
                        });
                        last = None;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(check)
    }

    /// Renames the damaged segments of a check.
    pub(crate) fn set_aside_segments(&self, damaged: &[DamagedSegment]) -> Result<()> {
        if damaged.is_empty() {
            return Ok(());
        }
        let _lock = self.lock_archive()?;
        damaged.iter().try_for_each(|segment| self.series(&segment.series).set_aside(segment.name))
    }

    /// Removes the segments that are older than the oldest of the backups `kept` of their store,
    /// and series of which no backup is left, except those that are younger than all backups.
    /// Returns their number.
    pub(crate) fn remove_segments(&self, kept: &[(u64, Option<ArchiveLink>)]) -> Result<u64> {
        let mut segments = 0;
        let all = self.all_series()?;
        if all.is_empty() {
            return Ok(0);
        }
        let _lock = self.lock_archive()?;
        let oldest_ms = kept.iter().map(|(taken_at, _)| taken_at * 1000).min().unwrap_or(0);
        for (series, names) in all {
            let links = kept.iter().filter_map(|(_, link)| link.as_ref());
            let after = links.filter(|link| link.series == series.id).map(|link| link.after).min();
            let head = series.head()?;
            let is_old = head.as_ref().is_none_or(|head| head.time < oldest_ms);
            let unneeded: BTreeSet<SegmentName> = match after {
                // The state of the last mark before the backup may be that of the backup.
                Some(after) => {
                    let older = names.iter().filter(|name| name.number <= after);
                    let base = older.clone().rfind(|name| name.mark.is_some());
                    older.filter(|name| base.is_none_or(|base| *name < base)).copied().collect()
                }
                None if is_old => names.iter().copied().collect(),
                None => BTreeSet::new(),
            };
            if unneeded.is_empty() {
                continue;
            }
            segments += unneeded.len() as u64;
            series.remove(&unneeded.iter().copied().collect::<Vec<_>>())?;
            if after.is_none() {
                series.remove_head()?;
            }
        }
        Ok(segments)
    }
}
