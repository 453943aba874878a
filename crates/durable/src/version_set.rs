//! The current version of a table's files, and the manifest that records it.
//!
//! ```text
//!   log_and_apply(edit) ─ make the next version ─ manifest: durable ─ publish ─ retire removed files
//! ```
//!
//! An engine defines what a [`VersionEdit`] changes and what a [`VersionState`] contains; the order
//! of the steps, the numbering of files and the rewriting of a grown manifest are the same for all
//! engines. Edits are applied one at a time. Readers hold an `Arc` of a version and never wait for
//! an edit.
//!
//! Invariants:
//! - A version names only files that the manifest names durably, so a file is opened before the
//!   manifest names it, and deleted only after the manifest has durably ceased to name it.
//! - If it is unknown whether the manifest contains an edit, the version that the edit would have
//!   made is kept until the table is closed: what it names is neither deleted nor reused.
//! - An edit made from the files of an earlier generation (before all keys were removed) is
//!   dropped.
//!
//! Source: LevelDB's `VersionSet`.

use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, Result};
use siltstone_table::{FileNumbers, Manifest};
use siltstone_vfs::Vfs;

use crate::missing_files::missing_manifest;
use crate::version_edit::{EditHeader, VersionEdit, replay_edits};

/// The files of a table at one moment; immutable.
pub trait VersionState: Sized {
    /// The difference between one version and the next.
    type Edit: VersionEdit;

    /// The engine's name in the manifest.
    const ENGINE: &'static str;

    /// The edit that makes this version from an empty one. Its header is filled by the caller.
    fn to_edit(&self) -> Self::Edit;

    /// Marks the files of this version that `edit` removes: each is deleted when the last version
    /// that contains it is dropped. `next` is the version after `edit`.
    fn retire(&self, edit: &Self::Edit, next: &Self);
}

/// Applies edits and assigns file numbers.
pub struct VersionSet<V: VersionState> {
    numbers: FileNumbers,
    current: Mutex<Current<V>>,
}

struct Current<V> {
    /// `None` once the table is closed.
    manifest: Option<Manifest>,
    version: Arc<V>,
    /// The number of times that all keys were removed since the table was opened.
    generation: u64,
    /// The merged headers of all edits so far; `next_file` is outdated.
    header: EditHeader,
    /// Versions of edits that the manifest may or may not contain.
    unconfirmed: Vec<Arc<V>>,
}

/// The content of the manifest, for the rest of recovery.
pub struct RecoveredManifest<V: VersionState> {
    /// The manifest did not exist before.
    pub is_new: bool,
    /// All edits merged into one.
    pub edit: V::Edit,
    /// The version that the edits make.
    pub version: Arc<V>,
}

