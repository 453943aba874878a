//! The manifest of a backup: its files by the hashes of their blobs.
//!
//! ```text
//!   {"version":1,"store":"/data/store","taken_at":1764136800,"files":[
//!     {"path":"table-a/000007.sst","bytes":4096,"blobs":["af13…"],"modified_ns":…,"inode":…}, …]}\n
//!   HASH\n                                  64 hex digits: BLAKE3 of everything before this line
//! ```
//!
//! A path is a name, or a name in one directory; in version 2 in up to two. A manifest has version 2
//! only if a path needs it. A reader refuses newer versions, and a manifest that does not match its
//! own hash.

use serde::{Deserialize, Serialize};
use siltstone_engine::{Error, Result};

use crate::blobs::{BLOB_BYTES, is_hash};
use crate::sealed;

/// The newest version that this program reads.
const VERSION: u32 = 2;
/// The version of a manifest whose files lie in up to one directory.
const FLAT_VERSION: u32 = 1;

/// The content of a backup: its files, by the hashes of their blobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    version: u32,
    /// The directory of the store that was backed up, or the node of a cluster with its directory.
    pub store: String,
    /// Seconds since 1970-01-01 UTC at which the backup began.
    pub taken_at: u64,
    /// The files of the store, sorted by path. The catalogue is one of them.
    pub files: Vec<BackupFile>,
    /// Where the archive of changes goes on from it. Earlier programs ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveLink>,
}

/// The place of a backup in the archive of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveLink {
    /// The series of segments of the store.
    pub series: String,
    /// Segments up to this number have no change that is not in the backup.
    pub after: u64,
    /// When the state of the backup was complete, in milliseconds since 1970: later moments can be
    /// restored from it.
    pub from: u64,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// The path in the store: a name, or up to two directories and a name, with slashes between
    /// them.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// The blobs of the content, in order: BLAKE3 of each as 64 hex digits.
    pub blobs: Vec<String>,
    /// The modification time in nanoseconds since 1970, and the inode: a file that has kept both,
    /// its path and its length has not changed.
    pub(crate) modified_ns: u128,
    pub(crate) inode: u64,
}

impl BackupFile {
    /// The path of the directory in the store, empty for the store itself, and the name.
    pub(crate) fn place(&self) -> (&str, &str) {
        self.path.rsplit_once('/').unwrap_or(("", &self.path))
    }

    /// The number of directories in which it lies.
    fn depth(&self) -> u32 {
        self.path.matches('/').count() as u32
    }

    /// Whether the content cannot have changed since `self` was recorded.
    pub(crate) fn is_unchanged(&self, now: &BackupFile) -> bool {
        (self.bytes, self.modified_ns, self.inode) == (now.bytes, now.modified_ns, now.inode)
    }
}

impl Manifest {
    /// A manifest of `files`.
    pub fn new(store: String, taken_at: u64, mut files: Vec<BackupFile>) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let depth = files.iter().map(BackupFile::depth).max().unwrap_or_default();
        let version = if depth > 1 { VERSION } else { FLAT_VERSION };
        Manifest { version, store, taken_at, files, archive: None }
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        sealed::seal(self)
    }

    /// Decodes the manifest in the file `name`.
    ///
    /// # Errors
    /// `Corruption` if it does not match its hash or is malformed; `Invalid` for a newer version.
    pub(crate) fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        let damaged = |reason: &str| Error::corruption(name, 0, reason);
        let text = sealed::unseal(name, bytes)?;
        let version: Version = serde_json::from_slice(text).map_err(|e| damaged(&e.to_string()))?;
        if !(FLAT_VERSION..=VERSION).contains(&version.version) {
            return Err(Error::Invalid(format!(
                "the backup {name} has format {}, and this program reads formats up to {VERSION}: \
                 use a newer program",
                version.version
            )));
        }
        let manifest: Manifest =
            serde_json::from_slice(text).map_err(|e| damaged(&e.to_string()))?;
        let max_depth = if manifest.version == FLAT_VERSION { 1 } else { 2 };
        if let Some(file) = manifest.files.iter().find(|file| !is_valid(file, max_depth)) {
            return Err(damaged(&format!("it names an invalid file: {:?}", file.path)));
        }
        Ok(manifest)
    }
}

/// The part of a manifest that all versions have.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Whether the file has its blobs and lies in the store or in its directories.
fn is_valid(file: &BackupFile, max_depth: u32) -> bool {
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
    let has_blobs = file.blobs.len() as u64 == file.bytes.div_ceil(BLOB_BYTES);
    let are_hashes = file.blobs.iter().all(|blob| is_hash(blob));
    has_blobs && are_hashes && file.depth() <= max_depth && file.path.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn manifest(path: &str) -> Manifest {
        let file = BackupFile {
            path: path.into(),
            bytes: 7,
            blobs: vec![blake3::hash(b"content").to_hex().to_string()],
            modified_ns: 1 << 70,
            inode: 5,
        };
        Manifest::new("/store".into(), 1_764_136_800, vec![file])
    }

    #[test]
    fn manifest_round_trips_and_every_flipped_byte_is_detected() {
        let manifest = manifest("table-a/1.sst");
        let bytes = manifest.encode().unwrap();
        assert_eq!(Manifest::decode("m", &bytes).unwrap(), manifest);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(Manifest::decode("m", &damaged).unwrap_err().is_corruption(), "{at}");
            assert!(Manifest::decode("m", &bytes[..at]).unwrap_err().is_corruption(), "{at}");
        }
    }

    #[test]
    fn path_outside_of_the_store_is_rejected() {
        for path in ["../a", "/etc/passwd", "a/../b", "a/b/../c", "a/b/c/d", "", "a/", "a//b", ".."]
        {
            let bytes = manifest(path).encode().unwrap();
            assert!(Manifest::decode("m", &bytes).unwrap_err().is_corruption(), "{path}");
        }
    }

    #[test]
    fn version_is_the_first_one_that_has_such_paths() {
        for (path, version) in [("a", 1), ("table-a/b", 1), ("group-000/table-000001/b", 2)] {
            let bytes = manifest(path).encode().unwrap();
            assert_eq!(Manifest::decode("m", &bytes).unwrap().version, version, "{path}");
        }
        let wrong = Manifest { version: 1, ..manifest("a/b/c") };
        assert!(Manifest::decode("m", &wrong.encode().unwrap()).unwrap_err().is_corruption());
    }

    #[test]
    fn newer_version_is_refused_by_name() {
        let newer = Manifest { version: 3, ..manifest("a") };
        let error = Manifest::decode("m", &newer.encode().unwrap()).unwrap_err();
        assert!(error.to_string().contains("format 3"), "{error}");
    }
}
