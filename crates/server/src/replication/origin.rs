//! Where the tables of a restored node come from: a file in a backup of a cluster, and in the
//! directory that is restored from it, until the node has been started.
//!
//! ```text
// ANCHOR: layout
//! file := "SILTORIG"  version:u8  cluster:u64  groups:u16  checksum:u64
// ANCHOR_END: layout
//! ```
//!
//! Integers are little endian. The checksum is XXH3 of all before it. The version is 1; a reader
//! refuses a newer one. The file is written once, and removed when all groups have been created.
//!
//! ```text
//!   CLUSTER-ORIGIN                     of one group: table-000007/
//!   group-000/table-000007/            of several
//!   group-001/table-000003/ …
//! ```
//!
//! A restored directory becomes the only first node of a new cluster: nodes of one group must begin
//! with the same table, and several directories may be restored from different backups. The number
//! of the cluster must be another one than that of the old one, so that the nodes of both refuse each
//! other, whatever their addresses.

use siltstone::CLUSTER_ORIGIN;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};
use xxhash_rust::xxh3::xxh3_64;

use super::options::{ClusterOptions, MAX_GROUPS};

const MAGIC: &[u8; 8] = b"SILTORIG";
const VERSION: u8 = 1;

/// The cluster of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Its number.
    pub(crate) cluster: u64,
    /// Its groups.
    pub(crate) groups: u16,
}

impl Origin {
    /// Writes the file; the caller makes its name durable.
    pub(crate) fn write(self, vfs: &dyn Vfs) -> Result<()> {
        let mut out = [&MAGIC[..], &[VERSION], &self.cluster.to_le_bytes()].concat();
        out.extend_from_slice(&self.groups.to_le_bytes());
        out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
        let file = vfs.create(CLUSTER_ORIGIN)?;
        file.write_at(0, &out, Purpose::Manifest)?;
        file.sync(Purpose::Manifest)
    }

    /// Reads the file, if the directory has it.
    ///
    /// # Errors
    /// `Corruption`; `Refused` for a newer version; I/O errors.
    pub(crate) fn read(vfs: &dyn Vfs) -> Result<Option<Self>> {
        if !vfs.exists(CLUSTER_ORIGIN)? {
            return Ok(None);
        }
        let malformed = || Error::corruption(CLUSTER_ORIGIN, 0, "it is malformed");
        let file = vfs.open(CLUSTER_ORIGIN, Mode::Read)?;
        let mut bytes = vec![0; file.len()?.min(64) as usize];
        file.read_at(0, &mut bytes, Purpose::Recovery)?;
        let rest = bytes.strip_prefix(MAGIC).and_then(<[u8]>::split_first);
        let (version, rest) = rest.ok_or_else(malformed)?;
        if *version > VERSION {
            let reason = format!("it has format version {version}; run a newer program");
            return Err(Error::Refused { path: CLUSTER_ORIGIN.into(), reason });
        }
        let (body, checksum) = bytes.split_last_chunk().ok_or_else(malformed)?;
        let (cluster, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let (groups, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let origin =
            Origin { cluster: u64::from_le_bytes(*cluster), groups: u16::from_le_bytes(*groups) };
        let is_right = rest == checksum
            && xxh3_64(body) == u64::from_le_bytes(*checksum)
            && (1..=MAX_GROUPS).contains(&origin.groups);
        is_right.then_some(origin).ok_or_else(malformed).map(Some)
    }

    /// Removes the file, durably.
    pub(crate) fn remove(vfs: &dyn Vfs) -> Result<()> {
        vfs.remove(CLUSTER_ORIGIN)?;
        vfs.sync_dir(Purpose::Manifest)
    }

    /// Refuses options with which a restored directory must not be started.
    ///
    /// # Errors
    /// `InvalidOptions`, with what to do.
    pub(crate) fn check(self, options: &ClusterOptions) -> Result<()> {
        if options.join.is_some() {
            let reason = "this directory was restored from a backup, and becomes the first node of \
                 a new cluster: give --node-id and --initial-cluster with this node alone; others \
                 join it, in empty directories";
            return Err(Error::invalid_option("join", reason));
        }
        if options.members.len() != 1 {
            let reason = "this directory was restored from a backup, and becomes the only first \
                 node of a new cluster: name this node alone; the others join it, in empty \
                 directories";
            return Err(Error::invalid_option("initial-cluster", reason));
        }
        if options.group == self.cluster {
            let reason = format!(
                "this directory was restored from a backup of cluster {}: give the new cluster \
                 another number, so that nodes of the old one refuse its nodes",
                self.cluster
            );
            return Err(Error::invalid_option("cluster-id", reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use siltstone_vfs::Ram;

    use super::*;

    #[test]
    fn file_round_trips_and_damage_and_newer_versions_are_refused() {
        let origin = Origin { cluster: 4711, groups: 16 };
        let vfs = Ram::new();
        assert_eq!(Origin::read(&vfs).unwrap(), None);
        origin.write(&vfs).unwrap();
        assert_eq!(Origin::read(&vfs).unwrap(), Some(origin));
        let file = vfs.open(CLUSTER_ORIGIN, Mode::ReadWrite).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes, Purpose::Recovery).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            file.write_at(0, &damaged, Purpose::Manifest).unwrap();
            assert!(Origin::read(&vfs).unwrap_err().is_corruption(), "{at}");
        }
        bytes[8] = 2;
        file.write_at(0, &bytes, Purpose::Manifest).unwrap();
        let newer = Origin::read(&vfs).unwrap_err().to_string();
        assert!(newer.contains("format version 2"), "{newer}");
        Origin::remove(&vfs).unwrap();
        assert_eq!(Origin::read(&vfs).unwrap(), None);
    }
}