impl<V: VersionState> VersionSet<V> {
    /// Opens the manifest on `vfs`, or creates one with the snapshot `initial` if there is none and
    /// `check_empty` permits it. `open_files` makes the version from the merged edits.
    ///
    /// # Errors
    /// Corruption, a newer format, I/O errors, and those of the closures.
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        initial: V::Edit,
        check_empty: impl FnOnce() -> Result<()>,
        open_files: impl FnOnce(&V::Edit) -> Result<V>,
    ) -> Result<(Self, RecoveredManifest<V>)> {
        let is_new = !Manifest::exists(vfs.as_ref())?;
        let (manifest, edits) = if is_new {
            check_empty()?;
            let snapshot = with_header(initial, |header| header.next_file = Some(1)).encode();
            (Manifest::create(vfs.clone(), V::ENGINE, &snapshot)?, vec![snapshot])
        } else {
            Manifest::open(vfs.clone(), V::ENGINE).map_err(missing_manifest)?
        };
        let edit: V::Edit = replay_edits(&edits)?;
        let version = Arc::new(open_files(&edit)?);
        let header = *edit.header();
        let current = Current {
            manifest: Some(manifest),
            version: version.clone(),
            generation: 0,
            header: EditHeader {
                last_sequence: Some(header.last_sequence.unwrap_or(0)),
                first_log: Some(header.first_log.unwrap_or(0)),
                sealed_log: None,
                ..header
            },
            unconfirmed: Vec::new(),
        };
        let numbers = FileNumbers::of_manifest(header.next_file)?;
        let versions = VersionSet { numbers, current: Mutex::new(current) };
        Ok((versions, RecoveredManifest { is_new, edit, version }))
    }

    /// A file number that was never assigned before.
    pub fn new_number(&self) -> u64 {
        self.numbers.take()
    }

    /// Prevents `number`, that of an existing file, from being assigned again.
    pub fn skip_number(&self, number: u64) {
        self.numbers.skip(number);
    }

    /// Applies `edit`: `make_version` opens the added files and makes the next version, the
    /// manifest records the edit durably, then `publish` gets the new version while no other edit
    /// can come between. `make_version` may complete the edit.
    ///
    /// Returns `false`, and changes nothing, if all keys were removed since `generation`.
    ///
    /// # Errors
    /// Those of `make_version` and of the manifest. After a transient error the manifest does not
    /// contain the edit, and the files that it adds may be removed.
    pub fn log_and_apply(
        &self,
        generation: u64,
        mut edit: V::Edit,
        make_version: impl FnOnce(&V, &mut V::Edit) -> Result<V>,
        publish: impl FnOnce(&Arc<V>, &V::Edit),
    ) -> Result<bool> {
        let mut current = self.current.lock();
        if current.generation != generation {
            return Ok(false);
        }
        let next = make_version(&current.version, &mut edit)?;
        current.apply(&self.numbers, edit, next, publish)?;
        Ok(true)
    }

    /// Removes all keys: applies the edit that `make_empty` returns with the version after it, and
    /// begins a new generation. No log before `first_log` is needed afterwards, and no write so far
    /// has a sequence number above `last_sequence`.
    ///
    /// # Errors
    /// Those of the manifest. After a transient error nothing has changed; after any other error
    /// the next open decides.
    pub fn clear(
        &self,
        first_log: u64,
        last_sequence: u64,
        make_empty: impl FnOnce(&V) -> (V::Edit, V),
        publish: impl FnOnce(&Arc<V>, &V::Edit),
    ) -> Result<()> {
        let mut current = self.current.lock();
        let (edit, empty) = make_empty(&current.version);
        let edit = with_header(edit, |header| {
            header.first_log = Some(first_log);
            header.last_sequence = Some(last_sequence);
        });
        current.apply(&self.numbers, edit, empty, publish)?;
        current.generation += 1;
        Ok(())
    }

    /// Makes the manifest that was opened durable: only then may files that it does not name be
    /// removed.
    ///
    /// # Errors
    /// Those of the manifest.
    pub fn persist_recovered(&self) -> Result<()> {
        self.current.lock().manifest.as_mut().ok_or(Error::Closed)?.persist_recovered()
    }

    /// Reads the manifest on `vfs` while no edit changes it; returns its length in bytes.
    ///
    /// # Errors
    /// Those of [`Manifest::open`].
    pub fn verify_manifest(&self, vfs: &Arc<dyn Vfs>) -> Result<u64> {
        // An edit may replace the manifest and remove the previous one.
        let _current = self.current.lock();
        Ok(Manifest::open(vfs.clone(), V::ENGINE)?.0.bytes())
    }

    /// Seals the manifest: it takes no more edits.
    ///
    /// # Errors
    /// Those of the manifest.
    pub fn close(&self) -> Result<()> {
        self.current.lock().manifest.take().map_or(Ok(()), Manifest::close)
    }

    /// Replaces the current version in memory, and drops the versions of unconfirmed edits: for a
    /// closed table that must release resources.
    pub fn release(&self, reduce: impl FnOnce(&V) -> V) {
        let mut current = self.current.lock();
        current.version = Arc::new(reduce(&current.version));
        current.unconfirmed.clear();
    }

    /// The current version, and the edit that makes it from an empty one. For checkpoints.
    pub fn snapshot(&self) -> (Arc<V>, V::Edit) {
        let current = self.current.lock();
        let header = EditHeader { sealed_log: None, ..current.header };
        (current.version.clone(), current.snapshot(&self.numbers, header))
    }
}

impl<V: VersionState> Current<V> {
    fn apply(
        &mut self,
        numbers: &FileNumbers,
        edit: V::Edit,
        next: V,
        publish: impl FnOnce(&Arc<V>, &V::Edit),
    ) -> Result<()> {
        let next = Arc::new(next);
        let edit = with_header(edit, |header| {
            header.next_file = Some(numbers.next());
            header.last_sequence =
                header.last_sequence.filter(|&newest| Some(newest) > self.header.last_sequence);
            header.durable_batch =
                header.durable_batch.filter(|&last| Some(last) > self.header.durable_batch);
        });
        let appended = self.manifest.as_mut().ok_or(Error::Closed)?.append(&edit.encode());
        if appended.as_ref().is_err_and(|error| !error.is_transient()) {
            self.unconfirmed.push(next.clone());
        }
        appended?;

        self.header = self.header.then(*edit.header());
        let before = std::mem::replace(&mut self.version, next);
        publish(&self.version, &edit);
        before.retire(&edit, &self.version);
        drop(before);
        self.shrink_manifest(numbers);
        Ok(())
    }

