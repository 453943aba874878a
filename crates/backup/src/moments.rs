//! The moments to which a store can be restored: from which backup, by which segments.
//!
//! ```text
//!   segments    7 ─────────── 8 ──── 9         10 is missing         11 ── 12
//!   mark at     ●             ●      ●                               ●     ●
//!   state of    7 7 7 7 7 ?   8 8 ?  9 9 9 …                              HEAD's time
//!   backup           ■ from             here 7, 8 and 9 can be had; 11 needs a later backup
//! ```
//!
//! A segment says since when something has happened, so the state behind the segment before it is
//! known up to that moment. A moment within `?` is restored as the last known one before it.
//!
//! A backup reaches the marks of its series from its own moment up to the first missing segment.
//! Only names are read, and HEAD of each series.

use siltstone::Timestamp;
use siltstone_engine::{Error, Result};

use crate::manifest::ArchiveLink;
use crate::repository::{Backup, Repository};
use crate::series::{Head, SegmentName, Series};
use crate::time::format_time;

/// A range of moments to which a store can be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moments {
    /// The store, as its backups have it.
    pub store: String,
    /// The first moment, in milliseconds since 1970.
    pub first: Timestamp,
    /// The last moment.
    pub last: Timestamp,
    /// The backups from which these moments are restored, oldest first.
    pub backups: Vec<String>,
    /// Why the changes after the last moment are missing, if that is known.
    pub end: Option<String>,
}

/// How one moment is restored.
pub(crate) struct Plan {
    pub(crate) series: Series,
    pub(crate) backup: String,
    /// The segments to read, of which the last one has the mark.
    pub(crate) segments: Vec<SegmentName>,
    /// The moment, up to one interval before the one that was asked for.
    pub(crate) moment: Timestamp,
}

/// A series with the backups that belong to it.
struct Timeline {
    store: String,
    series: Series,
    names: Vec<SegmentName>,
    head: Option<Head>,
    /// Oldest first.
    backups: Vec<(String, ArchiveLink)>,
}

/// A segment with a mark, and the last moment at which the store was as behind it.
#[derive(Clone, Copy)]
struct State {
    number: u64,
    from: Timestamp,
    to: Timestamp,
}

impl Timeline {
    /// The states that a backup reaches, in order. The first one may be older than the backup.
    fn states(&self, link: &ArchiveLink) -> Vec<State> {
        let mut states: Vec<State> = Vec::new();
        let mut previous = None;
        for name in &self.names {
            if previous.is_none_or(|previous| previous + 1 != name.number) {
                // Changes are missing: before the backup that is no harm.
                if name.number > link.after + 1 {
                    break;
                }
                states.clear();
            }
            previous = Some(name.number);
            let Some((since, until)) = name.mark else { continue };
            if let Some(before) = states.last_mut() {
                before.to = since;
            }
            if name.number <= link.after {
                states.clear();
            }
            states.push(State { number: name.number, from: until, to: until });
        }
        if let (Some(last), Some(head)) = (states.last_mut(), &self.head)
            && head.number == last.number
        {
            last.to = head.time.max(last.from);
        }
        states
    }

    /// The first and the last moment that a backup reaches.
    fn range(&self, link: &ArchiveLink) -> Option<(Timestamp, Timestamp)> {
        let states = self.states(link);
        let first = states.iter().find(|state| state.to >= link.from)?;
        Some((first.from.max(link.from), states.last()?.to))
    }

    /// The moment at or before `time` that a backup reaches, and the segment with its mark.
    fn moment(&self, link: &ArchiveLink, time: Timestamp) -> Option<(Timestamp, u64)> {
        let states = self.states(link);
        if states.last()?.to < time {
            return None;
        }
        let state = states.iter().rfind(|state| state.from <= time)?;
        let moment = time.min(state.to);
        (moment >= link.from).then_some((moment, state.number))
    }

    /// Ranges of moments without a gap, in order.
    fn moments(&self) -> Vec<Moments> {
        let mut ranges: Vec<Moments> = Vec::new();
        for (id, link) in &self.backups {
            let Some((first, last)) = self.range(link) else { continue };
            match ranges.last_mut() {
                Some(before) if first <= before.last => {
                    before.last = before.last.max(last);
                    before.backups.push(id.clone());
                }
                _ => ranges.push(Moments {
                    store: self.store.clone(),
                    first,
                    last,
                    backups: vec![id.clone()],
                    end: Some("segments of the archive are missing or damaged".to_owned()),
                }),
            }
        }
        if let Some(last) = ranges.last_mut() {
            let marks = self.names.iter().filter_map(|name| name.mark).map(|(_, until)| until);
            if marks.max().is_none_or(|newest| newest <= last.last) {
                last.end = self.head.as_ref().and_then(|head| head.end.clone());
            }
        }
        ranges
    }
}