    fn snapshot(&self, numbers: &FileNumbers, header: EditHeader) -> V::Edit {
        let mut snapshot = self.version.to_edit();
        *snapshot.header_mut() = EditHeader { next_file: Some(numbers.next()), ..header };
        snapshot
    }

    /// Rewrites the manifest once it is much longer than a snapshot. The edit was applied in any
    /// case: if the rewrite leaves the manifest unusable, the next edit fails.
    fn shrink_manifest(&mut self, numbers: &FileNumbers) {
        if self.manifest.as_ref().is_some_and(Manifest::should_rewrite) {
            let snapshot = self.snapshot(numbers, self.header).encode();
            let _ = self.manifest.as_mut().map(|manifest| manifest.rewrite(&snapshot));
        }
    }
}

fn with_header<E: VersionEdit>(mut edit: E, change: impl FnOnce(&mut EditHeader)) -> E {
    change(edit.header_mut());
    edit
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fmt;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use siltstone_faults::{FaultKind, FaultyVfs};

    use super::*;

    /// Adds or removes one number.
    #[derive(Default)]
    struct Change {
        header: EditHeader,
        added: Vec<u64>,
        removed: Vec<u64>,
        padding: usize,
    }

    impl fmt::Display for Change {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "+{:?} -{:?}", self.added, self.removed)
        }
    }

    impl VersionEdit for Change {
        /// Numbers of eight bytes: header, how many are added, these, those removed, padding.
        fn encode(&self) -> Vec<u8> {
            let EditHeader { next_file, last_sequence, first_log, sealed_log, .. } = self.header;
            let header = [next_file, last_sequence, first_log, sealed_log.map(|(log, _)| log)];
            let mut words = header.map(|word| word.map_or(0, |word| word + 1)).to_vec();
            words.push(self.added.len() as u64);
            words.extend(self.added.iter().chain(&self.removed));
            words.resize(words.len() + self.padding, u64::MAX);
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        }

        fn decode(bytes: &[u8]) -> std::result::Result<Self, String> {
            let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let words: Vec<u64> = words.filter(|&word| word != u64::MAX).collect();
            let header = |at: usize| words[at].checked_sub(1);
            let (added, removed) = words[5..].split_at(words[4] as usize);
            Ok(Change {
                header: EditHeader {
                    next_file: header(0),
                    last_sequence: header(1),
                    first_log: header(2),
                    sealed_log: header(3).map(|log| (log, 0)),
                    synced_log: None,
                    durable_batch: None,
                },
                added: added.to_vec(),
                removed: removed.to_vec(),
                padding: 0,
            })
        }

        fn header(&self) -> &EditHeader {
            &self.header
        }

        fn header_mut(&mut self) -> &mut EditHeader {
            &mut self.header
        }

        fn merge_files(&mut self, newer: Self) -> std::result::Result<(), String> {
            self.added.retain(|number| !newer.removed.contains(number));
            self.added.extend(newer.added);
            Ok(())
        }
    }

    #[derive(Clone, Default)]
    struct Numbers {
        numbers: Vec<u64>,
        retired: Arc<AtomicUsize>,
    }

    impl VersionState for Numbers {
        type Edit = Change;

        const ENGINE: &'static str = "numbers";

        fn to_edit(&self) -> Change {
            Change { added: self.numbers.clone(), ..Change::default() }
        }

        fn retire(&self, edit: &Change, _: &Self) {
            self.retired.fetch_add(edit.removed.len(), SeqCst);
        }
    }

    fn next(version: &Numbers, edit: &mut Change) -> Result<Numbers> {
        let mut next = version.clone();
        next.numbers.retain(|number| !edit.removed.contains(number));
        next.numbers.extend(&edit.added);
        Ok(next)
    }

    fn open(vfs: &Arc<dyn Vfs>) -> (VersionSet<Numbers>, RecoveredManifest<Numbers>) {
        let empty = Numbers::default();
        VersionSet::open(
            vfs,
            Change::default(),
            || Ok(()),
            |edit: &Change| {
                next(&empty, &mut Change { added: edit.added.clone(), ..Change::default() })
            },
        )
        .unwrap()
    }

    fn apply(versions: &VersionSet<Numbers>, edit: Change) -> Result<bool> {
        versions.log_and_apply(0, edit, next, |_, _| ())
    }

    #[test]
    fn edit_is_applied_and_seal_kept_whether_or_not_the_manifest_shrinks() {
        let faulty = FaultyVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let (versions, recovered) = open(&vfs);
        assert!(recovered.is_new);
        let bytes = || {
            let named = |path: &str| path.contains("MANIFEST-");
            faulty.files().iter().filter(|file| named(&file.path)).map(|file| file.len).sum::<u64>()
        };
        let long = |number| Change { padding: 12_500, added: vec![number], ..Change::default() };
        // The first edit creates a file; the others only append, unless they shrink the manifest.
        apply(&versions, long(0)).unwrap();
        faulty.fail_next(FaultKind::Names, 100);
        let mut count = 1;
        while bytes() < 3 << 19 {
            apply(&versions, long(count)).unwrap();
            count += 1;
        }
        faulty.clear_faults();
        let header = EditHeader { sealed_log: Some((7, 0)), ..EditHeader::default() };
        apply(&versions, Change { header, removed: vec![0], ..Change::default() }).unwrap();
        assert!(bytes() < 1 << 19, "the manifest was not shrunk");
        assert_eq!(versions.snapshot().1.header.sealed_log, None);
        versions.close().unwrap();
        assert!(matches!(apply(&versions, Change::default()), Err(Error::Closed)));
        let (_, recovered) = open(&vfs);
        assert!(!recovered.is_new);
        assert_eq!(recovered.edit.header.sealed_log, Some((7, 0)));
        assert_eq!(recovered.version.numbers, (1..count).collect::<Vec<_>>());
    }

    #[test]
    fn manifest_is_sound_while_edits_replace_it() {
        let vfs: Arc<dyn Vfs> = Arc::new(FaultyVfs::new(1));
        let (versions, _) = open(&vfs);
        std::thread::scope(|scope| {
            let edits = scope.spawn(|| {
                for number in 0..100 {
                    let edit =
                        Change { padding: 1 << 17, added: vec![number], ..Change::default() };
                    apply(&versions, edit).unwrap();
                }
            });
            while !edits.is_finished() {
                versions.verify_manifest(&vfs).unwrap();
            }
        });
    }

    #[test]
    fn version_is_kept_while_it_is_unknown_whether_the_manifest_has_its_edit() {
        let faulty = FaultyVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let (versions, _) = open(&vfs);
        apply(&versions, Change { added: vec![1], ..Change::default() }).unwrap();
        let mut made = None;
        faulty.fail_next(FaultKind::Sync, 1);
        let failed = versions.log_and_apply(
            0,
            Change { added: vec![2], removed: vec![1], ..Change::default() },
            |version, edit| {
                let next = Numbers { retired: Arc::default(), ..next(version, edit)? };
                made = Some(Arc::downgrade(&next.retired));
                Ok(next)
            },
            |_, _| unreachable!("the edit was not applied"),
        );
        assert!(failed.is_err_and(|error| !error.is_transient()));
        let (version, _) = versions.snapshot();
        assert_eq!((&version.numbers[..], version.retired.load(SeqCst)), (&[1][..], 0));
        assert!(made.as_ref().unwrap().upgrade().is_some(), "the version was dropped");
        versions.release(Clone::clone);
        assert!(made.unwrap().upgrade().is_none());
    }

    #[test]
    fn edit_of_an_earlier_generation_is_dropped() {
        let vfs: Arc<dyn Vfs> = Arc::new(FaultyVfs::new(1));
        let (versions, _) = open(&vfs);
        assert!(apply(&versions, Change { added: vec![1, 2], ..Change::default() }).unwrap());
        let clear = |version: &Numbers| {
            let edit = Change { removed: version.numbers.clone(), ..Change::default() };
            (edit, Numbers { numbers: Vec::new(), ..version.clone() })
        };
        versions.clear(5, 70, clear, |version, _| assert!(version.numbers.is_empty())).unwrap();
        assert!(!apply(&versions, Change { added: vec![3], ..Change::default() }).unwrap());
        let (version, edit) = versions.snapshot();
        assert_eq!((version.numbers.len(), version.retired.load(SeqCst)), (0, 2));
        assert_eq!((edit.header.first_log, edit.header.last_sequence), (Some(5), Some(70)));
    }
}