impl Repository {
    /// The moments to which stores can be restored by [`restore_at`](Self::restore_at), by store
    /// and time. Cost: the names of all segments, and the manifests of all backups; damaged
    /// manifests are passed over.
    ///
    /// # Errors
    /// I/O errors.
    pub fn moments(&self) -> Result<Vec<Moments>> {
        let mut moments: Vec<_> = self.timelines()?.iter().flat_map(Timeline::moments).collect();
        moments.sort_by(|a, b| (&a.store, a.first).cmp(&(&b.store, b.first)));
        Ok(moments)
    }

    fn timelines(&self) -> Result<Vec<Timeline>> {
        let mut linked: Vec<(Backup, ArchiveLink)> = Vec::new();
        for id in self.ids()? {
            match self.backup(&id) {
                Ok(mut backup) => {
                    let link = backup.manifest.archive.take();
                    linked.extend(link.map(|link| (backup, link)));
                }
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        let mut timelines = Vec::new();
        for (series, names) in self.all_series()? {
            let mut of_series = linked.iter().filter(|(_, link)| link.series == series.id);
            let backups: Vec<_> =
                of_series.clone().map(|(backup, link)| (backup.id.clone(), link.clone())).collect();
            let Some((newest, _)) = of_series.next_back() else { continue };
            let head = series.head()?;
            let store = newest.manifest.store.clone();
            timelines.push(Timeline { store, series, names, head, backups });
        }
        Ok(timelines)
    }

    /// How to restore the moment `time`: the newest backup first, then earlier ones.
    ///
    /// # Errors
    /// `Invalid` if it cannot be restored, with the moments that can.
    pub(crate) fn plans(&self, store: Option<&str>, time: Timestamp) -> Result<Vec<Plan>> {
        let mut timelines = self.timelines()?;
        let mut stores: Vec<_> = timelines.iter().map(|it| it.store.clone()).collect();
        stores.sort();
        stores.dedup();
        match store {
            Some(store) => timelines.retain(|timeline| timeline.store == store),
            None if stores.len() > 1 => {
                let reason = "the repository has archives of several stores: name one with --store";
                return Err(Error::Invalid(format!("{reason}: {}", stores.join(", "))));
            }
            None => {}
        }
        let mut plans = Vec::new();
        for timeline in timelines.iter().rev() {
            for (id, link) in timeline.backups.iter().rev() {
                let Some((moment, number)) = timeline.moment(link, time) else { continue };
                let is_read =
                    |name: &&SegmentName| name.number > link.after && name.number <= number;
                plans.push(Plan {
                    series: self.series(&timeline.series.id),
                    backup: id.clone(),
                    segments: timeline.names.iter().filter(is_read).copied().collect(),
                    moment,
                });
            }
        }
        match plans.is_empty() {
            false => Ok(plans),
            true => Err(refusal(time, &timelines)),
        }
    }
}

/// The error for a moment that cannot be restored.
fn refusal(time: Timestamp, timelines: &[Timeline]) -> Error {
    let mut ranges: Vec<_> = timelines.iter().flat_map(Timeline::moments).collect();
    ranges.sort_by_key(|range| range.first);
    let Some((first, last)) = ranges.first().zip(ranges.last()) else {
        return Error::Invalid(
            "the repository has no archive of changes with a backup: `siltstone serve --backup \
             REPOSITORY --backup-log-interval 10s` writes one"
                .to_owned(),
        );
    };
    let asked = format_time(time);
    let before = ranges.iter().rfind(|range| range.last < time);
    let after = ranges.iter().find(|range| range.first > time);
    Error::Invalid(match (before, after) {
        (Some(before), Some(after)) => {
            let reason = before.end.as_deref().unwrap_or("the store was not archived");
            format!(
                "{asked} is in a gap of the archive: {reason}; the nearest moments are {} and {}",
                format_time(before.last),
                format_time(after.first)
            )
        }
        _ => format!(
            "{asked} is outside of the archive, which has the moments from {} to {}",
            format_time(first.first),
            format_time(last.last)
        ),
    })
}
